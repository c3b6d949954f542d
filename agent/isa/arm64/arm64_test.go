package arm64

import (
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/isa/isatest"
)

func TestGolden(t *testing.T) { isatest.Golden(t, Arch, "testdata/golden.txt") }

// TestHand holds edges of the encoding, by the manual: the two meanings of
// register 31, write-back, narrow forms, atomics, pointer authentication.
func TestHand(t *testing.T) {
	isatest.Hand(t, Arch, []isatest.Want{
		{"1f2003d5", isa.FlowNone, "", "", "", 0},                                       // nop
		{"3f2303d5", isa.FlowNone, "x30,sp", "x30", "", isa.Landing},                    // paciasp
		{"bf2303d5", isa.FlowNone, "x30,sp", "x30", "", 0},                              // autiasp
		{"5f2403d5", isa.FlowNone, "", "", "", isa.Landing},                             // bti c
		{"df2803d5", isa.FlowUnknown, "", "", "", 0},                                    // a hint not known
		{"ff0300d1", isa.FlowNone, "sp", "sp", "", 0},                                   // sub sp, sp, #0
		{"1f0000f1", isa.FlowNone, "x0", "flags", "", 0},                                // cmp x0, #0
		{"e00300aa", isa.FlowNone, "x0", "x0", "", 0},                                   // mov x0, x0
		{"e003002a", isa.FlowNone, "x0", "x0", "", 0},                                   // mov w0, w0: whole
		{"e0033faa", isa.FlowNone, "", "x0", "", 0},                                     // mvn x0, xzr
		{"000080f2", isa.FlowNone, "x0", "x0", "", 0},                                   // movk keeps bits
		{"00004032", isa.FlowUnknown, "", "", "", 0},                                    // orr w with N=1
		{"00000010", isa.FlowNone, "", "x0", "", isa.PCRel},                             // adr
		{"fd7bbfa9", isa.FlowNone, "x29,x30,sp", "sp", "", isa.Mem},                     // stp x29, x30, [sp,#-16]!
		{"fd7bc1a8", isa.FlowNone, "sp", "x29,x30,sp", "", isa.Mem},                     // ldp x29, x30, [sp],#16
		{"e10740f8", isa.FlowNone, "sp", "x1,sp", "", isa.Mem},                          // ldr x1, [sp],#0
		{"410840f8", isa.FlowNone, "x2", "x1", "", isa.Mem},                             // ldtr x1, [x2]
		{"00008039", isa.FlowNone, "x0", "x0", "", isa.Mem},                             // ldrsb x0, [x0]
		{"000080f9", isa.FlowNone, "x0", "", "", 0},                                     // prfm
		{"0000003d", isa.FlowNone, "x0", "", "", isa.Mem},                               // str b0, [x0]
		{"207c5fc8", isa.FlowNone, "x1", "x0", "", isa.Mem | isa.Exclusive | isa.Opens}, // ldxr
		{"207c02c8", isa.FlowNone, "x0,x1", "x2", "", isa.Mem | isa.Exclusive},          // stxr w2, x0, [x1]
		{"5f3f03d5", isa.FlowNone, "", "", "", isa.Exclusive},                           // clrex
		{"207ca2c8", isa.FlowNone, "x0,x1,x2", "x2", "", isa.Mem},                       // cas x2, x0, [x1]
		{"417c2048", isa.FlowUnknown, "", "", "", 0},                                    // casp with an odd register
		{"407c2048", isa.FlowNone, "x0,x1,x2", "x0,x1", "", isa.Mem},                    // casp x0, x1, x0, x1, [x2]
		{"3f0022f8", isa.FlowNone, "x1,x2", "", "", isa.Mem},                            // stadd x2, [x1]
		{"200022f8", isa.FlowNone, "x1,x2", "x0", "", isa.Mem},                          // ldadd x2, x0, [x1]
		{"2080e2f8", isa.FlowNone, "x1,x2", "x0", "", isa.Mem},                          // swpal x2, x0, [x1]
		{"20c0bff8", isa.FlowNone, "x1", "x0", "", isa.Mem},                             // ldapr
		{"20d03ff8", isa.FlowUnknown, "", "", "", 0},                                    // ld64b
		{"004138d5", isa.FlowNone, "", "x0", "", 0},                                     // mrs x0, sp_el0
		{"00421bd5", isa.FlowNone, "x0", "flags", "", 0},                                // msr nzcv, x0
		{"00423bd5", isa.FlowNone, "flags", "x0", "", 0},                                // mrs x0, nzcv
		{"df4303d5", isa.FlowNone, "flags", "", "flags", isa.Privileged},                // msr daifset, #3
		{"9f3b03d5", isa.FlowNone, "", "", "", isa.Privileged},                          // dsb ish
		{"bf3b03d5", isa.FlowNone, "", "", "", isa.Mem},                                 // dmb ish
		{"20087efa", isa.FlowUnknown, "", "", "", 0},                                    // op2 3 is reserved
		{"200842fa", isa.FlowNone, "x1,flags", "flags", "", 0},                          // ccmp x1, #2, #0, eq
		{"2000829a", isa.FlowNone, "x1,x2,flags", "x0", "", 0},                          // csel
		{"207cc29b", isa.FlowNone, "x1,x2", "x0", "", 0},                                // umulh
		{"20080e9b", isa.FlowNone, "x1,x2,x14", "x0", "", 0},                            // madd x0, x1, x14, x2
		{"c0035fd6", isa.FlowReturn, "x30", "", "", 0},                                  // ret
		{"ff0b5fd6", isa.FlowReturn, "x30,sp", "", "", 0},                               // retaa
		{"20015fd6", isa.FlowIndirectJump, "x9", "", "", 0},                             // ret x9
		{"00001fd6", isa.FlowIndirectJump, "x0", "", "", 0},                             // br
		{"00003fd6", isa.FlowIndirectCall, "x0", "x30", "", 0},                          // blr
		{"e0039fd6", isa.FlowTrap, "", "", "", isa.Privileged},                          // eret
		{"c0039fd6", isa.FlowUnknown, "", "", "", 0},                                    // eret with a register
		{"00100054", isa.FlowCond, "flags", "", "", isa.PCRel},                          // b.eq
		{"10000054", isa.FlowUnknown, "", "", "", 0},                                    // bc.eq
		{"000020d4", isa.FlowTrap, "", "", "", 0},                                       // brk
		{"00000000", isa.FlowTrap, "", "", "", 0},                                       // udf
		{"0000221e", isa.FlowUnknown, "", "", "", 0},                                    // scvtf
		{"60008052", isa.FlowNone, "", "x0", "", 0},                                     // mov w0, #3
		{"40000058", isa.FlowNone, "", "x0", "", isa.Mem | isa.PCRel},                   // ldr x0, literal
		{"20fc9fc8", isa.FlowNone, "x0,x1", "", "", isa.Mem},                            // stlr
		{"e003009a", isa.FlowNone, "x0,flags", "x0", "", 0},                             // adc x0, xzr, x0
	})
}

func TestEncode(t *testing.T) {
	const a isa.Addr = 0xffff800080000000
	for _, d := range []int64{0, 4, -4, 1<<27 - 4, -1 << 27} {
		to := a + isa.Addr(d)
		b, err := Jump(a, to)
		if i := Decode(append(b, 0, 0, 0, 0)[:4], a); err != nil || i.Flow != isa.FlowJump || i.Target != to {
			t.Errorf("b %+d: %x, %v", d, b, err)
		}
	}
	for _, d := range []int64{1 << 27, -1<<27 - 4, 2} {
		if b, err := Jump(a, a+isa.Addr(d)); err == nil {
			t.Errorf("b %+d encoded as %x", d, b)
		}
	}
	for _, d := range []int64{0, 1<<20 - 1, -1 << 20} {
		b, err := Adr(3, a, a+isa.Addr(d))
		if err != nil {
			t.Errorf("adr %+d: %v", d, err)
			continue
		}
		w := word(isa.ByteOrder.Uint32(b))
		if got := w.signed(23, 5)<<2 | int64(w.bits(30, 29)); got != d || w.bits(4, 0) != 3 {
			t.Errorf("adr %+d encodes %+d", d, got)
		}
	}
	for _, d := range []int64{1 << 20, -1<<20 - 1} {
		if b, err := Adr(3, a, a+isa.Addr(d)); err == nil {
			t.Errorf("adr %+d encoded as %x", d, b)
		}
	}
	if _, err := Adr(SP, a, a); err == nil {
		t.Error("adr sp was encoded")
	}
}

// TestSnippetText reads back what the encoders of a snippet made.
func TestSnippetText(t *testing.T) {
	must := func(b []byte, err error) []byte {
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, c := range []struct {
		b                   []byte
		text, reads, writes string
	}{
		{must(MovImm(7, 1)), "mov x7, #0x1", "", "x7"},
		{must(AtomicAdd(3, 4)), "stadd x3, [x4]", "x3,x4", ""},
		{must(Push(1, 2)), "stp x1, x2, [sp,#-16]!", "x1,x2,sp", "sp"},
		{must(Pop(1, 2)), "ldp x1, x2, [sp],#16", "sp", "x1,x2,sp"},
		{must(Push(5)), "str x5, [sp,#-16]!", "x5,sp", "sp"},
		{must(Pop(5)), "ldr x5, [sp],#16", "sp", "x5,sp"},
	} {
		i := Decode(c.b, 0)
		if got := Text(c.b, 0); got != c.text || Arch.Names(i.Reads) != c.reads || Arch.Names(i.Writes) != c.writes {
			t.Errorf("%x: %s reads %s writes %s, want %s reads %s writes %s",
				c.b, got, Arch.Names(i.Reads), Arch.Names(i.Writes), c.text, c.reads, c.writes)
		}
	}
	if _, err := Push(1, 1); err == nil {
		t.Error("stp of one register twice was encoded")
	}
}

func FuzzDecode(f *testing.F) {
	for _, w := range []uint32{0xd503201f, 0xf8200000, 0x14000000, 0, 0xffffffff} {
		f.Add(isa.ByteOrder.AppendUint32(nil, w))
	}
	f.Fuzz(func(t *testing.T, b []byte) { isatest.Contract(t, Arch, b) })
}
