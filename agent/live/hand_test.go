package live_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/ktext"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/live"
	"kerninst/agent/live/livetest"
)

// program is a small text made by hand, with what must be live where.
type program struct {
	arch     *isa.Arch
	kallsyms strings.Builder
	base     isa.Addr
	code     []byte
	checks   []check
}

type check struct {
	at         isa.Addr
	live, dead string
}

func loadHand(t testing.TB, name string) *program {
	t.Helper()
	arch, _, _ := strings.Cut(name, "-")
	a, err := all.Lookup(arch)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("testdata/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	p := &program{arch: a}
	for _, line := range strings.Split(string(b), "\n") {
		f := strings.Fields(line)
		if len(f) < 3 || f[0] == "#" {
			continue
		}
		at, _ := strconv.ParseUint(f[1], 16, 64)
		switch f[0] {
		case "sym":
			fmt.Fprintln(&p.kallsyms, f[1], f[2], f[3])
		case "mem":
			if p.base == 0 {
				p.base = isa.Addr(at)
			}
			code, err := hex.DecodeString(f[2])
			if err != nil {
				t.Fatal(err)
			}
			p.code = append(p.code, code...)
		case "check":
			c := check{at: isa.Addr(at)}
			for k := 2; k+1 < len(f); k += 2 {
				if f[k] == "live" {
					c.live = f[k+1]
				} else {
					c.dead = f[k+1]
				}
			}
			p.checks = append(p.checks, c)
		}
	}
	return p
}

func (p *program) read(a isa.Addr, b []byte) error {
	if a < p.base || uint64(a-p.base) > uint64(len(p.code)+64) {
		return fmt.Errorf("nothing at %v", a)
	}
	clear(b)
	if n := int(a - p.base); n < len(p.code) {
		copy(b, p.code[n:])
	}
	return nil
}

// solve builds and solves, and checks the invariants of both.
func solve(t testing.TB, arch *isa.Arch, kallsyms string, read ktext.Reader) (*cfg.Graph, *live.Live) {
	t.Helper()
	x, err := ktext.New(arch, strings.NewReader(kallsyms), read, ktext.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := cfg.Build(x, cfg.Options{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Check(); err != nil {
		t.Fatal(err)
	}
	l, err := live.Solve(g, x, live.Options{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Check(); err != nil {
		t.Fatal(err)
	}
	return g, l
}

// TestByHand compares with what a person says about each rule; the rules are
// beside the code, in testdata/*.s.
func TestByHand(t *testing.T) {
	for name, checks := range map[string]int{"amd64": 73, "amd64-flags": 9, "arm64": 40, "riscv64": 30, "riscv64-tables": 13} {
		t.Run(name, func(t *testing.T) {
			p := loadHand(t, name)
			if len(p.checks) < checks {
				t.Fatalf("%d checks", len(p.checks))
			}
			g, l := solve(t, p.arch, p.kallsyms.String(), p.read)
			if want := map[string]int{"arm64": 3, "riscv64": 3, "riscv64-tables": 6}[name]; g.Stats.JumpTables != want {
				t.Errorf("%d jump tables, want %d", g.Stats.JumpTables, want)
			}
			for _, c := range p.checks {
				got, err := l.Before(c.at)
				if err != nil {
					t.Errorf("%v: %v", c.at, err)
					continue
				}
				for r := isa.Reg(0); r < 64; r++ {
					if !p.arch.All.Has(r) {
						continue
					}
					word := func(list string) bool {
						return strings.Contains(","+list+",", ","+p.arch.RegName(r)+",")
					}
					if word(c.live) && !got.Has(r) || word(c.dead) && got.Has(r) {
						t.Errorf("%v: live is %s; want live %s, dead %s: %s", c.at, p.arch.Names(got), c.live, c.dead, p.arch.RegName(r))
					}
				}
			}
		})
	}
}

// TestRecorded solves the recorded stretches of the stock kernels, and compares
// with the slow solver.
func TestRecorded(t *testing.T) {
	for _, name := range ktexttest.Arches {
		k := ktexttest.Load(t, name)
		g, l := solve(t, k.Arch, k.Kallsyms, k.Read)
		if regs, _ := l.AverageFree(); regs == 0 || g.Stats.Functions == 0 {
			t.Errorf("%s: %+v, %f registers free", name, g.Stats, regs)
		}
		for _, r := range k.Arch.All.Regs() {
			n := livetest.Solve(g, l, r, l.Root)
			for b := range cfg.Block(g.Blocks()) {
				if g.Kind(b) != cfg.KindPad && l.In(b).Has(r) != n.Live(b) {
					t.Fatalf("%s: %s at %v: live is %v", name, k.Arch.RegName(r), g.Start(b), l.In(b).Has(r))
				}
			}
		}
	}
}

// TestDispatch: C's jump through a thunk leads to C, which reads no scratch register, but where
// the function has a landing pad behind its entry, or what nothing leads to: there it may lead, and that reads what it likes.
func TestDispatch(t *testing.T) {
	const (
		base    = 0xffffffff81000000
		site    = "\x0f\x1f\x44\x00\x00"
		jump    = "\xe9\x16\x00\x00\x00" // to 0x20
		pad     = "\xf3\x0f\x1e\xfa"
		nothing = "\x0f\x1f\x40\x00"
		reads   = "\x4c\x89\xd8\xc3" // mov %r11,%rax; ret
		symbols = "ffffffff81000000 t interprets\nffffffff81000020 t __x86_indirect_thunk_rax\nffffffff81000000 T _stext\nffffffff81000040 T _etext\n"
	)
	for rest, want := range map[string]bool{"": false, nothing + reads: true, pad + reads: true} {
		p := &program{base: base, code: []byte(site + jump + rest)}
		p.code = append(p.code, bytes.Repeat([]byte{0xcc}, 0x20-len(p.code))...)
		p.code = append(p.code, bytes.Repeat([]byte{0xcc}, 0x20)...)
		copy(p.code[0x20:], "\xff\xe0") // jmp *%rax
		arch, err := all.Lookup("amd64")
		if err != nil {
			t.Fatal(err)
		}
		_, l := solve(t, arch, symbols, p.read)
		got, err := l.Before(base + 5)
		if err != nil {
			t.Fatal(err)
		}
		for r := isa.Reg(0); r < arch.Flags; r++ {
			if name := arch.RegName(r); name == "r11" && got.Has(r) != want {
				t.Errorf("%x behind the jump: r11 is live: %v, want %v", rest, got.Has(r), want)
			}
		}
	}
}
