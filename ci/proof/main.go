// Proof runs the long proofs and prints one line for each and each ISA:
//
//	proof NAME arch n seed result
//
// n is how often the thing was tried, from the results that the lab wrote;
// result is the scenario's status. Classes of what was tried that are figures of
// their own follow, as NAME/CLASS. The exit status is 1 when one did not pass, and 2
// for a wrong call. What went wrong is said on standard error.
//
// A proof is a scenario with the label "proof", a test that does all of its work
// with -full, a kernel that is not the locked one, or a fuzz target. To add one, add a row to its table. A name of which
// others are extensions means them all, if there is none of that name itself ("fuzz").
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"kerninst/lab/report"
	"kerninst/lab/status"
)

// proof is one that can be asked for.
type proof struct {
	name string
	each bool // once for each ISA; otherwise the line says "any"
	run  func(p proof, arch string, seed uint64) []line
}

// scenarioProof is a scenario, the time that it runs in, and the metrics that are its n
// and those of its classes.
type scenarioProof struct {
	name, clock, n string
	classes        []class
}

// class is a part of what a scenario tries, by the metric that is its n. Nil: each ISA has it; else those do.
type class struct {
	name, n string
	on      []string
}

var scenarioProofs = []scenarioProof{
	{"toggle", "exact", "storm.toggles", boards},
	{"toggle-variants", "exact", "storm.toggles", boards},
	{"oracle", "exact", "oracle.1cpu.points", drawn("oracle.1cpu")},
	{"oracle-variants", "exact", "oracle.{variant}.points", drawn("oracle.{variant}")},
	{"poison", "exact", "oracle.poison-1cpu.points", drawn("oracle.poison-1cpu")},
	{"verdict", "exact", "verdict.points", []class{{"refused", "verdict.refused", nil}}},
	{"every", "exact", "every.1cpu.executed", nil},
	{"module", "exact", "module.1cpu.executed", nil},
	{"inlined", "exact", "inlined.copies", []class{{"executed", "inlined.1cpu.executed", nil}}},
	{"inside", "exact", "inside.interrupts", nil},
	{"backtraces", "host", "backtraces.patch.inside", []class{{"load", "backtraces.load.inside", nil}, {"copy", "backtraces.copy.inside", amd64}, {"annex", "backtraces.annex.inside", amd64}}},
	{"churn-long", "host", "churn.operations", []class{{"2cpu", "churn.2cpu.operations", nil}, {"4cpu", "churn.4cpu.operations", nil}, {"exact", "churn.exact", nil}}},
	{"churn-variants", "host", "churn.operations", []class{{"exact", "churn.exact", nil}}},
	{"fails", "host", "fails.tried", nil},
	{"kills-long", "host", "kills.tried", nil},
	{"power", "host", "power.sleeps", []class{{"points", "power.points", nil}}},
	{"kexec", "host", "kexec.points", nil},
	{"device-long", "host", "device.calls", []class{{"nobody", "device.calls.nobody", nil}, {"spliced", "device.spliced", nil}, {"copies", "device.spliced.copies", nil}, {"resumes", "device.spliced.resumes", nil}}},
	{"safety", "exact", "safety.splices.points", nil},
	{"bounds", "exact", "bounds.kprobes", nil},
	{"unprobed", "exact", "unprobed.all", []class{{"some", "unprobed.some", nil}, {"optimised", "unprobed.some.optimised", amd64}}},
	{"exhausted", "exact", "exhausted.refused", nil},
	{"cover", "exact", "cover.found", nil},
	{"density", "exact", "density.counted", []class{{"flow", "density.flow.sums.came", nil}}},
	{"density-kernel", "exact", "density.counted", []class{{"flow", "density.flow.sums.came", nil}}},
	{"peers", "exact", "peers.answers", nil},
	{"granularities", "exact", "blocks.splice.points", []class{{"calls", "counted.splice.points", nil}}},
	{"granularities-slice", "exact", "blocks.splice.points", []class{{"calls", "counted.splice.points", nil}}},
	{"apache", "exact", "blocks.splice.points", []class{{"calls", "counted.splice.points", nil}}},
	{"apache-slice", "exact", "blocks.splice.points", []class{{"calls", "counted.splice.points", nil}}},
	{"clones", "exact", "clones.blocks.functions", []class{{"came", "clones.blocks.came", nil}}},
	{"clones-slice", "exact", "clones.blocks.functions", []class{{"came", "clones.blocks.came", nil}}},
	{"clones-ablation", "exact", "clones.blocks.functions", []class{{"came", "clones.blocks.came", nil}}},
	{"clones-apache", "exact", "clones.blocks.functions", []class{{"came", "clones.blocks.came", nil}}},
	{"chosen", "exact", "chosen.blocks", nil},
	{"clones-count", "exact", "clones.counted.insns", nil},
	{"clones-answers-slice", "exact", "answers", []class{{"blocks", "answers.blocks", nil}}},
	{"clones-answers", "exact", "answers", []class{{"blocks", "answers.blocks", nil}}},
	{"clones-execve", "exact", "clones.execve.other", nil},
	{"clones-left", "exact", "clones.left.sleepers", nil},
	{"clones-storm", "exact", "clones.storm.turned", []class{{"rounds", "clones.storm.rounds", nil}}},
	{"clones-told", "exact", "clones.told.blocks", nil},
	{"clones-storm-variants", "exact", "clones.storm.turned", []class{{"rounds", "clones.storm.rounds", nil}}},
	{"clones-storm-long", "exact", "clones.storm.turned", []class{{"rounds", "clones.storm.rounds", nil}}},
	{"beside", "exact", "beside.spliced", nil},
	{"batch", "exact", "batch.points", nil},
	{"trap-path", "exact", "trap-path.instructions", nil},
	{"tracers", "exact", "tracers.executed", []class{{"all", "tracers.all.spliced", nil}}},
	{"rewrites", "host", "rewrites.points", nil},
	{"arms", "host", "arms.points", nil},
	{"traces", "host", "traces.points", nil},
	{"attaches", "host", "attaches.points", nil},
	{"programs", "exact", "programs.counted", []class{{"points", "programs.points", nil}}},
	{"unloads", "host", "unloads.points", nil},
	{"hotplug", "host", "hotplug.points", nil},
	{"loads", "host", "loads.2cpu.process.faults", []class{{"stack", "loads.2cpu.task-stack.hits", nil}}},
	{"loads-variants", "host", "loads.{variant}.process.faults", []class{{"stack", "loads.{variant}.task-stack.hits", nil}, {"stack-preempt", "loads.preempt.task-stack.hits", amd64}}},
	{"squid-long", "exact", "squid.requests", nil},
	{"squid-broken", "exact", "broken.ways", nil},
	{"apache-broken", "exact", "broken.ways", nil},
	{"squid-study", "exact", "study.diagnosed.levels", []class{{"virtual", "study.virtual.levels", nil}, {"planted", "study.planted.levels", nil}}},
	{"equivalence-annex", "exact", "annex.1cpu.runs", []class{{"faults", "annex.1cpu.faults", nil}, {"forms", "annex.forms.covered", nil}, {"parts", "annex.apart.apart", nil}}},
	{"ab-long", "host", "pairs", nil},
	{"lmbench-long", "exact", "operations", nil},
	{"lmbench-probes", "exact", "spliced.calls.points", nil},
	{"lmbench-probes-equal", "exact", "operations", nil},
	{"lmbench-probes-planted", "exact", "operations", nil},
	{"squid-probes", "exact", "spliced.places.points", nil},
	{"squid-probes-equal", "exact", "requests", nil},
	{"squid-probes-planted", "exact", "requests", nil},
}

// boards are the toggles of points that are reached by a springboard, which arm64 needs none of.
var boards = []class{{"springboard", "storm.springboard.toggles", []string{"amd64", "riscv64"}}}

// amd64 alone has what repeats itself, kprobes that are jumps, and patches that copy a springboard's way.
var amd64 = []string{"amd64"}

// firstVariant is the guest of the variants' that each ISA has first, for which a metric's name has {variant}.
var firstVariant = map[string]string{"amd64": "nokaslr", "arm64": "nokaslr", "riscv64": "sifive-u54"}

// on is a metric's name on an ISA.
func on(arch, metric string) string {
	return strings.ReplaceAll(metric, "{variant}", firstVariant[arch])
}

// drawn are the classes of drawn points that others cannot speak for.
func drawn(guest string) []class {
	return []class{{"modules", guest + ".modules.points", nil}, {"rep", guest + ".rep.points", amd64}, {"memory", guest + ".memory.points", nil}, {"exception", guest + ".exception.points", nil}}
}

// proofs are all there are.
func proofs(how fuzzing) (out []proof) {
	for _, s := range scenarioProofs {
		out = append(out, proof{s.name, true, s.prove})
	}
	for _, x := range testProofs {
		out = append(out, proof{x.name, true, x.prove})
	}
	for _, k := range kernelProofs {
		out = append(out, proof{"kernels-" + k.version, true, k.prove})
	}
	for _, f := range fuzzers {
		out = append(out, proof{f.name, f.each(), func(p proof, arch string, seed uint64) []line { return []line{f.prove(p, arch, seed, how)} }})
	}
	return out
}

func main() {
	name := flag.String("name", "", "one proof; all otherwise")
	arches := flag.String("arch", "amd64,arm64,riscv64", "ISAs, separated by commas")
	seed := flag.Uint64("seed", 1, "seed of the guests")
	fuzzTime := flag.Duration("fuzztime", 10*time.Minute, "how long each fuzz target runs")
	others := flag.Duration("fuzzothers", 0, "how long those run that are no readers; 0: as long")
	fresh := flag.Bool("fuzzfresh", false, "fuzz from the repository's inputs alone, not from what was found on this host before")
	jobs := flag.Int("jobs", 1, "how many proofs run at once; fuzz targets share the CPUs")
	flag.Parse()
	if t := os.Getenv("PROOF_TIME"); t != "" {
		if _, err := time.ParseDuration(t); err != nil {
			fmt.Fprintf(os.Stderr, "proof: PROOF_TIME=%s is no duration, as 10m: %v\n", t, err)
			os.Exit(status.ExitUsage)
		}
	}
	how := fuzzing{*fuzzTime, *others, max(1, runtime.GOMAXPROCS(0)/max(1, *jobs)), *fresh}
	if *others == 0 {
		how.others = *fuzzTime
	}
	isas, err := listed(*arches)
	if err != nil {
		fmt.Fprintln(os.Stderr, "proof:", err)
		os.Exit(status.ExitUsage)
	}
	var work []func() []line
	for _, p := range named(proofs(how), *name) {
		list := []string{"any"}
		if p.each {
			list = isas
		}
		for _, arch := range list {
			work = append(work, func() []line { return p.run(p, arch, *seed) })
		}
	}
	failed := false
	inOrder(work, max(1, *jobs), func(l line) {
		fmt.Println(l)
		failed = failed || l.result != status.Passed
	})
	switch {
	case len(work) == 0:
		fmt.Fprintf(os.Stderr, "proof: there is none called %q\n", *name)
		os.Exit(status.ExitUsage)
	case failed:
		os.Exit(status.ExitFailed)
	}
}

// named are the proofs that a name means: the one of that name, or else all that it begins;
// "" means all.
func named(all []proof, name string) (out []proof) {
	for _, p := range all {
		switch {
		case p.name == name:
			return []proof{p}
		case name == "" || strings.HasPrefix(p.name, name+"-"):
			out = append(out, p)
		}
	}
	return out
}

// known are all ISAs.
var known = []string{"amd64", "arm64", "riscv64"}

// listed are the ISAs of a list; "all" is all.
func listed(list string) ([]string, error) {
	if list == "all" {
		return known, nil
	}
	out := strings.Split(list, ",")
	for _, a := range out {
		if !slices.Contains(known, a) {
			return nil, fmt.Errorf("-arch %s: %q is none of %s, all", list, a, strings.Join(known, ", "))
		}
	}
	return out, nil
}

// inOrder does work, some of it at once, and says what came out in its order.
func inOrder(work []func() []line, jobs int, say func(line)) {
	lines, running := make([]chan []line, len(work)), make(chan struct{}, jobs)
	for k := range lines {
		lines[k] = make(chan []line, 1)
	}
	go func() {
		for k, w := range work {
			running <- struct{}{}
			go func() {
				lines[k] <- w()
				<-running
			}()
		}
	}()
	for _, c := range lines {
		for _, l := range <-c {
			say(l)
		}
	}
}

// line is the answer to one proof on one ISA.
type line struct {
	name, arch string
	n, seed    uint64
	result     status.Status
}

func (l line) String() string {
	return fmt.Sprintf("proof %s %s %d %d %s", l.name, l.arch, l.n, l.seed, l.result)
}

// prove runs the lab and reads what it says. A lab that says nothing failed.
func (s scenarioProof) prove(_ proof, arch string, seed uint64) []line {
	cmd := exec.Command("bin/lab", "run", "--json", "--arch", arch, "--scenario", s.name, "--time", s.clock, "--seed", fmt.Sprint(seed))
	var stdout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Fprintf(os.Stderr, "proof: %s on %s: %v\n", s.name, arch, err)
	}
	return s.read(stdout.Bytes(), arch, seed)
}

// read takes n and the result from the lab's JSON: one ISA, one scenario.
func (s scenarioProof) read(text []byte, arch string, seed uint64) []line {
	l := line{s.name, arch, 0, seed, status.LabFailed}
	var all []report.Results
	if err := json.Unmarshal(text, &all); err != nil || len(all) != 1 || len(all[0].Scenarios) != 1 {
		fmt.Fprintf(os.Stderr, "proof: %s on %s: not the results of one scenario (%v)\n", l.name, l.arch, err)
		return []line{l}
	}
	result := all[0].Scenarios[0]
	if r := all[0]; r.Arch != arch || r.Seed != seed || result.Name != s.name {
		fmt.Fprintf(os.Stderr, "proof: %s on %s with seed %d: the results are of %s on %s with seed %d\n", l.name, arch, seed, result.Name, r.Arch, r.Seed)
		return []line{l}
	}
	result.Status = status.Worst(result.Status, all[0].Status)
	m, counted := result.Metrics[on(arch, s.n)]
	out := []line{l.tried(result.Status, m.Value, on(arch, s.n), counted)}
	for _, c := range s.classes {
		m, ok := result.Metrics[on(arch, c.n)]
		if has := c.on == nil || slices.Contains(c.on, arch); has && (ok || result.Status == status.Passed) {
			l.name = s.name + "/" + c.name
			out = append(out, l.tried(result.Status, m.Value, on(arch, c.n), ok))
		}
	}
	return out
}

// tried is the line with n and a result, which is no success if nothing was tried.
func (l line) tried(result status.Status, n float64, metric string, counted bool) line {
	l.n, l.result = uint64(n), result
	if l.result == status.Passed && n < 1 {
		fmt.Fprintf(os.Stderr, "proof: %s on %s passed without having tried anything (%s there: %v)\n", l.name, l.arch, metric, counted)
		l.result = status.Failed
	}
	return l
}
