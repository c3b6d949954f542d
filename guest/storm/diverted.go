package main

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"kerninst/agent/isa"
	"kerninst/agent/kdev"
	"kerninst/agent/plan"
)

// onTheWay are functions that every breakpoint runs, by ISA: no window may begin there
// where one is diverted by a breakpoint.
var onTheWay = map[string][]string{"amd64": {"__rcu_read_lock", "__rcu_read_unlock", "rcu_read_unlock_special"}}

// notifierRun is the tracepoint by which a breakpoint would run whatever traces it.
const notifierRun = "events/notifier/notifier_run/enable"

// diverted asks for windows where the breakpoint that diverts from them would be met
// again before it is known whose it is.
func (e *env) diverted() error {
	names := onTheWay[e.arch.Name]
	if names == nil {
		return nil
	}
	p, err := e.planBy(plan.Quiesced, e.fn.Name, 0)
	if err != nil {
		return err
	}
	for _, name := range names {
		s := whole(p)
		if err := e.windowAt(&s, name); err != nil {
			return err
		}
		_, err := e.dev.Splice([]kdev.Splice{s})
		report("refused: a window in "+name, 1, errors.Is(err, unix.EACCES), "%v", err)
	}
	if err := control(notifierRun, "1"); err != nil {
		return err
	}
	_, err = e.dev.Splice([]kdev.Splice{whole(p)})
	report("refused: a window while breakpoints are traced", 1, errors.Is(err, unix.EBUSY), "%v", err)
	if err := control(notifierRun, "0"); err != nil {
		return err
	}
	ids, err := e.dev.Splice([]kdev.Splice{whole(p)})
	if err == nil {
		err = e.dev.Undo(ids)
	}
	report("a window when they are not any more", 1, err == nil, "%v", err)
	return nil
}

// windowAt moves a window behind the ftrace site of a function.
func (e *env) windowAt(s *kdev.Splice, function string) error {
	f, err := e.text.Function("", function)
	if err != nil {
		return err
	}
	code, err := e.text.Code(f)
	if err != nil {
		return err
	}
	site := e.text.FtraceSite(code)
	s.Point = f.Addr + isa.Addr(site)
	copy(s.Old, code[site:])
	if len(s.New) != 5 || s.New[0] != 0xe9 {
		return fmt.Errorf("the window's bytes are %x, no jump", s.New)
	}
	isa.ByteOrder.PutUint32(s.New[1:], uint32(s.Patch-s.Point-5))
	return nil
}
