package report

import (
	"html/template"
	"math"
	"strconv"
	"strings"
)

// unitTimes is the unit of a metric that says how many times as much as bare something is.
const unitTimes = "x"

// Names of metrics that compare an operation with probes in the kernel to the same
// without, behind the operation's own: which scenario files them is all one.
const (
	ofBare   = ".bare"
	ofSplice = ".splice"
	ofKprobe = ".kprobe"
	added    = ".added"
	asRatio  = ".ratio"
)

// compared is one operation: what it takes bare, and with each kind of probes.
type compared struct {
	Name           string
	Bare           *Metric
	Splice, Kprobe probed
}

// probed is an operation with probes in the kernel.
type probed struct {
	Ratio Metric
	Added *Metric // nil: not filed
}

// Percent is what probes add, of what the operation takes bare. It is finite as the ratio
// is.
func (p probed) Percent() float64 {
	return min(max(100*(p.Ratio.Value-1), -math.MaxFloat64), math.MaxFloat64)
}

// comparisons of a scenario: the operations of which all three are known. A control of
// one kind of probes is none.
func comparisons(s *Scenario) (out []compared) {
	for _, name := range inOrder(s.Metrics) {
		op, ok := strings.CutSuffix(name, ofBare)
		splice, spliced := probedBy(s, op+ofSplice)
		kprobe, kprobed := probedBy(s, op+ofKprobe)
		if ok && spliced && kprobed {
			bare := s.Metrics[name]
			out = append(out, compared{op, &bare, splice, kprobe})
		}
	}
	return out
}

func probedBy(s *Scenario, name string) (p probed, ok bool) {
	p.Ratio, ok = s.Metrics[name+asRatio]
	if m, filed := s.Metrics[name+added]; filed {
		p.Added = &m
	}
	return p, ok
}

// mean is a last row of the table: what a scenario says of its operations together.
type mean struct {
	Name, short            string  // short: in a chart
	Splice, Kprobe, Factor *Metric // Factor is nil where splices add nothing: it would say nothing
}

// means that a scenario files: of operations that vary little, and of all.
func means(s *Scenario) (out []mean) {
	for _, of := range []struct{ suffix, name, short string }{{"", "geometric mean", "geomean"}, {".all", "geometric mean of all", "geomean, all"}} {
		pick := func(name string) *Metric {
			if m, ok := s.Metrics[name+of.suffix]; ok {
				return &m
			}
			return nil
		}
		m := mean{of.name, of.short, pick("splice.geomean"), pick("kprobe.geomean"), pick("kprobe-over-splice")}
		if m.Factor != nil && m.Factor.Value <= 0 {
			m.Factor = nil
		}
		if m.Splice != nil && m.Kprobe != nil {
			out = append(out, m)
		}
	}
	return out
}

// typical are ratios to remember a scenario by: its mean, or those of its only operation.
func typical(s *Scenario) (splice, kprobe *Metric) {
	ops := comparisons(s)
	if ms := means(s); len(ms) > 0 && len(ops) > 0 {
		return ms[0].Splice, ms[0].Kprobe
	}
	if len(ops) == 1 {
		return &ops[0].Splice.Ratio, &ops[0].Kprobe.Ratio
	}
	return nil, nil
}

// worst operation with a kind of probes.
func worst(ops []compared, kind func(compared) probed) (out compared) {
	for i, c := range ops {
		if i == 0 || kind(c).Ratio.Value > kind(out).Ratio.Value {
			out = c
		}
	}
	return out
}

func withSplices(c compared) probed { return c.Splice }
func withKprobes(c compared) probed { return c.Kprobe }

// times prints a ratio near 1, of which two digits after the point would say nothing.
func times(v float64) string {
	if math.Abs(v) >= 1e6 {
		return number(v)
	}
	return strconv.FormatFloat(v, 'f', 4, 64)
}

// leastAdded is where bars of what is added begin, in per cent.
const leastAdded = 0.005

// percentAdded prints what probes add: three significant digits.
func percentAdded(v float64) string {
	const least = 0.001
	switch {
	case v == 0:
		return "none"
	case 0 < v && v < least:
		return "< 0.001 %"
	case -least < v && v < 0:
		return "> −0.001 %"
	case math.Abs(v) >= 1000:
		return number(math.Round(v)) + " %"
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	return decimal(v, digits) + " %"
}

// comparedView is one scenario's operations with probes, in a card for each ISA.
type comparedView struct {
	Scenario string
	Cards    []comparedCard
}

type comparedCard struct {
	Arch  string
	Chart template.HTML
	Rows  []compared
	Means []mean
	Why   string // there is no chart
}

// comparedViews are all on one scale for each scenario.
func comparedViews(runs []run) (views []comparedView, err error) {
	for _, name := range scenarioNames(runs) {
		v, top := comparedView{Scenario: name}, 0.0
		for i := range runs {
			c := comparedCard{Arch: runs[i].Results.Arch, Why: absent(&runs[i].Results, name)}
			if s := runs[i].scenario(name); s != nil {
				c.Rows, c.Means = comparisons(s), means(s)
			}
			top = max(top, c.most())
			v.Cards = append(v.Cards, c)
		}
		drawn := 0
		for i := range v.Cards {
			if err := v.Cards[i].draw(top); err != nil {
				return nil, err
			}
			drawn += len(v.Cards[i].Rows)
		}
		if drawn > 0 {
			views = append(views, v)
		}
	}
	return views, nil
}

// bars of operations, and of their means, which are the answer in short, below.
func (c *comparedCard) bars() (rows []barRow) {
	if len(c.Rows) == 0 {
		return nil
	}
	add := func(name string, splice, kprobe probed) {
		s, k := splice.Percent(), kprobe.Percent()
		rows = append(rows, barRow{name, []bar{{s, percentAdded(s), true}, {k, percentAdded(k), false}}})
	}
	for _, r := range c.Rows {
		add(r.Name, r.Splice, r.Kprobe)
	}
	for _, m := range c.Means {
		add(m.short, probed{Ratio: *m.Splice}, probed{Ratio: *m.Kprobe})
	}
	return rows
}

// most that is added to any, in per cent.
func (c *comparedCard) most() (top float64) {
	for _, r := range c.bars() {
		for _, b := range r.Bars {
			top = max(top, b.Value)
		}
	}
	return top
}

// draw has the part that is added as a bar, and not the ratio: 1.001 and 1.5 are both
// to be read.
func (c *comparedCard) draw(top float64) (err error) {
	if rows := c.bars(); len(rows) > 0 {
		c.Chart, err = barChart(drawing{
			Title: c.Arch + ": per cent that probes add to operations",
			About: "Two bars for each operation, on a logarithmic scale: what splices add to it, and below what kprobes at the same places do. The values are in the table.",
			Unit:  "per cent added to what an operation takes bare",
			Width: wide,
			Scale: logScale(leastAdded, max(top, 100), func(v float64) string { return number(v) + " %" }),
		}, rows)
	}
	return err
}
