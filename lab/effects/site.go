package effects

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/place"
	"kerninst/agent/plan"
	"kerninst/agent/snippet"
)

// Sample is an instruction of a kernel, or two that belong together, that is to be
// displaced.
type Sample struct {
	Form     string
	Code     []byte
	Function string   // of the kernel that it is in
	Addr     isa.Addr // where it is in the kernel
	Edge     bool     // its displacement is the least or greatest there is
}

// Site is a sample laid out in the memory of the program that runs it
// (guest/bench/equiv.c), and its splice. All that is around it are traps: in the text,
// where its branches lead, and where values lead that registers and memory begin with.
// Distances to what it refers to are those of the kernel; where it is differs, but for
// the address's low bits.
type Site struct {
	Sample
	Plan  *plan.Plan
	At    isa.Addr   // of its first instruction
	Falls isa.Addr   // the trap behind it
	Leads isa.Addr   // where it branches directly; 0: nowhere
	Free  isa.RegSet // what the planner was told is free

	arch   *isa.Arch
	insns  []isa.Insn
	text   []byte
	lo     isa.Addr // of text
	entry  isa.Addr
	cell   isa.Addr
	memory map[isa.Addr]uint64 // kind of each page
	pads   []isa.Addr
	differ isa.RegSet // what may come out otherwise each time
}

const (
	page = 4096
	// What the program has at fixed addresses.
	arena   = isa.Addr(0x48000000)
	runs    = 8 // of each site
	areaLen = page
	// values is how many of a site's pads registers and memory hold.
	values = 2
)

// kinds of pages.
const (
	textPage = iota
	dataPage
	cellPage
)

// ground is how a site is laid out on one ISA.
type ground struct {
	// bases are addresses that sites are put behind, the first that will do. amd64's
	// calls push addresses of 31 bits.
	bases []isa.Addr
	low   isa.Addr // bits of a kernel's address that stay
	trap  []byte   // what text is filled with
	// around is how many bytes of text there are on either side.
	around int
	// from is how far from a site areas for patches may lie, either way; the furthest
	// that a plan allows is tried besides.
	from []isa.Addr
}

var grounds = map[string]*ground{
	"amd64": {[]isa.Addr{0x50000000, 0x7e000000, 0xa0000000}, page - 1, []byte{0xcc}, 0x180,
		[]isa.Addr{0x10000, 0x400000, 0x8000000, 0x20000000}},
	"arm64": {[]isa.Addr{0x700000000}, 1<<21 - 1, []byte{0, 0, 0x20, 0xd4}, 0x100,
		[]isa.Addr{0x10000, 0xf0000, 0x400000, 0x6000000}},
	"riscv64": {[]isa.Addr{0x1000000000}, 1<<21 - 1, []byte{0x02, 0x90}, 0x200,
		[]isa.Addr{0x4000, 0x80000, 0xfb000, 0x400000, 0x40000000}},
}

// taken is what the program itself occupies, with its heap.
var taken = []place.Window{{Lo: 0, Hi: 0x10000000}, {Lo: arena - page, Hi: arena + 0x20000}, {Lo: 0x7ab00000, Hi: 0x7ab10000}}

// errElsewhere says that a sample cannot be laid out.
var errElsewhere = errors.New("does not fit into the program's memory")

// Variant is what the planner is told.
type Variant struct {
	Share    int // of four registers that the sample does not use, so many are free
	Poisoned bool
	NoLSE    bool
	Lead     bool // on riscv64: what is displaced with it stands before it, not behind
	Trapped  bool // by a breakpoint
}

// Splice lays a sample out and plans its splice. The error is a *plan.Refusal, or
// errElsewhere.
func Splice(arch *isa.Arch, r *rand.Rand, c Sample, v Variant) (*Site, error) {
	err := error(errElsewhere)
	for _, base := range grounds[arch.Name].bases {
		s := &Site{Sample: c, arch: arch, memory: map[isa.Addr]uint64{}}
		if err = s.lay(base, v.Lead); err != nil {
			continue
		}
		s.choose(r, v)
		if err = s.plan(r, v); err == nil {
			return s, nil
		}
	}
	return nil, err
}

// lay puts the sample and what it refers to into memory.
func (s *Site) lay(base isa.Addr, lead bool) error {
	g := grounds[s.arch.Name]
	s.At = base + s.Addr&g.low
	s.lo = s.At - isa.Addr(g.around)
	s.text = slices.Repeat(g.trap, (2*g.around+len(s.Code)+7)/len(g.trap))
	s.write(s.At, s.Code)
	s.entry, s.Falls = s.At, s.At+isa.Addr(len(s.Code))
	for k := 0; k < len(s.Code); {
		i := s.arch.Decode(s.Code[k:], s.At+isa.Addr(k))
		s.insns = append(s.insns, i)
		k += i.Len
	}
	if s.arch.Name == "riscv64" {
		s.neighbours(lead)
	}
	if err := s.map_(s.lo, len(s.text), textPage); err != nil {
		return err
	}
	// Where registers and memory may lead, with another alignment each.
	else_ := s.At&^(page-1) + 4*page
	if err := s.map_(else_, page, textPage); err != nil {
		return err
	}
	s.pads = []isa.Addr{else_ + 0x40, else_ + 0x8c, s.Falls}
	return s.refer()
}

// neighbours are the nops that a window of riscv64 takes along.
func (s *Site) neighbours(lead bool) {
	const nop, shortNop = "\x13\x00\x00\x00", "\x01\x00"
	if last := s.insns[len(s.insns)-1]; lead || last.Flow.Ends() {
		before := nop + shortNop
		s.entry -= isa.Addr(len(before))
		s.write(s.entry, []byte(before))
		return
	}
	behind := shortNop + nop + shortNop
	s.write(s.Falls, []byte(behind))
	s.Falls += isa.Addr(len(behind))
}

func (s *Site) write(a isa.Addr, b []byte) { copy(s.text[a-s.lo:], b) }

// refer maps what the sample refers to.
func (s *Site) refer() error {
	last := s.insns[len(s.insns)-1]
	s.Leads = last.Target
	if len(s.insns) == 2 { // auipc and jalr
		a, b := s.arch.Op(s.Code, s.At), s.arch.Op(s.Code[s.insns[0].Len:], last.Addr)
		s.Leads = isa.Addr(a.Imm + b.Imm)
	}
	if s.Leads != 0 {
		if s.Leads >= s.entry && s.Leads < s.Falls {
			return fmt.Errorf("it leads to itself: %w", errElsewhere)
		}
		if err := s.map_(s.Leads&^7, 8, textPage); err != nil {
			return err
		}
		s.pads = append(s.pads, s.Leads)
	}
	if a, ok := s.operand(last); ok {
		if err := s.map_(a, 64, dataPage); err != nil {
			return err
		}
	}
	return nil
}

// operand is the address of memory that an instruction names by its own.
func (s *Site) operand(i isa.Insn) (isa.Addr, bool) {
	switch {
	case i.Traits&isa.PCRel == 0 || i.Traits&isa.Mem == 0 || i.Target != 0 && i.Rel32 == 0:
		return 0, false
	case i.Rel32 != 0:
		return i.Operand, true
	case s.arch.Name == "arm64": // imm19 words: the literal of a load
		w := isa.ByteOrder.Uint32(s.Code)
		return i.Addr + isa.Addr(int64(int32(w<<8)>>13)*4), true
	}
	return 0, false
}

// map_ adds the pages that hold n bytes. What is text stays text.
func (s *Site) map_(a isa.Addr, n int, kind uint64) error {
	lo, hi := a&^(page-1), a+isa.Addr(n)
	if hi < lo || hi > 1<<38 || free(lo, hi) != nil {
		return fmt.Errorf("%v: %w", a, errElsewhere)
	}
	for p := lo; p < hi; p += page {
		if was, ok := s.memory[p]; !ok || was != textPage {
			s.memory[p] = kind
		}
	}
	return nil
}

// free says why [lo, hi) is the program's own.
func free(lo, hi isa.Addr) error {
	for _, w := range taken {
		if w.Lo < hi && lo < w.Hi {
			return errElsewhere
		}
	}
	return nil
}

// choose decides what is free: of what the sample does not use, as much as is asked
// for, but on riscv64 one at least.
func (s *Site) choose(r *rand.Rand, v Variant) {
	unused := s.arch.All &^ s.arch.NeverUse &^ kept[s.arch.Name]
	for _, i := range s.insns {
		unused &^= i.Reads | i.Writes | i.Clobbers
	}
	for _, x := range unused.Regs() {
		if r.IntN(4) < v.Share {
			s.Free |= isa.Set(x)
		}
	}
	if s.arch.Name == "riscv64" {
		jump := (unused & isa.Set(6, 7, 28, 29, 30, 31)).Regs()
		s.Free |= isa.Set(jump[r.IntN(len(jump))])
	}
	for _, u := range unrepeatable {
		if s.arch.Name == "amd64" && strings.Contains(string(s.Code), string(u)) {
			s.differ = s.insns[0].Writes | s.insns[0].Clobbers
		}
	}
}

// plan asks the planner, with one area after the other for the patch, in a random
// order.
func (s *Site) plan(r *rand.Rand, v Variant) error {
	var refused *plan.Refusal
	for _, a := range s.areas(r) {
		text, err := s.kernel()
		if err != nil {
			return err
		}
		area := place.NewArea(1, a, a+areaLen, areaLen)
		heap := &place.Heap{}
		heap.Add(area)
		req := plan.Request{Function: "f", Offset: isa.Off(s.At - s.function()), Heap: heap,
			Features: gen.Features{LSE: !v.NoLSE}, Facts: s.facts}
		if v.Trapped {
			req.Mechanism = plan.Trap
		}
		if v.Poisoned {
			req.Snippet = snippet.Poisoned()
		}
		p, ref := plan.Point(text, req)
		if ref == nil {
			s.Plan, s.cell = p, p.Cell
			if err := s.map_(p.Patch, len(p.Code), textPage); err != nil {
				return err
			}
			return s.map_(s.cell, 8, cellPage)
		}
		if refused = ref; ref.Reason != plan.OutOfReach {
			break
		}
	}
	if refused == nil {
		return errElsewhere
	}
	return refused
}

func (s *Site) facts(ktext.Func) (plan.Facts, error) {
	return plan.Facts{Source: plan.SourceFunction, Free: func(isa.Addr) isa.RegSet { return s.Free }}, nil
}

// areas are where patches may lie: in free memory, on any line, but so that the patch
// and its cells are on different pages.
func (s *Site) areas(r *rand.Rand) (out []isa.Addr) {
	w := place.Reach(s.arch, s.entry, s.Falls)
	all := []isa.Addr{w.Lo + page, w.Hi - 2*page}
	for _, d := range grounds[s.arch.Name].from {
		all = append(all, s.At-d, s.At+d)
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, a := range all {
		a = a&^(page-1) + isa.Addr(r.IntN(areaLen*3/4/place.Line))*place.Line
		if free(a&^(page-1), a+2*areaLen+page) == nil && a < 1<<38 && s.unmapped(a&^(page-1), a+2*areaLen) {
			out = append(out, a)
		}
	}
	return out
}

func (s *Site) unmapped(lo, hi isa.Addr) bool {
	for p := lo; p < hi; p += page {
		if _, ok := s.memory[p]; ok {
			return false
		}
	}
	return true
}

// paddingLen is that of the stock kernels.
const paddingLen = 16

// function is where the symbol of the sample's function is.
func (s *Site) function() isa.Addr {
	if s.arch.Name != "amd64" {
		return s.lo
	}
	return s.paddings()[0] + paddingLen
}

// paddings are where padding begins, the function's own and then another's before it: in
// reach of a short jump, and where the sample does not lead. A springboard holds a
// copy of a patch only if another is left.
func (s *Site) paddings() (out []isa.Addr) {
	for _, d := range []isa.Addr{0x30, 0x60} {
		if a := s.At - d; s.Leads < a || s.Leads >= a+paddingLen {
			out = append(out, a)
		}
	}
	return out
}

// kernel is the text as the planner sees it: a function, on amd64 with padding and
// another before it, and a static key somewhere, since every kernel has one.
func (s *Site) kernel() (*ktext.Text, error) {
	hi := s.lo + isa.Addr(len(s.text))
	table := hi + page
	var sym strings.Builder
	line := func(a isa.Addr, name string) { fmt.Fprintf(&sym, "%016x T %s\n", uint64(a), name) }
	line(s.lo, "_stext")
	if s.arch.Name == "amd64" {
		line(s.lo, "before")
		for k, pad := range slices.Backward(s.paddings()) {
			// A function begins with a return: one that begins with a breakpoint has somebody's.
			s.write(pad, append(slices.Repeat([]byte{0x90}, paddingLen), 0xc3))
			name := []string{"f", "beside"}[k]
			line(pad, "__pfx_"+name)
			line(pad+paddingLen, name)
		}
	} else {
		line(s.function(), "f")
	}
	line(hi, "_etext")
	line(table, "__start___jump_table")
	line(table+16, "__stop___jump_table")
	var key []byte
	key = binary.LittleEndian.AppendUint32(key, uint32(s.lo-table))
	key = binary.LittleEndian.AppendUint32(key, uint32(s.lo+8-(table+4)))
	key = append(key, make([]byte, 8)...)
	return ktext.New(s.arch, strings.NewReader(sym.String()), func(a isa.Addr, b []byte) error {
		switch {
		case a >= s.lo && a+isa.Addr(len(b)) <= hi:
			copy(b, s.text[a-s.lo:])
		case a == table && len(b) == len(key):
			copy(b, key)
		default:
			return fmt.Errorf("nothing at %v", a)
		}
		return nil
	}, ktext.Options{})
}

// Trapped reports whether a breakpoint leads to the patch.
func (s *Site) Trapped() bool { return s.Plan.Mechanism == plan.Trap }

// indexed is 1 if the sample may read memory at an index from the stack pointer.
func (s *Site) indexed() uint64 {
	sp := isa.Set(kept[s.arch.Name].Regs()[0])
	for _, i := range s.insns {
		if i.Traits&isa.Load != 0 && i.Reads&sp != 0 && i.Reads&^sp&^isa.Set(s.arch.Flags) != 0 {
			return 1
		}
	}
	return 0
}

// String names the site for people.
func (s *Site) String() string {
	return fmt.Sprintf("%x %s (%v, free %s)", s.Code, s.arch.Text(s.Code, s.At), s.Plan.Mechanism, s.arch.Names(s.Free))
}

// Listing is the splice as instructions.
func (s *Site) Listing() string {
	var b strings.Builder
	show := func(a isa.Addr, code []byte) {
		for len(code) > 0 {
			fmt.Fprintf(&b, "%v: %s\n", a, s.arch.Text(code, a))
			n := min(s.arch.Decode(code, a).Len, len(code))
			a, code = a+isa.Addr(n), code[n:]
		}
	}
	show(s.entry, s.text[s.entry-s.lo:s.Falls-s.lo])
	b.WriteString("becomes\n")
	show(s.Plan.Point, s.Plan.New)
	if s.Plan.Board != nil {
		show(s.Plan.Board.Addr, s.Plan.Board.New)
	}
	show(s.Plan.Patch, s.Plan.Code)
	return b.String()
}

// Whole reports whether the sample runs in a springboard, which holds a copy of the
// patch.
func (s *Site) Whole() bool { return s.Plan.Board != nil && s.Plan.Board.Whole }

// Encode writes the site as the program reads it.
func (s *Site) Encode() []byte {
	p := s.Plan
	patch, code, states := p.Patch, p.Code, p.States
	if s.Whole() {
		patch, code, states = p.Board.Addr, p.Board.New, p.Board.States
	}
	fault := s.Free
	for _, f := range p.Free {
		fault |= f
	}
	bare := []chunk{{s.lo, s.text}}
	spliced := []chunk{{p.Patch, p.Code}}
	if p.Board != nil {
		spliced = append(spliced, chunk{p.Board.Addr, p.Board.New})
	}
	spliced = append(spliced, chunk{p.Point, p.New})
	maps := s.maps()
	var trap isa.Addr
	if s.Trapped() {
		trap = p.Point
	}
	var out words
	out.add(uint64(s.entry), uint64(s.cell), gen.Unit(s.arch, p.Snippet, s.cell), uint64(patch), uint64(len(code)), runs, values, s.indexed(), uint64(trap),
		uint64(s.Free|s.differ), uint64(fault|s.differ),
		uint64(len(maps)/4), uint64(len(s.pads)), uint64(len(states)), uint64(len(bare)), uint64(len(spliced)))
	out.add(maps...)
	for _, a := range s.pads {
		out.add(uint64(a))
	}
	for _, x := range states {
		out.add(uint64(x.Off), uint64(x.Orig), uint64(x.SP))
	}
	for _, c := range append(bare, spliced...) {
		out.add(uint64(c.at), uint64(len(c.b)))
		out = append(out, c.b...)
		out = append(out, make([]byte, -len(c.b)&7)...)
	}
	return out
}

// maps lists runs of pages of one kind: address, length, kind and what fills them.
func (s *Site) maps() (out []uint64) {
	pages := make([]isa.Addr, 0, len(s.memory))
	for p := range s.memory {
		pages = append(pages, p)
	}
	slices.Sort(pages)
	fill := binary.LittleEndian.Uint64(slices.Repeat(grounds[s.arch.Name].trap, 8))
	for k, p := range pages {
		n := len(out)
		if k > 0 && p == pages[k-1]+page && out[n-2] == s.memory[p] {
			out[n-3] += page
			continue
		}
		out = append(out, uint64(p), page, s.memory[p], fill)
	}
	return out
}

type chunk struct {
	at isa.Addr
	b  []byte
}

// words are written in the guests' byte order.
type words []byte

func (w *words) add(all ...uint64) {
	for _, x := range all {
		*w = binary.LittleEndian.AppendUint64(*w, x)
	}
}
