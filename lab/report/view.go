package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"kerninst/lab/card"
	"kerninst/lab/status"
)

// look is how a status is shown: never by colour alone.
type look struct {
	Glyph string
	Words string
	Class string
}

var looks = map[status.Status]look{
	status.Passed:     {"✓", "passed", "ok"},
	status.Failed:     {"✗", "failed", "bad"},
	status.Crashed:    {"✗", "guest crashed", "bad"},
	status.BootFailed: {"✗", "boot failed", "bad"},
	status.Timeout:    {"✗", "timed out", "bad"},
	status.LabFailed:  {"!", "lab failed", "warn"},
	status.Skipped:    {"–", "skipped", "none"},
}

// Look is how a status is shown elsewhere, or that there is none: a glyph, words, and a class for
// styles: ok, bad, warn or none.
func Look(s status.Status) (glyph, words, class string) {
	l, known := looks[s]
	if !known {
		l = notRun
	}
	return l.Glyph, l.Words, l.Class
}

// notRun is shown where an ISA has no result for a scenario.
var notRun = look{"·", "not run", "none"}

// scenarioNames over all runs, in order of first appearance.
func scenarioNames(runs []run) []string {
	var names []string
	for _, r := range runs {
		for _, s := range r.Results.Scenarios {
			if !slices.Contains(names, s.Name) {
				names = append(names, s.Name)
			}
		}
	}
	return names
}

// scenario of that name, or nil.
func (r *run) scenario(name string) *Scenario {
	for i := range r.Results.Scenarios {
		if r.Results.Scenarios[i].Name == name {
			return &r.Results.Scenarios[i]
		}
	}
	return nil
}

func overall(runs []run) status.Status {
	var all []status.Status
	for _, r := range runs {
		all = append(all, r.Results.Status)
	}
	return status.Worst(all...)
}

// groups splits the metrics of a scenario at the first dot of their names:
// group → rest → metric. A name without a dot is alone in the group "".
func groups(metrics map[string]Metric) map[string]map[string]Metric {
	out := map[string]map[string]Metric{}
	for name, m := range metrics {
		group, rest, ok := strings.Cut(name, ".")
		if !ok {
			group, rest = "", name
		}
		if out[group] == nil {
			out[group] = map[string]Metric{}
		}
		out[group][rest] = m
	}
	return out
}

// tally is one row of the table of counts: the same events counted three
// times. Absent sources are nil.
type tally struct {
	Name                      string
	Counter, Workload, Oracle *Metric
}

// tallies of a scenario: the groups that have a counter.
func tallies(s *Scenario) []tally {
	var out []tally
	byGroup := groups(s.Metrics)
	for _, g := range sorted(byGroup) {
		pick := func(what string) *Metric {
			if m, ok := byGroup[g][what]; ok {
				return &m
			}
			return nil
		}
		if t := (tally{g, pick("counter"), pick("workload"), pick("oracle")}); t.Counter != nil {
			out = append(out, t)
		}
	}
	return out
}

// Verdict of a tally: a count that nothing confirms is no success.
func (t tally) Verdict() look {
	sources := 0
	for _, m := range []*Metric{t.Workload, t.Oracle} {
		if m == nil {
			continue
		}
		if m.Value != t.Counter.Value {
			return look{"✗", "differ", "bad"}
		}
		sources++
	}
	return [...]look{
		{"!", "unconfirmed", "warn"},
		{"✓", "2 equal", "ok"},
		{"✓", "equal", "ok"},
	}[sources]
}

// costOrder is the order in which ways to reach a probe are shown: ours first,
// then the kernel's, cheapest first. Others follow by name.
var costOrder = []string{
	"bare", "splice", "jump", "springboard", "pun", "quiesced", "clone", "trap",
	"optprobe", "ftrace", "kprobe", "kretprobe",
}

// cost is one row of the table of costs.
type cost struct {
	Name   string
	PerOp  *Metric
	PerHit *Metric
}

// Ours says whether the row is one of this project's mechanisms.
func (c cost) Ours() bool {
	i := slices.Index(costOrder, c.Name)
	return i > 0 && i < slices.Index(costOrder, "optprobe")
}

const (
	perOp  = "insns_per_op"
	perHit = "insns_per_hit"
)

// costs of a scenario: the groups that have instructions per operation or hit.
func costs(s *Scenario) []cost {
	var out []cost
	byGroup := groups(s.Metrics)
	for _, g := range sorted(byGroup) {
		c := cost{Name: g}
		if m, ok := byGroup[g][perOp]; ok {
			c.PerOp = &m
		}
		if m, ok := byGroup[g][perHit]; ok {
			c.PerHit = &m
		}
		if c.PerOp != nil || c.PerHit != nil {
			out = append(out, c)
		}
	}
	rank := func(c cost) int {
		if i := slices.Index(costOrder, c.Name); i >= 0 {
			return i
		}
		return len(costOrder)
	}
	slices.SortStableFunc(out, func(a, b cost) int { return cmp.Compare(rank(a), rank(b)) })
	return out
}

// headline is the figure that a run is remembered by, and what it is compared to. Value
// is "" where a run has none.
type headline struct {
	Value, What, Beside string
}

// headlines are tried in this order.
var headlines = []func(*Scenario) headline{costHeadline, addedHeadline}

func (r *run) headline() headline {
	for _, of := range headlines {
		for i := range r.Results.Scenarios {
			if h := of(&r.Results.Scenarios[i]); h.Value != "" {
				return h
			}
		}
	}
	return headline{What: r.passed()}
}

// passed says how many scenarios did.
func (r *run) passed() string {
	n := 0
	for _, s := range r.Results.Scenarios {
		if s.Status == status.Passed {
			n++
		}
	}
	return fmt.Sprintf("%d of %s passed", n, plural(len(r.Results.Scenarios), "scenario"))
}

func costHeadline(s *Scenario) (h headline) {
	per := map[string]*Metric{}
	for _, c := range costs(s) {
		per[c.Name] = c.PerHit
	}
	splice, kprobe := per["splice"], per["kprobe"]
	if splice == nil {
		return h
	}
	h = headline{Value: number(splice.Value), What: "instructions added per hit"}
	if kprobe != nil {
		h.Beside = "kprobe: " + number(kprobe.Value)
		if splice.Value > 0 {
			h.Beside += ", " + number(math.Round(kprobe.Value/splice.Value)) + " times as many"
		}
	}
	return h
}

func addedHeadline(s *Scenario) (h headline) {
	splice, kprobe := typical(s)
	if splice == nil {
		return h
	}
	added := func(m *Metric) string { return percentAdded(probed{Ratio: *m}.Percent()) }
	to := "operations, geometric mean"
	if len(means(s)) == 0 {
		to = comparisons(s)[0].Name // the only one
	}
	return headline{added(splice), "added by splices to " + to, "kprobes: " + added(kprobe)}
}

// Figures says in a few words what the scenarios of a run found, or nothing.
func Figures(r *Results) string {
	var words []string
	for i := range r.Scenarios {
		if key := keyFigures(&r.Scenarios[i]); key != "" {
			words = append(words, key)
		}
	}
	return strings.Join(words, " · ")
}

// keyFigures says in a few words what a scenario found, or nothing.
func keyFigures(s *Scenario) string {
	var words []string
	if ts := tallies(s); len(ts) > 0 {
		equal := 0
		for _, t := range ts {
			if t.Verdict().Class == "ok" {
				equal++
			}
		}
		words = append(words, fmt.Sprintf("%d of %d counts equal", equal, len(ts)))
	}
	for _, c := range costs(s) {
		if c.PerHit != nil {
			words = append(words, fmt.Sprintf("%s %s", c.Name, number(c.PerHit.Value)))
		}
	}
	if splice, kprobe := typical(s); splice != nil {
		words = append(words, "splices "+times(splice.Value)+" x", "kprobes "+times(kprobe.Value)+" x")
	}
	for _, r := range ratios(s) {
		words = append(words, fmt.Sprintf("%s %s [%s, %s]", r.Name, number(r.Value), number(*r.Lo), number(*r.Hi)))
	}
	if spliced, refused := fates(s.Points); len(words) == 0 && spliced+refused > 0 {
		words = append(words, fmt.Sprintf("%d spliced, %d refused", spliced, refused))
	}
	return strings.Join(words, " · ")
}

func fates(points []Point) (spliced, refused int) {
	for _, p := range points {
		if p.Refusal != nil {
			refused++
		} else if p.Mechanism != "" {
			spliced++
		}
	}
	return
}

// number prints v for people: digits in groups of three, and two after the
// point at most, or four significant ones below 1.
func number(v float64) string {
	abs := math.Abs(v)
	if abs >= 1e18 || abs < 1 && v != 0 {
		s := strconv.FormatFloat(v, 'g', 4, 64)
		if v < 0 {
			s = "−" + s[1:]
		}
		return s
	}
	return decimal(v, 2)
}

// decimal prints v with some digits after the point, but for zeros at the end.
func decimal(v float64, digits int) string {
	whole, frac, _ := strings.Cut(strconv.FormatFloat(math.Abs(v), 'f', digits, 64), ".")
	whole = grouped(whole)
	if frac = strings.TrimRight(frac, "0"); frac != "" {
		whole += "." + frac
	}
	if v < 0 {
		whole = "−" + whole
	}
	return whole
}

// grouped separates the digits of a whole number by threes.
func grouped(s string) string {
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// figure prints a metric with its unit and what is known of its spread.
func figure(m *Metric) string {
	if m == nil {
		return "–"
	}
	s := number(m.Value)
	if m.Unit == unitTimes {
		s = times(m.Value)
	}
	if m.Unit != "" && m.Unit != "count" {
		s += " " + m.Unit
	}
	if m.Lo != nil && m.Hi != nil && (*m.Lo != m.Value || *m.Hi != m.Value) {
		s += fmt.Sprintf(" [%s, %s]", number(*m.Lo), number(*m.Hi))
	}
	return s
}

// common is what all runs agree on, or "" with ok false.
func common(runs []run, get func(*Results) string) (string, bool) {
	first := ""
	for i := range runs {
		s := get(&runs[i].Results)
		if s == "" {
			continue // the run ended before it knew
		}
		if first != "" && s != first {
			return "", false
		}
		first = s
	}
	return first, first != ""
}

// ranWith says in one line what ran, as far as all ISAs agree.
func ranWith(runs []run) string {
	var words []string
	for _, c := range []struct {
		form string
		get  func(*Results) string
	}{
		{"Linux %s", func(r *Results) string { return strings.TrimSuffix(r.Kernel, "-"+r.Arch) }},
		{"QEMU %s", func(r *Results) string { return r.QEMU }},
		{"%s time", func(r *Results) string { return r.Time }},
		{"seed %s", seedOf},
	} {
		if s, ok := common(runs, c.get); ok {
			words = append(words, fmt.Sprintf(c.form, s))
		}
	}
	return strings.Join(words, " · ")
}

// seedOf is empty for a run that ended before it knew what it was.
func seedOf(r *Results) string {
	if r.Time == "" {
		return ""
	}
	return strconv.FormatUint(r.Seed, 10)
}

// rerun is the command that does the same again, as far as all ISAs agree.
func rerun(runs []run) string {
	var arches []string
	for _, r := range runs {
		arches = append(arches, r.Results.Arch)
	}
	cmd := "bin/lab run --arch " + strings.Join(arches, ",")
	if names := scenarioNames(runs); len(names) > 0 {
		cmd += " --scenario " + strings.Join(names, ",")
	}
	if t, ok := common(runs, func(r *Results) string { return r.Time }); ok {
		cmd += " --time " + t
	}
	if s, ok := common(runs, seedOf); ok {
		cmd += " --seed " + s
	}
	return cmd
}

// trouble is one failure card.
type trouble struct {
	Arch, Scenario string // Scenario is "" for the run as a whole
	Look           look
	Failure        *Failure // may be nil
	Failed         []Check  // that did not hold
	Cards          []card.Card
}

func troubles(runs []run) []trouble {
	var out []trouble
	for i := range runs {
		r := &runs[i].Results
		before := len(out)
		for j := range r.Scenarios {
			s := &r.Scenarios[j]
			if s.Status != status.Passed && s.Status != status.Skipped || s.Failure != nil {
				out = append(out, trouble{r.Arch, s.Name, looks[s.Status], s.Failure, broken(s.Checks), cardsOf(runs[i].Cards, s.Name)})
			}
		}
		explained := len(out) > before
		if r.Failure != nil || !explained && r.Status != status.Passed && r.Status != status.Skipped {
			f := r.Failure
			if f == nil {
				f = &Failure{Kind: string(r.Status), Summary: cmp.Or(r.Reason, "no scenario says why")}
			}
			out = append(out, trouble{Arch: r.Arch, Look: looks[r.Status], Failure: f})
		}
	}
	return out
}

// cardsOf are the cards of a scenario's guests.
func cardsOf(all []card.Card, scenario string) []card.Card {
	var out []card.Card
	for _, c := range all {
		if c.Scenario == scenario && c.Guest != "" {
			out = append(out, c)
		}
	}
	return out
}

func broken(checks []Check) []Check {
	var out []Check
	for _, c := range checks {
		if !c.OK {
			out = append(out, c)
		}
	}
	return out
}
