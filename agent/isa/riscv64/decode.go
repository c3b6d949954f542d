package riscv64

import (
	"slices"

	"kerninst/agent/isa"
)

// word is one instruction of 16 or 32 bits.
type word uint32

// bits returns the field hi:lo.
func (w word) bits(hi, lo uint) uint32 { return uint32(w) >> lo & (1<<(hi-lo+1) - 1) }

// at places the field hi:lo at bit to, for immediates that are scattered.
func (w word) at(hi, lo, to uint) uint32 { return w.bits(hi, lo) << to }

// signed extends the low n bits of v.
func signed(v uint32, n uint) int64 { return int64(uint64(v)<<(64-n)) >> (64 - n) }

// reg is the set of register n; none for x0.
func reg(n uint32) isa.RegSet { return isa.RegSet(1) << n &^ 1 }

func (w word) rd() isa.RegSet  { return reg(w.bits(11, 7)) }
func (w word) rs1() isa.RegSet { return reg(w.bits(19, 15)) }
func (w word) rs2() isa.RegSet { return reg(w.bits(24, 20)) }

// immB is the displacement of a branch:
//
//	31 | 30  25 | 24 .. 12 | 11  8 | 7  | 6..0
//	12 | 10 : 5 |          | 4 : 1 | 11 |
func (w word) immB() int64 {
	return signed(w.at(31, 31, 12)|w.at(30, 25, 5)|w.at(11, 8, 1)|w.at(7, 7, 11), 13)
}

// immJ is the displacement of jal:
//
//	31 | 30  21 | 20 | 19   12 | 11..0
//	20 | 10 : 1 | 11 | 19 : 12 |
func (w word) immJ() int64 {
	return signed(w.at(31, 31, 20)|w.at(30, 21, 1)|w.at(20, 20, 11)|w.at(19, 12, 12), 21)
}

func (w word) immI() int64 { return signed(w.bits(31, 20), 12) }
func (w word) immU() int64 { return int64(int32(w & 0xfffff000)) }

// immCJ is the displacement of c.j:
//
//	12 | 11 | 10 9 | 8  | 7 | 6 | 5 3 | 2
//	11 | 4  | 9:8  | 10 | 6 | 7 | 3:1 | 5
func (w word) immCJ() int64 {
	return signed(w.at(12, 12, 11)|w.at(11, 11, 4)|w.at(10, 9, 8)|w.at(8, 8, 10)|
		w.at(7, 7, 6)|w.at(6, 6, 7)|w.at(5, 3, 1)|w.at(2, 2, 5), 12)
}

// immCB is the displacement of c.beqz and c.bnez:
//
//	12 | 11 10 | 6 5 | 4 3 | 2
//	8  | 4:3   | 7:6 | 2:1 | 5
func (w word) immCB() int64 {
	return signed(w.at(12, 12, 8)|w.at(11, 10, 3)|w.at(6, 5, 6)|w.at(4, 3, 1)|w.at(2, 2, 5), 9)
}

// Decode reads one instruction; see isa.Arch.
func Decode(b []byte, a isa.Addr) isa.Insn {
	if len(b) < 2 {
		return isa.Unknown(a, 2, all)
	}
	half := word(isa.ByteOrder.Uint16(b))
	i := isa.Insn{Addr: a, Len: 2, Flow: isa.FlowNone}
	switch {
	case half&3 != 3:
		if !compressed[half&3](half, &i) {
			return isa.Unknown(a, 2, all)
		}
		return i
	case half&0x1f == 0x1f || len(b) < 4: // longer than 32 bits, or cut off
		return isa.Unknown(a, 2, all)
	}
	w := word(isa.ByteOrder.Uint32(b))
	i.Len = 4
	if f := opcodes[w.bits(6, 2)]; f == nil || !f(w, &i) {
		return isa.Unknown(a, 4, all)
	}
	return i
}

// opcodes is the base opcode map, by bits 6:2 (manual, table of opcodes).
var opcodes = [32]func(word, *isa.Insn) bool{
	0x00: load,
	0x01: loadFP,
	0x03: fence,
	0x04: opImm,
	0x05: upper, // auipc
	0x06: opImm32,
	0x08: store,
	0x09: storeFP,
	0x0b: atomic,
	0x0c: op,
	0x0d: upper, // lui
	0x0e: op32,
	0x10: fused, 0x11: fused, 0x12: fused, 0x13: fused,
	0x14: float,
	0x15: vector,
	0x18: branch,
	0x19: jalr,
	0x1b: jal,
	0x1c: system,
	0x1d: vectorCrypto,
}

func load(w word, i *isa.Insn) bool {
	i.Reads, i.Writes, i.Traits = w.rs1(), w.rd(), isa.Load|isa.MayFault
	return w.bits(14, 12) != 7
}

func store(w word, i *isa.Insn) bool {
	i.Reads, i.Traits = w.rs1()|w.rs2(), isa.Store|isa.MayFault
	return w.bits(14, 12) <= 3
}

// loadFP and storeFP: widths 1 to 4 are scalar, the others vector.
func loadFP(w word, i *isa.Insn) bool  { return memoryFP(w, i, isa.Load) }
func storeFP(w word, i *isa.Insn) bool { return memoryFP(w, i, isa.Store) }

func memoryFP(w word, i *isa.Insn, dir isa.Traits) bool {
	i.Reads, i.Traits = w.rs1(), dir|isa.MayFault|isa.Vector
	switch w.bits(14, 12) {
	case 2, 3: // 32 and 64 bits
		return true
	case 0, 5, 6, 7:
		return vectorMemory(w, i)
	}
	return false
}

func fence(w word, i *isa.Insn) bool {
	switch w.bits(14, 12) {
	case 0:
		i.Traits = isa.Serialising
		return true
	case 1: // fence.i
		i.Traits = isa.Privileged | isa.Serialising
		return true
	case 2: // cbo.inval, clean, flush, zero
		i.Reads, i.Traits = w.rs1(), isa.Privileged|isa.Store|isa.MayFault
		op := w.bits(31, 20)
		return w.bits(11, 7) == 0 && (op <= 2 || op == 4)
	}
	return false
}

func upper(w word, i *isa.Insn) bool {
	i.Writes = w.rd()
	if w.bits(6, 2) == 0x05 {
		i.Traits = isa.PCRel
	}
	return true
}

// opImm: shifts have a function code in the upper immediate bits.
func opImm(w word, i *isa.Insn) bool {
	i.Reads, i.Writes = w.rs1(), w.rd()
	switch w.bits(14, 12) {
	case 1:
		return shiftLeftImm(w)
	case 5:
		switch w.bits(31, 26) {
		case 0x00, 0x10, 0x12, 0x18: // srli, srai, bexti, rori
			return true
		}
		top := w.bits(31, 20)
		return top == 0x6b8 || top == 0x287 // rev8, orc.b
	}
	return true
}

func shiftLeftImm(w word) bool {
	switch w.bits(31, 26) {
	case 0x00, 0x0a, 0x12, 0x1a: // slli, bseti, bclri, binvi
		return true
	}
	switch w.bits(31, 20) {
	case 0x600, 0x601, 0x602, 0x604, 0x605: // clz, ctz, cpop, sext.b, sext.h
		return true
	}
	return false
}

func opImm32(w word, i *isa.Insn) bool {
	i.Reads, i.Writes = w.rs1(), w.rd()
	switch w.bits(14, 12) {
	case 0:
		return true
	case 1:
		top := w.bits(31, 20)
		return w.bits(31, 25) == 0 || w.bits(31, 26) == 2 || top >= 0x600 && top <= 0x602 // slli.uw, clzw…
	case 5:
		f := w.bits(31, 25)
		return f == 0 || f == 0x20 || f == 0x30 // roriw
	}
	return false
}

// opFuncs lists funct7 of register operations; the value has a bit for each
// funct3 that exists.
var opFuncs = [128]uint8{
	0x00: 0xff,
	0x01: 0xff,                             // M
	0x20: 1<<0 | 1<<4 | 1<<5 | 1<<6 | 1<<7, // sub xnor sra orn andn
	0x05: 0xfe,                             // clmul clmulr clmulh, min minu max maxu
	0x07: 1<<5 | 1<<7,                      // czero
	0x10: 1<<2 | 1<<4 | 1<<6,               // sh1add…
	0x14: 1 << 1,                           // bset
	0x24: 1<<1 | 1<<5,                      // bclr bext
	0x34: 1 << 1,                           // binv
	0x30: 1<<1 | 1<<5,                      // rol ror
}

var op32Funcs = [128]uint8{
	0x00: 1<<0 | 1<<1 | 1<<5,
	0x01: 1<<0 | 1<<4 | 1<<5 | 1<<6 | 1<<7,
	0x20: 1<<0 | 1<<5,
	0x04: 1<<0 | 1<<4, // add.uw zext.h
	0x10: 1<<2 | 1<<4 | 1<<6,
	0x30: 1<<1 | 1<<5,
}

func op(w word, i *isa.Insn) bool {
	i.Reads, i.Writes = w.rs1()|w.rs2(), w.rd()
	return opFuncs[w.bits(31, 25)]>>w.bits(14, 12)&1 != 0
}

func op32(w word, i *isa.Insn) bool {
	i.Reads, i.Writes = w.rs1()|w.rs2(), w.rd()
	if w.bits(31, 25) == 4 && w.bits(14, 12) == 4 && w.bits(24, 20) != 0 {
		return false // zext.h has no second source
	}
	return op32Funcs[w.bits(31, 25)]>>w.bits(14, 12)&1 != 0
}

// atomic: funct5 in bits 31:27; 2 and 3 are lr and sc.
func atomic(w word, i *isa.Insn) bool {
	i.Reads, i.Writes, i.Traits = w.rs1()|w.rs2(), w.rd(), isa.Mem|isa.MayFault
	if width := w.bits(14, 12); width != 2 && width != 3 {
		return false
	}
	switch w.bits(31, 27) {
	case 0x02:
		i.Traits = isa.Load | isa.MayFault | isa.Exclusive | isa.Opens
		return w.bits(24, 20) == 0
	case 0x03:
		i.Traits = isa.Store | isa.MayFault | isa.Exclusive
		return true
	case 0x00, 0x01, 0x04, 0x08, 0x0c, 0x10, 0x14, 0x18, 0x1c:
		return true
	case 0x05: // amocas also reads rd
		i.Reads |= w.rd()
		return true
	}
	return false
}

func branch(w word, i *isa.Insn) bool {
	i.Flow, i.Traits, i.Reads = isa.FlowCond, isa.PCRel, w.rs1()|w.rs2()
	i.Target = i.Addr + isa.Addr(w.immB())
	f := w.bits(14, 12)
	return f != 2 && f != 3
}

// jal links into any register; the ABI makes ra and t0 calls (manual, hints of
// the return-address stack).
func jal(w word, i *isa.Insn) bool {
	i.Flow, i.Traits, i.Writes = isa.FlowCall, isa.PCRel, w.rd()
	if w.bits(11, 7) == 0 {
		i.Flow = isa.FlowJump
	}
	i.Target = i.Addr + isa.Addr(w.immJ())
	return true
}

func jalr(w word, i *isa.Insn) bool {
	i.Reads, i.Writes = w.rs1(), w.rd()
	i.Flow = indirect(w.bits(11, 7), w.bits(19, 15), w.immI())
	return w.bits(14, 12) == 0
}

func indirect(rd, rs1 uint32, imm int64) isa.Flow {
	switch {
	case rd != 0:
		return isa.FlowIndirectCall
	case rs1 == uint32(RA) && imm == 0:
		return isa.FlowReturn
	}
	return isa.FlowIndirectJump
}

// system: environment calls and returns, supervisor fences, CSR accesses.
func system(w word, i *isa.Insn) bool {
	i.Traits = isa.Privileged
	f := w.bits(14, 12)
	switch {
	case f == 4:
		return hypervisorAccess(w, i)
	case f != 0:
		return csr(w, i)
	}
	switch w {
	case 0x00000073, 0x00100073: // ecall, ebreak
		i.Flow, i.Traits = isa.FlowTrap, 0
		return true
	case 0x10200073, 0x30200073: // sret, mret
		i.Flow = isa.FlowTrap
		return true
	case 0x10500073, 0x00d00073, 0x01d00073: // wfi, wrs.nto, wrs.sto
		return true
	}
	switch w.bits(31, 25) {
	case 0x09, 0x0b, 0x11, 0x13, 0x31, 0x33: // sfence.vma, sinval.vma, hfence.*, hinval.*
		i.Reads = w.rs1() | w.rs2()
		i.Traits |= isa.Serialising
		return w.bits(11, 7) == 0
	case 0x0c: // sfence.w.inval, sfence.inval.ir
		i.Traits |= isa.Serialising
		return w.bits(24, 20) <= 1 && w.bits(19, 7) == 0
	}
	return false
}

// vectorCSRs are those of floating point and vectors: fflags, frm, fcsr; vstart,
// vxsat, vxrm, vcsr; vl, vtype, vlenb.
var vectorCSRs = []uint32{0x001, 0x002, 0x003, 0x008, 0x009, 0x00a, 0x00f, 0xc20, 0xc21, 0xc22}

// csr: csrrw, csrrs, csrrc, and the same with a constant for rs1. One that writes is
// illegal where bits 11:10 of the number say that it is only read (manual, CSR
// listing); csrrs and csrrc of x0, or of 0, do not write.
func csr(w word, i *isa.Insn) bool {
	f, n := w.bits(14, 12), w.bits(31, 20)
	i.Writes = w.rd()
	if f < 4 {
		i.Reads = w.rs1()
	}
	if slices.Contains(vectorCSRs, n) {
		i.Traits |= isa.Vector
	}
	if w == 0xc0001073 { // csrrw x0, cycle, x0: unimp
		*i = isa.Insn{Addr: i.Addr, Len: i.Len, Flow: isa.FlowTrap}
		return true
	}
	writes := f&3 == 1 || w.bits(19, 15) != 0
	return n>>10 != 3 || !writes
}

// hypervisorAccess: hlv, hlvx and hsv reach a guest's memory. Even funct7 are
// loads, by width in bits 26:27; bits 24:20 choose signedness and hlvx.
func hypervisorAccess(w word, i *isa.Insn) bool {
	f := w.bits(31, 25)
	if f < 0x30 || f > 0x37 {
		return false
	}
	i.Reads = w.rs1()
	if f&1 != 0 {
		i.Reads |= w.rs2()
		i.Traits |= isa.Store | isa.MayFault
		return w.bits(11, 7) == 0
	}
	i.Writes = w.rd()
	i.Traits |= isa.Load | isa.MayFault
	// Signed, unsigned, executable; bytes cannot be executable, 64 bits have one form.
	forms := [4]uint32{1<<0 | 1<<1, 1<<0 | 1<<1 | 1<<3, 1<<0 | 1<<1 | 1<<3, 1 << 0}
	return forms[(f-0x30)/2]>>w.bits(24, 20)&1 != 0
}
