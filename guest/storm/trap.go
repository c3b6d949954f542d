package main

import (
	"bytes"

	"golang.org/x/sys/unix"

	"kerninst/agent/isa"
	"kerninst/agent/kdev"
	"kerninst/agent/ktext"
	"kerninst/agent/plan"
)

// handlers are what the kernel handles breakpoints with, by ISA.
var handlers = map[string]string{"amd64": "exc_int3", "arm64": "do_el1_brk64", "riscv64": "handle_break"}

// trap asks for a breakpoint over the first instruction that the prepared splice displaces,
// with something wrong about it.
func trap(spoil func(*env, *kdev.Splice)) func(*env) error {
	return splice(func(e *env, s *kdev.Splice) {
		n := e.one.Displaced[0].Len
		s.Window, s.Trap = false, true
		s.Old = bytes.Clone(e.one.Original[:n])
		s.New = bytes.Repeat(e.arch.Break, n/len(e.arch.Break))
		spoil(e, s)
	})
}

// badTraps are refused for what they are.
var badTraps = []refusal{
	{"splice: a breakpoint that makes a window", unix.EINVAL, trap(func(_ *env, s *kdev.Splice) { s.Window = true })},
	{"splice: a breakpoint that is a springboard", unix.EINVAL, trap(func(_ *env, s *kdev.Splice) { s.Springboard = true })},
	{"splice: a breakpoint that is none", unix.EINVAL, trap(func(_ *env, s *kdev.Splice) { s.New[0] ^= 1 })},
	{"splice: a breakpoint over one", unix.EINVAL, trap(func(_ *env, s *kdev.Splice) { s.Old = bytes.Clone(s.New) })},
	{"splice: a breakpoint that has something else behind it", unix.EINVAL, trap(func(_ *env, s *kdev.Splice) {
		s.Old, s.New = append(s.Old, 0, 0, 0, 0), append(s.New, 0, 0, 0, 1)
	})},
	{"splice: a breakpoint with a fault and no annex", unix.EINVAL, trap(func(_ *env, s *kdev.Splice) { s.Fault, s.Original = s.Patch, s.Point })},
	{"splice: a breakpoint in what handles them", unix.EACCES, func(e *env) error {
		a, err := symbol(handlers[e.arch.Name])
		if err != nil {
			return err
		}
		return trap(func(_ *env, s *kdev.Splice) { s.Point = a + behindFtrace })(e)
	}},
	{"splice: a breakpoint in front of what ftrace rewrites, or there", unix.EACCES, trap(func(e *env, s *kdev.Splice) {
		s.Point = e.landing()
		s.Old, s.New = make([]byte, 4), bytes.Repeat(e.arch.Break, 4/len(e.arch.Break))
	})},
	{"splice: a breakpoint, and one back from a patch in which somebody sleeps", unix.EINVAL, trap(func(_ *env, s *kdev.Splice) { s.Home, s.Awake = true, false })},
	{"splice: a breakpoint, and one back that is all of the patch", unix.EINVAL, trap(func(e *env, s *kdev.Splice) { s.Home, s.PatchLen = true, len(e.arch.Break) })},
	{"splice: a jump, and a breakpoint back", unix.EINVAL, splice(func(_ *env, s *kdev.Splice) { s.Home = true })},
	{"splice: a breakpoint, and all is well", 0, trap(func(*env, *kdev.Splice) {})},
}

// landing is what boot has left of a landing pad, in front of a function's ftrace site (amd64), or that site.
func (e *env) landing() isa.Addr {
	site := e.fn.Addr + 4 // or a part of it
	if e.arch.Name != "amd64" {
		return site
	}
	found := site
	code := make([]byte, ktext.MostFtrace)
	e.text.Functions("", func(f ktext.Func) bool {
		if e.text.Read(f.Addr, code) == nil && e.text.Sealed(f.Addr, code) > 0 {
			found = f.Addr
		}
		return found == site
	})
	return found
}

// breakpoint is a point reached by nothing else.
func (e *env) breakpoint() (variant, error) {
	p, err := e.planBy(plan.Trap, e.fn.Name, isa.Off(0))
	if err != nil {
		return variant{}, err
	}
	return variant{name: "a breakpoint", point: whole(p), counts: p, traps: true}, nil
}
