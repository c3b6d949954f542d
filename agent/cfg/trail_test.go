package cfg

import (
	"encoding/binary"
	"testing"
)

// riscv64's instructions, of those formats that a jump by a table is made of (RISC-V ISA manual, volume I, chapter 2).
const (
	zero, ra, sp, s1, a0, a1, a3, a4, a5 = 0, 1, 2, 9, 10, 11, 13, 14, 15

	opImm, opLoad, opJalr, opReg = 0x13, 0x03, 0x67, 0x33
	addi, andi, slli             = 0, 7, 1
	lw, ld                       = 2, 3
	beq, bltu                    = 0, 6
)

type made []byte

func (m *made) word(w uint32) { *m = binary.LittleEndian.AppendUint32(*m, w) }

func (m *made) i(op, f, rd, rs uint32, imm int32) {
	m.word(uint32(imm)<<20 | rs<<15 | f<<12 | rd<<7 | op)
}

func (m *made) add(rd, a, b uint32) { m.word(b<<20 | a<<15 | rd<<7 | opReg) }

// branch leads to an offset.
func (m *made) branch(f, a, b uint32, to int) {
	u := uint32(to - len(*m))
	m.word(u>>12&1<<31 | u>>5&63<<25 | b<<20 | a<<15 | f<<12 | u>>1&15<<8 | u>>11&1<<7 | 0x63)
}

// store is sd b, off(a).
func (m *made) store(b, a uint32, off int32) {
	u := uint32(off)
	m.word(u>>5&127<<25 | b<<20 | a<<15 | 3<<12 | u&31<<7 | 0x23)
}

// dispatch jumps by a table behind it, whose entries lead in turn to so many returns behind that.
func (m *made) dispatch(by uint32, entries, targets int) {
	const length = 7 * 4
	m.word(a4<<7 | 0x17) // auipc a4, 0
	m.i(opImm, addi, a4, a4, length)
	m.i(opImm, slli, by, by, 2)
	m.add(by, by, a4)
	m.i(opLoad, lw, by, by, 0)
	m.add(by, by, a4)
	m.i(opJalr, 0, zero, by, 0)
	for k := range entries {
		m.word(uint32(4*entries + 8*(k%targets)))
	}
	for k := range targets {
		m.i(opImm, addi, a0, zero, int32(k))
		m.i(opJalr, 0, zero, ra, 0)
	}
}

// TestTrail: how long tables are where the way to them says one thing and another. exit is the last return.
func TestTrail(t *testing.T) {
	const behind = 7*4 + 4*4 + 3*8 // a dispatch of four entries, and all but the last of four returns
	for name, c := range map[string]struct {
		make func(m *made)
		want int // targets; 0: they are not known
	}{
		"compared": {func(m *made) {
			m.i(opImm, addi, a4, zero, 3)
			m.branch(bltu, a4, a0, 2*4+behind)
			m.dispatch(a0, 4, 4)
		}, 4},
		// What is compared is written over, by what looks like a callee's register that is saved.
		"written on the stack": {func(m *made) {
			const exit = 7*4 + behind
			m.i(opImm, addi, a4, zero, 3)
			m.branch(bltu, a4, s1, exit)
			m.i(opLoad, ld, a5, sp, 8)
			m.i(opImm, addi, a4, zero, 1)
			m.branch(bltu, a4, a5, exit)
			m.store(s1, sp, 8)
			m.i(opLoad, ld, a3, sp, 8)
			m.dispatch(a3, 4, 4)
		}, 0},
		// One way compares with what is, without a sign, more than there are entries.
		"hardly compared": {func(m *made) {
			const exit = 7*4 + behind
			m.i(opImm, addi, a5, a0, 0)
			m.branch(beq, a1, zero, 5*4)
			m.i(opImm, addi, a4, zero, 1)
			m.branch(bltu, a4, a5, exit)
			m.word(0x00c0006f) // j, three words on
			m.i(opImm, addi, a4, zero, -1024)
			m.branch(bltu, a4, a5, exit)
			m.dispatch(a5, 4, 4)
		}, 0},
		"compared, and masked": {func(m *made) {
			m.i(opImm, addi, a4, zero, 3)
			m.branch(bltu, a4, a0, 3*4+behind)
			m.i(opImm, andi, a5, a0, 1)
			m.dispatch(a5, 4, 4)
		}, 2},
	} {
		var m made
		c.make(&m)
		g := graphOf(t, "riscv64", 0xffffffff81000000, m, "0 f")
		tables, targets := 0, 0
		for b := range g.kind {
			if g.kind[b] == KindTable {
				tables, targets = tables+1, len(g.Extra(Block(b)))
			}
		}
		if targets != c.want || (tables > 0) != (c.want > 0) {
			t.Errorf("%s: %d tables with %d targets, want %d", name, tables, targets, c.want)
		}
	}
}
