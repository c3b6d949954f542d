package amd64

import "kerninst/agent/isa"

// Vector instructions: MMX and SSE behind 0f, AVX behind VEX; AVX-512, behind EVEX,
// is in evexforms.go. Vector, mask and tile registers are not tracked, so most rows say only
// whether the operand in memory is read or written; those that touch general
// registers or flags are listed one by one.

// opcodeSet has a bit for each opcode.
type opcodeSet [4]uint64

func (s *opcodeSet) has(op byte) bool { return s[op>>6]>>(op&63)&1 != 0 }

// runs makes a set from pairs of first and last opcodes.
func runs(pairs ...byte) (s opcodeSet) {
	for k := 0; k < len(pairs); k += 2 {
		for op := int(pairs[k]); op <= int(pairs[k+1]); op++ {
			s[op>>6] |= 1 << (op & 63)
		}
	}
	return s
}

// Opcodes that are vector instructions, by map (SDM volume 2, tables A-3 to
//
var (
	sseOpcodes = [4]opcodeSet{
		1: runs(0x10, 0x17, 0x28, 0x2f, 0x50, 0x76, 0x7c, 0x7f, 0xc2, 0xc2, 0xc4, 0xc6, 0xd0, 0xfe),
		2: runs(0x00, 0x0b, 0x10, 0x10, 0x14, 0x15, 0x17, 0x17, 0x1c, 0x1e, 0x20, 0x25, 0x28, 0x2b, 0x30, 0x41, 0xc8, 0xcd, 0xcf, 0xcf, 0xdb, 0xdf),
		3: runs(0x08, 0x0f, 0x14, 0x17, 0x20, 0x22, 0x40, 0x42, 0x44, 0x44, 0x60, 0x63, 0xcc, 0xcc, 0xce, 0xcf, 0xdf, 0xdf),
	}
	vexOpcodes = [4]opcodeSet{
		1: runs(0x10, 0x17, 0x28, 0x2f, 0x41, 0x42, 0x44, 0x47, 0x4a, 0x4b, 0x50, 0x77, 0x7c, 0x7f, 0x90, 0x93, 0x98, 0x99, 0xae, 0xae,
			0xc2, 0xc2, 0xc4, 0xc6, 0xd0, 0xfe),
		2: runs(0x00, 0x0f, 0x13, 0x13, 0x16, 0x1a, 0x1c, 0x1e, 0x20, 0x25, 0x28, 0x41, 0x45, 0x47, 0x49, 0x49, 0x4b, 0x4b, 0x50, 0x53, 0x58, 0x5a,
			0x5c, 0x5c, 0x5e, 0x5e, 0x78, 0x79, 0x8c, 0x8c, 0x8e, 0x8e, 0x90, 0x93, 0x96, 0x9f, 0xa6, 0xaf, 0xb0, 0xb1, 0xb4, 0xbf,
			0xcb, 0xcd, 0xcf, 0xcf, 0xd2, 0xd3, 0xda, 0xdf, 0xf2, 0xf3, 0xf5, 0xf7),
		3: runs(0x00, 0x02, 0x04, 0x06, 0x08, 0x0f, 0x14, 0x19, 0x1d, 0x1d, 0x20, 0x22, 0x30, 0x33, 0x38, 0x39, 0x40, 0x42, 0x44, 0x44, 0x46, 0x46,
			0x4a, 0x4c, 0x60, 0x63, 0xce, 0xcf, 0xdf, 0xdf, 0xf0, 0xf0),
	}
)

// vectorStores are the opcodes whose operand in memory is written.
var vectorStores = [4]opcodeSet{
	1: runs(0x11, 0x11, 0x13, 0x13, 0x17, 0x17, 0x29, 0x29, 0x2b, 0x2b, 0x7f, 0x7f, 0x91, 0x91, 0xd6, 0xd6, 0xe7, 0xe7),
	2: runs(0x2e, 0x2f, 0x8e, 0x8e),
	3: runs(0x19, 0x19, 0x1d, 0x1d, 0x39, 0x39),
}

// vectorIndexed are the opcodes whose address has a vector as its index.
var vectorIndexed = runs(0x90, 0x93)

// encoding bits say in which encodings a row holds.
const (
	inSSE = 1 << iota
	inVEX
	inAll = inSSE | inVEX
)

// vectorRows lists what touches general registers, flags, or memory in another
// way than its opcode says.
var vectorRows = []struct {
	m, op, prefix byte
	in            byte
	v             access // the register in vvvv, a general one
	row           row
}{
	{1, 0x16, pF3, inAll, no, row{e: vrd}},
	{1, 0x2a, pF3, inAll, no, row{e: rd}}, {1, 0x2a, pF2, inAll, no, row{e: rd}}, // cvtsi2ss
	{1, 0x2c, pF3, inAll, no, row{g: wr, e: vrd}}, {1, 0x2c, pF2, inAll, no, row{g: wr, e: vrd}},
	{1, 0x2d, pF3, inAll, no, row{g: wr, e: vrd}}, {1, 0x2d, pF2, inAll, no, row{g: wr, e: vrd}},
	{1, 0x2e, pAny, inAll, no, row{e: vrd, flags: fW}}, {1, 0x2f, pAny, inAll, no, row{e: vrd, flags: fW}}, // comiss
	{1, 0x50, pAny, inAll, no, row{g: wr, e: vrd}},                                 // movmskps
	{1, 0x6e, pAny, inAll, no, row{e: rd}},                                         // movd to
	{1, 0x7e, pF3, inAll, no, row{e: vrd}}, {1, 0x7e, pAny, inAll, no, row{e: wr}}, // movq, movd from
	{1, 0x92, pAny, inVEX, no, row{e: rd}}, {1, 0x93, pAny, inVEX, no, row{g: wr}}, // kmov
	{1, 0x98, pAny, inVEX, no, row{e: vrd, flags: fW}}, {1, 0x99, pAny, inVEX, no, row{e: vrd, flags: fW}}, // kortest, ktest
	{1, 0xc4, pAny, inAll, no, row{e: rd}}, {1, 0xc5, pAny, inAll, no, row{g: wr, e: vrd}}, // pinsrw, pextrw
	{1, 0xd7, pAny, inAll, no, row{g: wr, e: vrd}},                                                       // pmovmskb
	{1, 0xf7, pAny, inAll, no, row{e: vrd, reads: rdi, traits: stor}},                                    // maskmovdqu
	{2, 0x0e, p66, inVEX, no, row{e: vrd, flags: fW}}, {2, 0x0f, p66, inVEX, no, row{e: vrd, flags: fW}}, // vtestps
	{2, 0x17, p66, inAll, no, row{e: vrd, flags: fW}},                              // ptest
	{2, 0x49, p66, inVEX, no, row{e: vwr}}, {2, 0x4b, pF3, inVEX, no, row{e: vwr}}, // sttilecfg, tilestored
	{2, 0xf2, pNone, inVEX, rd, row{g: wr, e: rd, flags: fC}},                                  // andn
	{2, 0xf3, pNone, inVEX, wr, row{e: rd, flags: fC}},                                         // blsr, blsmsk, blsi
	{2, 0xf5, pNone, inVEX, rd, row{g: wr, e: rd, flags: fC}},                                  // bzhi
	{2, 0xf5, pF3, inVEX, rd, row{g: wr, e: rd}}, {2, 0xf5, pF2, inVEX, rd, row{g: wr, e: rd}}, // pext, pdep
	{2, 0xf6, pF2, inVEX, wr, row{g: wr, e: rd, reads: rdx}},                     // mulx
	{2, 0xf7, pNone, inVEX, rd, row{g: wr, e: rd, flags: fC}},                    // bextr
	{2, 0xf7, pAny, inVEX, rd, row{g: wr, e: rd}},                                // shlx, sarx, shrx
	{3, 0x14, p66, inAll, no, row{e: wr}}, {3, 0x15, p66, inAll, no, row{e: wr}}, // pextrb, pextrw
	{3, 0x16, p66, inAll, no, row{e: wr}}, {3, 0x17, p66, inAll, no, row{e: wr}}, // pextrd, extractps
	{3, 0x20, p66, inAll, no, row{e: rd}}, {3, 0x22, p66, inAll, no, row{e: rd}}, // pinsrb, pinsrd
	{3, 0x60, p66, inAll, no, row{e: vrd, reads: rax | rdx, flags: fW}}, // pcmpestrm
	{3, 0x61, p66, inAll, no, row{e: vrd, reads: rax | rdx, writes: rcx, flags: fW}},
	{3, 0x62, p66, inAll, no, row{e: vrd, flags: fW}},
	{3, 0x63, p66, inAll, no, row{e: vrd, writes: rcx, flags: fW}},
	{3, 0xf0, pF2, inVEX, no, row{g: wr, e: rd}}, // rorx
}

// general are the opcodes whose operands are all general registers or memory.
var general = [4]opcodeSet{2: runs(0xf2, 0xf3, 0xf5, 0xf7), 3: runs(0xf0, 0xf0)}

// special marks the opcodes that have an entry in vectorRows.
var special [4]opcodeSet

var vectorLoad, vectorStore = row{known: true, modrm: true, e: vrd, traits: isa.Vector}, row{known: true, modrm: true, e: vwr, traits: isa.Vector}

func init() {
	for k := range vectorRows {
		x := &vectorRows[k]
		x.row.known, x.row.modrm = true, true
		if !general[x.m].has(x.op) {
			x.row.traits |= isa.Vector
		}
		special[x.m][x.op>>6] |= 1 << (x.op & 63)
	}
}

// vectorRow describes a vector instruction whose operands have been read; vvvv
// is its third register.
func (d *insn) vectorRow(m, op, prefix, in byte, vvvv isa.Reg) (*row, bool) {
	d.opsize16 = false // it was no operand size
	if !d.vectorForm(m, op, prefix, in) {
		return nil, false
	}
	if in == inVEX && m == 1 && op == 0xae && d.modrm>>3&7 == 3 { // vstmxcsr
		return &vectorStore, true
	}
	if special[m].has(op) {
		for k := range vectorRows {
			x := &vectorRows[k]
			if x.m != m || x.op != op || x.in&in == 0 || x.prefix != prefix && x.prefix != pAny {
				continue
			}
			if x.v == no && general[m].has(op) && vvvv != 0 {
				return nil, false
			}
			switch x.v {
			case rd:
				d.also.Reads = isa.Set(vvvv)
			case wr:
				d.also.Writes = isa.Set(vvvv)
			}
			return &x.row, true
		}
		if general[m].has(op) {
			return nil, false
		}
	}
	if vectorStores[m].has(op) {
		return &vectorStore, true
	}
	return &vectorLoad, true
}

// vex consumes an instruction behind VEX.
//
//	VEX2  c5 | RvvvvLpp                    map 1
//	VEX3  c4 | RXBmmmmm | WvvvvLpp         map in mmmmm
//
// R, X, B and vvvv are stored inverted (SDM 2.3.5).
func (d *insn) vex(op byte) (*row, bool) {
	void := d.voided()
	m, last := byte(1), byte(0)
	if op == 0xc5 {
		last = d.next()
		d.rex = 0x40 | ^last>>5&4
	} else {
		first := d.next()
		last = d.next()
		m, d.rex = first&0x1f, 0x40|^first>>5&7|last>>4&8
	}
	c := d.next()
	if m == 1 && c == 0x77 { // vzeroupper, vzeroall
		return &row77, !void && last&3 == pNone && last&0x78 == 0x78
	}
	if d.indexed = m == 2 && vectorIndexed.has(c); d.indexed {
		void = void || d.peek()&7 != 4 || d.peek() >= 0xc0
	}
	if !d.vectorOperands(m, c) {
		return nil, false
	}
	if reg := d.modrm >> 3 & 7; m == 2 && c == 0xf3 && (reg == 0 || reg > 3) { // blsr, blsmsk, blsi
		void = true
	}
	if general[m].has(c) && last&4 != 0 { // scalar: L is 0
		void = true
	}
	if void || !vexOpcodes[m].has(c) || !d.vexFields(m, c, last) {
		return nil, false
	}
	return d.vectorRow(m, c, last&3, inVEX, isa.Reg(^last>>3&15))
}

// voided says whether a prefix stands before VEX or EVEX that makes them #UD. So does
// lock, as before most instructions.
func (d *insn) voided() bool { return d.rex != 0 || d.rep || d.repne || d.opsize16 }

// vectorOperands consumes what follows the opcode behind VEX and EVEX. In maps other
// than the three of SSE, not even the length is known.
func (d *insn) vectorOperands(m, op byte) bool {
	if m == 0 || m > 3 {
		d.n = 1
		return false
	}
	d.operand()
	if m == 3 || m == 1 && twoByte[op].imm == i8 {
		d.skip(1)
	}
	return true
}

var row77 = row{known: true, traits: isa.Vector}
