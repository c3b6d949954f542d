package sweep

import (
	"strings"

	"kerninst/agent/isa"
)

// made is what the text of one function, cold halves included, gives to registers
// as constants, wherever in it: compilers make what a loop needs in front of it, far
// from where it is used. It follows the listing, not the paths of control, so it may
// be wrong where one register is given several; who reads a table by it then finds
// another than the graph has, and says so.
type made struct {
	now map[string]int64      // since the last call or jump
	all map[string][]constant // in the order of the listing
}

// constant is a value, and the instruction that completed it.
type constant struct {
	at isa.Addr
	v  int64
}

func newMade() *made { return &made{map[string]int64{}, map[string][]constant{}} }

// family is the name of a function of which name may be a cold half.
func family(name string) string {
	whole, _, _ := strings.Cut(name, ".cold")
	return whole
}

// note takes the next instruction of the listing.
//
//	arm64   adrp x1, PAGE; add x1, x1, #LOW; adr x1, PLACE; mov x1, x0; mov w1, #N
//	riscv64 auipc a4, …; addi a4, a4, … # PLACE; mv a4, a5; li a4, N
func (m *made) note(l *Listed) {
	if l.Flow != isa.FlowNone {
		return
	}
	ops := operands(l.Operands)
	if len(ops) == 0 {
		return
	}
	dst := wide(ops[0])
	v, grows, ok := m.makes(l, ops)
	if !ok {
		delete(m.now, dst)
		return
	}
	list := m.all[dst]
	if _, was := m.now[dst]; was && grows && len(list) > 0 { // the page it was is no table
		list = list[:len(list)-1]
	}
	m.now[dst], m.all[dst] = v, append(list, constant{l.Addr, v})
}

// makes is the constant that an instruction gives to its first operand; grows, if
// it is made of what that held before.
func (m *made) makes(l *Listed, ops []string) (v int64, grows, ok bool) {
	last := ops[len(ops)-1]
	switch {
	case l.Mnemonic == "adrp":
		const pages = ^isa.Addr(0xfff)
		return int64(l.Addr&pages + address(ops) - (l.Addr+l.Shift)&pages), false, true
	case l.Mnemonic == "adr":
		return int64(address(ops) - l.Shift), false, true
	case l.Mnemonic == "addi" && l.Address != 0:
		return int64(l.Address), false, true
	case l.Mnemonic == "li" || l.Mnemonic == "mov" && strings.HasPrefix(last, "#"):
		return number(last), false, true
	case (l.Mnemonic == "mov" || l.Mnemonic == "mv") && len(ops) == 2:
		v, ok = m.now[wide(last)]
		return v, false, ok
	case l.Mnemonic == "add" && len(ops) == 3 && strings.HasPrefix(last, "#"):
		v, ok = m.now[wide(ops[1])]
		return v + number(last), wide(ops[0]) == wide(ops[1]), ok
	}
	return 0, false, false
}

// before is the constant that a register was given last in front of an instruction
// or, if there is none, last in the function: loops may be entered at their ends.
func (m *made) before(a isa.Addr, reg string) (int64, bool) {
	list := m.all[wide(reg)]
	if len(list) == 0 {
		return 0, false
	}
	got := list[len(list)-1]
	for k := len(list) - 1; k >= 0; k-- {
		if list[k].at < a {
			got = list[k]
			break
		}
	}
	return got.v, true
}
