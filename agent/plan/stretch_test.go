package plan_test

import (
	"strings"
	"testing"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/isa/amd64"
	"kerninst/agent/isa/riscv64"
	"kerninst/agent/ktext"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/place"
	"kerninst/agent/plan"
	"kerninst/agent/snippet"
)

// pieceCode is a function that cannot be moved, as it calls another. Behind its first
// instruction, a return, are twelve of two bytes, before each of which and behind the last
// a5 is free: it is overwritten before the call.
const (
	pieceBegin = "\x82\x80"         // c.jr ra
	pieceEnd   = "\x81\x47"         // c.li a5, 0
	pieceCall  = "\xef\x00\x00\x01" // jal ra, +16
)

var pieceCode = pieceBegin + strings.Repeat("\x01\x00", 12) + pieceEnd + pieceCall

// withPiece is a request for a point of two bytes, in a kernel that has some code so many
// bytes behind the point's function, and nothing else that can be evicted.
func withPiece(t *testing.T, behind isa.Addr, code string) (*ktexttest.Kernel, isa.Addr, func() plan.Request) {
	t.Helper()
	k := ktexttest.Load(t, "riscv64")
	f, err := k.Text(t).Function("", leafOf)
	if err != nil {
		t.Fatal(err)
	}
	k.Add("piece", f.Addr+behind, []byte(code))
	k.Add("behind_piece", f.Addr+behind+isa.Addr(len(code)), []byte(pieceBegin))
	return k, f.Addr + behind, func() plan.Request {
		req := request(k.Text(t), leafOf, 0x14)
		req.Mechanism = plan.Springboard
		if req.Snippet, err = snippet.Parse("c0 sum\nc1 sum\ncount c0 1\ncount c1 1"); err != nil {
			t.Fatal(err)
		}
		req.Spare = func(f ktext.Func, _, _ isa.Addr) bool { return f.Name != "piece" }
		return req
	}
}

// TestStretch: springboards are in one stretch until there is no room for another.
func TestStretch(t *testing.T) {
	k, at, ask := withPiece(t, 0x400, pieceCode)
	x, req := k.Text(t), ask()
	for n := range 2 {
		p, r := plan.Point(x, req)
		if r != nil {
			t.Fatalf("springboard %d: %v", n, r)
		}
		throughJSON(t, p)
		e := p.Board.In
		if e == nil || e.Name() != "piece+0x2" || e.Body != at+2 || len(e.Code) != 24 || len(p.New) != 2 || p.Board.Addr != e.Body+isa.Addr(8*(n+1)) {
			t.Fatalf("springboard %d: %+v in %+v", n, p.Board, e)
		}
		back, err := riscv64.FarJump(15, e.Patch+24, e.End())
		if err != nil || string(e.Copy) != string(e.Code)+string(back) || len(e.Copy) != e.Slot {
			t.Errorf("the copy is %x, %v", e.Copy, err)
		}
		if in, ok := req.Heap.Moved(e.Body + 8); !ok || in != e.Place() {
			t.Errorf("the heap has %+v, not %+v", in, e.Place())
		}
	}
	if _, r := plan.Point(x, req); r == nil || r.Reason != plan.NoSpringboard {
		t.Errorf("a third springboard in room for two: %v", r)
	}
}

// TestStretchKnown: a stretch that is evicted is used for others only while it is known
// that what its jumps go through is free.
func TestStretchKnown(t *testing.T) {
	k, _, ask := withPiece(t, 0x400, pieceBegin+strings.Repeat("\x01\x00", 12)+pieceCall)
	x, req := k.Text(t), ask()
	knows := true
	req.Facts = func(f ktext.Func) (plan.Facts, error) {
		return plan.Facts{Free: func(isa.Addr) isa.RegSet {
			if f.Name == "piece" && !knows {
				return 0
			}
			return isa.Set(6, 7)
		}}, nil
	}
	for _, c := range []struct{ knows, want bool }{{false, false}, {true, true}, {false, false}, {true, true}} {
		knows = c.knows
		p, r := plan.Point(x, req)
		if c.want != (r == nil) || r != nil && r.Reason != plan.NoSpringboard {
			t.Fatalf("known: %v: %+v, %v", c.knows, p, r)
		}
	}
}

// TestStretchInside: one of the point's own function, behind it and not on it.
func TestStretchInside(t *testing.T) {
	code := pieceBegin + strings.Repeat("\x01\x00", 30) + pieceEnd + pieceCall
	k, at, ask := withPiece(t, 0x400, code)
	req := ask()
	req.Function = "piece"
	for _, off := range []isa.Off{2, 16, 30, 58} {
		req := ask()
		req.Function, req.Offset = "piece", off
		p, r := plan.Point(k.Text(t), req)
		if r != nil {
			t.Fatalf("+%#x: %v", uint64(off), r)
		}
		if e := p.Board.In; e.Symbol != "piece" || p.Point != at+isa.Addr(off) || e.Body < p.End() && p.Point < e.End() {
			t.Errorf("+%#x: %+v", uint64(off), e)
		}
	}
}

// TestStretchBehindFault: who sleeps in a patch over what may fault comes back behind its
// window, whether that is undone or not. No stretch is there.
func TestStretchBehindFault(t *testing.T) {
	const widest = 10
	k, at, ask := withPiece(t, 0x400, pieceBegin+strings.Repeat("\x01\x00", 20)+pieceEnd+pieceCall)
	table, ok := k.Text(t).Symbol("__start___ex_table")
	if !ok {
		t.Fatal("no exception table")
	}
	k.Write(table, isa.ByteOrder.AppendUint32(nil, uint32(at+2-table))) // of some other instruction until now
	p, r := plan.Point(k.Text(t), ask())
	if r != nil {
		t.Fatal(r)
	}
	if got := p.Board.In.Body; got < at+2+widest || got > at+4+widest {
		t.Errorf("the stretch begins at %v, and what may fault is at %v", got, at+2)
	}
}

// TestStretchNot: one thing is wrong with each.
func TestStretchNot(t *testing.T) {
	nops := func(n int) string { return strings.Repeat("\x01\x00", n) }
	for name, c := range map[string]struct {
		behind isa.Addr
		code   string
		spoil  func(k *ktexttest.Kernel, at isa.Addr, req *plan.Request)
		want   plan.Reason
	}{
		"nothing": {code: pieceCode},
		"too far": {behind: 0x1000, code: pieceCode, want: plan.NoSpringboard},
		"too short": {
			code: pieceBegin + nops(7) + pieceEnd + pieceCall, want: plan.NoSpringboard},
		"nothing is free": {
			code: pieceBegin + nops(13) + pieceCall, want: plan.NoSpringboard},
		"nothing is free behind it": {
			code: pieceBegin + pieceEnd + nops(12) + pieceCall, want: plan.NoSpringboard},
		"it calls": {
			code: pieceBegin + nops(6) + pieceCall + nops(6) + pieceEnd + pieceCall, want: plan.NoSpringboard},
		"a branch": { // c.beqz a0, +2
			code: pieceBegin + nops(6) + "\x09\xc1" + nops(6) + pieceEnd + pieceCall, want: plan.NoSpringboard},
		"an address": { // auipc a0
			code: pieceBegin + nops(6) + "\x17\x05\x00\x00" + nops(6) + pieceEnd + pieceCall, want: plan.NoSpringboard},
		"a system instruction": { // csrr a0, sstatus
			code: pieceBegin + nops(6) + "\x73\x25\x00\x10" + nops(6) + pieceEnd + pieceCall, want: plan.NoSpringboard},
		"an exclusive sequence": { // lr.d a0, (a0); sc.d a0, a0, (a0)
			code: pieceBegin + nops(6) + "\x2f\x35\x05\x10" + nops(6) + "\x2f\x35\xa5\x18" + pieceEnd + pieceCall, want: plan.NoSpringboard},
		"a probe": { // c.ebreak
			code: pieceCode + "\x02\x90", want: plan.NoSpringboard},
		"a probe behind a return": {
			code: pieceCode + pieceBegin + "\x02\x90", want: plan.NoSpringboard},
		"an indirect jump": { // c.jr a0
			code: pieceCode + "\x02\x85", want: plan.NoSpringboard},
		"what is not understood": {
			code: pieceCode + "\x00\x00", want: plan.NoSpringboard},
		"a way in": { // c.j to the seventh
			code: pieceCode, spoil: func(k *ktexttest.Kernel, at isa.Addr, _ *plan.Request) {
				b, _ := riscv64.ShortJump(at+0x80, at+2+12)
				k.Write(at+0x80, b)
			}, want: plan.NoSpringboard},
		"spared": {
			code: pieceCode, spoil: func(_ *ktexttest.Kernel, at isa.Addr, req *plan.Request) {
				req.Spare = func(_ ktext.Func, lo, hi isa.Addr) bool { return lo < at+14 && at+12 < hi || lo < at || lo > at+24 }
			}, want: plan.NoSpringboard},
		"a splice is in it": {
			code: pieceCode, spoil: func(_ *ktexttest.Kernel, at isa.Addr, req *plan.Request) {
				req.Taken = func(lo, hi isa.Addr) bool { return lo < at+14 && at+12 < hi }
			}, want: plan.NoSpringboard},
		"preemption": {
			code: pieceCode, spoil: func(_ *ktexttest.Kernel, _ isa.Addr, req *plan.Request) { req.Features.NoWindows = true },
			want: plan.UnsupportedMechanism},
		"no patch memory": {
			code: pieceCode, spoil: func(_ *ktexttest.Kernel, _ isa.Addr, req *plan.Request) {
				a, n := req.Heap.Areas()[0], (gen.Room(riscv64.Arch, req.Snippet)+63)&^63
				req.Heap = &place.Heap{}
				req.Heap.Add(place.NewArea(7, a.Addr, a.Addr+isa.Addr(n), n))
			}, want: plan.MemoryFull},
	} {
		behind := c.behind
		if behind == 0 {
			behind = 0x400
		}
		k, at, ask := withPiece(t, behind, c.code)
		req := ask()
		if c.spoil != nil {
			c.spoil(k, at, &req)
		}
		p, r := plan.Point(k.Text(t), req)
		switch {
		case c.want == 0 && r != nil:
			t.Errorf("%s: %v", name, r)
		case c.want != 0 && (r == nil || r.Reason != c.want):
			t.Errorf("%s: %+v, %v, want %v", name, p, r, c.want)
		}
	}
}

// TestCheckCatchesStretch spoils one thing about each part.
func TestCheckCatchesStretch(t *testing.T) {
	k, _, ask := withPiece(t, 0x400, pieceCode)
	good, r := plan.Point(k.Text(t), ask())
	if r != nil {
		t.Fatal(r)
	}
	for name, spoil := range map[string]func(p *plan.Plan, b *plan.Board, e *plan.Eviction){
		"another copy":           func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { e.Copy = flip(e.Copy, 3) },
		"a way back elsewhere":   func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { e.Copy = flip(e.Copy, 24+6) },
		"no way back":            func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { e.Copy = e.Copy[:24] },
		"half a way back":        func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { e.Copy = e.Copy[:28] },
		"more than the way back": func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { e.Copy = append(e.Copy, 1, 0); e.Slot += 2 },
		"a way back through s1": func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) {
			e.Back = 9
			e.Copy = append(e.Copy[:24:24], farVia(t, 9, e.Patch+24, e.End())...)
		},
		"another register back":  func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { e.Back = 14; e.Free[1] |= isa.Set(14) },
		"out through s1":         func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { e.Out = 9; e.New = farVia(t, 9, e.Body, e.Patch) },
		"another register out":   func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { e.Out = 14; e.Free[0] |= isa.Set(14) },
		"out elsewhere":          func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { e.New = flip(e.New, 6) },
		"nothing free before it": func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { e.Free[0] = 0 },
		"nothing free behind it": func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { e.Free[1] = 0 },
		"not said what is free":  func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { e.Free = e.Free[:1] },
		"a function":             func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { e.Back = 0 },
		"the copy elsewhere":     func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { e.Patch += 64 },
		"slot too short":         func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { e.Slot = len(e.Copy) - 1 },
		"a call":                 func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { put(e, 20, pieceCall) },
		"a branch":               func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { put(e, 20, "\x09\xc1") },
		"a return":               func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { put(e, 20, pieceBegin) },
		"an address":             func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { put(e, 20, "\x17\x05\x00\x00") },
		"a system instruction":   func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { put(e, 20, "\x73\x25\x00\x10") },
		"an exclusive load":      func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { put(e, 20, "\x2f\x35\x05\x10") },
		"what is not understood": func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { put(e, 20, "\x00\x00") },
		"half an instruction":    func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) { put(e, 22, "\x13\x00") },
		"too long": func(_ *plan.Plan, _ *plan.Board, e *plan.Eviction) {
			e.Code = append(e.Code, strings.Repeat("\x01\x00", 12)...)
			e.Copy = append(append([]byte(nil), e.Code...), farVia(t, e.Back, e.Patch+isa.Addr(len(e.Code)), e.End())...)
			e.Slot = len(e.Copy)
		},
		"the point is in it": func(p *plan.Plan, _ *plan.Board, e *plan.Eviction) {
			e.Body = p.Point - 12
			e.New = farVia(t, e.Out, e.Body, e.Patch)
			e.Copy = append(e.Copy[:24:24], farVia(t, e.Back, e.Patch+24, e.End())...)
		},
	} {
		p, b, e := *good, *good.Board, *good.Board.In
		e.Code, e.New, e.Copy = append([]byte(nil), e.Code...), append([]byte(nil), e.New...), append([]byte(nil), e.Copy...)
		e.Free = append([]isa.RegSet(nil), e.Free...)
		b.In, p.Board = &e, &b
		if err := p.Check(riscv64.Arch); err != nil {
			t.Fatalf("%s: wrong before: %v", name, err)
		}
		spoil(&p, &b, &e)
		if err := p.Check(riscv64.Arch); err == nil {
			t.Errorf("%s: not noticed", name)
		}
	}
}

// put puts other code into a stretch and its copy.
func put(e *plan.Eviction, at int, code string) {
	copy(e.Code[at:], code)
	copy(e.Copy[at:], e.Code[at:])
}

// farVia is auipc and jalr.
func farVia(t *testing.T, r isa.Reg, from, to isa.Addr) []byte {
	t.Helper()
	code, err := riscv64.FarJump(r, from, to)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// TestUnnamed: behind a return, what ftrace leaves of a site is one, symbol or not; behind
// what goes on it is two nops.
func TestUnnamed(t *testing.T) {
	const nops = "\x13\x00\x00\x00\x13\x00\x00\x00"
	for first, want := range map[string]string{pieceBegin: "ftrace site", pieceEnd: ""} {
		k, _, _ := withPiece(t, 0x400, first+nops+strings.Repeat("\x01\x00", 8)+pieceEnd+pieceCall)
		x := k.Text(t)
		for off, class := range map[isa.Off]string{2: want, 6: want, 10: ""} {
			_, r := plan.Point(x, request(x, "piece", off))
			if got := r != nil && r.Class == "ftrace site"; got != (class != "") {
				t.Errorf("%x: +%#x: %v", first, off, r)
			}
		}
	}
}

// TestStretchShrinks: a jump whose prefix is left behind ends a copy that is as long as the stretch
// all the same, for the kernel's module holds it to that.
func TestStretchShrinks(t *testing.T) {
	k := ktexttest.Load(t, "amd64")
	f, err := k.Text(t).Function("", "vfs_write")
	if err != nil {
		t.Fatal(err)
	}
	at := f.Addr + 0x200
	far, err := amd64.Jump(at+0x30+5, f.Addr)
	if err != nil {
		t.Fatal(err)
	}
	k.Add("short", at, []byte("\x90\x31\xc0\x90\xc3"))
	tail := "\x41\x5d\x41\x5e\x2e" + string(far) // pop %r13; pop %r14; cs jmp
	k.Add("piece", at+0x30, []byte(tail))
	k.Add("behind_piece", at+0x30+isa.Addr(len(tail)), []byte("\xc3"))
	req := request(k.Text(t), "short", 1)
	req.Mechanism = plan.Springboard
	req.Taken = func(lo, hi isa.Addr) bool { return lo < at || hi > at+0x100 }
	p, r := plan.Point(k.Text(t), req)
	if r != nil {
		t.Fatal(r)
	}
	e := p.Board.In
	if e == nil || len(e.Copy) != len(e.Code) || e.Copy[len(e.Copy)-1] != 0xcc || p.Check(amd64.Arch) != nil {
		t.Errorf("%+v in %+v", p.Board, e)
	}
}

// TestStretchSpared: of a function in which points are asked for, what lies between them is moved
// away, the same whether or not it is remembered what that is.
func TestStretchSpared(t *testing.T) {
	code := pieceBegin + strings.Repeat("\x01\x00", 30) + pieceEnd + pieceCall
	k, at, ask := withPiece(t, 0x400, code)
	x := k.Text(t)
	for _, known := range []*plan.Functions{nil, {}} {
		for spared, want := range map[isa.Addr][2]isa.Addr{at + 2: {at + 4, at + 36}, at + 20: {at + 22, at + 54}, at + 46: {at + 2, at + 34}, at + 62: {at + 2, at + 34}} {
			req := ask()
			req.Known = known.Again()
			if known == nil {
				req.Known = nil
			}
			others := req.Spare
			req.Spare = func(f ktext.Func, lo, hi isa.Addr) bool { return others(f, lo, hi) || lo < spared+2 && spared < hi }
			for range 2 {
				next := req
				next.Heap = heap(x)
				p, r := plan.Point(x, next)
				if r != nil {
					t.Errorf("%v spared: %v", spared, r)
				} else if e := p.Board.In; e.Body != want[0] || e.End() != want[1] {
					t.Errorf("%v spared: [%v, %v) is moved, want [%v, %v)", spared, e.Body, e.End(), want[0], want[1])
				}
			}
		}
	}
}
