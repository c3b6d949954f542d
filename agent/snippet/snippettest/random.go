// Package snippettest makes snippets at random, for tests of what generates code
// from them.
package snippettest

import (
	"math/rand/v2"
	"slices"

	"kerninst/agent/snippet"
)

// TaskSize is how much of a task Random's snippets look at, in bytes.
const TaskSize = 4096

// Random makes a snippet that is right, of any ops but Stack and Poison. It reads the given
// registers, and loads from anywhere, often from a bit below to a bit above one of the
// addresses; without any, it does not load.
func Random(r *rand.Rand, regs []string, addresses []uint64) snippet.Snippet {
	g := &maker{r: r, regs: regs, addresses: addresses, places: map[int][]int{}}
	g.s.Cells = []snippet.Cell{
		{Kind: snippet.Sum}, {Kind: snippet.Min, Type: snippet.U64}, {Kind: snippet.Max, Type: snippet.U64},
		{Kind: snippet.Min, Type: snippet.S64}, {Kind: snippet.Max, Type: snippet.S64},
		{Kind: snippet.InRing, Records: 4, Fields: r.IntN(4)},
		{Kind: snippet.Array, Records: 1 + r.IntN(70)}, {Kind: snippet.Map, Records: 2 << r.IntN(5), Fields: 1 + r.IntN(6)},
		{Kind: snippet.Clocks, Records: 2 << r.IntN(4)}, {Kind: snippet.Faults},
	}
	n := 1 + r.IntN(14)
	for len(g.s.Code) < n {
		g.insn(n)
	}
	return g.s
}

type maker struct {
	r    *rand.Rand
	regs []string
	// addresses to load near to.
	addresses []uint64
	s         snippet.Snippet
	// set are the values of each type that are set on every way to what comes next.
	set [3][]int
	// slots are those of them that Slot has given, places those that Index has, by cell.
	slots  []int
	places map[int][]int
	n      int // values that there are
	// skip is up to where a branch jumps over: what is set there is not set behind.
	skip int
}

var immediates = []uint64{0, 1, 2, 3, 8, 63, 255, 2047, 2048, 4095, 4096, 1 << 20, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1 << 63,
	0x123456789abcdef0, ^uint64(0), ^uint64(1), ^uint64(2047), ^uint64(2048), 0xffffffff80000000, 0xffffffff7fffffff}

// constant is one at which encodings change, or any.
func (g *maker) constant() snippet.Operand {
	if g.r.IntN(4) == 0 {
		return snippet.C(g.r.Uint64())
	}
	return snippet.C(immediates[g.r.IntN(len(immediates))])
}

func (g *maker) operand(t snippet.Type) snippet.Operand {
	if n := len(g.set[t]); n > 0 && g.r.IntN(4) > 0 {
		return snippet.V(g.set[t][g.r.IntN(n)])
	}
	return g.constant()
}

func (g *maker) anyType() snippet.Type { return snippet.U64 + snippet.Type(g.r.IntN(2)) }

func (g *maker) insn(n int) {
	var i snippet.Insn
	switch k := g.r.IntN(10); {
	case k < 5 || g.n == 0:
		i = g.value()
	case k < 7:
		var ok bool
		if i, ok = g.branch(n); !ok {
			return
		}
	default:
		i = g.change()
	}
	g.s.Code = append(g.s.Code, i)
}

func (g *maker) value() snippet.Insn {
	const first, last = snippet.Const, snippet.Ret
	i := snippet.Insn{Dst: g.n, Type: g.anyType()}
	for !g.can(i.Op) {
		i.Op = first + snippet.Op(g.r.IntN(int(last-first)+1))
	}
	if len(g.addresses) > 0 && g.r.IntN(4) == 0 { // much is to be seen with them
		i.Op = snippet.Load
	}
	width := 1 << g.r.IntN(4)
	switch i.Op {
	case snippet.Const:
		i.A = g.constant()
	case snippet.Arg:
		i.N = g.r.IntN(snippet.MaxArgs)
	case snippet.Ret, snippet.Cycles, snippet.Current: // says it all
	case snippet.Task:
		i.N, i.Off = width, g.ofTask()
	case snippet.Clock:
		i.Type, i.Cell, i.Off = snippet.U64, theClocks, g.ofTask()
	case snippet.Reg:
		i.Name = g.regs[g.r.IntN(len(g.regs))]
	case snippet.Load:
		i.N, i.A, i.Off = width, g.operand(g.anyType()), offsets[g.r.IntN(len(offsets))]
		i.Cell = len(g.s.Cells) - 1
		if g.r.IntN(2) == 0 {
			i.A = snippet.C(g.addresses[g.r.IntN(len(g.addresses))] + g.r.Uint64N(32) - 16 - uint64(int64(i.Off)))
		}
	case snippet.Div:
		i.Type = snippet.U64
		i.A, i.B = g.operand(i.Type), snippet.C(max(1, g.constant().Imm))
	case snippet.Bits:
		i.A = snippet.V(g.any())
	case snippet.Slot:
		i.Type, i.Cell = snippet.U64, aMap
		for range 1 + g.r.IntN(2) {
			i.Fields = append(i.Fields, snippet.V(g.any()))
		}
	case snippet.Index:
		i.Type, i.Cell, i.B, i.A = snippet.U64, anArray, snippet.C(0), g.operand(snippet.U64)
		if k := len(g.slots); k > 0 && g.r.IntN(2) == 0 {
			i.Cell, i.B = aMap, snippet.V(g.slots[g.r.IntN(k)])
		}
		words := g.words(i.Cell)
		i.Off = int32(g.r.IntN(words))
		i.N = g.r.IntN(words - int(i.Off))
	case snippet.Extend:
		i.N, i.A = width, g.operand(g.anyType())
	case snippet.Shl, snippet.Shr:
		i.A, i.B = g.operand(i.Type), snippet.C(g.r.Uint64N(64))
	default:
		i.A, i.B = g.operand(i.Type), g.operand(i.Type)
	}
	if len(g.s.Code) >= g.skip {
		switch i.Op {
		case snippet.Slot:
			g.slots = append(g.slots, g.n)
		case snippet.Index:
			g.places[i.Cell] = append(g.places[i.Cell], g.n)
		}
		g.set[i.Type] = append(g.set[i.Type], g.n)
	}
	g.n++
	return i
}

// offsets are those of loads, at which encodings change.
var offsets = []int32{0, 0, 1, -1, 8, -8, 127, -129, 2047, 2048, -2048, -2049, 4095, 4096, -4095, -4096, 1<<31 - 1, -1 << 31}

// ofTask is where in a task a word begins: where encodings change, or anywhere.
func (g *maker) ofTask() int32 {
	if g.r.IntN(2) == 0 {
		return int32(g.r.IntN(TaskSize - 7))
	}
	near := []int32{0, 8, 255, 256, 2040, 2047, 2048, TaskSize - 8}
	return near[g.r.IntN(len(near))]
}

// branch makes a comparison that jumps no further than n.
func (g *maker) branch(n int) (snippet.Insn, bool) {
	t := g.anyType()
	at := len(g.s.Code)
	if len(g.set[t]) == 0 {
		return snippet.Insn{}, false
	}
	to := at + 1 + g.r.IntN(n-at)
	g.skip = max(g.skip, to)
	a := g.set[t][g.r.IntN(len(g.set[t]))]
	return snippet.Insn{Op: snippet.If, A: snippet.V(a), B: g.operand(t), To: to,
		Cond: snippet.EQ + snippet.Cond(g.r.IntN(6))}, true
}

func (g *maker) change() snippet.Insn {
	cell := g.r.IntN(len(g.s.Cells) - 1) // but that of loads
	c := g.s.Cells[cell]
	i := snippet.Insn{Cell: cell}
	switch c.Kind {
	case snippet.Array, snippet.Map:
		return g.word(cell)
	case snippet.Sum:
		i.Op, i.A = snippet.Count, g.operand(snippet.U64)
	case snippet.Min:
		i.Op, i.A = snippet.Lower, g.operand(c.Type)
	case snippet.Max:
		i.Op, i.A = snippet.Raise, g.operand(c.Type)
	case snippet.Clocks:
		numbers := g.set[snippet.U64]
		if len(numbers) == 0 {
			return snippet.Insn{Op: snippet.Count, A: g.constant()}
		}
		i.Op, i.A, i.Off = snippet.Switch, snippet.V(numbers[g.r.IntN(len(numbers))]), g.ofTask()
	case snippet.InRing:
		i.Op = snippet.Append
		for range c.Fields {
			i.Fields = append(i.Fields, g.operand(g.anyType()))
		}
	}
	return i
}

// The cells with many words, by their numbers.
const (
	anArray   = 6
	aMap      = 7
	theClocks = 8
)

// words is how many words of a cell follow from what leads to them.
func (g *maker) words(cell int) int {
	if cell == anArray {
		return g.s.Cells[cell].Records
	}
	return g.s.Cells[cell].Fields
}

// any is a value of any type that is set.
func (g *maker) any() int {
	all := slices.Concat(g.set[snippet.U64], g.set[snippet.S64])
	return all[g.r.IntN(len(all))]
}

// can reports whether an op can come here.
func (g *maker) can(op snippet.Op) bool {
	switch op {
	case snippet.Invalid:
		return false
	case snippet.Load:
		return len(g.addresses) > 0
	case snippet.Bits, snippet.Slot:
		return len(g.set[snippet.U64])+len(g.set[snippet.S64]) > 0
	}
	return true
}

// word changes a word of a cell that has many; where nothing leads to one yet, the sum.
func (g *maker) word(cell int) snippet.Insn {
	i := snippet.Insn{Op: snippet.Tally + snippet.Op(g.r.IntN(2)), Cell: cell, A: g.operand(snippet.U64)}
	switch places := g.places[cell]; {
	case len(places) > 0 && (cell == anArray || g.r.IntN(2) == 0):
		i.B = snippet.V(places[g.r.IntN(len(places))])
	case cell == aMap && len(g.slots) > 0:
		i.B, i.Off = snippet.V(g.slots[g.r.IntN(len(g.slots))]), int32(g.r.IntN(g.words(cell)))
	default:
		return snippet.Insn{Op: snippet.Count, A: i.A}
	}
	return i
}
