package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"kerninst/agent/isa"
	"kerninst/agent/kdev"
	"kerninst/agent/ktext"
	"kerninst/agent/place"
	"kerninst/agent/plan"
	"kerninst/guest/check"
)

// page makes the page that a punned jump leads to.
func (e *env) page(a isa.Addr) (*place.Area, error) {
	got, err := e.dev.AllocArea(a, a+2*place.PageLen, place.PageLen)
	if err != nil {
		return nil, err
	}
	e.pages = append(e.pages, got)
	return place.NewPage(got.ID, got.Addr), nil
}

// puns: what completes a jump is another splice's, which is made before it and undone
// behind it, alone and in one batch with it, while others pass.
func (e *env) puns(toggles, calls int) error {
	if !slices.Contains(plan.Ladder(e.arch.Name), plan.Pun) {
		return nil
	}
	if err := e.denied(); err != nil {
		return err
	}
	alone, next, both, err := e.pair()
	if err != nil {
		return err
	}
	e.lock(alone, next)
	if err := e.order(both, next, calls); err != nil {
		return err
	}
	if err := e.together(both, next, max(4, toggles/20)); err != nil {
		return err
	}
	return e.successors(toggles, calls)
}

// successors: the instruction behind a point is moved away, so that the jump to it completes
// the point's; alone and in one batch with it, while others pass.
func (e *env) successors(toggles, calls int) error {
	p, err := e.successor()
	if err != nil {
		return err
	}
	batch := batchOf([]*plan.Plan{p})
	_, err = e.dev.Splice(batch[1:])
	check.Errno("a jump that what was moved away would complete", err, unix.EILSEQ)
	_, err = e.dev.Splice([]kdev.Splice{batch[1], batch[0]})
	check.Errno("a jump before what is moved away for it", err, unix.EEXIST)
	ids, err := e.dev.Splice(batch)
	if err != nil {
		return err
	}
	e.cells(p).Store(p.Cell, 0)
	want, err := e.callAll(calls)
	if err != nil {
		return err
	}
	got := e.hits(p)
	check.Report("count of a jump whose successor is moved away", want, got == uint64(want), "%d hits, %d calls", got, want)
	check.Errno("undo of what was moved away for a jump", e.dev.Undo(ids[:1]), unix.EBUSY)
	check.Errno("undo of both", e.dev.Undo(ids), 0)
	return e.underLoad("batches of a jump and of what is moved away for it, under load", p, batch, max(4, toggles/20))
}

// successor is the first such point of the function that others call: most puns lead nowhere
// by themselves. Its heap is its own: in the other one parts of the function are moved away.
func (e *env) successor() (*plan.Plan, error) {
	const size = 64 << 10 // places enough for a jump of two bytes to lead to anywhere
	w := place.Reach(e.arch, e.fn.Addr, e.fn.End())
	a, err := e.dev.AllocArea(max(w.Lo, e.info.AreaLo), min(w.Hi, e.info.AreaHi), size)
	if err != nil {
		return nil, err
	}
	var h place.Heap
	h.Add(place.NewArea(a.ID, a.Addr, a.Cells(), size))
	h.Pages(place.PageRoom(e.arch, e.info.TextStart), e.page)
	req := plan.Request{Function: e.fn.Name, Mechanism: plan.Pun, Heap: &h, Dry: true}
	for ; req.Offset < e.fn.Size; req.Offset++ {
		if p, _ := plan.Point(e.text, req); p != nil && p.Next != nil {
			break
		}
	}
	req.Dry = false
	p, refusal := plan.Point(e.text, req)
	if refusal != nil {
		return nil, fmt.Errorf("nothing is moved away for a punned jump: %w", refusal)
	}
	return p, e.write(p)
}

// denied: where others have the memory that a jump leads to, it leads to what is behind
// theirs, or is refused if there is no more.
func (e *env) denied() error {
	const pages, span = 4, 3 * place.PageLen // with a page's cells and guard
	p, err := e.unmade()
	if err != nil {
		return err
	}
	first := p.Patch &^ (place.PageLen - 1)
	for at := first; at < first+pages*span; at += span {
		others, err := e.dev.AllocArea(at, at+2*place.PageLen, place.PageLen)
		if err != nil {
			return err
		}
		defer func() { check.Errno("memory that others had is given back", e.dev.FreeArea(others), 0) }()
	}
	ask := func(name string, room []place.Window, ok func(*plan.Plan, *plan.Refusal) bool) {
		e.heap.Pages(room, e.page)
		p, refusal := plan.Point(e.text, plan.Request{Function: long, Offset: p.Offset, Mechanism: plan.Pun, Heap: &e.heap})
		check.Report(name, 1, ok(p, refusal), "others have %v: %+v, %v", first, p, refusal)
	}
	ask("a jump to memory that others have", []place.Window{{Lo: first, Hi: first + pages*span}},
		func(_ *plan.Plan, r *plan.Refusal) bool { return r != nil && r.Reason == plan.OutOfReach })
	ask("a jump to what is behind it", place.PageRoom(e.arch, e.info.TextStart),
		func(p *plan.Plan, _ *plan.Refusal) bool { return p != nil && p.Patch >= first+pages*span })
	return nil
}

// long is a function of many instructions, of which nothing is spliced here.
const long = "copy_process"

// unmade is the first pun in it that leads to a page which is not there yet.
func (e *env) unmade() (*plan.Plan, error) {
	for from := isa.Off(0); ; {
		p, refusal := plan.Search(e.text, plan.Request{Function: long, Offset: from, Mechanism: plan.Pun, Heap: &e.heap, Dry: true})
		if refusal != nil {
			return nil, refusal
		}
		if _, ok := e.heap.Find(p.Patch); !ok {
			return p, nil
		}
		from = p.Offset + isa.Off(p.Back-p.Point)
	}
}

// pair is the first point of a pun for which there is another where a breakpoint stands
// right behind it, with that breakpoint: where a jump then leads, memory may be taken.
func (e *env) pair() (alone, next, both *plan.Plan, err error) {
	for from := isa.Off(0); ; from = alone.Offset + isa.Off(alone.Back-alone.Point) {
		if alone, err = e.planBy(plan.Pun, e.fn.Name, from); err != nil {
			return nil, nil, nil, err
		}
		next, err = e.planBy(plan.Trap, e.fn.Name, alone.Offset+isa.Off(alone.Back-alone.Point))
		if err != nil || next.Point != alone.Back {
			continue
		}
		if both, err = e.behind(alone, next); err == nil {
			return alone, next, both, nil
		}
	}
}

// behind is the pun at the same point when the next splice is there.
func (e *env) behind(alone, next *plan.Plan) (*plan.Plan, error) {
	kallsyms, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		return nil, err
	}
	read := func(a isa.Addr, b []byte) error {
		err := e.dev.Read(a, b)
		for k, c := range next.New {
			if at := next.Point + isa.Addr(k); at >= a && at-a < isa.Addr(len(b)) {
				b[at-a] = c
			}
		}
		return err
	}
	text, err := ktext.New(e.arch, bytes.NewReader(kallsyms), read, ktext.Options{})
	if err != nil {
		return nil, err
	}
	p, refusal := plan.Point(text, plan.Request{Function: e.fn.Name, Offset: alone.Offset, Mechanism: plan.Pun, Heap: &e.heap})
	if refusal != nil {
		return nil, fmt.Errorf("no jump that is completed by a breakpoint: %w", refusal)
	}
	return p, e.write(p)
}

// lock: while a pun lives, nobody is spliced in what completes it.
func (e *env) lock(alone, next *plan.Plan) {
	ids, err := e.dev.Splice([]kdev.Splice{whole(alone)})
	if err != nil {
		check.Errno("a jump that others complete", err, 0)
		return
	}
	_, err = e.dev.Splice([]kdev.Splice{whole(next)})
	check.Errno("a splice in what completes a jump", err, unix.EEXIST)
	check.Errno("undo of the jump", e.dev.Undo(ids), 0)
}

// order: the jump is newer than what completes it, and goes first.
func (e *env) order(both, next *plan.Plan, calls int) error {
	_, err := e.dev.Splice([]kdev.Splice{whole(both)})
	check.Errno("a jump that would be completed by what is not there yet", err, unix.EILSEQ)
	_, err = e.dev.Splice([]kdev.Splice{whole(both), whole(next)})
	check.Errno("a jump before what completes it", err, unix.EEXIST)
	first, err := e.dev.Splice([]kdev.Splice{whole(next)})
	if err != nil {
		return err
	}
	second, err := e.dev.Splice([]kdev.Splice{whole(both)})
	if err != nil {
		return err
	}
	e.cells(both).Store(both.Cell, 0)
	e.cells(next).Store(next.Cell, 0)
	want, err := e.callAll(calls)
	if err != nil {
		return err
	}
	a, b := e.hits(both), e.hits(next)
	check.Report("count of a jump that another splice completes", want, a == uint64(want) && b == a, "%d hits, %d of the other, %d calls", a, b, want)
	check.Errno("undo of what completes a jump", e.dev.Undo(first), unix.EBUSY)
	check.Errno("undo of both, in their order", e.dev.Undo(append(first, second...)), 0)
	return nil
}

// together makes both in one batch, and undoes them so, while the last CPU passes.
func (e *env) together(both, next *plan.Plan, times int) error {
	return e.underLoad("batches of a jump and what completes it, under load", both, []kdev.Splice{whole(next), whole(both)}, times)
}

// mostTimes is how many times as often as asked for a batch is made until somebody comes by.
const mostTimes = 20

// underLoad makes and undoes a batch so often while the last CPU passes one of its points,
// and until that has met one, which it is given time for then.
func (e *env) underLoad(name string, p *plan.Plan, batch []kdev.Splice, times int) error {
	e.cells(p).Store(p.Cell, 0)
	l, err := startLooper(e.info.CPUs - 1)
	if err != nil {
		return err
	}
	done := 0
	for ; err == nil && (done < times || e.hits(p) == 0 && done < mostTimes*times); done++ {
		var ids []uint32
		if ids, err = e.dev.Splice(slices.Clone(batch)); err == nil {
			if done >= times { // on a host with one CPU the other may run only while this one does not
				time.Sleep(time.Millisecond)
			}
			err = e.dev.UndoNoWait(ids)
		}
	}
	calls, loopErr := l.stop()
	hits := e.hits(p)
	check.Report(name, done, err == nil && loopErr == nil && hits > 0 && hits <= calls,
		"%d hits in %d calls of another CPU (%v, %v)", hits, calls, err, loopErr)
	return nil
}
