package gen

import (
	"kerninst/agent/isa"
	"kerninst/agent/isa/amd64"
	"kerninst/agent/isa/arm64"
	"kerninst/agent/isa/riscv64"
	"kerninst/agent/snippet"
)

// A record is what many hits add, so each ISA counts in the states of rings where it takes
// fewest instructions to make a place of a state: see snippet.Cell. Besides stamp and fields
// these are what finds the ring, what one more record adds to its state, the addition, a branch
// on what that has said, and one or two that lead to the place.
//
// Who looks for his CPU's ring and is taken to another CPU before the addition adds to the ring
// of the one that he was on, as other CPUs may: so the addition is one for all CPUs, and on amd64
// has a lock. It could only do without if all, up to the last store, were by %gs in one
// instruction. One that adds to a state in per-CPU memory would still leave the place to be found,
// on a CPU that may be another by then, in which somebody else has that place.

// Form is a ring's cell with how its state counts on an ISA. How many records it has is known.
func Form(arch *isa.Arch, c snippet.Cell) snippet.Cell {
	g := generators[arch.Name]
	c.Ring.Low, c.Ring.After = g.low(log2(c.Records), log2(8*c.Stride())), g.after
	return c
}

// ring is the cell of an instruction that makes a record.
func (l *lowering) ring(i snippet.Insn) snippet.Cell { return Form(l.arch, l.s.Cells[i.Cell]) }

// lowAmd64: masked, a count is how far its place is from the first. An addition sets the flags
// by what it has come to.
func lowAmd64(_, record uint8) uint8 { return record }

// appendAmd64 reserves a record in a ring, fills it in, and stamps it: stores are seen in
// order (SDM volume 3, 9.2.2). A task that goes to another CPU in between writes to the ring
// of the one that it was on, as it would if it were interrupted there. The time is read
// first, so that a register is enough for what leads to the record: who is interrupted behind
// that has a record that is stamped a bit before it was asked for. One without fields has no
// time.
func (l *lowering) appendAmd64(i snippet.Insn, load func(isa.Reg, uint64)) {
	c := l.ring(i)
	ring, n := l.tmp[0], amd64.RDX
	if c.Fields == 0 {
		n = l.tmp[1]
	} else {
		l.put(amd64.ReadTime())
		l.put(amd64.AddLower(amd64.RDX, int32(c.Ring.Tag)<<16))
		l.put(amd64.ShiftImm(true, false, amd64.RDX, 32))
		l.put(amd64.ALUReg(amd64.Or, amd64.RAX, amd64.RDX))
	}
	if c.Ring.Each {
		code, err := amd64.LocalLoad(ring, isa.Addr(c.Ring.At))
		l.one(code, reach(err))
	} else {
		load(ring, c.Ring.At)
	}
	load(n, c.Step())
	l.put(amd64.LockExchangeAddAt(n, ring))
	full := l.ahead(func(from, to isa.Addr) ([]byte, error) { return amd64.JumpIf(amd64.Positive, from, to) })
	l.put(amd64.ALUImm(amd64.And, n, int32((c.Records-1)*8*c.Stride())))
	for k, o := range i.Fields {
		l.put(amd64.StoreIndexed(ring, n, int8(8*(snippet.RingHead+1+k)), l.operand(o, l.tmp[len(l.tmp)-1], load)))
	}
	if c.Fields == 0 {
		l.put(amd64.StoreImmIndexed(ring, n, 8*snippet.RingHead, int32(c.Ring.Word())))
	} else {
		l.put(amd64.StoreIndexed(ring, n, 8*snippet.RingHead, amd64.RAX))
	}
	full()
}

// half is how many bits an operand's lower half word has, which arm64's add takes by itself,
// shifted left by mostShift at the most.
const half, mostShift = 16, 4

// lowArm64 has a count end where the half word does, so that an addition leads to its place; or
// else begin where the state does.
func lowArm64(records, record uint8) uint8 {
	if _, ok := halfArm64(records, record); ok {
		return half - records
	}
	return 0
}

// halfArm64 is by how much that half word is to be shifted.
func halfArm64(records, record uint8) (shift uint8, ok bool) {
	bytes := records + record
	return bytes - half, records <= half && bytes >= half && bytes <= half+mostShift
}

// appendArm64 is what appendAmd64 is. It changes no flags. What a word's place is depends on
// what was read from the state, so it is stored behind the reader's 0, which the reader had put
// there before it made room in that state (Arm ARM B2.3, ordered by address dependencies).
func (l *lowering) appendArm64(i snippet.Insn, load func(isa.Reg, uint64)) {
	c := l.ring(i)
	at, n := l.tmp[0], l.tmp[1]
	l.ringArm64(at, n, c.Ring.Each, l.cell(i.Cell, 0))
	l.one(arm64.LoadAt(n, at, 8*snippet.RingStep, 8, false))
	l.one(arm64.AtomicFetchAdd(n, n, at))
	full := l.ahead(func(from, to isa.Addr) ([]byte, error) { return arm64.JumpIfPositive(n, from, to) })
	records, record := log2(c.Records), log2(8*c.Stride())
	if shift, ok := halfArm64(records, record); ok {
		l.one(arm64.AddHalf(at, at, n, shift))
	} else {
		l.one(arm64.KeepLow(n, n, records))
		l.one(arm64.ALUReg(arm64.Add, at, at, n, record))
	}
	const first = 8 * snippet.RingHead
	for k := 0; k < len(i.Fields); k++ {
		o, off := i.Fields[k], first+8+8*k
		if next := k + 1; next < len(i.Fields) && !o.IsConst && !i.Fields[next].IsConst {
			l.one(arm64.StorePairAt(at, off, l.regs[o.Value], l.regs[i.Fields[next].Value]))
			k = next
			continue
		}
		l.one(arm64.StoreAt(at, off, l.operand(o, n, load)))
	}
	if c.Fields == 0 {
		load(n, uint64(uint32(c.Ring.Word())))
		l.one(arm64.StoreAt(at, first, n))
	} else {
		l.one(arm64.ReadTime(n))
		l.one(arm64.PutHigh(n, c.Ring.Tag))
		l.one(arm64.AddImm(at, at, first))
		l.one(arm64.StoreRelease(at, n))
	}
	full()
}

// ringArm64 puts the address of the ring that a cell leads to into a register: what the cell
// holds, or what it says where in this CPU's memory.
func (l *lowering) ringArm64(at, t isa.Reg, each bool, cell isa.Addr) {
	if !each {
		code, err := arm64.LoadLiteral(at, l.pc(), cell)
		l.one(code, reach(err))
		return
	}
	code, err := arm64.LoadLiteral(t, l.pc(), cell)
	l.one(code, reach(err))
	l.one(arm64.ReadPerCPU(at))
	l.one(arm64.LoadIndexed(at, at, t))
}

// lowRiscv64 has a count end with the state's lower half, which one shift brings down.
func lowRiscv64(records, _ uint8) uint8 { return 32 - records }

// appendRiscv64 is what appendAmd64 is. As on arm64, what a place depends on orders it (the
// ISA's volume 1, 17.1: syntactic address dependencies).
func (l *lowering) appendRiscv64(i snippet.Insn, load func(isa.Reg, uint64)) {
	c := l.ring(i)
	at, n := l.tmp[0], l.tmp[1]
	if c.Fields == 0 {
		l.emit(riscv64.LoadNear(at, l.pc(), l.cell(i.Cell, 0), 8))
	} else { // the cell is needed for the stamp
		l.addressRiscv64(l.tmp[2], l.cell(i.Cell, 0))
		l.one(riscv64.LoadAt(at, l.tmp[2], 0, 8, false))
	}
	if c.Ring.Each { // as ringArm64
		l.one(riscv64.LoadAt(n, riscv64.TP, c.Ring.CPU, 4, false))
		l.one(riscv64.ShiftImm(true, false, n, n, 3))
		l.one(riscv64.ALUReg(riscv64.Add, at, at, n))
		l.one(riscv64.LoadAt(at, at, 0, 8, false))
	}
	l.one(riscv64.LoadAt(n, at, 8*snippet.RingStep, 8, false))
	l.one(riscv64.AtomicOp(riscv64.AtomicSum, n, n, at))
	full := l.ahead(func(from, to isa.Addr) ([]byte, error) {
		return riscv64.JumpIf(riscv64.GreaterEqual, n, 0, from, to)
	})
	l.one(riscv64.ShiftRightLower(n, n, 32-log2(c.Records)-log2(8*c.Stride())))
	l.one(riscv64.ALUReg(riscv64.Add, at, at, n))
	for k, o := range i.Fields {
		l.one(riscv64.StoreAt(at, 8*(snippet.RingHead+1+k), l.operand(o, n, load)))
	}
	if c.Fields == 0 {
		load(n, c.Ring.Word())
	} else {
		l.one(riscv64.ReadTime(n))
		l.one(riscv64.LoadAt(l.tmp[2], l.tmp[2], 8, 8, false))
		l.one(riscv64.ALUReg(riscv64.Add, n, n, l.tmp[2]))
		l.put(riscv64.FenceStores())
	}
	l.one(riscv64.StoreAt(at, 8*snippet.RingHead, n))
	full()
}
