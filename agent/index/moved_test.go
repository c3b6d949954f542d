package index_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"kerninst/agent/cfg"
	"kerninst/agent/index"
	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/ktext"
	"kerninst/agent/live"
)

// The tests here are about what may differ between a kernel and its index
// without a difference in meaning, and what may not. Their kernel has two
// functions, f at _stext and g behind it.

const (
	gAt      = 0x100
	textSize = 0x200
	dataAt   = 0x1000 // of a table of static keys, behind the text
	size     = 0x2000
)

// le gives numbers as little-endian bytes, of four or eight bytes each.
func le32(v isa.Addr) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(v)) }
func le64(v isa.Addr) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(v)) }

func join(parts ...any) (out []byte) {
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			out = append(out, byte(p))
		case []byte:
			out = append(out, p...)
		}
	}
	return out
}

// small is a kernel of those two functions at base. key is the offset of the
// only static key's site.
func small(t testing.TB, arch string, base isa.Addr, f, g []byte, key isa.Addr) *ktext.Text {
	t.Helper()
	a, err := all.Lookup(arch)
	if err != nil {
		t.Fatal(err)
	}
	mem := make([]byte, size)
	if arch == "amd64" { // behind the functions
		for k := range mem[:textSize] {
			mem[k] = 0xcc
		}
	}
	copy(mem, f)
	copy(mem[gAt:], g)
	distance := func(from, to isa.Addr) []byte { return le32(to - from) }
	copy(mem[dataAt:], distance(dataAt, key))
	copy(mem[dataAt+4:], distance(dataAt+4, gAt))
	var syms strings.Builder
	for _, s := range []struct {
		off  isa.Addr
		name string
	}{{0, "T _stext"}, {0, "T f"}, {gAt, "T g"}, {textSize, "T _etext"}, {dataAt, "D __start___jump_table"},
		{dataAt + 16, "D __stop___jump_table"}, {size, "D _end"}} {
		fmt.Fprintf(&syms, "%016x %s\n", uint64(base+s.off), s.name)
	}
	x, err := ktext.New(a, strings.NewReader(syms.String()), func(at isa.Addr, b []byte) error {
		if at < base || at+isa.Addr(len(b)) > base+size {
			return fmt.Errorf("%v is not mapped", at)
		}
		copy(b, mem[at-base:])
		return nil
	}, ktext.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// indexOf makes and opens the index of a kernel.
func indexOf(t *testing.T, x *ktext.Text) *index.Index {
	t.Helper()
	return opened(t, fileOf(t, x))
}

func fileOf(t testing.TB, x *ktext.Text) []byte {
	t.Helper()
	s := index.Source{Text: x}
	var err error
	if s.Graph, err = cfg.Build(x, cfg.Options{}); err != nil {
		t.Fatal(err)
	}
	if s.Live, err = live.Solve(s.Graph, x, live.Options{}); err != nil {
		t.Fatal(err)
	}
	return made(t, s)
}

const (
	oneBase   = 0xffffffff81000000
	otherBase = 0xffffffffa9200000
	percpu    = 0x1f0c0
)

// body is amd64 code with every kind of address in it, for a kernel at base.
// Its parts are what a case may change.
type body struct {
	lock, imm byte
	key       []byte // nop or jump, at offset 4
	constant  isa.Addr
}

var plain = body{0xf0, 7, []byte{0x0f, 0x1f, 0x44, 0x00, 0x00}, 0x12345678}

func (b body) at(base isa.Addr) []byte {
	code := join(0x48, 0x83, 0xc0, int(b.imm), // add $imm,%rax
		b.key,                             // jump to g, or not
		0x48, 0xc7, 0xc7, le32(base+0x40), // mov $f+0x40,%rdi
		0x48, 0x8b, 0x04, 0xc5, le32(base+0x1100), // mov table(,%rax,8),%rax
		0x80, 0xb8, le32(base+0x1200), 0x81, // cmpb $0x81,table(%rax)
		0xc7, 0x04, 0x25, le32(base+0x1300), le32(base+0x10), // movl $f+0x10,table
		0x48, 0xb8, le64(base+0x1400), // movabs $table,%rax
		0x48, 0xc7, 0xc1, le32(b.constant), // mov $constant,%rcx
		int(b.lock), 0xff, 0x03) // lock incl (%rbx)
	next := isa.Addr(len(code)) + 8 // of mov %gs:percpu(%rip),%rax
	code = append(code, join(0x65, 0x48, 0x8b, 0x05, le32(percpu-base-next))...)
	next = isa.Addr(len(code)) + 7 // of mov table(%rip),%rdx
	code = append(code, join(0x48, 0x8b, 0x15, le32(0x1500-next))...)
	return append(code, 0xc3)
}

var toG = []byte{0xe9, gAt - 9, 0, 0, 0}

// TestWhatMayDiffer holds the index of one kernel against others.
func TestWhatMayDiffer(t *testing.T) {
	ret := []byte{0xc3}
	x := indexOf(t, small(t, "amd64", oneBase, plain.at(oneBase), ret, 4))
	with := func(change func(*body)) []byte {
		b := plain
		change(&b)
		return b.at(otherBase)
	}
	for _, c := range []struct {
		name string
		code []byte
		want index.How
		same bool // to the whole: registers and flow are
	}{
		{"elsewhere", plain.at(otherBase), index.Indexed, true},
		{"a static key is on", with(func(b *body) { b.key = toG }), index.Indexed, true},
		{"one CPU", with(func(b *body) { b.lock = 0x3e }), index.Indexed, true},
		{"another operand", with(func(b *body) { b.imm = 8 }), index.Differs, false},
		{"another constant", with(func(b *body) { b.constant++ }), index.Differs, true},
		{"a breakpoint", append([]byte{0xcc}, plain.at(otherBase)[1:]...), index.Differs, false},
		{"addresses that did not move along", plain.at(oneBase), index.Differs, true},
		{"other prefix", with(func(b *body) { b.lock = 0x2e }), index.Differs, false},
	} {
		text := small(t, "amd64", otherBase, c.code, ret, 4)
		v, err := index.NewView(x, text)
		if err != nil {
			t.Fatal(err)
		}
		f, err := text.Function("", "f")
		if err != nil {
			t.Fatal(err)
		}
		fn, err := v.Function(f)
		if err != nil || fn.How != c.want {
			t.Errorf("%s: %v, want %v (%v)", c.name, fn.How, c.want, err)
		}
		if fn.Instructions() == 0 {
			t.Errorf("%s: nothing is known of it", c.name)
		}
		var changed *index.Changed
		switch err := v.Whole(); {
		case c.same && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case !c.same && (!errors.As(err, &changed) || changed.Func != "_stext"):
			t.Errorf("%s: of the whole text: %v", c.name, err)
		}
	}
}

// TestOfAnotherKernel: an index that cannot be of this kernel is refused.
func TestOfAnotherKernel(t *testing.T) {
	x := indexOf(t, small(t, "amd64", oneBase, plain.at(oneBase), []byte{0xc3}, 4))
	arm := []byte{0xc0, 0x03, 0x5f, 0xd6}
	if _, err := index.NewView(x, small(t, "arm64", oneBase, arm, arm, 4)); err == nil || !strings.Contains(err.Error(), "arm64") {
		t.Errorf("another ISA: %v", err)
	}
	if _, err := index.NewView(indexOf(t, small(t, "arm64", oneBase, arm, arm, 4)),
		small(t, "arm64", otherBase, arm, arm, 4)); err != nil {
		t.Error(err)
	}
}

// TestOddSymbols: what symbols may be like, and what is known then.
func TestOddSymbols(t *testing.T) {
	base := isa.Addr(oneBase)
	text := small(t, "amd64", base, plain.at(base), []byte{0xc3}, 4)
	v, err := index.NewView(indexOf(t, text), text)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		f    ktext.Func
		want index.How
		free bool // anything may be overwritten at its start
	}{
		{"as it is", ktext.Func{Name: "g", Addr: base + gAt, Size: gAt}, index.Indexed, true},
		{"a size that is not known", ktext.Func{Name: "f", Addr: base + 4}, index.Absent, false},
		{"inside another", ktext.Func{Name: "h", Addr: base + 4, Size: 8}, index.Absent, false},
		{"longer than its code", ktext.Func{Name: "g", Addr: base + gAt, Size: 2 * gAt}, index.Indexed, true},
		{"outside the text", ktext.Func{Name: "far", Addr: base + size - 64, Size: 16}, index.Absent, false},
		{"a module's", ktext.Func{Module: "m", Name: "g", Addr: base + gAt, Size: 1}, index.Absent, false},
	} {
		fn, err := v.Function(c.f)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if fn.How != c.want || (fn.Free(c.f.Addr) != 0) != c.free {
			t.Errorf("%s: %v, free %#x", c.name, fn.How, fn.Free(c.f.Addr))
		}
	}
	if _, err := v.Function(ktext.Func{Name: "gone", Addr: base + 2*size, Size: 16}); err == nil {
		t.Error("text that cannot be read was analysed")
	}
}

// TestFrontWordMayDiffer: what arm64's ftrace keeps in front of g moves with the
// kernel, and changes when somebody traces g.
func TestFrontWordMayDiffer(t *testing.T) {
	ret := []byte{0xc0, 0x03, 0x5f, 0xd6}
	nop := []byte{0x1f, 0x20, 0x03, 0xd5}
	movX9 := []byte{0xe9, 0x03, 0x1e, 0xaa}
	kernel := func(base, pointer isa.Addr) *ktext.Text {
		f := join(ret, make([]byte, gAt-4-8), le64(pointer))
		return small(t, "arm64", base, f, join(movX9, nop, ret), 0)
	}
	x := indexOf(t, kernel(0xffff800080000000, 0xffff800080001230))
	text := kernel(0xffff9d4be0000000, 0xffff9d4be0001560)
	v, err := index.NewView(x, text)
	if err != nil {
		t.Fatal(err)
	}
	f, err := text.Function("", "f")
	if err != nil {
		t.Fatal(err)
	}
	if fn, err := v.Function(f); err != nil || fn.How != index.Indexed {
		t.Errorf("%v (%v)", fn.How, err)
	}
}

// TestConstantsOfABoot: what the kernel writes into its own code by the memory that there is leaves the whole what it was
// analysed as, and the function with it is another; the like of it that it does not write is looked at.
func TestConstantsOfABoot(t *testing.T) {
	behind := func(ret uint32, all ...uint32) (out []byte) {
		for _, w := range append(all, ret) {
			out = binary.LittleEndian.AppendUint32(out, w)
		}
		return out
	}
	words := func(all ...uint32) []byte { return behind(0xd65f03c0, all...) } // ret
	riscv := func(all ...uint32) []byte { return behind(0x00008067, all...) } // ret
	const (
		nop              = 0x13
		luiA0, luiA1     = 0x89abd537, 0x012345b7 // lui a0, 0x89abd; lui a1, 0x1234
		addA0, addA1     = 0xdef5051b, 0x5675859b // addiw a0, a0, -0x211; addiw a1, a1, 0x567
		luiA0b, luiA1b   = 0xff20f537, 0xffffb5b7
		addA0b, addA1b   = 0x6405051b, 0xf805859b
		fromNothing      = 0x5670059b             // addiw a1, zero, 0x567
		srliwA0, srliA0  = 0x00c5551b, 0x00c55513 // a0, a0, 12
		srliwA0b, srliAb = 0x01c5551b, 0x01c55513
	)
	for _, c := range []struct {
		name, arch string
		then, now  []byte
		same       bool // to the whole
	}{
		{"a shift", "amd64", join(0xc1, 0xe8, 12, 0xc3), join(0xc1, 0xe8, 13, 0xc3), true},                            // shr $12,%eax
		{"of a high register", "amd64", join(0x41, 0xc1, 0xe9, 12, 0xc3), join(0x41, 0xc1, 0xe9, 13, 0xc3), true},     // shr $12,%r9d
		{"of 64 bits", "amd64", join(0x48, 0xc1, 0xe8, 12, 0xc3), join(0x48, 0xc1, 0xe8, 13, 0xc3), false},            // shr $12,%rax
		{"to the left", "amd64", join(0xc1, 0xe0, 12, 0xc3), join(0xc1, 0xe0, 13, 0xc3), false},                       // shl $12,%eax
		{"another register", "amd64", join(0xc1, 0xe8, 12, 0xc3), join(0xc1, 0xe9, 12, 0xc3), false},                  //
		{"of memory", "amd64", join(0xc1, 0x28, 12, 0xc3), join(0xc1, 0x28, 13, 0xc3), false},                         // shrl $12,(%rax)
		{"a shift", "arm64", words(0x530c7c00), words(0x530d7c00), true},                                              // lsr w0, w0, #12
		{"of 64 bits", "arm64", words(0xd34cfc00), words(0xd34dfc00), false},                                          // lsr x0, x0, #12
		{"a field", "arm64", words(0x530c7800), words(0x530d7800), false},                                             // ubfx w0, w0, #12, #19
		{"where the hypervisor sees it", "arm64", words(0x92406000, 0x93c0a800), words(0x92407400, 0x93c0bc00), true}, // and x0, x0, #m; ror x0, x0, #42
		{"and into another register", "arm64", words(0x92406001), words(0x92407401), false},                           // and x1, x0, #m
		{"bits of two registers", "arm64", words(0x93c1a800), words(0x93c1bc00), false},                               // extr x0, x0, x1, #42
		{"a pointer", "riscv64", riscv(luiA0, luiA1, addA0, addA1), riscv(luiA0b, luiA1b, addA0b, addA1b), true},
		{"of which a part is 0", "riscv64", riscv(luiA0, luiA1, nop, addA1), riscv(luiA0b, luiA1b, addA0b, nop), true},
		{"whose half has few bits", "riscv64", riscv(luiA0, nop, addA0, fromNothing), riscv(luiA0b, luiA1b, addA0b, addA1b), true},
		{"half a pointer", "riscv64", riscv(luiA0, addA0), riscv(luiA0b, addA0b), false},
		{"halves of one register", "riscv64", riscv(luiA0, luiA0, addA0, addA0), riscv(luiA0b, luiA0b, addA0b, addA0b), false},
		{"from another register", "riscv64", riscv(luiA0, luiA1, addA1, addA0), riscv(luiA0b, luiA1b, addA1b, addA0b), false},
		{"added to another", "riscv64", riscv(luiA0, luiA1, 0xdef6051b, addA1), riscv(luiA0b, luiA1b, 0x6406051b, addA1b), false},      // addiw a0, a2
		{"into another register", "riscv64", riscv(luiA0, luiA1, 0xdef5061b, addA1), riscv(luiA0b, luiA1b, 0x6405061b, addA1b), false}, // addiw a2, a0
		{"a shift", "riscv64", riscv(srliwA0), riscv(srliwA0b), true},
		{"of 64 bits", "riscv64", riscv(srliA0), riscv(srliAb), false},
	} {
		t.Run(c.arch+"/"+c.name, func(t *testing.T) {
			ret := map[string][]byte{"amd64": {0xc3}, "arm64": words(), "riscv64": riscv()}[c.arch]
			kernel := func(code []byte) *ktext.Text {
				key := map[string][]byte{"amd64": {0x0f, 0x1f, 0x44, 0, 0}, "arm64": {0x1f, 0x20, 0x03, 0xd5}, "riscv64": {0x13, 0, 0, 0}}[c.arch]
				return small(t, c.arch, oneBase, append(key, code...), ret, 0)
			}
			now := kernel(c.now)
			v, err := index.NewView(indexOf(t, kernel(c.then)), now)
			if err != nil {
				t.Fatal(err)
			}
			if err := v.Whole(); (err == nil) != c.same {
				t.Errorf("the whole: %v", err)
			}
			lo, _ := now.Bounds()
			if fn, err := v.Function(ktext.Func{Name: "f", Addr: lo, Size: gAt}); err != nil || fn.How != index.Differs {
				t.Errorf("the function: %v, %v", fn.How, err)
			}
		})
	}
}
