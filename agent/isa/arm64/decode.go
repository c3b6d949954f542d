package arm64

import (
	"math/bits"

	"kerninst/agent/isa"
)

// word is one instruction.
type word uint32

// bits returns the field hi:lo.
func (w word) bits(hi, lo uint) uint32 { return uint32(w) >> lo & (1<<(hi-lo+1) - 1) }

// bit returns one bit.
func (w word) bit(n uint) bool { return w>>n&1 != 0 }

// signed returns the field hi:lo as a signed number.
func (w word) signed(hi, lo uint) int64 {
	n := hi - lo + 1
	return int64(uint64(w.bits(hi, lo))<<(64-n)) >> (64 - n)
}

// gpr is the register in the five bits from lo, where 31 is the zero register.
func (w word) gpr(lo uint) isa.RegSet {
	if r := w.bits(lo+4, lo); r != 31 {
		return 1 << r
	}
	return 0
}

// gprSP is the register in the five bits from lo, where 31 is SP.
func (w word) gprSP(lo uint) isa.RegSet { return 1 << w.bits(lo+4, lo) }

// The usual places of register fields.
const (
	rd  = 0
	rn  = 5
	ra  = 10
	rt2 = 10
	rm  = 16
	rs  = 16
)

const flags = isa.RegSet(1) << Flags

// Decode reads one instruction; see isa.Arch.
func Decode(b []byte, a isa.Addr) isa.Insn {
	if len(b) < 4 {
		return isa.Unknown(a, 4, all)
	}
	w := word(isa.ByteOrder.Uint32(b))
	i := isa.Insn{Addr: a, Len: 4, Flow: isa.FlowNone}
	if group := groups[w.bits(28, 25)]; group == nil || !group(w, &i) {
		return isa.Unknown(a, 4, all)
	}
	return i
}

// groups is the top level of the encoding, by bits 28:25 (Arm ARM C4.1). A
// group returns false for what it does not describe.
var groups = [16]func(word, *isa.Insn) bool{
	0b0000: reserved,
	0b1000: dataImmediate, 0b1001: dataImmediate,
	0b1010: branchSystem, 0b1011: branchSystem,
	0b0100: loadStore, 0b0110: loadStore, 0b1100: loadStore, 0b1110: loadStore,
	0b0101: dataRegister, 0b1101: dataRegister,
	0b0111: simd, 0b1111: simd,
	0b0010: scalable,
}

func reserved(w word, i *isa.Insn) bool {
	if w.bit(31) {
		return scalable(w, i)
	}
	i.Flow = isa.FlowTrap
	return w>>16 == 0 // udf
}

// dataImmediate: bits 25:23 choose (C4.1.93).
func dataImmediate(w word, i *isa.Insn) bool {
	sf := w.bit(31)
	switch w.bits(25, 23) {
	case 0, 1: // adr, adrp
		i.Writes = w.gpr(rd)
		i.Traits = isa.PCRel
		return true
	case 2: // add, sub
		i.Reads = w.gprSP(rn)
		if w.bit(29) {
			i.Writes = w.gpr(rd) | flags
		} else {
			i.Writes = w.gprSP(rd)
		}
		return true
	case 4: // and, orr, eor, ands
		i.Reads = w.gpr(rn)
		if w.bits(30, 29) == 3 {
			i.Writes = w.gpr(rd) | flags
		} else {
			i.Writes = w.gprSP(rd)
		}
		return (sf || !w.bit(22)) && bitmask(w)
	case 5: // movn, movz, movk
		i.Writes = w.gpr(rd)
		if w.bits(30, 29) == 3 {
			i.Reads = w.gpr(rd)
		}
		return w.bits(30, 29) != 1 && (sf || !w.bit(22))
	case 6: // sbfm, bfm, ubfm
		i.Reads, i.Writes = w.gpr(rn), w.gpr(rd)
		if w.bits(30, 29) == 1 {
			i.Reads |= w.gpr(rd)
		}
		narrow := sf || !w.bit(21) && !w.bit(15)
		return w.bits(30, 29) != 3 && w.bit(22) == sf && narrow
	case 7: // extr
		i.Reads, i.Writes = w.gpr(rn)|w.gpr(rm), w.gpr(rd)
		return w.bits(30, 29) == 0 && !w.bit(21) && w.bit(22) == sf && (sf || !w.bit(15))
	}
	return false // memory tagging
}

// bitmask says whether N:immr:imms (bits 22, 21:16, 15:10) is a bit mask: a run of
// ones, neither none nor all, in an element whose size is the highest bit of
// N:NOT(imms) (DecodeBitMasks).
func bitmask(w word) bool {
	size := bits.Len32(w.bits(22, 22)<<6 | ^w.bits(15, 10)&0x3f)
	if size < 2 {
		return false
	}
	levels := uint32(1)<<(size-1) - 1
	return w.bits(15, 10)&levels != levels
}

// branchSystem: bits 31:25 choose (C4.1.94).
func branchSystem(w word, i *isa.Insn) bool {
	target := func(hi, lo uint) {
		i.Target = i.Addr + isa.Addr(w.signed(hi, lo)*4)
		i.Traits = isa.PCRel
	}
	switch {
	case w.bits(30, 26) == 0b00101: // b, bl
		i.Flow = isa.FlowJump
		if w.bit(31) {
			i.Flow, i.Writes = isa.FlowCall, 1<<LR
		}
		target(25, 0)
		return true
	case w.bits(30, 25) == 0b011010: // cbz, cbnz
		i.Flow, i.Reads = isa.FlowCond, w.gpr(rd)
		target(23, 5)
		return true
	case w.bits(30, 25) == 0b011011: // tbz, tbnz
		i.Flow, i.Reads = isa.FlowCond, w.gpr(rd)
		target(18, 5)
		return true
	case w.bits(31, 24) == 0b01010100 && !w.bit(4): // b.cond
		i.Flow, i.Reads = isa.FlowCond, flags
		target(23, 5)
		return true
	case w.bits(31, 24) == 0b11010100:
		return exception(w, i)
	case w.bits(31, 22) == 0b1101010100:
		return system(w, i)
	case w.bits(31, 25) == 0b1101011:
		return branchRegister(w, i)
	}
	return false
}

// exception: svc, hvc, smc, brk, hlt; bits 23:21 opc, 4:2 zero, 1:0 level.
func exception(w word, i *isa.Insn) bool {
	i.Flow = isa.FlowTrap
	ll := w.bits(1, 0)
	switch w.bits(23, 21) {
	case 0:
		return w.bits(4, 2) == 0 && ll != 0
	case 1, 2:
		return w.bits(4, 0) == 0
	}
	return false
}

// branchRegister: br, blr, ret, eret and their authenticating forms.
//
//	31      25 24  21 20   16 15    10 9  5 4  0
//	1101011  | opc  | 11111 | op3    | Rn | op4
func branchRegister(w word, i *isa.Insn) bool {
	if w.bits(20, 16) != 31 {
		return false
	}
	auth := w.bits(15, 10) // 0 none, 2 key A, 3 key B
	if auth == 1 || auth > 3 {
		return false
	}
	i.Reads = w.gpr(rn)
	switch opc := w.bits(24, 21); {
	case opc == 0:
		i.Flow = isa.FlowIndirectJump
	case opc == 1:
		i.Flow, i.Writes = isa.FlowIndirectCall, 1<<LR
	case opc == 2 && auth == 0:
		i.Flow = isa.FlowReturn
		if w.bits(9, 5) != uint32(LR) {
			i.Flow = isa.FlowIndirectJump
		}
	case opc == 2 && w.bits(9, 0) == 0x3ff: // retaa, retab
		i.Flow, i.Reads = isa.FlowReturn, 1<<LR|1<<SP
		return true
	case opc == 4 && w.bits(9, 5) == 31:
		i.Flow, i.Traits = isa.FlowTrap, isa.Privileged|isa.Serialising // eret
		return true
	case opc == 8 && auth != 0:
		i.Flow, i.Reads = isa.FlowIndirectJump, w.gpr(rn)|w.gprSP(rd)
		return true
	case opc == 9 && auth != 0:
		i.Flow, i.Reads, i.Writes = isa.FlowIndirectCall, w.gpr(rn)|w.gprSP(rd), 1<<LR
		return true
	default:
		return false
	}
	if auth != 0 { // zero modifier
		return opcIsJump(w) && w.bits(4, 0) == 31
	}
	return w.bits(4, 0) == 0
}

func opcIsJump(w word) bool { return w.bits(24, 21) < 2 }

// hint describes one instruction of the hint space, by CRm:op2.
type hint struct {
	reads, writes isa.RegSet
	traits        isa.Traits
}

// hints lists those that are known; the rest of the space is refused, since
// new architectures give hints effects.
var hints = [128]hint{
	0:  {},                        // nop
	1:  {},                        // yield
	2:  {traits: isa.Privileged},  // wfe
	3:  {traits: isa.Privileged},  // wfi
	4:  {traits: isa.Privileged},  // sev
	5:  {traits: isa.Privileged},  // sevl
	6:  {},                        // dgh
	7:  {reads: x30, writes: x30}, // xpaclri
	8:  {reads: x17 | x16, writes: x17},
	10: {reads: x17 | x16, writes: x17},
	12: {reads: x17 | x16, writes: x17, traits: isa.MayFault}, // authenticates
	14: {reads: x17 | x16, writes: x17, traits: isa.MayFault}, // authenticates
	16: {traits: isa.Privileged | isa.Serialising},            // esb
	17: {traits: isa.Privileged | isa.Serialising},            // psb csync
	18: {traits: isa.Privileged | isa.Serialising},            // tsb csync
	20: {traits: isa.Serialising},                             // csdb
	22: {traits: isa.Privileged},                              // clrbhb
	24: {reads: x30, writes: x30, traits: isa.Landing},
	25: {reads: x30 | sp, writes: x30, traits: isa.Landing}, // paciasp
	26: {reads: x30, writes: x30, traits: isa.Landing},
	27: {reads: x30 | sp, writes: x30, traits: isa.Landing}, // pacibsp
	28: {reads: x30, writes: x30, traits: isa.MayFault},
	29: {reads: x30 | sp, writes: x30, traits: isa.MayFault}, // autiasp
	30: {reads: x30, writes: x30, traits: isa.MayFault},
	31: {reads: x30 | sp, writes: x30, traits: isa.MayFault}, // autibsp
	32: {traits: isa.Landing},                                // bti
	34: {traits: isa.Landing},
	36: {traits: isa.Landing},
	38: {traits: isa.Landing},
}

// knownHints has a bit for each of hints.
var knownHints = [2]uint64{1<<0 | 1<<1 | 1<<2 | 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<12 | 1<<14 | 1<<16 | 1<<17 | 1<<18 |
	1<<20 | 1<<22 | 0xff<<24 | 1<<32 | 1<<34 | 1<<36 | 1<<38}

const (
	x16 = isa.RegSet(1) << X16
	x17 = isa.RegSet(1) << X17
	x30 = isa.RegSet(1) << LR
	sp  = isa.RegSet(1) << SP
)

// system: hints, barriers, MSR and MRS.
//
//	31        22 21 20 19 18 16 15 12 11  8 7  5 4  0
//	1101010100 | L | op0 | op1 | CRn | CRm | op2 | Rt
func system(w word, i *isa.Insn) bool {
	op0, crn, rt := w.bits(20, 19), w.bits(15, 12), w.bits(4, 0)
	key := w.bits(20, 5) // op0:op1:CRn:CRm:op2
	switch {
	case !w.bit(21) && op0 == 0 && crn == 2 && w.bits(18, 16) == 3 && rt == 31:
		h := &hints[w.bits(11, 5)]
		i.Reads, i.Writes, i.Traits = h.reads, h.writes, h.traits
		return knownHints[w.bits(11, 11)]>>w.bits(10, 5)&1 != 0
	case !w.bit(21) && op0 == 0 && crn == 3 && w.bits(18, 16) == 3 && rt == 31:
		return barrier(w, i)
	case !w.bit(21) && op0 == 0 && crn == 1 && w.bits(18, 16) == 3 && w.bits(11, 6) == 0: // wfet, wfit
		i.Traits, i.Reads = isa.Privileged, w.gpr(rd)
		return true
	case !w.bit(21) && op0 == 0 && crn == 4 && rt == 31: // msr (immediate)
		i.Traits = isa.Privileged
		if w.bits(18, 16) == 0 && w.bits(7, 5) <= 2 { // cfinv, xaflag, axflag
			i.Reads, i.Clobbers = flags, flags
		}
		return true
	case op0 == 1: // sys, sysl
		i.Traits = isa.Privileged | isa.Mem | isa.MayFault
		if w.bit(21) {
			i.Writes = w.gpr(rd)
		} else {
			i.Reads = w.gpr(rd)
		}
		return true
	case op0 >= 2:
		return systemRegister(w, key, i)
	}
	return false
}

// barrier: op2 4 dsb, 5 dmb, 6 isb, 7 sb, 2 clrex.
func barrier(w word, i *isa.Insn) bool {
	switch w.bits(7, 5) {
	case 2:
		i.Traits = isa.Exclusive
	case 5:
		i.Traits = isa.Serialising
	case 4, 6, 7:
		i.Traits = isa.Privileged | isa.Serialising
	default:
		return false
	}
	return true
}

// System registers whose access is as harmless as a move, or has to do with the
// flags, by op0:op1:CRn:CRm:op2 (16 bits, 2.3.4.4.3).
const (
	sysSPEL0    = 3<<14 | 0<<11 | 4<<7 | 1<<3 | 0  // current task
	sysTPIDREL1 = 3<<14 | 0<<11 | 13<<7 | 0<<3 | 4 // per-CPU base
	sysTPIDREL2 = 3<<14 | 4<<11 | 13<<7 | 0<<3 | 2 // likewise, with VHE
	sysNZCV     = 3<<14 | 3<<11 | 4<<7 | 2<<3 | 0  // the flags
	sysFPCR     = 3<<14 | 3<<11 | 4<<7 | 4<<3 | 0  // rounding, traps; of floating point
	sysFPSR     = 3<<14 | 3<<11 | 4<<7 | 4<<3 | 1  // and what it has met
	sysSVCR     = 3<<14 | 3<<11 | 4<<7 | 2<<3 | 2  // whether vectors are streaming
	sysRNDR     = 3<<14 | 3<<11 | 2<<7 | 4<<3 | 0  // a random number; the flags say whether there was one
	sysRNDRRS   = 3<<14 | 3<<11 | 2<<7 | 4<<3 | 1  // likewise, reseeded
)

func systemRegister(w word, key uint32, i *isa.Insn) bool {
	read := w.bit(21)
	if read {
		i.Writes = w.gpr(rd)
	} else {
		i.Reads = w.gpr(rd)
	}
	switch {
	case key == sysNZCV && read:
		i.Reads |= flags
	case key == sysNZCV:
		i.Writes |= flags
	case read && (key == sysRNDR || key == sysRNDRRS):
		i.Writes |= flags
		i.Traits = isa.Privileged
	case key == sysFPCR || key == sysFPSR || key == sysSVCR:
		i.Traits = isa.Privileged | isa.Vector
	case read && (key == sysSPEL0 || key == sysTPIDREL1 || key == sysTPIDREL2):
	default:
		i.Traits = isa.Privileged
	}
	return true
}

// dataRegister: bits 28 and 24:21 choose (C4.1.95).
func dataRegister(w word, i *isa.Insn) bool {
	sf, s := w.bit(31), w.bit(29)
	i.Reads, i.Writes = w.gpr(rn)|w.gpr(rm), w.gpr(rd)
	if !w.bit(28) {
		return logicalOrAdd(w, i)
	}
	switch op := w.bits(24, 21); {
	case op == 0: // adc, sbc
		i.Reads |= flags
		if s {
			i.Writes |= flags
		}
		return w.bits(15, 10) == 0
	case op == 2: // ccmp, ccmn: the flags are set from the comparison or from nzcv
		i.Reads, i.Writes = w.gpr(rn)|flags, flags
		if !w.bit(11) {
			i.Reads |= w.gpr(rm)
		}
		return s && !w.bit(10) && !w.bit(4)
	case op == 4: // csel, csinc, csinv, csneg
		i.Reads |= flags
		return !s && !w.bit(11)
	case op == 6 && w.bit(30):
		return oneSource(w, i)
	case op == 6:
		return !s && twoSources[w.bits(15, 10)]&sizeBit(sf) != 0
	case op >= 8: // madd and kin
		i.Reads |= w.gpr(ra)
		return w.bits(30, 29) == 0 && threeSources(w, i)
	}
	return false
}

func sizeBit(sf bool) uint8 {
	if sf {
		return 2
	}
	return 1
}

// logicalOrAdd: shifted and extended register forms.
func logicalOrAdd(w word, i *isa.Insn) bool {
	sf := w.bit(31)
	narrow := sf || !w.bit(15)
	if !w.bit(24) { // and, orr, eor, ands and their negations
		if w.bits(30, 29) == 3 {
			i.Writes |= flags
		}
		return narrow
	}
	if w.bit(29) {
		i.Writes |= flags
	}
	if !w.bit(21) { // shifted
		return w.bits(23, 22) != 3 && narrow
	}
	i.Reads = w.gprSP(rn) | w.gpr(rm)
	if !w.bit(29) {
		i.Writes = w.gprSP(rd)
	}
	return w.bits(23, 22) == 0 && w.bits(12, 10) <= 4
}

// oneSource: rbit, rev16, rev32, rev, clz, cls, and pointer authentication.
func oneSource(w word, i *isa.Insn) bool {
	op, sf := w.bits(15, 10), w.bit(31)
	if w.bit(29) {
		return false
	}
	switch w.bits(20, 16) {
	case 0:
		i.Reads = w.gpr(rn)
		return op <= 5 && (op != 3 || sf)
	case 1: // pacia … xpacd
		i.Reads = w.gpr(rd)
		switch {
		case op < 8:
			i.Reads |= w.gprSP(rn)
		case w.bits(9, 5) != 31:
			return false
		}
		return sf && op <= 17
	}
	return false
}

// twoSources lists bits 15:10 of udiv, sdiv, shifts by register and crc32: in
// bit 0 the 32-bit form exists, in bit 1 the 64-bit form.
var twoSources = [64]uint8{
	2: 3, 3: 3,
	8: 3, 9: 3, 10: 3, 11: 3,
	12: 2, // pacga
	16: 1, 17: 1, 18: 1, 19: 2, 20: 1, 21: 1, 22: 1, 23: 2,
}

func threeSources(w word, i *isa.Insn) bool {
	switch w.bits(23, 21) {
	case 0: // madd, msub
		return true
	case 1, 5: // smaddl, smsubl, umaddl, umsubl
		return w.bit(31)
	case 2, 6: // smulh, umulh; Ra is not used
		i.Reads = w.gpr(rn) | w.gpr(rm)
		return w.bit(31) && !w.bit(15)
	}
	return false
}
