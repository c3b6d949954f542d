package gen

import (
	"fmt"
	"slices"

	"kerninst/agent/isa"
	"kerninst/agent/snippet"
)

// machine is how one ISA does what a snippet says.
type machine struct {
	args []isa.Reg // that arguments are passed in
	ret  isa.Reg   // that what a function returns is in
	// temps is how many registers an instruction needs besides its values', fixed
	// which ones it overwrites whatever it is given, flags whether it changes flags.
	temps func(snippet.Insn) int
	fixed func(snippet.Insn) isa.RegSet
	flags func(snippet.Insn) bool
	// unwound is what a stack is followed with from the point on: nothing else is put
	// there.
	unwound isa.RegSet
	// save and restore put lowering.saved onto the stack and take it back, with the
	// flags where these are kept, and file states.
	save    func(*lowering)
	restore func(*lowering)
	copy    func(l *lowering, d, s isa.Reg) // s may be the stack pointer: as it was at the point
	sp      isa.Reg
	emit    func(*lowering, snippet.Insn)
	call    func(from, to isa.Addr) (code []byte, n int, err error) // of what the module loads with
}

var machines = map[string]*machine{"amd64": &amd64Machine, "arm64": &arm64Machine, "riscv64": &riscv64Machine}

// lowering turns a snippet into the instructions of one ISA.
//
// Every value has one register from where it is set to where it is last read, as
// code only goes forward. A value that is a machine register stays in it, and
// nothing else is put there; if an instruction overwrites that register anyway, or
// it is the stack pointer, it is copied first of all. Registers that are not free
// are saved before anything is changed, and taken back where all branches meet.
type lowering struct {
	*builder
	arch      *isa.Arch
	m         *machine
	s         snippet.Snippet
	regs      []isa.Reg // of each value
	tmp       []isa.Reg // for one instruction at a time
	saved     []isa.Reg // on the stack
	flagsIn   isa.Reg   // arm64: holds the flags
	saveFlags bool
	frame     int // bytes that the stack is lower than at the point
	labels    []int
	fixups    []fixup
}

// fixup is a branch whose target was not known when it was emitted.
type fixup struct {
	off, to int // in the code; index of an instruction
	encode  encoder
}

type encoder func(from, to isa.Addr) ([]byte, error)

// lower emits the snippet with its saves.
func lower(b *builder, arch *isa.Arch, s snippet.Snippet) {
	l := &lowering{builder: b, arch: arch, m: machines[arch.Name], s: s, flagsIn: noReg}
	if err := l.allocate(arch); err != nil {
		b.err = err
		return
	}
	b.state(b.point, 0, nil)
	l.m.save(l)
	b.out.Spilled = len(l.saved)
	if l.saveFlags {
		b.out.Spilled++
	}
	l.copies(arch)
	for _, i := range s.Code {
		l.labels = append(l.labels, len(b.out.Code))
		l.m.emit(l, i)
	}
	l.labels = append(l.labels, len(b.out.Code))
	l.fix()
	l.m.restore(l)
}

const noReg isa.Reg = 0xff

// source is the machine register that a value is, if it is one.
func (m *machine) source(arch *isa.Arch, i snippet.Insn) (isa.Reg, error) {
	switch i.Op {
	case snippet.Arg:
		return m.args[i.N], nil
	case snippet.Ret:
		return m.ret, nil
	case snippet.Reg:
		for _, r := range arch.All.Regs() {
			if r != arch.Flags && arch.RegName(r) == i.Name {
				return r, nil
			}
		}
		return noReg, fmt.Errorf("%w: %s has no register %q", ErrSnippet, arch.Name, i.Name)
	}
	return noReg, nil
}

// Reads lists the registers of which a snippet wants the value at the point: what
// leads to the patch must not use them.
func Reads(arch *isa.Arch, s snippet.Snippet) (set isa.RegSet, err error) {
	for _, i := range s.Code {
		r, err := machines[arch.Name].source(arch, i)
		if err != nil {
			return 0, err
		}
		if r != noReg {
			set |= isa.Set(r)
		}
		if i.Op == snippet.Stack {
			set |= machines[arch.Name].unwound
		}
	}
	return set, nil
}

// Argument is the register in which argument n of a function is passed.
func Argument(arch *isa.Arch, n int) isa.Reg { return machines[arch.Name].args[n] }

// Result is the register in which a function returns what it does.
func Result(arch *isa.Arch) isa.Reg { return machines[arch.Name].ret }

// allocate gives every value a register and finds out what must be saved.
func (l *lowering) allocate(arch *isa.Arch) error {
	reads, err := Reads(arch, l.s)
	if err != nil {
		return err
	}
	var fixed isa.RegSet
	temps := 0
	for _, i := range l.s.Code {
		if l.m.fixed != nil {
			fixed |= l.m.fixed(i)
		}
		temps = max(temps, l.m.temps(i))
		l.saveFlags = l.saveFlags || l.m.flags(i)
	}
	l.saveFlags = l.saveFlags && arch.All.Has(arch.Flags) && !l.in.Free[0].Has(arch.Flags)
	p := pool{busy: map[isa.Reg]int{}}
	order := generators[arch.Name].order
	for _, free := range []bool{true, false} {
		for _, r := range order {
			if l.in.Free[0].Has(r) == free && !(reads | fixed).Has(r) {
				p.order = append(p.order, r)
			}
		}
	}
	used := fixed
	take := func(from, to int) isa.Reg {
		r := p.take(from, to)
		if r != noReg {
			used |= isa.Set(r)
		}
		return r
	}
	for range temps {
		l.tmp = append(l.tmp, take(-1, always))
	}
	if l.saveFlags && arch.Name == "arm64" {
		l.flagsIn = take(-1, always)
	}
	if err := l.values(arch, fixed, take); err != nil {
		return err
	}
	if slices.Contains(l.regs, noReg) || slices.Contains(l.tmp, noReg) {
		return tooMuch(arch, l.s)
	}
	for _, r := range order {
		if used.Has(r) && !l.in.Free[0].Has(r) {
			l.saved = append(l.saved, r)
		}
	}
	return nil
}

// tooMuch says what to do about a snippet that has more values at once than there are registers. A
// walk up the stack leaves others few: what it starts from stays where it is.
func tooMuch(arch *isa.Arch, s snippet.Snippet) error {
	part := "a part of it"
	if s.Walks() {
		part = "stack, which takes most,"
	}
	return fmt.Errorf("%w: what is done at this point has more values at once than %s has registers: do %s at another instruction that runs as often, by its offset (kinst -l kinst::FUNCTION: lists them)", ErrNoRegister, arch.Name, part)
}

// values gives each value its register.
func (l *lowering) values(arch *isa.Arch, fixed isa.RegSet, take func(from, to int) isa.Reg) error {
	last := make([]int, l.s.Values())
	for k, i := range l.s.Code {
		for _, v := range i.Uses() {
			last[v] = k
		}
	}
	l.regs = make([]isa.Reg, l.s.Values())
	// Those that are copied first are there from the start, once for all values that
	// are the same register.
	copied := map[isa.Reg]isa.Reg{}
	for _, early := range []bool{true, false} {
		for k, i := range l.s.Code {
			if !i.Op.Sets() {
				continue
			}
			r, err := l.m.source(arch, i)
			if err != nil {
				return err
			}
			own := r == noReg
			first := !own && (fixed.Has(r) || r == l.m.sp)
			switch {
			case first != early:
			case first:
				if _, ok := copied[r]; !ok {
					copied[r] = take(-1, always)
				}
				l.regs[i.Dst] = copied[r]
			case !own:
				l.regs[i.Dst] = r
			default:
				l.regs[i.Dst] = take(k, max(k, last[i.Dst]))
			}
		}
	}
	return nil
}

// always is behind every instruction of a snippet.
const always = 1 << 30

// pool hands out registers for a while, the best first.
type pool struct {
	order []isa.Reg
	busy  map[isa.Reg]int // until the instruction of that index, inclusive
}

// take is a register that is free from an instruction to another, or noReg. Calls
// are in order of from.
func (p *pool) take(from, to int) isa.Reg {
	for _, r := range p.order {
		if until, ok := p.busy[r]; !ok || until < from {
			p.busy[r] = to
			return r
		}
	}
	return noReg
}

// poison overwrites what is free at the point. Everything that is not is as it was
// there, or on the stack. What is left behind leads to no memory of the kernel's.
func (l *lowering) poison(flags isa.Reg, load func(isa.Reg, uint64)) {
	for _, r := range l.in.Free[0].Regs() {
		if r != flags {
			load(r, poisonOf(r))
		}
	}
}

func poisonOf(r isa.Reg) uint64 { return 0x5a000000 | uint64(r)<<16 }

// odd is half of all patches: what one half's flags are left as, the other's are not.
func (l *lowering) odd() bool { return l.in.Patch>>8&1 != 0 }

// copies moves values out of registers that will be overwritten.
func (l *lowering) copies(arch *isa.Arch) {
	var done isa.RegSet
	for _, i := range l.s.Code {
		if r, _ := l.m.source(arch, i); r != noReg && l.regs[i.Dst] != r && !done.Has(r) {
			l.m.copy(l, l.regs[i.Dst], r)
			done |= isa.Set(r)
		}
	}
}

// fail notes an error; the first one stays.
func (l *lowering) fail(err error) { l.emit(nil, 0, err) }

// put emits one instruction.
func (l *lowering) put(code []byte) { l.one(code, nil) }

// branch emits a branch to an instruction further down.
func (l *lowering) branch(to int, encode encoder) {
	l.fixups = append(l.fixups, fixup{len(l.out.Code), to, encode})
	l.one(encode(l.pc(), l.pc())) // of the same length wherever it goes
}

func (l *lowering) fix() {
	for _, f := range l.fixups {
		l.patch(f.off, l.labels[f.to], f.encode)
	}
}

// patch encodes the branch at an offset again, to where its target turned out to be.
func (l *lowering) patch(off, to int, encode encoder) {
	if l.err != nil {
		return
	}
	at := l.in.Patch
	code, err := encode(at+isa.Addr(off), at+isa.Addr(to))
	if err != nil {
		l.err = reach(err)
		return
	}
	copy(l.out.Code[off:], code)
}

// ahead emits a branch to somewhere further down inside the same instruction's
// code: the result is to be called when that is reached.
func (l *lowering) ahead(encode encoder) (here func()) {
	off := len(l.out.Code)
	l.one(encode(l.pc(), l.pc()))
	return func() { l.patch(off, len(l.out.Code), encode) }
}

// cell is the address of a word of a cell.
func (l *lowering) cell(n, wordOff int) isa.Addr {
	return l.in.Cell + isa.Addr(8*(l.s.Word(n)+wordOff))
}

// held files what holds from here on: what is saved lies from the stack pointer
// upwards.
func (l *lowering) held(saved []isa.Reg) { l.state(l.point, l.frame, slices.Clone(saved)) }
