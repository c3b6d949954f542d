package riscv64

import "kerninst/agent/isa"

// small is the register in a three-bit field: x8 to x15.
func (w word) small(hi, lo uint) isa.RegSet { return reg(8 + w.bits(hi, lo)) }

// compressed is the three quadrants of the C extension, by bits 1:0.
var compressed = [3]func(word, *isa.Insn) bool{quadrant0, quadrant1, quadrant2}

const sp = isa.RegSet(1) << SP

// loads and stores are the traits of an access to memory.
const (
	loads  = isa.Load | isa.MayFault
	stores = isa.Store | isa.MayFault
)

// quadrant0: c.addi4spn, loads and stores.
//
//	15 13 12 10 9   7 6 5 4   2 1 0
//	funct | imm | rs1' | imm| rd' | 0
func quadrant0(w word, i *isa.Insn) bool {
	base, data := w.small(9, 7), w.small(4, 2)
	switch w.bits(15, 13) {
	case 0: // c.addi4spn; all zero is the defined illegal instruction
		i.Reads, i.Writes = sp, data
		if w == 0 {
			*i = isa.Insn{Addr: i.Addr, Len: 2, Flow: isa.FlowTrap}
			return true
		}
		return w.bits(12, 5) != 0
	case 1: // c.fld
		i.Reads, i.Traits = base, loads|isa.Vector
	case 2, 3: // c.lw, c.ld
		i.Reads, i.Writes, i.Traits = base, data, loads
	case 5: // c.fsd
		i.Reads, i.Traits = base, stores|isa.Vector
	case 6, 7: // c.sw, c.sd
		i.Reads, i.Traits = base|data, stores
	default:
		return zcb(w, i)
	}
	return true
}

// zcb: byte and halfword loads and stores; bits 12:10 choose.
func zcb(w word, i *isa.Insn) bool {
	base, data := w.small(9, 7), w.small(4, 2)
	switch w.bits(12, 10) {
	case 0, 1: // c.lbu, c.lhu, c.lh
		i.Reads, i.Writes, i.Traits = base, data, loads
		return true
	case 2: // c.sb
		i.Reads, i.Traits = base|data, stores
		return true
	case 3: // c.sh
		i.Reads, i.Traits = base|data, stores
		return w.bits(6, 6) == 0
	}
	return false
}

// quadrant1: immediates, arithmetic on x8–x15, jumps.
func quadrant1(w word, i *isa.Insn) bool {
	rd := reg(w.bits(11, 7))
	imm := w.at(12, 12, 5) | w.bits(6, 2)
	switch w.bits(15, 13) {
	case 0: // c.addi, c.nop
		i.Reads, i.Writes = rd, rd
	case 1: // c.addiw
		i.Reads, i.Writes = rd, rd
		return w.bits(11, 7) != 0
	case 2: // c.li
		i.Writes = rd
	case 3: // c.addi16sp, c.lui
		i.Writes = rd
		if w.bits(11, 7) == uint32(SP) {
			i.Reads = sp
		}
		return imm != 0
	case 4:
		return arithmetic(w, i)
	case 5: // c.j
		i.Flow, i.Traits = isa.FlowJump, isa.PCRel
		i.Target = i.Addr + isa.Addr(w.immCJ())
	case 6, 7: // c.beqz, c.bnez
		i.Flow, i.Traits, i.Reads = isa.FlowCond, isa.PCRel, w.small(9, 7)
		i.Target = i.Addr + isa.Addr(w.immCB())
	}
	return true
}

// arithmetic: bits 11:10 choose c.srli, c.srai, c.andi, or two registers.
func arithmetic(w word, i *isa.Insn) bool {
	rd := w.small(9, 7)
	i.Reads, i.Writes = rd, rd
	if w.bits(11, 10) != 3 {
		return true
	}
	switch w.at(12, 12, 2) | w.bits(6, 5) {
	case 0, 1, 2, 3, 4, 5, 6: // c.sub xor or and subw addw mul
		i.Reads |= w.small(4, 2)
		return true
	}
	return w.bits(4, 2) <= 5 // Zcb: zext.b … not
}

// quadrant2: shifts, stack accesses, moves, indirect jumps.
func quadrant2(w word, i *isa.Insn) bool {
	rd, rs2 := reg(w.bits(11, 7)), reg(w.bits(6, 2))
	switch w.bits(15, 13) {
	case 0: // c.slli
		i.Reads, i.Writes = rd, rd
	case 1: // c.fldsp
		i.Reads, i.Traits = sp, loads|isa.Vector
	case 2, 3: // c.lwsp, c.ldsp
		i.Reads, i.Writes, i.Traits = sp, rd, loads
		return rd != 0
	case 4:
		return moveOrJump(w, i)
	case 5: // c.fsdsp
		i.Reads, i.Traits = sp, stores|isa.Vector
	case 6, 7: // c.swsp, c.sdsp
		i.Reads, i.Traits = sp|rs2, stores
	}
	return true
}

// moveOrJump: c.jr, c.mv, c.ebreak, c.jalr, c.add by bit 12 and the registers.
func moveOrJump(w word, i *isa.Insn) bool {
	r1, r2 := w.bits(11, 7), w.bits(6, 2)
	link := w.bits(12, 12)
	switch {
	case r2 != 0 && link == 0: // c.mv
		i.Reads, i.Writes = reg(r2), reg(r1)
	case r2 != 0: // c.add
		i.Reads, i.Writes = reg(r1)|reg(r2), reg(r1)
	case r1 == 0 && link == 1: // c.ebreak
		i.Flow = isa.FlowTrap
	case r1 == 0:
		return false
	default: // c.jr, c.jalr
		i.Reads = reg(r1)
		i.Flow = indirect(link, r1, 0)
		if link == 1 {
			i.Writes = reg(uint32(RA))
		}
	}
	return true
}
