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
)

var findings = []finding{
	{kernInst + ", figure 2", "basic blocks of the kernel; here those outside reserved text, and of these the part that is counted at once", "107,976", denseKernel, []string{"density.outside", "density.counted.of"}},
	{kernInst + ", figure 11", "levels to go down from the system call to what takes the time; here by elapsed time, and by time with a CPU", "4 by hand, in figures 11 to 13", squidStudied, []string{"study.diagnosed.levels", "study.virtual.levels"}},
	{kernInst + ", figure 11", "share of elapsed time in which Squid opens files", "40 %", squidStudied, []string{"study.openat.before"}},
	{kernInst + ", figure 16", "the same after remedies: a larger lookup cache and no truncation there; here changes of directories written later, and one large file for all", "1 %, and 6 % for truncation elsewhere", squidStudied, []string{"study.openat.later", "study.openat.rock"}},
	{jifl + ", figure 8", "system calls counted, times bare: a probe at each; JIFL's copies take 0.07 more on average", "– (drawn only)", granular, []string{"monitored.kprobe.geomean", "monitored.splice.geomean"}},
	{jifl + ", figure 8", "calls traced: how many times more than the instrumentation itself kprobes add", "almost 10 times", granular, []string{"traced.kprobe.over-splice"}},
	{jifl + ", figure 8", "basic blocks counted: how many times more kprobes add", "close to 100 times", granular, []string{"blocks.kprobe.over-splice"}},
	{jifl + ", figure 11", "a request of Apache's, times bare, with system calls counted", "1.08: of throughput, 2 % for the copies, 5 % more", apacheStudy, []string{"monitored.Request.splice.ratio"}},
	{jifl + ", figure 11", "the same with calls traced; and what kprobes take", "1.08; kprobes an order of magnitude", apacheStudy, []string{"traced.Request.splice.ratio", "traced.Request.kprobe.ratio"}},
	{jifl + ", figure 11", "the same with basic blocks counted; and what kprobes take", "1.23: 2 % for the copies, 17 % more; kprobes an order of magnitude", apacheStudy, []string{"blocks.Request.splice.ratio", "blocks.Request.kprobe.ratio"}},
	{djprobe + ", sample overheads (x86-64)", "a hit of a kprobe and of a jump-optimised one; here how many times a splice's they add", "1.05 µs and 0.07 µs", granular, []string{"counted.kprobe.over-splice", "counted.optprobe.over-splice"}},
}

// publishedRow is a finding with what each ISA has beside it.
type publishedRow struct {
	Where, What, Found string
	Here               []string // by ISA
	Again              string   // command
}

// publishedView is what papers found, of the scenarios that were run.
type publishedView struct {
	Arches []string
	Rows   []publishedRow
}

func publishedOf(runs []run) (v publishedView) {
	for i := range runs {
		v.Arches = append(v.Arches, runs[i].Results.Arch)
	}
	ran := scenarioNames(runs)
	for _, f := range findings {
		k := slices.IndexFunc(f.scenarios, func(s string) bool { return slices.Contains(ran, s) })
		if k < 0 {
			continue
		}
		row := publishedRow{Where: f.where, What: f.what, Found: f.found, Again: "bin/lab run --arch " + strings.Join(v.Arches, ",") + " --scenario " + f.scenarios[k]}
		for i := range runs {
			row.Here = append(row.Here, f.here(&runs[i], f.scenarios[k]))
		}
		v.Rows = append(v.Rows, row)
	}
	return v
}

// here is what an ISA has, or why it has nothing.
func (f finding) here(r *run, scenario string) string {
	s := r.scenario(scenario)
	var parts []string
	for _, name := range f.metrics {
		switch m, ok := metricOf(s, name); {
		case ok && m.Unit == "ratio":
			parts = append(parts, number(100*m.Value)+" %")
		case ok && m.Unit == "x":
			parts = append(parts, number(m.Value)+" ×")
		case ok:
			parts = append(parts, strings.TrimSpace(number(m.Value)+" "+m.Unit))
		case s == nil || s.Status != status.Passed:
			return absent(&r.Results, scenario)
		default:
			parts = append(parts, "– (no such figure)")
		}
	}
	return strings.Join(parts, ", ")
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
