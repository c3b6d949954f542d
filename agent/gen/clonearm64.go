package gen

import (
	"kerninst/agent/isa"
	"kerninst/agent/isa/arm64"
)

// What clones take on arm64. Who begins to run a function has x16 and x17 to himself: a branch
// may have come by a veneer that used them (AAPCS64, 6.1.1).

const (
	gate1Arm64 = isa.Reg(16)
	// Of the words at a function's begin, mov x9, x30 and nop, these bits are set; of a kprobe's brk in
	// place of the first, and of ftrace's bl in place of the second, they are not.
	movedArm64 = 25
	bareArm64  = 32 + 30
)

// gateArm64 goes to the original if its ftrace site is not bare.
func gateArm64(b *builder, g *Gate) {
	b.loadArm64(gate1Arm64, g.Site, 8)
	b.jump(func(from, to isa.Addr) ([]byte, error) {
		return arm64.JumpIfBit(false, gate1Arm64, movedArm64, from, to)
	}, b.pc()+8)
	b.jump(func(from, to isa.Addr) ([]byte, error) { return arm64.JumpIfBit(true, gate1Arm64, bareArm64, from, to) }, b.pc()+8)
	b.jump(arm64.Jump, g.Function)
}

// loadArm64 loads a word of 4 or 8 bytes from an address into a register.
func (b *builder) loadArm64(r isa.Reg, at isa.Addr, bytes int) {
	if low := at & 0xfff; int(low)%bytes == 0 {
		code, err := arm64.Address(r, b.pc(), at&^0xfff)
		b.emit(code, 0, reach(err))
		code, err = arm64.LoadAt(r, r, int32(low), bytes, false)
		b.emit(code, 0, err)
		return
	}
	code, err := arm64.Address(r, b.pc(), at)
	b.emit(code, 0, reach(err))
	code, err = arm64.LoadAt(r, r, 0, bytes, false)
	b.emit(code, 0, err)
}

// literalArm64 loads an address that lies behind the code: one instruction, where to form it would take two.
func (b *builder) literalArm64(r isa.Reg, v isa.Addr) {
	load := func(from, to isa.Addr) ([]byte, error) { return arm64.LoadLiteral(r, from, to) }
	at := len(b.out.Code)
	b.jump(load, b.pc())
	b.later = append(b.later, func() {
		b.aimAgain(load, at, b.pc())
		b.emit(isa.ByteOrder.AppendUint64(nil, uint64(v)), 0, nil)
	})
}

// keyArm64 jumps if a key is not, or is, 0.
func keyArm64(b *builder, x *Cloned, to isa.Addr) {
	r := b.spare(orderArm64, x, 1)[0]
	b.loadArm64(r, x.Key.Enabled, 4)
	if x.Key.Off {
		b.jump(func(from, to isa.Addr) ([]byte, error) { return arm64.JumpIfZero(r, from, to) }, to)
		return
	}
	b.jump(func(from, to isa.Addr) ([]byte, error) { return arm64.JumpIfNotZero(r, from, to) }, to)
}

var linksArm64 = linker{
	scratch: 1,
	isHeld: func(b *builder, x *Cloned, f isa.Addr) {
		r := b.spare(orderArm64, x, 1)[0]
		b.literalArm64(r, f)
		code, err := arm64.Compare(*x.By, r)
		b.emit(code, 0, err)
	},
	onEqual: func(*Cloned) encoder {
		return func(from, to isa.Addr) ([]byte, error) { return arm64.JumpIf(arm64.Equal, from, to) }
	},
	onOther: func(*Cloned) encoder {
		return func(from, to isa.Addr) ([]byte, error) { return arm64.JumpIf(arm64.NotEqual, from, to) }
	},
	note: func(b *builder, x *Cloned, f, cell isa.Addr) {
		b.saving(orderArm64, x, arm64.Push, arm64.Pop, func(at, v isa.Reg) {
			code, err := arm64.Address(v, b.pc(), f)
			b.emit(code, 0, reach(err))
			b.noteArm64(at, v, cell)
			b.tallyArm64(at, v)
		})
	},
	noteR: func(b *builder, x *Cloned, cell isa.Addr) {
		b.saving(orderArm64, x, arm64.Push, arm64.Pop, func(at, n isa.Reg) {
			b.noteArm64(at, *x.By, cell)
			b.tallyArm64(at, n)
		})
	},
}

// noteArm64 stores what a register holds, and leaves the address of the cell in another.
func (b *builder) noteArm64(at, r isa.Reg, cell isa.Addr) {
	code, err := arm64.Adr(at, b.pc(), cell)
	b.emit(code, 0, reach(err))
	code, err = arm64.StoreAt(at, 0, r)
	b.emit(code, 0, err)
}

// tallyArm64 adds one to the word behind a cell. Of two CPUs at once one may be lost: it is how often, about.
func (b *builder) tallyArm64(at, n isa.Reg) {
	code, err := arm64.LoadAt(n, at, 8, 8, false)
	b.emit(code, 0, err)
	code, err = arm64.AddImm(n, n, 1)
	b.emit(code, 0, err)
	code, err = arm64.StoreAt(at, 8, n)
	b.emit(code, 0, err)
}

func aimArm64(i isa.Insn, code []byte, from isa.Addr) ([]byte, error) {
	return arm64.Aim(code, from, i.Target)
}

// nopArm64 is what a static key's site is while it leads nowhere (Arm ARM C6.2, NOP).
var nopArm64 = []byte{0x1f, 0x20, 0x03, 0xd5}
