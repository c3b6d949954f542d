package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onsi/gomega"

	"kerninst/agent/plan"
	"kerninst/agent/wire"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// batch: thousands of points at once, in one batch that is written with few
// synchronisations and undone likewise, and how long that takes beside registering as
// many kprobes at the same addresses. The daemon has planned and spliced others before, and
// the kernel's text is known.

// batched are the points of the batch, and batchDrawn the functions of which it takes one
// instruction each, for as long as there are some.
const (
	batched    = 5000
	batchDrawn = 8000
)

// batchNames lists functions that no other has the name of, evenly spread over the text: but
// for handle_break of riscv64, in which Debian's 6.12.107 lets a kprobe be put and is then
// caught in for good.
var batchNames = fmt.Sprintf(`awk 'NF==3 && ($2=="t"||$2=="T") && $3!~/[.$]|^__(pfx|cfi|probestub|traceiter|SCT|SCK)_|^__inittext|_end$|_start$|^handle_break$/ {n[$3]++; o[++k]=$3}
END {for (i=1;i<=k;i++) if (n[o[i]]==1) u[++m]=o[i]; for (i=0;i<%[1]d;i++) print u[int(i*m/%[1]d)+1]}' /proc/kallsyms`, batchDrawn)

func batches() []Scenario {
	return []Scenario{{
		Name: "batch", Title: fmt.Sprintf("%d points in one batch, and as many kprobes at the same addresses", batched), Labels: []string{"proof"},
		Guests: batchGuests, Check: checkBatch,
	}}
}

func batchGuests(arch string) []Guest {
	return []Guest{
		{Name: "names", CPUs: 1, Time: vm.Exact, Job: job(shell("names", batchNames))},
		{Name: "guest", CPUs: 1, Time: vm.Exact, After: "names", Index: true, RunTimeout: time.Hour, Make: func(names *Answer) (*wire.Job, error) {
			functions, err := listed(names)
			if err != nil {
				return nil, err
			}
			var points []*wire.Point
			for name := range strings.FieldsSeq(functions) {
				points = append(points, somewhere(name))
			}
			all := skipping("batch", points)
			all.GetSplice().Most = batched
			return job(noOptprobes(), snapshot("before", ""), skipping("first", points[batched:]), unsplice("first"), all, bench("work", "null", 1), read("counts"), unsplice("batch"),
				snapshot("after", "before"), kprobes("kprobes", "batch"), unkprobes("kprobes")), nil
		}},
	}
}

func checkBatch(t *T) {
	const g = "guest"
	made := t.made(g, "batch")
	t.equal("points of the batch", len(made), batched)
	mechanisms := map[string]int{}
	for _, p := range made {
		mechanisms[p.Mechanism]++
	}
	for m, n := range mechanisms {
		t.Metrics["batch."+m] = report.Metric{Value: float64(n), Unit: "points", N: 1}
	}
	t.benches(g, "work")
	came := 0
	for _, v := range t.done(g, "counts").Values {
		if v.Count > 0 {
			came++
		}
	}
	t.atLeast("points that a few system calls come by", float64(came), 100)
	t.equal("ranges of text that differ afterwards", len(t.done(g, "after").Text.Differing), 0)
	refused := 0
	for _, p := range t.done(g, "kprobes").Points {
		if p.Refusal != nil {
			refused++
		}
	}
	t.Metrics["batch.points"] = report.Metric{Value: float64(len(made)), Unit: "points", N: 1}
	t.Metrics["batch.kprobes-refused"] = report.Metric{Value: float64(refused), Unit: "points", N: 1}
	kprobe := t.stages("kprobe", g, "kprobes", batched-refused)
	splice := t.stages("splice", g, "batch", batched)
	t.stages("undo", g, "unbatch", batched)
	t.Metrics["batch.rate"] = report.Metric{Value: kprobe / splice, Unit: "x", Better: report.Higher, N: batched}
}

// stages files what each part of a step took for one of n points, in instructions, and
// answers with the sum.
func (t *T) stages(as, guest, step string, n int) (sum float64) {
	for k, s := range t.done(guest, step).Stages {
		each := float64(s.Ns) / float64(n)
		sum += each
		t.Metrics[fmt.Sprintf("batch.%s.%d.%s", as, k, strings.ReplaceAll(strings.ReplaceAll(s.Name, ",", ""), " ", "-"))] = report.Metric{Value: each, Unit: "insns/point", Better: report.Lower, N: n}
	}
	t.Metrics["batch."+as] = report.Metric{Value: sum, Unit: "insns/point", Better: report.Lower, N: n}
	return sum
}

// waits: windows are asked for, and forbidden; while they are written, how many wait can
// be read; and a point says why it is not reached otherwise.

// waiters are so many points, far enough apart for windows.
const waiters = 12

// watchWaiting writes down what the module says for as long as it is not killed.
const watchWaiting = `{ while :; do cat /sys/module/kerninst/parameters/waiting; sleep 0.01; done >/tmp/waiting 2>/dev/null </dev/null & echo $! >/tmp/watcher; }`

func waits() []Scenario {
	return []Scenario{{
		Name: "waits", Title: "windows are asked for, forbidden, and seen to wait", Labels: []string{"counts"},
		Guests: waitsGuests, Check: checkWaits,
	}}
}

// windowed are points at windows, and the same points with something else.
func windowed(mechanism string, without ...string) (out []*wire.Point) {
	for k := range uint64(waiters) {
		out = append(out, &wire.Point{Function: "copy_process", Offset: 24 + 96*k, Search: mechanism != "", Mechanism: mechanism, Without: without})
	}
	return out
}

func waitsGuests(arch string) []Guest {
	steps := []*wire.Step{shell("watch", watchWaiting)}
	if hasWindows(arch) {
		steps = append(steps, splice("windows", windowed("quiesced")...), read("counts"), unsplice("windows"))
	}
	return []Guest{{Name: "guest", CPUs: 1, Time: vm.Exact, Job: job(append(steps,
		shell("waited", "kill $(cat /tmp/watcher); sort -nu /tmp/waiting | tr '\\n' ' '"),
		skipping("others", windowed("", "quiesced")), unsplice("others"),
		mayFail(splice("none", &wire.Point{Function: syscallEntry(arch, "getppid"), Search: true, Mechanism: "jump", Without: []string{"jump"}})),
		skipping("every", []*wire.Point{{Function: "vfs_read", Each: wire.Each_INSTRUCTION}}))...)}}
}

// hasWindows reports whether an ISA replaces several instructions at once.
func hasWindows(arch string) bool { return slices.Contains(plan.Ladder(arch), plan.Quiesced) }

func checkWaits(t *T) {
	const g = "guest"
	want := "0 "
	if t.Arch == "amd64" { // on the others all stand still while windows are written
		want = fmt.Sprintf("0 %d ", waiters)
	}
	if hasWindows(t.Arch) {
		for _, p := range t.done(g, "windows").Points {
			t.equal(p.Spec+": mechanism", p.Mechanism, plan.Quiesced.String())
		}
	}
	t.equal("windows that were seen to wait", string(t.ran(g, "waited")[0]), want)
	for _, p := range t.done(g, "others").Points {
		t.expect(p.Spec+": mechanism, without windows", p.Mechanism, "another", gomega.Not(gomega.Equal(plan.Quiesced.String())))
	}
	ladder := plan.Rungs(t.Arch)
	for _, p := range t.made(g, "every") {
		var passed []string
		for _, r := range p.Passed {
			name, _, _ := strings.Cut(r.Detail, ":")
			passed = append(passed, name)
		}
		passed = append(passed, p.Mechanism)
		t.equal(p.Spec+": what was tried", passed, strings.Fields(strings.Trim(fmt.Sprint(ladder[:min(len(passed), len(ladder))]), "[]")))
	}
	t.expect("what is both asked for and forbidden", t.result(g, "none").Error, "is refused", gomega.ContainSubstring("forbidden"))
}
