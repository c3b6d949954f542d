package live_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/live"
)

// The toy ISA: four bytes, flow + 1, a mask of registers read, one of registers
// written, a distance in instructions. It passes for riscv64, whose calling
// convention it has.
var toyRegs = []isa.Reg{10, 15, 5, 28, 9, 18} // a0 a5 t0 t3 s1 s2

const (
	toySaved   = isa.RegSet(1)<<9 | 1<<18
	toyResults = isa.RegSet(1) << 10
	toyArgs    = isa.RegSet(1)<<10 | 1<<15 | toySaved // a callee saves what it keeps
	toyScratch = isa.RegSet(1)<<10 | 1<<15 | 1<<5 | 1<<28
)

func toySet(mask byte) (s isa.RegSet) {
	for k, r := range toyRegs {
		if mask>>k&1 != 0 {
			s |= isa.Set(r)
		}
	}
	return s
}

func toyDecode(b []byte, a isa.Addr) isa.Insn {
	i := isa.Insn{Addr: a, Len: 4, Flow: isa.Flow(b[0] - 1), Reads: toySet(b[1]), Writes: toySet(b[2])}
	switch i.Flow {
	case isa.FlowJump, isa.FlowCond, isa.FlowCall:
		i.Target = a + isa.Addr(int64(int8(b[3]))*4)
	case isa.FlowNone:
		i.Traits = isa.Load // it is no padding
	}
	return i
}

var toy = &isa.Arch{
	Name: "riscv64", MinLen: 4, MaxLen: 4, Flags: 63, All: toySet(0xff), Saved: toySaved, Decode: toyDecode,
	RegName: func(r isa.Reg) string { return fmt.Sprint("r", r) },
}

const toyBase = 0x1000

// toyProgram makes functions of the given size; calls lead only to later ones,
// unless recursion is asked for.
func toyProgram(r *rand.Rand, functions, size int, recursive bool) []byte {
	flows := []isa.Flow{isa.FlowCond, isa.FlowCond, isa.FlowJump, isa.FlowCall, isa.FlowCall,
		isa.FlowIndirectCall, isa.FlowReturn, isa.FlowTrap}
	var code []byte
	for f := range functions {
		for k := range size {
			flow := isa.FlowNone
			if r.IntN(3) == 0 {
				flow = flows[r.IntN(len(flows))]
			}
			if k == size-1 {
				flow = isa.FlowReturn
			}
			to := f*size + r.IntN(size)
			if flow == isa.FlowCall {
				g := r.IntN(functions)
				if !recursive {
					if f == functions-1 {
						flow = isa.FlowNone
					}
					g = f + 1 + r.IntN(max(functions-f-1, 1))
				}
				to = g * size
			} else if flow == isa.FlowJump && r.IntN(3) == 0 && f+1 < functions {
				to = (f + 1) * size // tail call
			}
			mask := func() byte { return byte(1<<r.IntN(12)) & 0x3f }
			code = append(code, byte(flow)+1, mask(), mask(), byte(to-(f*size+k)))
		}
	}
	return code
}

// frames is a place with the places it returns to.
type frames struct {
	pc    int
	stack string // of return places, one byte each
}

// machine walks a toy program one state at a time.
type machine struct {
	insns  []isa.Insn
	depth  int            // calls deeper than this are not followed
	opaque func(int) bool // whether the indirect call there is taken to be of no C
}

// anyone at the bottom of a stack is a caller that may want everything: that of
// code which nothing is seen to reach.
const anyone = "\uffff"

// step visits the states behind s, and tells what callers that are not known
// want when it returns to one.
func (m *machine) step(s frames, visit func(frames)) (wanted isa.RegSet) {
	i := m.insns[s.pc]
	next := func(pc int, stack string) {
		if pc < len(m.insns) {
			visit(frames{pc, stack})
		}
	}
	target := int(i.Target-toyBase) / 4
	switch i.Flow {
	case isa.FlowNone, isa.FlowIndirectCall:
		next(s.pc+1, s.stack)
	case isa.FlowJump:
		next(target, s.stack)
	case isa.FlowCond:
		next(target, s.stack)
		next(s.pc+1, s.stack)
	case isa.FlowCall:
		if len([]rune(s.stack)) < m.depth {
			next(target, s.stack+string(rune(s.pc+1)))
		}
	case isa.FlowReturn:
		switch s.stack {
		case "":
			return toySaved | toyResults
		case anyone:
			return toy.All
		}
		r := []rune(s.stack)
		next(int(r[len(r)-1]), string(r[:len(r)-1]))
	}
	return 0
}

// reaches is every state that some root leads to.
func (m *machine) reaches(roots []frames) map[frames]bool {
	seen := map[frames]bool{}
	var work []frames
	visit := func(s frames) {
		if !seen[s] {
			seen[s] = true
			work = append(work, s)
		}
	}
	for _, s := range roots {
		visit(s)
	}
	for len(work) > 0 {
		s := work[len(work)-1]
		work = work[:len(work)-1]
		m.step(s, visit)
	}
	return seen
}

// live reports whether, from s, some path reads r before it writes it.
func (m *machine) live(from frames, r isa.Reg) bool {
	seen := map[frames]bool{from: true}
	work := []frames{from}
	for len(work) > 0 {
		s := work[len(work)-1]
		work = work[:len(work)-1]
		i := m.insns[s.pc]
		if i.Reads.Has(r) {
			return true
		}
		if i.Writes.Has(r) {
			continue
		}
		if i.Flow == isa.FlowIndirectCall {
			if toyArgs.Has(r) || m.opaque(s.pc) {
				return true
			}
			if toyScratch.Has(r) {
				continue
			}
		}
		wanted := m.step(s, func(n frames) {
			if !seen[n] {
				seen[n] = true
				work = append(work, n)
			}
		})
		if wanted.Has(r) {
			return true
		}
	}
	return false
}

// TestAgainstWalks compares the solution for random programs with every path
// that there is, walked one state at a time: equal where calls do not recurse;
// where they do, walks are cut at a depth and may find less.
func TestAgainstWalks(t *testing.T) {
	const functions, size = 4, 9
	compared := 0
	for seed := range uint64(400) {
		recursive := seed%4 == 3
		r := rand.New(rand.NewPCG(seed, 1))
		code := toyProgram(r, functions, size, recursive)
		var syms strings.Builder
		m := machine{depth: functions + 1}
		var roots []frames
		for f := range functions {
			fmt.Fprintf(&syms, "%x t f%d\n", toyBase+f*size*4, f)
			roots = append(roots, frames{f * size, ""})
		}
		fmt.Fprintf(&syms, "%x T _stext\n%x T _etext\n", toyBase, toyBase+len(code))
		for k := 0; k < len(code); k += 4 {
			m.insns = append(m.insns, toyDecode(code[k:], toyBase+isa.Addr(k)))
		}
		g, l := solve(t, toy, syms.String(), func(a isa.Addr, b []byte) error {
			copy(b, code[a-toyBase:])
			return nil
		})
		m.opaque = func(pc int) bool {
			b, _ := g.AtAddr(toyBase + isa.Addr(pc)*4)
			return l.Opaque(b)
		}
		for b := range cfg.Block(g.Blocks()) {
			if g.Marks(b)&cfg.Orphan != 0 {
				roots = append(roots, frames{int(g.Start(b)-toyBase) / 4, anyone})
			}
		}
		compared += compare(t, fmt.Sprintf("seed %d", seed), g, l, &m, roots, recursive)
	}
	if compared < 20000 {
		t.Errorf("only %d places and registers compared", compared)
	}
}

func compare(t *testing.T, name string, g *cfg.Graph, l *live.Live, m *machine, roots []frames, cut bool) (n int) {
	want := make([]isa.RegSet, len(m.insns))
	reached := make([]bool, len(m.insns))
	for s := range m.reaches(roots) {
		reached[s.pc] = true
		for _, r := range toyRegs {
			if !want[s.pc].Has(r) && m.live(s, r) {
				want[s.pc] |= isa.Set(r)
			}
		}
	}
	for pc, ok := range reached {
		if !ok {
			continue
		}
		got, err := l.Before(toyBase + isa.Addr(pc)*4)
		if err != nil {
			t.Fatalf("%s, instruction %d: %v", name, pc, err)
		}
		if missing := want[pc] &^ got; missing != 0 || !cut && got != want[pc] {
			b, _ := g.AtAddr(toyBase + isa.Addr(pc)*4)
			for k, i := range m.insns {
				bb, _ := g.AtAddr(i.Addr)
				t.Logf("%d %v reads %v writes %v to %d: block %d %v marks %b", k, i.Flow, i.Reads.Regs(), i.Writes.Regs(), int(i.Target-toyBase)/4, bb, g.Kind(bb), g.Marks(bb))
			}
			t.Fatalf("%s, instruction %d (%v): live is %v, walks find %v", name, pc, g.Kind(b), got.Regs(), want[pc].Regs())
		}
		n += len(toyRegs)
	}
	return n
}
