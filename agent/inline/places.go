package inline

import (
	"debug/dwarf"
	"encoding/binary"
	"fmt"
	"slices"

	"kerninst/agent/isa"
)

// The kinds of entries of a location list: DWARF 5, section 7.7.3.
const (
	lleEnd = iota
	lleBaseAddressx
	lleStartxEndx
	lleStartxLength
	lleOffsetPair
	lleDefault
	lleBaseAddress
	lleStartEnd
	lleStartLength
)

// Operations of location expressions: section 7.7.1.
const (
	opAddr       = 0x03
	opConst1u    = 0x08
	opConst1s    = 0x09
	opConst2u    = 0x0a
	opConst2s    = 0x0b
	opConst4u    = 0x0c
	opConst4s    = 0x0d
	opConst8u    = 0x0e
	opConst8s    = 0x0f
	opConstu     = 0x10
	opConsts     = 0x11
	opLit0       = 0x30
	opReg0       = 0x50
	opBreg0      = 0x70
	opFbreg      = 0x91
	opImplicit   = 0x9e
	opStackValue = 0x9f
)

// places is where a parameter is in some code.
func (u *reading) places(e *dwarf.Entry, code []Range) (out []Place, err error) {
	everywhere := func(p Place) []Place {
		for _, r := range code {
			p.Range = r
			out = append(out, p)
		}
		return out
	}
	if v, ok := e.Val(dwarf.AttrConstValue).(int64); ok {
		return everywhere(Place{Kind: Constant, Off: v}), nil
	}
	switch at := e.Val(dwarf.AttrLocation).(type) {
	case []byte:
		return everywhere(u.place(at)), nil
	case int64:
		if out, err = u.list(at); err != nil {
			return nil, fmt.Errorf("the entry at %#x: its locations: %w", e.Offset, err)
		}
		return cut(out, code), nil
	}
	return nil, nil
}

// cut is the parts of places that are in code, in order.
func cut(places []Place, code []Range) (out []Place) {
	for _, p := range places {
		for _, r := range code {
			part := p
			if part.Lo, part.Hi = max(p.Lo, r.Lo), min(p.Hi, r.Hi); part.Lo < part.Hi {
				out = append(out, part)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Place) int { return a.before(b.Range) })
	return out
}

// list reads the location list at an offset of .debug_loclists, without what is lost.
func (u *reading) list(at int64) (out []Place, err error) {
	if at < 0 || at >= int64(len(u.loclists)) {
		return nil, fmt.Errorf("there is no list at %#x", at)
	}
	b := buffer{rest: u.loclists[at:]}
	base := u.low
	for b.err == nil {
		var lo, hi uint64
		switch kind := b.byte(); kind {
		case lleEnd:
			return out, b.err
		case lleOffsetPair:
			lo, hi = base+b.uleb(), base+b.uleb()
		case lleDefault:
			lo, hi = uint64(u.text.Lo), uint64(u.text.Hi)
		case lleBaseAddress:
			base = b.word(8)
			continue
		case lleStartEnd:
			lo, hi = b.word(8), b.word(8)
		case lleStartLength:
			lo = b.word(8)
			hi = lo + b.uleb()
		default: // those with an index are of split units
			return nil, fmt.Errorf("an entry of kind %d, which vmlinux does not have", kind)
		}
		p := u.place(b.bytes(b.uleb()))
		p.Range = Range{isa.Off(lo) - u.text.Lo, isa.Off(hi) - u.text.Lo}
		if p.Kind != Lost && p.Lo < p.Hi {
			out = append(out, p)
		}
	}
	return nil, b.err
}

// place is what an expression means, as far as it is one register, or one and an offset, or known
// before it runs; else Lost.
func (u *reading) place(expr []byte) Place {
	b := buffer{rest: expr}
	op := b.byte()
	p := Place{}
	switch {
	case op >= opReg0 && int(op-opReg0) < len(u.regs):
		p = Place{Kind: Register, Reg: isa.Reg(u.regs[op-opReg0])}
	case op >= opBreg0 && op < opFbreg && int(op-opBreg0) < len(u.regs):
		p = Place{Kind: Memory, Reg: isa.Reg(u.regs[op-opBreg0]), Off: b.sleb()}
	case op == opFbreg:
		p = Place{Kind: Frame, Off: b.sleb()}
	case op == opImplicit:
		if n := b.uleb(); n > 0 && n <= 8 && n == uint64(len(b.rest)) {
			return Place{Kind: Constant, Off: int64(b.word(int(n)))}
		}
	case op == opAddr:
		if a := isa.Off(b.word(8)); a >= u.text.Lo { // the image's, or its data's
			p = Place{Kind: Symbol, Off: int64(a - u.text.Lo)}
		}
	case op >= opLit0 && op < opReg0:
		p = Place{Kind: Constant, Off: int64(op - opLit0)}
	case op >= opConst1u && op <= opConst8s:
		p = Place{Kind: Constant, Off: b.number(op)}
	case op == opConstu:
		p = Place{Kind: Constant, Off: int64(b.uleb())}
	case op == opConsts:
		p = Place{Kind: Constant, Off: b.sleb()}
	}
	return p.meant(b)
}

// meant is a place with what follows its operation taken into account: what is computed is its
// value if that is said (section 2.6.1.1.3), and else an address.
func (p Place) meant(b buffer) Place {
	value := len(b.rest) == 1 && b.rest[0] == opStackValue
	switch {
	case b.err != nil || len(b.rest) > 0 && !value:
		return Place{}
	case p.Kind == Memory && value:
		p.Kind = Sum
	case value && (p.Kind == Frame || p.Kind == Register), !value && (p.Kind == Symbol || p.Kind == Constant):
		return Place{}
	}
	return p
}

// buffer reads numbers; behind its end they are 0, and there is an error.
type buffer struct {
	rest []byte
	err  error
}

func (b *buffer) bytes(n uint64) []byte {
	if n > uint64(len(b.rest)) {
		b.err, b.rest = fmt.Errorf("cut off"), nil
		return nil
	}
	out := b.rest[:n]
	b.rest = b.rest[n:]
	return out
}

func (b *buffer) byte() byte {
	if s := b.bytes(1); s != nil {
		return s[0]
	}
	return 0
}

// word is n bytes, 8 at most, without a sign.
func (b *buffer) word(n int) uint64 {
	var w [8]byte
	copy(w[:], b.bytes(uint64(n)))
	return binary.LittleEndian.Uint64(w[:])
}

// number is the operand of opConst1u to opConst8s.
func (b *buffer) number(op byte) int64 {
	size := (op - opConst1u) / 2
	w := b.word(1 << size)
	shift := 64 - 8<<size
	if (op-opConst1u)%2 == 1 {
		return int64(w<<shift) >> shift
	}
	return int64(w)
}

func (b *buffer) uleb() uint64 {
	v, n := binary.Uvarint(b.rest)
	if n <= 0 {
		b.err, b.rest = fmt.Errorf("a number is cut off"), nil
		return 0
	}
	b.rest = b.rest[n:]
	return v
}

// sleb is a signed LEB128, whose sign is the last byte's bit 6.
func (b *buffer) sleb() int64 {
	var v int64
	for shift := 0; ; shift += 7 {
		c := b.byte()
		if shift < 64 {
			v |= int64(c&0x7f) << shift
		}
		if c&0x80 == 0 {
			if c&0x40 != 0 && shift+7 < 64 {
				v |= -1 << (shift + 7)
			}
			return v
		}
	}
}
