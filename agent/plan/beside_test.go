package plan_test

import (
	"bytes"
	"strings"
	"testing"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/isa/amd64"
	"kerninst/agent/ktext"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/plan"
)

// Stretches on amd64: springboards beside a point that has no padding in reach.

const (
	besideMove = "\x48\x89\xc3"                 // mov %rax, %rbx
	besideLea  = "\x48\x8d\x05\x10\x00\x00\x00" // lea 0x10(%rip), %rax
	besideJe   = "\x74\x10"                     // je +16
	besidePush = "\x53\x5b"                     // push %rbx; pop %rbx
	besideRet  = "\xc3"
)

// besidePiece are nineteen bytes that nothing leads into, of each kind that a stretch has.
var besidePiece = besideMove + besideLea + besideJe + besidePush + "\x85\xc0" + besideMove

// hops are jumps of which each leads to the next: nothing but points. None is in a window,
// nor in a stretch.
func hops(n int) string { return strings.Repeat("\xeb\x00", n) }

// withHops is a kernel with a function of hops, some code and hops, and a request for the
// hop that lies so many bytes before the code.
func withHops(t *testing.T, code string, before int) (*ktexttest.Kernel, isa.Addr, plan.Request) {
	t.Helper()
	const n = 200
	k := ktexttest.Load(t, "amd64")
	lo, _ := k.Text(t).Bounds()
	at := lo + 0x8000
	k.Add("piece", at, []byte(hops(n)+code+hops(n)+besideRet))
	k.Add("behind_piece", at+isa.Addr(4*n+len(code)+1), []byte(besideRet))
	req := request(k.Text(t), "piece", isa.Off(2*n-before))
	req.Without = []plan.Mechanism{plan.Trap}
	return k, at + 2*n, req
}

// TestBeside: springboards are in a stretch until there is no room for another, and what
// runs there runs in the copy.
func TestBeside(t *testing.T) {
	k, at, req := withHops(t, besidePiece, 20)
	x := k.Text(t)
	for n := range 2 {
		req.Offset -= isa.Off(2 * n)
		p, r := plan.Point(x, req)
		if r != nil {
			t.Fatalf("springboard %d: %v", n, r)
		}
		throughJSON(t, p)
		e := p.Board.In
		if p.Mechanism != plan.Springboard || e == nil || e.Body != at || string(e.Code) != besidePiece || e.Out != 0 || e.Back != 0 || !e.Stretch {
			t.Fatalf("springboard %d: %+v in %+v", n, p.Board, e)
		}
		if len(p.New) != 2 || len(p.Board.New) != 5 || p.Board.Addr != e.Body+isa.Addr(5*(n+1)) || p.Added != 5 {
			t.Errorf("springboard %d: %x at %v, %d instructions added", n, p.Board.New, p.Board.Addr, p.Added)
		}
		if said := p.Passed[len(p.Passed)-1]; said.Mechanism != plan.Quiesced || said.Refusal.Reason != plan.TooShort {
			t.Errorf("springboard %d: %v before it", n, said)
		}
		sameEffect(t, e)
	}
	req.Offset -= 2
	if _, r := plan.Point(x, req); r == nil || r.Reason != plan.NoSpringboard || !strings.Contains(r.Detail, "stretch") {
		t.Errorf("a third springboard in room for two: %v", r)
	}
}

// sameEffect compares a copy with its stretch, instruction by instruction: the same bytes,
// or the same operand, or the same condition to the same place; then on behind the stretch.
func sameEffect(t *testing.T, e *plan.Eviction) {
	t.Helper()
	k, falls := 0, true
	for n := 0; n < len(e.Code); {
		from, to := amd64.Arch.Decode(e.Code[n:], e.Body+isa.Addr(n)), amd64.Arch.Decode(e.Copy[k:], e.Patch+isa.Addr(k))
		a, b := bytes.Clone(e.Code[n:n+from.Len]), bytes.Clone(e.Copy[k:k+to.Len])
		switch {
		case from.Flow != to.Flow || from.Target != to.Target || from.Operand != to.Operand || from.Reads != to.Reads || from.Writes != to.Writes:
			t.Errorf("%s: %+v became %+v", e.Name(), from, to)
		case from.Rel32 != 0:
			copy(a[from.Rel32:], b[to.Rel32:to.Rel32+4])
			fallthrough
		case from.Flow == isa.FlowNone || from.Flow == isa.FlowReturn:
			if !bytes.Equal(a, b) {
				t.Errorf("%s: % x became % x", e.Name(), a, b)
			}
		}
		if s := e.States; !hasState(s, k, from.Addr) {
			t.Errorf("%s: %+v do not say that %v is at %d", e.Name(), s, from.Addr, k)
		}
		n, k, falls = n+from.Len, k+to.Len, !to.Flow.Ends()
	}
	if !falls {
		if k != len(e.Copy) {
			t.Errorf("%s: %d bytes behind what ends it", e.Name(), len(e.Copy)-k)
		}
		return
	}
	if i := amd64.Arch.Decode(e.Copy[k:], e.Patch+isa.Addr(k)); i.Flow != isa.FlowJump || i.Target != e.End() || k+i.Len != len(e.Copy) || !hasState(e.States, k, e.End()) {
		t.Errorf("%s: ends in %+v, not in a jump to %v", e.Name(), i, e.End())
	}
}

func hasState(states []gen.State, off int, orig isa.Addr) bool {
	for _, s := range states {
		if s.Off == off && s.Orig == orig && s.SP == 0 && len(s.Saved) == 0 {
			return true
		}
	}
	return false
}

// TestBesideRecorded makes a springboard for each instruction of recorded functions for
// which some stretch makes room: nothing leads into one but at its begin, copies do the
// same, and the point stays.
func TestBesideRecorded(t *testing.T) {
	k := ktexttest.Load(t, "amd64")
	x := k.Text(t)
	targets := map[isa.Addr]bool{}
	var functions []ktext.Func
	x.Functions("", func(f ktext.Func) bool {
		code, err := x.Code(f)
		if err != nil || f.Size < 64 || bytes.Count(code, []byte{0}) == len(code) {
			return true
		}
		functions = append(functions, f)
		for n := 0; n < len(code); {
			i := amd64.Arch.Decode(code[n:], f.Addr+isa.Addr(n))
			targets[i.Target] = i.Flow != isa.FlowNone || targets[i.Target]
			n += i.Len
		}
		return true
	})
	padding := func(lo, hi isa.Addr) bool {
		f, ok := x.Locate(lo)
		return !ok || hi > f.End() || strings.HasPrefix(f.Name, "__pfx_")
	}
	made, leaving := 0, 0
	for _, f := range functions {
		req := request(x, f.Name, 0)
		req.Mechanism, req.Taken, req.Known = plan.Springboard, padding, &plan.Functions{}
		r := plan.Survey(x, f, req, func(off isa.Off, p *plan.Plan, _ *plan.Refusal) bool {
			if p == nil || p.Board == nil || p.Board.In == nil {
				return true
			}
			e := p.Board.In
			made++
			sameEffect(t, e)
			if p.Point < e.End() && e.Body < p.End() || p.Board.Addr < e.Body+5 || p.Board.End() > e.End() {
				t.Errorf("%v+%#x: %v in %s", f, uint64(off), p.Board.Addr, e.Name())
			}
			for a := e.Body + 1; a < e.End(); a++ {
				if targets[a] {
					t.Errorf("%v+%#x: something leads to %v, inside %s", f, uint64(off), a, e.Name())
				}
			}
			for n := 0; n < len(e.Code); {
				i := amd64.Arch.Decode(e.Code[n:], e.Body+isa.Addr(n))
				if _, site, err := x.Site(i.Addr, i.End()); site || err != nil || i.Flow == isa.FlowCall || i.Flow == isa.FlowIndirectCall || i.Flow == isa.FlowTrap {
					t.Errorf("%v+%#x: %v is in %s", f, uint64(off), i.Addr, e.Name())
				}
				if i.Flow != isa.FlowNone {
					leaving++
				}
				n += i.Len
			}
			return true
		})
		if r != nil {
			t.Error(r)
		}
	}
	if made < 200 || leaving == 0 {
		t.Errorf("%d springboards in stretches, in which %d instructions may leave", made, leaving)
	}
	t.Logf("%d springboards in stretches of %d functions", made, len(functions))
}

// TestBesideNot: one thing is wrong with each.
func TestBesideNot(t *testing.T) {
	moves := func(n int) string { return strings.Repeat(besideMove, n) }
	for name, c := range map[string]struct {
		code   string
		before int
		spoil  func(k *ktexttest.Kernel, at isa.Addr, req *plan.Request)
		want   plan.Reason
	}{
		"nothing":                {code: besidePiece},
		"ten bytes":              {code: moves(2) + besidePush + besidePush},
		"too short":              {code: moves(2), want: plan.NoSpringboard},
		"the farthest":           {code: moves(6), before: 124},
		"too far":                {code: moves(6), before: 126, want: plan.NoSpringboard},
		"it calls":               {code: moves(2) + "\xe8\x00\x01\x00\x00" + moves(2), want: plan.NoSpringboard},
		"it calls by a register": {code: moves(2) + "\xff\xd0" + moves(2), want: plan.NoSpringboard},
		"a system instruction":   {code: moves(2) + "\x0f\x20\xc0" + moves(2), want: plan.NoSpringboard},
		"interrupts are let in":  {code: moves(2) + "\xfb" + moves(2), want: plan.NoSpringboard},
		"a landing pad":          {code: moves(2) + "\xf3\x0f\x1e\xfa" + moves(2), want: plan.NoSpringboard},
		"a trap":                 {code: moves(2) + "\x0f\x0b" + moves(2), want: plan.NoSpringboard},
		"a lock prefix":          {code: moves(2) + "\x3e\xff\x03" + moves(2), want: plan.NoSpringboard},
		"a probe":                {code: moves(5) + "\xcc", want: plan.NoSpringboard},
		"fillers":                {code: moves(5) + "\xc3\xcc\xcc\xcc\xcc"},
		"an indirect jump":       {code: moves(5) + "\xff\xe0", want: plan.NoSpringboard},
		"what is not understood": {code: moves(5) + "\x06", want: plan.NoSpringboard},
		"a way in":               {code: moves(3) + "\x74\xfb", want: plan.NoSpringboard}, // je to the third
		"a way into the middle":  {code: moves(3) + "\x74\xfc", want: plan.NoSpringboard},
		"an operand of 32 bits":  {code: moves(2) + "\x67\x48\x8d\x05\x10\x00\x00\x00" + moves(1), want: plan.NoSpringboard},
		"it ends in a return":    {code: moves(3) + "\xc3"},
		"it ends in a jump":      {code: moves(3) + "\xeb\x10"},
		"a return is in it":      {code: moves(1) + "\xc3" + moves(2), want: plan.NoSpringboard},
		"forbidden": {code: besidePiece, spoil: func(_ *ktexttest.Kernel, _ isa.Addr, req *plan.Request) {
			req.Without = append(req.Without, plan.Quiesced)
		}, want: plan.NoSpringboard},
		"springboards are": {code: besidePiece, spoil: func(_ *ktexttest.Kernel, _ isa.Addr, req *plan.Request) {
			req.Without = append(req.Without, plan.Springboard)
		}, want: plan.TooShort},
		"windows alone are asked": {code: besidePiece, spoil: func(_ *ktexttest.Kernel, _ isa.Addr, req *plan.Request) { req.Mechanism = plan.Quiesced }, want: plan.TooShort},
		"preemption without diversion": {code: besidePiece, spoil: func(_ *ktexttest.Kernel, _ isa.Addr, req *plan.Request) {
			req.Features.NoWindows, req.Mechanism = true, plan.Springboard
		}, want: plan.NoSpringboard},
		"a splice is in it": {code: moves(5), spoil: func(_ *ktexttest.Kernel, at isa.Addr, req *plan.Request) {
			req.Taken = func(lo, hi isa.Addr) bool { return lo < at+9 && at+7 < hi }
		}, want: plan.NoSpringboard},
		"spared": {code: moves(5), spoil: func(_ *ktexttest.Kernel, at isa.Addr, req *plan.Request) {
			req.Spare = func(_ ktext.Func, lo, hi isa.Addr) bool { return lo < at+9 && at+7 < hi }
		}, want: plan.NoSpringboard},
		"who sleeps comes back to it": {code: moves(1) + besidePiece, spoil: func(k *ktexttest.Kernel, at isa.Addr, _ *plan.Request) {
			faults(t, k, at)
		}, want: plan.NoSpringboard},
		"who sleeps comes back before it": {code: moves(1) + hops(9) + besidePiece, spoil: func(k *ktexttest.Kernel, at isa.Addr, _ *plan.Request) {
			faults(t, k, at)
		}},
	} {
		before := c.before
		if before == 0 {
			before = 20
		}
		k, at, req := withHops(t, c.code, before)
		if c.spoil != nil {
			c.spoil(k, at, &req)
		}
		p, r := plan.Point(k.Text(t), req)
		switch {
		case c.want == 0 && (r != nil || p.Board == nil || p.Board.In == nil):
			t.Errorf("%s: %+v, %v", name, p, r)
		case c.want != 0 && (r == nil || r.Reason != c.want):
			t.Errorf("%s: %+v, %v, want %v", name, p, r, c.want)
		}
	}
}

// faults gives an instruction the exception-table entry of some other.
func faults(t *testing.T, k *ktexttest.Kernel, at isa.Addr) {
	table, ok := k.Text(t).Symbol("__start___ex_table")
	if !ok {
		t.Fatal("no exception table")
	}
	k.Write(table, isa.ByteOrder.AppendUint32(nil, uint32(at-table)))
}

// TestCheckCatchesBeside spoils one thing about each part.
func TestCheckCatchesBeside(t *testing.T) {
	k, _, req := withHops(t, besidePiece, 20)
	good, r := plan.Point(k.Text(t), req)
	if r != nil {
		t.Fatal(r)
	}
	for name, spoil := range map[string]func(b *plan.Board, e *plan.Eviction){
		"another copy":           func(_ *plan.Board, e *plan.Eviction) { e.Copy = flip(e.Copy, 1) },
		"another operand":        func(_ *plan.Board, e *plan.Eviction) { e.Copy = flip(e.Copy, 6) },
		"another target":         func(_ *plan.Board, e *plan.Eviction) { e.Copy = flip(e.Copy, 12) },
		"a way back elsewhere":   func(_ *plan.Board, e *plan.Eviction) { e.Copy = flip(e.Copy, len(e.Copy)-3) },
		"no way back":            func(_ *plan.Board, e *plan.Eviction) { e.Copy = e.Copy[:len(e.Copy)-5] },
		"out elsewhere":          func(_ *plan.Board, e *plan.Eviction) { e.New = flip(e.New, 1) },
		"the copy elsewhere":     func(_ *plan.Board, e *plan.Eviction) { e.Patch += 64 },
		"slot too short":         func(_ *plan.Board, e *plan.Eviction) { e.Slot = len(e.Copy) - 1 },
		"a function":             func(_ *plan.Board, e *plan.Eviction) { e.Stretch = false },
		"another state":          func(_ *plan.Board, e *plan.Eviction) { e.States[2].Orig++ },
		"no states":              func(_ *plan.Board, e *plan.Eviction) { e.States = nil },
		"half an instruction":    func(_ *plan.Board, e *plan.Eviction) { e.Code = e.Code[:len(e.Code)-1] },
		"a call":                 func(_ *plan.Board, e *plan.Eviction) { copy(e.Code[3:], "\xff\xd0\x90\x90\x90\x90\x90") },
		"a board on the jump":    func(b *plan.Board, e *plan.Eviction) { b.Addr = e.Body + 4 },
		"a board behind the end": func(b *plan.Board, e *plan.Eviction) { b.Addr = e.End() - 4 },
		"a board on other bytes": func(b *plan.Board, _ *plan.Eviction) { b.Old = flip(b.Old, 0) },
		"not said what is free":  func(_ *plan.Board, e *plan.Eviction) { e.Free = nil },
		"a return is in it":      func(_ *plan.Board, e *plan.Eviction) { e.Code[12], e.Copy[16] = 0xc3, 0xc3 },
		"too long": func(_ *plan.Board, e *plan.Eviction) { // by two nops; the way back is as far
			k, end := len(e.Copy)-5, e.End()
			e.Code = append(e.Code, "\x90\x90"...)
			e.Copy = append(append(e.Copy[:k:k], "\x90\x90"...), e.Copy[k:]...)
			e.States = append(e.States, gen.State{Off: k + 1, Orig: end + 1}, gen.State{Off: k + 2, Orig: end + 2})
			e.Slot += 2
		},
	} {
		p, b, e := *good, *good.Board, *good.Board.In
		e.Code, e.New, e.Copy = bytes.Clone(e.Code), bytes.Clone(e.New), bytes.Clone(e.Copy)
		e.States = append([]gen.State(nil), e.States...)
		b.In, p.Board = &e, &b
		if err := p.Check(amd64.Arch); err != nil {
			t.Fatalf("%s: wrong before: %v", name, err)
		}
		spoil(&b, &e)
		if err := p.Check(amd64.Arch); err == nil {
			t.Errorf("%s: not noticed", name)
		}
	}
}
