package history

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"kerninst/lab/report"
	"kerninst/lab/runs"
	"kerninst/lab/status"
)

var first = time.Date(2026, 11, 27, 4, 50, 16, 0, time.UTC)

// run is one of the scenario cost on arm64, some days after the first.
func run(day int, value float64, changes ...func(*runs.Run)) *runs.Run {
	r := &runs.Run{
		Name: fmt.Sprint("run", day), Start: first.AddDate(0, 0, day), Commit: "abc",
		Results: report.Results{
			Schema: report.Schema, Arch: "arm64", Kernel: "6.12.107-arm64", QEMU: "7.2.22 (Debian)", Time: "exact", Seed: 1, Status: status.Passed,
			Scenarios: []report.Scenario{{Name: "cost", Status: status.Passed, Metrics: map[string]report.Metric{
				"splice": {Value: value, Unit: "insns", Better: report.Lower}, "same": {Value: 7},
			}}},
		},
	}
	for _, c := range changes {
		c(r)
	}
	return r
}

func TestOf(t *testing.T) {
	h := Of([]*runs.Run{
		run(3, 5, func(r *runs.Run) { r.Results.Kernel = "6.12.108-arm64" }),
		run(1, 4),
		run(2, 4, func(r *runs.Run) { r.Results.QEMU, r.Commit = "8.2.1 (Debian)", "def" }),
		run(4, 0, func(r *runs.Run) { r.Unfinished = true }),
		run(5, 0, func(r *runs.Run) { r.Start = time.Time{} }),
		run(0, 9, func(r *runs.Run) { r.Results.Arch = "amd64" }),
		run(6, 3, func(r *runs.Run) { r.Results.Time = "host" }),
	}, nil)
	var names, series []string
	for _, r := range h.Runs {
		names = append(names, r.Run)
	}
	for _, s := range h.Series {
		series = append(series, fmt.Sprintf("%s %s %s %d", s.Arch, s.Time, s.Name, len(s.Points)))
	}
	if want := []string{"run0", "run1", "run2", "run3", "run6"}; !slices.Equal(names, want) {
		t.Errorf("runs %q, want %q", names, want)
	}
	want := []string{"amd64 exact same 1", "amd64 exact splice 1", "arm64 exact same 3", "arm64 exact splice 3", "arm64 host same 1", "arm64 host splice 1"}
	if !slices.Equal(series, want) {
		t.Fatalf("series %q, want %q", series, want)
	}
	s := h.Series[3]
	var points []string
	for _, p := range s.Points {
		points = append(points, fmt.Sprintf("%s %g %v", h.Runs[p.Run].Run, p.Value, p.Marks))
	}
	if want := []string{"run1 4 []", "run2 4 [QEMU 8.2.1 def]", "run3 5 [Linux 6.12.108 QEMU 7.2.22 abc]"}; !slices.Equal(points, want) {
		t.Errorf("points %q, want %q", points, want)
	}
	if !s.Changed() || h.Series[2].Changed() {
		t.Error("what changed and what did not are confused")
	}
	if h.count() != "5 runs" || Of([]*runs.Run{run(1, 4), run(1, 4, func(r *runs.Run) { r.Results.Arch = "amd64" })}, nil).count() != "1 run" {
		t.Error("runs are counted wrong")
	}
	if s.Title() != "arm64 cost/splice, insns, lower is better" {
		t.Errorf("%q", s.Title())
	}
	only, _ := runs.ParsePatterns([]string{"amd64/*/splice"})
	if h := Of([]*runs.Run{run(1, 4), run(0, 9, func(r *runs.Run) { r.Results.Arch = "amd64" })}, only); len(h.Series) != 1 || h.Series[0].Arch != "amd64" {
		t.Errorf("%+v", h.Series)
	}
}

// A figure whose unit is another is no longer the same.
func TestUnitIsMarked(t *testing.T) {
	h := Of([]*runs.Run{run(1, 4), run(2, 4, func(r *runs.Run) { r.Results.Scenarios[0].Metrics["splice"] = report.Metric{Value: 4} })}, nil)
	if got := h.Series[1].Points[1].Marks; !slices.Equal(got, []string{"unit none"}) {
		t.Errorf("%q", got)
	}
}

func three() *History {
	return Of([]*runs.Run{run(1, 4), run(2, 6, func(r *runs.Run) { r.Results.Kernel = "6.12.108-arm64" }), run(3, 5, func(r *runs.Run) { r.Results.Kernel, r.Results.Seed = "6.12.108-arm64", 2 })}, nil)
}

func TestOverview(t *testing.T) {
	for all, want := range map[bool]string{
		false: "ISA time scenario metric unit runs first last change\narm64 exact cost splice insns 3 4 5 +25.00 % ▁█▅\n1 of 2 figures have changed in 3 runs\n",
		true:  "ISA time scenario metric unit runs first last change\narm64 exact cost same 3 7 7 = ▁▁▁\narm64 exact cost splice insns 3 4 5 +25.00 % ▁█▅\n1 of 2 figures have changed in 3 runs\n",
	} {
		var got strings.Builder
		if err := three().Overview(&got, all); err != nil || squeezed(got.String()) != want {
			t.Errorf("all %v: %v, got\n%s\nwant\n%s", all, err, squeezed(got.String()), want)
		}
	}
}

func squeezed(s string) string {
	var out []string
	for _, line := range strings.Split(s, "\n") {
		out = append(out, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(out, "\n")
}

func TestLines(t *testing.T) {
	only, _ := runs.ParsePatterns([]string{"splice"})
	h := three()
	h.Series = slices.DeleteFunc(h.Series, func(s Series) bool { return !only.Match(s.Arch, s.Scenario, s.Name) })
	var got strings.Builder
	if err := h.Lines(&got); err != nil {
		t.Fatal(err)
	}
	want := "arm64 cost/splice, insns, lower is better, exact time\n" +
		"2026-11-28 04:50 run1 seed 1 4 " + strings.Repeat("█", 1) + "\n" +
		"2026-11-29 04:50 run2 seed 1 6 +50.00 % " + strings.Repeat("█", 24) + " Linux 6.12.108\n" +
		"2026-11-30 04:50 run3 seed 2 5 -16.67 % " + strings.Repeat("█", 13) + "\n"
	if squeezed(got.String()) != want {
		t.Errorf("got\n%s\nwant\n%s", squeezed(got.String()), want)
	}
}

// Small plots have a height for each number there can be.
func TestLevels(t *testing.T) {
	of := func(values ...float64) (all []Point) {
		for _, v := range values {
			all = append(all, Point{Value: v})
		}
		return all
	}
	for _, tt := range []struct {
		points []Point
		want   string
	}{
		{of(1, 1, 1), "▁▁▁"},
		{of(0, 7, 3), "▁█▄"},
		{of(-1, 0, 1), "▁▅█"},
		{of(-math.MaxFloat64, math.MaxFloat64), "▁█"},
		{of(0, math.SmallestNonzeroFloat64), "▁▁"},
		{of(), ""},
		{of(slices.Repeat([]float64{0, 1}, 50)...), strings.Repeat("▁█", 30)},
	} {
		if got := spark(tt.points); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.points, got, tt.want)
		}
	}
}

func TestChange(t *testing.T) {
	for _, tt := range []struct {
		was, is float64
		want    string
	}{
		{4, 4, "="}, {4, 5, "+25.00 %"}, {4, 3, "-25.00 %"}, {0, 3, "+3"}, {-4, -5, "-25.00 %"}, {1e9, 1e9 + 1, "+1e-07 %"},
		{math.SmallestNonzeroFloat64, 1, "+1"}, {-math.MaxFloat64, math.MaxFloat64, "+1.798e+308"},
	} {
		if got := change(tt.was, tt.is); got != tt.want {
			t.Errorf("%g to %g: %s, want %s", tt.was, tt.is, got, tt.want)
		}
	}
}

// The page needs nothing else, has a plot for each figure with a disc for each run, and what
// is read stands in it as text.
func TestPage(t *testing.T) {
	h := three()
	h.Runs[1].Run, h.Series[1].Points[1].Marks = "<script>alert(1)</script>", []string{"Linux <b>" + strings.Repeat("x", 100)}
	var b strings.Builder
	if err := h.Page(&b); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, bad := range []string{"<script", "<b>", "http:", "https:", "url(", "#111111", "#333333"} {
		if strings.Contains(strings.ReplaceAll(page, "http-equiv", ""), bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	charts := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(page, -1)
	if len(charts) != 2 {
		t.Fatalf("%d plots", len(charts))
	}
	for _, want := range []string{"28 Nov 04:50", "insns", "Linux &lt;b&gt;xxx", "…", "stroke-dasharray"} {
		if !strings.Contains(charts[1], want) {
			t.Errorf("the plot has no %q:\n%s", want, charts[1])
		}
	}
	for _, want := range []string{"3 runs, 2026-11-28 to 2026-11-30", "arm64 cost/splice, insns, lower is better, exact time", "&lt;script&gt;alert", "&#43;50.00 %", "<td>6.12.108-arm64</td>"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if n := strings.Count(page, "<tr><td>"); n != 6 {
		t.Errorf("%d values are listed", n)
	}
}

func TestPageHasBounds(t *testing.T) {
	var all []*runs.Run
	for day := range 2 {
		r := run(day, 1)
		for n := range MostPlots + 5 {
			r.Results.Scenarios[0].Metrics[fmt.Sprint("m", n)] = report.Metric{Value: 1}
		}
		r.Results.Scenarios[0].Metrics["zz-changed"] = report.Metric{Value: float64(day)}
		all = append(all, r)
	}
	var b strings.Builder
	if err := Of(all, nil).Page(&b); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(b.String(), "<svg"); got != MostPlots {
		t.Errorf("%d plots", got)
	}
	if !strings.Contains(b.String(), "zz-changed") || !strings.Contains(b.String(), " 8 more figures have no plot here") {
		t.Error("not those that changed are drawn, or it is not said that there are others")
	}
}

// Numbers that cannot be drawn are listed.
func TestUndrawable(t *testing.T) {
	var b strings.Builder
	if err := Of([]*runs.Run{run(1, math.MaxFloat64), run(2, -math.MaxFloat64)}, nil).Page(&b); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "numbers too large to draw") || !strings.Contains(b.String(), ">-1.79769e&#43;308<") || strings.Contains(b.String(), "Inf") {
		t.Error(b.String())
	}
}

func TestDocument(t *testing.T) {
	b, err := json.Marshal(three())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"schema":1`, `"run":"run1","arch":"arm64","start":"2026-11-28T04:50:16Z"`, `"metric":"splice","unit":"insns","better":"lower","points":[{"run":0,"value":4},{"run":1,"value":6,"marks":["Linux 6.12.108"]},{"run":2,"value":5}]`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %s in %s", want, b)
		}
	}
	if b, _ := json.Marshal(Of(nil, nil)); string(b) != `{"schema":1,"runs":[],"series":[]}` {
		t.Errorf("%s", b)
	}
}
