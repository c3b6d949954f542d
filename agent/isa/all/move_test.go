package all_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
)

// where instructions come from, and where they are moved to: within 1 MiB, and
// where arm64's adr does not reach.
var bases = map[string]isa.Addr{"amd64": 0xffffffff81000000, "arm64": 0xffff800080010000, "riscv64": 0xffffffff80200000}

// free is one register of those that a far jump may take.
var free = map[string]isa.RegSet{"riscv64": isa.Set(1, 5, 28)}

const near, far = 0x1000, 0x2000040

// TestMove moves an instruction of each form. The listing is of the code at the
// new place; addresses in the old one's neighbourhood are written as P+distance.
func TestMove(t *testing.T) {
	for _, c := range []struct {
		arch, code string
		by         isa.Addr
		want       string
	}{
		{"amd64", "4889c3", far, "mov %rax,%rbx"},
		{"amd64", "488d0510000000", far, "lea P+0x17,%rax"},
		{"amd64", "48c705f0ffffff01000000", far, "movq $0x1,P-0x5"},
		{"amd64", "65488b05391d7571", far, "mov %gs:P+0x71751d41,%rax"},
		{"amd64", "e800010000", far, "pushq P+0x5; jmp P+0x105 [5: P+0x105]; ends"},
		{"amd64", "2ee800010000", far, "pushq P+0x6; jmp P+0x106 [5: P+0x106]; ends"},
		{"amd64", "e900010000", far, "jmp P+0x105; ends"},
		{"amd64", "eb10", far, "jmp P+0x12; ends"},
		{"amd64", "7410", far, "je P+0x12"},
		{"amd64", "0f8f00010000", far, "jg P+0x106"},
		{"amd64", "c3", far, "retq; ends"},
		{"amd64", "ffe0", far, "jmp *%rax; ends"},
		{"amd64", "ffd3", far, "pushq P+0x2; jmp *%rbx [5: P, sp-8]; ends"},
		{"amd64", "41ffd4", far, "pushq P+0x3; jmp *%r12 [5: P, sp-8]; ends"},
		{"amd64", "ff1500010000", far, "pushq P+0x6; jmpq *P+0x106 [5: P, sp-8]; ends"},
		{"amd64", "ff5308", far, "pushq P+0x3; jmpq *0x8(%rbx) [5: P, sp-8]; ends"},
		{"arm64", "fd030091", far, "mov x29, sp"},
		{"arm64", "c0035fd6", far, "ret; ends"},
		{"arm64", "40000094", far, "adrp x30, P; add x30, x30, #0x4; b P+0x100 [8: P+0x100]; ends"},
		{"arm64", "40000094", near, "adr x30, P+0x4; b P+0x100 [4: P+0x100]; ends"},
		{"arm64", "40000014", far, "b P+0x100; ends"},
		{"arm64", "40020054", far, "b.ne .+0x8; b P+0x48 [4: P+0x48]"},
		{"arm64", "4d020054", far, "b.gt .+0x8; b P+0x48 [4: P+0x48]"},
		{"arm64", "430200b4", far, "cbnz x3, .+0x8; b P+0x48 [4: P+0x48]"},
		{"arm64", "43020035", far, "cbz w3, .+0x8; b P+0x48 [4: P+0x48]"},
		{"arm64", "43021036", far, "tbnz w3, #2, .+0x8; b P+0x48 [4: P+0x48]"},
		{"arm64", "4302f8b7", far, "tbz x3, #63, .+0x8; b P+0x48 [4: P+0x48]"},
		{"arm64", "05080010", far, "adrp x5, P; add x5, x5, #0x100"},
		{"arm64", "050800b0", far, "adrp x5, P+0x101000"},
		{"arm64", "45080058", far, "adrp x5, P; add x5, x5, #0x108; ldr x5, [x5]"},
		{"arm64", "45080098", near, "adr x5, P+0x108; ldrsw x5, [x5]"},
		{"arm64", "80003fd6", far, "adrp x30, P; add x30, x30, #0x4; br x4; ends"},
		{"arm64", "80001fd6", far, "br x4; ends"},
		{"riscv64", "13051500", far, "addi x10,x10,1"},
		{"riscv64", "17250000", far, "auipc x10,0xfe002; addi x10,x10,-64"},
		{"riscv64", "8280", far, "ret; ends"},
		{"riscv64", "8287", far, "jr x15; ends"},
		{"riscv64", "8297", far, "auipc x1,0xfe000; addi x1,x1,-62; jr x15; ends"},
		{"riscv64", "e7800001", far, "mv x28,x1; auipc x1,0xfe000; addi x1,x1,-64; jr 16(x28); ends"},
		{"riscv64", "ef000010", far, "auipc x1,0xfe000; addi x1,x1,-60; auipc x28,0xfe000; jr 184(x28) [8: P+0x100]; ends"},
		{"riscv64", "ef000010", near, "auipc x1,0xfffff; addi x1,x1,4; j -3848 <P+0x100> [8: P+0x100]; ends"},
		{"riscv64", "01a0", far, "auipc x28,0xfe000; jr -64(x28); ends"},
		{"riscv64", "01a0", near, "j -4096 <P>; ends"},
		{"riscv64", "63845700", far, "bne x15,x5,12 <.+0xc>; auipc x28,0xfe000; jr -60(x28) [4: P+0x8]"},
		{"riscv64", "63c4b700", near, "bge x15,x11,8 <.+0x8>; j -4092 <P+0x8> [4: P+0x8]"},
		{"riscv64", "99c3", far, "bnez x15,12 <.+0xc>; auipc x28,0xfe000; jr -62(x28) [4: P+0x6]"},
		{"riscv64", "99e3", far, "beqz x15,12 <.+0xc>; auipc x28,0xfe000; jr -62(x28) [4: P+0x6]"},
		{"riscv64", "e7800701", far, "auipc x1,0xfe000; addi x1,x1,-60; jr 16(x15); ends"},
	} {
		got := moved(t, c.arch, c.code, c.by)
		if got != c.want {
			t.Errorf("%s %s:\n got %s\nwant %s", c.arch, c.code, got, c.want)
		}
	}
}

func moved(t *testing.T, name, code string, by isa.Addr) string {
	t.Helper()
	a, i, b := insn(t, name, code)
	m, err := a.Move(i, b, i.Addr+by, free[name])
	if err != nil {
		return err.Error()
	}
	var out []string
	n := 0
	for k := 0; k < len(m.Code); n++ {
		j := a.Decode(m.Code[k:], i.Addr+by+isa.Addr(k))
		out = append(out, relative(a.Text(m.Code[k:], j.Addr), i, j))
		k += j.Len
	}
	if n != m.Insns {
		t.Errorf("%s %s: %d instructions, said to be %d", name, code, n, m.Insns)
	}
	s := strings.Join(out, "; ")
	for _, w := range m.Waypoints {
		s += fmt.Sprintf(" [%d: %s", w.Off, from(i.Addr, w.Orig))
		if w.SP != 0 {
			s += fmt.Sprintf(", sp-%d", w.SP)
		}
		s += "]"
	}
	if m.Ends {
		s += "; ends"
	}
	return s
}

func insn(t *testing.T, name, code string) (*isa.Arch, isa.Insn, []byte) {
	t.Helper()
	a, err := all.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := hex.DecodeString(code)
	if err != nil {
		t.Fatal(err)
	}
	i := a.Decode(b, bases[name])
	if i.Len != len(b) || i.Flow == isa.FlowUnknown {
		t.Fatalf("%s %s decodes as %+v", name, code, i)
	}
	return a, i, b
}

func from(base, a isa.Addr) string {
	switch d := int64(a - base); {
	case d > 0:
		return fmt.Sprintf("P+%#x", d)
	case d < 0:
		return fmt.Sprintf("P-%#x", -d)
	}
	return "P"
}

// number is an address as the disassemblers write them: absolute, as a distance
// from the instruction or from its end, or as an immediate.
var number = regexp.MustCompile(`\.\+0x[0-9a-f]+|-?0x[0-9a-f]+\(%rip\)|\$-0x[0-9a-f]{8}|0xffff[0-9a-f]{12}`)

// relative writes the addresses of j's text as distances from where i was, or, in
// the code that i became, from j.
func relative(text string, i, j isa.Insn) string {
	return number.ReplaceAllStringFunc(text, func(s string) string {
		digits := strings.TrimSuffix(strings.TrimLeft(s, ".+$-"), "(%rip)")
		v, err := strconv.ParseUint(digits, 0, 64)
		if err != nil {
			panic(err)
		}
		a := isa.Addr(v)
		switch {
		case strings.HasSuffix(s, "(%rip)"):
			a = j.Operand
		case s[0] == '$':
			a = -a
		case s[0] == '.':
			a += j.Addr
			if strings.HasPrefix(text, "adrp") {
				a &^= 0xfff
			}
		}
		if d := a - j.Addr; d < 16 {
			return fmt.Sprintf(".+%#x", uint64(d))
		}
		return from(i.Addr, a)
	})
}

// TestStays: what no code elsewhere can do.
func TestStays(t *testing.T) {
	for _, c := range []struct{ arch, code, why string }{
		{"amd64", "0f0b", "a trap"},
		{"amd64", "f30f1efa", "a landing pad"},
		{"amd64", "0f01f8", "a system instruction"},
		{"amd64", "e310", "looks at rcx"},
		{"amd64", "e210", "counts"},
		{"amd64", "ffd4", "by way of the stack pointer"},
		{"amd64", "ff542408", "by way of the stack pointer"},
		{"amd64", "67488d0510000000", "cut to 32 bits"},
		{"arm64", "000020d4", "a trap"},
		{"arm64", "3f2303d5", "a landing pad"},
		{"arm64", "4e020054", "always holds"},
		{"arm64", "c0033fd6", "by way of the link register"},
		{"arm64", "9f083fd6", "authenticates"},
		{"arm64", "4508005c", "no general register"},
		{"arm64", "450800d8", "no general register"},
		{"arm64", "1f080010", "for nobody"},
		{"arm64", "207c03c8", "exclusive"},
		{"riscv64", "17000000", "for nobody"},
		{"riscv64", "0290", "a trap"},
	} {
		a, i, b := insn(t, c.arch, c.code)
		if m, err := a.Move(i, b, i.Addr, a.All); !errors.Is(err, isa.ErrStays) || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s %s: %x, %v; want that it stays because of %q", c.arch, c.code, m.Code, err, c.why)
		}
	}
}

// TestMoveReach moves too far, and says so without calling it impossible.
func TestMoveReach(t *testing.T) {
	for _, c := range []struct {
		arch, code string
		by         isa.Addr
	}{
		{"amd64", "488d0510000000", 1 << 32}, {"amd64", "e800010000", 1 << 32}, {"amd64", "7410", 1 << 32},
		{"arm64", "40000094", 1 << 28}, {"arm64", "40020054", 1 << 28}, {"arm64", "050800b0", 1 << 33},
		{"riscv64", "17250000", 1 << 32},
	} {
		a, i, b := insn(t, c.arch, c.code)
		if m, err := a.Move(i, b, i.Addr+c.by, a.All); err == nil || errors.Is(err, isa.ErrStays) {
			t.Errorf("%s %s by %v: %x, %v", c.arch, c.code, c.by, m.Code, err)
		}
	}
}

// TestMoveTakesARegister has none, or a link register only, which a call that links it
// cannot jump through.
func TestMoveTakesARegister(t *testing.T) {
	for _, c := range []struct {
		code string
		free isa.RegSet
		want bool
	}{
		{"e7800001", isa.Set(2, 8), false}, {"ef000010", isa.Set(2, 8), false}, {"01a0", isa.Set(2, 8), false}, {"63845700", isa.Set(2, 8), false},
		{"e7800001", isa.Set(1), false}, {"ef000010", isa.Set(1), false}, {"01a0", isa.Set(1), true}, {"63845700", isa.Set(1), true},
		{"e7800001", isa.Set(1, 5), true}, {"ef000010", isa.Set(1, 5), true}, {"01a0", isa.Set(9), true},
	} {
		a, i, b := insn(t, "riscv64", c.code)
		m, err := a.Move(i, b, i.Addr+far, c.free)
		if c.want != (err == nil) || err != nil && !errors.Is(err, isa.ErrNoRegister) {
			t.Errorf("%s by %s: %x, %v", c.code, a.Names(c.free), m.Code, err)
		}
		for code := m.Code; err == nil && len(code) > 0; { // nothing else is overwritten
			j := a.Decode(code, i.Addr)
			if w := (j.Writes | j.Clobbers) &^ (c.free | i.Writes); w != 0 {
				t.Errorf("%s by %s: %s is overwritten in %x", c.code, a.Names(c.free), a.Names(w), m.Code)
			}
			code = code[j.Len:]
		}
	}
}
