package compare

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"kerninst/lab/measure"
	"kerninst/lab/report"
	"kerninst/lab/runs"
)

// Verdict is what became of a figure.
type Verdict string

const (
	Same    Verdict = "same"
	Better  Verdict = "better"
	Worse   Verdict = "worse"
	Changed Verdict = "changed" // and nobody says which way is better
	Unclear Verdict = "unclear" // samples differ by no more than by chance
	Few     Verdict = "few"     // samples differ, and are too few to say more
	Unlike  Verdict = "unlike"  // they are not of one unit
)

// Metric is a figure that both sides have.
type Metric struct {
	Arch     string        `json:"arch"`
	Time     string        `json:"time"`
	Scenario string        `json:"scenario"`
	Name     string        `json:"metric"`
	Unit     string        `json:"unit"`
	Better   report.Better `json:"better"`
	Verdict  Verdict       `json:"verdict"`
	// Exact figures are one number, others medians of samples.
	Exact bool   `json:"exact"`
	A     Figure `json:"a"`
	B     Figure `json:"b"`
	// Change from A to B: of samples the median of all differences.
	Change  float64  `json:"change"`
	Percent *float64 `json:"percent,omitempty"` // of A; of 0 there is none
	// Of samples: the interval of the change, how probable such samples are if nothing
	// changed, and what probability they could have come to at the least.
	Lo         *float64 `json:"lo,omitempty"`
	Hi         *float64 `json:"hi,omitempty"`
	Confidence float64  `json:"confidence,omitempty"`
	P          *float64 `json:"p,omitempty"`
	// Of exact figures with several seeds on both sides: how many changed of how many. The
	// values are of one seed, the one that comes out worst.
	Seed    *uint64 `json:"seed,omitempty"`
	Seeds   int     `json:"seeds,omitempty"`
	Changed int     `json:"seeds_changed,omitempty"`

	Limit string `json:"limit"`
	Fails bool   `json:"fails"`
	Why   string `json:"why,omitempty"`
}

// Figure is one side's.
type Figure struct {
	Value float64 `json:"value"`
	N     int     `json:"n"` // samples
}

// seen is a figure as one run has it.
type seen struct {
	seed uint64
	report.Metric
}

// table is what runs have of one scenario: by figure.
type table map[string][]seen

// figures compares those of one ISA and one kind of time.
func (c *comparer) figures(arch, time string, a, b []*runs.Run) {
	for _, name := range scenarios(a, b) {
		ta, tb := tableOf(a, name), tableOf(b, name)
		if ta == nil || tb == nil {
			if c.chosen(arch, name, ta, tb) {
				c.only(ta != nil, arch+"/"+name)
			}
			continue
		}
		inexact := slices.ContainsFunc(slices.Concat(a, b), func(r *runs.Run) bool { return r.Inexact(name) })
		for _, figure := range names(ta, tb) {
			if !c.o.Only.Match(arch, name, figure) {
				continue
			}
			sa, sb := ta[figure], tb[figure]
			if len(sa) == 0 || len(sb) == 0 {
				c.only(len(sa) > 0, arch+"/"+name+"/"+figure)
				continue
			}
			m := Metric{Arch: arch, Time: time, Scenario: name, Name: figure}
			c.figure(&m, sa, sb, inexact)
			c.out.Metrics = append(c.out.Metrics, m)
		}
	}
	for side, all := range map[string][]*runs.Run{"A": a, "B": b} {
		if time == "exact" && slices.ContainsFunc(all, func(r *runs.Run) bool { return r.Bare }) {
			note(&c.bare, side)
		}
	}
}

// chosen says whether any figure of a scenario is to be compared.
func (c *comparer) chosen(arch, scenario string, a, b table) bool {
	return len(c.o.Only) == 0 || slices.ContainsFunc(names(a, b), func(figure string) bool { return c.o.Only.Match(arch, scenario, figure) })
}

func (c *comparer) only(a bool, what string) {
	if a {
		c.out.OnlyA = append(c.out.OnlyA, what)
	} else {
		c.out.OnlyB = append(c.out.OnlyB, what)
	}
}

func note(in *map[string]bool, what string) {
	if *in == nil {
		*in = map[string]bool{}
	}
	(*in)[what] = true
}

// tableOf is nil if no run has the scenario.
func tableOf(all []*runs.Run, scenario string) (t table) {
	for _, r := range all {
		for _, s := range r.Results.Scenarios {
			if s.Name != scenario {
				continue
			}
			if t == nil {
				t = table{}
			}
			for name, m := range s.Metrics {
				t[name] = append(t[name], seen{r.Results.Seed, m})
			}
		}
	}
	return t
}

// names of all figures, in the order in which a scenario shows them.
func names(a, b table) []string {
	place := map[string]int{}
	for _, t := range []table{a, b} {
		for name, s := range t {
			if place[name] = s[0].Order; place[name] == 0 {
				place[name] = math.MaxInt
			}
		}
	}
	return slices.SortedFunc(maps.Keys(place), func(x, y string) int {
		return cmp.Or(cmp.Compare(place[x], place[y]), cmp.Compare(x, y))
	})
}

// figure compares one.
func (c *comparer) figure(m *Metric, a, b []seen, inexact bool) {
	m.Unit, m.Better = b[len(b)-1].Unit, b[len(b)-1].Better
	if m.Better == report.Neither {
		m.Better = a[len(a)-1].Better
	}
	limit, better := c.limits.of(m.Arch, m.Scenario, m.Name, m.Better)
	m.Limit, m.Better = limit.String(), better
	if other := otherUnit(a, b, m.Unit); other != m.Unit {
		m.Verdict, m.Fails = Unlike, !limit.Any
		m.Why = fmt.Sprintf("unit %s in one, %s in the other", word(other), word(m.Unit))
		m.A, m.B = Figure{measure.Median(samples(a)), len(a)}, Figure{measure.Median(samples(b)), len(b)}
		return
	}
	at := m.Arch + "/" + m.Scenario
	ea, okA := bySeed(a)
	eb, okB := bySeed(b)
	switch shared := sharedSeeds(ea, eb); {
	case inexact:
		c.ranked(m, samples(a), samples(b))
		if m.Time == "exact" && m.Verdict != Same {
			note(&c.loose, at)
		}
	case !okA || !okB:
		note(&c.again, at)
		c.ranked(m, samples(a), samples(b))
	case len(shared) > 0:
		m.exact(ea, eb, shared)
	case measure.LeastP(len(ea), len(eb)) <= 1-c.o.Confidence:
		c.ranked(m, samples(a), samples(b)) // over seeds, of which each is one draw
	default:
		m.values(measure.Median(samples(a)), measure.Median(samples(b)))
		m.Exact, m.A.N, m.B.N = true, len(ea), len(eb)
	}
	m.Fails = (m.Verdict == Worse || m.Verdict == Changed) && limit.exceeded(m.A.Value, m.Change)
}

func word(unit string) string { return cmp.Or(unit, "none") }

// otherUnit is one that is not the unit, or the unit.
func otherUnit(a, b []seen, unit string) string {
	for _, s := range slices.Concat(a, b) {
		if s.Unit != unit {
			return s.Unit
		}
	}
	return unit
}

// samples of all runs: the ones that a run has, or its figure.
func samples(all []seen) (out []float64) {
	for _, s := range all {
		if len(s.Samples) > 0 {
			out = append(out, s.Samples...)
		} else {
			out = append(out, s.Value)
		}
	}
	return out
}

// bySeed is each seed's figure, and whether runs of one seed agree on it.
func bySeed(all []seen) (of map[uint64]float64, agree bool) {
	of, agree = map[uint64]float64{}, true
	for _, s := range all {
		if was, ok := of[s.seed]; ok && was != s.Value {
			agree = false
		}
		of[s.seed] = s.Value
	}
	return of, agree
}

func sharedSeeds(a, b map[uint64]float64) (shared []uint64) {
	for _, seed := range slices.Sorted(maps.Keys(a)) {
		if _, ok := b[seed]; ok {
			shared = append(shared, seed)
		}
	}
	return shared
}

// exact compares seed by seed. Of several, the one that comes out worst is shown.
func (m *Metric) exact(a, b map[uint64]float64, seeds []uint64) {
	worst, changed := seeds[0], 0
	worstBy := math.Inf(-1)
	for _, seed := range seeds {
		if a[seed] == b[seed] {
			continue
		}
		changed++
		if by := m.badness(a[seed], b[seed]); by > worstBy {
			worst, worstBy = seed, by
		}
	}
	m.values(a[worst], b[worst])
	m.Exact, m.A.N, m.B.N = true, 1, 1
	if len(seeds) > 1 {
		m.Seed, m.Seeds, m.Changed = &worst, len(seeds), changed
	}
}

// badness is by what part a figure got worse, or changed if nobody knows what is worse.
func (m *Metric) badness(a, b float64) float64 {
	by := b/2 - a/2 // no infinity
	switch m.Better {
	case report.Higher:
		by = -by
	case report.Neither:
		by = math.Abs(by)
	}
	if a == 0 {
		return math.Copysign(math.MaxFloat64, by)
	}
	return by / math.Abs(a)
}

// values sets those of both sides, the change, and what it means if it is one.
func (m *Metric) values(a, b float64) {
	m.A.Value, m.B.Value = a, b
	m.change(finite(b - a))
}

func (m *Metric) change(by float64) {
	m.Change = by
	if p := by / math.Abs(m.A.Value) * 100; m.A.Value != 0 && !math.IsInf(p, 0) {
		m.Percent = &p
	}
	switch {
	case by == 0:
		m.Verdict = Same
	case m.Better == report.Neither:
		m.Verdict = Changed
	case (by < 0) == (m.Better == report.Lower):
		m.Verdict = Better
	default:
		m.Verdict = Worse
	}
}

// ranked compares samples.
func (c *comparer) ranked(m *Metric, a, b []float64) {
	m.A, m.B = Figure{measure.Median(a), len(a)}, Figure{measure.Median(b), len(b)}
	if all := slices.Concat(a, b); slices.Min(all) == slices.Max(all) {
		m.Verdict = Same
		return
	}
	s, chance := measure.Shifted(a, b, c.o.Confidence), 1-c.o.Confidence
	m.change(s.Value)
	if measure.LeastP(len(a), len(b)) > chance {
		m.Verdict = Few
		m.Why = fmt.Sprintf("%d and %d samples; %d and %[3]d can differ by more than chance", len(a), len(b), enough(chance))
		return
	}
	c.tested++
	m.P = &s.P
	if s.Confidence > 0 {
		m.Lo, m.Hi, m.Confidence = &s.Lo, &s.Hi, s.Confidence
	}
	if s.P > chance || s.Value == 0 {
		m.Verdict = Unclear
	}
}

// enough is how many samples of each side can differ by more than chance.
func enough(chance float64) (n int) {
	for n = 1; measure.LeastP(n, n) > chance; n++ {
	}
	return n
}

// finite keeps to numbers that documents can hold.
func finite(v float64) float64 { return max(-math.MaxFloat64, min(math.MaxFloat64, v)) }
