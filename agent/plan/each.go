package plan

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
)

// Each is which instructions of a function are asked for.
type Each uint8

const (
	EachInstruction Each = iota
	EachBlock            // the first of each basic block: calls end none, as they come back
	EachCall             // what calls, wherever to
	EachReturn           // what leaves the function for good: returns, and jumps to other functions
)

// Offsets are those of some instructions of a function. Of one that the compiler has split
// in a hot half and a cold one (.cold), a jump to the other half is no way out; the other
// half's own points are at its own offsets. What nothing leads to, as traps behind a return,
// is an instruction, but no block.
func Offsets(text *ktext.Text, req Request, each Each) ([]isa.Off, *Refusal) {
	fn, r := req.Known.function(text, req.Module, req.Function)
	if r != nil {
		return nil, r
	}
	return fn.offsets(req, each)
}

// OffsetsAt is Offsets of a function that is already known by its address; Request.Module and
// Function are not used.
func OffsetsAt(text *ktext.Text, f ktext.Func, req Request, each Each) ([]isa.Off, *Refusal) {
	fn, r := req.Known.located(text, f)
	if r != nil {
		return nil, r
	}
	return fn.offsets(req, each)
}

func (fn *function) offsets(req Request, each Each) (out []isa.Off, r *Refusal) {
	if each != EachCall && each != EachInstruction && fn.ownIndirectJump() >= 0 { // to learn takes longest
		r = fn.learn(req)
	}
	if r != nil {
		return nil, r
	}
	fn.whole()
	switch each {
	case EachBlock:
		return fn.blocks(req.Known)
	case EachCall:
		return fn.where(func(k int) bool {
			calls := fn.insns[k].Flow == isa.FlowCall || fn.insns[k].Flow == isa.FlowIndirectCall
			return calls && !(fn.traceable && fn.off(k) < fn.ftrace) // who traces is called there
		}), nil
	case EachReturn:
		return fn.returns()
	}
	return fn.where(func(int) bool { return true }), nil
}

func (fn *function) where(is func(k int) bool) (out []isa.Off) {
	for k := range fn.insns {
		if is(k) {
			out = append(out, fn.off(k))
		}
	}
	return out
}

// Halves are the functions that the compiler has made of one, itself first. One of which it is
// not certain that it is not there is among them; that of one of several functions that share a
// name is not: see returns.
func Halves(text *ktext.Text, module, name string) []string {
	if Half(name) {
		return []string{name, Hot(name)}
	}
	var absent *ktext.NotFound
	if ktext.Base(name) != name {
		return []string{name}
	}
	if _, err := text.Function(module, name+cold); errors.As(err, &absent) && len(absent.Same) == 0 {
		return []string{name}
	}
	return []string{name, name + cold}
}

// HalvesOf is Halves by the names that choose one of several functions: of one of those that share a name, or whose halves do, its
// own is there if a jump tells which that is, and none if not.
func HalvesOf(text *ktext.Text, f ktext.Func, known *Functions) []string {
	one := text.Known(f)
	out := []string{one.Known()}
	fn, r := known.located(text, f)
	if r != nil {
		return out
	}
	others, _, r := fn.others(known)
	if r != nil {
		return out
	}
	own := fn.joined(others)
	if len(own) == 0 && one.Nth == 0 {
		own = others // which may be come to by a table
	}
	if len(own) == 1 {
		out = append(out, text.Known(own[0].Func).Known())
	}
	return out
}

// WholeOf is the function that the compiler has made a cold half of, and any other itself. Of several that share its name it is
// that of which HalvesOf has it.
func WholeOf(text *ktext.Text, f ktext.Func, known *Functions) (ktext.Func, error) {
	if !Half(f.Name) {
		return f, nil
	}
	one, err := text.Function(f.Module, Hot(f.Name))
	var same *ktext.NotFound
	if errors.As(err, &same) {
		for _, a := range same.Same {
			if h, _ := text.Locate(a); slices.Contains(HalvesOf(text, h, known)[1:], text.Known(f).Known()) {
				return h, nil
			}
		}
	}
	return one, err
}

// others are the other halves of a function. Where several functions share such a half's name,
// all of them are, as nothing says which is this one's; a refusal comes with the name that it is of.
func (fn *function) others(known *Functions) (out []*function, name string, r *Refusal) {
	for _, name := range Halves(fn.text, fn.Module, fn.Name)[1:] {
		var same *ktext.NotFound
		f, err := fn.text.Function(fn.Module, name)
		at := []isa.Addr{f.Addr}
		if errors.As(err, &same) && len(same.Same) > 0 {
			at = same.Same
		} else if err != nil {
			return nil, name, refuse(NoSuchFunction, "%v", err)
		}
		for _, a := range at {
			f, _ := fn.text.Locate(a) // a symbol is there
			half, r := known.located(fn.text, f)
			if r != nil {
				return nil, name, r
			}
			out = append(out, half)
		}
	}
	return out, "", nil
}

// Half reports whether a name is that of a function's cold half.
func Half(name string) bool { return strings.Contains(name, cold) }

// Hot is the name of the half that is entered.
func Hot(name string) string {
	hot, _, _ := strings.Cut(name, cold)
	return hot
}

// cold is what the compiler appends to the name of what it thinks is seldom run.
const cold = ".cold"

// within reports whether an address is in one of the function's halves.
func (fn *function) within(a isa.Addr) bool {
	f, ok := fn.text.Locate(a)
	return ok && f.Module == fn.Module && (f.Addr == fn.Addr || slices.Contains(Halves(fn.text, fn.Module, fn.Name)[1:], f.Name))
}

// returns are the ways out. A conditional jump to elsewhere would be one only now and then,
// and whether a jump through a register is one has to be known.
func (fn *function) returns() (out []isa.Off, r *Refusal) {
	if halves := Halves(fn.text, fn.Module, fn.Name); fn.Nth > 0 && len(halves) > 1 {
		return nil, refuse(AmbiguousFunction, "%v: whether %s, by which it may be left, is a part of it or of another %s is not known", fn.Func, halves[1], fn.Name)
	}
	for k, i := range fn.insns {
		switch i.Flow {
		case isa.FlowReturn:
		case isa.FlowJump:
			if fn.within(i.Target) {
				continue
			}
			if fn.dispatches(k) {
				return nil, fn.unknownJump(k)
			}
		case isa.FlowCond:
			if fn.within(i.Target) {
				continue
			}
			return nil, refuse(ControlFlow, "%s may leave the function, and may not: who comes by need not return there", fn.name(k))
		case isa.FlowIndirectJump:
			leaves, r := fn.leaves(k)
			if r != nil {
				return nil, r
			}
			if !leaves {
				continue
			}
		default:
			continue
		}
		out = append(out, fn.off(k))
	}
	return out, nil
}

// leaves reports whether a jump through a register leads to another function: not where the
// index knows the tables by which all such jumps of this one lead to its own blocks.
func (fn *function) leaves(k int) (bool, *Refusal) {
	if far := fn.text.Arch.Far; k > 0 && far != nil {
		if to, _, ok := far(fn.code[fn.off(k-1):], fn.insns[k-1].Addr); ok {
			return !fn.within(to), nil
		}
	}
	if fn.jumpsKnown() {
		return false, nil
	}
	return false, fn.unknownJump(k)
}

func (fn *function) unknownJump(k int) *Refusal {
	return refuse(IndirectJump, "%s jumps to where a register says: whether that is out of the function is not known", fn.name(k))
}

// blocks are the first instructions of basic blocks that something leads to. The first one
// begins behind ftrace's site, which belongs to who traces, and may lead elsewhere.
func (fn *function) blocks(known *Functions) (out []isa.Off, r *Refusal) {
	if name, k := fn.indirectJump(); k >= 0 {
		return nil, refuse(IndirectJump, "%s jumps indirectly at +%#x: where to is not known, so blocks may begin anywhere", name, k)
	}
	leads, err := fn.leaders(known)
	if err != nil {
		return nil, unreadable(err)
	}
	reached := true
	for k, i := range fn.insns {
		if fn.off(k) < fn.ftrace {
			continue
		}
		begins := k == 0 || fn.off(k) == fn.ftrace || leads[i.Addr]
		if k > 0 {
			switch fn.insns[k-1].Flow {
			case isa.FlowReturn, isa.FlowJump, isa.FlowIndirectJump:
				reached = begins
			case isa.FlowCond:
				begins = true
			}
		}
		if reached = reached || leads[i.Addr]; reached && begins {
			out = append(out, fn.off(k))
		}
	}
	return out, nil
}

// leaders are where control comes to but from the instruction before: by a jump of either
// half, by a static key, behind one, or by a fixup.
func (fn *function) leaders(known *Functions) (map[isa.Addr]bool, error) {
	out := map[isa.Addr]bool{}
	others, _, r := fn.others(known)
	if r != nil {
		return nil, r
	}
	for _, half := range append([]*function{fn}, others...) {
		for _, i := range half.whole() {
			if i.Flow == isa.FlowJump || i.Flow == isa.FlowCond {
				out[i.Target] = true
			}
		}
	}
	tables, err := known.tables(fn.text, fn.Module)
	if err != nil {
		return nil, err
	}
	for _, k := range span(tables.Keys, fn.Addr, fn.End(), func(k ktext.Key) isa.Addr { return k.Site }) {
		if n, ok := slices.BinarySearchFunc(fn.insns, k.Site, func(i isa.Insn, a isa.Addr) int { return cmp.Compare(i.Addr, a) }); ok {
			out[fn.insns[n].End()] = true
		}
	}
	for _, a := range span(tables.leads, fn.Addr, fn.End(), func(a isa.Addr) isa.Addr { return a }) {
		out[a] = true
	}
	if fn.jumpsKnown() {
		for _, a := range fn.facts.Jumps.Tables() {
			out[a] = true
		}
	}
	return out, nil
}

// tables are the kernel's for a module, and where they have control go, in order.
type tables struct {
	*ktext.Links
	leads []isa.Addr                  // targets of static keys, and fixups
	calls map[isa.Addr]ktext.CallSite // of static calls; a site is missing whose trampoline is not known
}

// tables reads those for a module, once.
func (f *Functions) tables(text *ktext.Text, module string) (*tables, error) {
	if f != nil && f.linked[module] != nil {
		return f.linked[module], nil
	}
	links, err := text.Links(module)
	if err != nil {
		return nil, err
	}
	calls, err := text.StaticCalls(module)
	if err != nil {
		return nil, err
	}
	got := &tables{Links: links, calls: calls}
	for _, k := range links.Keys {
		got.leads = append(got.leads, k.Target)
	}
	for _, x := range links.Faults {
		got.leads = append(got.leads, x.Fixup)
	}
	slices.Sort(got.leads)
	if f != nil {
		if f.linked == nil {
			f.linked = map[string]*tables{}
		}
		f.linked[module] = got
	}
	return got, nil
}

// span is the part of a list, which is in order of address, that is in [lo, hi).
func span[T any](list []T, lo, hi isa.Addr, at func(T) isa.Addr) []T {
	before := func(x T, a isa.Addr) int { return cmp.Compare(at(x), a) }
	first, _ := slices.BinarySearchFunc(list, lo, before)
	n, _ := slices.BinarySearchFunc(list[first:], hi, before)
	return list[first:][:n]
}
