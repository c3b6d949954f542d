package main

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"

	"kerninst/agent/isa"
	"kerninst/agent/kdev"
	"kerninst/agent/ktext"
	"kerninst/agent/place"
	"kerninst/agent/plan"
)

// What calls have besides when copies of functions are made, for the walk through their allocations.

// siteable is the patch memory of a thread's where code may have sites.
func (k *kernel) siteable(t *thread) place.Window {
	if k.info.Sited() {
		return place.Reach(k.arch, k.info.TextStart, k.info.TextEnd)
	}
	return t.splicer.Own()
}

// siteAt is where in a line of code its site is.
const siteAt = place.Line / 2

// Of a static key, where it says what it points to, and that this is a list of sites of others besides the kernel's
// (include/linux/jump_label.h: JUMP_TYPE_LINKED).
const (
	keyPoints = 8
	keyLinked = 2
)

// site is one of a static key's of which only the kernel has sites, so that it has no list yet; or, where code has no keys' sites, of an
// instruction that may fault. It leads to an own place.
func (k *kernel) site(to isa.Addr) (kdev.Site, error) {
	s := kdev.Site{Off: siteAt, To: to, Key: k.info.Keys()}
	links, err := k.text.Links("")
	if err != nil {
		return s, err
	}
	if !s.Key {
		s.Orig = links.Faults[0].Site
		return s, nil
	}
	for _, x := range links.Keys {
		points := make([]byte, 8)
		if err := k.dev.Read(x.Enabled+keyPoints, points); err != nil {
			return s, err
		}
		if _, there := k.text.Locate(x.Site); there && isa.ByteOrder.Uint64(points)&keyLinked == 0 {
			s.Orig, s.Entry = x.Site, x.Entry
			return s, nil
		}
	}
	return s, errors.New("all static keys have sites in modules")
}

// sited writes code that has frames and a site, to which nobody comes.
func (k *kernel) sited(t *thread) (a attempt, err error) {
	at, _, ok := t.splicer.Heap().Peek(place.Line, k.siteable(t), false)
	if !ok || !t.splicer.Heap().Take(at, place.Line) {
		return a, errors.New("no line of patch memory in which code may have sites")
	}
	site, err := k.site(at)
	if err != nil {
		return a, err
	}
	code := bytes.Repeat(k.arch.Trap, place.Line/len(k.arch.Trap))
	write := func() error {
		return k.dev.WriteSites(at, code, []kdev.Frame{{Orig: k.info.TextStart}}, []kdev.Site{site})
	}
	a = attempt{name: "code with sites", call: write, back: func() error { return k.dev.WriteCode(at, code) }, least: 3} // the code and two lists
	if site.Key {
		a.least++ // and the key's
	}
	return a, nil
}

// copiedCalls are system calls that call something: who sleeps there has somewhere to go on.
var copiedCalls = []string{"getpgid", "getsid", "sched_getscheduler", "sched_getparam", "sched_rr_get_interval", "times", "getrusage", "sched_getaffinity", "capget", "setpriority", "dup", "lseek", "read", "write", "openat"}

// copy is one of a system call.
func (k *kernel) copy(t *thread, name string) (*plan.Cloned, error) {
	f, err := k.text.Function("", ktext.Syscall(runtime.GOARCH, name))
	if err != nil {
		return nil, err
	}
	req := k.request(t)
	req.Features.Keys, req.Own = k.info.Keys(), k.siteable(t)
	c, refusal := plan.AsClone(k.text, req, plan.Cloning{Functions: []ktext.Func{f}})
	if refusal != nil {
		return nil, refusal
	}
	return c, nil
}

// copyable is the first of them of which there is a copy.
func (k *kernel) copyable(t *thread) (string, error) {
	var why error
	for _, name := range copiedCalls {
		_, err := k.copy(t, name)
		if err == nil {
			return ktext.Syscall(runtime.GOARCH, name), nil
		}
		why = err
	}
	return "", why
}

// copies makes a batch of copies of two of them.
func (k *kernel) copies(t *thread) (attempt, error) {
	var plans []*plan.Plan
	copied, resumes, why := 0, 0, error(nil)
	for _, name := range copiedCalls {
		if len(plans) == 2 {
			break
		}
		c, err := k.copy(t, name)
		if err != nil {
			why = err
			continue
		}
		plans = append(plans, c.Entry)
		copied, resumes = copied+len(c.Entry.Clone.Copied()), resumes+len(c.Entry.Resumes)
	}
	if len(plans) < 2 || copied < 2 || resumes < 2 {
		return attempt{}, fmt.Errorf("%d copies, of %d ranges of text and with %d places to go on: %w", len(plans), copied, resumes, why)
	}
	apply, undo, _ := t.comesAndGoes(plans)
	return attempt{name: "batch of copies", call: apply, back: undo, least: copiesAllocations}, nil
}

// copiesAllocations are those of a batch of two copies at the least: to read what is copied, and write the code; lists of splices, of what
// is copied and of where to go on; of what is known of each splice, what that is, where to go on and its name; lists of writes, and of kprobes.
const copiesAllocations = 1 + 1 + 3 + 1 + 2*3 + 2
