package scenarios

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"kerninst/agent/cfg"
	"kerninst/agent/clone/plugin"
	"kerninst/agent/isa"
	"kerninst/agent/plan"
	"kerninst/agent/probe"
	"kerninst/agent/wire"
	"kerninst/lab/oracle"
	"kerninst/lab/plugins"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// clones-count: the instructions that system calls execute, by a counter in each block of a clone, are as
// many as a plugin sees that follows a task's calls outside the guest: less those of interrupts, of what is
// no part of the clone, and of what a copy leaves out, which are landing pads and ftrace's nops.

// countedOps are operations of guest/bench, and the system calls that they make: none that copies by one instruction,
// which to QEMU is as many as it has iterations.
var countedOps = []struct{ op, call string }{{"null", "getppid"}, {"seek", "lseek"}}

const countedN = 40

func countedClones() []Scenario {
	return []Scenario{{
		Name: "clones-count", Title: "instructions of system calls, by counters in the blocks of clones, are as many as are seen outside", Labels: []string{"workload", "proof"},
		Guests: countedGuests, Check: checkCountedClones,
	}}
}

func countedGuests(arch string) (out []Guest) {
	for _, o := range countedOps {
		work := []string{benchProgram, o.op, strconv.Itoa(countedN), "1"}
		seen := "seen " + o.op
		out = append(out,
			Guest{Name: seen, CPUs: 1, Time: vm.Exact, Calls: true, Text: true, Job: job(watchCalls(), watched("work", work...))},
			Guest{Name: "cloned " + o.op, CPUs: 1, Time: vm.Exact, Index: true, After: seen, Make: func(a *Answer) (*wire.Job, error) {
				s, err := probe.At{Types: a.Types}.Compile(ofBench, "count")
				if err != nil {
					return nil, err
				}
				count := []*wire.Action{{Name: "count", Snippet: s.Snippet.String()}}
				c := &wire.Cloning{Entry: syscallEntry(arch, o.call), Rules: []*wire.Rule{{Each: wire.Each_BLOCK, Actions: count}}}
				return job(
					&wire.Step{Name: "clone", Do: &wire.Step_Splice{Splice: &wire.Splice{SkipRefused: true, Clones: []*wire.Cloning{c}}}},
					&wire.Step{Name: "grown", Do: &wire.Step_Grow{Grow: &wire.Grow{Splice: "clone", Rounds: 30, Run: &wire.Run{Argv: work}}}},
					read("before"), run("work", work...), read("found"), unsplice("clone")), nil
			}})
	}
	return out
}

func checkCountedClones(t *T) {
	all := uint64(0)
	for _, o := range countedOps {
		all += t.countedClone("seen "+o.op, "cloned "+o.op, syscallEntry(t.Arch, o.call))
	}
	t.Metrics["clones.counted.insns"] = report.Metric{Value: float64(all), Unit: "insns", N: 1}
}

// countedClone compares what was counted in a clone with what was seen of its function.
func (t *T) countedClone(seen, cloned, entry string) uint64 {
	grown := t.done(cloned, "grown").Clones[0]
	in, err := plugins.Describe(t.Guests[seen].Text, []*wire.Clone{grown}, nil)
	t.noError(cloned+": what is in the clone", err)
	came := t.came(cloned, "before", "found", placeOf)
	counted, calls, told := uint64(0), uint64(0), uint64(0)
	own := map[uint64]uint64{} // what was counted of each routine of the clone, by its address
	for _, r := range in.Syscalls[0].Routines {
		for n, b := range r.Blocks {
			c := came[placed(r.Name, b.Insns[0].Offset)]
			insns := uint64(len(b.Insns))
			told += c * insns
			for _, i := range b.Insns {
				insns += t.thunk(seen, i)
			}
			if n == 0 && r.Name == entry {
				calls = c
			}
			if n == 0 && !r.Part {
				insns += t.leftOut(seen, r, b)
			}
			counted += c * insns
			own[t.addressIn(seen, r.Name)] += c * insns
		}
	}
	t.Files["clones-count-"+entry+".txt"] = t.apart(seen, entry, own)
	outside, of := seenIn(t.Guests[seen].Calls, t.addressIn(seen, entry), own)
	t.equal(cloned+": calls counted are those that were seen", calls, of)
	t.atLeast(cloned+": calls", float64(of), countedN)
	t.equal(cloned+": instructions counted are those that were seen", counted, outside)
	t.Metrics["clones."+entry+".icount"] = report.Metric{Value: float64(told) / float64(max(calls, 1)), Unit: "insns/call", N: int(calls)} // what the plugin says
	t.Metrics["clones."+entry+".insns"] = report.Metric{Value: float64(outside) / float64(max(of, 1)), Unit: "insns/call", N: int(of)}
	return counted
}

// thunk is how many instructions of a thunk an instruction leads by, which a clone compares away.
func (t *T) thunk(guest string, i *plugin.Insn) (n uint64) {
	name, at, _ := strings.Cut(i.To, "+")
	if !cfg.JumpsOn(t.Arch, name) || !strings.HasPrefix(name, "__x86_indirect_") {
		return 0
	}
	text := t.Guests[guest].Text
	f, err := text.Function("", name)
	t.noError(name, err)
	off, _ := strconv.ParseUint(at, 0, 64) // none is 0
	for a := f.Addr + isa.Addr(off); ; {
		code := make([]byte, text.Arch.MaxLen)
		t.noError(i.To, text.Read(a, code))
		x := text.Arch.Decode(code, a)
		n++
		switch a = x.End(); x.Flow {
		case isa.FlowNone:
		case isa.FlowCall: // and returns to where the register says: a retpoline
			a = x.Target
		default:
			return n
		}
	}
}

// apart is, for people, what was seen and counted of each routine itself, without what it calls.
func (t *T) apart(guest, entry string, own map[uint64]uint64) []byte {
	seen, text := map[uint64]uint64{}, t.Guests[guest].Text
	lo, _ := text.Bounds()
	t.Guests[guest].Calls.Walk(func(path []*oracle.Call) {
		c := path[len(path)-1]
		if c.Exception || slices.ContainsFunc(path, func(c *oracle.Call) bool { return c.Exception }) {
			return
		}
		n := c.Insns
		for _, d := range c.Children {
			n -= d.Insns
		}
		seen[c.Addr] += n
	})
	var b bytes.Buffer
	for _, a := range slices.Sorted(maps.Keys(own)) {
		f, _ := text.Locate(lo + isa.Addr(a-t.Guests[guest].Hello.TextStart))
		fmt.Fprintf(&b, "%s: %d counted, %d seen in all\n", f, own[a], seen[a])
	}
	return b.Bytes()
}

// leftOut is how many instructions of a routine are before its copy begins.
func (t *T) leftOut(guest string, r *plugin.Routine, first *plugin.Block) (n uint64) {
	text := t.Guests[guest].Text
	f, err := text.Function("", r.Name)
	t.noError(r.Name, err)
	offs, refused := plan.OffsetsAt(text, f, plan.Request{}, plan.EachInstruction)
	t.equal(r.Name+": is decoded", refused == nil, true)
	for _, off := range offs {
		if uint64(off) < first.Insns[0].Offset {
			n++
		}
	}
	return n
}

// addressIn is where a function of the kernel's is in a guest.
func (t *T) addressIn(guest, name string) uint64 {
	text := t.Guests[guest].Text
	f, err := text.Function("", name)
	t.noError(name, err)
	lo, _ := text.Bounds()
	return uint64(f.Addr-lo) + t.Guests[guest].Hello.TextStart
}

// seenIn is what was executed in the calls of a function, without interrupts and without calls of what is
// none of some functions, whose addresses are keys of in. What it leaves by a jump to is called by its caller,
// to who looks on from outside.
func seenIn(tree *oracle.Call, entry uint64, in map[uint64]uint64) (insns, calls uint64) {
	foreign := func(c *oracle.Call) bool {
		_, ours := in[c.Addr]
		return c.Exception || !ours
	}
	callers := map[uint64]bool{}
	tree.Walk(func(path []*oracle.Call) {
		if n := len(path) - 1; n > 0 && path[n].Addr == entry {
			callers[path[n-1].Addr] = true
		}
	})
	tree.Walk(func(path []*oracle.Call) {
		n := len(path) - 1
		last, k := path[n], 1+slices.IndexFunc(path, func(c *oracle.Call) bool { return callers[c.Addr] })
		if k == 0 || k > n || slices.ContainsFunc(path[k:n], foreign) {
			return
		}
		switch {
		case k < n && foreign(last):
			insns -= last.Insns
		case k == n && !foreign(last):
			insns += last.Insns
		}
		if last.Addr == entry {
			calls += last.Calls
		}
	})
	return insns, calls
}
