package report

import (
	"fmt"
	"slices"
	"strings"

	"kerninst/lab/status"
)

// finding is a figure that one of the papers has which this lab makes real, and where what stands
// beside it today comes from. What is not the same experiment says so in its words: kernels,
// machines and units are others, ratios and shares are what can be compared.
type finding struct {
	where string // paper, and its figure, table or section
	what  string
	found string // as it is printed there
	// scenarios have it: the first that was run is taken.
	scenarios []string
	// metrics are today's, in their order; shares are shown as per cent.
	metrics []string
	why     string // there are none
}

// Papers, as they are cited.
const (
	kernInst = "Tamches and Miller, OSDI 1999"
	jifl     = "Olszewski and others, EuroSys 2007"
	djprobe  = "Hiramatsu, jump-optimised kprobes, 2009"
)

var (
	granular     = []string{"granularities", "granularities-slice"}
	apacheStudy  = []string{"apache", "apache-slice"}
	squidStudied = []string{"squid-study", "squid-study-slice"}
	denseKernel  = []string{"density-kernel"}
	cloned       = []string{"clones", "clones-slice"}
	ablated      = []string{"clones-ablation"}
	apacheCloned = []string{"clones-apache"}
)

// JIFL is a system of copies, which the rows of clones have beside it; those of splices are of the same question.
var findings = []finding{
	{kernInst + ", figure 2", "basic blocks of the kernel; here those outside reserved text, and of these the part that is counted at once", "107,976", denseKernel, []string{"density.outside", "density.counted.of"}, ""},
	{kernInst + ", figures 11 to 13", "levels to go down to what takes the time; here with system calls as the first, by elapsed time and by time with a CPU", "6, by hand: copen, vn_open, vn_create, lookuppn, ufs_lookup, ufs_dirlook", squidStudied, []string{"study.diagnosed.levels", "study.virtual.levels"}, ""},
	{kernInst + ", figure 11", "share of elapsed time in which Squid opens files; here on a file system that is told to write directories at once, as UFS did", "40 %", squidStudied, []string{"study.openat.before"}, ""},
	{kernInst + ", figure 15", "that share after a remedy: no truncation, whose changes were written at once; here the changes of directories written later, as Linux does unless told otherwise", "truncation has 6 % instead of 20 %", squidStudied, []string{"study.openat.later"}, ""},
	{kernInst + ", figure 16", "the same after both remedies; here one large file for all documents, as the paper proposes instead of a larger lookup cache, which grows by itself on Linux (its figure 14)", "1 %, and 6 % for truncation elsewhere", squidStudied, []string{"study.openat.rock"}, ""},
	{jifl + ", figure 8", "LMbench's operations as copies with nothing inserted, times bare", "– (drawn only)", cloned, []string{"clones.nothing.ratio"}, ""},
	{jifl + ", figure 8", "system calls counted, times bare, by a kprobe at each and by copies", "– (drawn only); kprobes take 0.07 less than copies", cloned, []string{"clones.monitored.kprobes.ratio", "clones.monitored.ratio"}, ""},
	{jifl + ", figure 8", "system calls counted, times bare, by a kprobe and by a splice at each", "–", granular, []string{"monitored.kprobe.geomean", "monitored.splice.geomean"}, ""},
	{jifl + ", figure 8", "calls traced, times bare, by kprobes and by copies", "– (drawn only); almost an order of magnitude apart", cloned, []string{"clones.traced.kprobes.ratio", "clones.traced.ratio"}, ""},
	{jifl + ", figure 8", "calls traced, times bare, by kprobes and by splices", "–", granular, []string{"traced.kprobe.geomean", "traced.splice.geomean"}, ""},
	{jifl + ", figure 8", "basic blocks counted, times bare, by kprobes and by copies", "– (drawn only); close to two orders of magnitude apart", cloned, []string{"clones.blocks.kprobes.ratio", "clones.blocks.ratio"}, ""},
	{jifl + ", figure 8", "basic blocks counted, times bare, by kprobes and by splices", "–", granular, []string{"blocks.kprobe.geomean", "blocks.splice.geomean"}, ""},
	{jifl + ", figure 9", "blocks counted, times bare: in copies; with nothing known to be free; by calls instead of inline; neither", "– (drawn only); 2.6 times as much is added by neither, 1.3 of it by calls", ablated, []string{"clones.blocks.ratio", "clones.blind.ratio", "clones.called.ratio", "clones.neither.ratio"}, ""},
	{where: jifl + ", figure 10", what: "copies made anew after each system call", found: "– (drawn only)", scenarios: cloned,
		why: "not asked: nothing is translated in the kernel, the daemon makes copies while the original runs"},
	{jifl + ", figures 11 and 12", "a request of Apache's, times bare, with nothing inserted in copies, system calls counted, calls traced, blocks counted", "1.02, 1.08, 1.08 and 1.23, of throughput: 2 % for the copies, 5, 5 and 17 % more", apacheCloned, []string{"clones.nothing.ratio", "clones.monitored.ratio", "clones.traced.ratio", "clones.blocks.ratio"}, ""},
	{jifl + ", figure 12", "how long a request of Apache's is in the making, in the mean, times bare, by splices: system calls counted, calls traced, blocks counted", "– (drawn only)", apacheStudy, []string{"monitored.Response.splice.ratio", "traced.Response.splice.ratio", "blocks.Response.splice.ratio"}, ""},
	{jifl + ", figures 11 and 12", "a request of Apache's, times bare, by splices: system calls counted, calls traced, blocks counted", "–", apacheStudy, []string{"monitored.Request.splice.ratio", "traced.Request.splice.ratio", "blocks.Request.splice.ratio"}, ""},
	{jifl + ", figures 11 and 12", "the same by kprobes instead", "less than 1.08 for system calls; calls traced and blocks counted an order of magnitude", apacheStudy, []string{"monitored.Request.kprobe.ratio", "traced.Request.kprobe.ratio", "blocks.Request.kprobe.ratio"}, ""},
	{jifl + ", figure 13", "a request of Apache's with less and less room for copies, times bare; here 64, 16 and 4 KiB for the copy of each system call", "as before down to 3 MB a CPU, reasonable down to 2", apacheCloned, []string{"clones.blocks-64.ratio", "clones.blocks-16.ratio", "clones.blocks-4.ratio"}, ""},
	{djprobe + ", sample overheads (x86-64)", "a hit of a kprobe and of a jump-optimised one; here how many times a splice's they add", "1.05 µs and 0.07 µs", granular, []string{"counted.kprobe.over-splice", "counted.optprobe.over-splice"}, ""},
}

// publishedRow is a finding with what each ISA has beside it.
type publishedRow struct {
	Where, What, Found string
	Here               []string // by ISA
	Again              string   // command
}

// publishedView is what papers found. Where any of the scenarios that have it was run, all rows are there: those of others say
// that they were not run, and by which command they are.
type publishedView struct {
	Arches []string
	Rows   []publishedRow
}

func publishedOf(runs []run) (v publishedView) {
	for i := range runs {
		v.Arches = append(v.Arches, runs[i].Results.Arch)
	}
	ran, some := scenarioNames(runs), false
	for _, f := range findings {
		k := slices.IndexFunc(f.scenarios, func(s string) bool { return slices.Contains(ran, s) })
		some, k = some || k >= 0, max(k, 0)
		row := publishedRow{Where: f.where, What: f.what, Found: f.found, Again: "bin/lab run --arch " + strings.Join(v.Arches, ",") + " --scenario " + f.scenarios[k] + again(runs)}
		for i := range runs {
			row.Here = append(row.Here, f.here(&runs[i], f.scenarios[k]))
		}
		v.Rows = append(v.Rows, row)
	}
	if !some {
		v.Rows = nil
	}
	return v
}

// again is what a command wants besides to find the same: the seed, and how time goes where that is not exact.
func again(runs []run) string {
	r := &runs[0].Results // all ISAs of one run have the same
	words := fmt.Sprintf(" --seed %d", r.Seed)
	if r.Time == "host" {
		words += " --time host"
	}
	return words
}

// here is what an ISA has, or why it has nothing. Figures of a scenario that has not passed say so.
func (f finding) here(r *run, scenario string) string {
	if f.why != "" { // whatever was run
		return f.why
	}
	s, known := r.scenario(scenario), false
	var parts []string
	for _, name := range f.metrics {
		m, ok := metricOf(s, name)
		known = known || ok
		switch {
		case ok && m.Unit == "ratio":
			parts = append(parts, number(100*m.Value)+" %")
		case ok && m.Unit == "x":
			parts = append(parts, number(m.Value)+" ×")
		case ok:
			parts = append(parts, strings.TrimSpace(number(m.Value)+" "+m.Unit))
		default:
			parts = append(parts, "– (no such figure)")
		}
	}
	text := strings.Join(parts, ", ")
	switch why := absent(&r.Results, scenario); {
	case s != nil && s.Status == status.Passed:
		return text
	case known:
		return text + "; " + why
	default:
		return why
	}
}

func metricOf(s *Scenario, name string) (Metric, bool) {
	if s == nil {
		return Metric{}, false
	}
	m, ok := s.Metrics[name]
	return m, ok
}

// summaryPublished is the same in Markdown.
func summaryPublished(b *strings.Builder, runs []run) {
	v := publishedOf(runs)
	if len(v.Rows) == 0 {
		return
	}
	fmt.Fprintf(b, "\n### What the papers found, and what is found here\n\n| paper | what | there |")
	for _, arch := range v.Arches {
		fmt.Fprintf(b, " %s |", md(arch))
	}
	b.WriteString("\n|---|---|---|" + strings.Repeat("---|", len(v.Arches)) + "\n")
	for _, r := range v.Rows {
		fmt.Fprintf(b, "| %s | %s | %s |", md(r.Where), md(r.What), md(r.Found))
		for _, h := range r.Here {
			fmt.Fprintf(b, " %s |", md(h))
		}
		b.WriteByte('\n')
	}
}
