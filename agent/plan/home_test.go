package plan_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/plan"
)

// TestHome: where no register is free for the way back, a breakpoint leads there: that of a trap,
// on a kernel that does not preempt itself, and of what nobody sleeps in.
func TestHome(t *testing.T) {
	x := ktexttest.Load(t, "riscv64").Text(t)
	f, err := x.Function("", "ksys_read")
	if err != nil {
		t.Fatal(err)
	}
	at := func(off isa.Off) plan.Request {
		req := request(x, f.Name, off)
		req.Mechanism = plan.Trap
		return req
	}
	n, faults := 0, 0
	for off := isa.Off(8); off < f.Size; off += 2 {
		p, r := plan.Point(x, at(off))
		if r != nil || !p.Home {
			continue
		}
		n++
		if p.Free[1]&^x.Arch.NeverUse != 0 || !bytes.HasSuffix(p.Code, x.Arch.Break) {
			t.Errorf("+%#x: the way back is a breakpoint with %s free, and the patch is %x", uint64(off), x.Arch.Names(p.Free[1]), p.Code)
		}
		req := at(off)
		req.Features.Preempted = true
		if p, r := plan.Point(x, req); r == nil || r.Reason != plan.NoDeadRegister {
			t.Errorf("+%#x of a kernel that preempts itself: %+v, %v", uint64(off), p, r)
		}
		faults += homeChecked(t, p)
	}
	if n == 0 || faults == 0 {
		t.Errorf("%d points have such a way back, %d of an instruction that is the same elsewhere", n, faults)
	}
}

// homeChecked spoils a plan whose patch ends in a breakpoint, and counts those that could be
// made to have a fault.
func homeChecked(t *testing.T, p *plan.Plan) (faults int) {
	t.Helper()
	arch := ktexttest.Load(t, "riscv64").Text(t).Arch
	for says, spoil := range map[string]func(q *plan.Plan){
		"is no breakpoint":       func(q *plan.Plan) { q.Code[len(q.Code)-1]++ },
		"does not end in a jump": func(q *plan.Plan) { q.Home = false },
		"somebody sleeps":        func(q *plan.Plan) { q.Fault = q.Patch + isa.Addr(q.Start) },
		"which is no":            func(q *plan.Plan) { q.Code = append(q.Code, arch.Break...) },
	} {
		q := *p
		q.Code = slices.Clone(p.Code)
		q.Slot += len(arch.Break)
		if spoil(&q); q.Fault != 0 && !bytes.HasPrefix(p.Code[p.Start:], p.Original) { // it is moved otherwise
			continue
		}
		if q.Fault != 0 {
			faults++
		}
		if err := q.Check(arch); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v, want %q", p.Point, err, says)
		}
	}
	return faults
}
