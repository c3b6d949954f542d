package sweep

import (
	"testing"

	"kerninst/agent/isa"
)

// listing are instructions of four bytes from 0x1000 on, as objdump prints them.
// Address is what objdump computed, if anything.
func listing(lines ...Line) (out []Listed) {
	for k, l := range lines {
		l.Addr, l.Len = 0x1000+isa.Addr(4*k), 4
		out = append(out, Listed{Line: l, Flow: isa.FlowNone})
	}
	return out
}

func line(mnemonic, operands string) Line { return Line{Mnemonic: mnemonic, Operands: operands} }

// Tables are read in the forms that compilers give them, also when the constant was
// made far away, and not in others.
func TestTableForms(t *testing.T) {
	place := func(l Line, a isa.Addr) Line { l.Address = a; return l }
	tests := []struct {
		name, arch, reg string
		far             []Listed // of the function, out of the window
		before          []Listed
		want            JumpTable // nothing: not read
	}{
		{"distances", "arm64", "x1", nil, listing(line("adrp", "x2, 5000"), line("add", "x2, x2, #0x10"),
			line("ldrh", "w1, [x2, w0, uxtw #1]"), line("adr", "x0, 1040"), line("add", "x1, x0, w1, sxth #2")),
			JumpTable{Addr: 0x5010, Base: 0x1040, Size: 2, Scale: 2}},
		{"far away, and moved on", "arm64", "x1", listing(line("adrp", "x9, 5000"), line("add", "x9, x9, #0x10"), line("add", "x9, x9, #0x300"), line("mov", "x24, x9")),
			listing(line("ldrb", "w1, [x24, w0, uxtw]"), line("adr", "x0, 1040"), line("add", "x1, x0, w1, sxtb #2")),
			JumpTable{Addr: 0x5310, Base: 0x1040, Size: 1, Scale: 2}},
		{"addresses, by a byte", "arm64", "x2", listing(line("adrp", "x21, 5000"), line("add", "x21, x21, #0xa30")),
			listing(line("ldrb", "w1, [x19, #8]"), line("ldr", "x2, [x21, w1, sxtw #3]")),
			JumpTable{Addr: 0x5a30, Size: 8, Entries: 256}},
		{"distances", "riscv64", "a5", nil, listing(line("auipc", "a4,0x1"), place(line("addi", "a4,a4,16"), 0x2010),
			line("slli", "a5,a5,0x2"), line("add", "a5,a5,a4"), line("lw", "a5,0(a5)"), line("add", "a5,a5,a4")),
			JumpTable{Addr: 0x2010, Base: 0x2010, Size: 4}},
		{"far away, the table first", "riscv64", "a5", listing(line("auipc", "s3,0x1"), place(line("addi", "s3,s3,16"), 0x2010)),
			listing(line("slli", "a4,a4,0x2"), line("add", "a5,s3,a4"), line("lw", "a5,0(a5)"), line("add", "a5,a5,s3")),
			JumpTable{Addr: 0x2010, Base: 0x2010, Size: 4}},
		{"addresses, by a byte", "riscv64", "a5", listing(line("auipc", "s3,0x1"), place(line("addi", "s3,s3,16"), 0x2010)),
			listing(line("lbu", "a4,8(s1)"), line("slli", "a5,a4,0x3"), line("add", "a5,a5,s3"), line("ld", "a5,0(a5)")),
			JumpTable{Addr: 0x2010, Size: 8, Entries: 256}},
		{"a pointer", "riscv64", "a5", nil, listing(line("ld", "a5,16(a0)")), JumpTable{}},
		{"a pointer", "arm64", "x1", nil, listing(line("ldr", "x1, [x0, #16]")), JumpTable{}},
	}
	for _, tt := range tests {
		m := newMade()
		for _, part := range [][]Listed{tt.far, tt.before} {
			for k := range part {
				m.note(&part[k])
			}
		}
		j := IndirectJump{Before: tt.before, reg: tt.reg, made: m}
		got, ok := j.Table(tt.arch)
		if ok != (tt.want != JumpTable{}) || ok && got != tt.want {
			t.Errorf("%s on %s: %+v, %t; want %+v", tt.name, tt.arch, got, ok, tt.want)
		}
	}
}

// Entries are signed distances from the base, or addresses.
func TestEntry(t *testing.T) {
	for _, tt := range []struct {
		table JumpTable
		bytes string
		want  isa.Addr
	}{
		{JumpTable{Base: 0x1000, Size: 1, Scale: 2}, "\xff", 0xffc},
		{JumpTable{Base: 0x1000, Size: 2, Scale: 2}, "\x01\xff", 0xc04},
		{JumpTable{Base: 0x1000, Size: 4}, "\x10\x00\x00\x00", 0x1010},
		{JumpTable{Size: 8}, "\x10\x00\x00\x80\xff\xff\xff\xff", 0xffffffff80000010},
	} {
		if got := tt.table.Entry([]byte(tt.bytes)); got != tt.want {
			t.Errorf("%+v of %x: %v, want %v", tt.table, tt.bytes, got, tt.want)
		}
	}
}
