package cfg

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/ktext"
	"kerninst/agent/ktext/ktexttest"
)

func build(t testing.TB, x *ktext.Text) *Graph {
	t.Helper()
	g, err := Build(x, Options{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Check(); err != nil {
		t.Fatal(err)
	}
	return g
}

// TestRecorded compares the graph of the recorded stretches of the stock kernels
// with a walk over the same bytes: each direct target is a block's beginning, and
// each site of the kernel's tables an instruction's.
func TestRecorded(t *testing.T) {
	for _, name := range ktexttest.Arches {
		k := ktexttest.Load(t, name)
		x := k.Text(t)
		g := build(t, x)
		targets := 0
		for b := range Block(g.Blocks()) {
			g.Insns(b, func(i isa.Insn) {
				if i.Target == 0 || !g.Boundary(i.Target) {
					return
				}
				targets++
				if _, ok := g.Begins(i.Target); !ok {
					t.Errorf("%s: %v leads to %v, inside a block", name, i.Addr, i.Target)
				}
			})
		}
		links, err := x.Links("")
		if err != nil {
			t.Fatal(err)
		}
		if targets < 100 || len(links.Keys) == 0 {
			t.Errorf("%s: %d targets, %d keys: too few to mean anything", name, targets, len(links.Keys))
		}
		for _, l := range links.Keys {
			b, ok := g.Begins(l.Target)
			if from, in := g.AtAddr(l.Site); !in || !ok || g.Kind(from) == KindPad {
				continue
			} else if g.Kind(from) != KindCond || g.Target(from) != b {
				t.Errorf("%s: the key at %v does not lead to %v", name, l.Site, l.Target)
			}
		}
	}
}

// TestSameForAnyNumberOfWorkers: the graph does not depend on who decodes.
func TestSameForAnyNumberOfWorkers(t *testing.T) {
	x := ktexttest.Load(t, "riscv64").Text(t)
	a, err := Build(x, Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := build(t, x)
	if a.Stats != b.Stats || fmt.Sprint(a.start, a.kind, a.mark, a.target, a.extra) != fmt.Sprint(b.start, b.kind, b.mark, b.target, b.extra) {
		t.Errorf("%+v with one, %+v with two", a.Stats, b.Stats)
	}
}

// noise is text of random bytes under random symbols.
func noise(t testing.TB, arch string, seed uint64, code []byte) *Graph {
	t.Helper()
	a, err := all.Lookup(arch)
	if err != nil {
		t.Fatal(err)
	}
	const base = 0x10000
	r := rand.New(rand.NewPCG(seed, 2))
	var syms strings.Builder
	for k := 0; k < len(code); k += 1 + r.IntN(60) {
		fmt.Fprintf(&syms, "%x t f%d\n", base+k/a.MinLen*a.MinLen, k)
	}
	fmt.Fprintf(&syms, "%x T _stext\n%x T _etext\n", base, base+len(code))
	x, err := ktext.New(a, strings.NewReader(syms.String()), func(at isa.Addr, b []byte) error {
		if at < base || uint64(at-base)+uint64(len(b)) > uint64(len(code)) {
			return fmt.Errorf("nothing there")
		}
		copy(b, code[at-base:])
		return nil
	}, ktext.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return build(t, x)
}

// TestNoise: whatever the bytes, a graph comes out whose invariants hold.
func TestNoise(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		code := make([]byte, 4+4*r.IntN(300))
		for k := range code {
			code[k] = byte(r.Uint32())
		}
		for _, arch := range ktexttest.Arches {
			noise(t, arch, seed, code)
		}
	}
}

func FuzzBuild(f *testing.F) {
	f.Add([]byte("\xe8\x00\x00\x00\x00\xc3\xcc\xcc"), uint8(0))
	f.Fuzz(func(t *testing.T, code []byte, arch uint8) {
		if len(code) < 8 || len(code) > 1<<16 {
			return
		}
		noise(t, ktexttest.Arches[int(arch)%3], uint64(len(code)), code[:len(code)&^3])
	})
}

// TestCheckFinds breaks a graph in every way that Check guards against.
func TestCheckFinds(t *testing.T) {
	for name, breakIt := range map[string]func(*Graph){
		"a block that overlaps":       func(g *Graph) { g.start[5] = g.start[4] },
		"a hole at the end":           func(g *Graph) { g.start[len(g.start)-1]-- },
		"a target outside":            func(g *Graph) { g.target[3] = Block(len(g.kind)) },
		"a jump to nowhere":           func(g *Graph) { g.kind[3], g.target[3] = KindJump, NoBlock },
		"an unmarked block":           func(g *Graph) { g.mark[g.At(g.funcs[0])] &^= Reached },
		"padding that runs":           func(g *Graph) { g.kind[g.At(g.funcs[0])] = KindPad },
		"an edge to nowhere":          func(g *Graph) { g.extra = append(g.extra, Edge{From: Block(len(g.kind) - 1), To: NoBlock}) },
		"a fault without instruction": func(g *Graph) { g.extra = []Edge{{From: 1, To: 2, Fault: true}} },
		"a block inside an insn":      func(g *Graph) { b := g.At(g.funcs[0]); g.insns[g.unit(g.start[b])/64] = 0 },
	} {
		g := build(t, ktexttest.Load(t, "riscv64").Text(t))
		breakIt(g)
		if g.Check() == nil {
			t.Errorf("%s: not found", name)
		}
	}
}

func TestNoText(t *testing.T) {
	k := ktexttest.Load(t, "arm64")
	x, err := ktext.New(k.Arch, strings.NewReader("1000 T _stext\n2000 T _etext\n9000 t far\n"), k.Read, ktext.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if g, err := Build(x, Options{}); err == nil {
		t.Errorf("a graph of %d blocks out of memory that cannot be read", g.Blocks())
	}
}

// TestWarningCalls: where the kernel means a static call and has a trap for now, as 7.x does for
// WARN_trap (ud1 (%edx),%rdi with a prefix), control comes back behind it.
func TestWarningCalls(t *testing.T) {
	k := ktexttest.Load(t, "amd64")
	f, err := k.Text(t).Function("", "ksys_read")
	if err != nil {
		t.Fatal(err)
	}
	code := make([]byte, f.Size)
	if err := k.Read(f.Addr, code); err != nil {
		t.Fatal(err)
	}
	call := bytes.IndexByte(code, 0xe8)
	site := f.Addr + isa.Addr(call)
	const table = isa.Addr(0xffffffff8ec52100)
	k.Write(table, isa.ByteOrder.AppendUint32(nil, uint32(site-table)))
	k.Kallsyms += fmt.Sprintf("%x T __static_call_text_start\n%x T __static_call_text_end\n", uint64(f.Addr), uint64(f.Addr)+8) +
		fmt.Sprintf("%x D __start_static_call_sites\n%x D __stop_static_call_sites\n", uint64(table), uint64(table)+8)
	k.Write(site, []byte{0x67, 0x48, 0x0f, 0xb9, 0x3a})
	g := build(t, k.Text(t))
	if b, ok := g.AtAddr(site); !ok || g.Kind(b) != KindStaticCall || !g.Kind(b).Falls() {
		t.Errorf("the trap at %v makes a block of kind %v", site, g.Kind(b))
	}
}
