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
	isatest.Hand(t, Arch, `
1f2003d5 | none |  |  |  |  | nop
3f2303d5 | none | x30,sp | x30 |  | landing | paciasp
bf2303d5 | none | x30,sp | x30 |  | may-fault | autiasp
5f2403d5 | none |  |  |  | landing | bti c
df2803d5 | unknown |  |  |  |  | a hint not known
ff0300d1 | none | sp | sp |  |  | sub sp, sp, #0
1f0000f1 | none | x0 | flags |  |  | cmp x0, #0
e00300aa | none | x0 | x0 |  |  | mov x0, x0
e003002a | none | x0 | x0 |  |  | mov w0, w0: whole
e0033faa | none |  | x0 |  |  | mvn x0, xzr
000080f2 | none | x0 | x0 |  |  | movk keeps bits
00004032 | unknown |  |  |  |  | orr w with N=1
00000010 | none |  | x0 |  | pcrel | adr
fd7bbfa9 | none | x29,x30,sp | sp |  | store,may-fault | stp x29, x30, [sp,#-16]!
fd7bc1a8 | none | sp | x29,x30,sp |  | load,may-fault | ldp x29, x30, [sp],#16
e10740f8 | none | sp | x1,sp |  | load,may-fault | ldr x1, [sp],#0
410840f8 | none | x2 | x1 |  | load,may-fault | ldtr x1, [x2]
00008039 | none | x0 | x0 |  | load,may-fault | ldrsb x0, [x0]
000080f9 | none | x0 |  |  |  | prfm
0000003d | none | x0 |  |  | store,may-fault,vector | str b0, [x0]
207c5fc8 | none | x1 | x0 |  | load,exclusive,opens,may-fault,apart | ldxr
207c02c8 | none | x0,x1 | x2 |  | store,exclusive,may-fault | stxr w2, x0, [x1]
5f3f03d5 | none |  |  |  | exclusive | clrex
207ca2c8 | none | x0,x1,x2 | x2 |  | load,store,may-fault | cas x2, x0, [x1]
417c2048 | unknown |  |  |  |  | casp with an odd register
407c2048 | none | x0,x1,x2 | x0,x1 |  | load,store,may-fault | casp x0, x1, x0, x1, [x2]
3f0022f8 | none | x1,x2 |  |  | load,store,may-fault | stadd x2, [x1]
200022f8 | none | x1,x2 | x0 |  | load,store,may-fault | ldadd x2, x0, [x1]
2080e2f8 | none | x1,x2 | x0 |  | load,store,may-fault | swpal x2, x0, [x1]
20c0bff8 | none | x1 | x0 |  | load,may-fault | ldapr
20d03ff8 | unknown |  |  |  |  | ld64b
004138d5 | none |  | x0 |  |  | mrs x0, sp_el0
00421bd5 | none | x0 | flags |  |  | msr nzcv, x0
00243bd5 | none |  | x0,flags |  | privileged | mrs x0, rndr
20243bd5 | none |  | x0,flags |  | privileged | mrs x0, rndrrs
00423bd5 | none | flags | x0 |  |  | mrs x0, nzcv
df4303d5 | none |  |  |  | privileged | msr daifset, #3
9f3b03d5 | none |  |  |  | privileged,serialising | dsb ish
bf3b03d5 | none |  |  |  | serialising | dmb ish
20087efa | unknown |  |  |  |  | op2 3 is reserved
200842fa | none | x1,flags | flags |  |  | ccmp x1, #2, #0, eq
2000829a | none | x1,x2,flags | x0 |  |  | csel
207cc29b | none | x1,x2 | x0 |  |  | umulh
20080e9b | none | x1,x2,x14 | x0 |  |  | madd x0, x1, x14, x2
c0035fd6 | return | x30 |  |  |  | ret
ff0b5fd6 | return | x30,sp |  |  |  | retaa
20015fd6 | indirect-jump | x9 |  |  |  | ret x9
00001fd6 | indirect-jump | x0 |  |  |  | br
00003fd6 | indirect-call | x0 | x30 |  |  | blr
e0039fd6 | trap |  |  |  | privileged,serialising | eret
c0039fd6 | unknown |  |  |  |  | eret with a register
00100054 | cond | flags |  |  | pcrel | b.eq
10000054 | unknown |  |  |  |  | bc.eq
000020d4 | trap |  |  |  |  | brk
00000000 | trap |  |  |  |  | udf
0000221e | none | x0 |  |  | vector | scvtf
60008052 | none |  | x0 |  |  | mov w0, #3
40000058 | none |  | x0 |  | pcrel,load,may-fault | ldr x0, literal
20fc9fc8 | none | x0,x1 |  |  | store,may-fault | stlr
e003009a | none | x0,flags | x0 |  |  | adc x0, xzr, x0
8430081b | none | x4,x8,x12 | x4 |  |  | madd w4, w4, w8, w12
5f4103d5 | none |  |  |  | privileged | msr dit, #1: no flags
1f4000d5 | none | flags |  | flags | privileged | cfinv
200820d9 | none | x0,x1 |  |  | store,privileged,may-fault | stg x0, [x1]
200060d9 | none | x0,x1 | x0 |  | load,privileged,may-fault | ldg keeps the rest of the pointer
2070df4c | none | x1 | x1 |  | load,may-fault,vector | ld1 {v0.16b}, [x1], #16
2070c24c | none | x1,x2 | x1 |  | load,may-fault,vector | ld1 {v0.16b}, [x1], x2
2070004c | none | x1 |  |  | store,may-fault,vector | st1 {v0.16b}, [x1]
2000669e | none |  | x0 |  | vector | fmov x0, d1
2000679e | none | x1 |  |  | vector | fmov d0, x1
203c0c0e | none |  | x0 |  | vector | umov w0, v1.s[1]
200c014e | none | x1 |  |  | vector | dup v0.16b, w1
2020611e | none |  | flags |  | vector | fcmp d1, d1
200c621e | none | flags |  |  | vector | fcsel d0, d1, d2, eq
e053bf04 | none |  | x0 |  | vector | rdvl x0, #31
205f60a0 | unknown |  |  |  |  | SME2
e0439f85 | none | sp |  |  | load,may-fault,vector | ldr z0, [sp, …]
200040da | unknown |  |  |  |  | sbc with bits that are reserved
008400f8 | unknown |  |  |  |  | str x0, [x0], #8: what is stored is not defined
008c40f8 | unknown |  |  |  |  | ldr x0, [x0, #8]!: nor what is loaded
018440f8 | none | x0 | x0,x1 |  | load,may-fault | ldr x1, [x0], #8
207c00c8 | unknown |  |  |  |  | stxr w0, x0, [x1]: nor the status
207c01c8 | unknown |  |  |  |  | stxr w1, x0, [x1]: nor the address
207c02c8 | none | x0,x1 | x2 |  | store,exclusive,may-fault | stxr w2, x0, [x1]
20007fc8 | unknown |  |  |  |  | ldxp x0, x0, [x1]
00443bd5 | none |  | x0 |  | privileged,vector | mrs x0, fpcr
20441bd5 | none | x0 |  |  | privileged,vector | msr fpsr, x0
0000629e | none | x0 |  |  | vector | scvtf d0, x0
00006a9e | unknown |  |  |  |  | the same in a rounding mode
0000ae9e | none |  | x0 |  | vector | fmov x0, v0.d[1]
0000669e | none |  | x0 |  | vector | fmov x0, d0
0000661e | unknown |  |  |  |  | fmov w0, d0
00fc589e | none |  | x0 |  | vector | fcvtzs x0, d0, #1
007c581e | unknown |  |  |  |  | fcvtzs w0, d0, #33
003c040e | none |  | x0 |  | vector | umov w0, v0.s[0]
003c044e | unknown |  |  |  |  | umov x0, v0.s[0]
003c004e | unknown |  |  |  |  | umov of no size
000c080e | unknown |  |  |  |  | dup v0.1d, x0
000c084e | none | x0 |  |  | vector | dup v0.2d, x0
0070404c | none | x0 |  |  | load,may-fault,vector | ld1 {v0.16b}, [x0]
0010404c | unknown |  |  |  |  | no so many vectors
0070604c | unknown |  |  |  |  | bit 21
000c400c | unknown |  |  |  |  | ld4 {v0.1d}
000c404c | none | x0 |  |  | load,may-fault,vector | ld4 {v0.2d}
00c0404d | none | x0 |  |  | load,may-fault,vector | ld1r {v0.16b}, [x0]
00c0004d | unknown |  |  |  |  | st1r
0028601e | none |  |  |  | vector | fadd d0, d0, d0
0028a01e | unknown |  |  |  |  | fadd in no format
0000801f | unknown |  |  |  |  | fmadd likewise
00c0221e | none |  |  |  | vector | fcvt d0, s0
0040221e | unknown |  |  |  |  | fcvt s0, s0
000000ce | none |  |  |  | vector | eor3
000000cf | unknown |  |  |  |  | nothing is there
008060ce | none |  |  |  | vector | sha512h
009060ce | unknown |  |  |  |  | beside sm3partw1
00d4604e | none |  |  |  | vector | fadd v0.2d, v0.2d, v0.2d
00d4600e | unknown |  |  |  |  | fadd of one 64-bit element
0000004e | none |  |  |  | vector | tbl v0.16b, {v0.16b}, v0.16b
0000404e | unknown |  |  |  |  | tbl with a size
0010c04f | none |  |  |  | vector | fmla v0.2d, v0.2d, v0.d[0]
0010e04f | unknown |  |  |  |  | fmla by an element that is not there
0004405f | none |  |  |  | vector | sshr d0, d0, #64
0004205f | unknown |  |  |  |  | sshr of a single element of 32 bits
00f4006f | none |  |  |  | vector | fmov v0.2d, #2.0
00f4002f | unknown |  |  |  |  | fmov v0.1d
`)
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
		{must(StorePairAt(3, 504, 1, 2)), "stp x1, x2, [x3,#504]", "x1,x2,x3", ""},
		{must(StorePairAt(3, -512, 1, 1)), "stp x1, x1, [x3,#-512]", "x1,x3", ""},
		{must(AddHalf(3, 4, 5, 0)), "add x3, x4, w5, uxth", "x4,x5", "x3"},
		{must(AddHalf(17, 16, 17, 4)), "add x17, x16, w17, uxth #4", "x16,x17", "x17"},
		{must(JumpThrough(16)), "br x16", "x16", ""},
		{must(JumpIfZero(16, 0, 0x10)), "cbz x16, 0x10", "x16", ""},
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
	if _, err := AddHalf(3, 4, 5, 5); err == nil {
		t.Error("a half word shifted by 5 bits was encoded")
	}
	for _, off := range []int{4, 512, -520} {
		if _, err := StorePairAt(3, off, 1, 2); err == nil {
			t.Errorf("stp at %d was encoded", off)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, w := range []uint32{0xd503201f, 0xf8200000, 0x14000000, 0, 0xffffffff} {
		f.Add(isa.ByteOrder.AppendUint32(nil, w))
	}
	f.Fuzz(func(t *testing.T, b []byte) { isatest.Contract(t, Arch, b) })
}

// TestAtomicText: atomic operations are printed as llvm-mc -mattr=+lse reads them.
func TestAtomicText(t *testing.T) {
	for text, b := range map[string][]byte{
		"casa x0, x1, [x19]":    {0x61, 0x7e, 0xe0, 0xc8},
		"casalb w3, w4, [sp]":   {0xe4, 0xff, 0xe3, 0x08},
		"casl w3, wzr, [x2]":    {0x5f, 0xfc, 0xa3, 0x88},
		"cash w1, w2, [x3]":     {0x62, 0x7c, 0xa1, 0x48},
		"swpal x1, x2, [x3]":    {0x62, 0x80, 0xe1, 0xf8},
		"swpah w1, w2, [x3]":    {0x62, 0x80, 0xa1, 0x78},
		"ldaddalb w1, w2, [x3]": {0x62, 0x00, 0xe1, 0x38},
		"stclrl x1, [x2]":       {0x5f, 0x10, 0x61, 0xf8},
		"ldsmaxa w0, wzr, [x1]": {0x3f, 0x40, 0xa0, 0xb8},
		"stsetlh w5, [x6]":      {0xdf, 0x30, 0x65, 0x78},
	} {
		if got := Text(b, 0); got != text {
			t.Errorf("% x is %q, want %q", b, got, text)
		}
	}
}
