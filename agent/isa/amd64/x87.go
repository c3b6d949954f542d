package amd64

import "kerninst/agent/isa"

// x87Stores has a bit for each ModRM.reg with which d8 to df write memory, and
// x87None for those that do not exist (SDM volume 2, A.5.2).
var (
	x87Stores = [8]byte{1: 1<<2 | 1<<3 | 1<<6 | 1<<7, 3: 1<<1 | 1<<2 | 1<<3 | 1<<7,
		5: 1<<1 | 1<<2 | 1<<3 | 1<<6 | 1<<7, 7: 1<<1 | 1<<2 | 1<<3 | 1<<6 | 1<<7}
	x87None = [8]byte{1: 1 << 1, 3: 1<<4 | 1<<6, 5: 1 << 5}
)

// x87Direct lists what exists with register operands: runs of ModRM, and what
// they do beside the register stack.
var x87Direct = []struct {
	op, lo, hi byte
	row        row
}{
	{0xd8, 0xc0, 0xff, row{}},
	{0xd9, 0xc0, 0xd0, row{}}, {0xd9, 0xe0, 0xe1, row{}}, {0xd9, 0xe4, 0xe5, row{}}, {0xd9, 0xe8, 0xee, row{}}, {0xd9, 0xf0, 0xff, row{}},
	{0xda, 0xc0, 0xdf, row{flags: fR}}, {0xda, 0xe9, 0xe9, row{}}, // fcmov
	{0xdb, 0xc0, 0xdf, row{flags: fR}}, {0xdb, 0xe2, 0xe3, row{}}, {0xdb, 0xe8, 0xf7, row{flags: fC}}, // fcomi
	{0xdc, 0xc0, 0xcf, row{}}, {0xdc, 0xe0, 0xff, row{}},
	{0xdd, 0xc0, 0xc7, row{}}, {0xdd, 0xd0, 0xef, row{}},
	{0xde, 0xc0, 0xcf, row{}}, {0xde, 0xd9, 0xd9, row{}}, {0xde, 0xe0, 0xff, row{}},
	{0xdf, 0xe0, 0xe0, row{clobbers: rax}}, {0xdf, 0xe8, 0xf7, row{flags: fC}}, // fnstsw %ax
}

var x87Load, x87Store = row{known: true, modrm: true, e: vrd, traits: x87Traits}, row{known: true, modrm: true, e: vwr, traits: x87Traits}

// An x87 instruction raises what an earlier one left pending.
const x87Traits = isa.Vector | isa.MayFault

func init() {
	for k := range x87Direct {
		r := &x87Direct[k].row
		r.known, r.traits = true, x87Traits
	}
}

// x87 finds the row of d8 to df, whose ModRM has been read.
func (d *insn) x87(op byte) (*row, bool) {
	if d.modrm >= 0xc0 {
		for k := range x87Direct {
			if x := &x87Direct[k]; x.op == op && d.modrm >= x.lo && d.modrm <= x.hi {
				return &x.row, true
			}
		}
		return nil, false
	}
	bit := byte(1) << (d.modrm >> 3 & 7)
	switch {
	case x87None[op&7]&bit != 0:
		return nil, false
	case x87Stores[op&7]&bit != 0:
		return &x87Store, true
	}
	return &x87Load, true
}
