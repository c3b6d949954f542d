package plan

import (
	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/snippet"
)

// arguments reports why a snippet at instruction at cannot read the arguments that
// it asks for: they are in the registers in which they were passed until one of
// these is written, and only where nothing comes but from the function's start.
func (fn *function) arguments(req Request, at int) *Refusal {
	if req.Snippet.Returned() {
		if r := fn.comesBack(req, at); r != nil {
			return r
		}
	}
	called := fn.called(req, at)
	for _, i := range req.Snippet.Code {
		if i.Op != snippet.Arg {
			continue
		}
		if called {
			return refuse(NoArgument, "%s leads to another function, and what is returned is known when that has come back: argument %d may be gone by then", fn.name(at), i.N)
		}
		for k := range at {
			if ref := fn.keepsArgument(k, at, i.N); ref != nil {
				return ref
			}
		}
		if ref := fn.entered(at); ref != nil {
			return ref
		}
	}
	return nil
}

// keepsArguments says why a snippet that is reached by way of instruction k, as one behind it is, cannot read the
// arguments that it asks for. It is said of what stands at instruction at.
func (fn *function) keepsArguments(req Request, k, at int) *Refusal {
	for _, i := range req.Snippet.Code {
		if i.Op == snippet.Arg {
			if r := fn.keepsArgument(k, at, i.N); r != nil {
				return r
			}
		}
	}
	return nil
}

// keepsArgument says why an argument, from 0, may be gone when instruction k has been executed.
func (fn *function) keepsArgument(k, at, argument int) *Refusal {
	r := gen.Argument(fn.text.Arch, argument)
	switch j := fn.insns[k]; {
	case fn.traceable && fn.off(k) < fn.ftrace: // calls ftrace, which keeps them
	case j.Flow != isa.FlowNone && j.Flow != isa.FlowCond:
		return refuse(NoArgument, "%s, before what is at %s, is %v: argument %d may be gone", fn.name(k), fn.name(at), j.Flow, argument)
	case (j.Writes | j.Clobbers).Has(r):
		return refuse(NoArgument, "%s, before what is at %s, overwrites %s with argument %d", fn.name(k), fn.name(at), fn.text.Arch.RegName(r), argument)
	}
	return nil
}

// entered reports whether anything but what stands before instruction at may lead
// behind the function's start and up to it.
func (fn *function) entered(at int) *Refusal {
	name, k := fn.indirectJump()
	if own := fn.ownIndirectJump(); own >= 0 { // where it leads may be known, but not with what in the registers
		name, k = fn.Name, own
	}
	if k >= 0 {
		return refuse(NoArgument, "%s jumps indirectly at +%#x: arguments may be gone if that leads to %s", name, k, fn.name(at))
	}
	parts := []*function{fn}
	if Half(fn.Name) {
		return refuse(NoArgument, "%v is a part of a function: no arguments are passed to it", fn.Func)
	}
	for _, name := range Halves(fn.text, fn.Module, fn.Name)[1:] {
		half, r := analyse(fn.text, fn.Module, name)
		if r != nil {
			return r
		}
		parts = append(parts, half)
	}
	for _, f := range parts {
		for k, i := range f.whole() {
			if i.Target > fn.Addr && i.Target <= fn.insns[at].Addr {
				return refuse(NoArgument, "%s leads to %v, from where control comes to %s with other values", f.name(k), i.Target, fn.name(at))
			}
		}
	}
	return nil
}
