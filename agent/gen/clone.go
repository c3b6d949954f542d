package gen

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"kerninst/agent/isa"
	"kerninst/agent/isa/amd64"
	"kerninst/agent/isa/riscv64"
	"kerninst/agent/snippet"
)

// A clone is a patch that is a copy of whole functions, from the point on, with snippets where
// they were asked for: JIFL's copies (its paper's sections 2.2 and 3.5), made whole before
// anything leads to them. Control stays in the copy: jumps lead to the copies of where they led,
// calls come back into it, and call the copies of functions that are in it and the originals of
// others. It is as the original where the original is right: every instruction has the registers,
// the flags and the stack that it had, but for return addresses and registers that nobody reads. So anywhere
// between two instructions control may as well go on in the original, and that is where it goes at a trap, which
// the kernel knows by its address.

// Clone is what a clone is made of.
type Clone struct {
	// Insns are laid out in this order. The first ones are those that are displaced at the point.
	Insns []Cloned `json:"insns"`
	// Begins is, of each function, where in its code whoever calls it goes instead, if that is in
	// the clone: behind landing pad and ftrace site.
	Begins map[isa.Addr]isa.Addr `json:"begins,omitempty"`
	LSE    bool                  `json:"lse,omitempty"` // arm64: as Features have it
	// What is known to be free, and that snippets stand where they are inserted, is given up to see what it is good
	// for (figure 9 of JIFL's paper): Blind takes nothing for free that a snippet might overwrite, Called has each
	// counter in a routine of its own, that is called.
	Blind  bool `json:"blind,omitempty"`
	Called bool `json:"called,omitempty"`
	// Stay has it say nothing of where who sleeps in it goes on when it is undone.
	Stay bool `json:"stay,omitempty"`
}

// Cloned is one instruction of a clone.
type Cloned struct {
	Insn  isa.Insn   `json:"insn"`
	Bytes []byte     `json:"bytes"`
	Free  isa.RegSet `json:"free"` // before it
	// Key says of a static key's site how it is read: nothing rewrites a copy.
	Key *Key `json:"key,omitempty"`
	// Fixup is where control goes on when the instruction faults, if the kernel has that in its table.
	Fixup isa.Addr `json:"fixup,omitempty"`
	// Call is, of a static call's site, the trampoline that calls the same; Tail, that it
	// does not come back.
	Call isa.Addr `json:"call,omitempty"`
	Tail bool     `json:"tail,omitempty"`
	// Links are functions that an indirect or a static call was seen to lead to, and that are in the
	// clone. The first is tried first. By is the register that says where an indirect one leads.
	Links []isa.Addr `json:"links,omitempty"`
	By    *isa.Reg   `json:"by,omitempty"`
	// To is where what calls or jumps by a register leads that the instruction before it has said (riscv64: auipc).
	To isa.Addr `json:"to,omitempty"`
	// Note is the word, counted from 1, where the site notes to where it led out of the clone; in the one behind it,
	// if the flags are free, how often.
	Note int `json:"note,omitempty"`
	// Gate is passed by who calls the function that begins here.
	Gate *Gate `json:"gate,omitempty"`
	// Last: the instruction that would be next is not the one that follows here.
	Last bool `json:"last,omitempty"`
	// Entered is what comes before it on the way from who calls the function that begins here alone: not from what
	// jumps here. Before is what comes before it, whoever comes there; Behind what comes behind it, on the way to the
	// next instruction alone: when a jump is not taken, or a call has come back; Taken what comes when a
	// conditional jump is taken.
	Entered []Inserted `json:"entered,omitempty"`
	Before  []Inserted `json:"before,omitempty"`
	Behind  []Inserted `json:"behind,omitempty"`
	Taken   []Inserted `json:"taken,omitempty"`
}

// Gate has who calls a function that somebody traces, or has patched, call the original: the kernel, too,
// says so by what is at the function's begin. A copy is passed by as soon as that is written.
type Gate struct {
	Function isa.Addr `json:"function"`
	Site     isa.Addr `json:"site"` // where there are these bytes as long as nobody does; 0: nobody can
	Bare     uint32   `json:"bare"`
	Lead     []byte   `json:"lead,omitempty"` // an instruction behind that, which reads the same anywhere, in front of the copy
}

// Key is how a static key is read: the word of 32 bits at Enabled is zero while it is off.
// Control goes to Target while it is on or, with Off, while it is off; else on.
//
// With Entry, where its entry in the kernel's table is, it is not read: the clone has a site as the
// original does, which the kernel rewrites.
type Key struct {
	Entry   isa.Addr `json:"entry,omitempty"`
	Enabled isa.Addr `json:"enabled"`
	Target  isa.Addr `json:"target"`
	Off     bool     `json:"off,omitempty"`
}

// Inserted is a snippet at an instruction. Its cells are Word words behind the clone's; Free is what it
// may overwrite where it is not before the instruction. Number is the Piece's.
type Inserted struct {
	Number  int             `json:"number"`
	Snippet snippet.Snippet `json:"snippet"`
	Word    int             `json:"word"`
	Free    isa.RegSet      `json:"free,omitempty"`
}

// Site is an offset of a clone where something stands for an instruction that the kernel finds by
// its address. Where control goes on is To in the clone, or, if that is 0, where it would from there.
type Site struct {
	Off      int `json:"off"`
	Orig, To isa.Addr
	Entry    isa.Addr `json:"entry,omitempty"` // of a static key, that in the kernel's table; 0: it may fault
}

// Resume is an offset of a clone at which a task may sleep, where a call comes back to, or what may fault begins, and
// where in the original all is as it is there. Each of a clone is behind the one before.
type Resume struct {
	Off int      `json:"off"`
	To  isa.Addr `json:"to"`
}

// LongestSite is the most that SiteLen says.
const LongestSite = 5

// SiteLen is how long a static key's site is.
func SiteLen(arch *isa.Arch) int { return len(cloners[arch.Name].site) }

// Piece is what became of an Inserted: where in the code it is, and what it costs.
type Piece struct{ Number, Off, Len, Word, Added, Spilled int }

// cloner is what one ISA adds to make clones.
type cloner struct {
	// key reads a static key, and goes to a place while it is on, or while it is off; site is as long as
	// a static key's site, and does nothing.
	key  func(b *builder, x *Cloned, to isa.Addr)
	site []byte
	// align comes in front of a site whose offset is no multiple of as many bytes as that has; nil: it may be anywhere.
	align []byte
	gate  func(b *builder, g *Gate)
	// aim encodes a conditional jump that reaches where it leads; nil: what moves it does that.
	aim func(i isa.Insn, code []byte, from isa.Addr) ([]byte, error)
	// call encodes a call that reaches where it leads; nil: arch.Call does.
	call encoder
	// linked is the register that a call links, if jumps that are far take one.
	linked isa.RegSet
	// flags: to read a key changes flags; registers: it takes so many.
	flags     bool
	registers int
	near      bool // addresses that are near take an instruction less
	// away is how far from their originals all clones have the most bytes, besides.
	away isa.Addr
	// moves are the registers by which the kernel's tables find the next frame.
	moves isa.RegSet
	// begins are the registers that are free where a function begins, and where a jump leads by one of them.
	begins isa.RegSet
	linker
	straightener
}

var cloners = map[string]cloner{
	"amd64": {key: keyAmd64, site: amd64.Nop5, gate: gateAmd64, flags: true, moves: framesAmd64, linker: linksAmd64, straightener: straightener{nop: amd64.IsNop}},
	"arm64": {key: keyArm64, site: nopArm64, gate: gateArm64, aim: aimArm64, registers: 1, near: true, linker: linksArm64,
		straightener: straightener{nop: func(code []byte) bool { return bytes.Equal(code, nopArm64) }}},
	"riscv64": {key: keyRiscv64, site: nopRiscv64, align: cnopRiscv64, gate: gateRiscv64, aim: aimRiscv64, call: riscv64.NearCall,
		linked: isa.Set(riscv64.RA), registers: 1, near: true, away: 1 << 29, begins: beginsRiscv64, linker: linksRiscv64,
		straightener: straightener{riscv64.IsNop, riscv64.Pair, riscv64.PairAt}},
}

// ReadsKey reports whether a static key can be read where some registers are free.
func ReadsKey(arch *isa.Arch, free isa.RegSet) bool {
	c := cloners[arch.Name]
	return (!c.flags || free.Has(arch.Flags)) && len(spare(generators[arch.Name].order, &Cloned{Free: free}, c.registers)) == c.registers
}

// Words is how many words of cells a clone's snippets have together.
func (c *Clone) Words() (n int) {
	for _, x := range c.Insns {
		if x.Note > 0 {
			n = max(n, x.Note+1)
		}
		for _, s := range slices.Concat(x.Entered, x.Before, x.Behind, x.Taken) {
			n = max(n, s.Word+s.Snippet.Words())
		}
	}
	return n
}

// Sites is how many of its instructions may fault and go on elsewhere, and how many are static keys' sites; none has none.
func (c *Clone) Sites() (faults, keys int) {
	if c == nil {
		return 0, 0
	}
	for _, x := range c.Insns {
		switch {
		case x.Key != nil && x.Key.Entry != 0:
			keys++
		case x.Fixup != 0:
			faults++
		}
	}
	return faults, keys
}

// Sited reports whether a clone has sites; none has not.
func (c *Clone) Sited() bool {
	faults, keys := c.Sites()
	return faults+keys > 0
}

// Copied is what a clone is a copy of, from and up to where, in that order.
func (c *Clone) Copied() (out [][2]isa.Addr) {
	for _, x := range c.ByAddress() {
		if n := len(out); n > 0 && out[n-1][1] == x.Insn.Addr {
			out[n-1][1] = x.Insn.End()
		} else {
			out = append(out, [2]isa.Addr{x.Insn.Addr, x.Insn.End()})
		}
	}
	return out
}

// ByAddress are the instructions in the order of their originals.
func (c *Clone) ByAddress() []*Cloned {
	if c == nil {
		return nil
	}
	out := make([]*Cloned, len(c.Insns))
	for k := range c.Insns {
		out[k] = &c.Insns[k]
	}
	slices.SortFunc(out, func(a, b *Cloned) int { return cmp.Compare(a.Insn.Addr, b.Insn.Addr) })
	return out
}

// CloneLen is the most bytes that a clone has, wherever it is in reach.
func CloneLen(arch *isa.Arch, in Input) (int, error) {
	in.Patch = in.Clone.Insns[0].Insn.Addr&^(farOff-1) + cloners[arch.Name].away
	in.Cell = in.Patch + farOff
	out, err := Patch(arch, in)
	n := len(out.Code)
	if cloners[arch.Name].near {
		for _, x := range in.Clone.Insns {
			n += arch.MaxLen * x.addresses()
		}
	}
	return n, err
}

// addresses is how many addresses are formed at an instruction, at the most, that may take an instruction
// less where they are near; a counter, where its address is no good number to add (see Unit), takes one more.
func (x *Cloned) addresses() (n int) {
	n = len(x.Links) + len(x.Entered) + len(x.Before) + len(x.Behind) + len(x.Taken)
	if x.Note != 0 { // where it leads, and the cell's
		n += 2
	}
	for _, is := range []bool{x.Insn.Traits&isa.PCRel != 0, x.Gate != nil, x.Key != nil} {
		if is {
			n++
		}
	}
	return n
}

// farOff is some distance that is always in reach.
const farOff = 1 << 16

// mostRounds is how often a clone is laid out until nothing moves any more: only jumps that are
// longer where they lead farther make it move.
const mostRounds = 16

// clone emits all of a clone.
func (b *builder) clone(arch *isa.Arch) {
	c := b.in.Clone
	where, led := make(map[isa.Addr]int, len(c.Insns)), map[isa.Addr]bool{}
	for k, x := range c.Insns {
		where[x.Insn.Addr], led[x.Insn.Target], led[x.Fixup], led[x.To] = k, true, true, true
		if x.Key != nil {
			led[x.Key.Target] = true
		}
	}
	for _, begin := range c.Begins { // where who calls a function goes
		led[begin] = true
	}
	unused := func(k int) bool { // a trap behind what control does not go on from
		return k > 0 && len(c.Insns[k].Before) == 0 && c.Insns[k].Insn.Flow == isa.FlowTrap && !led[c.Insns[k].Insn.Addr] && c.Insns[k-1].Leaves()
	}
	straight := c.straighten(arch, led)
	offs := make([]int, 2*len(c.Insns)) // those of gates behind the others
	now := &builder{}
	for range mostRounds {
		code, states := len(now.out.Code), len(now.out.States)
		now = &builder{in: b.in, point: b.point}
		now.out.Code, now.out.States = make([]byte, 0, code+code/16), make([]State, 0, states+states/16)
		next := now.layOut(arch, unused, straight, func(a isa.Addr) isa.Addr {
			if begin, ok := c.Begins[a]; ok {
				return b.in.Patch + isa.Addr(offs[len(c.Insns)+where[begin]])
			}
			if k, ok := where[a]; ok {
				return b.in.Patch + isa.Addr(offs[k])
			}
			return a
		})
		if now.err != nil || slices.Equal(next, offs) {
			b.out, b.err = now.out, now.err
			b.out.Offs = append(now.starts, now.behind)
			return
		}
		offs = next
	}
	b.err = errors.New("clone: no two ways of laying it out are the same")
}

// layOut emits the instructions, each aimed by where its targets are taken to be. It returns
// where they turn out to begin, what is inserted included.
func (b *builder) layOut(arch *isa.Arch, unused func(k int) bool, straight straight, aim func(isa.Addr) isa.Addr) []int {
	n := len(b.in.Clone.Insns)
	offs := make([]int, 2*n)
	b.starts = make([]int, 0, n+1)
	moves, told := cloners[arch.Name].moves, false
	for k := range b.in.Clone.Insns {
		x := &b.in.Clone.Insns[k]
		b.starts = append(b.starts, len(b.out.Code))
		offs[n+k] = len(b.out.Code)
		switch {
		case x.Gate != nil && k > 0:
			b.gate(arch, x.Gate)
			told = false
		case x.Gate != nil: // who comes by the entry has passed by the original's site
			b.later = append(b.later, func() {
				offs[n] = len(b.out.Code)
				b.gate(arch, x.Gate)
				b.native(arch, isa.Insn{Addr: x.Insn.Addr, Len: x.Insn.Len, Flow: isa.FlowJump, Target: b.in.Patch}, x)
			})
		}
		told = b.before(arch, x, x.Entered) && told
		if offs[k] = len(b.out.Code); unused(k) {
			continue
		}
		told = b.before(arch, x, x.Before) && told
		if !told {
			b.state(x.Insn.Addr, 0, nil)
		}
		if w, ok := straight.whole[k]; ok {
			b.formed(arch, x, w, aim)
		} else if !straight.none[k] {
			b.carry(arch, x, aim)
		}
		i := x.Insn
		for _, s := range x.Behind {
			b.insert(arch, x, s)
		}
		if x.Last && !x.Leaves() {
			behind := *x
			if i.Flow == isa.FlowCall || i.Flow == isa.FlowIndirectCall { // what called has where that came back to
				behind.Free |= cloners[arch.Name].linked
			}
			b.native(arch, isa.Insn{Addr: i.Addr, Len: i.Len, Flow: isa.FlowJump, Target: aim(i.End())}, &behind)
		}
		if !straight.none[k] || i.Flow.Ends() || len(x.Behind) > 0 { // else as before
			told = len(x.Behind) == 0 && !x.Last && !i.Flow.Ends() && (i.Writes|i.Clobbers)&moves == 0
		}
		if b.err != nil {
			return offs
		}
	}
	b.behind = len(b.out.Code)
	for k := 0; k < len(b.later); k++ { // which may add to them
		b.later[k]()
	}
	return offs
}

// before emits what comes before an instruction. It reports whether there is none.
func (b *builder) before(arch *isa.Arch, x *Cloned, inserted []Inserted) bool {
	for _, s := range inserted {
		s.Free = x.Free
		b.insert(arch, x, s)
	}
	return len(inserted) == 0
}

// gate emits what who calls a copy comes by first.
func (b *builder) gate(arch *isa.Arch, g *Gate) {
	b.state(g.Function, 0, nil)
	if g.Site != 0 {
		cloners[arch.Name].gate(b, g)
	}
	b.emit(g.Lead, 0, nil)
}

// Leaves reports whether control never goes on from an instruction to the one behind it.
func (x *Cloned) Leaves() bool {
	f := x.Insn.Flow
	if x.Call != 0 {
		return x.Tail
	}
	return f.Ends() && f != isa.FlowCall && f != isa.FlowIndirectCall && x.Key == nil
}

// Carries says why an instruction cannot be in a clone; nil: it can.
func Carries(arch *isa.Arch, i isa.Insn, code []byte) error {
	b := &builder{in: Input{Patch: i.Addr}}
	b.native(arch, i, &Cloned{Insn: i, Bytes: code, Free: arch.All})
	return b.err
}

// insert emits a snippet at an instruction.
func (b *builder) insert(arch *isa.Arch, x *Cloned, s Inserted) {
	if b.in.Clone.Blind {
		s.Free = 0
	}
	if b.in.Clone.Called && s.Snippet.IsCounter() {
		b.outOfLine(arch, x, s)
		return
	}
	b.inline(arch, x, s, State{}, 0)
}

// outOfLine emits a call to a routine that counts, and that routine behind all others. As any call's, its frame record
// is pushed, where there is one; the stack is as much lower in the routine, by which who walks it comes.
func (b *builder) outOfLine(arch *isa.Arch, x *Cloned, s Inserted) {
	c, point, added := callers[arch.Name], b.point, b.out.Added
	b.state(x.Insn.Addr, 0, nil)
	b.point = x.Insn.Addr
	c.enter(b)
	b.point = point
	at := len(b.out.Code)
	call := func(from, to isa.Addr) ([]byte, error) {
		m, err := arch.Call(isa.Insn{Addr: x.Insn.Addr, Len: x.Insn.Len, Flow: isa.FlowJump, Target: to}, x.Bytes, from)
		b.out.Added += m.Insns
		return m.Code, err
	}
	b.jump(call, b.pc())
	if c.frame > 0 {
		b.emit(c.pop())
	}
	b.state(x.Insn.Addr, 0, nil)
	around := b.out.Added - added + 1
	s.Free &^= isa.Set(c.saved...) // which have where the routine returns to
	b.out.Added = added
	b.later = append(b.later, func() {
		b.aimAgain(call, at, b.pc())
		in := State{SP: c.frame, Saved: c.saved}
		if c.frame == 0 { // what the call has pushed
			in.SP = 8
		}
		b.inline(arch, x, s, in, around)
		b.emit(c.ret, 0, nil)
		b.out.Added = added
	})
}

// inline emits a snippet where the stack is as a state says, which has nothing else. So many instructions are around it.
func (b *builder) inline(arch *isa.Arch, x *Cloned, s Inserted, where State, around int) {
	in := b.in
	in.Clone, in.Snippet, in.Locals = nil, s.Snippet, nil
	in.Patch, in.Cell = b.pc(), b.in.Cell+isa.Addr(8*s.Word)
	in.Displaced, in.Bytes = []isa.Insn{x.Insn}, x.Bytes
	in.Free = []isa.RegSet{s.Free &^ arch.NeverUse}
	one := &builder{in: in, point: x.Insn.Addr, unit: Unit(arch, s.Snippet, in.Cell)}
	if s.Snippet.IsCounter() {
		generators[arch.Name].count(one)
	} else {
		lower(one, arch, s.Snippet)
	}
	if one.err != nil {
		b.err = fmt.Errorf("at %v: %w", x.Insn.Addr, one.err)
		return
	}
	at := len(b.out.Code)
	if n := len(b.out.States); n > 0 && b.out.States[n-1].Off == at { // it is about no code
		b.out.States = b.out.States[:n-1]
	}
	for _, st := range one.out.States {
		st.Off, st.SP, st.Saved = st.Off+at, st.SP+where.SP, append(st.Saved, where.Saved...)
		b.out.States = append(b.out.States, st)
	}
	b.out.Pieces = append(b.out.Pieces, Piece{s.Number, at, len(one.out.Code), s.Word, one.out.Added + around, one.out.Spilled})
	b.out.Code = append(b.out.Code, one.out.Code...)
}

// carry emits an instruction that does in the clone what it does where it stands.
func (b *builder) carry(arch *isa.Arch, x *Cloned, aim func(isa.Addr) isa.Addr) {
	i := x.Insn
	switch {
	case x.Key != nil && x.Key.Entry != 0:
		if c := cloners[arch.Name]; c.align != nil && len(b.out.Code)%len(c.site) != 0 {
			b.emit(c.align, 0, nil)
		}
		b.site(x, x.Key.Target, x.Key.Entry, aim)
		b.emit(cloners[arch.Name].site, 0, nil)
		return
	case x.Key != nil:
		cloners[arch.Name].key(b, x, aim(x.Key.Target))
		if !ReadsKey(arch, x.Free) && b.err == nil {
			b.err = fmt.Errorf("%w: the flags are used behind the static key at %v", ErrNoRegister, i.Addr)
		}
		return
	case x.To != 0:
		b.known(arch, x, aim)
		return
	case x.Call != 0 || x.By != nil || x.Note != 0:
		b.route(arch, x, aim)
		return
	case i.Flow == isa.FlowTrap: // here the original goes on
		i.Flow, i.Target, aim = isa.FlowJump, i.Addr, func(a isa.Addr) isa.Addr { return a }
	}
	if x.Fixup != 0 {
		b.site(x, x.Fixup, 0, aim)
	}
	if i.Target != 0 {
		i.Target = aim(i.Target)
	}
	if len(x.Taken) == 0 {
		b.native(arch, i, x)
		return
	}
	b.taken(arch, i, x)
}

// taken emits a conditional jump, and behind all else what comes when it is taken, which goes on to where the jump leads.
func (b *builder) taken(arch *isa.Arch, i isa.Insn, x *Cloned) {
	at, to := len(b.out.Code), i.Target
	i.Target = b.pc()
	b.native(arch, i, x) // aimed again when it is known where to: it has the same length then
	n := len(b.out.Code) - at
	b.later = append(b.later, func() {
		b.state(x.Insn.Addr, 0, nil)
		again := &builder{in: b.in}
		again.in.Patch += isa.Addr(at)
		i.Target = b.pc()
		again.native(arch, i, x)
		if b.err = again.err; b.err == nil && len(again.out.Code) != n {
			b.err = fmt.Errorf("%w: what is taken at %v is too far away", ErrReach, x.Insn.Addr)
		}
		if b.err == nil {
			copy(b.out.Code[at:], again.out.Code)
		}
		for _, s := range x.Taken {
			b.insert(arch, x, s)
		}
		b.native(arch, isa.Insn{Addr: x.Insn.Addr, Len: x.Insn.Len, Flow: isa.FlowJump, Target: to}, x)
	})
}

// site notes that the next instruction is one that the kernel finds by its address.
func (b *builder) site(x *Cloned, to, entry isa.Addr, aim func(isa.Addr) isa.Addr) {
	s := Site{Off: len(b.out.Code), Orig: x.Insn.Addr, To: aim(to), Entry: entry}
	if s.To == to {
		s.To = 0
	}
	b.out.Sites = append(b.out.Sites, s)
	if entry == 0 {
		b.resumes(x.Insn.Addr)
	}
}

// resumes notes that who sleeps where the next byte is may as well go on at an instruction of the original.
func (b *builder) resumes(to isa.Addr) {
	off := len(b.out.Code)
	if n := len(b.out.Resumes); b.in.Clone == nil || b.in.Clone.Stay || n > 0 && b.out.Resumes[n-1].Off == off {
		return // of two at one place, between which nothing is, either is right
	}
	b.out.Resumes = append(b.out.Resumes, Resume{off, to})
}

// native emits what an instruction is that leads where it says. A call comes back into the clone.
func (b *builder) native(arch *isa.Arch, i isa.Insn, x *Cloned) {
	b.leading(arch, i, x)
	if i.Flow == isa.FlowCall || i.Flow == isa.FlowIndirectCall { // who is called may sleep
		b.resumes(x.Insn.End())
	}
}

// leading is native without what is to be known of where a call comes back to.
func (b *builder) leading(arch *isa.Arch, i isa.Insn, x *Cloned) {
	i.Traits &^= isa.Privileged | isa.Shadow | isa.Landing | isa.Exclusive // which matter to who takes an instruction away alone
	if i.Flow == isa.FlowNone && i.Traits&isa.PCRel == 0 && i.Rel32 == 0 { // most are the same anywhere
		b.emit(x.Bytes, 0, nil)
		return
	}
	if aim := cloners[arch.Name].aim; aim != nil && i.Flow == isa.FlowCond && len(x.Taken) == 0 {
		if code, err := aim(i, x.Bytes, b.pc()); err == nil {
			b.emit(code, 0, nil)
			return
		}
	}
	if call := cloners[arch.Name].call; call != nil && i.Flow == isa.FlowCall {
		if code, err := call(b.pc(), i.Target); err == nil {
			b.emit(code, 0, nil)
			return
		}
	}
	var m isa.Moved
	var err error
	switch i.Flow {
	case isa.FlowCall:
		m, err = arch.Call(isa.Insn{Addr: i.Addr, Len: i.Len, Flow: isa.FlowJump, Target: i.Target}, x.Bytes, b.pc())
	case isa.FlowIndirectCall:
		i.Flow = isa.FlowNone
		m, err = arch.Move(i, x.Bytes, b.pc(), x.Free)
	case isa.FlowJump:
		m, err = arch.Move(isa.Insn{Addr: i.Addr, Len: i.Len, Flow: isa.FlowJump, Target: i.Target}, x.Bytes, b.pc(), x.Free)
	default:
		m, err = arch.Move(i, x.Bytes, b.pc(), x.Free)
	}
	if err != nil {
		err = fmt.Errorf("%v: %w", x.Insn.Addr, err)
	}
	b.emit(m.Code, 0, moved(err))
}
