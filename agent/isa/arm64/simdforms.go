package arm64

import "math/bits"

// Which vector instructions, and which of single elements, are allocated (C4.1.97,
// "Advanced SIMD"): in each group of encodings by U, opcode, the size of an element and
// Q. Of what is not listed most is reserved, and some is newer than this table; both
// are refused. Bit 28 tells single elements from vectors.

// forms has a bit for each size, Q<<2 | size. Single elements have Q set.
type forms uint8

const (
	fB, fH, fS, fD forms = 0x11, 0x22, 0x44, 0x88 // either Q
	fWhole         forms = 0xf0                   // Q set

	fBHS   = fB | fH | fS
	fHS    = fH | fS
	fAll   = fBHS | fD&fWhole
	fLow   = fB | fH&fWhole      // floating point of 32 bits and two of 64, where bit 23 is 0
	fHigh  = fS | fD&fWhole      // likewise, 1
	fFixed = fHS | fD&fWhole     // fixed point of at least 16 bits
	fReal  = fB | fS | fD&fWhole // by an element: 16, 32 and 64 bits
	fLanes = fB | fH | fS&fWhole // across three or more of them
	fOne   = fD & fWhole         // a single one of 64 bits
)

// allocated is a run of opcodes with U.
type allocated struct {
	u, first, last uint32
	forms          forms
}

// group is what its bits have in common: w&mask is value. at is the lowest bit of the
// opcode, which ends where bit 11, 15 or 16 is.
type group struct {
	mask, value word
	hi, lo      uint
	size        func(word) uint32 // bits 23:22, if nil
	only        func(word) bool   // what else has to hold; may be nil
	list        []allocated
}

// sizeOfShift is that of the highest bit set in immh, bits 22:19, which is not 0.
func sizeOfShift(w word) uint32 { return uint32(bits.Len32(w.bits(22, 19))) - 1 }

// isShift tells shifts by a constant from constants.
func isShift(w word) bool { return !w.bit(23) && w.bits(22, 19) != 0 }

// anElement says whether its number is one that there is: of 64-bit ones bit 21 (L) is
// 0, and fcmla's, opcode 0xx1 with U, are of pairs.
func anElement(w word) bool {
	size := w.bits(23, 22)
	if w.bit(29) && !w.bit(28) && !w.bit(15) && w.bit(12) { // fcmla
		return size == 1 && (w.bit(30) || !w.bit(11)) || size == 2 && w.bit(30) && !w.bit(21)
	}
	return size != 3 || w.bits(15, 12)&3 != 1 || !w.bit(21)
}

// inHalf says of ext whether it begins within the register.
func inHalf(w word) bool { return w.bit(30) || !w.bit(14) }

var simdGroups = []group{
	{mask: 0xbf208c00, value: 0x0e000000, hi: 14, lo: 12, list: []allocated{{0, 0, 7, fB}}}, // tbl, tbx
	{mask: 0xbf208c00, value: 0x0e000800, hi: 14, lo: 12, list: []allocated{ // uzp, trn, zip
		{0, 1, 3, fAll}, {0, 5, 7, fAll},
	}},
	{mask: 0xbf208400, value: 0x2e000000, hi: 10, lo: 10, only: inHalf, list: []allocated{{1, 0, 0, fB}}}, // ext
	{mask: 0xff3e0c00, value: 0x4e280800, hi: 16, lo: 12, list: []allocated{{0, 4, 7, fB}}},               // aes
	{mask: 0x9f60c400, value: 0x0e400400, hi: 13, lo: 11, list: []allocated{ // three alike, of 16 bits: floating point
		{0, 0, 4, fH}, {0, 6, 7, fH}, {1, 0, 0, fH}, {1, 2, 7, fH},
		{0, 0, 2, fD}, {0, 6, 7, fD}, {1, 0, 0, fD}, {1, 2, 2, fD}, {1, 4, 6, fD},
	}},
	{mask: 0x9f7e0c00, value: 0x0e780800, hi: 16, lo: 12, list: []allocated{ // two, of 16 bits
		{0, 24, 29, fH}, {0, 12, 15, fD}, {0, 24, 27, fD}, {0, 29, 29, fD},
		{1, 24, 29, fH}, {1, 12, 13, fD}, {1, 15, 15, fD}, {1, 25, 27, fD}, {1, 29, 29, fD}, {1, 31, 31, fD},
	}},
	{mask: 0x9f208400, value: 0x0e008400, hi: 14, lo: 11, list: []allocated{ // three alike, later additions
		{0, 2, 3, fS}, {0, 4, 5, fS & fWhole}, // dot products and products of matrices
		{1, 0, 1, fHS}, {1, 2, 2, fS}, {1, 4, 4, fS & fWhole},
		{1, 8, 12, fFixed}, {1, 14, 14, fFixed}, // complex numbers
		{1, 13, 13, fH & fWhole}, {1, 15, 15, fH | fD}, // bfloat16
	}},
	{mask: 0x9f3e0c00, value: 0x0e200800, hi: 16, lo: 12, list: []allocated{ // two
		{0, 0, 0, fBHS}, {0, 1, 1, fB}, {0, 2, 2, fBHS}, {0, 3, 3, fAll}, {0, 4, 4, fBHS}, {0, 5, 5, fB}, {0, 6, 6, fBHS},
		{0, 7, 11, fAll}, {0, 12, 15, fHigh}, {0, 18, 18, fBHS}, {0, 20, 20, fBHS}, {0, 22, 22, fBHS}, {0, 23, 23, fB | fH},
		{0, 24, 31, fLow}, {0, 24, 27, fHigh}, {0, 28, 28, fS}, {0, 29, 29, fHigh},
		{1, 0, 0, fB | fH}, {1, 2, 2, fBHS}, {1, 3, 3, fAll}, {1, 4, 4, fBHS}, {1, 5, 5, fB | fH}, {1, 6, 6, fBHS},
		{1, 7, 9, fAll}, {1, 11, 11, fAll}, {1, 12, 13, fHigh}, {1, 15, 15, fHigh}, {1, 18, 20, fBHS}, {1, 22, 22, fH},
		{1, 24, 31, fLow}, {1, 25, 27, fHigh}, {1, 28, 28, fS}, {1, 29, 29, fHigh}, {1, 31, 31, fHigh},
	}},
	{mask: 0x9f3e0c00, value: 0x0e300800, hi: 16, lo: 12, list: []allocated{ // across lanes
		{0, 3, 3, fLanes}, {0, 10, 10, fLanes}, {0, 26, 27, fLanes}, {0, 12, 12, fB | fS}, {0, 15, 15, fB | fS},
		{1, 3, 3, fLanes}, {1, 10, 10, fLanes}, {1, 26, 26, fLanes}, {1, 12, 12, (fB | fS) & fWhole}, {1, 15, 15, (fB | fS) & fWhole},
	}},
	{mask: 0x9f200c00, value: 0x0e200000, hi: 15, lo: 12, list: []allocated{ // three, unlike
		{0, 0, 8, fBHS}, {0, 10, 10, fBHS}, {0, 12, 12, fBHS}, {0, 9, 9, fHS}, {0, 11, 11, fHS}, {0, 13, 13, fHS}, {0, 14, 14, fB | fD},
		{1, 0, 8, fBHS}, {1, 10, 10, fBHS}, {1, 12, 12, fBHS},
	}},
	{mask: 0x9f200400, value: 0x0e200400, hi: 15, lo: 11, list: []allocated{ // three alike
		{0, 0, 0, fBHS}, {0, 1, 1, fAll}, {0, 2, 2, fBHS}, {0, 3, 3, fBHS | fD}, {0, 4, 4, fBHS}, {0, 5, 11, fAll}, {0, 12, 15, fBHS},
		{0, 16, 17, fAll}, {0, 18, 21, fBHS}, {0, 22, 22, fHS}, {0, 23, 23, fAll},
		{0, 24, 28, fLow}, {0, 29, 29, fB | fS}, {0, 30, 31, fLow}, {0, 24, 26, fHigh}, {0, 30, 31, fHigh},
		{1, 0, 0, fBHS}, {1, 1, 1, fAll}, {1, 2, 2, fBHS}, {1, 3, 3, fBHS | fD}, {1, 4, 4, fBHS}, {1, 5, 11, fAll}, {1, 12, 15, fBHS},
		{1, 16, 17, fAll}, {1, 18, 18, fBHS}, {1, 19, 19, fB}, {1, 20, 21, fBHS}, {1, 22, 22, fHS},
		{1, 24, 24, fLow}, {1, 25, 25, fB | fS}, {1, 26, 31, fLow}, {1, 24, 24, fHigh}, {1, 26, 26, fHigh}, {1, 28, 30, fHigh},
	}},
	{mask: 0x9f800400, value: 0x0f000400, hi: 15, lo: 11, size: sizeOfShift, only: isShift, list: []allocated{ // shifts by a constant
		{0, 0, 0, fAll}, {0, 2, 2, fAll}, {0, 4, 4, fAll}, {0, 6, 6, fAll}, {0, 10, 10, fAll}, {0, 14, 14, fAll},
		{0, 16, 20, fBHS}, {0, 28, 28, fFixed}, {0, 31, 31, fFixed},
		{1, 0, 0, fAll}, {1, 2, 2, fAll}, {1, 4, 4, fAll}, {1, 6, 6, fAll}, {1, 8, 8, fAll}, {1, 10, 10, fAll}, {1, 12, 12, fAll}, {1, 14, 14, fAll},
		{1, 16, 20, fBHS}, {1, 28, 28, fFixed}, {1, 31, 31, fFixed},
	}},
	{mask: 0x9ff80c00, value: 0x0f000400, hi: 15, lo: 12, list: []allocated{ // constants
		{0, 0, 15, fB}, {1, 0, 14, fB}, {1, 15, 15, fB & fWhole},
	}},
	{mask: 0xbff8fc00, value: 0x0f00fc00, hi: 15, lo: 12, list: []allocated{{0, 15, 15, fB}}}, // a constant of 16 bits
	{mask: 0x9f000400, value: 0x0f000000, hi: 15, lo: 12, only: anElement, list: []allocated{ // by an element
		{0, 0, 0, fS}, {0, 4, 4, fS}, {0, 1, 1, fReal}, {0, 5, 5, fReal}, {0, 9, 9, fReal},
		{0, 2, 3, fHS}, {0, 6, 8, fHS}, {0, 10, 13, fHS}, {0, 14, 14, fS}, {0, 15, 15, fBHS | fD},
		{1, 0, 7, fHS}, {1, 10, 10, fHS}, {1, 13, 13, fHS}, {1, 15, 15, fHS},
		{1, 14, 14, fS}, {1, 8, 8, fS}, {1, 12, 12, fS}, {1, 9, 9, fReal},
	}},

	{mask: 0xff208c00, value: 0x5e000000, hi: 14, lo: 12, list: []allocated{{0, 0, 6, fB}}},              // sha1, sha256
	{mask: 0xff3e0c00, value: 0x5e280800, hi: 16, lo: 12, list: []allocated{{0, 0, 2, fB}}},              // likewise
	{mask: 0xffe0fc00, value: 0x5e000400, hi: 14, lo: 11, only: oneOf, list: []allocated{{0, 0, 0, fB}}}, // dup
	{mask: 0xdf60c400, value: 0x5e400400, hi: 13, lo: 11, list: []allocated{ // three, of 16 bits
		{0, 3, 4, fH}, {0, 7, 7, fH | fD}, {1, 4, 5, fH | fD}, {1, 2, 2, fD},
	}},
	{mask: 0xdf7e0c00, value: 0x5e780800, hi: 16, lo: 12, list: []allocated{ // two, of 16 bits
		{0, 26, 29, fH}, {0, 12, 14, fD}, {0, 26, 27, fD}, {0, 29, 29, fD}, {0, 31, 31, fD},
		{1, 26, 29, fH}, {1, 12, 13, fD}, {1, 26, 27, fD}, {1, 29, 29, fD},
	}},
	{mask: 0xff20f400, value: 0x7e008400, hi: 14, lo: 11, list: []allocated{{1, 0, 1, fHS}}}, // sqrdmlah, sqrdmlsh
	{mask: 0xdf3e0c00, value: 0x5e200800, hi: 16, lo: 12, list: []allocated{ // two
		{0, 3, 3, fAll}, {0, 7, 7, fAll}, {0, 8, 11, fOne}, {0, 20, 20, fBHS}, {0, 26, 29, fLow}, {0, 12, 14, fHigh},
		{0, 26, 27, fHigh}, {0, 29, 29, fHigh}, {0, 31, 31, fHigh},
		{1, 3, 3, fAll}, {1, 7, 7, fAll}, {1, 8, 9, fOne}, {1, 11, 11, fOne}, {1, 18, 18, fBHS}, {1, 20, 20, fBHS}, {1, 22, 22, fH},
		{1, 26, 29, fLow}, {1, 12, 13, fHigh}, {1, 26, 27, fHigh}, {1, 29, 29, fHigh},
	}},
	{mask: 0xdf3e0c00, value: 0x5e300800, hi: 16, lo: 12, list: []allocated{ // pairs
		{0, 27, 27, fOne}, {0, 12, 12, fB | fS}, {0, 13, 13, fB}, {0, 15, 15, fB | fS},
		{1, 12, 12, fAll}, {1, 13, 13, fLow}, {1, 15, 15, fAll},
	}},
	{mask: 0xff200c00, value: 0x5e200000, hi: 15, lo: 12, list: []allocated{{0, 9, 9, fHS}, {0, 11, 11, fHS}, {0, 13, 13, fHS}}}, // three, unlike
	{mask: 0xdf200400, value: 0x5e200400, hi: 15, lo: 11, list: []allocated{ // three alike
		{0, 1, 1, fAll}, {0, 5, 5, fAll}, {0, 6, 8, fOne}, {0, 9, 9, fAll}, {0, 10, 10, fOne}, {0, 11, 11, fAll},
		{0, 16, 17, fOne}, {0, 22, 22, fHS}, {0, 27, 28, fLow}, {0, 31, 31, fAll},
		{1, 1, 1, fAll}, {1, 5, 5, fAll}, {1, 6, 8, fOne}, {1, 9, 9, fAll}, {1, 10, 10, fOne}, {1, 11, 11, fAll},
		{1, 16, 17, fOne}, {1, 22, 22, fHS}, {1, 28, 29, fAll}, {1, 26, 26, fHigh},
	}},
	{mask: 0xdf800400, value: 0x5f000400, hi: 15, lo: 11, size: sizeOfShift, only: isShift, list: []allocated{ // shifts by a constant
		{0, 0, 0, fOne}, {0, 2, 2, fOne}, {0, 4, 4, fOne}, {0, 6, 6, fOne}, {0, 10, 10, fOne}, {0, 14, 14, fAll},
		{0, 18, 19, fBHS}, {0, 28, 28, fFixed}, {0, 31, 31, fFixed},
		{1, 0, 0, fOne}, {1, 2, 2, fOne}, {1, 4, 4, fOne}, {1, 6, 6, fOne}, {1, 8, 8, fOne}, {1, 10, 10, fOne}, {1, 12, 12, fAll}, {1, 14, 14, fAll},
		{1, 16, 19, fBHS}, {1, 28, 28, fFixed}, {1, 31, 31, fFixed},
	}},
	{mask: 0xdf000400, value: 0x5f000000, hi: 15, lo: 12, only: anElement, list: []allocated{ // by an element
		{0, 1, 1, fReal}, {0, 5, 5, fReal}, {0, 9, 9, fReal}, {0, 3, 3, fHS}, {0, 7, 7, fHS}, {0, 11, 13, fHS},
		{1, 9, 9, fReal}, {1, 13, 13, fHS}, {1, 15, 15, fHS},
	}},
}

// oneOf says whether imm5 has a size.
func oneOf(w word) bool { return w.bits(19, 16) != 0 }

// isAllocated says whether a vector instruction, or one of a single element, exists.
func isAllocated(w word) bool {
	for k := range simdGroups {
		if g := &simdGroups[k]; w&g.mask == g.value && (g.only == nil || g.only(w)) && g.has(w) {
			return true
		}
	}
	return false
}

func (g *group) has(w word) bool {
	u, op, size := w.bits(29, 29), w.bits(g.hi, g.lo), w.bits(23, 22)
	if g.size != nil {
		size = g.size(w)
	}
	form := forms(1) << (w.bits(30, 30)<<2 | size)
	for _, a := range g.list {
		if a.u == u && a.first <= op && op <= a.last && a.forms&form != 0 {
			return true
		}
	}
	return false
}
