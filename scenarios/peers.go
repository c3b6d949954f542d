package scenarios

import (
	"cmp"
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onsi/gomega"

	"kerninst/agent/plan"
	"kerninst/agent/probe"
	"kerninst/agent/wire"
	"kerninst/images"
	"kerninst/lab/measure"
	"kerninst/lab/peers"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// peers: the same questions are put to splices, to bpftrace, to SystemTap, to kprobe events, and to
// perf, which makes some of its own, in one guest. All that can answer must say what the workload did; and what
// each adds to a hit is measured.
func peerScenarios() []Scenario {
	one := func(name, title string, all []question, installed bool, labels ...string) Scenario {
		return Scenario{Name: name, Title: title, Labels: labels,
			Guests: func(arch string) []Guest { return peersGuests(arch, all, installed) },
			Check:  func(t *T) { checkPeers(t, all, installed) },
		}
	}
	slice := slices.DeleteFunc(slices.Clone(questions), func(q question) bool { return !q.slice })
	return []Scenario{
		one("peers", "splices, bpftrace, perf, SystemTap and kprobe events give the same answers; instructions that each adds to a hit", questions, true, "measure", "proof"),
		one("peers-slice", "two of these questions", slice, true, "measure"),
		one("peers-without", "all of them in a guest without bpftrace, perf and SystemTap: kprobe events alone", questions, false, "measure"),
	}
}

// The workload sends itself messages of 1 to 64 bytes in turn (guest/bench, sizes). Each
// calls the first function once, with the length as its second argument, and the second
// once, which returns the length.
const (
	sends       = "load_msg"
	sentLengths = 64
)

func receives(arch string) string {
	if arch == "amd64" { // where the system call's own function jumps on, and does not return
		return "do_msgrcv"
	}
	return syscallEntry(arch, "msgrcv")
}

// peersLoad is rounds of a program, and how many operations of another.
type peersLoad struct{ rounds, samples, others int }

// peersOps is how many operations a sample has: each length as often, and as many pairs of
// system calls as make new random bits for their stacks in each sample (ops, above); short
// enough that most samples have no timer interrupt in them.
const peersOps = 6 * sentLengths

var (
	// long is told of in sums.
	peersLong = peersLoad{1, 20, 0}
	// mixed is of two programs.
	peersMixed = peersLoad{1, 20, peersOps}
	// short has no more operations than the peers' buffers have room for.
	peersShort = peersLoad{4, 1, 0}
	// traced has samples enough that in some of them the daemon does not empty rings, which it
	// does when half of one is filled.
	peersTraced = peersLoad{1, 20, 0}
)

// calls are those of one round by the program, and by the other.
func (l peersLoad) calls() (bench, other uint64) {
	if l.others > 0 {
		other = uint64(2 * l.others)
	}
	return uint64(peersOps * (l.samples + 1)), other
}

func (l peersLoad) argv(rounds int) []string {
	return []string{strconv.Itoa(rounds), strconv.Itoa(peersOps), strconv.Itoa(l.samples), strconv.Itoa(l.others)}
}

//go:embed peers.sh
var peersScript string

// peersFile is where the script is in the guest.
const peersFile = "/run/peers.sh"

// peersPart runs a part of the script.
func peersPart(name string, argv ...string) *wire.Step {
	return run(name, append([]string{"/bin/sh", peersFile}, argv...)...)
}

// peersGuests are one that finds where the middle of the function is, and one with the questions.
func peersGuests(arch string, all []question, installed bool) []Guest {
	each := skipping("splice", []*wire.Point{{Function: sends, Each: wire.Each_INSTRUCTION}})
	where := Guest{Name: "where", CPUs: 1, Time: vm.Exact, Job: job(each, run("work", benchProgram, "sizes", strconv.Itoa(sentLengths), "1"), read("count"))}
	asked := Guest{Name: "asked", CPUs: 1, Time: vm.Exact, RunTimeout: 30 * time.Minute, After: where.Name,
		Make: func(a *Answer) (*wire.Job, error) {
			middle, err := middleOf(a)
			if err != nil {
				return nil, err
			}
			return peersJob(arch, all, middle, probe.At{Types: a.Types})
		}}
	if installed {
		// It boots: its state would be four times as large as others, which would have to go
		// from the cache for it.
		asked.Software, asked.Boots, asked.Taps = []string{"bpftrace", "systemtap"}, true, tapScripts(arch, all)
		if images.SoftwareUnlocked("perf", arch) == "" {
			asked.Software = append(asked.Software, "perf")
		}
	}
	return []Guest{where, asked}
}

// middleOf is the offset of an instruction near the middle of the function by which each
// call comes once, and which is spliced where it is, without a trap.
func middleOf(a *Answer) (uint64, error) {
	at := map[uint64]*wire.PointResult{}
	var end uint64
	for _, p := range a.Results["splice"].GetPoints() {
		at[p.Offset], end = p, max(end, p.Offset)
	}
	best := uint64(0)
	far := func(off uint64) uint64 { return max(off, end/2) - min(off, end/2) }
	for _, v := range a.Results["count"].GetValues() {
		p := at[v.Offset]
		if v.Count == 2*sentLengths && p.GetRunsAt() == 0 && p.GetMechanism() != plan.Trap.String() && far(v.Offset) < far(best) {
			best = v.Offset
		}
	}
	if best == 0 {
		return 0, fmt.Errorf("%s: none of %d instructions is come by once in each call", sends, len(at))
	}
	return best, nil
}

// question is one that is put to every tool.
type question struct {
	name   string
	load   peersLoad
	action string // of our splice
	// at is where, besides what time does.
	at func(arch string, middle uint64) *wire.Point
	// programs are bpftrace's, with kprobes and with the functions' own hooks.
	kprobe, fentry string
	events         events
	// perf is the kprobe event that perf makes and counts, or, if it has fields, records.
	perf  string
	tap   tap
	timed bool
	slice bool // it is asked in CI, too
}

// events are kprobe events for it, how they are shown, and how that is read.
type events struct {
	events, trigger, show string
	read                  func(out []byte) (peers.Answer, error)
}

// tap is a script of SystemTap's for it, and how what that prints is read.
type tap struct {
	script string
	read   func(out []byte) (peers.Answer, error)
}

func entryOfSends(string, uint64) *wire.Point { return entry(sends) }

// questions in which $F and $W stand for the functions, $O for the offset, and $0 and $1 for
// the registers of arguments in words of the kernel's.
var questions = []question{
	{name: "count of entries", load: peersLong, action: "count", at: entryOfSends,
		kprobe: "kprobe:$F { @ = count(); }", fentry: "fentry:$F { @ = count(); }",
		events: events{"p:peers/e $F", "", "kprobe_profile", profile}, perf: "hit=$F",
		tap: tap{`global n; probe kprobe.function("$F") { n <<< 1 } probe end { println(@count(n)) }`, peers.TapNumber}},
	{name: "sum of an argument", load: peersLong, action: "sum(arg1)", at: entryOfSends,
		kprobe: "kprobe:$F { @ = sum(arg1); }", fentry: "fentry:$F { @ = sum(args.len); }",
		events: events{"p:peers/e $F len=$1:u64", "hist:keys=len:vals=len", "events/peers/e/hist", summed},
		tap:    tap{`global n; probe kprobe.function("$F") { n <<< ulong_arg(2) } probe end { println(@sum(n)) }`, peers.TapNumber}},
	{name: "histogram of an argument", slice: true, load: peersLong, action: "hist(arg1)", at: entryOfSends,
		kprobe: "kprobe:$F { @ = hist(arg1); }", fentry: "fentry:$F { @ = hist(args.len); }",
		events: events{"p:peers/e $F len=$1:u64", "hist:keys=len", "events/peers/e/hist", byBucket},
		tap:    tap{`global n; probe kprobe.function("$F") { n <<< ulong_arg(2) } probe end { print(@hist_log(n)) }`, peers.TapHistogram}},
	{name: "histogram of what is returned", load: peersLong, action: "hist(ret)",
		at: func(arch string, _ uint64) *wire.Point {
			return &wire.Point{Function: receives(arch), Each: wire.Each_RETURN}
		},
		kprobe: "kretprobe:$W { @ = hist(retval); }", fentry: "fexit:$W { @ = hist(retval); }",
		events: events{"r:peers/e $W got=$retval:u64", "hist:keys=got", "events/peers/e/hist", byBucket},
		tap:    tap{`global n; probe kprobe.function("$W").return { n <<< returnval() } probe end { print(@hist_log(n)) }`, peers.TapHistogram}},
	{name: "count by command", load: peersMixed, action: "count by comm", at: entryOfSends,
		kprobe: "kprobe:$F { @[comm] = count(); }", fentry: "fentry:$F { @[comm] = count(); }",
		events: events{"p:peers/e $F", "hist:keys=common_pid.execname", "events/peers/e/hist", byKey},
		tap:    tap{`global n; probe kprobe.function("$F") { n[execname()] <<< 1 } probe end { foreach (c in n) printf("%s %d\n", c, @count(n[c])) }`, peers.TapKeyed}},
	{name: "count in the middle", load: peersLong, action: "count",
		at:     func(_ string, middle uint64) *wire.Point { return at(sends, middle) },
		kprobe: "kprobe:$F+$O { @ = count(); }", fentry: "fentry:$F+$O { @ = count(); }",
		events: events{"p:peers/e $F+$O", "", "kprobe_profile", profile}, perf: "hit=$F+$O",
		tap: tap{`global n; probe kprobe.function("$F+$O") { n <<< 1 } probe end { println(@count(n)) }`, peers.TapNumber}},
	{name: "time inside", load: peersShort, action: "time", at: entryOfSends, timed: true, slice: true,
		kprobe: "kprobe:$F { @began[tid] = nsecs; } kretprobe:$F { @ = sum(nsecs - @began[tid]); }",
		fentry: "fentry:$F { @began[tid] = nsecs; } fexit:$F { @ = sum(nsecs - @began[tid]); }",
		events: events{"p:peers/b $F\nr:peers/e $F", "", "trace", between},
		tap:    tap{`global n; probe kprobe.function("$F").return { n <<< ktime_get_ns() - @entry(ktime_get_ns()) } probe end { println(@sum(n)) }`, peers.TapNumber}},
	{name: "record of two words", load: peersTraced, action: "trace(arg0, arg1)", at: entryOfSends,
		kprobe: `kprobe:$F { printf("%lu %lu\n", arg0, arg1); }`, fentry: `fentry:$F { printf("%lu %lu\n", (uint64)args.src, args.len); }`,
		events: events{"p:peers/e $F src=$0:x64 len=$1:u64", "", "trace", fields}, perf: "hit=$F src=$0:x64 len=$1:u64",
		tap: tap{`probe kprobe.function("$F") { printf("%d %d\n", ulong_arg(1), ulong_arg(2)) }`, peers.TapRecords}},
}

// records reports whether perf has to record, and not to count.
func (q question) records() bool { return strings.Contains(q.perf, " ") }

// perfEvent is the event's name when perf has made it.
const perfEvent = "probe:hit"

func (q question) perfAnswer(out []byte) (peers.Answer, error) {
	if q.records() {
		return peers.PerfScript(out)
	}
	return peers.PerfStat(out, perfEvent)
}

func profile(out []byte) (peers.Answer, error) { return peers.Profile(out, "e") }

func byBucket(out []byte) (peers.Answer, error) {
	all, err := peers.Histogram(out)
	if err != nil {
		return peers.Answer{}, err
	}
	return peers.ByBucket(all)
}

func byKey(out []byte) (peers.Answer, error) {
	all, err := peers.Histogram(out)
	return peers.ByKey(all), err
}

func summed(out []byte) (peers.Answer, error) {
	all, err := peers.Histogram(out)
	if err != nil {
		return peers.Answer{}, err
	}
	return peers.Summed(all, "len")
}

func fields(out []byte) (peers.Answer, error) {
	all, err := peers.Trace(out)
	return peers.Fields(all), err
}

func between(out []byte) (peers.Answer, error) {
	all, err := peers.Trace(out)
	if err != nil {
		return peers.Answer{}, err
	}
	micros, _, err := peers.Between(all, "b", "e")
	ns := 1000 * micros
	return peers.Answer{Number: &ns}, err
}

// Tools that questions are put to, in the order of the table.
const (
	toolSplice  = "splice"
	toolEvents  = "kprobe event"
	toolPerf    = "perf"
	toolKprobes = "bpftrace kprobe"
	toolFentry  = "bpftrace fentry"
	toolTap     = "systemtap"
)

var tools = []string{toolSplice, toolEvents, toolPerf, toolKprobes, toolFentry, toolTap}

// arguments are the registers of the first two, in the kernel's words for probes.
var arguments = map[string][2]string{"amd64": {"%di", "%si"}, "arm64": {"%x0", "%x1"}, "riscv64": {"%a0", "%a1"}}

// words of a question, for an ISA.
func (q question) words(arch string, middle uint64) *strings.Replacer {
	return strings.NewReplacer("$F", sends, "$W", receives(arch), "$O", strconv.FormatUint(middle, 10),
		"$0", arguments[arch][0], "$1", arguments[arch][1])
}

// tapName is what the module of its script is called.
func (q question) tapName() string { return strings.ReplaceAll(q.name, " ", "_") }

// tapScripts are those of questions. Their modules are made before the first guest finds where the
// middle is; SystemTap takes no offset there, whatever it is.
func tapScripts(arch string, all []question) map[string]string {
	out := map[string]string{}
	for _, q := range all {
		out[q.tapName()] = q.words(arch, 4).Replace(q.tap.script)
	}
	return out
}

func (q question) step(tool string) string { return q.name + "/" + tool }

// splices are the steps of our own, round by round; each round has a splice of its own.
func (q question) splices(arch string, middle uint64, in probe.At) (steps []*wire.Step, err error) {
	a, err := in.Compile("", q.action)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", q.name, err)
	}
	p := q.at(arch, middle)
	p.Actions = []*wire.Action{{Name: q.action, Snippet: a.Snippet.String()}}
	points := []*wire.Point{p}
	if q.timed {
		p.Actions[0].Timed = wire.Timed_ENTERS
		points = append(points, &wire.Point{Function: sends, Each: wire.Each_RETURN,
			Actions: []*wire.Action{{Name: q.action, Snippet: a.Snippet.String(), Timed: wire.Timed_LEAVES}}})
	}
	for round := range q.load.rounds {
		n := nth(q.step(toolSplice), round)
		steps = append(steps, splice(n, points...), peersPart(n+".work", append([]string{"work"}, q.load.argv(1)...)...),
			read(n+".read"), unsplice(n))
	}
	return steps, nil
}

// others are the steps of the other tools.
func (q question) others(arch string, middle uint64) (steps []*wire.Step) {
	w := q.words(arch, middle)
	argv := q.load.argv(q.load.rounds)
	part := func(tool string, of ...string) {
		for k := range of {
			of[k] = w.Replace(of[k])
		}
		steps = append(steps, peersPart(q.step(tool), append(of, argv...)...))
	}
	part(toolEvents, "tracefs", q.events.events, q.events.trigger, q.events.show)
	if q.perf != "" {
		does := "count"
		if q.records() {
			does = "record"
		}
		part(toolPerf, "perf", does, q.perf)
	}
	part(toolKprobes, "bpftrace", q.kprobe)
	part(toolFentry, "bpftrace", q.fentry)
	part(toolTap, "systemtap", q.tapName())
	return steps
}

func peersJob(arch string, all []question, middle uint64, in probe.At) (*wire.Job, error) {
	bare := func(name string) *wire.Step {
		return peersPart(name, append([]string{"work"}, peersLong.argv(1)...)...)
	}
	steps := []*wire.Step{run("script", "/bin/sh", "-c", `printf '%s\n' "$2" >"$1"`, "sh", peersFile, peersScript), peersPart("prepare", "prepare"), bare("bare")}
	for _, q := range all {
		ours, err := q.splices(arch, middle, in)
		if err != nil {
			return nil, err
		}
		steps = slices.Concat(steps, ours, q.others(arch, middle))
	}
	return job(append(steps, bare("again"))...), nil
}

// wants is what is known of the answer beforehand; of time and of what is in a record's first
// word nothing is.
func (q question) wants() (a peers.Answer) {
	bench, other := q.load.calls()
	bench *= uint64(q.load.rounds)
	number := func(n uint64) peers.Answer { return peers.Answer{Number: &n} }
	switch q.action {
	case "count":
		return number(bench)
	case "sum(arg1)":
		return number(bench / sentLengths * (sentLengths * (sentLengths + 1) / 2))
	case "time":
		return a
	case "count by comm":
		return peers.Answer{Keyed: map[string]uint64{"bench": bench, "other": other}}
	case "trace(arg0, arg1)":
		for k := range bench {
			a.Records = append(a.Records, []uint64{k%sentLengths + 1})
		}
		return a
	}
	a.Buckets = map[uint64]uint64{}
	for n := uint64(1); n <= sentLengths; n++ {
		a.Buckets[peers.Bucket(n)] += bench / sentLengths
	}
	return a
}

// silence is where a tool has no answer, and why in our words; the tool's own have to hold
// what it says.
type silence struct {
	arches, tools, questions []string // none: all
	says, why                string
}

var silences = []silence{
	{nil, []string{toolPerf}, unasked(), notAsked, notAsked},
	{[]string{"riscv64"}, []string{toolPerf}, nil, "perf is not installed in this guest",
		"no package of perf is locked for riscv64: " + images.SoftwareUnlocked("perf", "riscv64")},
	{nil, []string{toolFentry}, []string{"count in the middle"}, "No BTF found for " + sends + "+",
		"fentry is at a function's begin, nowhere else"},
	{nil, []string{toolFentry}, []string{"record of two words"}, "type UNKNOWN is not a struct",
		"the kernel lets no BPF program read an argument that is a const void *"},
	{[]string{"riscv64"}, []string{toolEvents, toolKprobes}, []string{"count in the middle"}, "", ""}, // there is one
	{[]string{"riscv64"}, []string{toolEvents}, nil, "Failed to register probe event",
		"on riscv64 this kernel takes no kprobe at a function's begin, where ftrace's site is, and so no kretprobe"},
	{[]string{"riscv64"}, []string{toolKprobes}, nil, "Invalid argument",
		"on riscv64 this kernel takes no kprobe at a function's begin, where ftrace's site is, and so no kretprobe"},
	{nil, []string{toolTap}, []string{"count in the middle"}, "semantic error: no match",
		"without the kernel's debugging information SystemTap knows where functions begin, and absolute addresses, which this kernel settles when it boots"},
	{[]string{"riscv64"}, []string{toolTap}, nil, "registration error",
		"on riscv64 this kernel takes no kprobe at a function's begin, where ftrace's site is, and so no kretprobe"},
}

// notAsked is why a question is not put to perf.
const notAsked = "perf counts and records: what is recorded is added up by others"

// unasked are the questions that are not put to perf.
func unasked() (out []string) {
	for _, q := range questions {
		if q.perf == "" {
			out = append(out, q.name)
		}
	}
	return out
}

// notInstalled are of a guest without bpftrace, perf and SystemTap.
var notInstalled = []silence{
	{nil, []string{toolTap}, nil, "systemtap is not installed in this guest", "systemtap is not installed in this guest"},
	{nil, []string{toolKprobes, toolFentry}, nil, "bpftrace is not installed in this guest", "bpftrace is not installed in this guest"},
	{nil, []string{toolPerf}, nil, "perf is not installed in this guest", "perf is not installed in this guest"},
}

func (s silence) about(arch, tool, question string) bool {
	in := func(list []string, name string) bool { return list == nil || contains(list, name) }
	return in(s.arches, arch) && in(s.tools, tool) && in(s.questions, question)
}

// silenceOf is why a tool is to have no answer; an empty one if it is to have one.
func silenceOf(arch, tool, question string, installed bool) silence {
	all := silences
	if !installed {
		all = slices.Concat(silences[:1], notInstalled, silences[1:]) // what is not asked is not missed
	}
	if k := slices.IndexFunc(all, func(s silence) bool { return s.about(arch, tool, question) }); k >= 0 {
		return all[k]
	}
	return silence{}
}

// peersRow is what became of one question, put to one tool.
type peersRow struct {
	answer peers.Answer
	bench  *measure.Bench
	why    string  // in the tool's words: there is no answer
	added  float64 // instructions that a hit takes more
}

// dearer is how many times as much as a splice each peer adds at least: all that was seen
// add ten times as much and more.
const dearer = 5

func checkPeers(t *T, all []question, installed bool) {
	middle, err := middleOf(t.Guests["where"])
	t.noError("the middle of "+sends, err)
	t.Metrics["peers.middle"] = report.Metric{Value: float64(middle), Unit: "bytes", N: 1}
	t.ran("asked", "prepare")
	bare, again := t.benches("asked", "bare")[0], t.benches("asked", "again")[0]
	drift, _ := measure.Added(t.Arch, bare, again)
	t.insns("peers.bare", bare.Min())
	t.equal("the bare run costs the same again", math.Round(drift), 0.0)
	t.Grid = &report.Grid{Title: "instructions that a hit adds, by question and tool", Rows: "question", Columns: tools}
	answers, surprises := 0, []string{}
	rows := map[string]map[string]peersRow{}
	for _, q := range all {
		line := report.GridRow{Name: q.name}
		rows[q.name] = map[string]peersRow{}
		for _, tool := range tools {
			var r peersRow
			if why := t.part(func() { r = t.peersRow(q, tool) }); why != "" { // others' answers are there all the same
				r = peersRow{why: why}
			}
			if r.bench != nil {
				r.added, _ = measure.Added(t.Arch, bare, r.bench)
				answers++
			}
			cell, surprise := t.peersCell(q, tool, r, silenceOf(t.Arch, tool, q.name, installed))
			if surprise != "" {
				surprises = append(surprises, surprise)
			}
			rows[q.name][tool], line.Cells = r, append(line.Cells, cell)
		}
		t.Grid.Lines = append(t.Grid.Lines, line)
	}
	t.Metrics["peers.answers"] = report.Metric{Value: float64(answers), Unit: "answers", N: 1}
	t.part(func() {
		t.equal("answers that are there, or not, and for reasons that are not known", surprises, []string{})
	})
	for _, q := range all {
		t.part(func() { t.judge(q, rows[q.name]) })
	}
	t.parts()
}

// peersCell files a row: what it adds, or why there is nothing. It is a surprise where the
// reason is not one that is known, or where one is and there is an answer.
func (t *T) peersCell(q question, tool string, r peersRow, known silence) (cell report.GridCell, surprise string) {
	name := q.step(tool)
	switch {
	case r.why == "":
		added := math.Round(r.added)
		t.Metrics["peers."+slug(q.name)+"."+slug(tool)] = report.Metric{Value: added, Unit: "insns", Better: report.Lower, N: len(r.bench.NS)}
		cell = report.GridCell{Value: &added}
		if known.why != "" {
			surprise = name + ": there is an answer, though " + known.why
		}
	case known.why == "" || !strings.Contains(r.why, known.says):
		cell = report.GridCell{Why: r.why}
		surprise = name + ": " + r.why
	default:
		cell = report.GridCell{Why: known.why}
		t.expect(name+": why there is no answer", r.why, "…"+known.says+"…", gomega.ContainSubstring(known.says))
	}
	return cell, surprise
}

// slug makes a part of a metric's name of words.
func slug(words string) string { return strings.ReplaceAll(words, " ", "-") }

// judge compares all answers to one question with what is known of them, and with each other.
func (t *T) judge(q question, rows map[string]peersRow) {
	ours := rows[toolSplice]
	if ours.why != "" { // a surprise
		return
	}
	want := q.wants()
	if recs := ours.answer.Records; len(recs) > 0 { // the first word is an address: one, and the same for all
		t.atLeast(q.name+": the address of the text", float64(recs[0][0]), 1)
		for k := range want.Records {
			want.Records[k] = append([]uint64{recs[0][0]}, want.Records[k]...)
		}
	}
	for _, tool := range tools {
		r := rows[tool]
		switch {
		case r.why != "":
			continue
		case q.timed:
			t.judgeTime(q, tool, ours, r)
		default:
			t.expect(q.step(tool)+": its answer", r.answer, want.String(), gomega.WithTransform(want.Equal, gomega.BeTrue()))
		}
		if tool != toolSplice {
			t.atLeast(q.step(tool)+": what it adds, of what a splice does", r.added/ours.added, dearer)
		}
	}
}

// resolution is what the mean of a tool's times of a call is known to, in nanoseconds: a tick
// of the clock that it reads, or the microsecond of a trace's text, over some calls.
const resolution = 125

// judgeTime: who times a function by two probes sees what is between them, a part of the
// probes themselves included; so no less than we do, and no more than that and all that its
// probes add.
func (t *T) judgeTime(q question, tool string, ours, r peersRow) {
	bench, _ := q.load.calls()
	mean := func(r peersRow) float64 { return float64(*r.answer.Number) / float64(bench*uint64(q.load.rounds)) }
	got := mean(r)
	t.Metrics["peers."+slug(q.name)+"."+slug(tool)+".ns"] = report.Metric{Value: got, Unit: "vns/op", N: 1}
	if tool == toolSplice {
		t.atLeast(q.step(tool)+": nanoseconds of a call", got, 100)
		t.atMost(q.step(tool)+": nanoseconds of a call", got, t.Metrics["peers.bare"].Value)
		return
	}
	t.atLeast(q.step(tool)+": nanoseconds of a call", got, mean(ours)-resolution)
	t.atMost(q.step(tool)+": nanoseconds of a call", got, mean(ours)+r.added+resolution)
}

// peersRow reads what a tool said.
func (t *T) peersRow(q question, tool string) (r peersRow) {
	if tool == toolSplice {
		return t.splicedRow(q)
	}
	if tool == toolPerf && q.perf == "" {
		r.why = notAsked
		return r
	}
	runs := t.done("asked", q.step(tool)).Runs
	if runs[0].Exit != 0 {
		r.why = cmp.Or(strings.Join(strings.Fields(string(runs[0].Stderr)), " "), fmt.Sprintf("exit status %d, without a word", runs[0].Exit))
		return r
	}
	t.equal(q.step(tool)+": its output is whole", runs[0].Truncated, false)
	work, said, _ := strings.Cut(string(runs[0].Stdout), "--\n")
	var err error
	if r.bench, err = measure.ParseBench([]byte(work)); err == nil {
		switch tool {
		case toolEvents:
			r.answer, err = q.events.read([]byte(said))
		case toolPerf:
			r.answer, err = q.perfAnswer([]byte(said))
		case toolTap:
			r.answer, err = q.tap.read([]byte(said))
		default:
			r.answer, err = peers.Bpftrace([]byte(said))
		}
	}
	t.noError(q.step(tool)+": what it says can be read", err)
	return r
}

// splicedRow is what our splices said, over all rounds.
func (t *T) splicedRow(q question) (r peersRow) {
	c, err := probe.At{Types: t.Guests["asked"].Types}.Compile("", q.action)
	t.noError(q.name+": the action", err)
	var text string
	for round := range q.load.rounds {
		n := nth(q.step(toolSplice), round)
		for _, p := range t.done("asked", n).Points {
			t.point("asked", p)
		}
		text += string(t.ran("asked", n+".work")[0])
		t.addFound(&r.answer, q, c, t.done("asked", n+".read"))
	}
	r.bench, err = measure.ParseBench([]byte(text))
	t.noError(q.step(toolSplice)+": the workload", err)
	return r
}

// addFound adds what one round found.
func (t *T) addFound(a *peers.Answer, q question, c probe.Action, found *wire.Result) {
	number := func(n uint64) {
		if a.Number != nil {
			n += *a.Number
		}
		a.Number = &n
	}
	if q.timed {
		for _, x := range c.Times(found.Values, found.Moments) {
			t.equal(q.name+": calls that are missing", x.Rows[0].Missing, int64(0))
			number(uint64(x.Rows[0].NS))
		}
		return
	}
	for _, v := range found.Values {
		f := c.Found(v)
		t.equal(q.name+": what there was no room for", f.Dropped+f.Holes+f.Lost+f.Faults, uint64(0))
		switch {
		case f.Value != nil:
			number(f.Value.Bits)
		case len(f.Rows) > 0:
			a.Keyed = map[string]uint64{}
			for _, row := range f.Rows {
				a.Keyed[row.Keys[0]] = row.Hits
			}
		}
		for _, b := range f.Buckets {
			if b.N > 0 {
				if a.Buckets == nil {
					a.Buckets = map[uint64]uint64{}
				}
				a.Buckets[b.Lo.Bits] += b.N
			}
		}
		for _, rec := range v.Records {
			a.Records = append(a.Records, rec.Fields)
		}
	}
}

func (t *T) noError(what string, err error) {
	t.g.Expect(err).NotTo(gomega.HaveOccurred(), "%s", what)
}
