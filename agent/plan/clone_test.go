package plan_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
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

// cloneOf makes a clone of a function with a counter in each of its blocks.
func cloneOf(x *ktext.Text, f ktext.Func, change func(*plan.Request)) (*plan.Cloned, *plan.Refusal) {
	req := request(x, f.Name, 0)
	if change != nil {
		change(&req)
	}
	offs, r := plan.OffsetsAt(x, f, req, plan.EachBlock)
	if r != nil {
		return nil, r
	}
	var inserts []plan.Insert
	for _, off := range offs {
		inserts = append(inserts, plan.Insert{Func: f, Offset: off})
	}
	return plan.AsClone(x, req, plan.Cloning{Functions: []ktext.Func{f}, Inserts: inserts})
}

// walked is what a walk through a clone's code finds: where each original instruction is.
type walked struct {
	at    map[isa.Addr]isa.Addr // by the address of the original; before what is inserted there
	insns map[isa.Addr]isa.Insn // of each original, what stands for it
	key   map[isa.Addr]bool     // it is read by two
	gate  map[isa.Addr]isa.Addr // of functions, where who calls them comes
	none  int                   // jumps that are not there, as they led to what follows
}

// walk reads a clone's code from its begin to its end, beside the original's instructions.
func walk(t *testing.T, arch *isa.Arch, c *plan.Cloned) walked {
	t.Helper()
	e := c.Entry
	pieces := map[isa.Addr]int{}
	for _, p := range c.Points {
		if p != nil {
			pieces[p.At()] += len(p.Code)
		}
	}
	w := walked{map[isa.Addr]isa.Addr{}, map[isa.Addr]isa.Insn{}, map[isa.Addr]bool{}, map[isa.Addr]isa.Addr{}, 0}
	at := 0
	leaves := false
	for k, o := range e.Clone.Insns {
		if leaves && o.Insn.Flow == isa.FlowTrap && bytes.Equal(o.Bytes, []byte{0xcc}) {
			continue
		}
		if o.Gate != nil && k > 0 {
			i := arch.Decode(e.Code[at:], e.Patch+isa.Addr(at))
			j := arch.Decode(e.Code[at+i.Len:], i.End())
			if i.Operand != o.Gate.Site || j.Flow != isa.FlowCond || j.Target != o.Gate.Function || !strings.HasPrefix(arch.Text(e.Code[at+i.Len:], i.End()), "jne") {
				t.Errorf("%v: the gate is %s, %s", o.Insn.Addr, arch.Text(e.Code[at:], i.Addr), arch.Text(e.Code[at+i.Len:], j.Addr))
			}
			at += i.Len + j.Len
			w.gate[o.Gate.Function] = i.Addr
		}
		a := e.Patch + isa.Addr(at)
		w.at[o.Insn.Addr] = a
		at += pieces[o.Insn.Addr]
		if o.Key != nil {
			i := arch.Decode(e.Code[at:], e.Patch+isa.Addr(at))
			if i.Operand != o.Key.Enabled || !strings.HasPrefix(arch.Text(e.Code[at:], i.Addr), "cmp") {
				t.Errorf("%v: the key at %v is read by %s", o.Insn.Addr, o.Key.Enabled, arch.Text(e.Code[at:], i.Addr))
			}
			if on := map[bool]string{false: "jne", true: "je"}[o.Key.Off]; !strings.HasPrefix(arch.Text(e.Code[at+i.Len:], i.End()), on+" ") {
				t.Errorf("%v: the key, which is to jump while it is off: %v, leads on by %s", o.Insn.Addr, o.Key.Off, arch.Text(e.Code[at+i.Len:], i.End()))
			}
			at, w.key[o.Insn.Addr] = at+i.Len, true
		}
		if o.Key == nil && o.Call == 0 && amd64.IsNop(o.Bytes) {
			continue // it is not there
		}
		behind := k + 1
		for behind < len(e.Clone.Insns) && gen.Idle(arch, &e.Clone.Insns[behind]) {
			behind++
		}
		if to := o.JumpsTo(); to != 0 && behind < len(e.Clone.Insns) && e.Clone.Insns[behind].Insn.Addr == to {
			leaves, w.none = true, w.none+1
			continue // to what follows
		}
		i := arch.Decode(e.Code[at:], e.Patch+isa.Addr(at))
		w.insns[o.Insn.Addr] = i
		at += i.Len
		leaves = o.Insn.Flow == isa.FlowReturn || o.Insn.Flow == isa.FlowJump || o.Insn.Flow == isa.FlowIndirectJump
		if o.Last && !leaves && o.Insn.Flow != isa.FlowTrap {
			at += arch.Decode(e.Code[at:], e.Patch+isa.Addr(at)).Len // the jump behind the function
		}
	}
	if g := e.Clone.Insns[0].Gate; g != nil { // out of line
		i := arch.Decode(e.Code[at:], e.Patch+isa.Addr(at))
		j := arch.Decode(e.Code[at+i.Len:], i.End())
		to := arch.Decode(e.Code[at+i.Len+j.Len:], j.End())
		if i.Operand != g.Site || !strings.HasPrefix(arch.Text(e.Code[at+i.Len:], i.End()), "jne") || j.Flow != isa.FlowCond || j.Target != g.Function || to.Flow != isa.FlowJump || to.Target != e.Patch {
			t.Errorf("%s: who calls it comes to %s, %s, %v", e.Symbol, arch.Text(e.Code[at:], i.Addr), arch.Text(e.Code[at+i.Len:], j.Addr), to.Target)
		}
		at += i.Len + j.Len + to.Len
		w.gate[g.Function] = i.Addr
	}
	if at != len(e.Code) {
		t.Errorf("%s: its clone has %d bytes, and its instructions take %d", e.Symbol, len(e.Code), at)
	}
	return w
}

// follows holds each instruction of a clone to do what the original does: the same where that says nothing
// of addresses, and to lead to the copy of where that leads. It counts them, and the points.
func follows(t *testing.T, arch *isa.Arch, c *plan.Cloned) (insns, points, none int) {
	t.Helper()
	w := walk(t, arch, c)
	e := c.Entry
	aim := func(a isa.Addr) isa.Addr {
		if gate, ok := w.gate[a]; ok {
			return gate
		}
		if begin, ok := e.Clone.Begins[a]; ok {
			a = begin
		}
		if to, ok := w.at[a]; ok {
			return to
		}
		return a
	}
	for _, o := range e.Clone.Insns {
		i, ok := w.insns[o.Insn.Addr]
		if !ok {
			continue
		}
		insns++
		want, flow := o.Insn.Target, o.Insn.Flow
		switch {
		case w.key[o.Insn.Addr]:
			want, flow = aim(o.Key.Target), isa.FlowCond
		case flow == isa.FlowTrap:
			want, flow = o.Insn.Addr, isa.FlowJump
		case o.Call != 0:
			want = o.Call
		case flow == isa.FlowJump || flow == isa.FlowCond || flow == isa.FlowCall:
			want = aim(want)
		}
		if i.Flow != flow || i.Target != want || i.Operand != o.Insn.Operand && !w.key[o.Insn.Addr] {
			t.Errorf("%v: %s became %s", o.Insn.Addr, arch.Text(o.Bytes, o.Insn.Addr), arch.Text(e.Code[i.Addr-e.Patch:], i.Addr))
		}
		if flow == isa.FlowNone && o.Insn.Traits&isa.PCRel == 0 && !bytes.Equal(e.Code[i.Addr-e.Patch:][:i.Len], o.Bytes) {
			t.Errorf("%v: %x became %x", o.Insn.Addr, o.Bytes, e.Code[i.Addr-e.Patch:][:i.Len])
		}
		if flow == isa.FlowCall || flow == isa.FlowIndirectCall || o.Call != 0 {
			if back, ok := e.Returns(i.End()); !ok || back != o.Insn.End() {
				t.Errorf("%v: its call comes back to %v, for which %v is said", o.Insn.Addr, i.End(), back)
			}
		}
	}
	cells := map[isa.Addr]bool{}
	for n, p := range c.Points {
		if p == nil {
			t.Errorf("%s: %v", e.Symbol, c.Why[n])
			continue
		}
		if cells[p.Cell] {
			t.Errorf("%s+%#x: its cell is another's, too", p.Symbol, uint64(p.Offset))
		}
		cells[p.Cell] = true
		points++
		if w.at[p.At()] != p.Patch {
			t.Errorf("%s+%#x: counted at %v, and the copy of %v is at %v", p.Symbol, uint64(p.Offset), p.Patch, p.At(), w.at[p.At()])
		}
		if p.Cell < e.Cell || p.Cell+8 > e.Cell+isa.Addr(e.Slot) {
			t.Errorf("%s+%#x: its cell is not the clone's", p.Symbol, uint64(p.Offset))
		}
	}
	return insns, points, w.none
}

// TestCloneFollows makes clones of all recorded functions, and of some that call each other.
func TestCloneFollows(t *testing.T) {
	x := ktexttest.Load(t, "amd64").Text(t)
	made, insns, blocks := 0, 0, 0
	x.Functions("", func(f ktext.Func) bool {
		c, r := cloneOf(x, f, nil)
		if r != nil {
			return true
		}
		n, m, _ := follows(t, x.Arch, c)
		made, insns, blocks = made+1, insns+n, blocks+m
		return true
	})
	if made < 20 || insns < 1200 || blocks < 250 {
		t.Errorf("%d clones of %d instructions with %d blocks: that is not what was recorded", made, insns, blocks)
	}
	var chain []ktext.Func
	for _, name := range []string{"__x64_sys_read", "ksys_read", "vfs_read"} {
		f, err := x.Function("", name)
		if err != nil {
			t.Fatal(err)
		}
		chain = append(chain, f)
	}
	c, r := plan.AsClone(x, request(x, "vfs_read", 0), plan.Cloning{Functions: chain, Inserts: []plan.Insert{{Func: chain[2], Entry: true}}})
	if r != nil {
		t.Fatal(r)
	}
	if n, m, _ := follows(t, x.Arch, c); n < 250 || m != 1 {
		t.Errorf("%d instructions, %d points in a clone of three functions", n, m)
	}
	gates, called := 0, 0
	for _, i := range c.Entry.Clone.Insns {
		if i.Gate != nil {
			gates++
		}
		if i.Insn.Flow == isa.FlowCall && (i.Insn.Target == chain[1].Addr || i.Insn.Target == chain[2].Addr) || i.Insn.Flow == isa.FlowJump && i.Insn.Target == chain[1].Addr {
			called++
		}
	}
	if gates != 3 || called < 3 {
		t.Errorf("%d gates, %d calls of what is in the clone", gates, called)
	}
}

// TestCloneStraight: what a jump alone leads to follows it in the copy, where there is no jump then; whoever else comes
// there still does.
func TestCloneStraight(t *testing.T) {
	const enter, move = "\x48\x83\xec\x08", "\x48\x89\xc3"
	for name, c := range map[string]struct {
		code string
		none int
	}{
		// jmp A; B: ret; ret; A: je B; jmp C; ret; C: jmp B
		"three in a row": {enter + move + move + "\xeb\x05" + move + "\xc3\xc3" + "\x48\x85\xc0\x74\xf6\xeb\x01\xc3" + "\x89\xc3\xeb\xef", 3},
		// jmp A; ret; B: A: ret, and somebody goes on from B to A
		"somebody goes on to it":                {enter + move + move + "\x74\x03\xeb\x04\xc3" + move + move + "\xc3", 0},
		"aligned":                               {enter + move + move + "\xeb\x06\xc3" + "\x0f\x1f\x44\x00\x00" + move + "\xc3", 1},
		"a loop":                                {enter + move + move + "\xeb\x01\xc3" + move + "\xeb\xfb", 1},
		"what the way in overwrites has a jump": {move + "\xeb\x01\xc3" + move + move + "\xc3", 0},
	} {
		t.Run(name, func(t *testing.T) {
			k := ktexttest.Load(t, "amd64")
			f, err := k.Text(t).Function("", "vfs_read")
			if err != nil {
				t.Fatal(err)
			}
			const begin = 4 + amd64.JumpLen // behind a landing pad and ftrace's site
			k.Write(f.Addr+begin, append([]byte(c.code), bytes.Repeat([]byte{0xc3}, int(f.Size)-begin-len(c.code))...))
			made, r := cloneOf(k.Text(t), f, nil)
			if r != nil {
				t.Fatal(r)
			}
			if _, _, none := follows(t, amd64.Arch, made); none != c.none {
				t.Errorf("%d jumps are not there, not %d", none, c.none)
			}
			if err := made.Entry.Check(amd64.Arch); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCloneChecked has a clone checked after it was sent, and after it was tampered with.
func TestCloneChecked(t *testing.T) {
	x := ktexttest.Load(t, "amd64").Text(t)
	f, err := x.Function("", "vfs_read")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		spoil func(p *plan.Plan)
		want  string
	}{
		"as sent":             {func(*plan.Plan) {}, ""},
		"another instruction": {func(p *plan.Plan) { p.Code[3] ^= 1 }, "is not the clone"},
		"another original":    {func(p *plan.Plan) { p.Clone.Insns[2].Bytes[0] ^= 0x40 }, ""},
		"one is left out":     {func(p *plan.Plan) { p.Clone.Insns = p.Clone.Insns[:len(p.Clone.Insns)-1] }, "is not the clone"},
		"another begin":       {func(p *plan.Plan) { p.Clone.Insns = p.Clone.Insns[1:] }, "clone"},
		"another cell":        {func(p *plan.Plan) { p.Cell += 8 }, "is not the clone"},
		"another aim":         {func(p *plan.Plan) { p.Clone.Insns[40].Insn.Target += 8 }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			made, r := cloneOf(x, f, nil)
			if r != nil {
				t.Fatal(r)
			}
			b, err := json.Marshal(made.Entry)
			if err != nil {
				t.Fatal(err)
			}
			var p plan.Plan
			if err := json.Unmarshal(b, &p); err != nil {
				t.Fatal(err)
			}
			c.spoil(&p)
			err = p.Check(x.Arch)
			switch {
			case name == "as sent" && err != nil:
				t.Error(err)
			case name != "as sent" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("checked with %v, want %q", err, c.want)
			}
		})
	}
}

// TestCloneRefused names what is not cloned, and what cannot be inserted.
func TestCloneRefused(t *testing.T) {
	k := ktexttest.Load(t, "amd64")
	x := k.Text(t)
	vfs, err := x.Function("", "vfs_read")
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) ktext.Func {
		f, err := x.Function("", name)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	ret := snippet.Snippet{Cells: []snippet.Cell{{Kind: snippet.Sum}}, Code: []snippet.Insn{{Op: snippet.Ret, Type: snippet.U64}, {Op: snippet.Count, A: snippet.V(0)}}}
	for name, c := range map[string]struct {
		f      ktext.Func
		change func(*plan.Request)
		want   plan.Reason
	}{
		"faults":  {at("pmu_msr_read"), nil, plan.MayFault},
		"padding": {at("__pfx_vfs_read"), nil, plan.ReservedText},
		"spliced": {vfs, func(r *plan.Request) { r.Taken = func(lo, hi isa.Addr) bool { return lo < vfs.End() && vfs.Addr < hi } }, plan.AlreadySpliced},
		"probed": {vfs, func(r *plan.Request) {
			r.Probed = func(lo, hi isa.Addr) bool { return lo == vfs.Addr && hi == vfs.End() }
		}, plan.Foreign},
		"no memory":  {vfs, func(r *plan.Request) { r.Heap.Take(r.Heap.Areas()[0].Addr, r.Heap.Areas()[0].CodeLen) }, plan.MemoryFull},
		"no windows": {vfs, func(r *plan.Request) { r.Without = []plan.Mechanism{plan.Quiesced, plan.Springboard, plan.Jump} }, plan.UnsupportedMechanism},
	} {
		t.Run(name, func(t *testing.T) {
			req := request(x, c.f.Name, 0)
			if c.change != nil {
				c.change(&req)
			}
			if got, r := plan.AsClone(x, req, plan.Cloning{Functions: []ktext.Func{c.f}}); r == nil || r.Reason != c.want {
				t.Errorf("%v, %v; want %v", got, r, c.want)
			}
		})
	}
	// Where code may have sites, keys' and faults' are there, and only there.
	req := request(x, "pmu_msr_read", 0)
	req.Features.Keys, req.Own = true, req.Heap.Areas()[0].Code()
	sited, r := plan.AsClone(x, req, plan.Cloning{Functions: []ktext.Func{at("pmu_msr_read")}})
	if r != nil || len(sited.Entry.Sites) < 2 || !req.Own.Holds(sited.Entry.Patch, len(sited.Entry.Code)) {
		t.Errorf("where code may have sites: %v, %v", sited, r)
	}
	faults, keys := sited.Entry.Clone.Sites()
	for _, most := range []place.Sites{{Faults: faults - 1, Keys: keys}, {Faults: faults, Keys: keys - 1}} {
		req, own := request(x, "pmu_msr_read", 0), req.Own
		req.Features.Keys, req.Own = true, own
		req.Heap.LimitSites(most)
		if _, r := plan.AsClone(x, req, plan.Cloning{Functions: []ktext.Func{at("pmu_msr_read")}}); r == nil || r.Reason != plan.SitesFull {
			t.Errorf("%d instructions that may fault and %d sites, where %v may be: %v", faults, keys, most, r)
		}
	}
	req.Heap.LimitSites(place.Sites{Faults: faults, Keys: keys})
	if c, r := plan.AsClone(x, req, plan.Cloning{Functions: []ktext.Func{at("pmu_msr_read")}}); r != nil {
		t.Errorf("%d instructions that may fault and %d sites, where as many may be: %v", faults, keys, r)
	} else if left, _ := req.Heap.SitesLeft(); c.Entry == nil || left != (place.Sites{}) {
		t.Errorf("%v sites are left of those that a clone has", left)
	}
	req.Own = place.Window{Lo: req.Own.Hi, Hi: req.Own.Hi + 4096}
	if _, r := plan.AsClone(x, req, plan.Cloning{Functions: []ktext.Func{at("pmu_msr_read")}}); r == nil {
		t.Error("a clone with sites where none may be")
	}
	got, r := plan.AsClone(x, request(x, "vfs_read", 0), plan.Cloning{Functions: []ktext.Func{vfs, at("pmu_msr_read")}, Inserts: []plan.Insert{
		{Func: vfs, Offset: 1}, {Func: vfs, Offset: 0}, {Func: vfs, Offset: 0x20000}, {Func: at("pmu_msr_read"), Offset: 9},
		{Func: at("ksys_read"), Offset: 9}, {Func: vfs, Entry: true}, {Func: vfs, Entry: true, Snippet: ret},
	}})
	if r != nil {
		t.Fatal(r)
	}
	want := []plan.Reason{plan.InsideInstruction, plan.ReservedText, plan.OutsideFunction, plan.MayFault, plan.NoSuchFunction, 0, plan.NoArgument}
	for n, w := range want {
		if (got.Why[n] == nil) != (w == 0) || w != 0 && got.Why[n].Reason != w || (got.Points[n] == nil) == (w == 0) {
			t.Errorf("insert %d: %v, %v; want %v", n, got.Points[n], got.Why[n], w)
		}
	}
	if got.Left[at("pmu_msr_read").Addr] == nil || len(got.Left) != 1 {
		t.Errorf("left out: %v", got.Left)
	}
}

// TestRunAsCopy: a point in what a clone has a copy of is refused, one in front of that, or elsewhere, is not.
func TestRunAsCopy(t *testing.T) {
	x := ktexttest.Load(t, "amd64").Text(t)
	f, err := x.Function("", "vfs_read")
	if err != nil {
		t.Fatal(err)
	}
	c, r := plan.AsClone(x, request(x, "vfs_read", 0), plan.Cloning{Functions: []ktext.Func{f}})
	if r != nil {
		t.Fatal(r)
	}
	var live plan.Set
	live.Add(c.Entry)
	for _, p := range []struct {
		name    string
		off     isa.Off
		refused bool
	}{{"vfs_read", isa.Off(c.Entry.Displaced[0].Addr - f.Addr), true}, {"vfs_read", 0, false}, {"ksys_read", 9, false}} {
		req := request(x, p.name, p.off)
		req.Copied = live.Copied
		_, r := plan.Point(x, req)
		if got := r != nil && r.Reason == plan.AlreadySpliced; got != p.refused {
			t.Errorf("%s+%#x: %v", p.name, p.off, r)
		}
	}
}

// TestCloneOthers: of each function of the other ISAs' recorded kernels that can be cloned, all that the copy
// says of where it leads is in the copy, or the begin of a function, or what the kernel knows by its address.
func TestCloneOthers(t *testing.T) {
	for _, arch := range []string{"arm64", "riscv64"} {
		x := ktexttest.Load(t, arch).Text(t)
		made := 0
		x.Functions("", func(f ktext.Func) bool {
			c, r := cloneOf(x, f, nil)
			if r != nil {
				return true
			}
			made++
			if err := c.Entry.Check(x.Arch); err != nil {
				t.Errorf("%s: %v: %v", arch, f, err)
			}
			leadsRight(t, x, f, c)
			return true
		})
		if made < 10 {
			t.Errorf("%s: only %d functions can be cloned", arch, made)
		}
	}
}

// leadsRight looks at each instruction of a clone of one function.
func leadsRight(t *testing.T, x *ktext.Text, f ktext.Func, c *plan.Cloned) {
	t.Helper()
	e, out := c.Entry, map[isa.Addr]bool{f.Addr: true} // by the gate; from the end; where the original leads
	for _, i := range e.Clone.Insns {
		out[i.Insn.End()] = i.Last
		out[i.Insn.Addr] = i.Insn.Flow == isa.FlowTrap
		if to := cmp.Or(i.To, i.Insn.Target); to < f.Addr || to >= f.End() {
			out[to] = true
		}
	}
	begins := map[isa.Addr]bool{}
	for at := 0; at < len(e.Code); {
		i := x.Arch.Decode(e.Code[at:], e.Patch+isa.Addr(at))
		begins[i.Addr] = true
		at += i.Len
	}
	for at := 0; at < len(e.Code); {
		i := x.Arch.Decode(e.Code[at:], e.Patch+isa.Addr(at))
		to := i.Target
		if x.Arch.Far != nil {
			if far, _, ok := x.Arch.Far(e.Code[at:], i.Addr); ok {
				to = far
			}
		}
		at += i.Len
		inside := to >= e.Patch && to < e.Patch+isa.Addr(len(e.Code))
		switch {
		case i.Flow == isa.FlowUnknown || i.Flow == isa.FlowTrap:
			t.Errorf("%v: %s at %v of the copy", f, x.Arch.Text(e.Code[at-i.Len:], i.Addr), i.Addr)
		case to == 0 || inside && begins[to]:
		case i.Flow == isa.FlowCond || inside || !out[to]:
			t.Errorf("%v: %s at %v of the copy leads to %v", f, x.Arch.Text(e.Code[at-i.Len:], i.Addr), i.Addr, to)
		}
	}
}

// TestCloneTrimmed: what fills up behind a function's end is not in a copy, and a point there is refused.
func TestCloneTrimmed(t *testing.T) {
	for arch, code := range map[string]string{
		"amd64": "\xb8\x00\x00\x00\x00\xc3\x90\x90", "arm64": "\x1f\x20\x03\xd5\xc0\x03\x5f\xd6\x1f\x20\x03\xd5", "riscv64": "\x13\x03\x00\x00\x13\x03\x00\x00\x67\x80\x00\x00\x01\x00",
	} {
		k := ktexttest.Load(t, arch)
		x := k.Text(t)
		f, err := x.Function("", "ksys_read")
		if err != nil {
			t.Fatal(err)
		}
		k.Add("filled", f.Addr-0x100, []byte(code))
		x = k.Text(t)
		if f, err = x.Function("", "filled"); err != nil {
			t.Fatal(err)
		}
		fill := isa.Off(len(code) - x.Arch.MinLen)
		c, r := plan.AsClone(x, request(x, "filled", 0), plan.Cloning{Functions: []ktext.Func{f}, Inserts: []plan.Insert{{Func: f}, {Func: f, Offset: fill}}})
		if r != nil {
			t.Errorf("%s: %v", arch, r)
			continue
		}
		if c.Points[0] == nil || c.Points[1] != nil || c.Why[1] == nil || c.Why[1].Reason != plan.OutsideFunction {
			t.Errorf("%s: %v, %v: %v", arch, c.Points[0], c.Points[1], c.Why[1])
		}
	}
}

// TestCloneShadow: nothing is inserted between what enables interrupts and what follows, in whose shadow that runs.
func TestCloneShadow(t *testing.T) {
	x := edited(t, "amd64", "ksys_read", 0x36, "\x90\x90\xfb") // sti at +0x38
	f, err := x.Function("", "ksys_read")
	if err != nil {
		t.Fatal(err)
	}
	in := []plan.Insert{{Func: f, Offset: 0x37, Where: plan.Behind}, {Func: f, Offset: 0x38, Where: plan.Behind}, {Func: f, Offset: 0x39}}
	c, r := plan.AsClone(x, request(x, "ksys_read", 0), plan.Cloning{Functions: []ktext.Func{f}, Inserts: in})
	if r != nil {
		t.Fatal(r)
	}
	for k, refused := range []bool{false, true, true} {
		if got := c.Why[k]; (got != nil) != refused || refused && got.Reason != plan.PrivilegedInsn {
			t.Errorf("at +%#x: %v", uint64(in[k].Offset), got)
		}
	}
}

// TestCloneOfHandler: no copy has the call by which the kernel's handler asks whose a breakpoint is, which is led elsewhere
// in the original alone.
func TestCloneOfHandler(t *testing.T) {
	for name, refused := range map[string]bool{"handle_break": true, "other_break": false} {
		k := ktexttest.Load(t, "riscv64")
		_, hi := k.Text(t).Bounds()
		from, to := hi-128, hi-64
		call, err := riscv64.FarCall(1, from+4, to)
		if err != nil {
			t.Fatal(err)
		}
		k.Add(name, from, slices.Concat([]byte("\x13\x05\x15\x00"), call, []byte("\x82\x80"))) // addi a0,a0,1; the call; ret
		k.Add("kprobe_breakpoint_handler", to, []byte("\x13\x05\x15\x00\x82\x80"))
		x := k.Text(t)
		f, err := x.Function("", name)
		if err != nil {
			t.Fatal(err)
		}
		_, r := plan.AsClone(x, request(x, name, 0), plan.Cloning{Functions: []ktext.Func{f}})
		if got := r != nil && r.Reason == plan.ReservedText; got != refused {
			t.Errorf("%s: %v", name, r)
		}
	}
}

// TestCloneBehindArguments: what stands behind an instruction reads no argument that this has overwritten.
func TestCloneBehindArguments(t *testing.T) {
	s, err := snippet.Parse("c0 sum\nv0 u64 = arg 1\ncount c0 v0")
	if err != nil {
		t.Fatal(err)
	}
	for code, refused := range map[string]bool{ // behind the second instruction, of one byte each before it
		"\x90\x90\xc3":                     false, // nop; nop; ret
		"\x90\x31\xf6\xc3":                 true,  // xor %esi,%esi
		"\x90\x31\xff\xc3":                 false, // xor %edi,%edi
		"\x90\xe8\x00\x00\x00\x01\x90\xc3": true,  // call elsewhere; nop
	} {
		k := ktexttest.Load(t, "amd64")
		_, hi := k.Text(t).Bounds()
		k.Add("here", hi-128, append([]byte(code), slices.Repeat([]byte{0xcc}, 8)...))
		x := k.Text(t)
		f, err := x.Function("", "here")
		if err != nil {
			t.Fatal(err)
		}
		in := []plan.Insert{{Func: f, Offset: 1, Snippet: s}, {Func: f, Offset: 1, Where: plan.Behind, Snippet: s}}
		c, r := plan.AsClone(x, request(x, "here", 0), plan.Cloning{Functions: []ktext.Func{f}, Inserts: in})
		if r != nil {
			t.Errorf("% x: %v", code, r)
			continue
		}
		if c.Why[0] != nil || (c.Why[1] != nil) != refused || refused && c.Why[1].Reason != plan.NoArgument {
			t.Errorf("% x: before it %v, behind it %v", code, c.Why[0], c.Why[1])
		}
	}
}

// TestCloneColdCall: the copy of a cold half that begins with a call has that call, which is no ftrace site.
func TestCloneColdCall(t *testing.T) {
	k := ktexttest.Load(t, "amd64")
	lo, _ := k.Text(t).Bounds()
	at := lo + 0x8000
	k.Add("halves", at, []byte("\x90"+split["amd64"].hot[:3]+"\x0f\x84\xf6\x00\x00\x00"+split["amd64"].hot[9:]))
	k.Add("behind_halves", at+1+isa.Addr(len(split["amd64"].hot)), []byte("\x90"))
	k.Add("halves.cold", at+0x100, []byte("\xe8\xfb\x0e\x00\x00\xe9\x07\xff\xff\xff")) // call next; jmp to the other call
	k.Add("behind_cold", at+0x10a, []byte("\x90"))
	x := k.Text(t)
	f, err := x.Function("", "halves")
	if err != nil {
		t.Fatal(err)
	}
	c, r := cloneOf(x, f, nil)
	if r != nil {
		t.Fatal(r)
	}
	if !slices.ContainsFunc(c.Entry.Clone.Insns, func(i gen.Cloned) bool { return i.Insn.Addr == at+0x100 }) {
		t.Error("the call is not in the copy")
	}
}

// TestCloneKeyInFront: what begins with the site of a static key, which looks like ftrace's, has no copy: that would be without it.
func TestCloneKeyInFront(t *testing.T) {
	for name, refused := range map[string]bool{"keyed": true, "plain": false} {
		k := ktexttest.Load(t, "amd64")
		links, err := k.Text(t).Links("")
		if err != nil {
			t.Fatal(err)
		}
		at, _ := k.Text(t).Bounds()
		if at += 0x8000; refused {
			at = links.Keys[0].Site
		}
		code := "\x0f\x1f\x44\x00\x00" + strings.Repeat("\x48\x89\xf8", 8) + "\xc3"
		k.Add(name, at, []byte(code))
		k.Add("behind", at+isa.Addr(len(code)), []byte("\xc3"))
		x := k.Text(t)
		f, err := x.Function("", name)
		if err != nil {
			t.Fatal(err)
		}
		req := request(x, name, 0)
		req.Features.Keys, req.Own = true, req.Heap.Areas()[0].Code() // where copies may have sites
		if _, r := plan.AsClone(x, req, plan.Cloning{Functions: []ktext.Func{f}}); (r != nil) != refused {
			t.Errorf("%s: %v", name, r)
		}
	}
}

// TestCloneLoopInFront: who calls a function that begins with a loop is counted once, not at each turn. Where that is not known,
// nobody is.
func TestCloneLoopInFront(t *testing.T) {
	const (
		site = "\x0f\x1f\x44\x00\x00"
		loop = "\xff\xcf\x75\xfc\xc3" // dec %edi; jne to it; ret
		into = "\xff\xcf\x75\xf7\xc3" // to the site
	)
	for name, c := range map[string]struct {
		code  string
		first bool
		had   bool
	}{
		"called":           {site + loop, false, true},
		"entered":          {site + loop, true, false},
		"without a site":   {loop, false, false},
		"the site is led":  {site + into, false, false},
		"no loop, entered": {site + "\xff\xcf\x90\x90\xc3", true, true},
	} {
		k := ktexttest.Load(t, "amd64")
		lo, _ := k.Text(t).Bounds()
		outer, inner := lo+0x8000, lo+0x8100
		k.Add("outer", outer, []byte("\x48\x83\xec\x08\x90\xe8\xf6\x00\x00\x00\x48\x83\xc4\x08\xc3")) // sub; nop; call inner; add; ret
		k.Add("behind_outer", outer+15, []byte("\x90"))
		k.Add("inner", inner, []byte(c.code))
		k.Add("behind_inner", inner+isa.Addr(len(c.code)), []byte("\x90"))
		x := k.Text(t)
		var both []ktext.Func
		for _, name := range []string{"outer", "inner"} {
			f, err := x.Function("", name)
			if err != nil {
				t.Fatal(err)
			}
			both = append(both, f)
		}
		f := both[1]
		begin := isa.Off(len(c.code) - len(loop))
		if c.first {
			both = both[1:]
		}
		made, r := plan.AsClone(x, request(x, "inner", 0), plan.Cloning{Functions: both, Uses: true, Inserts: []plan.Insert{
			{Func: f, Entry: true}, {Func: f, Offset: begin}, {Func: f, Entry: true, Where: plan.Behind}}})
		if r != nil {
			t.Fatalf("%s: %v", name, r)
		}
		if (made.Why[0] == nil) != c.had || made.Why[1] != nil {
			t.Errorf("%s: the entry: %v, the instruction: %v", name, made.Why[0], made.Why[1])
		}
		if made.Why[0] != nil && made.Why[0].Reason != plan.TargetInWindow {
			t.Errorf("%s: %v", name, made.Why[0])
		}
		if (made.Why[2] == nil) != (name == "no loop, entered") {
			t.Errorf("%s: behind it: %v", name, made.Why[2])
		}
		if name != "called" {
			continue
		}
		entry, turn := made.Points[0].Patch, made.Points[1].Patch
		var back, call isa.Addr
		for at := 0; at < len(made.Entry.Code); {
			i := x.Arch.Decode(made.Entry.Code[at:], made.Entry.Patch+isa.Addr(at))
			switch {
			case i.Len == 0:
				t.Fatalf("%s: at %#x of % x", name, at, made.Entry.Code)
			case i.Flow == isa.FlowCond && i.Target < i.Addr && i.Target >= made.Entry.Patch:
				back = i.Target
			case i.Flow == isa.FlowCall:
				call = i.Target
			}
			at += i.Len
		}
		if back != turn || call >= entry || turn <= entry {
			t.Errorf("the loop's turns come to %v, who calls to %v; the entry is counted at %v, the turns at %v", back, call, entry, turn)
		}
		if at, ok := made.Entry.Returns(entry + 1); !ok || at != inner+isa.Addr(begin)+2 {
			t.Errorf("what is called where it is entered comes back to %v", at)
		}
	}
}

// TestCloneOwnHalf: of two functions that share a name each has its own cold half in its copy; where no jump tells which that is,
// there is no copy.
func TestCloneOwnHalf(t *testing.T) {
	const cold = "\x48\x89\xd8\xe9\x08\xff\xff\xff" // mov; jmp to the other call
	for name, second := range map[string]string{"told": cold, "not told": "\x48\x89\xd8\xc3"} {
		k := ktexttest.Load(t, "amd64")
		lo, _ := k.Text(t).Bounds()
		hot := split["amd64"].hot
		for n, half := range []string{cold, second} {
			at, jump := lo+0x8000+isa.Addr(n)*0x400, "\x0f\x84\xf6\x00\x00\x00"
			if half != cold {
				jump = "\x66\x0f\x1f\x44\x00\x00"
			}
			k.Add("halves", at, []byte("\x90"+hot[:3]+jump+hot[9:]))
			k.Add(fmt.Sprint("behind_hot", n), at+1+isa.Addr(len(hot)), []byte("\x90"))
			k.Add("halves.cold", at+0x100, []byte(half))
			k.Add(fmt.Sprint("behind_cold", n), at+0x100+isa.Addr(len(half)), []byte("\x90"))
		}
		x := k.Text(t)
		for n := range 2 {
			f, err := x.Function("", fmt.Sprintf("halves#%d", n+1))
			if err != nil {
				t.Fatal(err)
			}
			halves := []string{fmt.Sprintf("halves#%d", n+1), fmt.Sprintf("halves.cold#%d", n+1)}
			if n == 1 && name == "not told" {
				halves = halves[:1]
			}
			if got := plan.HalvesOf(x, f, &plan.Functions{}); !slices.Equal(got, halves) {
				t.Errorf("%s: halves of %v: %q, want %q", name, f, got, halves)
			}
			c, r := plan.AsClone(x, request(x, "halves", 0), plan.Cloning{Functions: []ktext.Func{f}})
			if n == 1 && name == "not told" {
				if r == nil || r.Reason != plan.AmbiguousFunction {
					t.Errorf("%s: %v", name, r)
				}
				continue
			}
			if r != nil {
				t.Fatal(r)
			}
			own := slices.ContainsFunc(c.Entry.Clone.Insns, func(i gen.Cloned) bool { return i.Insn.Addr == f.Addr+0x100 })
			other := slices.ContainsFunc(c.Entry.Clone.Insns, func(i gen.Cloned) bool { return i.Insn.Addr == lo+0x8500-isa.Addr(n)*0x400 })
			if !own || other {
				t.Errorf("%s: the copy of %v has its own cold half: %v, the other's: %v", name, f, own, other)
			}
		}
	}
}

// TestCloneCheapest: a counter stands where it saves no more than where it was asked for, and less where it can.
func TestCloneCheapest(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64", "riscv64"} {
		x := ktexttest.Load(t, arch).Text(t)
		asked, stood, seen := 0, 0, 0
		x.Functions("", func(f ktext.Func) bool {
			if seen++; seen%5 != 0 { // all take long
				return true
			}
			bare, r := cloneOf(x, f, nil)
			if r != nil {
				return true
			}
			var in []plan.Insert
			for _, i := range bare.Entry.Clone.Insns {
				in = append(in, plan.Insert{Func: f, Offset: isa.Off(i.Insn.Addr - f.Addr), Snippet: snippet.Counter()})
			}
			c, r := plan.AsClone(x, request(x, f.Name, 0), plan.Cloning{Functions: []ktext.Func{f}, Inserts: in})
			if r != nil {
				return true
			}
			for k, p := range c.Points {
				if p == nil {
					continue
				}
				i := bare.Entry.Clone.Insns[k]
				own, err := gen.Spills(x.Arch, snippet.Counter(), gen.Features{LSE: bare.Entry.Clone.LSE}, i.Insn, i.Free)
				if err != nil || p.Spilled > own {
					t.Errorf("%s: %v: %d are saved, %d where it was asked for: %v", arch, i.Insn.Addr, p.Spilled, own, err)
				}
				asked, stood = asked+own, stood+p.Spilled
			}
			return true
		})
		if stood >= asked {
			t.Errorf("%s: %d are saved, %d where counters were asked for", arch, stood, asked)
		}
	}
}
