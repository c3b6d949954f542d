package kernelelf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sort"
)

// amd64 kernels keep no frame pointers, but a table of their own that says for each
// stretch of code how to find the caller: ORC (Documentation/arch/x86/
// orc-unwinder.rst, arch/x86/kernel/unwind_orc.c). Debuggers do not know it, so its
// entries are written as rules of DWARF.

// orc is the table: where each entry begins, in order, and the entries.
type orc struct {
	at      []uint64
	entries []orcEntry
}

// orcEntry is struct orc_entry of arch/x86/include/asm/orc_types.h.
type orcEntry struct {
	sp, bp       int16
	spReg, bpReg byte
	kind         byte
}

// Registers and kinds of entries (ORC_REG_…, ORC_TYPE_…), by the numbers of Linux 6.4 to 6.12.
const (
	orcPrevSP, orcDX, orcDI, orcBP, orcSP, orcR10, orcR13, orcBPIndirect, orcSPIndirect = 1, 2, 3, 4, 5, 6, 7, 8, 9

	orcCall, orcRegs, orcPartial = 2, 3, 4

	orcNone = 15 // a register that none of these is
)

// orcForm is how a kernel numbers them: what its numbers are by those above.
type orcForm struct {
	regs  [16]byte
	kinds [8]byte
}

var (
	orcRegs6 = [16]byte{0, orcPrevSP, orcDX, orcDI, orcBP, orcSP, orcR10, orcR13, orcBPIndirect, orcSPIndirect, orcNone, orcNone, orcNone, orcNone, orcNone, orcNone}
	orcRegs7 = [16]byte{0, orcNone, orcDX, orcSP, orcBP, orcDI, orcR10, orcR13, orcPrevSP, orcSPIndirect, orcBPIndirect, orcNone, orcNone, orcNone, orcNone, orcNone}
)

// orcForms are those of 6.1 (whose kinds have two bits, and another for the end), 6.12 and
// 7.2. No kernel says which it has; most entries of all are about a function that was
// called, and count from its stack pointer.
var orcForms = []orcForm{
	{orcRegs6, [8]byte{orcCall, orcRegs, orcPartial}},
	{orcRegs6, [8]byte{0, 1, orcCall, orcRegs, orcPartial}},
	{orcRegs7, [8]byte{0, 1, orcCall, orcRegs, orcPartial}},
}

// form finds which of them entries are in; false: in none.
func form(what []byte) (best orcForm, ok bool) {
	counts, all := map[[2]byte]int{}, len(what)/orcSize
	for ; len(what) >= orcSize; what = what[orcSize:] {
		counts[[2]byte{what[4] & 15, what[5] & 7}]++
	}
	for _, f := range orcForms {
		n := 0
		for k, c := range counts {
			if f.regs[k[0]] == orcSP && f.kinds[k[1]] == orcCall {
				n += c
			}
		}
		if 2*n > all {
			return f, true
		}
	}
	return best, false
}

// Sizes of the table's parts, in bytes.
const orcPlace, orcSize = 4, 6

// orcMarks bound the table in memory.
var orcMarks = [3]string{"__start_orc_unwind_ip", "__start_orc_unwind", "__stop_orc_unwind"}

// readORC reads the table of a running kernel.
func readORC(symbols []Symbol, live func(addr uint64, n int) ([]byte, error)) (*orc, error) {
	var marks [3]uint64
	for _, s := range symbols {
		for i, name := range orcMarks {
			if s.Name == name {
				marks[i] = s.Addr
			}
		}
	}
	places, entries := marks[1]-marks[0], marks[2]-marks[1]
	const most = 64 << 20
	if marks[0] == 0 || places == 0 || places > most || entries/orcSize != places/orcPlace {
		return nil, fmt.Errorf("unwind table: %d bytes of places, %d of entries", places, entries)
	}
	where, err := live(marks[0], int(places))
	if err != nil {
		return nil, fmt.Errorf("unwind table: %w", err)
	}
	what, err := live(marks[1], int(entries))
	if err != nil {
		return nil, fmt.Errorf("unwind table: %w", err)
	}
	f, ok := form(what)
	if !ok {
		return nil, errors.New("unwind table: its entries are of a form that is not known")
	}
	return parseORC(f, where, what, marks[0])
}

// parseORC takes the table apart. A place is the distance from itself.
func parseORC(f orcForm, where, what []byte, addr uint64) (*orc, error) {
	o := &orc{}
	for i := 0; i+orcPlace <= len(where) && len(what) >= orcSize; i += orcPlace {
		at := addr + uint64(i) + uint64(int64(int32(binary.LittleEndian.Uint32(where[i:]))))
		if n := len(o.at); n > 0 && at < o.at[n-1] {
			return nil, fmt.Errorf("unwind table: entry %d is out of order", n)
		}
		flags := binary.LittleEndian.Uint16(what[4:])
		o.at = append(o.at, at)
		o.entries = append(o.entries, orcEntry{
			sp: int16(binary.LittleEndian.Uint16(what)), bp: int16(binary.LittleEndian.Uint16(what[2:])),
			spReg: f.regs[flags&15], bpReg: f.regs[flags>>4&15], kind: f.kinds[flags>>8&7],
		})
		what = what[orcSize:]
	}
	return o, nil
}

// rows are the rules for a function.
func (o *orc) rows(addr, size uint64, _ []byte) (out []byte) {
	// Of entries for one place, the last counts.
	k := sort.Search(len(o.at), func(k int) bool { return o.at[k] > addr }) - 1
	end, at, saved := addr+size, addr, false
	for ; k >= 0 && k < len(o.at) && o.at[k] < end; k++ {
		if k+1 < len(o.at) && o.at[k+1] == o.at[k] {
			continue
		}
		if o.at[k] > at {
			out = advance(out, o.at[k]-at)
			at = o.at[k]
		}
		if saved { // by the rule before
			for _, r := range registers {
				out = append(out, cfaRestore|r.number)
			}
		}
		out = append(out, o.entries[k].rule()...)
		kind := o.entries[k].kind
		saved = kind == orcRegs || kind == orcPartial
	}
	return out
}

func advance(out []byte, by uint64) []byte {
	if by < 64 {
		return append(out, cfaAdvance|byte(by))
	}
	return binary.LittleEndian.AppendUint32(append(out, cfaAdvance4), uint32(by))
}

// Registers in DWARF (x86-64 psABI, figure 3.36).
const dwDX, dwDI, dwBP, dwSP, dwR10, dwR13, dwRIP = 1, 5, 6, 7, 10, 13, 16

// registers are where struct pt_regs has them, in words; its words 15, 17, 18 and 20
// are of no use here.
var registers = []struct{ number, word byte }{
	{15, 0}, {14, 1}, {dwR13, 2}, {12, 3}, {dwBP, 4}, {3, 5}, {11, 6}, {dwR10, 7}, {9, 8}, {8, 9}, {0, 10}, {2, 11}, {dwDX, 12}, {4, 13}, {dwDI, 14}, {dwSP, 19},
}

// iretSP is where the processor saves the stack pointer, in words behind the
// instruction pointer (SDM 3 §6.14.2); ripWord is where struct pt_regs has that.
const iretSP, ripWord = 3, 16

// rule is an entry as rules of DWARF. There, the canonical frame address is what ORC
// calls the previous stack pointer, or where registers were saved.
func (e orcEntry) rule() []byte {
	base := map[byte]byte{orcSP: dwSP, orcBP: dwBP, orcR10: dwR10, orcR13: dwR13, orcDI: dwDI, orcDX: dwDX}
	var out []byte
	switch reg, ok := base[e.spReg]; {
	case e.kind != orcCall && e.kind != orcRegs && e.kind != orcPartial, e.sp%8 != 0 || e.bp%8 != 0: // nobody called, or nobody knows
		return []byte{cfaUndefined, dwRIP}
	case e.spReg == orcSP || e.spReg == orcBP:
		out = sleb([]byte{cfaDefineSigned, reg}, -int64(e.sp)/8)
	case ok: // without an offset
		out = []byte{cfaDefine, reg, 0}
	case e.spReg == orcSPIndirect:
		out = block([]byte{cfaDefineExpression}, sleb([]byte{opBreg0 + dwSP, 0, opDeref, opConsts}, int64(e.sp)), opPlus)
	case e.spReg == orcBPIndirect:
		out = block([]byte{cfaDefineExpression}, sleb([]byte{opBreg0 + dwBP}, int64(e.sp)), opDeref)
	default:
		return []byte{cfaUndefined, dwRIP}
	}
	switch e.kind {
	case orcCall:
		out = append(out, cfaOffset|dwRIP, 1)
	case orcRegs:
		out = saved(out, dwRIP, ripWord)
		for _, r := range registers {
			out = saved(out, r.number, r.word)
		}
	case orcPartial:
		out = saved(saved(out, dwRIP, 0), dwSP, iretSP)
	}
	switch e.bpReg {
	case orcPrevSP:
		return sleb(append(out, cfaOffsetSigned, dwBP), -int64(e.bp)/8)
	case orcBP:
		return block(append(out, cfaAtExpression, dwBP), sleb([]byte{opBreg0 + dwBP}, int64(e.bp)))
	}
	if e.kind != orcRegs {
		out = append(out, cfaSame, dwBP)
	}
	return out
}

// saved is the rule that a register is that many words behind the frame address.
func saved(out []byte, reg, word byte) []byte {
	return sleb(append(out, cfaOffsetSigned, reg), -int64(word))
}

// block ends an instruction with an expression.
func block(out, expression []byte, more ...byte) []byte {
	out = append(out, byte(len(expression)+len(more)))
	return append(append(out, expression...), more...)
}

// sleb appends a signed number (DWARF 4 §7.6).
func sleb(out []byte, v int64) []byte {
	for {
		b := byte(v & 0x7f)
		if v >>= 7; v == 0 && b&0x40 == 0 || v == -1 && b&0x40 != 0 {
			return append(out, b)
		}
		out = append(out, b|0x80)
	}
}
