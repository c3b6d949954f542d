package report

import (
	"math"
	"regexp"
	"strings"
	"testing"
)

func trend(values ...float64) *Trend {
	t := &Trend{Title: "a title", Unit: "insns", Runs: len(values), Dates: map[int]string{0: "27 Nov"}}
	for i, v := range values {
		t.Points = append(t.Points, TrendPoint{Run: i, Value: v})
	}
	return t
}

func TestTrend(t *testing.T) {
	plain, err := trend(3, 5, 4).Chart()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`aria-label="a title"`, "27 Nov", ">insns<", ">3<", ">4<", ">5<", "var(--ours)"} {
		if !strings.Contains(string(plain), want) {
			t.Errorf("no %q in %s", want, plain)
		}
	}
	discs := regexp.MustCompile(`A2\.5,2\.5`)
	with := trend(3, 5, 4)
	with.Marks = []TrendMark{{1, "Linux 6.13 & more"}, {2, "abc"}}
	with.Points[2].Lo, with.Points[2].Hi = ptr(3.5), ptr(9.)
	marked, err := with.Chart()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Linux 6.13 &amp; more", ">abc<", ">9<"} {
		if !strings.Contains(string(marked), want) {
			t.Errorf("no %q in %s", want, marked)
		}
	}
	if n := strings.Count(string(marked), "stroke-dasharray"); n != 2 {
		t.Errorf("%d marks", n)
	}
	if p, m := strings.Count(string(plain), "<path"), strings.Count(string(marked), "<path"); m != p+3 {
		t.Errorf("%d paths, with two marks and an interval %d", p, m)
	}
	if n := len(discs.FindAllString(string(plain), -1)); n < 3 {
		t.Errorf("%d arcs of discs", n)
	}
}

// One number, or many of the same, or tiny and large ones: there is a drawing, and its axis
// has numbers.
func TestTrendOfAnything(t *testing.T) {
	for _, values := range [][]float64{{0}, {5}, {5, 5}, {-5, -5}, {0, 0}, {1e-300, 2e-300}, {0, math.SmallestNonzeroFloat64}, {1e100, -1e100}, {1e15, 1e15 + 1}} {
		of := trend(values...)
		if !of.Drawable() {
			t.Errorf("%v cannot be drawn", values)
			continue
		}
		svg, err := of.Chart()
		if err != nil || strings.Contains(string(svg), "NaN") || strings.Contains(string(svg), "Inf") {
			t.Errorf("%v: %v %s", values, err, svg)
		}
	}
	if svg, _ := trend(5, 5).Chart(); !strings.Contains(string(svg), ">4.75<") || !strings.Contains(string(svg), ">5.25<") {
		t.Errorf("the axis of one number: %s", svg)
	}
	for _, values := range [][]float64{{1e101}, {math.Inf(1), 0}, {math.NaN()}, {}} {
		if trend(values...).Drawable() {
			t.Errorf("%v can be drawn", values)
		}
	}
	beside := trend(1)
	beside.Points[0].Run = 1
	if beside.Drawable() {
		t.Error("a run that is none can be drawn")
	}
}
