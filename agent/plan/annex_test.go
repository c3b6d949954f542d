package plan_test

import (
	"bytes"
	"strings"
	"testing"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/isa/arm64"
	"kerninst/agent/ktext"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/place"
	"kerninst/agent/plan"
	"kerninst/agent/snippet"
)

// withAnnex adds an annex that begins so far behind the recorded text.
func withAnnex(x *ktext.Text, h *place.Heap, far isa.Addr) *place.Heap {
	_, hi := x.Bounds()
	at := (hi + far) &^ 4095
	h.Add(place.NewAnnex(8, at, at+1<<20, 16<<10))
	h.Take(at, place.Line) // of the next one, the low bits are not zero
	return h
}

// accessed is the recorded text with an access to a user's memory, and where: in place
// of a system instruction that has an entry in the exception table as one would. The
// function returns behind it, so that of itself it says of no register that it is free.
func accessed(t *testing.T) (x *ktext.Text, f ktext.Func, off isa.Off) {
	t.Helper()
	return accessedBy(t, "\x20\x08\x40\xf8"+"\xc0\x03\x5f\xd6") // ldtr x0, [x1]; ret
}

func accessedBy(t *testing.T, access string) (x *ktext.Text, f ktext.Func, off isa.Off) {
	t.Helper()
	k := ktexttest.Load(t, "arm64")
	x = k.Text(t)
	links, err := x.Links("")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links.Faults {
		if f, ok := x.Locate(l.Site); ok && !strings.HasPrefix(f.Name, "gap") {
			k.Write(l.Site, []byte(access))
			return k.Text(t), f, isa.Off(l.Site - f.Addr)
		}
	}
	t.Fatal("nothing in the recorded text has an entry in the exception table")
	return
}

// free says of each instruction of a function which registers are free.
func free(sets map[isa.Addr]isa.RegSet) func(ktext.Func) (plan.Facts, error) {
	return func(ktext.Func) (plan.Facts, error) {
		return plan.Facts{Source: plan.SourceFunction, Free: func(a isa.Addr) isa.RegSet { return sets[a] }}, nil
	}
}

// hands are what a patch of two parts depends on besides its point, and what it comes to.
var hands = []struct {
	name           string
	before, behind isa.RegSet
	spilled, added int // of a counter, the jump at the point included
}{
	{"free before and behind", isa.Set(9, 16, 17), isa.Set(9), 0, 9},
	{"free before", isa.Set(9, 10), 0, 1, 12},
	{"free behind", 0, isa.Set(30), 2, 13},
	{"nothing free", 0, 0, 3, 16},
	{"what is never used", arm64.Arch.NeverUse, arm64.Arch.NeverUse, 3, 16},
}

// apart plans the counter at an access whose annex is out of a b's reach.
func apart(t *testing.T, before, behind isa.RegSet) (*plan.Plan, *ktext.Text, plan.Request) {
	t.Helper()
	x, f, off := accessed(t)
	at := f.Addr + isa.Addr(off)
	req := request(x, "", off)
	withAnnex(x, req.Heap, 1<<31)
	req.Facts = free(map[isa.Addr]isa.RegSet{at: before, at + 4: behind})
	p, r := plan.At(x, f, req)
	if r != nil {
		t.Fatal(r)
	}
	return p, x, req
}

func TestAnnex(t *testing.T) {
	for _, c := range hands {
		p, x, req := apart(t, c.before, c.behind)
		if p.Annex == nil || p.Mechanism != plan.Jump || p.Spilled != c.spilled || p.Added != c.added {
			t.Errorf("%s: %+v, %d saved and %d added, not %d and %d", c.name, p.Annex, p.Spilled, p.Added, c.spilled, c.added)
			continue
		}
		if err := p.Check(x.Arch); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		for _, a := range req.Heap.Areas() {
			if at := map[bool]isa.Addr{false: p.Patch, true: p.Annex.Addr}[a.Annex()]; !a.Code().Holds(at, 1) || req.Heap.Take(at, 1) {
				t.Errorf("%s: the part at %v is elsewhere, or its slot is still free", c.name, at)
			}
		}
		throughJSON(t, p)
		follow(t, c.name, p)
	}
}

// follow runs what a patch of two parts does with the stack pointer and with registers
// from the end of its snippet on: the displaced instruction, and the kernel behind it,
// find the stack pointer of the point and have lost no register that was not free.
func follow(t *testing.T, name string, p *plan.Plan) {
	t.Helper()
	var sp int
	var lost isa.RegSet
	var stack []isa.RegSet // whether what was pushed was lost already
	displaced := false
	for pc, steps := p.Patch+isa.Addr(p.Start), 0; pc != p.Back; steps++ {
		if pc == p.Fault {
			if sp != 0 || lost&^p.Free[0] != 0 {
				t.Errorf("%s: the stack is %d lower and %s lost where it may fault", name, sp, arm64.Arch.Names(lost&^p.Free[0]))
			}
			displaced, pc = true, pc+4
			continue
		}
		code, states, at := p.Code, p.States, pc-p.Patch
		if at >= isa.Addr(len(code)) {
			code, states, at = p.Annex.Code, p.Annex.States, pc-p.Annex.Addr
		}
		if at >= isa.Addr(len(code)) || steps > 20 {
			t.Fatalf("%s: comes to %v", name, pc)
		}
		checkState(t, name, states, int(at), sp, displaced, p)
		push, _ := arm64.Push(arm64.X16)
		pop, _ := arm64.Pop(arm64.X16)
		to, r, n, far := arm64.Far(code[at:], pc)
		i := arm64.Decode(code[at:], pc)
		switch {
		case far:
			pc, lost = to, lost|isa.Set(r)
			_ = n
		case bytes.HasPrefix(code[at:], push):
			sp, stack, pc = sp+16, append(stack, lost&isa.Set(arm64.X16)), pc+4
		case bytes.HasPrefix(code[at:], pop):
			sp, lost, stack, pc = sp-16, lost&^isa.Set(arm64.X16)|stack[len(stack)-1], stack[:len(stack)-1], pc+4
		case i.Flow == isa.FlowJump:
			pc = i.Target
		default:
			t.Fatalf("%s: %x at %v is no part of the way", name, code[at:at+4], pc)
		}
	}
	// What was lost on the way there must not be read behind either, if it was not written.
	if sp != 0 || lost&^(p.Free[0]|p.Free[1]) != 0 || !displaced {
		t.Errorf("%s: back with the stack %d lower and %s lost, displaced %v", name, sp, arm64.Arch.Names(lost), displaced)
	}
}

// checkState holds the state map to what is so at an offset.
func checkState(t *testing.T, name string, states []gen.State, at, sp int, displaced bool, p *plan.Plan) {
	t.Helper()
	now := states[0]
	for _, s := range states {
		if s.Off <= at {
			now = s
		}
	}
	orig := p.Point
	if displaced {
		orig = p.Back
	}
	if now.SP != sp || now.Orig != orig || len(now.Saved)*16 != sp {
		t.Errorf("%s: at %d of %d states: %+v, and the stack is %d lower for %v", name, at, len(states), now, sp, orig)
	}
}

// TestAnnexInReach: one part is enough where a b reaches the annex.
func TestAnnexInReach(t *testing.T) {
	x, f, off := accessed(t)
	req := request(x, "", off)
	withAnnex(x, req.Heap, 1<<20)
	p, r := plan.At(x, f, req)
	if r != nil || p.Annex != nil || p.Fault != p.Patch+isa.Addr(p.Start) {
		t.Errorf("%+v, %v", p, r)
	}
	req.Apart = true
	if p, r = plan.At(x, f, req); r != nil || p.Annex == nil {
		t.Errorf("two parts on request: %+v, %v", p, r)
	}
}

// TestAnnexRefused: nothing is taken where one of the parts has no room.
func TestAnnexRefused(t *testing.T) {
	for name, c := range map[string]struct {
		heap   func(*ktext.Text) *place.Heap
		change func(*plan.Request)
		want   plan.Reason
	}{
		"no annex":           {heap, nil, plan.MayFault},
		"annex out of reach": {func(x *ktext.Text) *place.Heap { return withAnnex(x, heap(x), 1<<33) }, nil, plan.MayFault},
		"annex full": {func(x *ktext.Text) *place.Heap {
			h := withAnnex(x, heap(x), 1<<31)
			for _, a := range h.Areas() {
				if a.Annex() {
					h.Take(a.Addr+place.Line, a.CodeLen-place.Line)
				}
			}
			return h
		}, nil, plan.MayFault},
		"only the annex": {func(x *ktext.Text) *place.Heap { return withAnnex(x, &place.Heap{}, 1<<31) }, nil, plan.MemoryFull},
		"area full": {func(x *ktext.Text) *place.Heap {
			h := withAnnex(x, heap(x), 1<<31)
			for _, a := range h.Areas() {
				if !a.Annex() {
					h.Take(a.Addr, a.CodeLen)
				}
			}
			return h
		}, nil, plan.MemoryFull},
		"must not save": {func(x *ktext.Text) *place.Heap { return withAnnex(x, heap(x), 1<<31) },
			func(r *plan.Request) { r.NoSpill = true }, plan.NeedsSpill},
	} {
		x, f, off := accessed(t)
		req := request(x, "", off)
		req.Heap = c.heap(x)
		if c.change != nil {
			c.change(&req)
		}
		_, before, _ := req.Heap.Usage()
		p, r := plan.At(x, f, req)
		if r == nil || r.Reason != c.want {
			t.Errorf("%s: %+v, %v; want %v", name, p, r, c.want)
		}
		if _, after, _ := req.Heap.Usage(); after != before {
			t.Errorf("%s: the refusal took %d lines", name, after-before)
		}
	}
}

// TestAnnexExclusive: what begins an exclusive sequence is moved to the annex where a direct branch
// leads there and back, and not where the way has memory and an indirect branch in it.
func TestAnnexExclusive(t *testing.T) {
	const sequence = "\x22\x7c\x5f\x88" + "\x22\x7c\x03\x88" + "\xc0\x03\x5f\xd6" // ldxr w2, [x1]; stxr w3, w2, [x1]; ret
	for far, want := range map[isa.Addr]plan.Reason{0x100000: 0, 1 << 31: plan.ExclusiveSequence} {
		x, f, off := accessedBy(t, sequence)
		req := request(x, "", off)
		withAnnex(x, req.Heap, far)
		p, r := plan.At(x, f, req)
		if (r == nil) != (want == 0) || r != nil && r.Reason != want {
			t.Errorf("%v away: %+v, %v; want %v", far, p, r, want)
		}
	}
}

// TestAnnexSnippets: the way to the annex is behind whatever the snippet is.
func TestAnnexSnippets(t *testing.T) {
	x, f, off := accessed(t)
	for _, s := range []snippet.Snippet{snippet.Poisoned(), {Cells: []snippet.Cell{{Kind: snippet.Stacks, Records: 4, Fields: 15}}, Code: []snippet.Insn{{Op: snippet.Stack}}}} {
		req := request(x, "", off)
		req.Snippet, req.Loads = s, 0xffff800080000000
		withAnnex(x, req.Heap, 1<<31)
		p, r := plan.At(x, f, req)
		if r != nil || p.Annex == nil {
			t.Fatal(p, r)
		}
		follow(t, s.String(), p)
	}
}

// TestCheckCatchesAnnex spoils each bit of the ways there and back and of what is
// between them, and what a plan says of them.
func TestCheckCatchesAnnex(t *testing.T) {
	for _, c := range hands[:4] {
		good, x, _ := apart(t, c.before, c.behind)
		spoilt := func(what string, change func(*plan.Plan, *plan.Annex)) {
			p, a := *good, *good.Annex
			p.Code, a.Code, p.Free = bytes.Clone(p.Code), bytes.Clone(a.Code), append([]isa.RegSet(nil), p.Free...)
			p.Annex = &a
			change(&p, &a)
			if err := p.Check(x.Arch); err == nil {
				t.Errorf("%s, %s: not noticed", c.name, what)
			}
		}
		for bit := range 8 * len(good.Annex.Code) {
			spoilt("a bit of the annex", func(_ *plan.Plan, a *plan.Annex) { a.Code[bit/8] ^= 1 << (bit % 8) })
		}
		for bit := 8 * good.Start; bit < 8*len(good.Code); bit++ {
			spoilt("a bit of the way there or back", func(p *plan.Plan, _ *plan.Annex) { p.Code[bit/8] ^= 1 << (bit % 8) })
		}
		for what, change := range map[string]func(*plan.Plan, *plan.Annex){
			"the annex moved": func(_ *plan.Plan, a *plan.Annex) { a.Addr += place.Line },
			"on the other part": func(p *plan.Plan, a *plan.Annex) {
				p.Slot = 2 * place.Line
				remade(t, x, p, a, p.Patch+place.Line)
			},
			"another instruction": func(p *plan.Plan, a *plan.Annex) {
				p.Original = []byte("\x20\x00\x00\x10") // adr x0, .+4: in the annex it is adrp
				p.Old, p.Displaced = p.Original, []isa.Insn{arm64.Decode(p.Original, p.Point)}
				remade(t, x, p, a, a.Addr)
			},
			"not aligned":         func(_ *plan.Plan, a *plan.Annex) { a.Addr += 4 },
			"no annex":            func(p *plan.Plan, _ *plan.Annex) { p.Annex = nil },
			"no fault":            func(p *plan.Plan, _ *plan.Annex) { p.Fault = 0 },
			"the fault elsewhere": func(p *plan.Plan, _ *plan.Annex) { p.Fault += 4 },
			"the fault in front":  func(p *plan.Plan, _ *plan.Annex) { p.Fault -= 4 },
			"cut":                 func(_ *plan.Plan, a *plan.Annex) { a.Code = a.Code[:len(a.Code)-4] },
			"empty":               func(_ *plan.Plan, a *plan.Annex) { a.Code = nil },
			"longer":              func(_ *plan.Plan, a *plan.Annex) { a.Code = append(a.Code, good.Annex.Code...) },
			"the first is cut":    func(p *plan.Plan, _ *plan.Annex) { p.Code = p.Code[:len(p.Code)-4] },
			"the first is longer": func(p *plan.Plan, _ *plan.Annex) {
				p.Code = append(p.Code, good.Code[len(good.Code)-4:]...)
				p.Slot += 4
			},
			"displaced in between": func(p *plan.Plan, _ *plan.Annex) { p.Start += 4 },
			"a springboard": func(p *plan.Plan, _ *plan.Annex) {
				at := p.Point + 4096
				hop, _ := arm64.Jump(p.Point, at)
				on, _ := arm64.Jump(at, p.Patch)
				p.New, p.Mechanism, p.Board = hop, plan.Springboard, &plan.Board{Addr: at, Old: hop, New: on}
			},
			"at no slot":     func(p *plan.Plan, a *plan.Annex) { remade(t, x, p, a, a.Addr+4) },
			"back elsewhere": func(p *plan.Plan, _ *plan.Annex) { p.Back += 4 },
		} {
			spoilt(what, change)
		}
		if c.before != 0 {
			spoilt("a register that is read", func(p *plan.Plan, _ *plan.Annex) { p.Free[0] = 0 })
		}
		if c.behind != 0 {
			spoilt("a register that is read behind", func(p *plan.Plan, _ *plan.Annex) { p.Free[1] = 0 })
		}
	}
}

// remade is a plan of which a part lies elsewhere and all else agrees.
func remade(t *testing.T, x *ktext.Text, p *plan.Plan, a *plan.Annex, at isa.Addr) {
	t.Helper()
	out, err := gen.Patch(x.Arch, gen.Input{
		Snippet: p.Snippet, Patch: p.Patch, Cell: p.Cell, Displaced: p.Displaced, Bytes: p.Original,
		Back: p.Back, Free: p.Free, Features: gen.Features{LSE: true}, Annex: at,
	})
	if err != nil {
		t.Fatal(err)
	}
	p.Code, p.Start, p.Fault = out.Code, out.Start, at+isa.Addr(out.Annex.Fault)
	a.Addr, a.Code = at, out.Annex.Code
}

// TestCheckAsksTheInstruction: whatever a plan says is free, the way to the annex takes
// nothing that the displaced instruction reads.
func TestCheckAsksTheInstruction(t *testing.T) {
	p, x, _ := apart(t, isa.Set(9), isa.Set(9))
	reads := arm64.Decode(p.Original, p.Point).Reads &^ arm64.Arch.NeverUse
	r, ok := gen.Register(x.Arch, reads)
	if !ok {
		t.Fatal("the access has no address")
	}
	code, _, err := arm64.FarJump(r, p.Patch+isa.Addr(p.Start), p.Annex.Addr)
	if err != nil {
		t.Fatal(err)
	}
	p.Code = append(bytes.Clone(p.Code[:p.Start]), code...)
	p.Free = []isa.RegSet{p.Free[0] | reads, p.Free[1]}
	if err := p.Check(x.Arch); err == nil || !strings.Contains(err.Error(), "reads") {
		t.Errorf("%v", err)
	}
}
