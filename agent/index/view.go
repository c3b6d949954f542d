package index

import (
	"errors"
	"fmt"
	"sort"
	"sync/atomic"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
)

// How says where the knowledge of a function comes from.
type How uint8

const (
	Indexed  How = iota // from the index: its text is what was analysed
	Differs             // its text is not what was analysed: the function by itself
	Absent              // the index does not have it: the function by itself
	ByItself            // as it is in the index, but analysed by itself: see ForSplice
)

var hows = [...]string{"indexed", "differs", "absent", "by itself"}

func (h How) String() string {
	if int(h) >= len(hows) {
		return fmt.Sprintf("how(%d)", uint8(h))
	}
	return hows[h]
}

// View joins an index with the text of a running kernel.
type View struct {
	x *Index // nil: every function is by itself
	t *ktext.Text
	h hasher

	whole  whole
	broken atomic.Pointer[error] // what was found when it was too late to say so: see late
}

// NewView checks that an index can be of this kernel. x may be nil.
func NewView(x *Index, t *ktext.Text) (*View, error) {
	lo, hi := image(t)
	v := &View{x: x, t: t, h: newHasher(t.Arch, lo, hi)}
	if x == nil {
		return v, nil
	}
	if x.Arch() != t.Arch.Name {
		return nil, fmt.Errorf("index: it is of %q, this kernel of %s", x.Arch(), t.Arch.Name)
	}
	if lo, hi := t.Bounds(); isa.Off(hi-lo) != x.TextSize() {
		return nil, fmt.Errorf("index: it is of a kernel with %d bytes of text, this one has %d", x.TextSize(), hi-lo)
	}
	return v, nil
}

// Function is what is known of one function: for each of its instructions, what
// is live before it.
type Function struct {
	ktext.Func
	How    How
	Traced bool // it is compiled code
	arch   *isa.Arch
	insns  []isa.Insn // in order
	before []isa.RegSet
	begins []isa.Addr // of blocks, in order; nil where some jump may lead anywhere
	tables []isa.Addr // where jumps through tables lead, in order of jumps
	known  Func       // what the index has, if it is from there
	// rebases is, of what is by itself, whether any instruction may.
	rebases *bool
	late    *late // what is not here is looked up when it is asked for; nil: all is here
}

// Begins finds the first block that begins in [lo, hi): elsewhere no jump of the function
// leads. known is false where some of them may lead anywhere, and of what is not indexed.
func (f *Function) Begins(lo, hi isa.Addr) (a isa.Addr, ok, known bool) {
	if f.late != nil {
		f.late.bounds(f)
	}
	k := sort.Search(len(f.begins), func(k int) bool { return f.begins[k] >= lo })
	if k < len(f.begins) && f.begins[k] < hi {
		return f.begins[k], true, true
	}
	return 0, false, f.begins != nil
}

// Tables is where the function's jumps through tables lead, each as often as one does. It is
// all of that where Begins says that it is known.
func (f *Function) Tables() []isa.Addr {
	if f.late != nil {
		f.late.bounds(f)
	}
	return f.tables
}

// Instructions is how many are known; padding has none.
func (f *Function) Instructions() int {
	if f.late != nil {
		f.late.all(f)
	}
	return len(f.insns)
}

// Before is what is live before the instruction at a; false if none that runs
// begins there.
func (f *Function) Before(a isa.Addr) (isa.RegSet, bool) {
	if f.late != nil {
		f.late.near(f, a)
	}
	k := sort.Search(len(f.insns), func(k int) bool { return f.insns[k].Addr >= a })
	if k == len(f.insns) || f.insns[k].Addr != a {
		return f.arch.All, false
	}
	return f.before[k], true
}

// Free is what a snippet before the instruction at a may overwrite: nothing
// where no instruction is known.
func (f *Function) Free(a isa.Addr) isa.RegSet {
	live, _ := f.Before(a)
	return f.arch.All &^ live &^ f.arch.NeverUse
}

// Each visits the instructions in order, with what is live before each.
func (f *Function) Each(visit func(a isa.Addr, before isa.RegSet)) {
	if f.late != nil {
		f.late.all(f)
	}
	for k, i := range f.insns {
		visit(i.Addr, f.before[k])
	}
}

// Function looks a function up, with its text as it is now. A damaged index is
// an error, and so is text that cannot be read.
func (v *View) Function(f ktext.Func) (*Function, error) {
	lo, hi := v.t.Bounds()
	if v.x == nil || f.Module != "" || f.Addr < lo || f.Addr >= hi {
		return v.alone(f, Absent)
	}
	known, ok, err := v.x.FuncAt(isa.Off(f.Addr - lo))
	if err != nil {
		return nil, err
	}
	if !ok {
		return v.alone(f, Absent)
	}
	code := make([]byte, known.Size)
	if err := v.t.Read(f.Addr, code); err != nil {
		return nil, err
	}
	blocks, err := v.blocks(known)
	if err != nil {
		return nil, err
	}
	insns := v.decoded(code, known, blocks)
	sum := uint64(fnvStart)
	for k := range blocks {
		b := &blocks[k]
		sum = v.h.block(sum, b.Info, b.of(code, known), insns[b.first:b.last], f.Addr+isa.Addr(known.Skip))
	}
	if sum != known.Hash {
		return v.alone(f, Differs)
	}
	fn := &Function{Func: f, How: Indexed, Traced: known.Traced, arch: v.t.Arch, known: known}
	if err := v.lead(fn, blocks); err != nil {
		return nil, err
	}
	return fn, v.fill(fn, blocks, insns)
}

// decoded is what the blocks of a function decode to.
func (v *View) decoded(code []byte, known Func, blocks []numbered) []isa.Insn {
	lo, _ := v.t.Bounds()
	insns := make([]isa.Insn, 0, len(code)/usualLen+1)
	for k := range blocks {
		b := &blocks[k]
		b.first = len(insns)
		if !b.Odd {
			insns = decode(insns, v.t.Arch, b.of(code, known), lo+isa.Addr(b.Start))
		}
		b.last = len(insns)
	}
	return insns
}

// usualLen is what instructions take, in bytes, or less.
const usualLen = 3

// ForSplice is Function for who is going to overwrite registers. Its errors are
// those of Whole too: a *Changed kernel has to do without this index. The index is
// believed of compiled code alone: what does not begin with an ftrace site may be
// called by conventions of its own, and not only from the kernel that was analysed
// but from modules too.
func (v *View) ForSplice(f ktext.Func) (*Function, error) {
	if fn, err := v.unchanged(f); err != nil || fn != nil {
		return fn, err
	}
	fn, err := v.Function(f)
	if err != nil || fn.How != Indexed {
		return fn, err
	}
	if err := v.Whole(); err != nil {
		return nil, err
	}
	if !fn.Traced {
		return v.alone(f, ByItself)
	}
	return fn, nil
}

// numbered is a block and its number, with which of its function's instructions it has.
type numbered struct {
	Info
	number      Block
	first, last int
}

// of is a block's part of its function's code.
func (b *numbered) of(code []byte, f Func) []byte { return code[b.Start-f.Start : b.End-f.Start] }

// blocks are a function's, those that hold no code left out.
func (v *View) blocks(f Func) (out []numbered, err error) {
	out = make([]numbered, 0, f.Blocks)
	for k := range f.Blocks {
		b, err := v.block(f, k)
		if err != nil {
			return nil, err
		}
		if b.holdsCode() {
			out = append(out, b)
		}
	}
	return out, nil
}

// block is block k of a function.
func (v *View) block(f Func, k int) (numbered, error) {
	b := numbered{number: f.First + Block(k)}
	var err error
	if b.Info, err = v.x.Block(b.number); err == nil && (b.Start < f.Start || b.End > f.Start+f.Size) {
		err = damaged("block %d is not inside its function at %#x", b.number, uint64(f.Start))
	}
	return b, err
}

// lead fills in where the function's blocks begin, and where its tables lead, unless a jump in
// one is not understood.
func (v *View) lead(fn *Function, blocks []numbered) error {
	lo, _ := v.t.Bounds()
	begins, tables := make([]isa.Addr, 0, len(blocks)), []isa.Addr(nil)
	for _, b := range blocks {
		switch b.Kind {
		case cfg.KindIndirectJump:
			return nil
		case cfg.KindTable:
			to, err := v.tableOf(b.number)
			if err != nil {
				return err
			}
			tables = append(tables, to...)
		}
		begins = append(begins, lo+isa.Addr(b.Start))
	}
	fn.begins, fn.tables = begins, tables
	return nil
}

// tableOf is where a block's jump through a table leads.
func (v *View) tableOf(b Block) (out []isa.Addr, err error) {
	lo, _ := v.t.Bounds()
	edges, err := v.x.EdgesOf(b)
	for _, e := range edges {
		if e.Fault || e.To == NoBlock { // of a module: not in this function
			continue
		}
		to, failed := v.x.Block(e.To)
		err = errors.Join(err, failed)
		out = append(out, lo+isa.Addr(to.Start))
	}
	return out, err
}

// fill takes what is live behind each block from the index, and goes back
// from there.
func (v *View) fill(fn *Function, blocks []numbered, insns []isa.Insn) error {
	fn.insns, fn.before = insns, fn.everything(len(insns))
	for k := range blocks {
		b := &blocks[k]
		if b.Odd {
			continue
		}
		if err := v.back(b, insns[b.first:b.last], fn.before[b.first:b.last]); err != nil {
			return err
		}
	}
	return nil
}

// back fills in what is live before each of a block's instructions.
func (v *View) back(b *numbered, insns []isa.Insn, before []isa.RegSet) error {
	lo, _ := v.t.Bounds()
	list := within(insns, lo+isa.Addr(b.End))
	fault, err := v.faults(b)
	if err != nil {
		return err
	}
	live := b.Out
	for n := len(list) - 1; n >= 0; n-- {
		live = list[n].Reads | live&^list[n].Writes | fault
		if b.Marks&cfg.Pinned != 0 {
			live = v.t.Arch.All
		}
		before[n] = live
	}
	return nil
}

// faults is what is live where the block's only instruction faults.
func (v *View) faults(b *numbered) (live isa.RegSet, err error) {
	if b.Marks&cfg.FaultSite == 0 {
		return 0, nil
	}
	edges, err := v.x.EdgesOf(b.number)
	for _, e := range edges {
		live |= e.Live
	}
	return live, err
}

// decode adds to out what code is, at a, to its end: the last may go on behind that.
func decode(out []isa.Insn, arch *isa.Arch, code []byte, a isa.Addr) []isa.Insn {
	for len(code) > 0 {
		i := arch.Decode(code, a)
		out = append(out, i)
		code = code[min(i.Len, len(code)):]
		a = i.End()
	}
	return out
}

// within ends the last of some instructions at end, if it goes on behind that.
func within(list []isa.Insn, end isa.Addr) []isa.Insn {
	if n := len(list); n > 0 && list[n-1].End() > end {
		list[n-1].Len = int(end - list[n-1].Addr)
	}
	return list
}

// everything is live before each of n instructions.
func (f *Function) everything(n int) []isa.RegSet {
	out := make([]isa.RegSet, n)
	for k := range out {
		out[k] = f.arch.All
	}
	return out
}
