package plan_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/isa/amd64"
	"kerninst/agent/ktext"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/place"
	"kerninst/agent/plan"
)

const (
	nextAdd  = "\x05\x11\x11\x11\x11"                         // add $0x11111111, %eax
	nextLoad = "\x48\x03\x05\x11\x11\x11\x01"                 // add ...(%rip), %rax
	nextLong = "\x48\x3d\x11\x11\x11\x11"                     // cmp $0x11111111, %rax
	nextMove = "\x48\x69\x05\x11\x11\x11\x01\x11\x11\x11\x11" // imul $..., ...(%rip), %rax
	nextLeap = "\x0f\x84\x11\x11\x11\x01"                     // je
)

// withNext is withPun, with room for pages before the text alone, where no pun leads whose
// bytes are not chosen: all that is in code leads behind it.
func withNext(t *testing.T, code string) (*ktexttest.Kernel, isa.Addr, plan.Request) {
	t.Helper()
	k, at, req := withPun(t, code)
	lo, _ := k.Text(t).Bounds()
	id := uint32(100)
	req.Heap.Pages(place.PageRoom(amd64.Arch, lo)[:1], func(a isa.Addr) (*place.Area, error) {
		id++
		return place.NewPage(id, a), nil
	})
	return k, at, req
}

// TestSuccessor: where a pun leads nowhere, the instruction behind the point is moved to
// where the jump to it makes the pun lead to a page.
func TestSuccessor(t *testing.T) {
	for _, point := range []string{punLoad, punMove, punShort} {
		for _, next := range []string{nextAdd, nextLoad, nextLong, nextMove, nextLeap} {
			if next == nextLeap && point != punShort { // its own bytes complete a pun
				continue
			}
			name := fmt.Sprintf("%x %x", point, next)
			k, at, req := withNext(t, point+next)
			req.Spare = func(_ ktext.Func, lo, hi isa.Addr) bool { return lo < at+20 && at < hi } // as the daemon does
			p, r := plan.Point(k.Text(t), req)
			if r != nil {
				t.Errorf("%s: %v", name, r)
				continue
			}
			throughJSON(t, p)
			e := p.Next
			if p.Mechanism != plan.Pun || e == nil || e != p.Moves() || !e.Alone || e.Body != at+isa.Addr(len(point)) || string(e.Code) != next || p.Board != nil || p.Window {
				t.Errorf("%s: %+v, moving %+v", name, p, e)
				continue
			}
			code := []byte(point + next)
			copy(code[len(point):], e.New)
			if i := amd64.Arch.Decode(code[len(point):], e.Body); i.Flow != isa.FlowJump || i.Target != e.Patch || len(e.New) != len(e.Code) {
				t.Errorf("%s: %x at %v does not jump to %v", name, e.New, e.Body, e.Patch)
			}
			copy(code, p.New)
			if i := amd64.Arch.Decode(code, at); i.Flow != isa.FlowJump || i.Target != p.Patch || len(p.New) != len(point) {
				t.Errorf("%s: %x at %v does not jump to %v", name, code, at, p.Patch)
			}
			if a, ok := req.Heap.Find(p.Patch); !ok || !a.Page() {
				t.Errorf("%s: the patch at %v is in %+v", name, p.Patch, a)
			}
			if a, ok := req.Heap.Find(e.Patch); !ok || a.Page() || req.Heap.Unused(place.Window{Lo: e.Patch, Hi: e.Patch + 64}) {
				t.Errorf("%s: the copy at %v is in %+v, or its place is free", name, e.Patch, a)
			}
			if room := e.Place().Room; !room.Empty() {
				t.Errorf("%s: springboards may be in %v", name, room)
			}
			if !p.Touches(e.End()-1, e.End()) || p.Touches(e.End(), e.End()+1) || p.Touches(at-1, at) {
				t.Errorf("%s: not all of %v to %v is the plan's, or more is", name, at, e.End())
			}
			if other, r := plan.Point(k.Text(t), req); r == nil {
				t.Errorf("%s: planned once more, %+v", name, other)
			}
		}
	}
}

// TestSuccessorLast: it is tried behind all that takes no trap.
func TestSuccessorLast(t *testing.T) {
	k, _, req := withNext(t, "\xeb\x00"+nextLeap+"\xeb\xf8")
	req.Mechanism = plan.MechanismInvalid
	p, r := plan.Point(k.Text(t), req)
	if r != nil || p.Next == nil || len(p.Passed) != 6 {
		t.Errorf("%+v, %v", p, r)
	}
}

// TestSuccessorRefused: what is behind stays where it is not one instruction that can be
// moved, and nobody else's.
func TestSuccessorRefused(t *testing.T) {
	good := punLoad + nextAdd
	for name, c := range map[string]struct {
		code  string
		spoil func(k *ktexttest.Kernel, at isa.Addr, req *plan.Request)
	}{
		"one byte":        {code: "\x53" + nextAdd},
		"four behind":     {code: punLoad + "\x04\x11\x31\xc0"},
		"a call":          {code: punShort + "\xff\x15\x11\x11\x11\x01"},
		"led into":        {code: good + "\xeb\xfb"},
		"no room for any": {code: good, spoil: func(_ *ktexttest.Kernel, _ isa.Addr, req *plan.Request) { req.Heap.Pages(nil, nil) }},
		"a live splice": {code: good, spoil: func(_ *ktexttest.Kernel, at isa.Addr, req *plan.Request) {
			req.Taken = func(lo, hi isa.Addr) bool { return lo <= at+8 && at+8 < hi }
		}},
		"another point": {code: good, spoil: func(_ *ktexttest.Kernel, at isa.Addr, req *plan.Request) {
			req.Wanted = func(lo, hi isa.Addr) bool { return lo <= at+8 && at+8 < hi }
		}},
		"nothing moved": {code: good, spoil: func(_ *ktexttest.Kernel, _ isa.Addr, req *plan.Request) { req.Still = true }},
		"moved away": {code: good, spoil: func(_ *ktexttest.Kernel, at isa.Addr, req *plan.Request) {
			a := req.Heap.Areas()[0]
			if !req.Heap.Evict(place.Evicted{Body: place.Window{Lo: at + 4, Hi: at + 24}, Patch: a.Addr, Slot: 64, Stretch: true}) {
				panic("not moved")
			}
		}},
		"a static key": {code: good, spoil: func(k *ktexttest.Kernel, at isa.Addr, _ *plan.Request) {
			site(t, k, "__start___jump_table", at+4)
		}},
		"a fault": {code: good, spoil: func(k *ktexttest.Kernel, at isa.Addr, _ *plan.Request) { faults(t, k, at+4) }},
	} {
		k, at, req := withNext(t, c.code)
		req.Dry = true // what is not free is found before it is taken
		if c.spoil != nil {
			c.spoil(k, at, &req)
		}
		if p, r := plan.Point(k.Text(t), req); r == nil || r.Reason == plan.ReasonInvalid {
			t.Errorf("%s: %v, %+v", name, r, p)
		}
	}
}

// TestCheckCatchesOtherSuccessor: what is moved away is right behind the point, and one
// instruction.
func TestCheckCatchesOtherSuccessor(t *testing.T) {
	k, _, req := withNext(t, punLoad+nextAdd+punLoad+nextAdd+"\x90")
	first, r := plan.Point(k.Text(t), req)
	if r != nil {
		t.Fatal(r)
	}
	req.Offset += isa.Off(len(punLoad + nextAdd))
	second, r := plan.Point(k.Text(t), req)
	if r != nil {
		t.Fatal(r)
	}
	first.Next = second.Next
	if first.Check(amd64.Arch) == nil {
		t.Error("what is behind another point is taken for what is behind this one")
	}
	e := second.Next
	back, err := amd64.Jump(e.Patch+isa.Addr(len(e.Code)+1), e.End()+1)
	if err != nil {
		t.Fatal(err)
	}
	e.Code = append(e.Code, 0x90)
	e.Copy = append(bytes.Clone(e.Code), back...)
	e.States = []gen.State{{Off: 0, Orig: e.Body}, {Off: len(nextAdd), Orig: e.Body + isa.Addr(len(nextAdd))}, {Off: len(e.Code), Orig: e.End()}}
	if err := second.Check(amd64.Arch); err == nil || !strings.Contains(err.Error(), "one instruction") {
		t.Errorf("two instructions are moved away: %v", err)
	}
}

// TestCheckCatchesOtherTail: the jump is completed by the very bytes that lead to the copy.
func TestCheckCatchesOtherTail(t *testing.T) {
	k, _, req := withNext(t, punShort+nextAdd)
	p, r := plan.Point(k.Text(t), req)
	if r != nil {
		t.Fatal(r)
	}
	e := p.Next
	e.Patch += place.Line
	there, err := amd64.Jump(e.Body, e.Patch)
	if err != nil {
		t.Fatal(err)
	}
	back, err := amd64.Jump(e.Patch+isa.Addr(len(e.Code)), e.End())
	if err != nil {
		t.Fatal(err)
	}
	e.New, e.Copy = there, append(bytes.Clone(e.Code), back...)
	if err := p.Check(amd64.Arch); err == nil || !strings.Contains(err.Error(), "behind the jump") {
		t.Errorf("other bytes complete the jump: %v", err)
	}
}

// TestCheckCatchesSuccessor spoils one thing about what is moved.
func TestCheckCatchesSuccessor(t *testing.T) {
	k, _, req := withNext(t, punMove+nextAdd)
	good, r := plan.Point(k.Text(t), req)
	if r != nil {
		t.Fatal(r)
	}
	for name, spoil := range map[string]func(p *plan.Plan, e *plan.Eviction){
		"its jump":          func(_ *plan.Plan, e *plan.Eviction) { e.New[4] ^= 1 },
		"what is shared":    func(_ *plan.Plan, e *plan.Eviction) { e.New[1] ^= 1 },
		"its copy":          func(_ *plan.Plan, e *plan.Eviction) { e.Copy[1] ^= 1 },
		"its way back":      func(_ *plan.Plan, e *plan.Eviction) { e.Copy[len(e.Copy)-1] ^= 1 },
		"its place":         func(_ *plan.Plan, e *plan.Eviction) { e.Patch += 64 },
		"its slot":          func(_ *plan.Plan, e *plan.Eviction) { e.Slot = 1 },
		"where it is":       func(_ *plan.Plan, e *plan.Eviction) { e.Body++ },
		"its code":          func(_ *plan.Plan, e *plan.Eviction) { e.Code[0] = 0x90 },
		"two of them":       func(_ *plan.Plan, e *plan.Eviction) { e.Code = append(e.Code, 0x90) },
		"not alone":         func(_ *plan.Plan, e *plan.Eviction) { e.Alone = false },
		"no stretch":        func(_ *plan.Plan, e *plan.Eviction) { e.Stretch = false },
		"its states":        func(_ *plan.Plan, e *plan.Eviction) { e.States = nil },
		"another mechanism": func(p *plan.Plan, _ *plan.Eviction) { p.Mechanism, p.Tail = plan.Jump, nil },
		"the patch on it": func(p *plan.Plan, e *plan.Eviction) {
			if p.Patch < e.Patch {
				p.Slot = int(e.Patch - p.Patch + 64)
			} else {
				e.Slot = int(p.Patch - e.Patch + 64)
			}
		},
		"a longer tail": func(p *plan.Plan, e *plan.Eviction) { p.Tail = e.New[:3] },
	} {
		bad, e := *good, *good.Next
		e.New, e.Copy, e.Code = bytes.Clone(e.New), bytes.Clone(e.Copy), bytes.Clone(e.Code)
		bad.New, bad.Tail, bad.Next = bytes.Clone(good.New), bytes.Clone(good.Tail), &e
		spoil(&bad, &e)
		if bad.Check(amd64.Arch) == nil {
			t.Errorf("%s: not noticed", name)
		}
	}
	if err := good.Check(amd64.Arch); err != nil {
		t.Error(err)
	}
	if !strings.Contains(good.Next.Name(), "piece+0x") {
		t.Error(good.Next.Name())
	}
}
