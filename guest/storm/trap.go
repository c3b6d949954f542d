package main

import (
	"bytes"
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"kerninst/agent/isa"
	"kerninst/agent/kdev"
	"kerninst/agent/plan"
	"kerninst/guest/check"
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
	{"splice: a breakpoint, and one back from a patch in which somebody sleeps", unix.EINVAL, trap(func(_ *env, s *kdev.Splice) { s.Home, s.Awake = true, false })},
	{"splice: a breakpoint, and one back that is all of the patch", unix.EINVAL, trap(func(e *env, s *kdev.Splice) { s.Home, s.PatchLen = true, len(e.arch.Break) })},
	{"splice: a jump, and a breakpoint back", unix.EINVAL, splice(func(_ *env, s *kdev.Splice) { s.Home = true })},
	{"splice: a breakpoint, and all is well", 0, trap(func(*env, *kdev.Splice) {})},
}

// notified are functions that the kernel's notifiers run, by ISA: where a breakpoint is
// looked up by one, as kprobes' neighbours are, none may stand in these.
var notified = map[string][]string{"amd64": {"__rcu_read_lock", "__rcu_read_unlock"}}

// notifierRun is the tracepoint of each of them.
const notifierRun = "events/notifier/notifier_run/enable"

// notifiers has breakpoints, and windows that wait behind one, where every notifier comes
// by, and has those traced meanwhile.
func (e *env) notifiers() error {
	names := notified[e.arch.Name]
	if names == nil {
		return nil
	}
	err := control(notifierRun, "1")
	if errors.Is(err, os.ErrNotExist) && strings.HasPrefix(release(), "6.1.") {
		return nil // which has no such tracepoint
	} else if err != nil {
		return err
	}
	for _, name := range names {
		for _, m := range []plan.Mechanism{plan.Trap, plan.Quiesced} {
			if err := e.passed(m, name); err != nil {
				return err
			}
		}
	}
	return control(notifierRun, "0")
}

// passed splices where the kernel comes by by itself, and undoes it.
func (e *env) passed(m plan.Mechanism, function string) error {
	p, err := e.planBy(m, function, 0)
	if err != nil {
		return err
	}
	e.cells(p).Store(p.Cell, 0)
	ids, err := e.dev.Splice([]kdev.Splice{whole(p)})
	if err == nil {
		if _, err = e.callAll(100); err == nil {
			err = e.dev.Undo(ids)
		}
	}
	hits := e.hits(p)
	check.Report("by "+m.String()+" in "+function+", while notifiers are traced", 1, err == nil && hits > 0, "%d hits (%v)", hits, err)
	return nil
}

// breakpoint is a point reached by nothing else.
func (e *env) breakpoint() (variant, error) {
	p, err := e.planBy(plan.Trap, e.fn.Name, isa.Off(0))
	if err != nil {
		return variant{}, err
	}
	return variant{name: "a breakpoint", point: whole(p), counts: p, traps: true}, nil
}
