package cfg

import (
	"math/bits"
	"sort"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
)

// Pos is a place in the text of a Graph: bytes from the start of the first
// region, all regions laid end to end.
type Pos uint32

// NoPos is no place.
const NoPos = ^Pos(0)

// Block numbers a block; numbers follow the order of Pos.
type Block uint32

// NoBlock is no block.
const NoBlock = ^Block(0)

// Kind is how control leaves a block.
type Kind uint8

const (
	KindFall         Kind = iota // into the next block
	KindJump                     // to Target
	KindCond                     // to Target or into the next block
	KindCall                     // calls Target, then the next block
	KindCallNoReturn             // calls Target, which does not return
	KindCallLocal                // calls a place inside a symbol, Target, or only seems to; then the next block
	KindIndirectCall             // calls something unknown, then the next block
	KindStaticCall               // calls what the kernel writes there, or nothing, then the next block
	KindReturn                   // to the caller
	KindTable                    // through a jump table: edges in Extra
	KindTail                     // jumps to some function that is not known
	KindIndirectJump             // unanalysable: may go anywhere
	KindGate                     // hypervisor or system call: everything may be read, then the next block
	KindExit                     // leaves the kernel or restores a context: everything may be read
	KindTrap                     // BUG and its kind: ends the path
	KindPad                      // padding; no code goes there
	kinds
)

var kindNames = [kinds]string{"fall", "jump", "cond", "call", "call-noreturn", "call-local", "indirect-call", "static-call", "return", "table",
	"tail", "indirect-jump", "gate", "exit", "trap", "pad"}

func (k Kind) String() string { return kindNames[k] }

// Known reports whether k is one of the kinds: it may come from a file.
func (k Kind) Known() bool { return k < kinds }

// falls lists the kinds behind which the next block may run.
const falls = 1<<KindFall | 1<<KindCond | 1<<KindCall | 1<<KindCallLocal | 1<<KindIndirectCall | 1<<KindStaticCall | 1<<KindGate

// Falls reports whether the next block may run after one of this kind.
func (k Kind) Falls() bool { return falls>>k&1 != 0 }

// Mark is a set of further properties of a block.
type Mark uint16

const (
	// Entry: a symbol begins here; it may be called from anywhere.
	Entry Mark = 1 << iota
	// Taken: code forms the address; something may jump here.
	Taken
	// Orphan: nothing is seen to lead here, and it is no padding.
	Orphan
	// Split: a call ends before it. Others may lead there, too.
	Split
	// Unknown: holds an instruction that did not decode.
	Unknown
	// FaultSite: its only instruction may go to a fixup (an edge in Extra).
	FaultSite
	// Pinned: what it does is known by its name, not by its code.
	Pinned
	// Traced: an ftrace site begins here, so this is C.
	Traced
	// Reached: some entry leads here.
	Reached
	// Data: no instructions. Padding, or where code is seen to run into it, an exit.
	Data
)

// Edge is an edge that the last instruction of a block does not show.
type Edge struct {
	From, To Block
	Fault    bool       // taken instead of the block's instruction
	Reads    isa.RegSet // by the kernel, on the way
}

// Region is a stretch of text.
type Region struct {
	Module string // "" for the kernel
	Addr   isa.Addr
	Code   []byte
	base   Pos
}

// End is the address behind the region.
func (r *Region) End() isa.Addr { return r.Addr + isa.Addr(len(r.Code)) }

// Stats counts what Build found, and what it could not analyse.
type Stats struct {
	Modules      int // with text in the graph, the kernel not counted
	Functions    int // symbols with code, padding symbols not counted
	Blocks       int // as the paper has them: a call does not end one
	Instructions int // padding not counted
	Bytes        int // of instructions
	Padding      int // bytes
	Data         int // bytes between instructions that are none: literals, tables, words in front of entries
	JumpTables   int // indirect jumps whose targets are known
	Unanalysable int // indirect jumps whose targets are not
	Undecoded    int // instructions
	Orphans      int // blocks that nothing is seen to reach
	Misaligned   int // direct targets inside other instructions
	Outside      int // direct targets outside the text
	OddSymbols   int // where no instruction can begin
	Overruns     int // functions whose last instruction does not end in them, or runs into data
	Edges        int
	Calls        int // direct
	NoReturn     int // functions that never return
}

// Graph is the control flow of one kernel. It is not changed once built.
type Graph struct {
	Arch    *isa.Arch
	Regions []Region
	Stats   Stats

	size   Pos
	insns  bitmap // where instructions begin
	start  []Pos  // of each block, and size
	kind   []Kind
	mark   []Mark
	target []Block // of the last instruction
	extra  []Edge  // in order of From
	funcs  []Pos   // entries, in order
	pins   []pinned
	jumps  []isa.Addr // unanalysable, in order
	pools  pools
}

// Blocks is the number of blocks, padding included.
func (g *Graph) Blocks() int { return len(g.kind) }

// Kind is how control leaves b.
func (g *Graph) Kind(b Block) Kind { return g.kind[b] }

// Marks are b's further properties.
func (g *Graph) Marks(b Block) Mark { return g.mark[b] }

// Target is where b's last instruction leads: NoBlock if it leads nowhere in
// the graph. The callee, if that is a call.
func (g *Graph) Target(b Block) Block { return g.target[b] }

// Bounds of b.
func (g *Graph) Bounds(b Block) (lo, hi Pos) { return g.start[b], g.start[b+1] }

// Addr is the address of a place.
func (g *Graph) Addr(p Pos) isa.Addr {
	r := &g.Regions[g.regionAt(p)]
	return r.Addr + isa.Addr(p-r.base)
}

// Start is the address of b's first instruction.
func (g *Graph) Start(b Block) isa.Addr { return g.Addr(g.start[b]) }

// End is the address behind b's last instruction.
func (g *Graph) End(b Block) isa.Addr {
	return g.Start(b) + isa.Addr(g.start[b+1]-g.start[b])
}

func (g *Graph) regionAt(p Pos) int {
	return sort.Search(len(g.Regions), func(k int) bool { return g.Regions[k].base > p }) - 1
}

// Pos is the place of an address.
func (g *Graph) Pos(a isa.Addr) (Pos, bool) {
	for k := range g.Regions {
		if r := &g.Regions[k]; a >= r.Addr && a < r.End() {
			return r.base + Pos(a-r.Addr), true
		}
	}
	return NoPos, false
}

// Boundary reports whether an instruction begins at a.
func (g *Graph) Boundary(a isa.Addr) bool {
	p, ok := g.Pos(a)
	return ok && uint64(a)%uint64(g.Arch.MinLen) == 0 && g.insns.has(g.unit(p))
}

func (g *Graph) unit(p Pos) Pos { return p / Pos(g.Arch.MinLen) }

// At is the block that holds p.
func (g *Graph) At(p Pos) Block {
	return Block(sort.Search(len(g.kind), func(k int) bool { return g.start[k] > p }) - 1)
}

// AtAddr is the block that holds an address.
func (g *Graph) AtAddr(a isa.Addr) (Block, bool) {
	p, ok := g.Pos(a)
	if !ok {
		return NoBlock, false
	}
	return g.At(p), true
}

// Begins is the block that begins at a.
func (g *Graph) Begins(a isa.Addr) (Block, bool) {
	p, ok := g.Pos(a)
	if !ok {
		return NoBlock, false
	}
	b := g.At(p)
	return b, g.start[b] == p
}

// Code is the bytes from p to the end of its region.
func (g *Graph) Code(p Pos) []byte {
	r := &g.Regions[g.regionAt(p)]
	return r.Code[p-r.base:]
}

// Insns decodes the instructions of b, in order.
func (g *Graph) Insns(b Block, visit func(isa.Insn)) {
	lo, hi := g.Bounds(b)
	r := &g.Regions[g.regionAt(lo)]
	for p := lo; p < hi; {
		i := g.Arch.Decode(r.Code[p-r.base:], r.Addr+isa.Addr(p-r.base))
		visit(i)
		p += Pos(i.Len)
		for p < hi && !g.insns.has(g.unit(p)) { // bytes of an overrun
			p += Pos(g.Arch.MinLen)
		}
	}
}

// Extra lists the edges from b that its last instruction does not show.
func (g *Graph) Extra(b Block) []Edge {
	lo := sort.Search(len(g.extra), func(k int) bool { return g.extra[k].From >= b })
	hi := lo
	for hi < len(g.extra) && g.extra[hi].From == b {
		hi++
	}
	return g.extra[lo:hi]
}

// Edges lists every edge of Extra's kind, in order of From.
func (g *Graph) Edges() []Edge { return g.extra }

// Succ appends b's successors within an activation to out: calls are stepped
// over, jumps to other functions are followed. A call of a place inside a symbol
// is both: some only mean to push an address.
func (g *Graph) Succ(b Block, out []Block) []Block {
	k := g.kind[b]
	if k.Falls() && int(b)+1 < len(g.kind) {
		out = append(out, b+1)
	}
	if (k == KindJump || k == KindCond || k == KindCallLocal) && g.target[b] != NoBlock {
		out = append(out, g.target[b])
	}
	for _, e := range g.Extra(b) {
		out = append(out, e.To)
	}
	return out
}

// Entries lists the places where symbols begin, in order.
func (g *Graph) Entries() []Pos { return g.funcs }

// FuncAt is the index in Entries of the last symbol at or before p, or -1.
func (g *Graph) FuncAt(p Pos) int {
	return sort.Search(len(g.funcs), func(k int) bool { return g.funcs[k] > p }) - 1
}

// FuncBlocks are the blocks of a symbol, [lo, hi).
func (g *Graph) FuncBlocks(f int) (lo, hi Block) {
	end := g.size
	if f+1 < len(g.funcs) {
		end = g.funcs[f+1]
	}
	lo = g.At(g.funcs[f])
	hi = Block(sort.Search(len(g.kind), func(k int) bool { return g.start[k] >= end }))
	return lo, hi
}

// UnanalysableJumps lists indirect jumps whose targets are not known.
func (g *Graph) UnanalysableJumps() []isa.Addr { return g.jumps }

// bitmap is a set of small numbers.
type bitmap []uint64

func newBitmap(n Pos) bitmap    { return make(bitmap, n/64+1) }
func (m bitmap) has(p Pos) bool { return m[p/64]>>(p%64)&1 != 0 }
func (m bitmap) add(p Pos)      { m[p/64] |= 1 << (p % 64) }
func (m bitmap) next(p, end Pos) Pos { // the first member at or after p
	for p < end {
		if w := m[p/64] >> (p % 64); w != 0 {
			return min(p+Pos(bits.TrailingZeros64(w)), end)
		}
		p = (p/64 + 1) * 64
	}
	return end
}

// links reads the tables of the kernel and of every module in the graph.
func (g *Graph) links(t *ktext.Text) (*ktext.Links, error) {
	var all ktext.Links
	seen := map[string]bool{}
	for _, r := range g.Regions {
		if seen[r.Module] {
			continue
		}
		seen[r.Module] = true
		x, err := t.Links(r.Module)
		if err != nil {
			return nil, err
		}
		all.Keys = append(all.Keys, x.Keys...)
		all.Faults = append(all.Faults, x.Faults...)
		all.Bugs = append(all.Bugs, x.Bugs...)
		all.Calls = append(all.Calls, x.Calls...)
	}
	return &all, nil
}
