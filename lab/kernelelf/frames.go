package kernelelf

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
)

// Kernels of arm64 and riscv64 keep frame pointers, and no tables for unwinding. The
// section made here tells a debugger where a function has its frame, so that it
// finds callers as the kernel's own unwinder does (DWARF 4 §6.4, .debug_frame). For
// amd64 see orc.go.
//
// In its frame, a function's caller is found through the frame pointer; before it
// is set up and after it is taken down, through the link register. A function whose
// code is laid out so that an exit which had no frame comes after the frame is set
// up is told wrong there: its caller is left out.

// unwinding is what a debugger has to know of an ISA. Registers have DWARF's numbers.
type unwinding struct {
	ra      byte
	in, out []byte // rules for callers, in and out of the frame
	// sets and takes recognise the instruction that makes the frame pointer point to
	// the frame and the one that restores it; ends, one behind which code is reached
	// from elsewhere.
	sets, takes, ends func(insn uint32) bool
	compressed        bool // instructions of two bytes, with an upper half of 0
}

// Instructions and operations (DWARF 4 §7.23 and §7.7.1).
const (
	cfaAdvance4, cfaUndefined, cfaSame, cfaDefine       = 0x04, 0x07, 0x08, 0x0c
	cfaDefineExpression, cfaAtExpression, cfaExpression = 0x0f, 0x10, 0x16
	cfaOffsetSigned, cfaDefineSigned                    = 0x11, 0x12
	cfaAdvance, cfaOffset, cfaRestore                   = 0x40, 0x80, 0xc0
	opDeref, opConst8u, opConsts, opDup, opAnd, opMinus = 0x06, 0x0e, 0x11, 0x12, 0x1a, 0x1c
	opNeg, opOr, opPlus, opNe, opLit0, opLit8, opBreg0  = 0x1f, 0x21, 0x22, 0x2e, 0x30, 0x38, 0x70
)

// signature covers the bits of a return address that may hold its authentication
// code. In the kernel's addresses they are ones (Arm ARM D8.10); 0 stays 0, which
// ends a backtrace.
const signature = 0xffff << 48

// stripped is the rule that a register is what the expression says, without its
// authentication code.
func stripped(reg byte, value ...byte) []byte {
	e := append(value, opDup, opLit0, opNe, opNeg, opConst8u)
	e = binary.LittleEndian.AppendUint64(e, signature)
	e = append(e, opAnd, opOr)
	return append([]byte{cfaExpression, reg, byte(len(e))}, e...)
}

var unwindings = map[string]unwinding{
	"arm64": { // AAPCS64 §6.4.6: the frame pointer points to its caller's and the return address
		ra:  30,
		in:  append([]byte{cfaDefine, 29, 16, cfaOffset | 29, 2}, stripped(30, opLit8, opMinus, opDeref)...),
		out: append([]byte{cfaDefine, 31, 0, cfaSame, 29}, stripped(30, opBreg0+30, 0)...),
		sets: func(i uint32) bool { // add x29, sp, #imm
			return i&0xffc003ff == 0x910003fd
		},
		takes: func(i uint32) bool { // ldp x29, x30, [sp, #imm] and [sp], #imm
			return i&0xffc07fff == 0xa9407bfd || i&0xffc07fff == 0xa8c07bfd
		},
		ends: func(i uint32) bool { // ret, br, b
			return i == 0xd65f03c0 || i&0xfffffc1f == 0xd61f0000 || i&0xfc000000 == 0x14000000
		},
	},
	"riscv64": { // psABI, "Frame Pointer Convention": it points behind both
		ra: 1, compressed: true,
		in:  []byte{cfaDefine, 8, 0, cfaOffset | 8, 2, cfaOffset | 1, 1},
		out: []byte{cfaDefine, 2, 0, cfaSame, 8, cfaSame, 1},
		sets: func(i uint32) bool { // addi s0, sp, imm; c.addi4spn
			return i&0xfffff == 0x10413 || i&0xe01f == 0 && i != 0
		},
		takes: func(i uint32) bool { // ld s0, imm(sp); c.ldsp
			return i&0xfffff == 0x13403 || i&0xef83 == 0x6402
		},
		ends: func(i uint32) bool { // c.jr, c.j, j
			return i&0xf07f == 0x8002 || i&0xe003 == 0xa001 || i&0xfff == 0x6f
		},
	},
}

// unwinder returns the number of the return address's register, the rules at the
// beginning of every function, and what makes those for a function, whose code may
// not be known: nil if nothing is.
func (im *Image) unwinder() (ra byte, begin []byte, rows func(at, size uint64, code []byte) []byte) {
	if u, ok := unwindings[im.Arch]; ok {
		return u.ra, u.out, func(_, _ uint64, code []byte) []byte { return u.rows(code) }
	}
	if im.orc == nil {
		return 0, nil, nil
	}
	return dwRIP, []byte{cfaDefine, dwSP, 8, cfaOffset | dwRIP, 1}, im.orc.rows
}

// frames is the section .debug_frame; nil if there is nothing to make it of.
func (im *Image) frames() []byte {
	ra, begin, rows := im.unwinder()
	if rows == nil {
		return nil
	}
	var b bytes.Buffer
	// The entry for all: version 1, no augmentation, factors 1 and -8.
	entry(&b, math.MaxUint32, append([]byte{1, 0, 1, 0x78, ra}, begin...))
	starts := im.starts()
	for _, s := range im.Sections {
		if !s.Code {
			continue
		}
		first, _ := slices.BinarySearch(starts, s.Addr)
		for k := first; k < len(starts) && starts[k]-s.Addr < s.size(); k++ {
			off, size := starts[k]-s.Addr, s.Addr+s.size()-starts[k]
			if k+1 < len(starts) {
				size = min(size, starts[k+1]-starts[k])
			}
			var code []byte
			if s.Data != nil {
				code = s.Data[off : off+size]
			}
			head := binary.LittleEndian.AppendUint64(nil, starts[k])
			head = binary.LittleEndian.AppendUint64(head, size)
			entry(&b, 0, append(head, rows(starts[k], size, code)...))
		}
	}
	return b.Bytes()
}

// starts are the addresses at which functions begin, in order, each once.
func (im *Image) starts() []uint64 {
	var out []uint64
	for _, s := range im.Symbols {
		if s.Code {
			out = append(out, s.Addr)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// entry writes one entry, filled up to a multiple of eight bytes with instructions
// that do nothing.
func entry(b *bytes.Buffer, id uint32, body []byte) {
	fill := -(4 + 4 + len(body)) & 7
	head := binary.LittleEndian.AppendUint32(nil, uint32(4+len(body)+fill))
	b.Write(binary.LittleEndian.AppendUint32(head, id))
	b.Write(body)
	b.Write(make([]byte, fill))
}

// rows are the rules for the code of one function, which begins out of its frame.
// One whose code is not known is taken to be in its frame.
func (u unwinding) rows(code []byte) (out []byte) {
	if code == nil {
		return u.in
	}
	at, in, had := 0, false, false // at: of the last rule
	rule := func(pc int, now bool) {
		if in == now {
			return
		}
		out = binary.LittleEndian.AppendUint32(append(out, cfaAdvance4), uint32(pc-at))
		if at, in = pc, now; in {
			out = append(out, u.in...)
		} else {
			out = append(out, u.out...)
		}
	}
	for pc := 0; pc+4 <= len(code); {
		insn, next := binary.LittleEndian.Uint32(code[pc:]), pc+4
		if u.compressed && insn&3 != 3 {
			insn, next = insn&0xffff, pc+2
		}
		switch {
		case u.sets(insn):
			had = true
			rule(next, true)
		case u.takes(insn):
			rule(next, false)
		case u.ends(insn):
			rule(next, had)
		}
		pc = next
	}
	return out
}
