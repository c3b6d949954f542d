package gen

import (
	"kerninst/agent/isa"
	"kerninst/agent/isa/amd64"
)

// countAmd64 is one instruction when the flags are free; it changes nothing
// else. The kernel has no red zone, so the flags may be pushed.
func countAmd64(b *builder) {
	keep := !b.in.Free[0].Has(amd64.Flags)
	b.state(b.point, 0, nil)
	if keep {
		b.one(amd64.PushFlags(), nil)
		b.state(b.point, 8, []isa.Reg{amd64.Flags})
		b.out.Spilled++
	}
	code, err := amd64.LockInc(b.pc(), b.in.Cell)
	b.one(code, reach(err))
	if keep {
		b.one(amd64.PopFlags(), nil)
	}
}

func backAmd64(b *builder) {
	code, err := amd64.Jump(b.pc(), b.in.Back)
	b.one(code, reach(err))
}

func entryAmd64(from, to isa.Addr, _ isa.Reg) ([]byte, int, error) {
	code, err := amd64.Jump(from, to)
	return code, 1, reach(err)
}
