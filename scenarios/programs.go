package scenarios

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onsi/gomega"

	"kerninst/agent/plan"
	"kerninst/agent/wire"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// programs: BPF's programs at the begin and the ends of functions, by ftrace's trampolines and by kprobes, while each
// instruction of these is spliced: some are there before, some come and outlive the splices. Both count each call. And they come to functions that run as copies.

// programmed are functions that have programs; of the first the calls are known. All of their instructions are spliced, but of
// stores, which is called as often, the entry.
var programmed = []string{sends, "vfs_read", "vfs_write", "try_to_wake_up", "handle_mm_fault", "do_sys_openat2", stores}

// programsRound is what of BPF's is there, and when it comes. Only a kprobe in a function bars it from us.
type programsRound struct {
	name    string
	kinds   []string
	behind  bool // the splices
	refused bool
	at      string // where kprobes are in their functions; empty: at the begin
}

var programsRounds = []programsRound{
	trampolined("before"),
	{name: "kprobed", kinds: []string{"kprobe"}, refused: true},
	{name: "beside", kinds: []string{"fentry", "fexit", "kprobe", "kretprobe"}, behind: true},
}

// trampolined is a round whose programs ftrace's sites lead to.
func trampolined(name string) programsRound {
	return programsRound{name: name, kinds: []string{"fentry", "fexit"}}
}

// on is the round on an ISA. riscv64's kernel has no kprobe at an ftrace site, with which each function begins: those
// are behind it, where a splice is, and none tells of returns.
func (r programsRound) on(arch string) programsRound {
	if arch == "riscv64" {
		r.at = "+8"
		r.kinds = slices.DeleteFunc(slices.Clone(r.kinds), func(kind string) bool { return kind == "kretprobe" || r.behind && kind == "kprobe" })
	}
	return r
}

func programs() []Scenario {
	return []Scenario{{Name: "programs", Title: "BPF's programs come to functions before they are spliced, while they are, and stay when they are not: both count each call",
		Labels: []string{"counts", "proof"}, Guests: programsGuests, Check: checkPrograms}}
}

// attach runs bpftrace until it is told to end, and waits until its programs are there: then it starts what it is given.
// Who waits looks again and again, as files wake nobody.
func (r programsRound) attach(functions ...string) *wire.Step {
	var text strings.Builder
	for _, kind := range r.kinds {
		at := ""
		if kind == "kprobe" {
			at = r.at
		}
		for _, f := range functions {
			fmt.Fprintf(&text, `%s:%s%s { @%[1]s_%[2]s = count(); } `, kind, f, at)
		}
	}
	return shell("attach "+r.name, `rm -f /run/there /run/over /run/said; printf 'touch /run/there; while [ ! -e /run/over ]; do sleep 0.2; done' >/run/hold
		/usr/bin/bpftrace -f json -o /run/answer -e '`+text.String()+`' -c '/bin/sh /run/hold' </dev/null >/run/said 2>&1 & echo $! >/run/pid
		until [ -e /run/there ]; do kill -0 $! || { cat /run/said >&2; exit 1; }; sleep 0.5; done`)
}

func (r programsRound) detach() *wire.Step {
	return shell("detach "+r.name, "touch /run/over; while kill -0 $(cat /run/pid) 2>/dev/null; do sleep 0.2; done; cat /run/said >&2; cat /run/answer")
}

// programsWork calls the first of programmed as often as programsCalls says.
func programsWork(name string) *wire.Step {
	return run(name, benchProgram, "sizes", strconv.Itoa(sentLengths), "1")
}

const programsCalls = 2 * sentLengths

func (r programsRound) steps() []*wire.Step {
	points := []*wire.Point{entry(stores)}
	for _, f := range programmed {
		if f == stores {
			continue
		}
		points = append(points, &wire.Point{Function: f, Each: wire.Each_INSTRUCTION})
	}
	begin := []*wire.Step{r.attach(programmed...), skipping("splice "+r.name, points)}
	switch {
	case r.refused:
		return []*wire.Step{begin[0], mayFail(begin[1]), programsWork("work " + r.name), r.detach()}
	case r.behind:
		slices.Reverse(begin)
	}
	return append(begin, programsWork("work "+r.name), read("count "+r.name), unsplice("splice "+r.name), programsWork("rest "+r.name), r.detach())
}

func programsGuests(arch string) []Guest {
	steps := []*wire.Step{snapshot("before", "")}
	for _, r := range programsRounds {
		steps = append(steps, r.on(arch).steps()...)
	}
	return []Guest{{Name: "guest", CPUs: 1, Time: vm.Exact, Boots: true, Software: []string{"bpftrace"}, RunTimeout: 30 * time.Minute,
		Job: job(append(steps, snapshot("after", "before"))...)}, programsCopied(arch)}
}

// Programs come to functions that run as copies, and go: meanwhile the original runs of the one that is called, and
// the one that is entered does as a copy, behind its program. Then a clone is made of what calls one that has programs.
var programsArrive, programsThere = trampolined("arriving"), trampolined("there")

// stores is called once for each message that is received, which are as many as were sent, below that system call.
const stores = "store_msg"

func receiveEntry(arch string) string { return syscallEntry(arch, "msgrcv") }

func programsCopied(arch string) Guest {
	clone := func(name string) []*wire.Step {
		c := &wire.Cloning{Entry: receiveEntry(arch), Rules: []*wire.Rule{{}}}
		return []*wire.Step{{Name: name, Do: &wire.Step_Splice{Splice: &wire.Splice{SkipRefused: true, Clones: []*wire.Cloning{c}}}}, read(name + " is live"),
			{Name: name + " grown", Do: &wire.Step_Grow{Grow: &wire.Grow{Splice: name, Rounds: 30, Run: programsWork("").GetRun()}}}}
	}
	both := []string{receiveEntry(arch), stores}
	steps := slices.Concat([]*wire.Step{snapshot("before", "")}, clone("first"), []*wire.Step{
		read("first begins"), programsWork("work alone"), read("alone"),
		programsArrive.attach(both...), read("first goes on"), programsWork("work arriving"), read("arriving"), programsArrive.detach(),
		read("first ends"), programsWork("work left"), read("left"), unsplice("first"),
		programsThere.attach(stores)}, clone("second"), []*wire.Step{
		read("second begins"), programsWork("work there"), read("there"), programsThere.detach(),
		read("second ends"), programsWork("work last"), read("last"), unsplice("second"), snapshot("after", "before")})
	return Guest{Name: "copied", CPUs: 1, Time: vm.Exact, Boots: true, Index: true, Software: []string{"bpftrace"}, RunTimeout: 30 * time.Minute,
		Job: job(steps...)}
}

// programsCounted reads what bpftrace counted, by its names.
func programsCounted(out []byte) (map[string]uint64, error) {
	all := map[string]uint64{}
	for line := range bytes.Lines(out) {
		var said struct {
			Type string
			Data map[string]uint64
		}
		if json.Unmarshal(line, &said) == nil && said.Type == "map" {
			maps.Copy(all, said.Data)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("bpftrace counted nothing: %.200q", out)
	}
	return all, nil
}

func mapOf(kind, function string) string { return "@" + kind + "_" + function }

// programsCopied returns how many calls programs counted of what runs as a copy.
func (t *T) programsCopied() (counted uint64) {
	const g = "copied"
	entered := receiveEntry(t.Arch)
	t.Files["programs-first.txt"], t.Files["programs-second.txt"] = composition(t.done(g, "first grown").Clones), composition(t.done(g, "second grown").Clones)
	for _, w := range []struct {
		from, to string
		copied   bool // what is called is, and runs as a copy
	}{{"first begins", "alone", true}, {"first goes on", "arriving", false}, {"first ends", "left", true}, {"second begins", "there", false}, {"second ends", "last", false}} {
		came := t.came(g, w.from, w.to, symbolOf)
		t.equal(w.to+": calls counted of "+entered, came[entered], uint64(programsCalls))
		inCopy := uint64(0)
		if w.copied {
			inCopy = programsCalls
		}
		t.equal(w.to+": calls counted of the copy of "+stores, came[stores], inCopy)
	}
	for _, w := range []struct {
		round     programsRound
		functions []string
		from, to  string // when we counted each call that programs did
	}{{programsArrive, []string{entered, stores}, "first goes on", "arriving"}, {programsThere, []string{stores}, "second is live", "there"}} {
		did := t.came(g, w.from, w.to, symbolOf)[entered]
		bpf, err := programsCounted(t.ran(g, "detach "+w.round.name)[0])
		t.noError(w.round.name+": what bpftrace counted", err)
		for _, kind := range w.round.kinds {
			for _, f := range w.functions {
				t.equal(w.round.name+": "+kind+" of "+f+" counted", bpf[mapOf(kind, f)], did)
				counted += bpf[mapOf(kind, f)]
			}
		}
	}
	why := map[string]string{}
	for _, l := range t.done(g, "second grown").Clones[0].Left {
		why[l.Function] = l.Refusal.Reason
	}
	t.equal("second: why "+stores+", which has programs, is not copied", why[stores], plan.Foreign.String())
	t.equal("copied: ranges of text that differ afterwards", len(t.done(g, "after").Text.Differing), 0)
	return counted
}

func checkPrograms(t *T) {
	const g = "guest"
	counted, points := uint64(0), 0
	for _, r := range programsRounds {
		r = r.on(t.Arch)
		t.ran(g, "attach "+r.name)
		bpf, err := programsCounted(t.ran(g, "detach "+r.name)[0])
		t.expect(r.name+": what bpftrace counted", err, "no error", gomega.Succeed())
		t.ran(g, "work "+r.name)
		did := uint64(programsCalls)
		if r.refused {
			t.expect(r.name+": the batch", t.result(g, "splice "+r.name).Error, "refused for a kprobe", gomega.ContainSubstring("a kprobe is registered in the function"))
		} else {
			made := t.made(g, "splice "+r.name)
			points += len(made)
			t.equal(r.name+": the entry is had, whoever traces it", t.done(g, "splice "+r.name).Points[0].Refusal == nil, true)
			t.equal(r.name+": our counter = what the workload did", t.value(g, "count "+r.name, made[0]), did)
			t.ran(g, "rest "+r.name)
			did *= 2
		}
		for _, kind := range r.kinds {
			t.equal(r.name+": "+kind+" counted", bpf[mapOf(kind, sends)], did)
			counted += bpf[mapOf(kind, sends)]
			for _, f := range programmed[1:] {
				t.atLeast(r.name+": "+kind+" of "+f+" counted", float64(bpf[mapOf(kind, f)]), 1)
			}
		}
	}
	counted += t.programsCopied()
	t.atLeast("points that were live beside programs", float64(points), 500)
	t.equal("ranges of text that differ afterwards", len(t.done(g, "after").Text.Differing), 0)
	t.Metrics["programs.counted"] = report.Metric{Value: float64(counted), Unit: "counts", N: 1}
	t.Metrics["programs.points"] = report.Metric{Value: float64(points), Unit: "points", N: 1}
}
