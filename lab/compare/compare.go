// Package compare says in what two sides differ, each of one run or of several: figures,
// how scenarios came out, and what the runs were made with. It reads and writes no file:
// what was read comes in, a document comes out.
//
// Figures of exact time come out again to the instruction, so there each difference is a
// change. Those of host time are samples, one of each run, or as many as a run has boots:
// whether they differ is for a test to say, and it says nothing of too few.
package compare

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"kerninst/lab/report"
	"kerninst/lab/runs"
	"kerninst/lab/status"
)

// Side is what is compared.
type Side struct {
	Name string // as it was named
	Runs []*runs.Run
}

// Options of a comparison.
type Options struct {
	Limit      Limit         // of figures that no rule is about
	Rules      []Rule        // the last that matches counts
	Only       runs.Patterns // the figures to compare
	Confidence float64       // of intervals; what is left to 1 is that of a false alarm
	// AcrossKernels: that kernels differ is meant.
	AcrossKernels bool
}

// Comparison is what came out.
type Comparison struct {
	Schema int `json:"schema"`
	// Status is failed if anything is worse than it may be, or could not be compared.
	Status     status.Status `json:"status"`
	A          Of            `json:"a"`
	B          Of            `json:"b"`
	Confidence float64       `json:"confidence"`
	Differ     []Difference  `json:"differ"`
	Outcomes   []Outcome     `json:"outcomes"`
	Metrics    []Metric      `json:"metrics"`
	// OnlyA and OnlyB are ISAs, scenarios and figures that one side has alone: ISA,
	// ISA/SCENARIO or ISA/SCENARIO/METRIC.
	OnlyA []string `json:"only_a"`
	OnlyB []string `json:"only_b"`
	Notes []string `json:"notes"` // on how far all this can be relied on
}

// Of is a side as documents have it.
type Of struct {
	Name string  `json:"name"`
	Runs []OfRun `json:"runs"`
}

// OfRun is a run of one ISA, likewise.
type OfRun struct {
	Run    string        `json:"run"`
	Arch   string        `json:"arch"`
	Time   string        `json:"time"` // "": it ended before that was known
	Seed   uint64        `json:"seed"`
	Kernel string        `json:"kernel"`
	QEMU   string        `json:"qemu"`
	Commit string        `json:"commit,omitempty"`
	Status status.Status `json:"status"`
}

// Difference is something that runs of one ISA were not both made with.
type Difference struct {
	Arch  string `json:"arch"`
	What  string `json:"what"`
	A     string `json:"a"`
	B     string `json:"b"`
	Means string `json:"means,omitempty"` // for what is compared
	Fails bool   `json:"fails"`
}

// Outcome is a scenario that came out otherwise.
type Outcome struct {
	Arch     string        `json:"arch"`
	Scenario string        `json:"scenario"` // "": the run as a whole
	A        status.Status `json:"a"`        // the worst of all runs
	B        status.Status `json:"b"`
	Why      string        `json:"why,omitempty"` // of B
	Fails    bool          `json:"fails"`
}

// InputError is why two sides cannot be compared.
type InputError struct{ Why string }

func (e *InputError) Error() string { return e.Why }

func refuse(format string, args ...any) error { return &InputError{fmt.Sprintf(format, args...)} }

// Compare sets B beside A. Errors are *InputError.
func Compare(a, b Side, o Options) (*Comparison, error) {
	c := &comparer{o: o, limits: limits{o.Limit, o.Rules, make([]bool, len(o.Rules))}}
	c.out = Comparison{
		Schema: report.Schema, A: of(a), B: of(b), Confidence: o.Confidence,
		Differ: []Difference{}, Outcomes: []Outcome{}, Metrics: []Metric{}, OnlyA: []string{}, OnlyB: []string{}, Notes: []string{},
	}
	for _, arch := range report.Arches {
		ra, rb := ofISA(a.Runs, arch), ofISA(b.Runs, arch)
		switch {
		case len(ra) == 0 && len(rb) == 0:
		case len(rb) == 0:
			c.out.OnlyA = append(c.out.OnlyA, arch)
		case len(ra) == 0:
			c.out.OnlyB = append(c.out.OnlyB, arch)
		default:
			if err := c.isa(arch, ra, rb); err != nil {
				return nil, err
			}
		}
	}
	if len(c.out.Metrics) == 0 && len(c.out.Outcomes) == 0 {
		return nil, c.nothing(a, b)
	}
	c.notes()
	c.out.Status = c.judge()
	return &c.out, nil
}

type comparer struct {
	o      Options
	limits limits
	out    Comparison
	bare   map[string]bool // sides of which a run has no manifest, or no timings
	fresh  map[string]bool // scenarios that did not pass, and that A has not
	loose  map[string]bool // scenarios in which figures of host time differ, in a run of exact time
	again  map[string]bool // scenarios in which exact figures differ within a side
	tested int             // figures that were tested
}

func of(s Side) Of {
	out := Of{s.Name, []OfRun{}}
	for _, r := range s.Runs {
		x := &r.Results
		out.Runs = append(out.Runs, OfRun{r.Name, x.Arch, x.Time, x.Seed, x.Kernel, x.QEMU, r.Commit, x.Status})
	}
	return out
}

func ofISA(all []*runs.Run, arch string) (out []*runs.Run) {
	for _, r := range all {
		if r.Results.Arch == arch {
			out = append(out, r)
		}
	}
	return out
}

func ofTime(all []*runs.Run, time string) (out []*runs.Run) {
	for _, r := range all {
		if r.Results.Time == time {
			out = append(out, r)
		}
	}
	return out
}

// isa compares all runs of one ISA.
func (c *comparer) isa(arch string, a, b []*runs.Run) error {
	if err := cmp.Or(oneKernel("A", a), oneKernel("B", b)); err != nil {
		return err
	}
	c.made(arch, a, b)
	c.outcomes(arch, a, b)
	both := false
	for _, time := range []string{"exact", "host"} {
		ta, tb := ofTime(a, time), ofTime(b, time)
		if len(ta) > 0 && len(tb) > 0 {
			both = true
			c.seeds(arch, time, ta, tb)
			c.figures(arch, time, ta, tb)
		}
	}
	c.hosts(arch, a, b)
	if times := each(a, timeOf); !both && times != "" && each(b, timeOf) != "" {
		c.differ(arch, "time", times, each(b, timeOf), "figures of these are not compared", true)
	}
	return nil
}

// oneKernel refuses a side whose runs are of several kernels: its figures would be those
// of none.
func oneKernel(side string, all []*runs.Run) error {
	var first *runs.Run
	for _, r := range all {
		switch {
		case r.Unfinished:
		case first == nil:
			first = r
		case r.Results.Kernel != first.Results.Kernel:
			return refuse("%s has runs of different kernels, %s in %s and %s in %s: name those of one",
				side, report.Clean(first.Results.Kernel), first.Name, report.Clean(r.Results.Kernel), r.Name)
		}
	}
	return nil
}

// each is what a side's runs have, all of it in order, separated by commas.
func each(all []*runs.Run, get func(*runs.Run) string) string {
	var out []string
	for _, r := range all {
		if v := get(r); v != "" && !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func timeOf(r *runs.Run) string { return r.Results.Time }

func seedOf(r *runs.Run) string { return fmt.Sprint(r.Results.Seed) }

// seeds says if exact runs are not of the same ones. In host time they mean nothing.
func (c *comparer) seeds(arch, time string, a, b []*runs.Run) {
	of := func(all []*runs.Run) map[uint64]float64 {
		out := map[uint64]float64{}
		for _, r := range all {
			out[r.Results.Seed] = 0
		}
		return out
	}
	x, y := each(a, seedOf), each(b, seedOf)
	switch {
	case time != "exact" || x == y:
	case len(sharedSeeds(of(a), of(b))) > 0:
		c.differ(arch, "seed", x, y, "exact figures of those in both are compared", false)
	default:
		c.differ(arch, "seed", x, y, "exact figures may be others for that alone", false)
	}
}

// facts are what runs are made with. Where it is not known of a side, nothing is said.
var facts = []struct {
	what string
	get  func(*runs.Run) string
}{
	{"QEMU", func(r *runs.Run) string { return r.Results.QEMU }},
	{"commit", func(r *runs.Run) string { return r.Commit }},
}

// made says what was not the same.
func (c *comparer) made(arch string, a, b []*runs.Run) {
	kernel := func(r *runs.Run) string { return r.Results.Kernel }
	if ka, kb := each(a, kernel), each(b, kernel); ka != kb && ka != "" && kb != "" {
		c.differ(arch, "kernel", ka, kb, "what is compared is not the same code", !c.o.AcrossKernels)
	}
	for _, f := range facts {
		if va, vb := each(a, f.get), each(b, f.get); va != vb && va != "" && vb != "" {
			c.differ(arch, f.what, va, vb, "", false)
		}
	}
	if slices.ContainsFunc(slices.Concat(a, b), func(r *runs.Run) bool { return r.Bare }) {
		return // there it is not known
	}
	words := map[string]bool{}
	for _, r := range slices.Concat(a, b) {
		for _, w := range r.Words() {
			words[w] = true
		}
	}
	for _, w := range slices.Sorted(maps.Keys(words)) {
		get := func(r *runs.Run) string {
			if v := r.Made[w]; v != "" || r.Unfinished {
				return v
			}
			return "as usual"
		}
		if va, vb := each(a, get), each(b, get); va != vb && va != "" && vb != "" {
			c.differ(arch, w, va, vb, "", false)
		}
	}
}

// hosts says that hosts differ, if that tells on anything that was compared.
func (c *comparer) hosts(arch string, a, b []*runs.Run) {
	sampled := slices.ContainsFunc(c.out.Metrics, func(m Metric) bool { return m.Arch == arch && !m.Exact && m.Verdict != Same })
	host := func(r *runs.Run) string { return r.Host }
	if x, y := each(a, host), each(b, host); sampled && x != y && x != "" && y != "" {
		c.differ(arch, "host", x, y, "host time of one is not that of the other", false)
	}
}

func (c *comparer) differ(arch, what, a, b, means string, fails bool) {
	c.out.Differ = append(c.out.Differ, Difference{arch, what, report.Clean(a), report.Clean(b), means, fails})
}

// outcomes says which scenarios came out otherwise, and the run, where that explains it.
func (c *comparer) outcomes(arch string, a, b []*runs.Run) {
	sa, sb := statuses(a), statuses(b)
	explained := false
	for _, name := range scenarios(a, b) {
		x, y := sa[name], sb[name]
		switch {
		case x != "" && y != "" && x != y:
			c.outcome(Outcome{Arch: arch, Scenario: name, A: x, B: y, Why: why(b, name)})
		case x == "" && status.ExitCode(y) != status.ExitPassed && len(c.o.Only) == 0:
			note(&c.fresh, arch+"/"+name+" ("+string(y)+")")
		}
		explained = explained || y == whole(b)
	}
	if x, y := whole(a), whole(b); x != y && !explained {
		c.outcome(Outcome{Arch: arch, A: x, B: y, Why: why(b, "")})
	}
}

// outcome keeps one. To be skipped is no failure, nor is it to pass instead of that.
func (c *comparer) outcome(o Outcome) {
	o.Fails = status.ExitCode(o.B) != status.ExitPassed && status.Worst(o.A, o.B) == o.B
	if !o.Fails {
		o.Why = ""
	}
	c.out.Outcomes = append(c.out.Outcomes, o)
}

func whole(all []*runs.Run) status.Status {
	var of []status.Status
	for _, r := range all {
		of = append(of, r.Results.Status)
	}
	return status.Worst(of...)
}

// statuses are the worst of each scenario.
func statuses(all []*runs.Run) map[string]status.Status {
	out := map[string]status.Status{}
	for _, r := range all {
		for _, s := range r.Results.Scenarios {
			if was, ok := out[s.Name]; ok {
				out[s.Name] = status.Worst(was, s.Status)
			} else {
				out[s.Name] = s.Status
			}
		}
	}
	return out
}

// why a scenario, or the run, did not pass.
func why(all []*runs.Run, scenario string) string {
	for _, r := range all {
		if scenario == "" && r.Unfinished {
			return "the run ended before it had results"
		}
		f := r.Results.Failure
		for _, s := range r.Results.Scenarios {
			if s.Name == scenario {
				f = s.Failure
			}
		}
		if f != nil {
			return strings.Join(strings.Fields(report.Clean(f.Summary)), " ")
		}
	}
	return ""
}

// scenarios of both sides, in the order in which they come.
func scenarios(a, b []*runs.Run) (names []string) {
	seen := map[string]bool{}
	for _, r := range slices.Concat(a, b) {
		for _, s := range r.Results.Scenarios {
			if !seen[s.Name] {
				seen[s.Name], names = true, append(names, s.Name)
			}
		}
	}
	return names
}

// nothing says why nothing was compared.
func (c *comparer) nothing(a, b Side) error {
	archOf := func(r *runs.Run) string { return r.Results.Arch }
	if !slices.ContainsFunc(a.Runs, func(r *runs.Run) bool { return len(ofISA(b.Runs, r.Results.Arch)) > 0 }) {
		return refuse("no figure is in both: %s is of %s, %s of %s: compare runs of one ISA", a.Name, each(a.Runs, archOf), b.Name, each(b.Runs, archOf))
	}
	for _, s := range []Side{a, b} {
		if !slices.ContainsFunc(s.Runs, func(r *runs.Run) bool { return !r.Unfinished }) {
			return refuse("%s has no results: what ran there ended before it had any: run it again", s.Name)
		}
	}
	for _, d := range c.out.Differ {
		if d.What == "time" {
			return refuse("no figure is in both: %s is of %s time, %s of %s time: run both in one", a.Name, d.A, b.Name, d.B)
		}
	}
	if len(c.o.Only) > 0 {
		return refuse("no figure that --metric chooses is both in %s and in %s: lab compare --all without it lists all", a.Name, b.Name)
	}
	list := func(s Side) string {
		if names := scenarios(s.Runs, nil); len(names) > 0 {
			return strings.Join(names, ", ")
		}
		return "none"
	}
	return refuse("no figure is in both: scenarios of %s are %s, of %s %s: run the same ones, of which some have figures", a.Name, list(a), b.Name, list(b))
}

// notes says how far what was found can be relied on.
func (c *comparer) notes() {
	say := func(format string, of map[string]bool) {
		if len(of) > 0 {
			c.out.Notes = append(c.out.Notes, fmt.Sprintf(format, strings.Join(slices.Sorted(maps.Keys(of)), ", ")))
		}
	}
	say("did not pass in B, and are not in A: %s", c.fresh)
	say("no manifest or no timings lie beside results of %s: figures of exact time are taken for exact, whatever guests they are of", c.bare)
	say("a guest ran in host time in %s: figures of these are samples", c.loose)
	say("runs of one seed differ within a side in %s: figures of these are no exact ones, and taken for samples", c.again)
	if chance := 1 - c.o.Confidence; float64(c.tested)*chance >= 1 {
		c.out.Notes = append(c.out.Notes, fmt.Sprintf("%d figures were tested: that %.3g seem to differ is to be expected of chance", c.tested, float64(c.tested)*chance))
	}
	if rules := c.limits.unused(); len(rules) > 0 && len(c.o.Only) == 0 {
		c.out.Notes = append(c.out.Notes, "thresholds that no figure here has: "+strings.Join(rules, ", "))
	}
}

// judge says whether anything is worse than it may be.
func (c *comparer) judge() status.Status {
	fails := slices.ContainsFunc(c.out.Differ, func(d Difference) bool { return d.Fails }) ||
		slices.ContainsFunc(c.out.Outcomes, func(o Outcome) bool { return o.Fails }) ||
		slices.ContainsFunc(c.out.Metrics, func(m Metric) bool { return m.Fails })
	if fails {
		return status.Failed
	}
	return status.Passed
}
