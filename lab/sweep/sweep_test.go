package sweep

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/images"
	"kerninst/lab/qemu"
	"kerninst/lab/runner"
)

var full = flag.Bool("full", false, "sweep every function of the kernels, and every module")

// slice is of how many functions one is compared when not everything is.
const slice = 50

// shown is how many differences are printed.
const shown = 20

// options for the image of an ISA, from this repository.
func options(t testing.TB, arch string) images.Options {
	return images.Options{Arch: arch, Root: "../..", Progress: t.Logf}
}

// kernel lists the functions of the stock kernel, as it is when it has booted.
func kernel(t testing.TB, arch *isa.Arch, img *images.Image) []Piece {
	t.Helper()
	r := runner.New(runner.Runner{Image: img, Backend: qemu.Backend{}, Seed: 1, Jobs: 1, Progress: t.Logf})
	d, err := r.Dump(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	text, err := d.Text(arch)
	if err != nil {
		t.Fatal(err)
	}
	pieces, err := Kernel(text)
	if err != nil {
		t.Fatal(err)
	}
	return pieces
}

func allowed(t *testing.T, arch string) *Allowed {
	t.Helper()
	f, err := os.Open("testdata/" + arch + ".allow")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	a, err := ReadAllowed(f)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestSweep compares the decoders with objdump: a slice of each kernel, or with
// -full every function and every module.
func TestSweep(t *testing.T) {
	for _, arch := range all.Arches() {
		t.Run(arch.Name, func(t *testing.T) {
			img, err := images.Ensure(context.Background(), options(t, arch.Name))
			if err != nil {
				t.Fatal(err)
			}
			root, err := images.Toolchain(context.Background(), options(t, arch.Name))
			if err != nil {
				t.Fatal(err)
			}
			list := allowed(t, arch.Name)
			if list.Kernel != img.Release {
				t.Fatalf("the differences that are allowed are those of %s, the kernel is %s: sweep it with -full and look at each", list.Kernel, img.Release)
			}
			pieces := kernel(t, arch, img)
			if !*full {
				n := 0
				pieces = slices.DeleteFunc(pieces, func(Piece) bool { n++; return n%slice != 0 })
			}
			check(t, "kernel", arch, root, list, pieces)
			if *full {
				modules(t, arch, img, root, list)
				for _, e := range list.Unused() {
					t.Errorf("testdata/%s.allow: %q explains nothing: remove it", arch.Name, e)
				}
			}
		})
	}
}

// batch is how many bytes of modules objdump is given at a time.
const batch = 32 << 20

// modules compares all modules that Debian ships with the kernel.
func modules(t *testing.T, arch *isa.Arch, img *images.Image, root *images.Root, list *Allowed) {
	t.Helper()
	var pieces []Piece
	size, count := 0, 0
	flush := func() {
		check(t, "modules", arch, root, list, pieces)
		pieces, size = nil, 0
	}
	err := Modules(context.Background(), img.Modules, func(_ string, code []Piece) error {
		count++
		for _, p := range code {
			pieces, size = append(pieces, p), size+len(p.Code)
		}
		if size > batch {
			flush()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	flush()
	if count < 1000 {
		t.Errorf("%d modules: Debian ships thousands", count)
	}
	t.Logf("%d modules", count)
}

// check compares and complains.
func check(t *testing.T, what string, arch *isa.Arch, root *images.Root, list *Allowed, pieces []Piece) {
	t.Helper()
	r, err := Run(context.Background(), root, arch, pieces)
	if err != nil {
		t.Fatal(err)
	}
	bad := list.Unexplained(r)
	for _, d := range bad[:min(len(bad), shown)] {
		t.Error(d)
	}
	t.Logf("proof sweep %s %d instructions of %s: %d bytes, %d mnemonics, %d differences, %d undecoded, %d unexplained",
		arch.Name, r.Instructions, what, r.Bytes, len(r.Mnemonics), len(r.Differences), len(r.Unknown), len(bad))
	if len(bad) > shown {
		t.Errorf("and %d more", len(bad)-shown)
	}
	if r.Instructions < 1000 {
		t.Errorf("only %d instructions were compared", r.Instructions)
	}
}

// TestLiesAreFound has decoders lie about one thing each.
func TestLiesAreFound(t *testing.T) {
	code := map[string]string{ // a call, a conditional branch, a store, a load, an addition
		"amd64":   "\xe8\x00\x00\x00\x00\x75\x02\x48\x89\x04\x24\x48\x8b\x1c\x24\x48\x01\xd8\x90",
		"arm64":   "\x01\x00\x00\x94\x41\x00\x00\x54\xe0\x03\x00\xf9\xe1\x03\x40\xf9\x00\x00\x01\x8b\x1f\x20\x03\xd5",
		"riscv64": "\xef\x00\x40\x00\x63\x14\xb5\x00\x23\x30\xa1\x00\x83\x35\x01\x00\x33\x05\xb5\x00\x01\x00",
	}
	for _, arch := range all.Arches() {
		root, err := images.Toolchain(context.Background(), options(t, arch.Name))
		if err != nil {
			t.Fatal(err)
		}
		l := lay(arch, []Piece{{Name: "f", Code: []byte(code[arch.Name])}})
		var out []byte
		err = root.Stream(context.Background(), "code", elfFile(arch.Name, l.base, l.code, l.starts),
			append([]string{tools[arch.Name]}, append(arguments, "code")...), func(r io.Reader) (err error) {
				out, err = io.ReadAll(r)
				return err
			})
		if err != nil {
			t.Fatal(err)
		}
		for _, lie := range []struct {
			what string
			tell func(i *isa.Insn)
		}{
			{"", func(*isa.Insn) {}},
			{"length", func(i *isa.Insn) { i.Len += arch.MinLen }},
			{"flow", func(i *isa.Insn) {
				if i.Flow == isa.FlowCond {
					i.Flow = isa.FlowJump
				}
			}},
			{"target", func(i *isa.Insn) {
				if i.Flow == isa.FlowCall {
					i.Target += 4
				}
			}},
			{"reads", func(i *isa.Insn) { i.Reads &= i.Reads - 1 }},
			{"reads", func(i *isa.Insn) { i.Reads |= 1 << 13 }},
			{"writes", func(i *isa.Insn) { i.Writes &= i.Writes - 1 }},
			{"writes", func(i *isa.Insn) { i.Writes |= 1 << 13 }},
			{"clobbers", func(i *isa.Insn) { i.Clobbers |= 1 << 13 }},
			{"memory", func(i *isa.Insn) { i.Traits &^= isa.Load }},
			{"memory", func(i *isa.Insn) { i.Traits &^= isa.Store }},
			{"known to one alone", func(i *isa.Insn) { i.Flow = isa.FlowUnknown }},
		} {
			liar := *arch
			liar.Decode = func(b []byte, a isa.Addr) isa.Insn {
				i := arch.Decode(b, a)
				lie.tell(&i)
				return i
			}
			l.arch = &liar
			r, err := l.compare(bytes.NewReader(out))
			if err != nil {
				t.Fatal(err)
			}
			found := slices.ContainsFunc(r.Differences, func(d Difference) bool { return d.What == lie.what })
			if found != (lie.what != "") || lie.what == "" && len(r.Differences) > 0 {
				t.Errorf("%s: a lie about %q: found %v", arch.Name, lie.what, r.Differences)
			}
		}
	}
}

// random makes pieces of n random bytes.
func random(r *rand.Rand, count, n int) []Piece {
	out := make([]Piece, count)
	for k := range out {
		b := make([]byte, n)
		for j := range b {
			b[j] = byte(r.Uint32())
		}
		out[k] = Piece{Name: "random", Code: b}
	}
	return out
}

var legacyPrefixes = []byte{0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3}

// reserved are fields that the manuals reserve and CPUs ignore, while objdump
// calls the whole unknown.
var reserved = map[string]func(d Difference) bool{
	"amd64": func(d Difference) bool {
		rest := d.Bytes
		for len(rest) > 0 && (rest[0]&0xf0 == 0x40 || bytes.IndexByte(legacyPrefixes, rest[0]) >= 0) {
			rest = rest[1:]
		}
		wait := len(rest) == 0 || rest[0] == 0x9b // to objdump, a part of what follows
		return wait && (d.Insn.Traits&isa.Vector != 0 || d.Insn.Flow == isa.FlowUnknown)
	},
	"arm64": func(Difference) bool { return false },
	"riscv64": func(d Difference) bool {
		fence := d.Bytes[0]&0x7f == 0x0f && d.Bytes[1]&0x70 <= 0x10 // and fence.i with other fields than 0
		exact := d.Bytes[0]&0x7f == 0x53 && d.Bytes[3]&0xf0 >= 0x40 // conversions that round nothing, in any mode
		round := d.Bytes[0]&0x7f == 0x77                            // vsm4k.vi: of its number three bits count
		return fence || exact || round
	},
}

// encodings are the bytes with which amd64's encodings begin, and how many times as
// many instructions of each are drawn: random bytes hold few of most.
var encodings = []struct {
	first string
	times int
}{
	{"", 1}, {"\x0f", 1}, {"\x0f\x00", 1}, {"\x0f\x01", 1}, {"\x0f\xae", 1}, {"\x0f\xc7", 1}, {"\x0f\xa6", 1}, {"\x0f\xa7", 1}, // systems'
	{"\x0f\x0f", 1}, {"\x8f", 1}, // 3DNow, XOP
	{"\x0f\x38", 1}, {"\x0f\x3a", 1}, {"\xc4\xe1", 1}, {"\xc4\xe2", 1}, {"\xc4\xe3", 1}, {"\xc4", 1}, {"\xc5", 1}, // SSE, VEX
	{"\x62", 20},                                                                                           // EVEX
	{"\xd8", 1}, {"\xd9", 1}, {"\xda", 1}, {"\xdb", 1}, {"\xdc", 1}, {"\xdd", 1}, {"\xde", 1}, {"\xdf", 1}, // x87
}

// encoded makes pieces of up to three prefixes, perhaps REX, the bytes that an encoding
// begins with, and random bytes.
func encoded(r *rand.Rand, count, n int, first string) []Piece {
	out := make([]Piece, count)
	for k := range out {
		b := make([]byte, 0, n)
		for range max(0, r.IntN(8)-4) {
			b = append(b, legacyPrefixes[r.IntN(len(legacyPrefixes))])
		}
		if r.IntN(4) == 0 {
			b = append(b, 0x40|byte(r.IntN(16)))
		}
		b = append(b, first...)
		for len(b) < n {
			b = append(b, byte(r.Uint32()))
		}
		out[k] = Piece{Name: "random", Code: b}
	}
	return out
}

// TestNothingIsGuessed decodes random bytes: what objdump does not know, the
// decoders must not know either, and of what both know they must see the same
// lengths and targets, and of what they refuse the length, if they say one.
func TestNothingIsGuessed(t *testing.T) {
	count, each, step := 20_000, 1_000, uint32(1021)
	if *full {
		count, each, step = 1_000_000, 250_000, 1
	}
	for _, arch := range all.Arches() {
		t.Run(arch.Name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			guesses(t, arch, "", random(r, count, arch.MaxLen))
			if arch.Name == "riscv64" {
				guesses(t, arch, " of vectors", vectors(step))
			}
			if arch.Name != "amd64" {
				return
			}
			for _, e := range encodings {
				for left := e.times * each; left > 0; left -= count {
					guesses(t, arch, fmt.Sprintf(" that begin with %x", e.first), encoded(r, min(left, count), arch.MaxLen, e.first))
				}
			}
		})
	}
}

// vectors makes a piece of riscv64's operations on vectors: of all 2^20 forms beside
// destinations, one in each step.
//
//	funct6 | vm | vs2 | vs1 | funct3 | vd | 1010111
func vectors(step uint32) []Piece {
	const all, operation, vd = 1 << 20, 0x57, 8
	var code []byte
	for k := uint32(0); k < all; k += step {
		code = binary.LittleEndian.AppendUint32(code, operation|vd<<7|k&7<<12|k>>3<<15)
	}
	return []Piece{{Name: "vectors", Code: code}}
}

func guesses(t *testing.T, arch *isa.Arch, what string, pieces []Piece) {
	root, err := images.Toolchain(context.Background(), options(t, arch.Name))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(context.Background(), root, arch, pieces)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, d := range r.Differences {
		if reserved[arch.Name](d) {
			continue
		}
		switch d.What {
		case "known to one alone":
			refused := d.Insn.Flow == isa.FlowUnknown
			if refused && (d.Insn.Len == d.Line.Len || d.Insn.Traits&isa.Lost != 0) {
				continue
			}
		case "length", "target":
		default:
			continue
		}
		if found++; found <= shown {
			t.Error(d)
		}
	}
	t.Logf("proof guesses %s %d instructions%s, %d known to neither, %d guesses", arch.Name, r.Instructions, what, len(r.Unknown), found)
	if r.Instructions < len(pieces) {
		t.Errorf("only %d instructions came of %d pieces", r.Instructions, len(pieces))
	}
}

// evexOp is an EVEX opcode with its ModRM.reg, which is a part of it in shifts by a
// constant.
type evexOp struct{ m, prefix, op, reg byte }

func (e evexOp) shifts() bool { return e.m == 1 && e.op >= 0x71 && e.op <= 0x73 }

// evexForms and evexPlain are the numbers of forms of one: all, and those in which R, X
// and R' are ones.
const evexForms, evexPlain = 1 << 12, 1 << 9

// form is the instruction with the k-th value of the fields beside the numbers of
// registers: a third one or none, W, z, lengths, b, V', a mask or none, an operand in a
// register or in memory, R, X and R'.
//
//	62 | R X B R' 0 m m m | W vvvv 1 p p | z L' L b V' a a a | opcode | ModRM | imm8
func (e evexOp) form(k int) []byte {
	bit := func(n, to int) byte { return byte(k>>n&1) << to }
	b := []byte{0x62,
		0xf0 ^ bit(9, 7) ^ bit(10, 6) ^ bit(11, 4) | e.m,
		0x7c ^ bit(0, 6) ^ bit(0, 4) ^ bit(1, 7) | e.prefix,
		bit(2, 7) | bit(3, 6) | bit(4, 5) | bit(5, 4) | bit(6, 3) | bit(7, 1) | bit(7, 0),
		e.op, 0x01 | e.reg<<3 | bit(8, 7) | bit(8, 6)}
	if e.m == 3 || e.shifts() || e.m == 1 && e.op == 0x70 {
		b = append(b, 4)
	}
	return b
}

// understood lists the EVEX opcodes of which the decoder understands some form.
func understood(arch *isa.Arch) (out []evexOp) {
	for n := range 3 << 13 {
		e := evexOp{byte(n>>13) + 1, byte(n >> 11 & 3), byte(n >> 3), byte(n & 7)}
		if e.reg != 0 && !e.shifts() {
			continue
		}
		for k := range evexPlain {
			if arch.Decode(e.form(k), 0).Flow != isa.FlowUnknown {
				out = append(out, e)
				break
			}
		}
	}
	return out
}

// laxEvex says whether objdump prints what the manual reserves: b where nothing is
// repeated, V' and R, R' and X where they are parts of no number, a mask of vmovntdq
// (SDM volume 2, exception classes E1NF, E4 and E6); or what the decoder leaves out.
func laxEvex(d Difference) bool {
	b, memory := d.Bytes, d.Bytes[5] < 0xc0
	e := evexOp{m: b[1] & 7, prefix: b[2] & 3, op: b[4]}
	return memory && b[3]&0x10 != 0 || b[3]&8 == 0 || e.shifts() && b[1]&0x90 != 0x90 ||
		strings.HasPrefix(d.Line.Mnemonic, "vpmovm2") && b[1]&0x60 != 0x60 ||
		d.Line.Mnemonic == "vmovntdq" && b[3]&7 != 0 || d.Line.Mnemonic == "vbroadcasti32x2"
}

// TestEvexForms decodes every form of the EVEX opcodes that the decoder understands:
// those are instructions that objdump knows, and all of those but the ones it should
// not print.
func TestEvexForms(t *testing.T) {
	arch, _ := all.Lookup("amd64")
	root, err := images.Toolchain(context.Background(), options(t, arch.Name))
	if err != nil {
		t.Fatal(err)
	}
	var pieces []Piece // one each: behind what it does not know, objdump goes on with the next byte
	opcodes := understood(arch)
	for _, e := range opcodes {
		for k := range evexForms {
			pieces = append(pieces, Piece{Name: "evex", Code: e.form(k)})
		}
	}
	r, err := Run(context.Background(), root, arch, pieces)
	if err != nil {
		t.Fatal(err)
	}
	lax, wrong := 0, 0
	for _, d := range r.Differences {
		if d.Off > 0 { // the rest of what objdump does not know
			continue
		}
		if d.Insn.Flow == isa.FlowUnknown && laxEvex(d) {
			lax++
		} else if wrong++; wrong <= shown {
			t.Error(d)
		}
	}
	t.Logf("proof evex amd64 %d forms of %d opcodes, %d that are reserved but printed, %d differences", len(pieces), len(opcodes), lax, wrong)
	if len(opcodes) < 40 {
		t.Errorf("only %d opcodes are understood", len(opcodes))
	}
}

// newer are names of arm64's vector instructions that its decoder refuses, some or all
// of them, since they came after its table: 8-bit floating point, lookup in registers,
// largest and smallest by magnitude. objdump also prints fmlal where a size is reserved.
var newer = strings.Fields("bf1cvtl bf1cvtl2 bf2cvtl bf2cvtl2 f1cvtl f1cvtl2 f2cvtl f2cvtl2 famax famin fcvtn fcvtn2 fdot fmlal fmlal2 fmlsl fmlsl2 " +
	"fmlalb fmlalt fmlallbb fmlallbt fmlalltb fmlalltt fscale luti2 luti4")

// TestVectorForms decodes arm64's vector instructions, in every form of which the
// fields beside the registers' numbers tell: those that objdump knows and no others.
func TestVectorForms(t *testing.T) {
	arch, _ := all.Lookup("arm64")
	root, err := images.Toolchain(context.Background(), options(t, arch.Name))
	if err != nil {
		t.Fatal(err)
	}
	var code []byte
	for k := range uint32(1 << 18) { // bits 24:10, 28, and 30:29; single elements have 30 set
		w := 0x0e000041 | k&0x7fff<<10 | k>>15&1<<28 | k>>16&3<<29
		if w>>28&1 == 0 || w>>30&1 == 1 {
			code = binary.LittleEndian.AppendUint32(code, w)
		}
	}
	r, err := Run(context.Background(), root, arch, []Piece{{Name: "vectors", Code: code}})
	if err != nil {
		t.Fatal(err)
	}
	refused, wrong := 0, 0
	for _, d := range r.Differences {
		if d.Insn.Flow == isa.FlowUnknown && slices.Contains(newer, d.Line.Mnemonic) {
			refused++
		} else if wrong++; wrong <= shown {
			t.Error(d)
		}
	}
	t.Logf("%d forms, %d newer than the decoder, %d known to neither", r.Instructions, refused, len(r.Unknown))
}

func TestAllowed(t *testing.T) {
	a, err := ReadAllowed(strings.NewReader("# note\nkernel 1\nf* | length | because\ng | flow | because\n"))
	if err != nil {
		t.Fatal(err)
	}
	left := a.Unexplained(&Report{Differences: []Difference{{Piece: "foo", What: "length"}, {Piece: "foo", What: "flow"}}})
	if len(left) != 1 || left[0].What != "flow" {
		t.Errorf("unexplained: %v", left)
	}
	if u := a.Unused(); len(u) != 1 || !strings.HasPrefix(u[0], "g ") {
		t.Errorf("unused: %q", u)
	}
	for _, bad := range []string{"f | length | why", "kernel 1\nf | length", "kernel 1\nf | | why", "kernel 1\n[ | a | b"} {
		if _, err := ReadAllowed(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// TestUnfinishedListing cuts objdump's output off.
func TestUnfinishedListing(t *testing.T) {
	arch, _ := all.Lookup("riscv64")
	l := lay(arch, []Piece{{Name: "f", Code: []byte("\x01\x00\x01\x00")}})
	line := "ffffffff80000000:\t0001 \tnop\n"
	if _, err := l.compare(strings.NewReader(line)); err == nil || !strings.Contains(err.Error(), "stopped") {
		t.Errorf("half a listing: %v", err)
	}
	if _, err := l.compare(strings.NewReader(line + strings.Replace(line, "000:", "100:", 1))); err == nil {
		t.Error("an instruction behind the code was taken")
	}
}

// BenchmarkKernel decodes a whole kernel.
func BenchmarkKernel(b *testing.B) {
	for _, arch := range all.Arches() {
		b.Run(arch.Name, func(b *testing.B) {
			img, err := images.Ensure(context.Background(), options(b, arch.Name))
			if err != nil {
				b.Fatal(err)
			}
			pieces := kernel(b, arch, img)
			n := 0
			for b.Loop() {
				for _, p := range pieces {
					for k := 0; k < len(p.Code); n++ {
						k += arch.Decode(p.Code[k:], p.Addr+isa.Addr(k)).Len
					}
				}
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "Minsns/s")
		})
	}
}
