package splice_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/isa/amd64"
	"kerninst/agent/ktext"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/place"
	"kerninst/agent/plan"
	"kerninst/agent/snippet"
	"kerninst/agent/splice"
)

// kernel is a Poker over a recorded kernel. It refuses what the module
// refuses, as far as the tests need it, and fails at call number failAt.
type kernel struct {
	round isa.Addr // that areas begin at multiples of
	low   bool     // areas are where they may be lowest, not highest

	meanwhile func() // what somebody else does while code is written
	*ktexttest.Kernel
	areas    map[uint32]area
	live     map[uint32]splice.Splice
	next     uint32
	calls    []string
	failAt   int    // 1 is the first call that can fail
	failWith string // only calls of this name count; "" is all
	local    [8]uint64
	noUndo   bool     // nothing is undone
	asleep   uint64   // bytes of patches in quarantine
	refused  isa.Addr // no code is written over it
	astray   int      // so many areas that can be in one place are in another
	annexAt  isa.Addr
	probes   map[isa.Addr]byte      // what was there before kprobes were
	states   map[isa.Addr]gen.State // of code, as it was last written, by where they begin
}

type area struct {
	addr isa.Addr
	len  int
	k    *kernel
}

// ReadUnprobed reads what nobody has put kprobes into, unless a test says so.
func (k *kernel) ReadUnprobed(a isa.Addr, b []byte) error {
	if err := k.Read(a, b); err != nil {
		return err
	}
	for at, old := range k.probes {
		if at >= a && at-a < isa.Addr(len(b)) {
			b[at-a] = old
		}
	}
	return nil
}

var errInjected = errors.New("injected")

func newKernel(t *testing.T, arch string) *kernel {
	return &kernel{Kernel: ktexttest.Load(t, arch), areas: map[uint32]area{}, live: map[uint32]splice.Splice{}, states: map[isa.Addr]gen.State{}}
}

// call records a call and fails it when its turn has come.
func (k *kernel) call(name string) error {
	k.calls = append(k.calls, name)
	if k.failWith != "" && k.failWith != name || k.failAt == 0 {
		return nil
	}
	if k.failAt--; k.failAt == 0 {
		return errInjected
	}
	return nil
}

// failNext has the n-th call of a name fail, and each undo behind it.
func (k *kernel) failNext(name string, n int) { k.failAt, k.failWith, k.noUndo = n, name, true }

func (k *kernel) AllocArea(lo, hi isa.Addr, codeLen int) (splice.Area, error) {
	if err := k.call("alloc"); err != nil {
		return splice.Area{}, err
	}
	k.next++
	r := area{(hi - isa.Addr(2*codeLen) - 1<<20) &^ 4095, codeLen, k}
	if hi > ^isa.Addr(0)-8<<20 { // the recorded kernels end far below
		r.addr = (lo + 1<<30) &^ 4095
	}
	if k.low {
		r.addr = (lo + 4095) &^ 4095
	}
	r.addr -= r.addr & (max(k.round, 1) - 1) // of a power of two
	if hi-lo == isa.Addr(2*codeLen) {        // there is one such place
		if r.addr = lo; k.astray > 0 {
			k.astray--
			r.addr += 4096
		}
	}
	k.Write(r.addr, bytes.Repeat([]byte{0xcc}, codeLen))
	k.Write(r.addr+isa.Addr(codeLen), make([]byte, codeLen))
	k.areas[k.next] = r
	return splice.Area{ID: k.next, Addr: r.addr, Cells: r, CodeLen: codeLen, CellAddr: r.addr + isa.Addr(codeLen)}, nil
}

func (k *kernel) AllocAnnex() (splice.Area, error) {
	return k.AllocArea(k.annexAt+0x10000, k.annexAt+0x10000+64<<20, 64<<10)
}

func (k *kernel) AllocLocal() (splice.Local, error) {
	return splice.Local{Addr: 0x1f000, Len: 64, Load: func(off int) uint64 { return k.local[off/8] }}, k.call("local")
}

func (k *kernel) Quarantined() (uint64, error) { return k.asleep, nil }

func (k *kernel) FreeArea(id uint32) error {
	if err := k.call("free"); err != nil {
		return err
	}
	r, ok := k.areas[id]
	if !ok {
		return errors.New("no such area")
	}
	k.Unmap(r.addr, 2*r.len)
	delete(k.areas, id)
	return nil
}

func (k *kernel) WriteCode(a isa.Addr, code []byte, states []gen.State, _ []gen.Site) error {
	if err := k.call("code"); err != nil {
		return err
	}
	if k.meanwhile != nil {
		k.meanwhile()
	}
	for _, s := range k.live {
		if s.Patch < a+isa.Addr(len(code)) && a < s.Patch+isa.Addr(s.PatchLen) ||
			s.Annex < a+isa.Addr(len(code)) && a < s.Annex+isa.Addr(s.AnnexLen) {
			return errors.New("a live splice leads there")
		}
	}
	if k.refused >= a && k.refused < a+isa.Addr(len(code)) {
		return errors.New("a task is asleep there")
	}
	k.Write(a, code)
	maps.DeleteFunc(k.states, func(at isa.Addr, _ gen.State) bool { return at >= a && at < a+isa.Addr(len(code)) })
	for _, s := range states {
		k.states[a+isa.Addr(s.Off)] = s
	}
	return nil
}

// said is what is said of n bytes of code at a.
func (k *kernel) said(a isa.Addr, n int) (out []gen.State) {
	for off := range n {
		if s, ok := k.states[a+isa.Addr(off)]; ok {
			s.Off = off
			out = append(out, s)
		}
	}
	return out
}

func (k *kernel) Splice(batch []splice.Splice) error {
	if err := k.call("splice"); err != nil {
		return &splice.BatchError{Index: len(batch) - 1, Err: err}
	}
	for n, s := range batch {
		if !k.hold(s.Point, s.Old) {
			return &splice.BatchError{Index: n, Err: errors.New("other bytes")}
		}
	}
	for n, s := range batch {
		switch short := s.New[0] == 0xeb && len(s.New) == 2; {
		case short && !k.board(s):
			return &splice.BatchError{Index: n, Err: errors.New("no springboard there")}
		case s.New[0] == 0xe9 && len(s.New) < 5 && !k.completes(s):
			return &splice.BatchError{Index: n, Err: errors.New("what is behind makes it no jump to the patch")}
		}
		k.next++
		batch[n].ID = k.next
		k.live[k.next] = batch[n]
		k.Write(s.Point, s.New)
	}
	return nil
}

// completes reports whether what is in memory behind a punned jump leads it to its patch.
func (k *kernel) completes(s splice.Splice) bool {
	jump := make([]byte, 5)
	if err := k.Read(s.Point, jump); err != nil {
		return false
	}
	copy(jump, s.New)
	return amd64.Arch.Decode(jump, s.Point).Target == s.Patch
}

// board looks for the springboard that a short jump leads to.
func (k *kernel) board(s splice.Splice) bool {
	to := s.Point + 2 + isa.Addr(int8(s.New[1]))
	for _, l := range k.live {
		if l.Springboard && l.Point == to && l.Patch == s.Patch {
			return true
		}
	}
	return false
}

func (k *kernel) Undo(ids []uint32) error {
	if err := k.call("undo"); err != nil {
		return err
	}
	if k.noUndo {
		return errInjected
	}
	for n, id := range ids {
		if _, ok := k.live[id]; !ok {
			return &splice.BatchError{Index: n, Err: errors.New("no such splice")}
		}
	}
	for _, id := range ids {
		k.Write(k.live[id].Point, k.live[id].Old)
		delete(k.live, id)
	}
	for _, l := range k.live {
		if len(l.New) == 2 && !k.board(l) {
			return errors.New("a point leads to a springboard that is gone")
		}
	}
	return nil
}

func (k *kernel) hold(a isa.Addr, want []byte) bool {
	got := make([]byte, len(want))
	return k.Read(a, got) == nil && bytes.Equal(got, want)
}

func (r area) Load(off int) uint64 {
	var b [8]byte
	if err := r.k.Read(r.addr+isa.Addr(r.len+off), b[:]); err != nil {
		panic(err)
	}
	return binary.LittleEndian.Uint64(b[:])
}

func (r area) Store(off int, v uint64) {
	r.k.Write(r.addr+isa.Addr(r.len+off), binary.LittleEndian.AppendUint64(nil, v))
}

// bench is a splicer over a fresh kernel, and plans for some of its points.
type bench struct {
	k     *kernel
	s     *splice.Splicer
	text  *ktext.Text
	plans []*plan.Plan
}

func setUp(t *testing.T, arch string) *bench {
	t.Helper()
	b := &bench{k: newKernel(t, arch)}
	b.s = splice.New(b.k.Arch, b.k)
	b.text = b.k.TextWith(t, b.s.Read, ktext.Options{})
	lo, hi := b.text.Bounds()
	if err := b.s.Reserve(lo, hi, 64<<10); err != nil {
		t.Fatal(err)
	}
	b.plans = b.plan(t, 5)
	return b
}

// plan makes n plans that do not overlap.
func (b *bench) plan(t *testing.T, n int) []*plan.Plan {
	t.Helper()
	var out []*plan.Plan
	for _, f := range []string{"ksys_read", "vfs_read", "ksys_write", "vfs_write"} {
		off := isa.Off(0)
		for len(out) < n {
			req := plan.Request{Function: f, Offset: off, Heap: b.s.Heap(), Taken: b.s.Taken, Features: gen.Features{LSE: true}}
			if b.k.Arch.Name == "amd64" && len(out)%2 == 0 { // both kinds, the first and the last by springboards
				req.Mechanism = plan.Springboard
			}
			p, r := plan.Search(b.text, req)
			if r != nil {
				break
			}
			off = isa.Off(p.Back - p.Point + isa.Addr(p.Offset))
			out = append(out, p)
		}
	}
	if len(out) < n {
		t.Fatalf("only %d points", len(out))
	}
	return out
}

// text is the memory outside the areas.
func (b *bench) outside() map[isa.Addr][]byte {
	out := b.k.Dump()
	for _, r := range b.k.areas {
		for p := r.addr / 4096; p < (r.addr+isa.Addr(2*r.len))/4096; p++ {
			delete(out, p)
		}
	}
	return out
}

func (b *bench) used() int {
	_, u, _ := b.s.Heap().Usage()
	return u
}

func TestApplyUndo(t *testing.T) {
	for _, arch := range ktexttest.Arches {
		b := setUp(t, arch)
		before := b.outside()
		b.k.Write(b.plans[0].Cell, []byte{99}) // left by an earlier patch
		live, err := b.s.Apply(b.plans)
		if err != nil {
			t.Fatalf("%s: %v", arch, err)
		}
		if n := live[0].Words()[0]; n != 0 {
			t.Errorf("%s: starts counting at %d", arch, n)
		}
		if err := b.s.Verify(); err != nil {
			t.Error(err)
		}
		for n, l := range live {
			if !b.k.hold(l.Plan.Point, l.Plan.New) || !b.k.hold(l.Plan.Patch, l.Plan.Code) {
				t.Errorf("%s: splice %d is not in memory", arch, n)
			}
			if got := b.k.said(l.Plan.Patch, len(l.Plan.Code)); len(got) == 0 || !reflect.DeepEqual(got, l.Plan.States) {
				t.Errorf("%s: splice %d was written with the state map %+v", arch, n, got)
			}
			if s := l.Plan.Board; s != nil && (!b.k.hold(s.Addr, s.New) || !b.s.Taken(s.End()-1, s.End())) {
				t.Errorf("%s: the springboard of splice %d is not in memory, or not taken", arch, n)
			}
			b.k.Write(l.Plan.Cell, binary.LittleEndian.AppendUint64(nil, uint64(n+1)*l.Unit()))
			if l.Words()[0] != uint64(n+1) {
				t.Errorf("%s: splice %d counts %d", arch, n, l.Words()[0])
			}
		}
		original := make([]byte, 16)
		if err := b.s.Read(live[0].Plan.Point, original); err != nil || !bytes.HasPrefix(original, live[0].Plan.Old) {
			t.Errorf("%s: the original reads %x, %v", arch, original, err)
		}
		beside := live[len(live)-1].Plan.Back + 64
		b.k.probes = map[isa.Addr]byte{beside: 0x5a}
		if !b.s.Probed(beside, beside+1) || !b.s.Probed(beside-8, beside+8) || b.s.Probed(beside+1, beside+8) {
			t.Errorf("a kprobe at %v is not found where it is alone", beside)
		}
		if err := b.s.Read(beside, original); err != nil || original[0] != 0x5a {
			t.Errorf("%s: where a kprobe is it reads %x, %v", arch, original, err)
		}
		b.k.probes = nil
		if err := b.s.Undo([]*splice.Live{live[3], live[0]}); err != nil {
			t.Fatal(err)
		}
		if got := len(b.s.Live()); got != 3 || b.used() != 3 {
			t.Errorf("%s: %d live, %d lines used", arch, got, b.used())
		}
		if err := b.s.Undo(b.s.Live()); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(before, b.outside()) {
			t.Errorf("%s: memory differs after undo", arch)
		}
		if _, err := b.s.Apply(b.plan(t, 5)); err != nil {
			t.Errorf("%s: again: %v", arch, err)
		}
		if err := b.s.Close(); err != nil || len(b.k.areas) != 0 || !reflect.DeepEqual(before, b.outside()) {
			t.Errorf("%s: closing left %d areas, %v", arch, len(b.k.areas), err)
		}
	}
}

// TestOrder: all patches are written, neighbours at once, before the first point, undo runs
// backwards.
func TestOrder(t *testing.T) {
	b := setUp(t, "arm64")
	if _, err := b.s.Apply(b.plans); err != nil {
		t.Fatal(err)
	}
	if err := b.s.Close(); err != nil {
		t.Fatal(err)
	}
	want := "alloc code splice undo free"
	if got := strings.Join(b.k.calls, " "); got != want {
		t.Errorf("calls %q, want %q", got, want)
	}
}

// TestErrorsLeaveNothing fails each call in turn.
func TestErrorsLeaveNothing(t *testing.T) {
	for _, arch := range ktexttest.Arches {
		for _, step := range []string{"code", "splice"} {
			for n := 1; n <= 5; n++ {
				b := setUp(t, arch)
				before := b.outside()
				b.k.failWith, b.k.failAt = step, n
				live, err := b.s.Apply(b.plans)
				if n > 1 { // there is one of each
					if err != nil {
						t.Errorf("%s: %v", arch, err)
					}
					continue
				}
				what := fmt.Sprintf("%s, %s call %d", arch, step, n)
				if !errors.Is(err, errInjected) || live != nil {
					t.Errorf("%s: %v", what, err)
				}
				if !reflect.DeepEqual(before, b.outside()) || len(b.s.Live()) != 0 || b.used() != 0 {
					t.Errorf("%s: text differs, %d live, %d lines used", what, len(b.s.Live()), b.used())
				}
				if _, err := b.s.Apply(b.plan(t, 5)); err != nil {
					t.Errorf("%s: afterwards: %v", what, err)
				}
			}
		}
	}
}

func TestUndoFails(t *testing.T) {
	b := setUp(t, "amd64")
	live, err := b.s.Apply(b.plans)
	if err != nil {
		t.Fatal(err)
	}
	b.k.failWith, b.k.failAt = "undo", 1
	if err := b.s.Undo(live); !errors.Is(err, errInjected) {
		t.Error(err)
	}
	if len(b.s.Live()) != 5 || b.used() != 5 || b.s.Verify() != nil {
		t.Errorf("%d live, %d lines used, %v", len(b.s.Live()), b.used(), b.s.Verify())
	}
	if err := b.s.Undo([]*splice.Live{live[0], live[0]}); err == nil {
		t.Error("the same splice was undone twice")
	}
	if err := b.s.Undo(live); err != nil {
		t.Error(err)
	}
	if err := b.s.Undo(live[:1]); err == nil {
		t.Error("a dead splice was undone")
	}
}

func TestReserve(t *testing.T) {
	b := setUp(t, "arm64")
	lo, hi := b.text.Bounds()
	b.k.failWith, b.k.failAt = "alloc", 1
	for name, err := range map[string]error{
		"refused":    b.s.Reserve(lo, hi, 4096),
		"not pages":  b.s.Reserve(lo, hi, 100),
		"too long":   b.s.Reserve(lo, hi, 2<<20),
		"no address": b.s.Reserve(lo, lo+1<<30, 4096),
	} {
		if err == nil {
			t.Errorf("%s: reserved", name)
		}
	}
	if len(b.k.areas) != 1 {
		t.Errorf("%d areas", len(b.k.areas))
	}
}

// TestRound: where cells begin at a round address, nobody's cell is there on ISAs that add
// addresses.
func TestRound(t *testing.T) {
	for _, arch := range ktexttest.Arches {
		b := setUp(t, arch)
		b.k.round = 1 << 19
		lo, hi := b.text.Bounds()
		if err := b.s.Reserve(lo+1<<22, hi+1<<22, 1<<19); err != nil {
			t.Fatal(err)
		}
		areas := b.s.Heap().Areas()
		k := slices.IndexFunc(areas, func(r *place.Area) bool { return r.CodeLen > 1<<18 })
		cell := areas[k].Cell(areas[k].Addr)
		if first := cell%b.k.round == 0; first != (arch == "amd64") {
			t.Errorf("%s: the first cell is at %v", arch, cell)
		}
		if got := gen.Unit(b.text.Arch, snippet.Counter(), cell); got == 1 && arch != "amd64" {
			t.Errorf("%s: the counter of the first slot, at %v, adds 1", arch, cell)
		}
	}
}

// TestReach: text far away gets an area of its own, once; what is near shares one.
func TestReach(t *testing.T) {
	b := setUp(t, "arm64")
	lo, hi := b.text.Bounds()
	far := hi + 1<<32
	for _, c := range []struct {
		lo, hi isa.Addr
		areas  int
	}{{lo, hi, 1}, {far, far + 8192, 2}, {far + 4096, far + 12288, 2}, {lo, hi, 2}} {
		if err := b.s.Reach(c.lo, c.hi, 64<<10); err != nil || len(b.k.areas) != c.areas {
			t.Errorf("%v to %v: %v, %d areas, want %d", c.lo, c.hi, err, len(b.k.areas), c.areas)
		}
	}
	b.k.failWith, b.k.failAt = "alloc", 1
	if err := b.s.Reach(far+1<<32, far+1<<32+4096, 64<<10); !errors.Is(err, errInjected) {
		t.Errorf("no memory there: %v", err)
	}
}

// TestReachBoth: patches of a module call the kernel, which they reach if anything does.
func TestReachBoth(t *testing.T) {
	b := &bench{k: newKernel(t, "arm64")}
	b.s = splice.New(b.k.Arch, b.k)
	b.text = b.k.TextWith(t, b.s.Read, ktext.Options{})
	lo, hi := b.text.Bounds()
	b.k.low = true // the first area is out of the module's reach
	if err := b.s.Reserve(lo, hi, 64<<10); err != nil {
		t.Fatal(err)
	}
	b.k.low = false
	module := hi + 110<<20
	if err := b.s.Reach(module, module+8192, 64<<10); err != nil {
		t.Fatal(err)
	}
	areas := b.s.Heap().Areas()
	near := place.Reach(b.text.Arch, module, module+8192)
	kernel := place.Reach(b.text.Arch, lo, hi)
	found := false
	for _, a := range areas {
		if near.Holds(a.Addr, a.CodeLen) {
			found = true
			if !kernel.Holds(a.Addr, a.CodeLen) {
				t.Errorf("the area at %v does not reach the kernel, %v to %v", a.Addr, lo, hi)
			}
		}
	}
	if !found {
		t.Errorf("no area for the module at %v: %v", module, areas)
	}
}

// TestRefused gives Apply what it must not take.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		plans func(*bench) []*plan.Plan
		in    string
	}{
		"live already":  {func(b *bench) []*plan.Plan { return b.plans[1:3] }, "which is live"},
		"twice":         {func(b *bench) []*plan.Plan { return []*plan.Plan{b.plans[4], b.plans[4]} }, "same batch"},
		"wrong":         {func(b *bench) []*plan.Plan { p := *b.plans[4]; p.New = p.Old; return []*plan.Plan{&p} }, "do not jump"},
		"other area":    {func(b *bench) []*plan.Plan { p := *b.plans[4]; p.Cell += 64; return []*plan.Plan{&p} }, "not in an area"},
		"changed bytes": {func(b *bench) []*plan.Plan { b.k.Write(b.plans[4].Point, []byte{0}); return b.plans[4:] }, "other bytes"},
	} {
		b := setUp(t, "riscv64")
		first, err := b.s.Apply(b.plans[:3])
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.s.Apply(c.plans(b))
		if err == nil || !strings.Contains(err.Error(), c.in) || !strings.Contains(err.Error(), "+0x") {
			t.Errorf("%s: %v, want %q and the point", name, err, c.in)
		}
		if err := b.s.Verify(); err != nil || len(b.s.Live()) != 3 {
			t.Errorf("%s: %v, %d live", name, err, len(b.s.Live()))
		}
		for _, l := range first {
			if b.s.Heap().Take(l.Plan.Patch, 1) {
				t.Errorf("%s: the slot of a live patch was free", name)
			}
		}
		if err := b.s.Undo(first); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestVerifyNotices changes a live point and a live patch behind its back.
func TestVerifyNotices(t *testing.T) {
	b := setUp(t, "amd64")
	live, err := b.s.Apply(b.plans)
	if err != nil {
		t.Fatal(err)
	}
	b.k.Write(live[1].Plan.Point, []byte{0x90})
	b.k.Write(live[2].Plan.Patch, []byte{0x90})
	err = b.s.Verify()
	for _, l := range live[1:3] {
		if err == nil || !strings.Contains(err.Error(), l.Plan.Point.String()) {
			t.Errorf("%v does not name %v", err, l.Plan.Point)
		}
	}
}

// TestPlansAreNotTakenTwice plans again over live text: the same points are
// refused, and their neighbours decode as if nothing had happened.
func TestPlansAreNotTakenTwice(t *testing.T) {
	for _, arch := range ktexttest.Arches {
		b := setUp(t, arch)
		if _, err := b.s.Apply(b.plans); err != nil {
			t.Fatal(err)
		}
		for _, p := range b.plans {
			again, r := plan.Point(b.text, plan.Request{Function: p.Symbol, Offset: p.Offset, Heap: b.s.Heap(),
				Taken: b.s.Taken, Features: gen.Features{LSE: true}})
			if r == nil || r.Reason != plan.AlreadySpliced {
				t.Errorf("%s %s+%#x: %v, %v", arch, p.Symbol, uint64(p.Offset), again, r)
			}
		}
	}
}

// TestApplyFrom: cells begin as their snippet says, or as they are told to; words that
// do not fit are refused, and bounds can be put back to their start.
func TestApplyFrom(t *testing.T) {
	b := setUp(t, "arm64")
	before := b.used()
	if _, err := b.s.ApplyFrom(b.plan(t, 1), [][]uint64{{1, 2}}); err == nil {
		t.Error("two words for a counter: no error")
	}
	if b.used() != before {
		t.Errorf("%d lines are taken, %d were", b.used(), before)
	}
	live, err := b.s.ApplyFrom(b.plan(t, 1), [][]uint64{{41}})
	if err != nil {
		t.Fatal(err)
	}
	live[0].Restart()
	if w := live[0].Words(); len(w) != 1 || w[0] != 41 {
		t.Errorf("cells %v, not those that were given", w)
	}
}

// TestLocals: sums are in per-CPU memory while there is some; they count from what they
// are told to, whatever the words held, and a word is another's only when nobody is
// asleep in what was undone.
func TestLocals(t *testing.T) {
	b := setUp(t, "amd64")
	b.s.Release(b.plans...)
	b.k.local[0] = 1000
	if err := b.s.ReserveLocal(); err != nil {
		t.Fatal(err)
	}
	one := func() *splice.Live {
		t.Helper()
		live, err := b.s.ApplyFrom(b.plan(t, 1), [][]uint64{{41}})
		if err != nil {
			t.Fatal(err)
		}
		return live[0]
	}
	l := one()
	if !slices.Equal(l.Plan.Locals, []isa.Addr{0x1f000}) {
		t.Fatalf("its cell is at %v", l.Plan.Locals)
	}
	b.k.local[0] += 3
	if n := l.Words()[0]; n != 44 {
		t.Errorf("41 and 3 are %d", n)
	}
	stolen := *l.Plan
	for name, locals := range map[string][]isa.Addr{"another's": {0x1f000}, "nowhere": {0x1f040}} {
		p := b.plan(t, 1)[0]
		b.s.Release(p)
		stolen = *p
		stolen.Locals = locals
		if _, err := b.s.Apply([]*plan.Plan{&stolen}); err == nil || !strings.Contains(err.Error(), "per-CPU memory") {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.s.Heap().CleanLocals()
	if b.s.Heap().TakeLocal(0x1f000) {
		t.Error("a plan that was refused has given back a live splice's cell")
	}
	b.k.asleep = 64
	if err := b.s.Undo([]*splice.Live{l}); err != nil {
		t.Fatal(err)
	}
	if l = one(); l.Plan.Locals[0] == 0x1f000 {
		t.Error("a task may still come to the word, and it is another's")
	}
	b.k.asleep = 0
	if err := b.s.Undo([]*splice.Live{l}); err != nil {
		t.Fatal(err)
	}
	b.k.local[0] = 7
	if l = one(); l.Plan.Locals[0] != 0x1f000 || l.Words()[0] != 41 {
		t.Errorf("its cell is at %v and holds %d", l.Plan.Locals, l.Words()[0])
	}
	full := b.plan(t, 9)
	if n := slices.IndexFunc(full, func(p *plan.Plan) bool { return p.Locals == nil }); n != 7 {
		t.Errorf("of 8 words 1 was taken, and %d plans got one", n)
	}
}

// evictable is a function that can be moved, and one of which only a stretch can.
var evictable = map[string]string{
	"leaf":     strings.Repeat("\x13\x00\x00\x00", 2) + strings.Repeat("\x01\x00", 20) + "\x82\x80",
	"leaf+0x2": "\x82\x80" + strings.Repeat("\x01\x00", 16) + "\xef\x00\x00\x01\x82\x80",
}

// TestEvicted: code runs elsewhere from the first springboard in it to the last, and
// nobody who reads through the splicer sees that.
func TestEvicted(t *testing.T) {
	for name, code := range evictable {
		t.Run(name, func(t *testing.T) { testEvicted(t, name, code) })
	}
}

func testEvicted(t *testing.T, name, code string) {
	b := setUp(t, "riscv64")
	f, err := b.text.Function("", "__riscv_sys_getppid")
	if err != nil {
		t.Fatal(err)
	}
	leaf := f.Addr + 0x4000
	b.k.Add("leaf", leaf, []byte(code))
	x := b.k.TextWith(t, b.s.Read, ktext.Options{})
	before, used := b.outside(), b.used()
	var plans []*plan.Plan
	for _, at := range []struct {
		function string
		off      isa.Off
	}{{"__riscv_sys_getppid", 0x10}, {"__riscv_sys_getppid", 0x18}} {
		p, r := plan.Search(x, plan.Request{
			Function: at.function, Offset: at.off, Mechanism: plan.Springboard, Heap: b.s.Heap(), Taken: b.s.Taken,
			Spare: func(f ktext.Func, _, _ isa.Addr) bool { return f.Name != "leaf" },
			Facts: func(ktext.Func) (plan.Facts, error) {
				return plan.Facts{Free: func(isa.Addr) isa.RegSet { return isa.Set(6, 7, 28) }}, nil
			},
		})
		if r != nil {
			t.Fatalf("%s: %v", at.function, r)
		}
		plans = append(plans, p)
	}
	first, err := b.s.Apply(plans[:1])
	if err != nil {
		t.Fatal(err)
	}
	second, err := b.s.Apply(plans[1:])
	if err != nil {
		t.Fatal(err)
	}
	in := plans[0].Board.In
	if in.Name() != name {
		t.Errorf("%s was moved", in.Name())
	}
	if n := len(b.k.live); n != 5 || !b.k.hold(in.Body, in.New) || !b.k.hold(in.Patch, in.Copy) {
		t.Errorf("%d writes live, not a function, two springboards and two points", n)
	}
	seen := make([]byte, len(code))
	if err := b.s.Read(leaf, seen); err != nil || string(seen) != code {
		t.Errorf("the function reads %x, %v", seen, err)
	}
	if !b.s.Taken(in.Body, in.Body+2) || !b.s.Taken(in.End()-2, in.End()) || b.s.Taken(in.End(), in.End()+2) {
		t.Error("the function is not taken as a whole")
	}
	if err := b.s.Verify(); err != nil {
		t.Error(err)
	}
	b.k.Write(in.Patch+4, []byte{0, 0})
	if err := b.s.Verify(); err == nil || !strings.Contains(err.Error(), "leaf") {
		t.Errorf("the copy was changed: %v", err)
	}
	b.k.Write(in.Patch, in.Copy)
	forged := *plans[0]
	forged.Patch = in.Patch
	if _, err := b.s.Apply([]*plan.Plan{&forged}); err == nil || b.s.Heap().Take(in.Patch, in.Slot) {
		t.Errorf("a patch on the copy: %v, and its slot is free or was given back", err)
	}
	if err := b.s.Undo(first); err != nil {
		t.Fatal(err)
	}
	if !b.k.hold(in.Body, in.New) || len(b.s.Heap().Evicted()) != 1 {
		t.Error("the function is back while a springboard is in it")
	}
	if err := b.s.Undo(second); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(before, b.outside()) || len(b.s.Heap().Evicted()) != 0 || b.used() != used || b.s.Heap().Boards() != 0 {
		t.Errorf("%d functions, %d slots, %d springboards are left, or other bytes", len(b.s.Heap().Evicted()), b.used(), b.s.Heap().Boards())
	}
}

// TestEvictedBeside: on amd64 a stretch that two points share is moved once, before them,
// and is back with the last; its copy comes with what is said of its stack.
func TestEvictedBeside(t *testing.T) {
	b := setUp(t, "amd64")
	lo, _ := b.text.Bounds()
	hops, at := strings.Repeat("\xeb\x00", 100), lo+0x8000
	stretch := strings.Repeat("\x48\x89\xc3", 6) // mov %rax, %rbx
	code := hops + stretch + hops + "\xc3"
	b.k.Add("piece", at, []byte(code))
	x := b.k.TextWith(t, b.s.Read, ktext.Options{})
	before, used, boards := b.outside(), b.used(), b.s.Heap().Boards()
	var plans []*plan.Plan
	for _, off := range []isa.Off{180, 182} {
		p, r := plan.Point(x, plan.Request{Function: "piece", Offset: off, Heap: b.s.Heap(), Taken: b.s.Taken})
		if r != nil {
			t.Fatal(r)
		}
		plans = append(plans, p)
	}
	live, err := b.s.Apply(plans)
	if err != nil {
		t.Fatal(err)
	}
	in := plans[0].Board.In
	if in == nil || in.Name() != "piece+0xc8" || !in.Same(plans[1].Board.In) || len(b.k.live) != 5 {
		t.Fatalf("%+v and %+v, %d writes live", in, plans[1].Board.In, len(b.k.live))
	}
	if !b.k.hold(in.Body, in.New) || !b.k.hold(in.Patch, in.Copy) || !b.k.hold(plans[1].Board.Addr, plans[1].Board.New) {
		t.Error("the jump to the copy, the copy or a springboard is not there")
	}
	if got := b.k.said(in.Patch, len(in.Copy)); len(got) != 7 || !reflect.DeepEqual(got, in.States) {
		t.Errorf("of the copy's stack is said %+v", got)
	}
	seen := make([]byte, len(code))
	if err := b.s.Read(at, seen); err != nil || string(seen) != code {
		t.Errorf("the function reads %x, %v", seen, err)
	}
	if err := errors.Join(b.s.Verify(), b.s.Undo(live[:1])); err != nil {
		t.Fatal(err)
	}
	if !b.k.hold(in.Body, in.New) {
		t.Error("the stretch is back while a springboard is in it")
	}
	if err := b.s.Undo(live[1:]); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(before, b.outside()) || len(b.s.Heap().Evicted()) != 0 || b.used() != used || b.s.Heap().Boards() != boards {
		t.Errorf("%d stretches, %d slots, %d springboards are left, or other bytes", len(b.s.Heap().Evicted()), b.used(), b.s.Heap().Boards())
	}
}

// TestEvictionClashes: what must not be live beside a function that runs elsewhere.
func TestEvictionClashes(t *testing.T) {
	for name, code := range evictable {
		t.Run(name, func(t *testing.T) { testEvictionClashes(t, code) })
	}
}

func testEvictionClashes(t *testing.T, code string) {
	b := setUp(t, "riscv64")
	f, err := b.text.Function("", "__riscv_sys_getppid")
	if err != nil {
		t.Fatal(err)
	}
	b.k.Add("leaf", f.Addr+0x4000, []byte(code))
	x := b.k.Text(t)
	point := func(function string, off isa.Off, m plan.Mechanism) *plan.Plan {
		p, r := plan.Search(x, plan.Request{
			Function: function, Offset: off, Mechanism: m, Heap: b.s.Heap(),
			Spare: func(f ktext.Func, _, _ isa.Addr) bool { return f.Name != "leaf" },
			Facts: func(ktext.Func) (plan.Facts, error) {
				return plan.Facts{Free: func(isa.Addr) isa.RegSet { return isa.Set(6, 7, 28) }}, nil
			},
		})
		if r != nil {
			t.Fatalf("%s+%#x: %v", function, uint64(off), r)
		}
		return p
	}
	one, inside := point("__riscv_sys_getppid", 0x10, plan.Springboard), point("leaf", 0x10, plan.Quiesced)
	other := point("__riscv_sys_getppid", 0x18, plan.Springboard)
	for name, spoil := range map[string]func(p *plan.Plan, b *plan.Board, e *plan.Eviction) *plan.Plan{
		"a point in it":  func(*plan.Plan, *plan.Board, *plan.Eviction) *plan.Plan { return inside },
		"the same board": func(p *plan.Plan, v *plan.Board, _ *plan.Eviction) *plan.Plan { *v = *one.Board; return p },
		"its copy's slot": func(p *plan.Plan, _ *plan.Board, _ *plan.Eviction) *plan.Plan {
			*p = *inside
			p.Point = 0x1000
			return p
		},
		"another copy of it": func(p *plan.Plan, _ *plan.Board, e *plan.Eviction) *plan.Plan { e.Patch += 0x1000; return p },
		"a board in no body": func(p *plan.Plan, v *plan.Board, _ *plan.Eviction) *plan.Plan { v.In = nil; return p },
	} {
		for _, together := range []bool{true, false} {
			p, v, e := *other, *other.Board, *other.Board.In
			v.In, p.Board = &e, &v
			bad := spoil(&p, &v, &e)
			var err error
			if together {
				_, err = b.s.Apply([]*plan.Plan{one, bad})
			} else {
				var live []*splice.Live
				if live, err = b.s.Apply([]*plan.Plan{one}); err != nil {
					t.Fatal(err)
				}
				_, err = b.s.Apply([]*plan.Plan{bad})
				if err2 := b.s.Undo(live); err2 != nil {
					t.Fatal(err2)
				}
			}
			if err == nil {
				t.Errorf("%s (in one batch: %v): accepted", name, together)
			}
			if len(b.k.live) != 0 {
				t.Fatalf("%s (in one batch: %v): %d writes are live", name, together, len(b.k.live))
			}
		}
	}
}

// TestFill: what was undone is traps, but for what cannot be overwritten.
func TestFill(t *testing.T) {
	for _, arch := range ktexttest.Arches {
		b := setUp(t, arch)
		live, err := b.s.Apply(b.plans)
		if err != nil {
			t.Fatal(err)
		}
		held := b.plans[2]
		b.k.refused = held.Patch
		if err := b.s.Undo(live); err != nil {
			t.Fatal(err)
		}
		for _, p := range b.plans {
			code := bytes.Repeat(b.k.Arch.Trap, len(p.Code)/len(b.k.Arch.Trap))
			if got := b.k.hold(p.Patch, code); got != (p != held) {
				t.Errorf("%s: the patch of %v at %v is traps: %v", arch, p.Point, p.Patch, got)
			}
			if got := len(b.k.said(p.Patch, len(p.Code))) > 0; got != (p == held) {
				t.Errorf("%s: what was the patch of %v has a state map: %v", arch, p.Point, got)
			}
		}
	}
}
