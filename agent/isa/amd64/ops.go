package amd64

import (
	"encoding/binary"
	"fmt"
	"math"

	"kerninst/agent/isa"
)

// Encodings of what snippets compute (SDM volume 2). All are on 64 bits.

// rexModRM is REX.W, the opcode, and ModRM with the register operand reg and the
// register or base rm.
func rexModRM(opcode []byte, mod byte, reg, rm isa.Reg) []byte {
	out := append([]byte{0x48 | byte(reg>>3)<<2 | byte(rm>>3)}, opcode...)
	return append(out, mod<<6|byte(reg&7)<<3|byte(rm&7))
}

// ripRelative is prefix, REX.W, opcode, ModRM, and the distance to an address from
// the end of the instruction, which is immediate bytes behind it.
func ripRelative(what string, prefix, opcode []byte, reg isa.Reg, a, to isa.Addr, immediate int) ([]byte, error) {
	out := append([]byte(nil), prefix...)
	out = append(out, 0x48|byte(reg>>3)<<2)
	out = append(out, opcode...)
	out = append(out, byte(reg&7)<<3|5)
	d, err := displacement(what, a+isa.Addr(len(out)+4+immediate), to)
	if err != nil {
		return nil, err
	}
	return isa.ByteOrder.AppendUint32(out, d), nil
}

var lock = []byte{0xf0}

// ALU is an operation of the group of additions: its number in ModRM, and in bits
// 3 to 5 of the opcode.
type ALU byte

const (
	Add ALU = 0
	Or  ALU = 1
	And ALU = 4
	Sub ALU = 5
	Xor ALU = 6
	Cmp ALU = 7
)

// ALUReg encodes op d, s.
func ALUReg(op ALU, d, s isa.Reg) []byte { return rexModRM([]byte{byte(op)<<3 | 1}, 3, s, d) }

// FitsImm reports whether v is a sign-extended 32-bit immediate.
func FitsImm(v uint64) bool { return int64(v) >= math.MinInt32 && int64(v) <= math.MaxInt32 }

// ALUImm encodes op d, imm, sign-extended.
func ALUImm(op ALU, d isa.Reg, imm int32) []byte {
	if imm >= math.MinInt8 && imm <= math.MaxInt8 {
		return append(rexModRM([]byte{0x83}, 3, isa.Reg(op), d), byte(imm))
	}
	return isa.ByteOrder.AppendUint32(rexModRM([]byte{0x81}, 3, isa.Reg(op), d), uint32(imm))
}

// MoveReg encodes mov d, s.
func MoveReg(d, s isa.Reg) []byte { return rexModRM([]byte{0x89}, 3, s, d) }

// MoveImm encodes the shortest mov of a constant: to the lower half, which clears
// the upper; sign-extended; or whole.
func MoveImm(d isa.Reg, v uint64) []byte {
	switch {
	case v <= math.MaxUint32:
		out := []byte{0xb8 | byte(d&7)}
		if d >= 8 {
			out = []byte{0x41, 0xb8 | byte(d&7)}
		}
		return isa.ByteOrder.AppendUint32(out, uint32(v))
	case FitsImm(v):
		return isa.ByteOrder.AppendUint32(rexModRM([]byte{0xc7}, 3, 0, d), uint32(v))
	}
	return binary.LittleEndian.AppendUint64([]byte{0x48 | byte(d>>3), 0xb8 | byte(d&7)}, v)
}

// ShiftImm encodes shl, shr or sar d, n.
func ShiftImm(left, signed bool, d isa.Reg, n uint8) []byte {
	op := isa.Reg(5)
	switch {
	case left:
		op = 4
	case signed:
		op = 7
	}
	return append(rexModRM([]byte{0xc1}, 3, op, d), n&63)
}

// Extend encodes movzx, movsx, movsxd or mov of the low bytes of s.
func Extend(d, s isa.Reg, bytes int, signed bool) ([]byte, error) {
	switch {
	case bytes == 1 && signed:
		return rexModRM([]byte{0x0f, 0xbe}, 3, d, s), nil
	case bytes == 1:
		return rexModRM([]byte{0x0f, 0xb6}, 3, d, s), nil
	case bytes == 2 && signed:
		return rexModRM([]byte{0x0f, 0xbf}, 3, d, s), nil
	case bytes == 2:
		return rexModRM([]byte{0x0f, 0xb7}, 3, d, s), nil
	case bytes == 4 && signed:
		return rexModRM([]byte{0x63}, 3, d, s), nil
	case bytes == 4: // mov to the lower half clears the upper; without REX.W
		out := rexModRM([]byte{0x89}, 3, s, d)
		out[0] &^= 8
		return out, nil
	case bytes == 8:
		return MoveReg(d, s), nil
	}
	return nil, fmt.Errorf("extend: %d bytes are not 1, 2, 4 or 8", bytes)
}

// Condition codes of JumpIf.
const (
	Below        byte = 2
	AboveEqual   byte = 3
	Equal        byte = 4
	NotEqual     byte = 5
	BelowEqual   byte = 6
	Above        byte = 7
	Positive     byte = 9 // or 0: jns
	Less         byte = 12
	GreaterEqual byte = 13
	LessEqual    byte = 14
	Greater      byte = 15
)

// JumpIf encodes jcc rel32.
func JumpIf(cc byte, from, to isa.Addr) ([]byte, error) {
	d, err := displacement("jcc", from+6, to)
	if err != nil {
		return nil, err
	}
	return isa.ByteOrder.AppendUint32([]byte{0x0f, 0x80 | cc&15}, d), nil
}

// CompareWord encodes cmpl imm, mem(%rip) at a (SDM volume 2, CMP). It changes the flags.
//
//	83 | 00 111 101 | disp32 | imm8        81 | 00 111 101 | disp32 | imm32
func CompareWord(a, mem isa.Addr, imm int32) ([]byte, error) {
	if imm == int32(int8(imm)) {
		d, err := displacement("cmpl", a+7, mem)
		return append(isa.ByteOrder.AppendUint32([]byte{0x83, 0x3d}, d), byte(imm)), err
	}
	d, err := displacement("cmpl", a+10, mem)
	return isa.ByteOrder.AppendUint32(isa.ByteOrder.AppendUint32([]byte{0x81, 0x3d}, d), uint32(imm)), err
}

// StoreCell encodes mov s, cell(%rip) at a; StoreImm stores an immediate, with its sign.
func StoreCell(s isa.Reg, a, cell isa.Addr) ([]byte, error) {
	return ripRelative("mov", nil, []byte{0x89}, s, a, cell, 0)
}

func StoreImm(imm int32, a, cell isa.Addr) ([]byte, error) {
	code, err := ripRelative("movq", nil, []byte{0xc7}, 0, a, cell, 4)
	return isa.ByteOrder.AppendUint32(code, uint32(imm)), err
}

// LoadCell encodes mov d, cell(%rip) at a.
func LoadCell(d isa.Reg, a, cell isa.Addr) ([]byte, error) {
	return ripRelative("mov", nil, []byte{0x8b}, d, a, cell, 0)
}

// CellAddress encodes lea d, cell(%rip) at a.
func CellAddress(d isa.Reg, a, cell isa.Addr) ([]byte, error) {
	return ripRelative("lea", nil, []byte{0x8d}, d, a, cell, 0)
}

// LockAdd encodes lock add s, cell(%rip) at a.
func LockAdd(s isa.Reg, a, cell isa.Addr) ([]byte, error) {
	return ripRelative("lock add", lock, []byte{0x01}, s, a, cell, 0)
}

// LockAddImm encodes lock addq imm, cell(%rip) at a, sign-extended.
func LockAddImm(imm int32, a, cell isa.Addr) ([]byte, error) {
	out, err := ripRelative("lock add", lock, []byte{0x81}, 0, a, cell, 4)
	return isa.ByteOrder.AppendUint32(out, uint32(imm)), err
}

// perCPU is an instruction with a quadword of per-CPU memory: %gs: and an address of
// 32 bits with a sign, which needs a SIB byte without a base and an index (SDM 2.2.1.6).
//
//	65  | 48    | opcode | 00 reg 100 | 00 100 101 | disp32
//	gs: | REX.W |        | ModRM      | SIB        |
func perCPU(what string, op byte, reg isa.Reg, cell isa.Addr) ([]byte, error) {
	if int64(cell) != int64(int32(cell)) {
		return nil, fmt.Errorf("%s: %v in per-CPU memory is more than 2 GiB from its start", what, cell)
	}
	out := []byte{0x65, 0x48 | byte(reg>>3)<<2, op, byte(reg&7)<<3 | 4, 0x25}
	return isa.ByteOrder.AppendUint32(out, uint32(cell)), nil
}

// LocalInc encodes incq %gs:cell: one instruction, which an interrupt comes before or
// behind, to memory that no other CPU writes.
func LocalInc(cell isa.Addr) ([]byte, error) { return perCPU("incq", 0xff, 0, cell) }

// LocalAdd encodes add s, %gs:cell.
func LocalAdd(s isa.Reg, cell isa.Addr) ([]byte, error) { return perCPU("add", 0x01, s, cell) }

// LocalAddImm encodes addq imm, %gs:cell, sign-extended.
func LocalAddImm(imm int32, cell isa.Addr) ([]byte, error) {
	out, err := perCPU("add", 0x81, 0, cell)
	return isa.ByteOrder.AppendUint32(out, uint32(imm)), err
}

// LockExchangeAdd encodes lock xadd s, cell(%rip) at a: s becomes what was there.
func LockExchangeAdd(s isa.Reg, a, cell isa.Addr) ([]byte, error) {
	return ripRelative("lock xadd", lock, []byte{0x0f, 0xc1}, s, a, cell, 0)
}

// LockCompareExchange encodes lock cmpxchg s, cell(%rip) at a: s is stored if the
// cell holds RAX; otherwise RAX becomes what it holds, and the zero flag is clear.
func LockCompareExchange(s isa.Reg, a, cell isa.Addr) ([]byte, error) {
	return ripRelative("lock cmpxchg", lock, []byte{0x0f, 0xb1}, s, a, cell, 0)
}

// StoreAt encodes mov s, off(base); off is in -128 to 127.
func StoreAt(base isa.Reg, off int8, s isa.Reg) []byte {
	out := rexModRM([]byte{0x89}, 1, s, base)
	if base&7 == RSP { // RSP and R12 as a base take an SIB byte
		out = append(out, 0x24)
	}
	return append(out, byte(off))
}

// StackAddress encodes lea d, off(%rsp).
func StackAddress(d isa.Reg, off int32) []byte {
	return isa.ByteOrder.AppendUint32(append(rexModRM([]byte{0x8d}, 2, d, RSP), 0x24), uint32(off))
}

// ReadTime encodes rdtsc, which sets EDX:EAX.
func ReadTime() []byte { return []byte{0x0f, 0x31} }

// Push encodes push r, Pop pop r: RSP moves first, so that nobody who interrupts
// writes over it.
func Push(r isa.Reg) []byte { return short(0x50, r) }

// Pop is the inverse of Push.
func Pop(r isa.Reg) []byte { return short(0x58, r) }

func short(opcode byte, r isa.Reg) []byte {
	if r >= 8 {
		return []byte{0x41, opcode | byte(r&7)}
	}
	return []byte{opcode | byte(r)}
}
