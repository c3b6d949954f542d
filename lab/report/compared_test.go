package report

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kerninst/lab/status"
)

// probedSample are operations of which splices and kprobes add so many per cent. Made up.
var probedSample = []struct {
	op             string
	bare           float64
	splice, kprobe float64
}{
	{"Null", 400, 1, 100},
	{"Ctx.2p.0K", 5000, 0, -2.5},
	{"Stat", 4000, 0.1, 10},
	{"Mmap", 150000, 0.0001, 0.01},
}

func probedMetrics() map[string]Metric {
	ms := map[string]Metric{
		"splice.geomean": {Value: 1.00274, Unit: "x"}, "kprobe.geomean": {Value: 1.21, Unit: "x"},
		"kprobe-over-splice": {Value: 76.64, Unit: "x"}, "calls.points": {Value: 446, Unit: "points"},
	}
	for _, p := range probedSample {
		ms[p.op+".bare"] = Metric{Value: p.bare, Unit: "insns/op"}
		for kind, percent := range map[string]float64{"splice": p.splice, "kprobe": p.kprobe} {
			ms[p.op+"."+kind+".added"] = Metric{Value: p.bare * percent / 100, Unit: "insns/op"}
			ms[p.op+"."+kind+".ratio"] = Metric{Value: 1 + percent/100, Unit: "x"}
		}
	}
	return ms
}

// workloads are scenarios of each shape. Only shapes say what is drawn: names are others
// than those of the scenarios that there are.
func workloads() []Scenario {
	insns := func(v float64) Metric { return Metric{Value: v, Unit: "insns/op"} }
	times := func(v float64) Metric { return Metric{Value: v, Unit: "x"} }
	return []Scenario{
		{Name: "probes", Status: status.Passed, Metrics: probedMetrics()},
		{Name: "control", Status: status.Passed, Metrics: map[string]Metric{ // of splices alone
			"Null.bare": insns(400), "Null.splice.ratio": times(1), "Stat.bare": insns(4000), "Stat.splice.ratio": times(1),
		}},
		{Name: "proxy-probes", Status: status.Passed, Metrics: map[string]Metric{
			"request.bare": insns(900000), "request.splice.ratio": times(1.002), "request.kprobe.ratio": times(1.3),
		}},
		{Name: "ops", Status: status.Passed, Metrics: map[string]Metric{
			"Null": insns(334), "Fork": {Value: 1e6, Unit: "vns/op"}, "operations": {Value: 4, Unit: "operations"},
			"Read": {Value: 100, Unit: "MB/s", Better: Higher}, "Write": {Value: 1000, Unit: "MB/s", Better: Higher},
		}},
		{Name: "proxy", Status: status.Passed, Metrics: map[string]Metric{
			"proxy.share.open": {Value: 25, Unit: "%"}, "proxy.share.read": {Value: 50, Unit: "%"},
			"proxy.request": insns(900000), // alone
		}},
	}
}

// writeWorkloads has them on amd64; those of arm64 ended before all but the first.
func writeWorkloads(t *testing.T, out string) {
	t.Helper()
	for _, arch := range []string{"amd64", "arm64"} {
		r := results(isaSamples[0])
		r.Arch, r.Scenarios = arch, workloads()
		if arch == "arm64" {
			r.Status, r.Scenarios = status.Timeout, r.Scenarios[:1]
		}
		if err := WriteArch(filepath.Join(out, arch), r, manifest, timings); err != nil {
			t.Fatal(err)
		}
	}
	if err := WriteReport(out); err != nil {
		t.Fatal(err)
	}
}

// drawn is a chart as it can be read: from where to where bars go, by ink, the first on
// top, and where the marks of the scale are.
type drawn struct {
	bars   map[string][]drawnBar
	marks  []float64
	labels []string // of all texts
	page   string
}

type drawnBar struct{ from, to, low, high float64 }

var (
	svgPath = regexp.MustCompile(`<path d="M([\d.]+),([\d.]+)L([\d.]+),([\d.]+)(?:L([\d.]+),([\d.]+)L[\d.]+,[\d.]+Z)?" style="([^"]*)"`)
	svgText = regexp.MustCompile(`>([^<>]+)</text>`)
)

func chartOf(t *testing.T, page, title string) drawn {
	t.Helper()
	_, after, ok := strings.Cut(page, `aria-label="`+title+`">`)
	svg, _, _ := strings.Cut(after, "</svg>")
	if !ok {
		t.Fatalf("no chart %q", title)
	}
	d := drawn{bars: map[string][]drawnBar{}, page: svg}
	for _, m := range svgPath.FindAllStringSubmatch(svg, -1) {
		var v [6]float64
		for i := range v {
			v[i], _ = strconv.ParseFloat(m[i+1], 64)
		}
		switch {
		case strings.Contains(m[7], "fill:var"):
			ink := m[7][strings.Index(m[7], "--")+2 : strings.IndexByte(m[7], ')')]
			d.bars[ink] = append(d.bars[ink], drawnBar{v[0], v[4], v[1], v[3]})
		case strings.Contains(m[7], "stroke:var(--line)") && v[0] == v[2]:
			d.marks = append(d.marks, v[0])
		}
	}
	for _, m := range svgText.FindAllStringSubmatch(svg, -1) {
		d.labels = append(d.labels, m[1])
	}
	return d
}

func near(a, b float64) bool { return math.Abs(a-b) < 0.1 } // of a point

// A bar ends at the mark of what it stands for: that is the scale, and its direction.
// Below it stands what it is in.
func TestBarsEndAtTheirMarks(t *testing.T) {
	out := t.TempDir()
	writeWorkloads(t, out)
	page := read(t, out, HTMLFile)
	const probes, operations = ": per cent that probes add to operations", ": time of operations"
	units := map[string]string{
		probes[2:]: "per cent added to what an operation takes bare", operations[2:]: "instructions or nanoseconds per operation",
		"bandwidth": "MB/s", "shares of time": "per cent of all",
	}
	for _, tt := range []struct {
		title, ink, marks string
		ends              []int // of bars, the first on top: a mark, or -1; the last are the means
	}{
		// Ctx.2p.0K has no bars, Mmap one of splices that is shorter than any mark.
		{"amd64" + probes, "ours", "0.01 %,0.1 %,1 %,10 %,100 %", []int{-1, 2, 1, -1}},
		{"amd64" + probes, "peer", "0.01 %,0.1 %,1 %,10 %,100 %", []int{0, 4, 3, -1}},
		{"arm64" + probes, "peer", "0.01 %,0.1 %,1 %,10 %,100 %", []int{0, 4, 3, -1}},
		{"amd64" + operations, "peer", "100,1 k,10 k,100 k,1 M", []int{4, -1}},
		{"amd64: bandwidth", "peer", "100,1 k", []int{0, 1}},
		{"amd64: shares of time", "peer", "0 %,25 %,50 %,75 %,100 %", []int{1, 2}},
	} {
		d := chartOf(t, page, tt.title)
		names := strings.Split(tt.marks, ",")
		_, what, _ := strings.Cut(tt.title, ": ")
		if unit := d.labels[0]; unit != units[what] {
			t.Errorf("%s: unit %q, want %q", tt.title, unit, units[what])
		}
		d.labels = d.labels[1:]
		if len(d.marks) != len(names) || !strings.HasPrefix(strings.Join(d.labels, ",")+",", tt.marks+",") {
			t.Errorf("%s: marks at %v of texts %q, want %s", tt.title, d.marks, d.labels, tt.marks)
			continue
		}
		bars := d.bars[tt.ink]
		if len(bars) != len(tt.ends) {
			t.Errorf("%s, %s: %d bars, want %d", tt.title, tt.ink, len(bars), len(tt.ends))
			continue
		}
		for i, b := range bars {
			if mark := tt.ends[i]; mark >= 0 && !near(b.to, d.marks[mark]) {
				t.Errorf("%s, %s: bar %d ends at %v, and %s is at %v", tt.title, tt.ink, i, b.to, names[mark], d.marks[mark])
			}
			if i > 0 && b.high >= bars[i-1].low {
				t.Errorf("%s, %s: bar %d is not below the one before", tt.title, tt.ink, i)
			}
		}
	}
}

// Splices are above kprobes, with room between them.
func TestPairsOfBars(t *testing.T) {
	out := t.TempDir()
	writeWorkloads(t, out)
	d := chartOf(t, read(t, out, HTMLFile), "amd64: per cent that probes add to operations")
	for i, s := range d.bars["ours"] {
		k := d.bars["peer"][i]
		if s.low <= k.high || s.low-k.high > 2 || !near(s.from, k.from) || !near(s.high-s.low, k.high-k.low) {
			t.Errorf("row %d: splices %+v, kprobes %+v", i, s, k)
		}
	}
	for text, want := range map[string]int{"none": 1, "−2.5 %": 1, "&lt; 0.001 %": 1, "Ctx.2p.0K": 1, "geomean": 1, "0.274 %": 1, "21 %": 1} {
		if n := strings.Count(d.page, ">"+text+"</text>"); n != want {
			t.Errorf("%q stands there %d times, want %d", text, n, want)
		}
	}
}

func TestWorkloadPage(t *testing.T) {
	out := t.TempDir()
	writeWorkloads(t, out)
	page := read(t, out, HTMLFile)
	for text, want := range map[string]int{
		"What probes add to operations of probes<":       1,
		"What probes add to operations of proxy-probes<": 1,
		"operations of control":                          0, "<h2>control": 0,
		"<h2>ops: time of operations": 1, "<h2>ops: bandwidth": 1, "<h2>proxy: shares of time": 1,
		"<h2>proxy: time": 0, "<h2>probes: time": 0, // one is none, others are drawn elsewhere
		`<tr><th>Null</th><td class="n">400 insns/op</td><td class="n">4</td><td class="n">1.0100</td><td class="n">400</td><td class="n">2.0000</td></tr>`:      2,
		`<tr><th>request</th><td class="n">900,000 insns/op</td><td class="n">–</td><td class="n">1.0020</td><td class="n">–</td><td class="n">1.3000</td></tr>`: 1,
		`<tr><th>geometric mean</th><td class="n"></td><td class="n"></td><td class="n">1.0027</td><td class="n">× 76.64</td><td class="n">1.2100</td></tr>`:     2,
		`<tr><th>open</th><td class="n">25 %</td><td class="n">–</td></tr>`:                                                                                      1,
		"No figures: timed out.":              4, // of arm64
		"splices 1.0027 x · kprobes 1.2100 x": 2,
		"splices 1.0020 x · kprobes 1.3000 x": 1,
		"1.0027 x</td>":                       2, // in the list of all figures
		"<desc>":                              6,
	} {
		if n := strings.Count(page, text); n != want {
			t.Errorf("%q stands there %d times, want %d", text, n, want)
		}
	}
	for i, svg := range regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(page, -1) {
		if err := wellFormed(svg); err != nil {
			t.Errorf("drawing %d: %v", i, err)
		}
	}
}

func wellFormed(text string) error {
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func TestWorkloadSummary(t *testing.T) {
	out := t.TempDir()
	writeWorkloads(t, out)
	golden := filepath.Join("testdata", "workloads-summary.md")
	got := read(t, out, SummaryFile)
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := read(t, golden); got != want {
		t.Errorf("differs from %s (-update rewrites it); got\n%s", golden, got)
	}
}

// Whatever figures a guest makes up, there is a report, and it is text.
func TestChartsOfAnything(t *testing.T) {
	values := []float64{math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64, 1e-300, 1, 0}
	metrics := map[string]Metric{}
	for i, v := range values {
		n := strconv.Itoa(i)
		metrics["op"+n+".bare"] = Metric{Value: v, Unit: "<b>&"}
		metrics["op"+n+".splice.ratio"] = Metric{Value: v, Unit: "x"}
		metrics["op"+n+".kprobe.ratio"] = Metric{Value: -v, Unit: "x"}
		metrics["time"+n] = Metric{Value: v, Unit: "insns/op"}
		metrics["a.share.part"+n] = Metric{Value: v, Unit: "%"}
	}
	out := t.TempDir()
	r := results(isaSamples[0])
	r.Scenarios = []Scenario{{Name: "odd", Status: status.Passed, Metrics: metrics}}
	if err := WriteArch(filepath.Join(out, r.Arch), r, manifest, timings); err != nil {
		t.Fatal(err)
	}
	if err := WriteReport(out); err != nil {
		t.Fatal(err)
	}
	if page := read(t, out, HTMLFile); strings.Contains(page, "<b>&") || !strings.Contains(page, "&lt;b&gt;&amp;") {
		t.Error("a unit is not escaped")
	}
	evil := `"><script>alert(1)</script>&`
	svg, err := barChart(drawing{evil, evil, evil, narrow, logScale(1, 10, func(float64) string { return evil })},
		[]barRow{{evil, []bar{{5, evil, true}}}})
	if err != nil || strings.Contains(string(svg), "<script") || wellFormed(string(svg)) != nil {
		t.Errorf("%v, or a drawing does not escape its texts: %s", err, svg)
	}
}

func TestPercentAdded(t *testing.T) {
	for _, tt := range []struct {
		in   float64
		want string
	}{
		{0, "none"}, {0.000417, "< 0.001 %"}, {-0.000417, "> −0.001 %"}, {0.001, "0.001 %"}, {0.01234, "0.0123 %"},
		{1.497, "1.5 %"}, {99.96, "100 %"}, {113.86, "114 %"}, {-2.914, "−2.91 %"}, {1138.6, "1,139 %"},
	} {
		if got := percentAdded(tt.in); got != tt.want {
			t.Errorf("percentAdded(%v) = %s, want %s", tt.in, got, tt.want)
		}
	}
}

// Figures stand in the order that their scenario gives them, the others behind, by name.
func TestOrder(t *testing.T) {
	ordered := func(of Metric, order int) Metric { of.Order = order; return of }
	ops := workloads()[3].Metrics
	ops["Null"], ops["Fork"] = ordered(ops["Null"], 1), ordered(ops["Fork"], 2)
	ops["Write"] = ordered(ops["Write"], 3) // Read has none
	if got, want := strings.Join(inOrder(ops), " "), "Null Fork Write Read operations"; got != want {
		t.Errorf("order %s, want %s", got, want)
	}
	probes := probedMetrics()
	for i, p := range probedSample {
		probes[p.op+ofBare] = ordered(probes[p.op+ofBare], len(probedSample)-i)
	}
	r := results(isaSamples[0])
	r.Scenarios = []Scenario{{Name: "ops", Status: status.Passed, Metrics: ops}, {Name: "probes", Status: status.Passed, Metrics: probes}}
	out := t.TempDir()
	if err := WriteArch(filepath.Join(out, r.Arch), r, manifest, timings); err != nil {
		t.Fatal(err)
	}
	if err := WriteReport(out); err != nil {
		t.Fatal(err)
	}
	page := read(t, out, HTMLFile)
	for _, want := range []struct{ chart, names string }{
		{"amd64: time of operations", "Null Fork"},
		{"amd64: bandwidth", "Write Read"},
		{"amd64: per cent that probes add to operations", "Mmap Stat Ctx.2p.0K Null"},
	} {
		at := -1
		d := chartOf(t, page, want.chart)
		for _, name := range slices.Backward(strings.Fields(want.names)) { // the last is drawn first
			i := slices.Index(d.labels, name)
			if i <= at {
				t.Errorf("%s: texts %q, want %s from the top", want.chart, d.labels, want.names)
			}
			at = i
		}
	}
}

// The first that is seen is the answer: what a hit costs, else what probes add, else how
// many scenarios passed; then what failed, and how to do it again.
func TestHeadline(t *testing.T) {
	all := workloads()
	for _, tt := range []struct {
		scenarios []Scenario
		want      headline
	}{
		{append(results(isaSamples[0]).Scenarios, all...), headline{"3", "instructions added per hit", "kprobe: 527, 176 times as many"}},
		{all, headline{"0.274 %", "added by splices to operations, geometric mean", "kprobes: 21 %"}},
		{all[2:], headline{"0.2 %", "added by splices to request", "kprobes: 30 %"}},
		{all[3:], headline{What: "2 of 2 scenarios passed"}},
		{nil, headline{What: "0 of 0 scenarios passed"}},
	} {
		r := run{Arch: Arch{Results: Results{Scenarios: tt.scenarios}}}
		if got := r.headline(); got != tt.want {
			t.Errorf("got %+v, want %+v", got, tt.want)
		}
	}
	out := t.TempDir()
	writeSample(t, out, true)
	page := read(t, out, HTMLFile)
	header, _, _ := strings.Cut(page, "</header>")
	for _, want := range []string{
		`<span class="big">3</span><span>instructions added per hit</span>`, `1 failure</b>: <a href="#failure-arm64-count">arm64 count</a>`,
		`<code class="cmd">bin/lab run --arch amd64,arm64,riscv64 --scenario boot,count,cost --time exact --seed 42</code>`,
	} {
		if !strings.Contains(header, want) {
			t.Errorf("the header lacks %s:\n%s", want, header[strings.Index(header, "<body"):])
		}
	}
}
