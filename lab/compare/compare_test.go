package compare

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"kerninst/lab/report"
	"kerninst/lab/runs"
	"kerninst/lab/status"
)

type metrics = map[string]report.Metric

func insns(v float64) report.Metric {
	return report.Metric{Value: v, Unit: "insns", Better: report.Lower}
}
func points(v float64) report.Metric { return report.Metric{Value: v, Unit: "points"} }
func rate(v float64) report.Metric {
	return report.Metric{Value: v, Unit: "req/s", Better: report.Higher}
}

// run is one on arm64 in exact time, of the scenario cost; changes are made to it.
func run(m metrics, changes ...func(*runs.Run)) *runs.Run {
	r := &runs.Run{Name: ".", Results: report.Results{
		Schema: report.Schema, Arch: "arm64", Kernel: "6.12.107", QEMU: "7.2", Time: "exact", Seed: 1, Status: status.Passed,
		Scenarios: []report.Scenario{{Name: "cost", Status: status.Passed, Metrics: m}},
	}}
	for _, c := range changes {
		c(r)
	}
	return r
}

func seed(n uint64) func(*runs.Run)     { return func(r *runs.Run) { r.Results.Seed = n } }
func kernel(v string) func(*runs.Run)   { return func(r *runs.Run) { r.Results.Kernel = v } }
func host(r *runs.Run)                  { r.Results.Time = "host" }
func isa(arch string) func(*runs.Run)   { return func(r *runs.Run) { r.Results.Arch = arch } }
func scenario(s string) func(*runs.Run) { return func(r *runs.Run) { r.Results.Scenarios[0].Name = s } }
func came(s status.Status) func(*runs.Run) {
	return func(r *runs.Run) {
		r.Results.Status, r.Results.Scenarios[0].Status, r.Results.Scenarios[0].Reason = s, s, "why"
		r.Results.Scenarios[0].Failure = &report.Failure{Kind: "assertion", Summary: "got 3\nwant 4"}
	}
}

// unfinished is a run that ended before it had results.
func unfinished(r *runs.Run) {
	r.Unfinished, r.Results = true, report.Results{Arch: r.Results.Arch, Status: status.LabFailed}
}

var usual = Options{Confidence: 0.95, Limit: Limit{Percent: true}}

func side(name string, all ...*runs.Run) Side { return Side{name, all} }

// compared sets runs beside each other, and has no error.
func compared(t *testing.T, o Options, a, b []*runs.Run) *Comparison {
	t.Helper()
	c, err := Compare(side("a", a...), side("b", b...), o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// onlyMetric is the one figure that is compared.
func onlyMetric(t *testing.T, o Options, a, b []*runs.Run) Metric {
	t.Helper()
	c := compared(t, o, a, b)
	if len(c.Metrics) != 1 {
		t.Fatalf("%d figures: %+v", len(c.Metrics), c.Metrics)
	}
	return c.Metrics[0]
}

func these(all ...*runs.Run) []*runs.Run { return all }

// Exact figures: each difference is a change, for the better or the worse as the figure
// says, and of one that says nothing, a change.
func TestExact(t *testing.T) {
	for _, tt := range []struct {
		a, b    report.Metric
		verdict Verdict
		percent float64
		fails   bool
	}{
		{insns(4), insns(4), Same, 0, false},
		{insns(4), insns(5), Worse, 25, true},
		{insns(4), insns(3), Better, -25, false},
		{rate(100), rate(101), Better, 1, false},
		{rate(100), rate(99), Worse, -1, true},
		{points(100), points(101), Changed, 1, true},
		{points(100), points(99), Changed, -1, true},
		{insns(1e9), insns(1e9 + 1), Worse, 1e-7, true},
		{insns(0), insns(1), Worse, math.NaN(), true},
		{insns(-4), insns(-5), Better, -25, false},
		// Who says which way is better may have said so only since.
		{points(100), report.Metric{Value: 101, Unit: "points", Better: report.Higher}, Better, 1, false},
		{report.Metric{Value: 101, Unit: "points", Better: report.Higher}, points(100), Worse, -100. / 101, true},
		{insns(math.MaxFloat64), insns(-math.MaxFloat64), Better, -100, false},
	} {
		m := onlyMetric(t, usual, these(run(metrics{"x": tt.a})), these(run(metrics{"x": tt.b})))
		if m.Verdict != tt.verdict || m.Fails != tt.fails || !m.Exact || m.A.Value != tt.a.Value || m.B.Value != tt.b.Value {
			t.Errorf("%g -> %g: %+v, want %s", tt.a.Value, tt.b.Value, m, tt.verdict)
		}
		switch {
		case math.IsNaN(tt.percent):
			if m.Percent != nil {
				t.Errorf("%g -> %g: %g %% of nothing", tt.a.Value, tt.b.Value, *m.Percent)
			}
		case m.Percent == nil && tt.percent == 0:
		case m.Percent == nil || math.Abs(*m.Percent-tt.percent) > 1e-9:
			t.Errorf("%g -> %g: %v %%, want %g", tt.a.Value, tt.b.Value, m.Percent, tt.percent)
		}
	}
}

// Several seeds are compared one by one: the one that comes out worst is shown.
func TestSeeds(t *testing.T) {
	side := func(values ...float64) (all []*runs.Run) {
		for i, v := range values {
			all = append(all, run(metrics{"x": insns(v)}, seed(uint64(i))))
		}
		return all
	}
	m := onlyMetric(t, usual, side(100, 100, 100), side(100, 90, 101))
	if m.Verdict != Worse || m.A.Value != 100 || m.B.Value != 101 || *m.Seed != 2 || m.Seeds != 3 || m.Changed != 2 || !m.Fails {
		t.Errorf("%+v", m)
	}
	m = onlyMetric(t, usual, side(100, 100, 100), side(100, 90, 95))
	if m.Verdict != Better || m.B.Value != 95 || m.Changed != 2 || m.Fails {
		t.Errorf("%+v", m)
	}
	m = onlyMetric(t, usual, side(100, 50, 100), side(100, 50))
	if m.Verdict != Same || m.Seeds != 2 || m.Changed != 0 {
		t.Errorf("%+v", m)
	}
	// A run of another seed says nothing of what is compared.
	m = onlyMetric(t, usual, side(100), append(side(100), run(metrics{"x": insns(500)}, seed(7))))
	if m.Verdict != Same || m.Seed != nil {
		t.Errorf("%+v", m)
	}
}

// Where no seed is on both sides, figures are compared all the same, and it is said.
func TestOtherSeeds(t *testing.T) {
	c := compared(t, usual, these(run(metrics{"x": insns(4)})), these(run(metrics{"x": insns(5)}, seed(2))))
	if m := c.Metrics[0]; m.Verdict != Worse || !m.Fails {
		t.Errorf("%+v", m)
	}
	if len(c.Differ) != 1 || c.Differ[0].What != "seed" || c.Differ[0].A != "1" || c.Differ[0].B != "2" || c.Differ[0].Fails {
		t.Errorf("%+v", c.Differ)
	}
	c = compared(t, usual, these(run(metrics{"x": insns(4)})), these(run(metrics{"x": insns(4)}), run(metrics{"x": insns(9)}, seed(2))))
	if m := c.Metrics[0]; m.Verdict != Same || len(c.Differ) != 1 || c.Differ[0].B != "1, 2" || c.Differ[0].Means != "exact figures of those in both are compared" {
		t.Errorf("%+v", c)
	}
	if c := compared(t, usual, these(run(metrics{"x": insns(4)}, host)), these(run(metrics{"x": insns(4)}, host, seed(2)))); len(c.Differ) != 0 {
		t.Errorf("in host time: %+v", c.Differ)
	}
	// Enough seeds are draws.
	var a, b []*runs.Run
	for n := range uint64(5) {
		a = append(a, run(metrics{"x": insns(100 + float64(n))}, seed(n)))
		b = append(b, run(metrics{"x": insns(100.5 + float64(n))}, seed(100+n)))
	}
	if m := onlyMetric(t, usual, a, b); m.Verdict != Unclear || m.P == nil {
		t.Errorf("%+v", m)
	}
}

// sampled makes a run in host time of each value.
func sampled(values ...float64) (all []*runs.Run) {
	for _, v := range values {
		all = append(all, run(metrics{"x": insns(v)}, host))
	}
	return all
}

func TestSamples(t *testing.T) {
	for _, tt := range []struct {
		name    string
		a, b    []*runs.Run
		verdict Verdict
		change  float64
		fails   bool
	}{
		{"apart", sampled(10, 11, 12, 13), sampled(20, 21, 22, 23), Worse, 10, true},
		{"apart, the other way", sampled(20, 21, 22, 23), sampled(10, 11, 12, 13), Better, -10, false},
		{"among each other", sampled(10, 20, 30, 40), sampled(11, 21, 31, 41), Unclear, 1, false},
		{"few", sampled(10, 11, 12), sampled(20, 21, 22), Few, 10, false},
		{"one", sampled(10), sampled(20), Few, 10, false},
		{"one against many", sampled(10), sampled(20, 21, 22, 23, 24, 25, 26, 27), Few, 13.5, false},
		{"all one", sampled(10, 10), sampled(10), Same, 0, false},
		{"apart as far as numbers go", sampled(-1e308, -1.1e308, -1.2e308, -1.3e308), sampled(1e308, 1.1e308, 1.2e308, 1.3e308), Worse, math.MaxFloat64, true},
	} {
		m := onlyMetric(t, usual, tt.a, tt.b)
		if m.Verdict != tt.verdict || m.Change != tt.change || m.Fails != tt.fails || m.Exact {
			t.Errorf("%s: %+v, want %s by %g", tt.name, m, tt.verdict, tt.change)
		}
		if tested := tt.verdict != Few && tt.verdict != Same; (m.P != nil) != tested || (m.Lo != nil) != tested {
			t.Errorf("%s: P %v, from %v", tt.name, m.P, m.Lo)
		}
		if few := tt.verdict == Few; strings.Contains(m.Why, "4 and 4") != few {
			t.Errorf("%s: %q", tt.name, m.Why)
		}
	}
}

// A run that has samples has as many, and not one figure.
func TestSamplesOfARun(t *testing.T) {
	m := insns(3)
	m.Samples = []float64{1, 2, 3, 4, 5, 6}
	other := insns(13)
	other.Samples = []float64{11, 12, 13, 14, 15, 16}
	if got := onlyMetric(t, usual, these(run(metrics{"x": m}, host)), these(run(metrics{"x": other}, host))); got.Verdict != Worse || got.A.N != 6 || got.B.N != 6 || got.A.Value != 3.5 {
		t.Errorf("%+v", got)
	}
}

// A run of exact time may have a guest in host time: which figures are its is not known, so
// those of its scenario are samples.
func TestLoose(t *testing.T) {
	loose := func(r *runs.Run) { r.Loose = map[string]bool{"cost": true} }
	c := compared(t, usual, these(run(metrics{"x": insns(4), "y": insns(1)}, loose)), these(run(metrics{"x": insns(5), "y": insns(1)})))
	if c.Metrics[0].Verdict != Few || c.Metrics[1].Verdict != Same || c.Status != status.Passed {
		t.Errorf("%+v", c)
	}
	if got := strings.Join(c.Notes, "\n"); got != "a guest ran in host time in arm64/cost: figures of these are samples" {
		t.Errorf("%q", got)
	}
}

// Runs of one seed that differ are not exact, whatever they say.
func TestNotExact(t *testing.T) {
	c := compared(t, usual, these(run(metrics{"x": insns(4)}), run(metrics{"x": insns(5)})), these(run(metrics{"x": insns(6)})))
	if c.Metrics[0].Verdict != Few || len(c.Notes) != 1 || !strings.Contains(c.Notes[0], "runs of one seed differ within a side in arm64/cost") {
		t.Errorf("%+v", c)
	}
}

func TestUnits(t *testing.T) {
	c := compared(t, usual, these(run(metrics{"x": insns(4)})), these(run(metrics{"x": {Value: 4, Better: report.Lower}})))
	if m := c.Metrics[0]; m.Verdict != Unlike || !m.Fails || m.Why != "unit insns in one, none in the other" || c.Status != status.Failed {
		t.Errorf("%+v", m)
	}
}

func TestThresholds(t *testing.T) {
	rules, err := ParseRules("f", []byte("# what may get worse\n*  5%\ncost/x 0.5\n arm64/cost/y  -   better=higher # any\n\nz 1% better=neither\nnone 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	o := usual
	o.Rules = rules
	for _, tt := range []struct {
		name  string
		a, b  report.Metric
		fails bool
		limit string
	}{
		{"w", insns(100), insns(105), false, "5%"},
		{"w", insns(100), insns(105.1), true, "5%"},
		{"w", insns(100), insns(50), false, "5%"}, // it got better
		{"w", points(100), points(50), true, "5%"},
		{"w", insns(0), insns(0.1), true, "5%"}, // of nothing, anything is more
		{"x", insns(100), insns(100.5), false, "0.5"},
		{"x", insns(100), insns(101), true, "0.5"},
		{"y", insns(100), insns(1), false, "-"},
		{"y", insns(100), rate(1), false, "-"},     // another unit is not held to anything either
		{"z", insns(100), insns(98), true, "1%"},   // that it is better does not count
		{"w", insns(-100), insns(-94), true, "5%"}, // of what it was, without its sign
		{"w", insns(-100), insns(-96), false, "5%"},
		{"w", insns(3e-310), insns(3.1e-310), false, "5%"}, // of very little
	} {
		m := onlyMetric(t, o, these(run(metrics{tt.name: tt.a})), these(run(metrics{tt.name: tt.b})))
		if m.Fails != tt.fails || m.Limit != tt.limit {
			t.Errorf("%s %g -> %g: %+v, want %v by %s", tt.name, tt.a.Value, tt.b.Value, m, tt.fails, tt.limit)
		}
	}
	c := compared(t, o, these(run(metrics{"x": insns(1)})), these(run(metrics{"x": insns(1)})))
	if got, want := strings.Join(c.Notes, ""), "thresholds that no figure here has: line 4 (arm64/cost/y), line 6 (z), line 7 (none)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	o.Limit, o.Rules = Limit{Any: true}, nil
	if m := onlyMetric(t, o, these(run(metrics{"x": insns(1)})), these(run(metrics{"x": insns(9)}))); m.Fails || m.Verdict != Worse {
		t.Errorf("%+v", m)
	}
}

// What help shows is a file of thresholds.
func TestLimitsForm(t *testing.T) {
	var lines []string
	for _, line := range strings.Split(LimitsForm, "\n") {
		if strings.HasPrefix(line, "  ") {
			lines = append(lines, line)
		}
	}
	if rules, err := ParseRules("help", []byte(strings.Join(lines, "\n"))); err != nil || len(rules) != 5 || !rules[4].limit.Any {
		t.Errorf("%v, %v", rules, err)
	}
}

func TestWrongThresholds(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "no line has a threshold",
		"# nothing\n":                   "no line has a threshold",
		"a\n":                           `f:1: "a" has no limit: want PATTERN LIMIT`,
		"\n\na 2 %\n":                   `f:3: unknown key "%"`,
		"a two":                         `f:1: limit "two": want a number`,
		"a -1%":                         "want a number of 0 or more",
		"a NaN":                         "want a number",
		"a inf%":                        "want a number",
		"a 0x1p3":                       "want a number",
		"a %":                           "want a number",
		"a 1 % ":                        "unknown key",
		"a 1\nb/c/d/e 1":                "f:2: pattern",
		"a[ 1":                          "f:1: pattern",
		"a 1 beter=lower":               `f:1: unknown key "beter": want better=lower, better=higher or better=neither; did you mean better?`,
		"a 1 better":                    "unknown key",
		"a 1 worse=2":                   `unknown key "worse"`,
		"a 1 better=lowr":               "f:1: better=lowr: want lower, higher or neither; did you mean lower?",
		"a 1 better=":                   "better=: want lower",
		"a 1 better=lower better=lower": "f:1: better is given twice",
		"a 1\x1b[31m":                   "want a number",
		"\xff\x00 x":                    "want a number",
	} {
		rules, err := ParseRules("f", []byte(text))
		if err == nil || rules != nil || !strings.Contains(err.Error(), want) || strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%q: %v, %v, want …%s…", text, rules, err, want)
		}
	}
	for text, want := range map[string]string{"0": "0", "2%": "2%", "0.50": "0.5", "-": "-", "1e3": "1000", "0%": "0%"} {
		if l, err := ParseLimit(text); err != nil || l.String() != want {
			t.Errorf("%s: %s, %v", text, l, err)
		}
	}
}

func TestOutcomes(t *testing.T) {
	for _, tt := range []struct {
		a, b  status.Status
		fails bool
	}{
		{status.Passed, status.Failed, true},
		{status.Passed, status.Crashed, true},
		{status.Failed, status.Crashed, true},
		{status.Skipped, status.Failed, true},
		{status.Passed, status.LabFailed, true},
		{status.Failed, status.Passed, false},
		{status.Crashed, status.Failed, false},
		{status.Passed, status.Skipped, false},
		{status.Skipped, status.Passed, false},
	} {
		c := compared(t, usual, these(run(metrics{"x": insns(1)}, came(tt.a))), these(run(metrics{"x": insns(1)}, came(tt.b))))
		want := Outcome{Arch: "arm64", Scenario: "cost", A: tt.a, B: tt.b, Fails: tt.fails}
		if tt.fails {
			want.Why = "got 3 want 4"
		}
		if len(c.Outcomes) != 1 || c.Outcomes[0] != want || (c.Status == status.Failed) != tt.fails {
			t.Errorf("%+v, want %+v", c.Outcomes, want)
		}
	}
	same := compared(t, usual, these(run(metrics{"x": insns(1)}, came(status.Failed))), these(run(metrics{"x": insns(1)}, came(status.Failed))))
	if len(same.Outcomes) != 0 || same.Status != status.Passed {
		t.Errorf("%+v", same)
	}
	// Of several runs, the worst counts.
	c := compared(t, usual, these(run(metrics{"x": insns(1)})), these(run(metrics{"x": insns(1)}), run(metrics{"x": insns(1)}, came(status.Timeout)), run(metrics{"x": insns(1)})))
	if len(c.Outcomes) != 1 || c.Outcomes[0].B != status.Timeout {
		t.Errorf("%+v", c.Outcomes)
	}
}

// A scenario that did not pass and that A has not is no change, and is said.
func TestFreshFailure(t *testing.T) {
	b := run(metrics{"x": insns(1)})
	b.Results.Status = status.Failed
	b.Results.Scenarios = append(b.Results.Scenarios, report.Scenario{Name: "new", Status: status.Failed})
	c := compared(t, usual, these(run(metrics{"x": insns(1)})), these(b))
	if len(c.Outcomes) != 0 || c.Status != status.Passed || !slices.Equal(c.Notes, []string{"did not pass in B, and are not in A: arm64/new (failed)"}) {
		t.Errorf("%+v", c)
	}
}

// A run that has no results got worse, though there is nothing to compare.
func TestUnfinished(t *testing.T) {
	c := compared(t, usual, these(run(metrics{"x": insns(1)})), these(run(nil, unfinished)))
	want := Outcome{Arch: "arm64", A: status.Passed, B: status.LabFailed, Why: "the run ended before it had results", Fails: true}
	if len(c.Outcomes) != 1 || c.Outcomes[0] != want || c.Status != status.Failed || len(c.Differ) != 0 {
		t.Errorf("%+v", c)
	}
}

func TestOnlyOnOneSide(t *testing.T) {
	a := run(metrics{"x": insns(1), "gone": insns(1)})
	b := run(metrics{"x": insns(1), "new": insns(1)})
	a.Results.Scenarios = append(a.Results.Scenarios, report.Scenario{Name: "old", Status: status.Passed})
	b.Results.Scenarios = append(b.Results.Scenarios, report.Scenario{Name: "fresh", Status: status.Passed})
	c := compared(t, usual, these(a, run(nil, isa("riscv64"))), these(b, run(nil, isa("amd64"))))
	if want := []string{"arm64/cost/gone", "arm64/old", "riscv64"}; !slices.Equal(c.OnlyA, want) {
		t.Errorf("only in A: %q, want %q", c.OnlyA, want)
	}
	if want := []string{"amd64", "arm64/cost/new", "arm64/fresh"}; !slices.Equal(c.OnlyB, want) {
		t.Errorf("only in B: %q, want %q", c.OnlyB, want)
	}
	if c.Status != status.Passed {
		t.Error("that figures are new is a failure")
	}
}

// What runs were made with is said where it differs. A kernel that differs fails, unless
// that is meant.
func TestDiffer(t *testing.T) {
	x := metrics{"x": insns(1)}
	other := func(r *runs.Run) {
		r.Results.Kernel, r.Results.QEMU, r.Results.Seed = "6.12.108", "8.2", 2
		r.Commit, r.Host, r.Made = "def", "CPUs 8, kvm", map[string]string{"CPUs of guests": "2"}
	}
	plain := func(r *runs.Run) { r.Commit, r.Host = "abc", "CPUs 2, tcg" }
	c := compared(t, usual, these(run(x, plain)), these(run(x, other)))
	var got []string
	for _, d := range c.Differ {
		got = append(got, fmt.Sprintf("%s|%s|%s|%v", d.What, d.A, d.B, d.Fails))
	}
	want := []string{
		"kernel|6.12.107|6.12.108|true", "QEMU|7.2|8.2|false", "commit|abc|def|false",
		"CPUs of guests|as usual|2|false", "seed|1|2|false",
	}
	if !slices.Equal(got, want) || c.Status != status.Failed {
		t.Errorf("%q, want %q", got, want)
	}
	if len(c.Metrics) != 1 || c.Metrics[0].Fails {
		t.Errorf("the rest does not go on: %+v", c.Metrics)
	}
	sampled := compared(t, usual, these(run(metrics{"x": insns(1)}, host, plain)), these(run(metrics{"x": insns(2)}, host, other)))
	if last := sampled.Differ[len(sampled.Differ)-1]; last.What != "host" || last.A != "CPUs 2, tcg" || last.B != "CPUs 8, kvm" || last.Fails {
		t.Errorf("of samples: %+v", sampled.Differ)
	}
	o := usual
	o.AcrossKernels = true
	if c := compared(t, o, these(run(x)), these(run(x, kernel("6.13")))); c.Status != status.Passed || len(c.Differ) != 1 || c.Differ[0].Fails {
		t.Errorf("a kernel that is meant to be another: %+v", c)
	}
	// What is not known is no difference.
	bare := func(r *runs.Run) { r.Bare = true }
	c = compared(t, usual, these(run(x, bare)), these(run(x, func(r *runs.Run) { r.Made, r.Commit = map[string]string{"CPUs of guests": "2"}, "abc" })))
	if len(c.Differ) != 0 || len(c.Notes) != 1 || !strings.Contains(c.Notes[0], "no manifest or no timings lie beside results of A") {
		t.Errorf("%+v", c)
	}
	if c := compared(t, usual, these(run(x)), these(run(x))); len(c.Differ)+len(c.Notes) != 0 {
		t.Errorf("%+v", c)
	}
}

// One ISA can be compared, the other cannot.
func TestOtherTime(t *testing.T) {
	x := metrics{"x": insns(1)}
	c := compared(t, usual, these(run(x), run(x, isa("amd64"))), these(run(x), run(x, isa("amd64"), host)))
	if len(c.Metrics) != 1 || c.Status != status.Failed || len(c.Differ) != 1 || c.Differ[0] != (Difference{"amd64", "time", "exact", "host", "figures of these are not compared", true}) {
		t.Errorf("%+v", c)
	}
}

func TestNothingToCompare(t *testing.T) {
	x := metrics{"x": insns(1)}
	only, err := runs.ParsePatterns([]string{"y"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		a, b []*runs.Run
		o    Options
		want string
	}{
		{these(run(x)), these(run(x, isa("amd64"))), usual, "a is of arm64, b of amd64: compare runs of one ISA"},
		{these(run(x), run(x, isa("riscv64"))), these(run(x, scenario("count")), run(x, isa("amd64"))), usual, "scenarios of a are cost, of b count, cost: run the same ones"},
		{these(run(x)), these(run(x, host)), usual, "a is of exact time, b of host time: run both in one"},
		{these(run(nil)), these(run(nil)), usual, "scenarios of a are cost, of b cost"},
		{these(run(nil, unfinished)), these(run(nil, unfinished)), usual, "a has no results: what ran there ended before it had any"},
		{these(run(nil, unfinished)), these(run(x)), usual, "a has no results"},
		{these(run(x)), these(run(x)), Options{Confidence: 0.95, Only: only}, "no figure that --metric chooses"},
		{these(run(x), run(x, kernel("6.1"), func(r *runs.Run) { r.Name = "other" })), these(run(x)), usual, "A has runs of different kernels, 6.12.107 in . and 6.1 in other: name those of one"},
		{these(run(x)), these(run(x, kernel("6.1")), run(x, kernel("6.2"))), usual, "B has runs of different kernels"},
	} {
		c, err := Compare(side("a", tt.a...), side("b", tt.b...), tt.o)
		var bad *InputError
		if c != nil || !errors.As(err, &bad) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want …%s…", err, tt.want)
		}
	}
}

func TestChosenFigures(t *testing.T) {
	o := usual
	o.Only, _ = runs.ParsePatterns([]string{"cost/y"})
	a, b := run(metrics{"x": insns(1), "y": insns(1)}), run(metrics{"x": insns(9), "y": insns(1)})
	b.Results.Scenarios = append(b.Results.Scenarios, report.Scenario{Name: "new", Status: status.Failed, Metrics: metrics{"y": insns(1)}})
	c := compared(t, o, these(a), these(b))
	if len(c.OnlyB)+len(c.Notes) != 0 {
		t.Errorf("%q, %q are not asked for", c.OnlyB, c.Notes)
	}
	if len(c.Metrics) != 1 || c.Metrics[0].Name != "y" || c.Status != status.Passed {
		t.Errorf("%+v", c)
	}
}

// Figures come as their scenario shows them.
func TestOrder(t *testing.T) {
	m := metrics{"a": insns(1), "b": insns(1), "z": insns(1)}
	first := m["z"]
	first.Order = 1
	m["z"] = first
	var names []string
	for _, m := range compared(t, usual, these(run(m)), these(run(m))).Metrics {
		names = append(names, m.Name)
	}
	if want := []string{"z", "a", "b"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}

// Of many tests some seem to find something.
func TestChance(t *testing.T) {
	a, b := metrics{}, metrics{}
	var ra, rb []*runs.Run
	for n := range 4 {
		a, b = metrics{}, metrics{}
		for k := range 20 {
			a[fmt.Sprintf("m%d", k)], b[fmt.Sprintf("m%d", k)] = insns(float64(10*n)), insns(float64(10*n+k-10))
		}
		ra, rb = append(ra, run(a, host)), append(rb, run(b, host))
	}
	c := compared(t, usual, ra, rb)
	if len(c.Notes) != 1 || !strings.Contains(c.Notes[0], "20 figures were tested: that 1 seem to differ is to be expected") {
		t.Errorf("%q", c.Notes)
	}
}

// Documents hold whatever comes out, and say the same each time.
func TestDocument(t *testing.T) {
	a, b := these(run(metrics{"x": insns(0), "y": points(1)})), these(run(metrics{"x": insns(math.MaxFloat64), "y": points(math.SmallestNonzeroFloat64)}))
	first, err := json.Marshal(compared(t, usual, a, b))
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if again, _ := json.Marshal(compared(t, usual, a, b)); string(again) != string(first) {
			t.Fatalf("%s and %s", first, again)
		}
	}
	for _, key := range []string{`"schema":1`, `"status":"failed"`, `"differ":[]`, `"outcomes":[]`, `"only_a":[]`, `"notes":[]`, `"verdict":"worse"`, `"limit":"0%"`} {
		if !strings.Contains(string(first), key) {
			t.Errorf("%s has no %s", first, key)
		}
	}
}
