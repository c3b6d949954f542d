package sweep

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
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
// calls the whole unknown; and amd64's EVEX instructions, whose many reserved forms are
// not told apart.
var reserved = map[string]func(d Difference) bool{
	"amd64": func(d Difference) bool { // EVEX
		rest := d.Bytes
		for len(rest) > 0 && (rest[0]&0xf0 == 0x40 || bytes.IndexByte(legacyPrefixes, rest[0]) >= 0) {
			rest = rest[1:]
		}
		wait := len(rest) == 0 || rest[0] == 0x9b // to objdump, a part of what follows
		return d.Insn.Traits&isa.Vector != 0 && (wait || rest[0] == 0x62)
	},
	"arm64": func(Difference) bool { return false },
	"riscv64": func(d Difference) bool {
		fence := d.Bytes[0]&0x7f == 0x0f && d.Bytes[1]&0x70 <= 0x10 // and fence.i with other fields than 0
		exact := d.Bytes[0]&0x7f == 0x53 && d.Bytes[3]&0xf0 >= 0x40 // conversions that round nothing, in any mode
		round := d.Bytes[0]&0x7f == 0x77                            // vsm4k.vi: of its number three bits count
		return fence || exact || round
	},
}

// TestNothingIsGuessed decodes random bytes: what objdump does not know, the
// decoders must not know either, and of what both know they must see the same
// lengths and targets.
func TestNothingIsGuessed(t *testing.T) {
	count := 20_000
	if *full {
		count = 1_000_000
	}
	for _, arch := range all.Arches() {
		t.Run(arch.Name, func(t *testing.T) { guesses(t, arch, count) })
	}
}

func guesses(t *testing.T, arch *isa.Arch, count int) {
	root, err := images.Toolchain(context.Background(), options(t, arch.Name))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(context.Background(), root, arch, random(rand.New(rand.NewPCG(1, 2)), count, arch.MaxLen))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, d := range r.Differences {
		refused := d.Insn.Flow == isa.FlowUnknown && d.What == "known to one alone"
		if refused || reserved[arch.Name](d) {
			continue
		}
		switch d.What {
		case "length", "target", "known to one alone":
			if found++; found <= shown {
				t.Error(d)
			}
		}
	}
	t.Logf("proof guesses %s %d instructions, %d known to neither, %d guesses", arch.Name, r.Instructions, len(r.Unknown), found)
	if r.Instructions < count {
		t.Errorf("only %d instructions came of %d pieces", r.Instructions, count)
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
