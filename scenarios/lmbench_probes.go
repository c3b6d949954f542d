package scenarios

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/onsi/gomega"

	"kerninst/agent/probe"
	"kerninst/agent/wire"
	"kerninst/lab/measure"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// lmbench-probes: what it costs to count each system call of a kernel, by splices and by
// the kernel's own kprobes at the same places, in what LMbench's operations take.
//
// Guests of one seed run the same program: bare; with a counter behind the entry of every
// system call's function; with a kprobe there that only counts. What the two count is
// compared too, call by call, and again along the way on which a file is opened.
//
// All have spliced and taken back the same points before, so that their kernels have
// done as much and their memory is as full.

const (
	probedSamples = 7
	// pathSamples are those of the run that only counts.
	pathSamples = 2
	// controlSamples are those of two guests that have to be equal whatever they find.
	controlSamples = 3
)

// openPath are functions that an open goes through; not every build has each of them as
// a function, or whole.
var openPath = []string{
	"do_sys_openat2", "build_open_flags", "getname_flags", "get_unused_fd_flags", "alloc_fd",
	"do_filp_open", "path_openat", "alloc_empty_file", "init_file", "path_init", "link_path_walk",
	"open_last_lookups", "lookup_open", "lookup_fast", "step_into", "complete_walk", "may_open",
	"inode_permission", "vfs_open", "do_dentry_open", "terminate_walk", "fd_install", "filp_close", "__fput",
}

// openLoad are the operations that open files, and how many of them a sample has.
var openLoad = []string{"Stat", "OpenClose", "FileCreate/0K"}

const opensOfSample = 192 + 48

// controlLoad are operations of few system calls.
var controlLoad = []string{"Null", "Read", "Write", "Stat", "Fstat", "OpenClose"}

func lmbenchProbes() []Scenario {
	return []Scenario{
		{Name: "lmbench-probes", Title: "what counting every system call adds to LMbench's operations, by splices and by kprobes, and what they count",
			Labels: []string{"measure"}, Guests: probesGuests, Check: checkProbes},
		{Name: "lmbench-probes-equal", Title: "a control: two bare guests, of which one adds nothing to the other",
			Labels: []string{"measure"}, Guests: equalGuests, Check: checkEqual},
		{Name: "lmbench-probes-planted", Title: "a control: an operation whose splice is dearer than it should be is over its budget, and no other is",
			Labels: []string{"measure"}, Guests: plantedGuests, Check: checkPlanted},
	}
}

// probed is a guest whose job is made when the kernel's symbols are known.
func probed(arch, name string, steps func(calls, path []*wire.Point) []*wire.Step) Guest {
	return Guest{Name: name, CPUs: 1, Time: vm.Exact, RunTimeout: 4 * probedSamples * lmbenchPatience, After: "names",
		Make: func(names *Answer) (*wire.Job, error) {
			calls, path, err := probedPlaces(arch, string(names.Results["names"].GetRuns()[0].GetStdout()))
			if err != nil {
				return nil, err
			}
			before := []*wire.Step{noOptprobes(), skipping("place", calls), unsplice("place")}
			return job(append(before, steps(calls, path)...)...), nil
		}}
}

// skipping is a splice without what is refused.
func skipping(name string, points []*wire.Point) *wire.Step {
	s := splice(name, points...)
	s.GetSplice().SkipRefused = true
	return s
}

// measured runs operations, all if none is named.
func measured(samples int, names ...string) *wire.Step {
	return run("work", append([]string{lmbenchProgram, strconv.Itoa(samples)}, names...)...)
}

// namesGuest lists the symbols of which points may be made.
func namesGuest(arch string) Guest {
	list := shell("names", fmt.Sprintf(`grep -E ' [tT] (%s|(%s)(\.|$))' /proc/kallsyms`, syscallEntry(arch, ""), strings.Join(openPath, "|")))
	return Guest{Name: "names", CPUs: 1, Time: vm.Exact, Job: job(list)}
}

func probesGuests(arch string) []Guest {
	work := measured(probedSamples)
	opens := measured(pathSamples, openLoad...)
	opens.Name = "opens"
	return []Guest{
		namesGuest(arch),
		probed(arch, "bare", func(calls, path []*wire.Point) []*wire.Step { return []*wire.Step{work} }),
		probed(arch, "spliced", func(calls, path []*wire.Point) []*wire.Step {
			return []*wire.Step{skipping("calls", calls), work, read("calls-counts"), unsplice("calls"),
				skipping("path", path), opens, read("path-counts"), unsplice("path")}
		}),
		probed(arch, "kprobed", func(calls, path []*wire.Point) []*wire.Step {
			return []*wire.Step{kprobes("kprobes-calls", "place"), work, unkprobes("kprobes-calls"),
				skipping("path", path), unsplice("path"), kprobes("kprobes-path", "path"), opens, unkprobes("kprobes-path")}
		}),
	}
}

func equalGuests(arch string) []Guest {
	bare := func([]*wire.Point, []*wire.Point) []*wire.Step {
		return []*wire.Step{measured(controlSamples)}
	}
	return []Guest{namesGuest(arch), probed(arch, "first", bare), probed(arch, "second", bare)}
}

// planted is the system call of which the splice counts again and again.
const (
	planted      = "getppid"
	plantedIn    = "Null"
	plantedTimes = 8
)

func plantedGuests(arch string) []Guest {
	work := measured(probedSamples, controlLoad...)
	return []Guest{
		namesGuest(arch),
		probed(arch, "bare", func(calls, path []*wire.Point) []*wire.Step { return []*wire.Step{work} }),
		probed(arch, "spliced", func(calls, path []*wire.Point) []*wire.Step {
			return []*wire.Step{skipping("calls", plant(arch, calls)), work}
		}),
	}
}

// plant makes one of the points count several times.
func plant(arch string, calls []*wire.Point) (out []*wire.Point) {
	again, err := probe.Compile("", "count")
	if err != nil {
		panic(err) // of a constant
	}
	for _, p := range calls {
		if p.Function == syscallEntry(arch, planted) {
			p = entry(p.Function)
			for k := range plantedTimes {
				p.Actions = append(p.Actions, &wire.Action{Name: nth("count", k), Snippet: again.String()})
			}
		}
		out = append(out, p)
	}
	return out
}

// kernelSymbol is a line of /proc/kallsyms, of the kernel itself.
var kernelSymbol = regexp.MustCompile(`^([0-9a-f]+) [tT] (\S+)$`)

// probedPlaces are the points of system calls and of the way to an open file. Of the
// names that one function has, only the first is taken: system calls that are not built
// in all lead to the same one.
func probedPlaces(arch, kallsyms string) (calls, path []*wire.Point, err error) {
	seen := map[string]bool{}
	for line := range strings.Lines(kallsyms) {
		m := kernelSymbol.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil || seen[m[1]] {
			continue
		}
		base, _, _ := strings.Cut(m[2], ".")
		switch {
		case strings.HasPrefix(m[2], syscallEntry(arch, "")):
			calls = append(calls, entry(m[2]))
		case slices.Contains(openPath, base):
			path = append(path, entry(m[2]))
		default:
			continue
		}
		seen[m[1]] = true
	}
	if len(calls) == 0 || len(path) == 0 {
		return nil, nil, fmt.Errorf("%d system calls and %d functions on the way to an open file among the kernel's symbols", len(calls), len(path))
	}
	return calls, path, nil
}

// checks -----------------------------------------------------------------------

func checkProbes(t *T) {
	ops := t.compared("bare", "spliced", "kprobed")
	b := t.allowances()
	splices, times := t.means("", b.steady(ops))
	t.means(".all", ops)
	for _, s := range []string{"calls", "path"} {
		t.sameCounts(s)
	}
	t.truth()
	t.equal("operations without a budget, and budgets without an operation", b.unmatched(ops), []string{})
	t.equal("operations over their budget", b.over(ops), []string{})
	t.atMost("geometric mean of ratios, with splices", splices, b.geomean)
	t.atLeast("times as much that kprobes add", times, b.times)
}

// means files geometric means: of what operations take with splices over what they take
// bare, the same with kprobes, and how many times as much the latter is above 1.
func (t *T) means(of string, ops []probedOp) (splices, times float64) {
	splices = geomean(ops, func(o probedOp) float64 { return o.spliced / o.bare })
	kprobes := geomean(ops, func(o probedOp) float64 { return o.kprobed / o.bare })
	times = (kprobes - 1) / (splices - 1)
	t.fileRatio("splice.geomean"+of, splices)
	t.fileRatio("kprobe.geomean"+of, kprobes)
	t.fileRatio("kprobe-over-splice"+of, times)
	return splices, times
}

func (t *T) fileRatio(name string, v float64) {
	t.Metrics[name] = report.Metric{Value: v, Unit: "x", N: probedSamples}
}

func checkEqual(t *T) {
	for _, o := range t.compared("first", "second", "") {
		t.equal(o.name+": added to itself", o.spliced-o.bare, 0.0)
	}
}

func checkPlanted(t *T) {
	ops := t.compared("bare", "spliced", "")
	b := t.allowances()
	var over []string
	for _, s := range b.over(ops) {
		name, _, _ := strings.Cut(s, ":")
		over = append(over, name)
	}
	t.equal("operations over their budget", slices.Compact(over), []string{plantedIn})
	for _, p := range t.done("spliced", "calls").Points {
		if p.Symbol == syscallEntry(t.Arch, planted) {
			t.point("spliced", p)
			t.atMost("instructions by which the planted cost is not what was found",
				math.Abs(ops[0].spliced-ops[0].bare-float64(p.Added)), measure.Resolution(t.Arch, ops[0].n)+rounding)
		}
	}
}

// compared files what operations take in each guest, and what is added. A guest without
// a name is left out.
func (t *T) compared(bare, spliced, kprobed string) (ops []probedOp) {
	of := map[string]map[string]*measure.Operation{}
	var names []string
	for _, g := range []string{bare, spliced, kprobed} {
		if g == "" || of[g] != nil {
			continue
		}
		text := t.ran(g, "work")[0]
		suite, err := measure.ParseSuite(text)
		t.expect(g+": what the guest prints is Go's benchmark format", err, "no error", gomega.Succeed())
		if kprobed != "" { // a control's are not for others
			t.Files["lmbench-"+g+".txt"] = text
		}
		of[g], names = map[string]*measure.Operation{}, nil
		for _, o := range suite.Operations {
			of[g][o.Name], names = o, append(names, o.Name)
		}
	}
	for _, name := range names {
		o := probedOp{name: name, unit: unitOf(name), n: of[bare][name].N, bare: of[bare][name].NS, spliced: of[spliced][name].NS}
		if kprobed != "" {
			o.kprobed = of[kprobed][name].NS
		}
		ops = append(ops, o)
		t.fileOp(o)
	}
	return ops
}

// unitOf is the unit in which an operation's nanoseconds are given.
func unitOf(name string) string {
	for _, group := range lmbenchOps {
		if contains(strings.Fields(group.names), name) && group.unit == insnsPerOp {
			return insnsPerOp
		}
	}
	return vnsPerOp
}

func (t *T) fileOp(o probedOp) {
	file := func(name string, v float64, unit string) {
		t.Metrics[strings.ReplaceAll(o.name, "/", ".")+"."+name] = report.Metric{Value: v, Unit: unit, Better: report.Lower, N: probedSamples}
	}
	file("bare", o.bare, o.unit)
	file("splice.added", o.spliced-o.bare, o.unit)
	file("splice.ratio", o.spliced/o.bare, "x")
	if o.kprobed > 0 {
		file("kprobe.added", o.kprobed-o.bare, o.unit)
		file("kprobe.ratio", o.kprobed/o.bare, "x")
	}
}

// ofDaemon are system calls that the daemon and its runtime make while they wait for the
// program, at times of the host language's choosing, and by how many two runs may differ.
// read is the program's too: a stream's bytes come in as many pieces as there happen to be.
var ofDaemon = map[string]uint64{
	"read": 32, "write": 4, "close": 2, "fcntl": 2, "epoll_ctl": 2, "epoll_pwait": 8, "futex": 64,
	"nanosleep": 200, "sched_yield": 32, "sched_getaffinity": 4, "getpid": 8, "gettid": 8, "tgkill": 8, "rt_sigreturn": 8,
	"clone": 4, "rt_sigprocmask": 16, "sigaltstack": 8, "mmap": 8, "munmap": 8, "madvise": 8,
	"pread64": 4, "filp_close": 2, // the kprobes' counts are read, and their module
}

// sameCounts compares what splices and kprobes have counted at the same places.
func (t *T) sameCounts(splices string) {
	places := map[string]string{"calls": "place", "path": "path"}[splices]
	spliced, probed := t.accepted("spliced", splices), t.accepted("kprobed", places)
	t.equal(splices+": both are at the same places", specs(probed), specs(spliced))
	counts := map[string]uint64{}
	for _, v := range t.done("spliced", splices+"-counts").Values {
		counts[v.Spec] = v.Count
	}
	hits := t.hits(splices)
	var called, total, differ uint64
	wrong := []string{}
	lines := fmt.Sprintf("%-52s %10s %10s\n", "place", "splices", "kprobes")
	for k, p := range spliced {
		n, hit := counts[p.Spec], hits[k]
		if n == 0 && hit == 0 {
			continue
		}
		called++
		total += n
		lines += fmt.Sprintf("%-52s %10d %10d\n", p.Spec, n, hit)
		t.count(splices+"."+strings.TrimPrefix(p.Symbol, syscallEntry(t.Arch, "")), n)
		if n != hit {
			differ++
		}
		if max(n, hit)-min(n, hit) > ofDaemon[strings.TrimPrefix(p.Symbol, syscallEntry(t.Arch, ""))] {
			wrong = append(wrong, fmt.Sprintf("%s: %d and %d", p.Spec, n, hit))
		}
	}
	t.Files[splices+".txt"] = []byte(lines)
	t.count(splices+".arrivals", total)
	t.Metrics[splices+".called"] = report.Metric{Value: float64(called), Unit: "functions", N: 1}
	t.Metrics[splices+".differ"] = report.Metric{Value: float64(differ), Unit: "functions", N: 1}
	t.equal(splices+": places that splices and kprobes count differently, beyond what the daemon does", wrong, []string{})
}

// hits are those of kprobes, in the order of their points: none where the kernel refuses
// one, which is filed.
func (t *T) hits(of string) (out []uint64) {
	values, refused := t.done("kprobed", "unkprobes-"+of).Values, 0
	for k, p := range t.done("kprobed", "kprobes-"+of).Points {
		if p.Refusal != nil {
			refused++
			out = append(out, 0)
			t.point("kprobed", p)
			continue
		}
		out = append(out, values[k-refused].Count)
	}
	t.Metrics[of+".kprobes-refused"] = report.Metric{Value: float64(refused), Unit: "points", N: 1}
	return out
}

// accepted are the points of a splice that were made; it files how many were refused, and why.
func (t *T) accepted(guest, step string) (out []*wire.PointResult) {
	for _, p := range t.done(guest, step).Points {
		if p.Refusal == nil {
			out = append(out, p)
			continue
		}
		name := step + ".refused." + strings.ReplaceAll(p.Refusal.Reason, " ", "-")
		m := t.Metrics[name]
		t.Metrics[name] = report.Metric{Value: m.Value + 1, Unit: "points", N: 1}
		t.point(guest, p)
	}
	t.Metrics[step+".points"] = report.Metric{Value: float64(len(out)), Unit: "points", N: 1}
	return out
}

func specs(points []*wire.PointResult) (out []string) {
	for _, p := range points {
		out = append(out, p.Spec)
	}
	return out
}

// truth compares with what the program is known to do, a sample that is not counted
// included: getppid in Null, and once in each shell of ForkSh; newfstatat in Stat.
func (t *T) truth() {
	of := func(splices, function string) uint64 { return uint64(t.Metrics[splices+"."+function].Value) }
	t.equal("calls of getppid", of("calls", "getppid"), uint64((1440+1)*(probedSamples+1)))
	t.equal("calls of newfstatat", of("calls", "newfstatat"), uint64(384*(probedSamples+1)))
	opens := float64(opensOfSample * (pathSamples + 1))
	t.atLeast("files opened", float64(of("path", "do_sys_openat2")), opens)
	t.atMost("files opened", float64(of("path", "do_sys_openat2")), opens+8)
}
