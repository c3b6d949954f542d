package inline

import (
	"cmp"
	"maps"
	"slices"

	"kerninst/agent/isa"
)

// Exit is a way out of a copy: the instruction before which somebody stands who is just leaving
// it, or has just left, and nobody else; or Why that cannot be told there.
type Exit struct {
	At  isa.Addr
	Why string
}

// Code is the instructions of a body, and where they lead.
type Code struct {
	Insns []isa.Insn // in order of places
	// Also is where control may go from an instruction but as it says: what the kernel may have
	// written there instead (static keys), and fixups of faults.
	Also map[isa.Addr][]isa.Addr
}

// next is where control goes from an instruction, within its function. Some traps go on.
func (c Code) next(i isa.Insn) []isa.Addr {
	also := c.Also[i.Addr]
	switch i.Flow {
	case isa.FlowJump:
		return append([]isa.Addr{i.Target}, also...)
	case isa.FlowCond:
		return append([]isa.Addr{i.End(), i.Target}, also...)
	case isa.FlowReturn, isa.FlowIndirectJump:
		return also
	}
	return append([]isa.Addr{i.End()}, also...)
}

// Exits are the ways out of a copy. inside says what is in it, entry where it is entered. The compiler
// mixes a copy with the code around it: who leaves it and may come back, but not by the entry, has not
// left. Where something outside is only come to from the copy, that is where somebody has left,
// whichever way. Else it is the instruction that has no way but out: the last one of a stretch,
// which goes on elsewhere, a jump, a return, a conditional jump whose ways are both outside; of one
// with ways both in and out nobody can tell. A trap is no way out, nor is a call behind which no
// code of the body follows: neither comes back.
func (c Code) Exits(entry isa.Addr, inside func(isa.Addr) bool) []Exit {
	between := c.mixedIn(entry, inside)
	within := func(a isa.Addr) bool { return inside(a) || between[a] }
	w := c.waysOf(within)
	var out []Exit
	for _, i := range c.Insns {
		if within(i.Addr) {
			out = w.exits(out, i)
		}
	}
	slices.SortFunc(out, func(a, b Exit) int { return cmp.Compare(a.At, b.At) })
	return slices.Compact(out)
}

// mixedIn is what is outside a copy, can be come to from it, and from where it can be come back
// to but by its entry.
func (c Code) mixedIn(entry isa.Addr, inside func(isa.Addr) bool) map[isa.Addr]bool {
	from, at := map[isa.Addr][]isa.Addr{}, map[isa.Addr]isa.Insn{} // from: where each place is come to from
	var ends, begins []isa.Addr
	for _, i := range c.Insns {
		at[i.Addr] = i
		for _, a := range c.next(i) {
			from[a] = append(from[a], i.Addr)
			switch {
			case inside(i.Addr) && !inside(a):
				begins = append(begins, a)
			case !inside(i.Addr) && inside(a) && a != entry:
				ends = append(ends, i.Addr)
			}
		}
	}
	back := reached(ends, func(a isa.Addr) []isa.Addr { return from[a] }, inside)
	comes := reached(begins, func(a isa.Addr) []isa.Addr {
		if i, ok := at[a]; ok {
			return c.next(i)
		}
		return nil
	}, inside)
	maps.DeleteFunc(comes, func(a isa.Addr, _ bool) bool { return !back[a] })
	return comes
}

// reached is what can be come to from some places, themselves included, without passing what is inside.
func reached(from []isa.Addr, next func(isa.Addr) []isa.Addr, inside func(isa.Addr) bool) map[isa.Addr]bool {
	out := map[isa.Addr]bool{}
	for len(from) > 0 {
		a := from[len(from)-1]
		if from = from[:len(from)-1]; !out[a] && !inside(a) {
			out[a] = true
			from = append(from, next(a)...)
		}
	}
	return out
}

// ways are those from each instruction to the next ones.
type ways struct {
	Code
	inside   func(isa.Addr) bool
	all, own map[isa.Addr]int // into each place; those from inside the copy
	known    map[isa.Addr]bool
	anywhere bool // some jump may lead anywhere
}

func (c Code) waysOf(inside func(isa.Addr) bool) *ways {
	w := &ways{Code: c, inside: inside, all: map[isa.Addr]int{}, own: map[isa.Addr]int{}, known: map[isa.Addr]bool{}}
	for _, i := range c.Insns {
		w.known[i.Addr] = true
		w.anywhere = w.anywhere || i.Flow == isa.FlowIndirectJump
		for _, a := range c.next(i) {
			if w.all[a]++; inside(i.Addr) {
				w.own[a]++
			}
		}
	}
	return w
}

// exits adds those of one instruction inside.
func (w *ways) exits(out []Exit, i isa.Insn) []Exit {
	switch i.Flow {
	case isa.FlowReturn:
		return append(out, Exit{At: i.Addr})
	case isa.FlowIndirectJump:
		return append(out, Exit{i.Addr, "it jumps to where a register says, perhaps out of the copy"})
	case isa.FlowTrap, isa.FlowUnknown:
		return out
	}
	ways := w.next(i)
	left := slices.DeleteFunc(slices.Clone(ways), w.inside)
	if calls := i.Flow == isa.FlowCall || i.Flow == isa.FlowIndirectCall; len(left) == 0 || calls && !w.known[i.End()] {
		return out
	}
	alone := func(a isa.Addr) bool { return w.known[a] && w.all[a] == w.own[a] && !w.anywhere }
	for _, a := range left {
		if alone(a) {
			out = append(out, Exit{At: a})
		}
	}
	if shared := slices.DeleteFunc(left, alone); len(shared) > 0 {
		e := Exit{At: i.Addr}
		if len(shared) < len(ways) {
			e.Why = "a way leads out of the copy from there, to where others come, too, and another does not"
		}
		out = append(out, e)
	}
	return out
}
