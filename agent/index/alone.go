package index

import (
	"slices"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/live"
)

// maxAlone bounds a function that is analysed by itself, in bytes.
const maxAlone = 1 << 20

// alone analyses one function without knowing anything of others. Whatever is
// live elsewhere, everything is live where control leaves the function or may
// be made to: at calls, returns, jumps to what is no instruction of its own,
// and at sites that the kernel rewrites. Less is, at returns of what only C calls. What
// has a fixup goes on behind itself or there, if that is in the function. A function whose
// end is not known, or that does not decode, has no free registers.
func (v *View) alone(f ktext.Func, how How) (*Function, error) {
	fn := &Function{Func: f, How: how, arch: v.t.Arch}
	if f.Size == 0 || f.Size > maxAlone {
		return fn, nil
	}
	code, err := v.t.Code(f)
	if err != nil {
		return nil, err
	}
	fn.Traced = v.t.Compiled(f.Addr, code)
	list, end := v.t.Decoded(f.Addr, code), f.Addr+isa.Addr(len(code))
	if n := len(list); n == 0 || list[n-1].End() != end {
		list = within(decode(make([]isa.Insn, 0, len(code)/usualLen+1), v.t.Arch, code, f.Addr), end)
		v.t.KeepDecoded(f.Addr, code, list)
	}
	fn.insns, fn.before = list, fn.everything(len(list))
	may := slices.ContainsFunc(list, isa.Insn.MayRebase)
	fn.rebases = &may
	for _, i := range list {
		if i.Traits&isa.Lost != 0 { // where instructions begin is a guess
			return fn, nil
		}
	}
	faults, err := v.t.Faults(f.Module, f.Addr, f.End())
	if err != nil {
		return nil, err
	}
	fixups := map[isa.Addr]ktext.Fault{}
	for _, e := range faults {
		fixups[e.Site] = e
	}
	leaves, err := v.leaves(f, list, fixups)
	if err != nil {
		return nil, err
	}
	fn.returned(v.t)
	fn.solve(list, leaves, fixups)
	return fn, nil
}

// returned says what is live at returns where that is known.
func (f *Function) returned(t *ktext.Text) {
	reads, ok := live.Returned(t.Arch, t.Aliases(f.Func))
	if !ok || f.Func.Module != "" {
		return
	}
	for k, i := range f.insns {
		if i.Flow == isa.FlowReturn {
			f.before[k] = i.Reads | reads
		}
	}
}

// leaves marks the instructions behind which nothing is known.
func (v *View) leaves(f ktext.Func, list []isa.Insn, fixups map[isa.Addr]ktext.Fault) ([]bool, error) {
	site := v.t.Site
	if lo, hi := v.t.Bounds(); f.Module != "" || f.Addr < lo || f.End() > hi { // all of it, if no text is known there
		site = func(lo, hi isa.Addr) (ktext.Reservation, bool, error) { return v.t.Reserved(f, lo, hi) }
	}
	out := make([]bool, len(list))
	for k, i := range list {
		r, site, err := site(i.Addr, i.End())
		if err != nil {
			return nil, err
		}
		if _, ok := fixups[i.Addr]; ok && r.Class == ktext.Exception {
			site = false
		}
		local := i.Flow == isa.FlowNone || i.Flow == isa.FlowCond || i.Flow == isa.FlowJump
		out[k] = site || !local
	}
	return out, nil
}

// solve finds the least solution within the function; leaves are where
// everything is live. A fault happens instead of its instruction.
func (f *Function) solve(list []isa.Insn, leaves []bool, fixups map[isa.Addr]ktext.Fault) {
	all := f.arch.All
	for k := range f.before {
		if !leaves[k] {
			f.before[k] = 0
		}
	}
	for changed := true; changed; {
		changed = false
		for k := len(list) - 1; k >= 0; k-- {
			if leaves[k] {
				continue
			}
			i := list[k]
			behind := isa.RegSet(0)
			if i.Flow != isa.FlowJump {
				if k+1 == len(list) {
					behind = all
				} else {
					behind = f.before[k+1]
				}
			}
			if i.Flow != isa.FlowNone {
				behind |= f.behindJump(i.Target)
			}
			now := i.Reads | behind&^i.Writes
			if e, ok := fixups[i.Addr]; ok {
				now |= e.Reads | f.behindJump(e.Fixup)
			}
			if now != f.before[k] {
				f.before[k], changed = now, true
			}
		}
	}
}

// behindJump is what is live where a jump leads: everything, if that is elsewhere,
// or the entry, where tracers read arguments that the code does not.
func (f *Function) behindJump(to isa.Addr) isa.RegSet {
	if f.Traced && to == f.Func.Addr {
		return f.arch.All
	}
	reads, _ := f.Before(to) // everything, if none begins there
	return reads
}
