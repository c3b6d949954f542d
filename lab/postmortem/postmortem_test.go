package postmortem

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/lab/card"
)

func init() { lookEvery = 0 } // guests of these tests do not run

// base is where the dumped kernels lie, slid where those of the guests do.
const (
	base = isa.Addr(0xffffffff80000000)
	slid = isa.Addr(3 * kaslrAlign)
	size = 6 << 20 // of text, so that a place modulo kaslrAlign is not enough
)

// Functions of every kernel here, at these offsets.
const spinAt, idleAt, callerAt, vectorsAt, haltAt = 0x1000, 0x2000, kaslrAlign + 0x40, 0x3000, 0x4000

// symbolsOf makes the symbols of a kernel with random code.
func symbolsOf(t *testing.T, arch string) (*Symbols, []byte) {
	t.Helper()
	code := make([]byte, size)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(code)
	code[callerAt+0x20-5] = 0xe8 // amd64: a call before the return address
	var names strings.Builder
	for _, s := range []struct {
		at   isa.Addr
		name string
	}{{0, "_stext"}, {0, "first"}, {spinAt, "spin"}, {idleAt, "cpu_do_idle"}, {vectorsAt, "vectors"},
		{vectorsAt + 0x800, "behind_vectors"}, {haltAt, "machine_halt"}, {haltAt + 0x100, "behind_halt"}, {callerAt, "caller"}, {callerAt + 0x20, "next"}, {size, "_etext"}} {
		fmt.Fprintf(&names, "%016x T %s\n", uint64(base+s.at), s.name)
	}
	d := &ktext.Dump{Arch: arch, Parts: []ktext.Part{
		{Name: "kallsyms", Size: names.Len(), Data: []byte(names.String())},
		{Name: textPart, Addr: base, Size: size, Data: code},
	}}
	s, err := NewSymbols(d)
	if err != nil {
		t.Fatal(err)
	}
	return s, code
}

// guest is a machine that stands still.
type guest struct {
	registers []string // of each look, the last again and again
	memory    map[isa.Addr][]byte
	stopped   bool
	fails     error // of the second Continue
	goes      int
}

func (g *guest) Stop(context.Context) error { g.stopped = true; return nil }
func (g *guest) Continue(context.Context) error {
	g.stopped = false
	if g.goes++; g.goes == 2 {
		return g.fails
	}
	return nil
}
func (g *guest) Registers(context.Context) (string, error) {
	if !g.stopped {
		return "", errors.New("it runs")
	}
	text := g.registers[0]
	if len(g.registers) > 1 {
		g.registers = g.registers[1:]
	}
	return text, nil
}
func (g *guest) Read(_ context.Context, _ int, addr uint64, n int) ([]byte, error) {
	for at, b := range g.memory {
		if off := isa.Addr(addr) - at; isa.Addr(addr) >= at && int(off)+n <= len(b) {
			return b[off:][:n], nil
		}
	}
	return nil, errors.New("not mapped")
}
func (g *guest) Dump(context.Context, string) error       { return nil }
func (g *guest) ServeGDB(context.Context) (string, error) { return "", nil }
func (g *guest) Close()                                   {}

func word(v isa.Addr) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(v)) }

// at is the address of a function's offset in the guests.
func at(off isa.Addr) isa.Addr { return base + slid + off }

const stack = isa.Addr(0xffff888000100000)

// hung is one CPU at pc in the kernel, called by caller, on each ISA, as QEMU
// prints it.
var hung = map[string]func(pc isa.Addr, code []byte) *guest{
	"amd64": func(pc isa.Addr, code []byte) *guest {
		sp := stack + stackSize - 32
		return &guest{
			registers: []string{fmt.Sprintf("\nCPU#0\nRAX=0000000000000001 RSP=%016x\nR8 =0000000000000002\nRIP=%016x RFL=00000046 [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT=0\n"+
				"IDT=     fffffe0000000000 00000fff\nFCW=037f FSW=0000\nFPR0=0000000000000000 0000\n", uint64(sp), uint64(pc))},
			memory: map[isa.Addr][]byte{sp: bytes.Join([][]byte{word(7), word(at(callerAt + 0x20)), word(at(spinAt)), word(0)}, nil), base + slid: code},
		}
	},
	"arm64": func(pc isa.Addr, code []byte) *guest {
		fp := stack + 64
		return &guest{
			registers: []string{fmt.Sprintf("\nCPU#0\n PC=%016x X00=0000000000000000\nX29=%016x X30=%016x  SP=%016x\nPSTATE=600003c5 -ZC- EL1h    FPCR=00000000\nQ00=0 Q01=0\n",
				uint64(pc), uint64(fp), uint64(at(callerAt+0x20)), uint64(stack))},
			// The return address is signed.
			memory: map[isa.Addr][]byte{fp: append(word(0), word(at(callerAt+0x20)&^(0xff<<56)|0x1b<<56)...), base + slid: code},
		}
	},
	"riscv64": func(pc isa.Addr, code []byte) *guest {
		fp := stack + 64
		return &guest{
			registers: []string{fmt.Sprintf("\nCPU#0\n V      =   0\n pc       %016x\n mstatus  0000000a000040a0\n stvec    %016x\n sepc     0000000000010000\n x0/zero  0000000000000000 x1/ra    %016x x2/sp    %016x\n x8/s0    %016x\n f0/ft0   0000000000000000\n",
				uint64(pc), uint64(at(vectorsAt)), uint64(at(callerAt+0x20)), uint64(stack), uint64(fp))},
			memory: map[isa.Addr][]byte{fp - 16: append(word(0), word(at(callerAt+0x20))...), base + slid: code},
		}
	},
}

// A CPU that spins is found where it is, under the slide that only the code at
// its PC tells, with its caller, and without interrupts.
func TestSpinning(t *testing.T) {
	for arch, make := range hung {
		t.Run(arch, func(t *testing.T) {
			s, code := symbolsOf(t, arch)
			e := TakeHung(context.Background(), arch, make(at(spinAt+8), code))
			if len(e.CPUs) != 1 || len(e.Earlier) != looks-1 || len(e.Notes) > 0 {
				t.Fatalf("evidence %+v", e)
			}
			v, err := s.View(e, 0)
			if err != nil || v.Slide != slid {
				t.Fatalf("slide %v, %v, want %v", v, err, slid)
			}
			c := Explain(e, v)[0]
			if c.Symbol != "spin+0x8/0x1000" || c.Mode != "kernel" || c.Interrupts != "off" {
				t.Errorf("CPU %+v", c)
			}
			want := card.Frame{Address: fmt.Sprintf("%#x", uint64(at(callerAt+0x20))), Symbol: "caller+0x20/0x20", Guess: arch == "amd64"}
			if len(c.Backtrace) != 1 || c.Backtrace[0] != want {
				t.Errorf("backtrace %+v, want %+v", c.Backtrace, want)
			}
			if last := c.Registers[len(c.Registers)-1]; strings.Contains(last, "FPR") || strings.Contains(last, "Q00") || strings.Contains(last, "f0/") {
				t.Errorf("registers end with %q", last)
			}
			if h := Classify(e, v, true); h.Class != card.Spinning || !strings.Contains(h.Detail, "interrupts off, in spin") {
				t.Errorf("class %+v", h)
			}
		})
	}
}

// On amd64, the stack of an interrupt ends where it ends, and leads to the one that
// was interrupted.
func TestInterruptStack(t *testing.T) {
	s, code := symbolsOf(t, "amd64")
	g := hung["amd64"](at(spinAt), code)
	const page, top, task = 0x1000, stack + stackSize - 32, stack + 5*stackSize
	sp := stack + 2*page - 16 // the stack ends in the middle of what its alignment says
	g.registers[0] = strings.Replace(g.registers[0], fmt.Sprintf("%016x", uint64(top)), fmt.Sprintf("%016x", uint64(sp)), 1)
	delete(g.memory, top)
	g.memory[sp] = append(word(0), word(task-16)...)
	g.memory[task-16] = append(word(at(callerAt+0x20)), word(0)...)
	e := Take(context.Background(), "amd64", &guest{registers: g.registers, memory: g.memory, stopped: true})
	v, err := s.View(e, 0)
	if err != nil || len(e.Notes) > 0 {
		t.Fatalf("%v, notes %q", err, e.Notes)
	}
	if c := Explain(e, v)[0]; len(c.Backtrace) != 1 || c.Backtrace[0].Symbol != "caller+0x20/0x20" {
		t.Errorf("backtrace %+v", c.Backtrace)
	}
}

// A link register may be signed, like what is on the stack.
func TestSignedLinkRegister(t *testing.T) {
	s, code := symbolsOf(t, "arm64")
	g := hung["arm64"](at(spinAt), code)
	plain := at(callerAt + 0x20)
	g.registers[0] = strings.Replace(g.registers[0], fmt.Sprintf("X30=%016x", uint64(plain)), fmt.Sprintf("X30=%016x", uint64(plain&^(0xff<<56)|0x3b<<56)), 1)
	g.memory = map[isa.Addr][]byte{base + slid: code}
	e := Take(context.Background(), "arm64", &guest{registers: g.registers, memory: g.memory, stopped: true})
	v, err := s.View(e, 0)
	if err != nil {
		t.Fatal(err)
	}
	if c := Explain(e, v)[0]; len(c.Backtrace) != 1 || c.Backtrace[0].Address != hex(plain) || !c.Backtrace[0].Guess {
		t.Errorf("backtrace %+v", c.Backtrace)
	}
}

// Sleeping CPUs wait if there is a job, and are idle if there is none; now and
// then a look falls on something else.
func TestSleeping(t *testing.T) {
	for arch, make := range hung {
		s, code := symbolsOf(t, arch)
		idle, spin := make(at(idleAt), code), make(at(spinAt), code)
		for _, tt := range []struct {
			job  bool
			runs int // looks at which it runs
			want card.Class
		}{{true, 0, card.Waiting}, {false, 0, card.Idle}, {true, 2, card.Waiting}, {true, 4, card.Busy}, {true, looks, card.Spinning}} {
			g := &guest{memory: idle.memory}
			for range tt.runs {
				g.registers = append(g.registers, spin.registers...)
			}
			g.registers = append(g.registers, idle.registers...)
			e := TakeHung(context.Background(), arch, g)
			v, err := s.View(e, uint64(base+slid))
			if err != nil {
				t.Fatal(err)
			}
			if h := Classify(e, v, tt.job); h.Class != tt.want {
				t.Errorf("%s, ran in %d looks, job %v: %+v, want %s", arch, tt.runs, tt.job, h, tt.want)
			}
		}
	}
}

// A kernel that has stopped its CPUs does not spin, unless it is still on its way or one
// of them is.
func TestHalted(t *testing.T) {
	for arch, make := range hung {
		s, code := symbolsOf(t, arch)
		halted, spins := make(at(haltAt+8), code), make(at(spinAt), code)
		if !strings.HasPrefix(halted.registers[0], "\nCPU#0\n") {
			t.Fatal(halted.registers[0])
		}
		second := "CPU#1" + strings.TrimPrefix(spins.registers[0], "\nCPU#0")
		for _, tt := range []struct {
			registers []string
			want      card.Class
			says      string
		}{
			{halted.registers, card.Halted, "CPU 0: in the kernel, interrupts off, in machine_halt"},
			{[]string{spins.registers[0], halted.registers[0]}, card.Spinning, "in spin"},
			{[]string{halted.registers[0] + second}, card.Spinning, "CPU 1 never slept"},
		} {
			e := TakeHung(context.Background(), arch, &guest{registers: slices.Clone(tt.registers), memory: halted.memory})
			v, err := s.View(e, uint64(base+slid))
			if err != nil {
				t.Fatal(err)
			}
			if h := Classify(e, v, true); h.Class != tt.want || !strings.Contains(h.Detail, tt.says) {
				t.Errorf("%s: %+v, want %s, …%s…", arch, h, tt.want, tt.says)
			}
		}
	}
}

// A CPU in a patch is at the point that the patch is of, wherever patches lie.
func TestInAPatch(t *testing.T) {
	const far = base - 64<<20 // as a module's text
	for arch, make := range hung {
		for name, pc := range map[string]isa.Addr{"far": far + 8, "in padding": at(idleAt + 0x108)} {
			s, code := symbolsOf(t, arch)
			g := make(pc, code)
			g.memory[far] = code[:excerptSize+8]
			e := TakeHung(context.Background(), arch, g)
			v, err := s.View(e, uint64(base+slid))
			if err != nil {
				t.Fatal(err)
			}
			v.Patches = []Patch{{Addr: pc - 8, Size: 64, Of: "gone+0x4"}, {Addr: pc - 8, Size: 32, Of: "f+0x10"}, {Addr: pc + 1, Size: 32, Of: "next+0"}}
			if c := Explain(e, v)[0]; c.Symbol != "(patch of f+0x10)+0x8/0x20" || v.Caller(pc) != c.Symbol {
				t.Errorf("%s, %s: %q, as a caller %q", arch, name, c.Symbol, v.Caller(pc))
			}
			if h := Classify(e, v, true); h.Class != card.Spinning || !strings.HasSuffix(h.Detail, "in the patch of f+0x10") {
				t.Errorf("%s, %s: %+v", arch, name, h)
			}
		}
	}
}

// A machine that sleeps but for the last look is described asleep, and that look counts;
// one that is found in another place each time is described as it is.
func TestUsual(t *testing.T) {
	for _, tt := range []struct {
		looks []isa.Addr
		at    isa.Addr
		want  string
	}{
		{[]isa.Addr{idleAt, idleAt, idleAt, idleAt, idleAt, spinAt, spinAt, idleAt}, idleAt, "slept in 5 of 6 looks"},
		{[]isa.Addr{idleAt, idleAt, idleAt, idleAt, idleAt, spinAt}, spinAt, "slept in 5 of 6 looks"}, // and stays there
		{[]isa.Addr{idleAt, spinAt, spinAt + 4, spinAt + 8, idleAt, spinAt}, spinAt, "asleep in 2 of 6 looks"},
	} {
		s, code := symbolsOf(t, "riscv64")
		g := &guest{memory: hung["riscv64"](at(idleAt), code).memory}
		for _, a := range tt.looks {
			g.registers = append(g.registers, hung["riscv64"](at(a), code).registers...)
		}
		e := TakeHung(context.Background(), "riscv64", g)
		v, err := s.View(e, uint64(base+slid))
		if err != nil {
			t.Fatal(err)
		}
		if h := Classify(e, v, true); !strings.Contains(h.Detail, tt.want) || e.CPUs[0].PC != at(tt.at) || !g.stopped {
			t.Errorf("%v: at %v, %s; want %v, %s", tt.looks, e.CPUs[0].PC, h.Detail, at(tt.at), tt.want)
		}
	}
}

// QEMU likes to stop a CPU as it takes an interrupt: that is not what it was at.
func TestInterrupted(t *testing.T) {
	for arch, pc := range map[string]isa.Addr{"arm64": at(vectorsAt + 0x480), "riscv64": at(vectorsAt)} {
		s, code := symbolsOf(t, arch)
		e := TakeHung(context.Background(), arch, hung[arch](pc, code))
		v, err := s.View(e, 0)
		if err != nil {
			t.Fatal(err)
		}
		if h := Classify(e, v, true); h.Class != card.Spinning || !strings.HasSuffix(h.Detail, "in a program") {
			t.Errorf("%s: %+v", arch, h)
		}
	}
}

// From the firmware, where the kernel lies is told by the only ecall that is where
// the firmware was called.
func TestInFirmware(t *testing.T) {
	for _, tt := range []struct {
		mcause string
		twice  bool
		want   string
	}{{"9", false, "caller+0x10/0x20"}, {"7", false, ""}, {"9", true, ""}} {
		s, code := symbolsOf(t, "riscv64")
		copy(code[callerAt+0x10:], ecall)
		if tt.twice {
			copy(code[callerAt+0x10+kaslrAlign:], ecall)
		}
		g := &guest{registers: []string{fmt.Sprintf("\nCPU#0\n pc       0000000080002748\n mepc     %016x\n mcause   %016s\n x2/sp    0000000080046d78\n",
			uint64(at(callerAt+0x10)), tt.mcause)}, stopped: true}
		e := Take(context.Background(), "riscv64", g)
		v, err := s.View(e, 0)
		if (err == nil) != (tt.want != "") {
			t.Errorf("%+v: %v", tt, err)
		}
		if c := Explain(e, nil)[0]; c.Symbol != "(OpenSBI, the firmware)" {
			t.Errorf("the firmware is called %q", c.Symbol)
		}
		if c := Explain(e, v)[0]; tt.want != "" && (len(c.Backtrace) != 1 || c.Backtrace[0].Symbol != tt.want) {
			t.Errorf("%+v: backtrace %+v, want %s", tt, c.Backtrace, tt.want)
		}
	}
}

// Functions of boot, whose code is gone, have names, too.
func TestBootText(t *testing.T) {
	b := readBoot([]byte("0000000000002000 T _sinittext\n0000000000002040 t second\n0000000000002000 T first\n0000000000002040 t alias\n" +
		"0000000000001000 T before\n0000000000002080 T _einittext\n0000000000002080 T behind\n0000000000002050 t inside\t[module]\nx t x\n0000000000002060 d data\n"))
	for _, tt := range []struct {
		a, before isa.Addr
		want      string
	}{{0x2000, 0, "first+0x0/0x40"}, {0x2044, 0, "second+0x4/0x40"}, {0x2040, 1, "first+0x40/0x40"}, {0x2080, 1, "second+0x40/0x40"},
		{0x2080, 0, ""}, {0x1fff, 0, ""}, {0x2000, 1, ""}} {
		if got := b.Name(tt.a, tt.before); got != tt.want {
			t.Errorf("%v, %v: %q, want %q", tt.a, tt.before, got, tt.want)
		}
	}
	v := &View{Symbols: &Symbols{boot: b, lo: 0x100, hi: 0x100}, Slide: 0x10000}
	for a, want := range map[isa.Addr]bool{0x12044: true, 0x12040: false, 0x12000: false, 0x12080: true, 0x12081: false, 0x2044: false} {
		if v.returns(a) != want {
			t.Errorf("%v is a return address: %v", a, !want)
		}
	}
	if got := (&ktext.Functions{}).Name(0x2000, 0); got != "" {
		t.Errorf("without functions: %q", got)
	}
}

// What cannot be had is said, and the rest is kept.
func TestMissing(t *testing.T) {
	s, code := symbolsOf(t, "arm64")
	g := hung["arm64"](at(spinAt), code)
	g.memory, g.fails = nil, errors.New("gone")
	e := TakeHung(context.Background(), "arm64", g)
	if notes := strings.Join(e.Notes, "; "); !strings.Contains(notes, "cannot be read") || !strings.Contains(notes, "looked at 3 times instead of 6: gone") {
		t.Errorf("notes %q", notes)
	}
	if _, err := s.View(e, 0); !errors.Is(err, ErrNoPlace) {
		t.Errorf("a place was found for nothing: %v", err)
	}
	if c := Explain(e, nil); len(c) != 1 || c[0].Symbol != "" || len(c[0].Registers) == 0 {
		t.Errorf("CPUs %+v", c)
	}
	if h := Classify(e, nil, true); h != nil {
		t.Errorf("classified without symbols: %+v", h)
	}
	if e := Take(context.Background(), "sparc", g); len(e.Notes) != 1 {
		t.Errorf("an unknown ISA: %+v", e)
	}
}

// Code that is in two places of the kernel, or filler, says nothing.
func TestNoGuessAboutPlaces(t *testing.T) {
	s, code := symbolsOf(t, "riscv64")
	copy(code[spinAt+kaslrAlign:], code[spinAt:spinAt+excerptSize])
	if at, ok := s.find(Excerpt{at(spinAt), code[spinAt:][:excerptSize]}); ok {
		t.Errorf("two places, and %v was taken", at)
	}
	clear(code[idleAt:][:excerptSize])
	if at, ok := s.find(Excerpt{at(idleAt), make([]byte, excerptSize)}); ok {
		t.Errorf("filler is at %v", at)
	}
}

// A machine that was taken over may print anything.
func TestHostileRegisters(t *testing.T) {
	g := &guest{registers: []string{"CPU#0\n\x1b]0;x\x07RIP=zz RSP=fffffffffffffff0\nCPU#7\nCPU#1\x00\nCPU#\nRFL=" + strings.Repeat("f", 40)}}
	e := TakeHung(context.Background(), "amd64", g)
	for _, c := range Explain(e, nil) {
		for _, l := range c.Registers {
			if strings.ContainsAny(l, "\x00\x07\x1b") {
				t.Errorf("control characters: %q", l)
			}
		}
	}
}
