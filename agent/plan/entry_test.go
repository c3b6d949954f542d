package plan_test

import (
	"slices"
	"strings"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/plan"
	"kerninst/agent/snippet"
)

// straightEnd is the offset behind the first instruction of a function that does
// anything but fall through.
func straightEnd(t *testing.T, x *ktext.Text, f ktext.Func) isa.Off {
	t.Helper()
	code, err := x.Code(f)
	if err != nil {
		t.Fatal(err)
	}
	for k := 0; k < len(code); {
		i := x.Arch.Decode(code[k:], f.Addr+isa.Addr(k))
		k += i.Len
		if i.Flow != isa.FlowNone {
			return isa.Off(k)
		}
	}
	return f.Size
}

// TestEntry: the point is before anything branches, no other there costs less, and the
// heap holds that plan alone.
func TestEntry(t *testing.T) {
	for _, arch := range ktexttest.Arches {
		x := ktexttest.Load(t, arch).Text(t)
		planned, refused, later := 0, 0, 0
		x.Functions("", func(f ktext.Func) bool {
			if strings.HasPrefix(f.Name, "gap") || f.Size == 0 {
				return true
			}
			req := request(x, f.Name, 0)
			p, r := plan.Entry(x, req)
			if r != nil {
				refused++
				return true
			}
			planned++
			if end := straightEnd(t, x, f); p.Offset >= end {
				t.Errorf("%s %v+%#x: calls branch before +%#x", arch, f, uint64(p.Offset), uint64(end))
			}
			if _, used, _ := req.Heap.Usage(); used < 1 {
				t.Errorf("%s %v: no line of the heap taken", arch, f)
			}
			if first, r := plan.Search(x, request(x, f.Name, 0)); r != nil || first.Mechanism == p.Mechanism && first.Added < p.Added && first.Offset <= p.Offset {
				t.Errorf("%s %v: %d added at +%#x, and the first point adds less (%v)", arch, f, p.Added, uint64(p.Offset), r)
			} else if first.Offset < p.Offset {
				later++
			}
			return true
		})
		t.Logf("%s: %d planned, %d of them at a later point that costs less, %d refused", arch, planned, later, refused)
		if planned == 0 {
			t.Errorf("%s: nothing was planned", arch)
		}
	}
}

// TestEntryRefuses what is not there.
func TestEntryRefuses(t *testing.T) {
	x := ktexttest.Load(t, "amd64").Text(t)
	if p, r := plan.Entry(x, request(x, "no_such_function", 0)); r == nil || r.Reason != plan.NoSuchFunction {
		t.Errorf("got %+v, %v", p, r)
	}
	req := request(x, "vfs_read", 0)
	req.Mechanism = plan.Clone // nobody's
	if p, r := plan.Entry(x, req); r == nil {
		t.Errorf("planned at +%#x by a mechanism that amd64 does not have", uint64(p.Offset))
	}
	for want, code := range map[plan.Reason]snippet.Insn{ // what is wrong everywhere, and not that the first is an ftrace site
		plan.NoArgument: {Op: snippet.Ret, Type: snippet.U64},
		plan.BadSnippet: {Op: snippet.Reg, Name: "xx", Type: snippet.U64},
	} {
		req := request(x, "vfs_read", 0)
		req.Snippet = snippet.Snippet{Cells: []snippet.Cell{{Kind: snippet.Sum}}, Code: []snippet.Insn{code, {Op: snippet.Count, A: snippet.V(0)}}}
		if _, r := plan.Entry(x, req); r == nil || r.Reason != want {
			t.Errorf("%v: %v", want, r)
		}
	}
}

// TestEntryAddsLeast: no mechanism by itself adds less at any instruction that each call executes.
func TestEntryAddsLeast(t *testing.T) {
	for _, arch := range ktexttest.Arches {
		x := ktexttest.Load(t, arch).Text(t)
		mechanisms := []plan.Mechanism{plan.Jump, plan.Springboard, plan.Pun, plan.Quiesced}
		tried, less := 0, 0
		x.Functions("", func(f ktext.Func) bool {
			if strings.HasPrefix(f.Name, "gap") || f.Size == 0 || tried == 12 {
				return true
			}
			best, r := plan.Entry(x, request(x, f.Name, 0))
			if r != nil {
				return true
			}
			tried++
			code, err := x.Code(f)
			if err != nil {
				t.Fatal(err)
			}
			for off := 0; off < int(straightEnd(t, x, f)); {
				for _, m := range mechanisms {
					req := request(x, f.Name, isa.Off(off))
					req.Mechanism, req.Dry, req.Still = m, true, true
					p, r := plan.At(x, f, req)
					switch {
					case r != nil || isa.Off(off) > best.Offset && p.Added == best.Added:
					case p.Added < best.Added:
						t.Errorf("%s %v: %d added at +%#x, and %d at +%#x by %v", arch, f, best.Added, uint64(best.Offset), p.Added, off, m)
					default:
						less++
					}
				}
				off += x.Arch.Decode(code[off:], f.Addr+isa.Addr(off)).Len
			}
			return true
		})
		t.Logf("%s: %d functions, %d ways that add as much or more", arch, tried, less)
		if tried == 0 || less == 0 {
			t.Errorf("%s: nothing was compared", arch)
		}
	}
}

// BenchmarkEntry plans what each call of a function comes to, as who asks for all entries does.
func BenchmarkEntry(b *testing.B) {
	for _, arch := range ktexttest.Arches {
		b.Run(arch, func(b *testing.B) {
			x := ktexttest.Load(b, arch).Text(b)
			planned := 0
			for b.Loop() {
				known := &plan.Functions{} // as of a step
				x.Functions("", func(f ktext.Func) bool {
					if strings.HasPrefix(f.Name, "gap") { // what the recording leaves out
						return true
					}
					req := request(x, f.Name, 0)
					req.Dry, req.Known = true, known
					if _, r := plan.Entry(x, req); r == nil {
						planned++
					}
					return true
				})
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(planned), "ns/entry")
		})
	}
}

// TestExclusive: what begins an exclusive sequence, is in it or ends it is one; what is before and behind is not, nor is
// what no instruction begins at.
func TestExclusive(t *testing.T) {
	const lr, add, sc = "\x2f\x35\x05\x10", "\x05\x05", "\x2f\x35\xa5\x18" // lr.d a0, (a0); c.addi a0, 1; sc.d a0, a0, (a0)
	x := edited(t, "riscv64", "ksys_read", 8, lr+add+sc+add)
	known := &plan.Functions{}
	for off, want := range map[isa.Off]bool{4: false, 8: true, 12: true, 14: true, 18: false, 10: false} {
		if got := known.Exclusive(x, "", "ksys_read", off); got != want {
			t.Errorf("+%#x: %v", uint64(off), got)
		}
	}
	if known.Exclusive(x, "", "none", 8) {
		t.Error("a function that is not there")
	}
}

// sites are an ftrace site of ksys_read's that somebody uses, by ISA: where it is, and what is there.
var sites = map[string]map[isa.Off][]string{
	"amd64":   {4: {"\xe8\x00\x00\x00\x3e", "\xe9\x00\x00\x00\x3e"}}, // a call, and a jump since Linux 7.0, to what the kernel has made
	"arm64":   {4: {"\x00\x00\x00\x95"}},
	"riscv64": {0: {"\x97\x02\x00\x04\xe7\x82\x42\x31"}},
}

// TestTraced: while somebody traces a function, what is behind its site is asked for as ever: its entry, its calls, and where
// it returns, whoever has decoded it before.
func TestTraced(t *testing.T) {
	for arch, bySite := range sites {
		bare := ktexttest.Load(t, arch).Text(t)
		for off, all := range bySite {
			for _, code := range all {
				x := edited(t, arch, "ksys_read", off, code)
				f, err := x.Function("", "ksys_read")
				if err != nil {
					t.Fatal(err)
				}
				b, err := x.Code(f)
				if err != nil || !x.Traced(f.Addr, b) {
					t.Fatalf("%s: % x is not traced, %v", arch, code, err)
				}
				p, r := plan.Entry(x, request(x, f.Name, 0))
				if r != nil || int(p.Offset) < x.FtraceSite(f.Addr, b) {
					t.Errorf("%s: % x: the entry is at %v, %v", arch, code, p, r)
				}
				var insns []isa.Insn // as who knows nothing of sites has decoded them
				for k := 0; k < len(b); {
					i := x.Arch.Decode(b[k:], f.Addr+isa.Addr(k))
					insns, k = append(insns, i), k+i.Len
				}
				x.KeepDecoded(f.Addr, b, insns)
				for _, each := range []plan.Each{plan.EachCall, plan.EachReturn, plan.EachBlock} {
					want, r := plan.OffsetsAt(bare, f, plan.Request{}, each)
					got, other := plan.OffsetsAt(x, f, plan.Request{}, each)
					if r != nil || other != nil || !slices.Equal(got, want) {
						t.Errorf("%s: % x: %d: %v, %v; want %v, %v", arch, code, each, got, other, want, r)
					}
				}
			}
		}
	}
}

// TestEntryBeforeKeys: no entry is behind the site of a static key, by which the kernel may jump past it one day, nor behind what
// the other half jumps back to, nor behind what may fault and go on elsewhere.
func TestEntryBeforeKeys(t *testing.T) {
	k := ktexttest.Load(t, "amd64")
	links, err := k.Text(t).Links("")
	if err != nil {
		t.Fatal(err)
	}
	const moves = "\x48\x89\xf8\x48\x89\xf9\x48\x89\xfa"
	site := links.Keys[0].Site
	lo, _ := k.Text(t).Bounds()
	lo += 0x8000
	k.Add("keyed", site-9, []byte(moves+"\x0f\x1f\x44\x00\x00"+moves+"\xc3"))
	k.Add("faulting", links.Faults[len(links.Faults)-1].Site-9, []byte(moves+"\x48\x8b\x07"+moves+"\xc3")) // a load
	k.Add("halves", lo, []byte(moves+moves+"\x0f\x84\x68\x00\x00\x00\xc3"))                                // je cold
	k.Add("behind_halves", lo+0x19, []byte("\x90"))
	k.Add("halves.cold", lo+0x80, []byte("\xeb\x87")) // to what is behind three moves
	k.Add("behind_cold", lo+0x82, []byte("\x90"))
	x := k.Text(t)
	for name, before := range map[string]isa.Off{"keyed": 9, "halves": 9} {
		p, r := plan.Entry(x, request(x, name, 0))
		if r != nil {
			t.Errorf("%s: %v", name, r)
		} else if p.Offset >= before {
			t.Errorf("the entry of %s is at +%#x, want one before +%#x", name, p.Offset, before)
		}
	}
	if end := new(plan.Functions).Straight(x, "", "faulting"); end != 12 { // where the load ends
		t.Errorf("faulting is straight up to +%#x, want +0xc", end)
	}
}
