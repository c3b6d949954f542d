package plan_test

import (
	"errors"
	"strings"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/plan"
	"kerninst/agent/snippet"
)

// leaver is a function that does nothing, and jumps to another as far behind its begin,
// and the return of that.
var leavers = map[string]struct {
	code string
	jump isa.Off // where it is
	ret  string
}{
	"amd64":   {"\x90\xe9\xfa\x00\x00\x00", 1, "\xc3"},
	"arm64":   {"\x1f\x20\x03\xd5\x3f\x00\x00\x14", 4, "\xc0\x03\x5f\xd6"},
	"riscv64": {"\x17\x03\x00\x00\x67\x00\x03\x10", 4, "\x82\x80"}, // auipc t1, 0; jr 256(t1)
}

const next = 0x100

// leaving is a kernel with such a function of a name, behind an ftrace site or not, and
// another to which it jumps, unless that is to be inside of something.
func leaving(t *testing.T, arch, name, code string, traced, begins bool) (*ktext.Text, isa.Off) {
	t.Helper()
	k := ktexttest.Load(t, arch)
	x := k.Text(t)
	lo, _ := x.Bounds()
	at, site := lo+0x8000, ""
	if traced {
		f, err := x.Function("", "vfs_read")
		b := make([]byte, ktext.MostFtrace)
		if err != nil || x.Read(f.Addr, b) != nil || x.FtraceSite(f.Addr, b) == 0 {
			t.Fatalf("vfs_read has no ftrace site: %v", err)
		}
		site = string(b[:x.FtraceSite(f.Addr, b)])
	}
	k.Add(name, at, []byte(site+code))
	to := at + isa.Addr(len(site)) + next
	if !begins {
		to -= 0x20
	}
	k.Add("next", to, []byte(strings.Repeat(leavers[arch].ret, 0x40)))
	return k.Text(t), isa.Off(len(site))
}

// returned is what asks what a function returns, and what does not.
func returned(t *testing.T, text string) snippet.Snippet {
	t.Helper()
	s, err := snippet.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const sumOfReturned = "c0 sum\nv0 u64 = ret\ncount c0 v0"

// types say of functions whether they may have arguments on the stack.
func types(known map[string]bool) func(ktext.Func) (bool, error) {
	return func(f ktext.Func) (bool, error) {
		on, ok := known[f.Name]
		if !ok {
			return false, errors.New("nothing is known of " + f.Name)
		}
		return on, nil
	}
}

// TestCalled: a jump to another function is made a call where neither is known to have
// arguments on the stack, and for nobody who does not ask what is returned.
func TestCalled(t *testing.T) {
	const other = plan.ReasonInvalid // it is planned
	for _, c := range []struct {
		name     string
		function string // that jumps; empty: leaver
		traced   bool
		inside   bool // the jump leads into a function
		known    map[string]bool
		snippet  string
		want     plan.Reason
		in       string
	}{
		{name: "the function has none", known: map[string]bool{"leaver": false}},
		{name: "the function has none, of which it is a part", function: "leaver.cold", known: map[string]bool{"leaver": false}},
		{name: "neither has", known: map[string]bool{"leaver": false, "next": false}},
		{name: "the function has none, wherever it jumps", known: map[string]bool{"leaver": false, "next": true}},
		{name: "what is called has none", known: map[string]bool{"leaver": true, "next": false}},
		{name: "both may have", known: map[string]bool{"leaver": true, "next": true}, want: plan.StackArguments, in: "next may have some"},
		{name: "nothing is known", traced: true, want: plan.StackArguments, in: "nothing says that the function is one of C"},
		{name: "of a part, nothing is known", function: "leaver.isra.0", traced: true, want: plan.StackArguments, in: "nothing is known of next"},
		{name: "the function may be assembly", known: map[string]bool{"next": false}, want: plan.StackArguments, in: "one of C"},
		{name: "the name is not the compiler's", traced: true, known: map[string]bool{"next": false}, want: plan.StackArguments, in: "one of C"},
		{name: "no ftrace site", function: "leaver.isra.0", known: map[string]bool{"next": false}, want: plan.StackArguments, in: "one of C"},
		{name: "the compiler's name", function: "leaver.isra.0", traced: true, known: map[string]bool{"next": false}},
		{name: "into a function", inside: true, known: map[string]bool{"leaver": true, "next": false}, want: plan.NoArgument, in: "no function begins"},
		{name: "into a function, of one that has none", inside: true, known: map[string]bool{"leaver": false}, want: plan.NoArgument, in: "no function begins"},
		{name: "with an argument", known: map[string]bool{"leaver": false}, snippet: "c0 sum\nv0 u64 = ret\nv1 u64 = arg 0\nv2 u64 = add v0 v1\ncount c0 v2", want: plan.NoArgument, in: "argument 0 may be gone"},
		{name: "nothing is asked", snippet: "c0 sum\ncount c0 1"},
	} {
		for arch, l := range leavers {
			function := c.function
			if function == "" {
				function = "leaver"
			}
			x, site := leaving(t, arch, function, l.code, c.traced, !c.inside)
			req := request(x, function, site+l.jump)
			req.OnStack = types(c.known)
			req.Snippet = returned(t, sumOfReturned)
			if c.snippet != "" {
				req.Snippet = returned(t, c.snippet)
			}
			p, r := plan.Point(x, req)
			switch {
			case c.want == other && r != nil:
				t.Errorf("%s: %s: %v", arch, c.name, r)
			case c.want == other:
				throughJSON(t, p)
				if p.Called != req.Snippet.Returned() || p.At() != p.Point+isa.Addr(p.Lead)*4 || p.Mechanism == plan.Pun {
					t.Errorf("%s: %s: %+v", arch, c.name, p)
				}
			case r == nil || r.Reason != c.want || !strings.Contains(r.Detail, c.in):
				t.Errorf("%s: %s: %v, %v; want %v with %q", arch, c.name, p, r, c.want, c.in)
			}
		}
	}
}

// TestCalledPun: where a counter's patch is in a page of puns, that of a jump that is made a
// call is not: nobody knows there what is on the stack.
func TestCalledPun(t *testing.T) {
	k, at, req := withPun(t, "\x90")
	k.Add("before", at+0x1000-0x29, []byte{0xc3})
	k.Add("leaver", at+0x1000, []byte("\xeb\xd5\x31\xc0\x39\xc0")) // jmp before
	x := k.Text(t)
	req.Function, req.Offset, req.Dry = "leaver", 0, true
	req.OnStack = types(map[string]bool{"leaver": false})
	for text, want := range map[string]plan.Reason{"c0 sum\ncount c0 1": plan.ReasonInvalid, sumOfReturned: plan.NoSpringboard} {
		req.Snippet = returned(t, text)
		p, r := plan.Point(x, req)
		if r == nil && (want != plan.ReasonInvalid || p.Mechanism != plan.Pun) || r != nil && r.Reason != want {
			t.Errorf("%q: %+v, %v", text, p, r)
		}
	}
}

// TestCalledShort: what is no way out, or may not be one, is not called.
func TestCalledShort(t *testing.T) {
	for _, c := range []struct {
		name, code string
		off        isa.Off
		want       string
	}{
		{"a short jump", "\x90\x90\xeb\x1c", 2, "called"},
		{"by a condition", "\x0f\x84\x1a\x00\x00\x00\xc3", 0, plan.NoArgument.String()},
		{"a loop", "\x90\x90\x90\x90\x90\xe9\xf6\xff\xff\xff", 5, plan.NoArgument.String()},
		{"through a register", "\x90\x90\x90\xff\xe0", 3, plan.IndirectJump.String()},
		{"a return", "\xc3\xcc\xcc\xcc\xcc", 0, "plain"},
	} {
		k := ktexttest.Load(t, "amd64")
		lo, _ := k.Text(t).Bounds()
		k.Add("leaver", lo+0x8000, []byte(c.code))
		k.Add("next", lo+0x8020, []byte(strings.Repeat("\xc3", 0x40)))
		x := k.Text(t)
		req := request(x, "leaver", c.off)
		req.OnStack, req.Snippet = types(map[string]bool{"leaver": false}), returned(t, sumOfReturned)
		p, r := plan.Point(x, req)
		got := "plain"
		switch {
		case r != nil:
			got = r.Reason.String()
		case p.Called:
			got = "called"
		}
		if got != c.want {
			t.Errorf("%s: %s (%v), want %s", c.name, got, r, c.want)
		}
	}
}

// TestCalledThunk: a jump to what the kernel returns by is a return, and a patch returns by
// it, too, if the function does.
func TestCalledThunk(t *testing.T) {
	k := ktexttest.Load(t, "amd64")
	lo, _ := k.Text(t).Bounds()
	at := lo + 0x8000
	k.Add("leaver", at, []byte("\x74\x05\xe9\xf9\x00\x00\x00\xe9\xf4\x01\x00\x00")) // je +5; jmp next; jmp thunk
	k.Add("next", at+0x100, []byte("\xc3"))
	k.Add("__x86_return_thunk", at+0x200, []byte("\xc3"))
	x := k.Text(t)
	for off, called := range map[isa.Off]bool{2: true, 7: false} {
		req := request(x, "leaver", off)
		req.OnStack, req.Snippet = types(map[string]bool{"leaver": false}), returned(t, sumOfReturned)
		p, r := plan.Point(x, req)
		if r != nil || p.Called != called || called && p.Thunk != at+0x200 {
			t.Errorf("+%#x: %+v, %v", uint64(off), p, r)
		}
	}
}

// TestDispatch: a jump through a thunk leaves a function, unless that has landing pads behind its
// entry: then it may lead there, as in an interpreter, and nothing is taken for granted of it.
func TestDispatch(t *testing.T) {
	const (
		jump = "\x74\x05\xe9\xf9\x00\x00\x00" // je +5; jmp thunk
		pad  = "\xf3\x0f\x1e\xfa"
		ret  = "\xc3"
	)
	for code, dispatches := range map[string]bool{jump + ret: false, jump + pad + ret: true} {
		k := ktexttest.Load(t, "amd64")
		lo, _ := k.Text(t).Bounds()
		at := lo + 0x8000
		k.Add("interprets", at, []byte(code))
		k.Add("__x86_indirect_thunk_rdx", at+0x100, []byte("\xc3"))
		x := k.Text(t)
		for _, each := range []plan.Each{plan.EachReturn, plan.EachBlock} {
			if _, r := plan.Offsets(x, request(x, "interprets", 0), each); (r != nil) != dispatches || r != nil && r.Reason != plan.IndirectJump {
				t.Errorf("%x, %v: %v", code, each, r)
			}
		}
		req := request(x, "interprets", 2)
		req.OnStack, req.Snippet = types(map[string]bool{"interprets": false}), returned(t, sumOfReturned)
		if p, r := plan.Point(x, req); (r != nil) != dispatches || r != nil && r.Reason != plan.IndirectJump {
			t.Errorf("%x: %+v, %v", code, p, r)
		}
	}
}

// TestCheckCatchesCalled: a patch that calls something else, or does not, or does not come
// back, or that lies where nobody knows its stack, is noticed.
func TestCheckCatchesCalled(t *testing.T) {
	for arch, l := range leavers {
		for what, spoil := range map[string]func(*plan.Plan){
			"not called":      func(p *plan.Plan) { p.Called = false },
			"another target":  func(p *plan.Plan) { p.Code[p.Start/4] ^= 4 },
			"another return":  func(p *plan.Plan) { p.Code[p.Start] ^= 4 },
			"more behind it":  func(p *plan.Plan) { p.Code = append(p.Code, p.Code[p.Start:]...) },
			"by a thunk":      func(p *plan.Plan) { p.Thunk = p.Patch },
			"another snippet": func(p *plan.Plan) { p.Code = append(p.Code[:p.Start], p.Code[p.Start-1:]...) },
		} {
			x, site := leaving(t, arch, "leaver", l.code, false, true)
			req := request(x, "leaver", site+l.jump)
			req.OnStack, req.Snippet = types(map[string]bool{"leaver": false}), returned(t, sumOfReturned)
			p, r := plan.Point(x, req)
			if r != nil || p.Check(x.Arch) != nil {
				t.Fatalf("%s: %v", arch, r)
			}
			if spoil(p); p.Check(x.Arch) == nil {
				t.Errorf("%s: %s: the plan is right: %+v", arch, what, p)
			}
		}
	}
}
