package riscv64

import (
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/isa/isatest"
)

func TestGolden(t *testing.T) { isatest.Golden(t, Arch, "testdata/golden.txt") }

// TestHand holds edges of the encoding, by the manual: x0, reserved compressed
// forms, the two lengths, system instructions.
func TestHand(t *testing.T) {
	isatest.Hand(t, Arch, `
13000000 | none |  |  |  |  | nop
0100 | none |  |  |  |  | c.nop
0000 | trap |  |  |  |  | c.unimp
731000c0 | trap |  |  |  |  | unimp
0290 | trap |  |  |  |  | c.ebreak
73001000 | trap |  |  |  |  | ebreak
73000000 | trap |  |  |  |  | ecall
73002010 | trap |  |  |  | privileged | sret
73005010 | none |  |  |  | privileged | wfi
73000512 | none | a0 |  |  | privileged,serialising | sfence.vma a0
73250010 | none |  | a0 |  | privileged | csrr a0, sstatus
73701500 | none |  |  |  | privileged,vector | csrrci of fflags
73253000 | none |  | a0 |  | privileged,vector | csrr a0, fcsr
732500c2 | none |  | a0 |  | privileged,vector | csrr a0, vl
732500c0 | none |  | a0 |  | privileged | rdcycle a0
731005c0 | unknown |  |  |  |  | csrw cycle: it is only read
73e00fc0 | unknown |  |  |  |  | csrrsi cycle likewise
0f100000 | none |  |  |  | privileged,serialising | fence.i
0f00f00f | none |  |  |  | serialising | fence
8280 | return | ra |  |  |  | ret
67800000 | return | ra |  |  |  | jalr x0, 0(ra)
67804000 | indirect-jump | ra |  |  |  | jalr x0, 4(ra) is no return
8282 | indirect-jump | t0 |  |  |  | c.jr t0
8292 | indirect-call | t0 | ra |  |  | c.jalr t0
02a0 | none | sp |  |  | store,may-fault,vector | c.fsdsp
01a0 | jump |  |  |  | pcrel | c.j .
6f000000 | jump |  |  |  | pcrel | j .
ef000000 | call |  | ra |  | pcrel | jal ra, .
97000000 | none |  | ra |  | pcrel | auipc
37050000 | none |  | a0 |  |  | lui
0141 | none |  | sp |  |  | c.li sp, 0
3971 | none | sp | sp |  |  | c.addi16sp
0161 | unknown |  |  |  |  | c.addi16sp 0 is reserved
0120 | unknown |  |  |  |  | c.addiw x0 is reserved
0240 | unknown |  |  |  |  | c.lwsp x0 is reserved
0280 | unknown |  |  |  |  | c.jr x0 is reserved
2a85 | none | a0 | a0 |  |  | c.mv a0, a0
2e95 | none | a0,a1 | a0 |  |  | c.add a0, a1
2f35a510 | unknown |  |  |  |  | lr.d with a second source
2f350510 | none | a0 | a0 |  | load,exclusive,opens,may-fault | lr.d a0, (a0)
af35b518 | none | a0,a1 | a1 |  | store,exclusive,may-fault | sc.d a1, a1, (a0)
2f30b500 | none | a0,a1 |  |  | load,store,may-fault | amoadd.d x0, a1, (a0)
0738050d | none | a0 |  |  | load,may-fault,vector | fld
07700502 | none | a0 |  |  | load,may-fault,vector | vector load
53000502 | none |  |  |  | vector | OP-FP
13150560 | none | a0 | a0 |  |  | clz
13152560 | none | a0 | a0 |  |  | cpop
13153560 | unknown |  |  |  |  | no such unary operation
3305b502 | none | a0,a1 | a0 |  |  | mul
3b45b508 | unknown |  |  |  |  | zext.h with a second source
630000fe | cond |  |  |  | pcrel | beq x0, x0
632000fe | unknown |  |  |  |  | no such comparison
1f00 | unknown |  |  |  |  | longer than 32 bits
5776050d | none | a0 | a2 |  | vector | vsetvli a2, a0
d7a10850 | none |  |  |  | vector | vid.v v3, v0.t
d7a15850 | unknown |  |  |  |  | vid with a source
07040502 | none | a0 |  |  | load,may-fault,vector | vle8.v
27040502 | none | a0 |  |  | store,may-fault,vector | vse8.v
0704b50a | none | a0,a1 |  |  | load,may-fault,vector | vlse8.v: the stride is a register
57254042 | none |  | a0 |  | vector | vmv.x.s a0, v4
57448502 | none | a0 |  |  | vector | vadd.vx
530505e2 | none |  | a0 |  | vector | fmv.x.d a0, fa0
d3f7a7a2 | unknown |  |  |  |  | a comparison that is none
3315b50a | none | a0,a1 | a0 |  |  | clmul
73450560 | none | a0 | a0 |  | load,privileged,may-fault | hlv.b
7300d000 | none |  |  |  | privileged | wrs.nto
0f204500 | none | a0 |  |  | store,privileged,may-fault | cbo.zero
0f203500 | unknown |  |  |  |  | cbo, unallocated
53500502 | unknown |  |  |  |  | fadd.d in no rounding mode
53700502 | none |  |  |  | vector | fadd.d in that of fcsr
43600502 | unknown |  |  |  |  | fmadd.d in none
5370155a | unknown |  |  |  |  | fsqrt.d has one source
53701540 | none |  |  |  | vector | fcvt.s.d
53700540 | unknown |  |  |  |  | fcvt.s.s
530015f2 | unknown |  |  |  |  | fli.d (Zfa): rs1 is no register
57254040 | unknown |  |  |  |  | vmv.x.s with a mask
57254142 | unknown |  |  |  |  | no such operation on one vector
57000040 | none |  |  |  | vector | vadc.vvm
57000042 | unknown |  |  |  |  | vadc without its mask
5730005e | none |  |  |  | vector | vmv.v.i
5730105e | unknown |  |  |  |  | vmv.v.i with another source
07008502 | none | a0 |  |  | load,may-fault,vector | vl1re8.v
07008500 | unknown |  |  |  |  | the same with a mask
07008542 | unknown |  |  |  |  | three whole registers
`)
}

func TestEncode(t *testing.T) {
	const a isa.Addr = 0xffffffff80100000
	for _, d := range []int64{0, 0x7ff, 0x800, -0x800, -0x801, 1<<31 - 0x801, -1<<31 - 0x800, 0x12345678} {
		to := (a + isa.Addr(d)) &^ 1
		b, err := FarJump(6, a, to)
		got, n, ok := Far(b, a)
		if err != nil || !ok || got != to || n != FarJumpLen {
			t.Errorf("far jump %+d: %x leads to %v, %v", d, b, got, err)
		}
	}
	for _, d := range []int64{1<<31 - 0x800, -1<<31 - 0x801} {
		if b, err := FarJump(6, a, a+isa.Addr(d)); err == nil {
			t.Errorf("far jump %+d encoded as %x", d, b)
		}
	}
	b, err := FarCall(5, a, a-0x12346)
	if err != nil || len(b) != FarCallLen || Text(b, a) != "auipc x5,0xfffee" || Text(b[4:], a) != "jalr x5,-838(x5)" {
		t.Errorf("far call: %x, %v: %s, %s", b, err, Text(b, a), Text(b[4:], a))
	}
	if _, err := FarCall(5, a, a-1<<32); err == nil {
		t.Error("far call out of reach was encoded")
	}
	if _, err := FarJump(0, a, a); err == nil {
		t.Error("far jump through x0 was encoded")
	}
	for _, d := range []isa.Addr{0, 0x12340, 0x800, ^isa.Addr(7)} {
		b, n, err := LoadNear(7, a, a+d, 8)
		up, load := Decode(b, a), Decode(b[4:], a+4)
		if err != nil || n != 2 || up.Writes != isa.Set(7) || load.Reads != isa.Set(7) || load.Writes != isa.Set(7) || Text(b, a) == Text(b[4:], a) {
			t.Errorf("load of %#x behind: %x, %d instructions, %v", d, b, n, err)
		}
	}
	if b, _, err := LoadNear(7, a, a+0x12345678, 8); err != nil || Text(b, a) != "auipc x7,0x12345" || Text(b[4:], a) != "ld x7,1656(x7)" {
		t.Errorf("load: %x, %v: %s, %s", b, err, Text(b, a), Text(b[4:], a))
	}
	if b, err := ShiftRightLower(7, 6, 13); err != nil || Text(b, a) != "srliw x7,x6,0xd" {
		t.Errorf("shift: %x, %v: %s", b, err, Text(b, a))
	}
	for _, n := range []uint8{0, 32} {
		if _, err := ShiftRightLower(7, 6, n); err == nil {
			t.Errorf("srliw by %d was encoded", n)
		}
	}
	for _, d := range []int64{0, 2, -2, 1<<20 - 2, -1 << 20, 0x1554, -0x2aaaa} {
		b, err := Jump(a, a+isa.Addr(d))
		if err != nil {
			t.Errorf("jal %+d: %v", d, err)
		} else if i := Decode(b, a); i.Flow != isa.FlowJump || i.Target != a+isa.Addr(d) {
			t.Errorf("jal %+d decodes as %+v", d, i)
		}
	}
	for _, d := range []int64{1 << 20, -1<<20 - 2, 1} {
		if b, err := Jump(a, a+isa.Addr(d)); err == nil {
			t.Errorf("jal %+d encoded as %x", d, b)
		}
	}
	for _, v := range []int8{-33, 32} {
		if b, err := LoadImm(5, v); err == nil {
			t.Errorf("c.li %d encoded as %x", v, b)
		}
	}
}

// TestSnippetText reads back what the encoders of a snippet made.
func TestSnippetText(t *testing.T) {
	push, n1, err1 := Push(6, 28)
	pop, n2, err2 := Pop(6, 28)
	near, n3, err3 := Address(7, 0x1000, 0x11000)
	far, n4, err4 := Address(7, 0x1006, 0x11000)
	li, err5 := LoadImm(10, 1)
	add, err6 := AtomicAdd(10, 7)
	for k, err := range []error{err1, err2, err3, err4, err5, err6} {
		if err != nil {
			t.Fatalf("%d: %v", k, err)
		}
	}
	for _, c := range []struct {
		b    []byte
		n    int
		want []string
	}{
		{push, n1, []string{"addi x2,x2,-16", "sd x6,0(x2)", "sd x28,8(x2)"}},
		{pop, n2, []string{"ld x6,0(x2)", "ld x28,8(x2)", "addi x2,x2,16"}},
		{near, n3, []string{"auipc x7,0x10"}},
		{far, n4, []string{"auipc x7,0x10", "addi x7,x7,-6"}},
		{li, 1, []string{"li x10,1"}},
		{add, 1, []string{"amoadd.d x0,x10,(x7)"}},
	} {
		if c.n != len(c.want) {
			t.Errorf("%x: %d instructions, want %d", c.b, c.n, len(c.want))
		}
		for k, b := 0, c.b; len(b) > 0; k++ {
			i := Decode(b, 0)
			if got := Text(b, 0); k >= len(c.want) || got != c.want[k] {
				t.Errorf("%x: %s, want %s", b[:i.Len], got, c.want[min(k, len(c.want)-1)])
			}
			b = b[i.Len:]
		}
	}
}

// TestScan looks for targets of every kind, at odd halfwords too.
func TestScan(t *testing.T) {
	const a isa.Addr = 0xffffffff80100000
	jal, _ := Jump(a+2, a+0x100)
	far, _ := FarJump(6, a+6, a+0x200)
	lea, _, _ := Address(7, a+14, a+0x2f0)
	b := append([]byte{0x01, 0x00}, jal...)
	b = append(b, far...)
	b = append(b, lea...)
	b = append(b, 0x01, 0xa0)             // c.j .
	b = append(b, 0x11, 0xc1)             // c.beqz a0, +4
	b = append(b, 0x63, 0x06, 0x05, 0x00) // beqz a0, +12
	b = append(b, make([]byte, scanTail)...)
	m := isa.NewMarks(a, a+0x1000, 2)
	Scan(b, a, m)
	for _, want := range []isa.Addr{a + 0x100, a + 0x200, a + 0x2f0, a + 22, a + 24 + 4, a + 26 + 12} {
		if _, ok := m.First(want, want+2); !ok {
			t.Errorf("%v was not found", want)
		}
	}
	if got, ok := m.First(a+0x300, a+0x1000); ok {
		t.Errorf("nothing jumps to %v", got)
	}
}

func FuzzDecode(f *testing.F) {
	for _, w := range []uint32{0x00000013, 0x0000a001, 0x00008082, 0, 0xffffffff} {
		f.Add(isa.ByteOrder.AppendUint32(nil, w))
	}
	f.Fuzz(func(t *testing.T, b []byte) { isatest.Contract(t, Arch, b) })
}
