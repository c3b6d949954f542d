package amd64

import "kerninst/agent/isa"

// access says how an operand is used.
type access uint8

const (
	no  access = iota // no such operand
	rd                // read
	wr                // overwritten
	rw                // both
	adr               // only its address is formed: lea, long nops, prefetches
	may               // read, and overwritten only sometimes
	vrd               // read; a register is a vector or x87 register
	vwr               // overwritten, likewise
)

// flagUse says what happens to the arithmetic flags as a unit. A write that
// leaves one of them, or happens only sometimes, is a clobber.
type flagUse uint8

const (
	fNo flagUse = iota
	fR          // read
	fW          // all overwritten
	fC          // some overwritten, or not always
	fRW         // read, then all overwritten
	fRC         // read, then some overwritten
)

// immKind is the form of what follows the operand bytes.
type immKind uint8

const (
	iNo    immKind = iota
	i8             // one byte
	i16            // two bytes
	iZ             // two with operand size 16, else four
	iV             // as wide as the operand: two, four or eight
	iEnter         // two and one
	iMoffs         // an address: eight, or four with 67
	iRel8          // branch displacement
	iRel32
)

// row describes one opcode, or one opcode extension of a group.
type row struct {
	known      bool // effects are known; else only the length is
	modrm      bool
	imm        immKind
	e, g       access // the r/m operand and the reg operand
	eb, gb     bool   // they are bytes
	flags      flagUse
	reads      isa.RegSet // implicit operands
	writes     isa.RegSet
	clobbers   isa.RegSet
	flow       isa.Flow // FlowUnknown in a known row means FlowNone
	traits     isa.Traits
	plus       access  // register in the opcode's low bits
	plusByte   bool    // it is a byte
	string     bool    // rep makes it conditional and uses rcx
	acc        access  // the accumulator at operand size
	group      *[8]row // selected by ModRM.reg
	groupByImm bool    // test in group 3 alone has an immediate
}

// span binds a run of opcodes to one row.
type span struct {
	lo, hi byte
	row    row
}

const (
	sp   = isa.RegSet(1) << RSP
	rax  = isa.RegSet(1) << RAX
	rcx  = isa.RegSet(1) << RCX
	rdx  = isa.RegSet(1) << RDX
	rbx  = isa.RegSet(1) << RBX
	rsi  = isa.RegSet(1) << RSI
	rdi  = isa.RegSet(1) << RDI
	rbp  = isa.RegSet(1) << RBP
	priv = isa.Privileged
	base = isa.Privileged | isa.Rebases
	ser  = isa.Serialising
	load = isa.Load
	stor = isa.Store
	both = isa.Mem
)

// lengthOnly is an opcode with a ModRM byte whose effects are not described.
var lengthOnly = row{modrm: true}

// alu lists the eight operations of 00-3f and of group 1, in encoding order.
var alu = [8]struct {
	e     access
	flags flagUse
}{
	{rw, fW}, {rw, fW}, {rw, fRW}, {rw, fRW}, // add or adc sbb
	{rw, fW}, {rw, fW}, {rw, fW}, {rd, fW}, // and sub xor cmp
}

// shift lists group 2: rol ror rcl rcr shl shr sal sar. A rotate leaves SF, ZF,
// AF and PF; a shift by CL leaves all flags when the count is 0.
func shift(imm immKind, byCL, byte bool) *[8]row {
	var g [8]row
	for i := range g {
		r := row{known: true, modrm: true, imm: imm, e: rw, eb: byte, flags: fC}
		switch {
		case i == 2 || i == 3:
			r.flags = fRC
		case i >= 4 && !byCL && imm == iNo:
			r.flags = fW
		}
		if byCL {
			r.reads = rcx
		}
		g[i] = r
	}
	return &g
}

func group1(imm immKind, byte bool) *[8]row {
	var g [8]row
	for i, a := range alu {
		g[i] = row{known: true, modrm: true, imm: imm, e: a.e, eb: byte, flags: a.flags}
	}
	return &g
}

// group3 is test, test, not, neg, mul, imul, div, idiv. Flags that the manual
// calls undefined count as clobbered, not as overwritten.
func group3(imm immKind, byte bool) *[8]row {
	test := row{known: true, modrm: true, imm: imm, e: rd, eb: byte, flags: fW}
	mul := row{known: true, modrm: true, e: rd, eb: byte, flags: fC, reads: rax, writes: rax | rdx}
	div := row{known: true, modrm: true, e: rd, eb: byte, flags: fC, reads: rax | rdx, writes: rax | rdx, traits: isa.MayFault}
	if byte { // into AX only
		mul.writes, mul.clobbers = 0, rax
		div.reads, div.writes, div.clobbers = rax, 0, rax
	}
	return &[8]row{
		test, test,
		{known: true, modrm: true, e: rw, eb: byte},
		{known: true, modrm: true, e: rw, eb: byte, flags: fW},
		mul, mul, div, div,
	}
}

var (
	incDec = [2]row{
		{known: true, modrm: true, e: rw, flags: fC}, // CF stays
		{known: true, modrm: true, e: rw, flags: fC},
	}
	group4 = &[8]row{
		{known: true, modrm: true, e: rw, eb: true, flags: fC},
		{known: true, modrm: true, e: rw, eb: true, flags: fC},
	}
	group5 = &[8]row{
		incDec[0], incDec[1],
		{known: true, modrm: true, e: rd, reads: sp, writes: sp, flow: isa.FlowIndirectCall, traits: stor},
		{known: true, modrm: true, e: rd, reads: sp, writes: sp, flow: isa.FlowIndirectCall, traits: priv | stor}, // far call
		{known: true, modrm: true, e: rd, flow: isa.FlowIndirectJump},
		{known: true, modrm: true, e: rd, flow: isa.FlowIndirectJump, traits: priv}, // far jump
		{known: true, modrm: true, e: rd, reads: sp, writes: sp, traits: stor},
		lengthOnly,
	}
	group11 = func(imm immKind, byte bool) *[8]row {
		g := [8]row{}
		for i := range g {
			g[i] = row{modrm: true, imm: imm} // xabort, xbegin: length only
		}
		g[0] = row{known: true, modrm: true, imm: imm, e: wr, eb: byte}
		return &g
	}
	group1A = &[8]row{
		{known: true, modrm: true, e: wr, reads: sp, writes: sp, traits: load},
	}
	// group8 is bt, bts, btr, btc with an immediate: only CF is defined.
	group8 = &[8]row{
		{modrm: true, imm: i8}, {modrm: true, imm: i8}, {modrm: true, imm: i8}, {modrm: true, imm: i8},
		{known: true, modrm: true, imm: i8, e: rd, flags: fC},
		{known: true, modrm: true, imm: i8, e: rw, flags: fC},
		{known: true, modrm: true, imm: i8, e: rw, flags: fC},
		{known: true, modrm: true, imm: i8, e: rw, flags: fC},
	}
)

// Groups of system instructions, as they are with an operand in memory; forms
// with registers, and with prefixes, are in system.go.
var (
	group6 = &[8]row{
		{known: true, modrm: true, e: wr, traits: priv},            // sldt
		{known: true, modrm: true, e: wr, traits: priv},            // str
		{known: true, modrm: true, e: rd, traits: base | ser},      // lldt
		{known: true, modrm: true, e: rd, traits: base | ser},      // ltr
		{known: true, modrm: true, e: rd, flags: fC, traits: priv}, // verr
		{known: true, modrm: true, e: rd, flags: fC, traits: priv}, // verw
		lengthOnly, lengthOnly,
	}
	group7 = &[8]row{
		{known: true, modrm: true, e: wr, traits: priv},       // sgdt
		{known: true, modrm: true, e: wr, traits: priv},       // sidt
		{known: true, modrm: true, e: rd, traits: base | ser}, // lgdt
		{known: true, modrm: true, e: rd, traits: base | ser}, // lidt
		{known: true, modrm: true, e: wr, traits: priv},       // smsw
		lengthOnly,
		{known: true, modrm: true, e: rd, traits: base | ser},  // lmsw
		{known: true, modrm: true, e: adr, traits: priv | ser}, // invlpg
	}
	group9 = &[8]row{
		lengthOnly,
		{known: true, modrm: true, e: may, flags: fC, reads: rax | rbx | rcx | rdx, clobbers: rax | rdx}, // cmpxchg16b
		lengthOnly,
		{known: true, modrm: true, e: rd, reads: rax | rdx, traits: priv | isa.Vector}, // xrstors
		{known: true, modrm: true, e: wr, reads: rax | rdx, traits: isa.Vector},        // xsavec
		{known: true, modrm: true, e: wr, reads: rax | rdx, traits: priv | isa.Vector}, // xsaves
		{known: true, modrm: true, e: rd, flags: fW, traits: priv},                     // vmptrld, vmclear, vmxon
		{known: true, modrm: true, e: wr, flags: fW, traits: priv},                     // vmptrst
	}
	group15 = &[8]row{
		{known: true, modrm: true, e: wr, traits: isa.Vector},                   // fxsave
		{known: true, modrm: true, e: rd, traits: isa.Vector},                   // fxrstor
		{known: true, modrm: true, e: rd, traits: isa.Vector},                   // ldmxcsr
		{known: true, modrm: true, e: wr, traits: isa.Vector},                   // stmxcsr
		{known: true, modrm: true, e: wr, reads: rax | rdx, traits: isa.Vector}, // xsave
		{known: true, modrm: true, e: rd, reads: rax | rdx, traits: isa.Vector}, // xrstor
		{known: true, modrm: true, e: wr, reads: rax | rdx, traits: isa.Vector}, // xsaveopt
		{known: true, modrm: true, e: adr, traits: isa.MayFault},                // clflush
	}
)

// oneSpans is the one-byte map (SDM appendix A, table A-2) without 00-3f.
var oneSpans = []span{
	{0x50, 0x57, row{known: true, plus: rd, reads: sp, writes: sp, traits: stor}},
	{0x58, 0x5f, row{known: true, plus: wr, reads: sp, writes: sp, traits: load}},
	{0x63, 0x63, row{known: true, modrm: true, g: wr, e: rd}}, // movslq
	{0x68, 0x68, row{known: true, imm: iZ, reads: sp, writes: sp, traits: stor}},
	{0x69, 0x69, row{known: true, modrm: true, imm: iZ, g: wr, e: rd, flags: fC}},
	{0x6a, 0x6a, row{known: true, imm: i8, reads: sp, writes: sp, traits: stor}},
	{0x6b, 0x6b, row{known: true, modrm: true, imm: i8, g: wr, e: rd, flags: fC}},
	{0x6c, 0x6d, row{known: true, reads: rdi | rdx, clobbers: rdi, string: true, traits: priv | stor}},
	{0x6e, 0x6f, row{known: true, reads: rsi | rdx, clobbers: rsi, string: true, traits: priv | load}},
	{0x70, 0x7f, row{known: true, imm: iRel8, flags: fR, flow: isa.FlowCond}},
	{0x80, 0x80, row{modrm: true, group: group1(i8, true)}},
	{0x81, 0x81, row{modrm: true, group: group1(iZ, false)}},
	{0x83, 0x83, row{modrm: true, group: group1(i8, false)}},
	{0x84, 0x84, row{known: true, modrm: true, e: rd, g: rd, eb: true, gb: true, flags: fW}},
	{0x85, 0x85, row{known: true, modrm: true, e: rd, g: rd, flags: fW}},
	{0x86, 0x86, row{known: true, modrm: true, e: rw, g: rw, eb: true, gb: true}},
	{0x87, 0x87, row{known: true, modrm: true, e: rw, g: rw}},
	{0x88, 0x88, row{known: true, modrm: true, e: wr, g: rd, eb: true, gb: true}},
	{0x89, 0x89, row{known: true, modrm: true, e: wr, g: rd}},
	{0x8a, 0x8a, row{known: true, modrm: true, g: wr, e: rd, eb: true, gb: true}},
	{0x8b, 0x8b, row{known: true, modrm: true, g: wr, e: rd}},
	{0x8c, 0x8c, row{known: true, modrm: true, e: wr, traits: priv}}, // from a segment register
	{0x8d, 0x8d, row{known: true, modrm: true, g: wr, e: adr}},
	{0x8e, 0x8e, row{known: true, modrm: true, e: rd, traits: base | isa.Shadow | isa.MayFault}}, // to a segment register
	{0x8f, 0x8f, row{modrm: true, group: group1A}},
	{0x90, 0x97, row{known: true, plus: rw, acc: rw}}, // xchg; 90 is corrected in decode
	{0x98, 0x98, row{known: true, acc: rw}},
	{0x99, 0x99, row{known: true, reads: rax, writes: rdx}},
	{0x9b, 0x9b, row{known: true, traits: isa.Vector | isa.MayFault}}, // fwait
	{0x9c, 0x9c, row{known: true, flags: fR, reads: sp, writes: sp, traits: stor}},
	{0x9d, 0x9d, row{known: true, flags: fW, reads: sp, writes: sp, traits: priv | load}},
	{0x9e, 0x9e, row{known: true, flags: fC, reads: rax}},
	{0x9f, 0x9f, row{known: true, flags: fR, clobbers: rax}},
	{0xa0, 0xa0, row{known: true, imm: iMoffs, clobbers: rax, traits: load}},
	{0xa1, 0xa1, row{known: true, imm: iMoffs, acc: wr, traits: load}},
	{0xa2, 0xa3, row{known: true, imm: iMoffs, acc: rd, traits: stor}},
	{0xa4, 0xa5, row{known: true, reads: rsi | rdi, clobbers: rsi | rdi, string: true, traits: both}},
	{0xa6, 0xa7, row{known: true, flags: fW, reads: rsi | rdi, clobbers: rsi | rdi, string: true, traits: load}},
	{0xa8, 0xa8, row{known: true, imm: i8, acc: rd, flags: fW}},
	{0xa9, 0xa9, row{known: true, imm: iZ, acc: rd, flags: fW}},
	{0xaa, 0xab, row{known: true, reads: rax | rdi, clobbers: rdi, string: true, traits: stor}},
	{0xac, 0xad, row{known: true, reads: rsi, clobbers: rsi | rax, string: true, traits: load}},
	{0xae, 0xaf, row{known: true, flags: fW, reads: rax | rdi, clobbers: rdi, string: true, traits: load}},
	{0xb0, 0xb7, row{known: true, imm: i8, plus: wr, plusByte: true}},
	{0xb8, 0xbf, row{known: true, imm: iV, plus: wr}},
	{0xc0, 0xc0, row{modrm: true, group: shift(i8, false, true)}},
	{0xc1, 0xc1, row{modrm: true, group: shift(i8, false, false)}},
	{0xc2, 0xc2, row{known: true, imm: i16, reads: sp, writes: sp, flow: isa.FlowReturn, traits: load}},
	{0xc3, 0xc3, row{known: true, reads: sp, writes: sp, flow: isa.FlowReturn, traits: load}},
	{0xc6, 0xc6, row{modrm: true, group: group11(i8, true)}},
	{0xc7, 0xc7, row{modrm: true, group: group11(iZ, false)}},
	{0xc8, 0xc8, row{imm: iEnter}},
	{0xc9, 0xc9, row{known: true, reads: 1 << RBP, writes: sp | 1<<RBP, traits: load}},
	// A far return takes the code segment along: it leads anywhere.
	{0xca, 0xca, row{known: true, imm: i16, reads: sp, writes: sp, flow: isa.FlowIndirectJump, traits: priv | load}},
	{0xcb, 0xcb, row{known: true, reads: sp, writes: sp, flow: isa.FlowIndirectJump, traits: priv | load}},
	{0xcc, 0xcc, row{known: true, flow: isa.FlowTrap}},
	{0xcd, 0xcd, row{known: true, imm: i8, flow: isa.FlowTrap}},
	{0xcf, 0xcf, row{known: true, flow: isa.FlowTrap, traits: priv | ser}},
	{0xd0, 0xd0, row{modrm: true, group: shift(iNo, false, true)}},
	{0xd1, 0xd1, row{modrm: true, group: shift(iNo, false, false)}},
	{0xd2, 0xd2, row{modrm: true, group: shift(iNo, true, true)}},
	{0xd3, 0xd3, row{modrm: true, group: shift(iNo, true, false)}},
	{0xd7, 0xd7, row{known: true, reads: rax | rbx, clobbers: rax, traits: load}},
	{0xd8, 0xdf, row{modrm: true}}, // x87: see x87.go
	{0xe0, 0xe1, row{known: true, imm: iRel8, flags: fR, reads: rcx, clobbers: rcx, flow: isa.FlowCond}},
	{0xe2, 0xe2, row{known: true, imm: iRel8, reads: rcx, clobbers: rcx, flow: isa.FlowCond}},
	{0xe3, 0xe3, row{known: true, imm: iRel8, reads: rcx, flow: isa.FlowCond}},
	{0xe4, 0xe5, row{known: true, imm: i8, clobbers: rax, traits: priv}},
	{0xe6, 0xe7, row{known: true, imm: i8, reads: rax, traits: priv}},
	{0xe8, 0xe8, row{known: true, imm: iRel32, reads: sp, writes: sp, flow: isa.FlowCall, traits: stor}},
	{0xe9, 0xe9, row{known: true, imm: iRel32, flow: isa.FlowJump}},
	{0xeb, 0xeb, row{known: true, imm: iRel8, flow: isa.FlowJump}},
	{0xec, 0xed, row{known: true, reads: rdx, clobbers: rax, traits: priv}},
	{0xee, 0xef, row{known: true, reads: rdx | rax, traits: priv}},
	{0xf1, 0xf1, row{known: true, flow: isa.FlowTrap}},
	{0xf4, 0xf4, row{known: true, traits: priv}},
	{0xf5, 0xf5, row{known: true, flags: fRC}},
	{0xf6, 0xf6, row{modrm: true, group: group3(i8, true)}},
	{0xf7, 0xf7, row{modrm: true, group: group3(iZ, false)}},
	{0xf8, 0xf9, row{known: true, flags: fC}},
	{0xfa, 0xfa, row{known: true, traits: priv}},
	{0xfb, 0xfb, row{known: true, traits: priv | isa.Shadow}},
	{0xfc, 0xfd, row{known: true, traits: priv}}, // DF
	{0xfe, 0xfe, row{modrm: true, group: group4}},
	{0xff, 0xff, row{modrm: true, group: group5}},
}

// twoSpans is the 0f map (SDM table A-3). Opcodes that are missing have a
// ModRM byte and nothing else: the vector instructions.
var twoSpans = []span{
	{0x05, 0x05, row{known: true, flow: isa.FlowTrap}},
	{0x00, 0x00, row{modrm: true, group: group6}},
	{0x01, 0x01, row{modrm: true, group: group7}},
	{0x02, 0x03, row{known: true, modrm: true, g: may, e: rd, flags: fC, traits: priv}}, // lar, lsl
	{0x06, 0x06, row{known: true, traits: priv}},
	{0x07, 0x07, row{known: true, flow: isa.FlowTrap, traits: priv}},
	{0x08, 0x09, row{known: true, traits: priv | ser}},
	{0x0b, 0x0b, row{known: true, flow: isa.FlowTrap}},
	{0x0d, 0x0d, row{known: true, modrm: true, e: adr}},
	{0x0e, 0x0e, row{}},
	{0x0f, 0x0f, row{modrm: true, imm: i8}}, // 3DNow!
	{0x18, 0x1f, row{known: true, modrm: true, e: adr}},
	{0x20, 0x21, row{known: true, modrm: true, e: wr, traits: priv}},
	{0x22, 0x22, row{known: true, modrm: true, e: rd, traits: base | ser | isa.MayFault}},
	{0x23, 0x23, row{known: true, modrm: true, e: rd, traits: priv | ser | isa.MayFault}},
	{0x30, 0x30, row{known: true, reads: rcx | rax | rdx, traits: base | ser | isa.MayFault}},
	{0x31, 0x31, row{known: true, writes: rax | rdx}},
	{0x32, 0x33, row{known: true, reads: rcx, writes: rax | rdx, traits: priv | isa.MayFault}},
	{0x34, 0x35, row{known: true, flow: isa.FlowTrap, traits: priv}},
	{0x37, 0x37, row{}},
	{0x40, 0x4f, row{known: true, modrm: true, g: may, e: rd, flags: fR}},
	{0x70, 0x73, row{modrm: true, imm: i8}},
	{0x77, 0x77, row{known: true, traits: isa.Vector}},                                  // emms
	{0x78, 0x78, row{known: true, modrm: true, e: may, g: rd, flags: fW, traits: priv}}, // vmread
	{0x79, 0x79, row{known: true, modrm: true, e: rd, g: rd, flags: fW, traits: priv}},  // vmwrite
	{0x80, 0x8f, row{known: true, imm: iRel32, flags: fR, flow: isa.FlowCond}},
	{0x90, 0x9f, row{known: true, modrm: true, e: wr, eb: true, flags: fR}},
	{0xa0, 0xa0, row{known: true, reads: sp, writes: sp, traits: priv | stor}},
	{0xa1, 0xa1, row{known: true, reads: sp, writes: sp, traits: base | load}},
	{0xa2, 0xa2, row{known: true, reads: rax | rcx, writes: rax | rbx | rcx | rdx, traits: priv | ser}},
	{0xa3, 0xa3, row{known: true, modrm: true, e: rd, g: rd, flags: fC}},
	{0xa4, 0xa4, row{known: true, modrm: true, imm: i8, e: rw, g: rd, flags: fC}},
	{0xa5, 0xa5, row{known: true, modrm: true, e: rw, g: rd, flags: fC, reads: rcx}},
	{0xa8, 0xa8, row{known: true, reads: sp, writes: sp, traits: priv | stor}},
	{0xa9, 0xa9, row{known: true, reads: sp, writes: sp, traits: base | load}},
	{0xaa, 0xaa, row{}},
	{0xab, 0xab, row{known: true, modrm: true, e: rw, g: rd, flags: fC}},
	{0xac, 0xac, row{known: true, modrm: true, imm: i8, e: rw, g: rd, flags: fC}},
	{0xad, 0xad, row{known: true, modrm: true, e: rw, g: rd, flags: fC, reads: rcx}},
	{0xaf, 0xaf, row{known: true, modrm: true, g: rw, e: rd, flags: fC}},
	{0xb0, 0xb0, row{known: true, modrm: true, e: may, g: rd, eb: true, gb: true, flags: fW, reads: rax, clobbers: rax}},
	{0xb1, 0xb1, row{known: true, modrm: true, e: may, g: rd, flags: fW, reads: rax, clobbers: rax}},
	{0xb3, 0xb3, row{known: true, modrm: true, e: rw, g: rd, flags: fC}},
	{0xb6, 0xb6, row{known: true, modrm: true, g: wr, e: rd, eb: true}},
	{0xb7, 0xb7, row{known: true, modrm: true, g: wr, e: rd}},
	{0xb9, 0xb9, row{known: true, modrm: true, flow: isa.FlowTrap}}, // ud1
	{0xba, 0xba, row{modrm: true, imm: i8, group: group8}},
	{0xbb, 0xbb, row{known: true, modrm: true, e: rw, g: rd, flags: fC}},
	// bsf, bsr, or tzcnt, lzcnt where the CPU has them: the destination may
	// keep its value.
	{0xbc, 0xbd, row{known: true, modrm: true, g: may, e: rd, flags: fC}},
	{0xbe, 0xbe, row{known: true, modrm: true, g: wr, e: rd, eb: true}},
	{0xbf, 0xbf, row{known: true, modrm: true, g: wr, e: rd}},
	{0xc0, 0xc0, row{known: true, modrm: true, e: rw, g: rw, eb: true, gb: true, flags: fW}},
	{0xc1, 0xc1, row{known: true, modrm: true, e: rw, g: rw, flags: fW}},
	{0xae, 0xae, row{modrm: true, group: group15}},
	{0xc2, 0xc2, row{modrm: true, imm: i8}},
	{0xc3, 0xc3, row{known: true, modrm: true, e: wr, g: rd}}, // movnti
	{0xc4, 0xc6, row{modrm: true, imm: i8}},
	{0xc7, 0xc7, row{modrm: true, group: group9}},
	{0xc8, 0xcf, row{known: true, plus: rw}}, // bswap
	{0xff, 0xff, row{known: true, modrm: true, flow: isa.FlowTrap}},
}

// invalid lists one-byte opcodes that do not exist in 64-bit mode.
var invalid = func() (t [256]bool) {
	for _, op := range []byte{
		0x06, 0x07, 0x0e, 0x16, 0x17, 0x1e, 0x1f, 0x27, 0x2f, 0x37, 0x3f,
		0x60, 0x61, 0x82, 0x9a, 0xce, 0xd4, 0xd5, 0xd6, 0xea,
	} {
		t[op] = true
	}
	return t
}()

var (
	oneByte = buildOne()
	twoByte = buildTwo()
)

func buildOne() *[256]row {
	t := new([256]row)
	for i, a := range alu {
		op := byte(i * 8)
		g := rd
		e2 := rd
		g2 := a.e
		t[op] = row{known: true, modrm: true, e: a.e, g: g, eb: true, gb: true, flags: a.flags}
		t[op+1] = row{known: true, modrm: true, e: a.e, g: g, flags: a.flags}
		t[op+2] = row{known: true, modrm: true, e: e2, g: g2, eb: true, gb: true, flags: a.flags}
		t[op+3] = row{known: true, modrm: true, e: e2, g: g2, flags: a.flags}
		t[op+4] = row{known: true, imm: i8, flags: a.flags, reads: rax}
		if a.e == rw {
			t[op+4].clobbers = rax
		}
		t[op+5] = row{known: true, imm: iZ, acc: a.e, flags: a.flags}
	}
	for _, s := range oneSpans {
		for op := int(s.lo); op <= int(s.hi); op++ {
			t[op] = s.row
		}
	}
	return t
}

func buildTwo() *[256]row {
	t := new([256]row)
	for i := range t {
		t[i] = lengthOnly
	}
	for _, s := range twoSpans {
		for op := int(s.lo); op <= int(s.hi); op++ {
			t[op] = s.row
		}
	}
	return t
}
