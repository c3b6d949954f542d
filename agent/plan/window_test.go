package plan_test

import (
	"strings"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/plan"
)

// TestWindowSpares: no window displaces another point that is asked for; its own it does.
func TestWindowSpares(t *testing.T) {
	const name, own = "__riscv_sys_getppid", 8
	x := ktexttest.Load(t, "riscv64").Text(t)
	f, err := x.Function("", name)
	if err != nil {
		t.Fatal(err)
	}
	req := request(x, name, own)
	req.Mechanism = plan.Quiesced
	free, r := plan.Point(x, req)
	if r != nil {
		t.Fatal(r)
	}
	for _, i := range append(free.Displaced, isa.Insn{Addr: free.Back, Len: 2}) {
		req := req
		req.Wanted = func(lo, hi isa.Addr) bool { return lo <= i.Addr && i.Addr < hi }
		p, r := plan.Point(x, req)
		inside := i.Addr > f.Addr+own && i.Addr < free.Back
		switch {
		case inside && (r == nil || r.Reason != plan.AlreadySpliced || !strings.Contains(r.Detail, "asked for")):
			t.Errorf("with %v asked for: %+v, %v", i.Addr, p, r)
		case !inside && r != nil:
			t.Errorf("with %v asked for: %v", i.Addr, r)
		}
	}
}
