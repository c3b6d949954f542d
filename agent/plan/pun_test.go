package plan_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/isa/amd64"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/place"
	"kerninst/agent/plan"
)

const (
	punLoad  = "\x48\x8b\x43\x08" // mov 8(%rbx), %rax
	punMove  = "\x48\x89\xc3"     // mov %rax, %rbx
	punShort = "\x89\xc3"         // mov %eax, %ebx
)

// withPun is a kernel with a function of some code in front of which lie hops, and a
// request for a pun at the code's begin, with room for pages.
func withPun(t *testing.T, code string) (*ktexttest.Kernel, isa.Addr, plan.Request) {
	t.Helper()
	k, at, req := withHops(t, code, 0)
	req.Mechanism = plan.Pun
	lo, _ := k.Text(t).Bounds()
	id := uint32(100)
	req.Heap.Pages(place.PageRoom(amd64.Arch, lo), func(a isa.Addr) (*place.Area, error) {
		id++
		return place.NewPage(id, a), nil
	})
	return k, at, req
}

// checkPunned holds a plan to be a jump of which the text has the rest.
func checkPunned(t *testing.T, k *ktexttest.Kernel, p *plan.Plan, prefixes int) {
	t.Helper()
	throughJSON(t, p)
	whole := make([]byte, gen.PunLen(prefixes))
	if err := k.Read(p.Point, whole); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(whole[:len(p.Old)], p.Old) || !bytes.Equal(whole[len(p.Old):], p.Tail) {
		t.Errorf("%x and %x are expected, there is %x", p.Old, p.Tail, whole)
	}
	copy(whole, p.New)
	i := amd64.Arch.Decode(whole, p.Point)
	if i.Flow != isa.FlowJump || i.Target != p.Patch || i.Len != len(whole) || len(p.New) != p.Displaced[0].Len {
		t.Errorf("%x is %+v, not a jump to %v", whole, i, p.Patch)
	}
	if p.Mechanism != plan.Pun || p.Added != 3+2*p.Spilled || p.End() != p.Point+isa.Addr(len(whole)) || p.Window || p.Board != nil {
		t.Errorf("%+v", p)
	}
}

// TestPun: how many prefixes a jump takes, and where it leads, is for the bytes behind the
// point to say.
func TestPun(t *testing.T) {
	for name, c := range map[string]struct {
		code     string
		prefixes int
	}{
		"four bytes":                            {punLoad + "\x48\x85\xc0", 0},
		"four bytes, back":                      {punLoad + "\xe8\x00\x10\x00\x00", 0},
		"four bytes before what leads too far":  {punLoad + "\x74\x10\x90\x90\x90", 1},
		"four bytes before two that do":         {punLoad + "\x74\x75\x10\x90\x90", 2},
		"three bytes":                           {punMove + "\x31\xc0\x31\xc0", 0},
		"three bytes before what leads too far": {punMove + "\x31\x75\x10\x31\xc0", 1},
		"two bytes":                             {punShort + "\x31\xc0\x39\xc0", 0},
	} {
		k, _, req := withPun(t, c.code)
		p, r := plan.Point(k.Text(t), req)
		if r != nil {
			t.Errorf("%s: %v", name, r)
			continue
		}
		checkPunned(t, k, p, c.prefixes)
		if a, ok := req.Heap.Find(p.Patch); !ok || !a.Page() || p.Cell != p.Patch+place.PageLen {
			t.Errorf("%s: the patch at %v with its cell at %v is in %+v", name, p.Patch, p.Cell, a)
		}
	}
}

// TestPunsShare: many points that lead to the same 16 MiB share a page, whose bytes are
// given back one by one; who only asks gets what is then made.
func TestPunsShare(t *testing.T) {
	k, _, req := withPun(t, strings.Repeat(punLoad+"\x48\x85\xc0", 40))
	x := k.Text(t)
	first := req.Offset
	dry := req
	dry.Dry = true
	for n := range 40 {
		dry.Offset, req.Offset = first+isa.Off(7*n), first+isa.Off(7*n)
		asked, r := plan.Point(x, dry)
		if r != nil {
			t.Fatal(r)
		}
		if pages := len(req.Heap.Areas()) - 1; pages != min(n, 1) {
			t.Fatalf("%d pages after %d points", pages, n)
		}
		p, r := plan.Point(x, req)
		if r != nil || p.Patch != asked.Patch || !bytes.Equal(p.New, asked.New) {
			t.Fatalf("point %d: %+v, %v, and %+v was said", n, p, r, asked)
		}
		checkPunned(t, k, p, 0)
	}
}

// TestPunRung: a pun of 16 MiB goes before windows, and others behind all but traps.
func TestPunRung(t *testing.T) {
	for code, want := range map[string]string{
		punLoad + "\x48\x85\xc0":         "jump springboard: pun",
		punMove + "\x31\xc0\x31\xc0\x90": "jump springboard pun: quiesced",
		// Nothing can be moved away beside the point, and a jump leads into the window.
		punMove + "\xeb\x00\xeb\xfc": "jump springboard pun quiesced springboard: pun",
	} {
		k, _, req := withPun(t, code)
		req.Mechanism = plan.MechanismInvalid
		p, r := plan.Point(k.Text(t), req)
		if r != nil {
			t.Errorf("% x: %v", code, r)
			continue
		}
		var tried []string
		for _, one := range p.Passed {
			tried = append(tried, one.Mechanism.String())
		}
		if got := strings.Join(tried, " ") + ": " + p.Mechanism.String(); got != want {
			t.Errorf("% x: %s, want %s", code, got, want)
		}
	}
}

// TestPunRefused: a jump never ends in bytes that may change, or leads where no page is.
func TestPunRefused(t *testing.T) {
	good := punLoad + "\x48\x85\xc0\x31\xc0"
	none := func(isa.Addr) (*place.Area, error) { return nil, errors.New("none") }
	for name, c := range map[string]struct {
		code  string
		spoil func(k *ktexttest.Kernel, at isa.Addr, req *plan.Request)
		want  plan.Reason
		says  string
	}{
		"one byte":            {code: "\x53" + good, want: plan.TooShort},
		"five bytes":          {code: "\xb8\x01\x00\x00\x00" + good, want: plan.TooShort},
		"all lead too far":    {code: punLoad + "\x74\x74\x74\x74\x74", want: plan.OutOfReach, says: "no page"},
		"a lock prefix":       {code: punLoad + "\x3e\xff\x03\x31\xc0", want: plan.OutOfReach, says: "lock prefix"},
		"what is no code":     {code: punLoad + "\x06\x06\x06\x06", want: plan.OutOfReach},
		"a landing pad is it": {code: "\xf3\x0f\x1e\xfa" + good, want: plan.ReservedText},
		"a live splice": {code: good, spoil: func(_ *ktexttest.Kernel, at isa.Addr, req *plan.Request) {
			req.Taken = func(lo, hi isa.Addr) bool { return lo < at+5 && at+4 < hi }
		}, want: plan.AlreadySpliced},
		"another point": {code: good, spoil: func(_ *ktexttest.Kernel, at isa.Addr, req *plan.Request) {
			req.Wanted = func(lo, hi isa.Addr) bool { return lo <= at+4 && at+4 < hi }
		}, want: plan.AlreadySpliced, says: "asked for"},
		"a static key": {code: good, spoil: func(k *ktexttest.Kernel, at isa.Addr, _ *plan.Request) {
			site(t, k, "__start___jump_table", at+4)
		}, want: plan.OutOfReach, says: "static key"},
		"a fault": {code: good, spoil: func(k *ktexttest.Kernel, at isa.Addr, _ *plan.Request) {
			faults(t, k, at)
		}, want: plan.MayFault},
		"another function": {code: good, spoil: func(k *ktexttest.Kernel, at isa.Addr, _ *plan.Request) {
			k.Add("next", at+4, []byte("\x48\x85\xc0\xc3"))
		}, want: plan.OutOfReach, says: "next"},
		"no memory": {code: good, spoil: func(_ *ktexttest.Kernel, _ isa.Addr, req *plan.Request) {
			req.Heap.Pages([]place.Window{{Lo: 0xffffffff00000000, Hi: 0xffffffffff000000}}, none)
		}, want: plan.OutOfReach, says: "no page"},
		"no room for pages": {code: good, spoil: func(_ *ktexttest.Kernel, _ isa.Addr, req *plan.Request) { req.Heap.Pages(nil, none) }, want: plan.OutOfReach},
		"no heap":           {code: good, spoil: func(_ *ktexttest.Kernel, _ isa.Addr, req *plan.Request) { req.Heap = nil }, want: plan.OutOfReach},
	} {
		k, at, req := withPun(t, c.code)
		if c.spoil != nil {
			c.spoil(k, at, &req)
		}
		if p, r := plan.Point(k.Text(t), req); r == nil || r.Reason != c.want || !strings.Contains(r.Detail, c.says) {
			t.Errorf("%s: %+v, %v, want %v", name, p, r, c.want)
		}
	}
	for _, arch := range []string{"arm64", "riscv64"} {
		if slices.Contains(plan.Ladder(arch), plan.Pun) {
			t.Errorf("%s has puns", arch)
		}
	}
}

// site gives an address to the first entry of a table.
func site(t *testing.T, k *ktexttest.Kernel, table string, at isa.Addr) {
	t.Helper()
	a, ok := k.Text(t).Symbol(table)
	if !ok {
		t.Fatalf("no %s", table)
	}
	k.Write(a, isa.ByteOrder.AppendUint32(nil, uint32(at-a)))
}

// TestPunElsewhere: where the kernel has no page, the next in reach is taken.
func TestPunElsewhere(t *testing.T) {
	k, at, req := withPun(t, punLoad+"\x48\x85\xc0")
	lo, _ := gen.PunReach(at, 0, []byte{0x48})
	n := 0
	req.Heap.Pages(place.PageRoom(amd64.Arch, lo-0x48000000), func(a isa.Addr) (*place.Area, error) {
		if n++; n < 4 {
			return nil, errors.New("taken")
		}
		return place.NewPage(1, a), nil
	})
	p, r := plan.Point(k.Text(t), req)
	if r != nil {
		t.Fatal(r)
	}
	checkPunned(t, k, p, 0)
	if n != 4 || p.Patch < lo+3*3*place.PageLen-place.PageLen {
		t.Errorf("page %d, at %v of what begins at %v", n, p.Patch, lo)
	}
}

// TestCheckCatchesPun spoils one thing about each part.
func TestCheckCatchesPun(t *testing.T) {
	k, _, req := withPun(t, punLoad+"\x74\x10\x90\x90\x90")
	good, r := plan.Point(k.Text(t), req)
	if r != nil {
		t.Fatal(r)
	}
	for name, spoil := range map[string]func(*plan.Plan){
		"its tail":      func(p *plan.Plan) { p.Tail[1] ^= 1 },
		"no tail":       func(p *plan.Plan) { p.Tail = nil },
		"half a tail":   func(p *plan.Plan) { p.Tail = p.Tail[:1] },
		"a longer tail": func(p *plan.Plan) { p.Tail = append(p.Tail, 0x90) },
		"its opcode":    func(p *plan.Plan) { p.New[1] = 0xe8 },
		"its prefix":    func(p *plan.Plan) { p.New[0] = 0x66 },
		"a repetition":  func(p *plan.Plan) { p.New[0] = 0xf3 },
		"its way":       func(p *plan.Plan) { p.New[2] ^= 1 },
		"a jump":        func(p *plan.Plan) { p.Mechanism = plan.Jump },
		"two displaced": func(p *plan.Plan) { p.Displaced = append(p.Displaced, p.Displaced[0]) },
		"one shorter":   func(p *plan.Plan) { p.New, p.Old = p.New[:3], p.Old[:3] },
		"a fault":       func(p *plan.Plan) { p.Fault = p.Patch + isa.Addr(p.Start) },
	} {
		bad := *good
		bad.New, bad.Tail, bad.Old = bytes.Clone(good.New), bytes.Clone(good.Tail), bytes.Clone(good.Old)
		spoil(&bad)
		if err := bad.Check(amd64.Arch); err == nil {
			t.Errorf("%s: not noticed", name)
		}
	}
}
