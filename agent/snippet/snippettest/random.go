// Package snippettest makes snippets at random, for tests of what generates code
// from them.
package snippettest

import (
	"math/rand/v2"

	"kerninst/agent/snippet"
)

// Random makes a snippet that is right, of any ops but Cycles, whose results nobody
// can predict. It reads the given registers, and loads from anywhere, often from a bit
// below to a bit above one of the addresses; without any, it does not load.
func Random(r *rand.Rand, regs []string, addresses []uint64) snippet.Snippet {
	g := &maker{r: r, regs: regs, addresses: addresses}
	g.s.Cells = []snippet.Cell{
		{Kind: snippet.Sum}, {Kind: snippet.Min, Type: snippet.U64}, {Kind: snippet.Max, Type: snippet.U64},
		{Kind: snippet.Min, Type: snippet.S64}, {Kind: snippet.Max, Type: snippet.S64},
		{Kind: snippet.Buffer, Records: 4, Fields: 1 + r.IntN(3)}, {Kind: snippet.Faults},
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
	n   int // values that there are
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
	const first, last = snippet.Const, snippet.Shr
	i := snippet.Insn{Dst: g.n, Type: g.anyType()}
	for i.Op == snippet.Invalid || i.Op == snippet.Cycles || i.Op == snippet.Load && len(g.addresses) == 0 {
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
	case snippet.Reg:
		i.Name = g.regs[g.r.IntN(len(g.regs))]
	case snippet.Load:
		i.N, i.A, i.Off = width, g.operand(g.anyType()), offsets[g.r.IntN(len(offsets))]
		i.Cell = len(g.s.Cells) - 1
		if g.r.IntN(2) == 0 {
			i.A = snippet.C(g.addresses[g.r.IntN(len(g.addresses))] + g.r.Uint64N(32) - 16 - uint64(int64(i.Off)))
		}
	case snippet.Extend:
		i.N, i.A = width, g.operand(g.anyType())
	case snippet.Shl, snippet.Shr:
		i.A, i.B = g.operand(i.Type), snippet.C(g.r.Uint64N(64))
	default:
		i.A, i.B = g.operand(i.Type), g.operand(i.Type)
	}
	if len(g.s.Code) >= g.skip {
		g.set[i.Type] = append(g.set[i.Type], g.n)
	}
	g.n++
	return i
}

// offsets are those of loads, at which encodings change.
var offsets = []int32{0, 0, 1, -1, 8, -8, 127, -129, 2047, 2048, -2048, -2049, 4095, 4096, -4095, -4096, 1<<31 - 1, -1 << 31}

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
	case snippet.Sum:
		i.Op, i.A = snippet.Count, g.operand(snippet.U64)
	case snippet.Min:
		i.Op, i.A = snippet.Lower, g.operand(c.Type)
	case snippet.Max:
		i.Op, i.A = snippet.Raise, g.operand(c.Type)
	case snippet.Buffer:
		i.Op = snippet.Append
		for range c.Fields {
			i.Fields = append(i.Fields, g.operand(g.anyType()))
		}
	}
	return i
}
