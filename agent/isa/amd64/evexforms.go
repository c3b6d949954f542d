package amd64

// EVEX instructions. The kernels' text holds few: they multiply, shift, shuffle and
// encrypt integers for RAID 6, ChaCha20, Poly1305, BLAKE2s and AES. Those are listed
// with the fields that they take, and no other EVEX encoding is understood, nor any
// field that a listed one does not take: such forms are #UD, or mean something on
// other CPUs (SDM volume 2, 2.7 and exception classes E1 to E12).

// evexUse says which fields an EVEX instruction takes, and where its operands are.
type evexUse uint16

const (
	evexV      evexUse = 1 << iota // vvvv and V' name a register; without it they are ones
	evexB                          // b repeats one element in memory; no listed one rounds
	evexK                          // aaa names a mask
	evexZ                          // z clears what the mask leaves out, if the destination is a vector
	evexStore                      // r/m is the destination
	evexMem                        // r/m is in memory
	evexDirect                     // r/m is a register
	evexToK                        // ModRM.reg is one of eight masks
	evexFromK                      // r/m is one of eight masks

	evexKZ  = evexK | evexZ
	evexBKZ = evexB | evexKZ
	evexAll = evexV | evexBKZ
)

// Lengths and W as sets: bit n is set when L'L, or W, may be n.
const (
	l128, l256, l512 = 1 << 0, 1 << 1, 1 << 2
	lAny             = l128 | l256 | l512
	lWide            = l256 | l512
	w0, w1           = 1 << 0, 1 << 1
	wAny             = w0 | w1
)

// evexForm is one opcode; regs has a bit for each ModRM.reg that belongs to it where
// that is a part of the opcode, and is 0 where it is an operand.
type evexForm struct {
	m, prefix, op byte
	regs          byte
	w, l          byte
	use           evexUse
}

var evexForms = []evexForm{
	{1, p66, 0x28, 0, w1, lAny, evexKZ},                            // vmovapd
	{1, p66, 0x62, 0, w0, lAny, evexAll},                           // vpunpckldq
	{1, p66, 0x64, 0, wAny, lAny, evexV | evexK | evexToK},         // vpcmpgtb
	{1, p66, 0x6a, 0, w0, lAny, evexAll},                           // vpunpckhdq
	{1, p66, 0x6c, 0, w1, lAny, evexAll},                           // vpunpcklqdq
	{1, p66, 0x6d, 0, w1, lAny, evexAll},                           // vpunpckhqdq
	{1, p66, 0x6f, 0, wAny, lAny, evexKZ},                          // vmovdqa32, 64
	{1, pF3, 0x6f, 0, wAny, lAny, evexKZ},                          // vmovdqu32, 64
	{1, pF2, 0x6f, 0, wAny, lAny, evexKZ},                          // vmovdqu8, 16
	{1, p66, 0x70, 0, w0, lAny, evexBKZ},                           // vpshufd
	{1, p66, 0x71, 1<<2 | 1<<4 | 1<<6, wAny, lAny, evexV | evexKZ}, // vpsrlw, vpsraw, vpsllw
	{1, p66, 0x72, 1<<0 | 1<<1 | 1<<4, wAny, lAny, evexAll},        // vprord, q; vprold, q; vpsrad, q
	{1, p66, 0x72, 1<<2 | 1<<6, w0, lAny, evexAll},                 // vpsrld, vpslld
	{1, p66, 0x73, 1<<2 | 1<<6, w1, lAny, evexAll},                 // vpsrlq, vpsllq
	{1, p66, 0x73, 1<<3 | 1<<7, wAny, lAny, evexV},                 // vpsrldq, vpslldq
	{1, p66, 0x7f, 0, wAny, lAny, evexKZ | evexStore},              // as 6f
	{1, pF3, 0x7f, 0, wAny, lAny, evexKZ | evexStore},
	{1, pF2, 0x7f, 0, wAny, lAny, evexKZ | evexStore},
	{1, p66, 0xd4, 0, w1, lAny, evexAll},                  // vpaddq
	{1, p66, 0xdb, 0, wAny, lAny, evexAll},                // vpandd, q
	{1, p66, 0xe7, 0, w0, lAny, evexStore | evexMem},      // vmovntdq
	{1, p66, 0xeb, 0, wAny, lAny, evexAll},                // vpord, q
	{1, p66, 0xef, 0, wAny, lAny, evexAll},                // vpxord, q
	{1, p66, 0xf4, 0, w1, lAny, evexAll},                  // vpmuludq
	{1, p66, 0xfc, 0, wAny, lAny, evexV | evexKZ},         // vpaddb
	{1, p66, 0xfe, 0, w0, lAny, evexAll},                  // vpaddd
	{2, p66, 0x00, 0, wAny, lAny, evexV | evexKZ},         // vpshufb
	{2, pF3, 0x28, 0, wAny, lAny, evexDirect | evexFromK}, // vpmovm2b, w
	{2, p66, 0x36, 0, wAny, lWide, evexAll},               // vpermd, q
	{2, p66, 0x59, 0, w1, lAny, evexKZ},                   // vpbroadcastq
	{2, p66, 0x5a, 0, wAny, lWide, evexKZ | evexMem},      // vbroadcasti32x4, 64x2
	{2, p66, 0x76, 0, wAny, lAny, evexAll},                // vpermi2d, q
	{2, p66, 0x78, 0, w0, lAny, evexKZ},                   // vpbroadcastb
	{2, p66, 0xdc, 0, wAny, lAny, evexV},                  // vaesenc
	{2, p66, 0xdd, 0, wAny, lAny, evexV},                  // vaesenclast
	{2, p66, 0xde, 0, wAny, lAny, evexV},                  // vaesdec
	{2, p66, 0xdf, 0, wAny, lAny, evexV},                  // vaesdeclast
	{3, p66, 0x00, 0, w1, lWide, evexBKZ},                 // vpermq
	{3, p66, 0x25, 0, wAny, lAny, evexAll},                // vpternlogd, q
	{3, p66, 0x38, 0, wAny, lWide, evexV | evexKZ},        // vinserti32x4, 64x2
	{3, p66, 0x39, 0, wAny, lWide, evexKZ | evexStore},    // vextracti32x4, 64x2
	{3, p66, 0x3a, 0, wAny, l512, evexV | evexKZ},         // vinserti32x8, 64x4
	{3, p66, 0x3b, 0, wAny, l512, evexKZ | evexStore},     // vextracti32x8, 64x4
	{3, p66, 0x43, 0, wAny, lWide, evexAll},               // vshufi32x4, 64x2
	{3, p66, 0x44, 0, wAny, lAny, evexV},                  // vpclmulqdq
}

// evex consumes an instruction behind EVEX.
//
//	62 | R X B R' 0 m m m | W vvvv 1 p p | z L' L b V' a a a | opcode ...
//
// R, X, B, R', vvvv and V' are stored inverted (SDM 2.7.1). The bits that are shown as
// 0 and 1 are other instructions', of CPUs with APX.
func (d *insn) evex() (*row, bool) {
	void := d.voided()
	p := [3]byte{d.next(), d.next(), d.next()}
	d.rex = 0x40 | ^p[0]>>5&7 | p[1]>>4&8
	op := d.next()
	if p[0]&8 != 0 || p[1]&4 == 0 {
		d.n = 1
		return nil, false
	}
	if !d.vectorOperands(p[0]&7, op) || void {
		return nil, false
	}
	for k := range evexForms {
		if f := &evexForms[k]; d.evexIs(f, p, op) && d.evexTakes(f, p) {
			if f.use&evexStore != 0 {
				return &vectorStore, true
			}
			return &vectorLoad, true
		}
	}
	return nil, false
}

// evexIs says whether the instruction is of a form, by all that tells forms apart.
func (d *insn) evexIs(f *evexForm, p [3]byte, op byte) bool {
	return f.op == op && f.m == p[0]&7 && f.prefix == p[1]&3 && (f.regs == 0 || f.regs>>(d.modrm>>3&7)&1 != 0) &&
		f.w>>(p[1]>>7)&1 != 0 && f.l>>(p[2]>>5&3)&1 != 0
}

// evexTakes says whether a form takes what the other fields hold.
func (d *insn) evexTakes(f *evexForm, p [3]byte) bool {
	direct, has := d.modrm >= 0xc0, func(u evexUse) bool { return f.use&u != 0 }
	mask, zeroing, b := p[2]&7, p[2]&0x80 != 0, p[2]&0x10 != 0
	toMemory := has(evexStore) && !direct
	switch {
	case has(evexMem) && direct, has(evexDirect) && !direct:
		return false
	case !has(evexV) && (p[1]&0x78 != 0x78 || p[2]&8 == 0):
		return false
	case b && (!has(evexB) || direct):
		return false
	case mask != 0 && !has(evexK):
		return false
	case zeroing && (!has(evexZ) || mask == 0 || toMemory):
		return false
	case (has(evexToK) || f.regs != 0) && p[0]&0x90 != 0x90: // R and R' would name others
		return false
	}
	return !has(evexFromK) || p[0]&0x60 == 0x60 // likewise X and B
}
