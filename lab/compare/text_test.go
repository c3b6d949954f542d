package compare

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kerninst/lab/runs"
	"kerninst/lab/status"
)

var update = flag.Bool("update", false, "write the golden file anew")

// several differ in every way there is.
func several(t *testing.T) *Comparison {
	t.Helper()
	a := metrics{"added": insns(4), "bare": insns(332.58125), "close": insns(1e12), "found": points(7), "gone": insns(1), "nothing": insns(0), "rate": rate(10), "same": insns(3), "unit": insns(1)}
	b := metrics{"added": insns(5), "bare": insns(332.58126), "close": insns(1e12 + 1), "found": points(8), "nothing": insns(2), "rate": rate(11), "same": insns(3), "unit": points(1)}
	var ra, rb []*runs.Run
	ra, rb = append(ra, run(a)), append(rb, run(b, kernel("6.12.108"), came(status.Failed)))
	for n := range 4 {
		ra = append(ra, run(metrics{"ratio": insns(10 + float64(n)), "unclear": insns(float64(10 * n))}, host))
		rb = append(rb, run(metrics{"ratio": insns(5 + float64(n)), "unclear": insns(float64(10*n + 1))}, host, kernel("6.12.108")))
	}
	o := usual
	var err error
	if o.Rules, err = ParseRules("limits", []byte("cost/close 1%\ncost/found -")); err != nil {
		t.Fatal(err)
	}
	c, err := Compare(side("out/<before>", ra...), side("out/after|", rb...), o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTable(t *testing.T) {
	want := `arm64  cost  passed -> failed  got 3 want 4
ISA    scenario  metric   unit    A              B              change                      verdict
arm64  cost      added    insns   4              5              +25.00 %                    worse
arm64  cost      bare     insns   332.58125      332.58126      +3e-06 %                    worse
arm64  cost      close    insns   1000000000000  1000000000001  +1e-10 %                    worse, threshold 1%
arm64  cost      found    points  7              8              +14.29 %                    changed, no threshold
arm64  cost      nothing  insns   0              2              +2.00                       worse
arm64  cost      rate     req/s   10             11             +10.00 %                    better
arm64  cost      unit     points  1              1              ?                           unlike, unit insns in one, points in the other
arm64  cost      ratio    insns   11.5           6.5            -43.48 % [-69.57, -17.39]   better, p=0.029 n=4+4
arm64  cost      unclear  insns   15             16             ~                           unclear, p=0.686 n=4+4
only in A: arm64/cost/gone
4 worse, 1 changed, 2 better, 1 unlike, 1 unclear, 1 same of 10; 4 beyond the threshold
`
	var got strings.Builder
	if err := several(t).Table(&got, false); err != nil {
		t.Fatal(err)
	}
	if squeezed(got.String()) != squeezed(want) {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
	var all strings.Builder
	if err := several(t).Table(&all, true); err != nil || !strings.Contains(squeezed(all.String()), "arm64 cost same insns 3 3 = same") {
		t.Errorf("%v, all:\n%s", err, all.String())
	}
}

// squeezed has one blank for several: how wide columns are is not what is tested.
func squeezed(s string) string {
	var out []string
	for _, line := range strings.Split(s, "\n") {
		out = append(out, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(out, "\n")
}

func TestMessages(t *testing.T) {
	got, want := strings.Join(several(t).Messages(), "\n"), "arm64: kernel: 6.12.107 in A, 6.12.108 in B: what is compared is not the same code"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestMarkdown(t *testing.T) {
	var got strings.Builder
	if err := several(t).Markdown(&got, false); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "compared.md")
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || got.String() != string(want) {
		t.Errorf("%v: go test -update writes %s\n%s", err, file, got.String())
	}
	alike, err := Compare(side("a", run(metrics{"x": insns(1)})), side("b", run(metrics{"x": insns(1)})), usual)
	if err != nil {
		t.Fatal(err)
	}
	got.Reset()
	if err := alike.Markdown(&got, false); err != nil || got.String() != "## ✓ Comparison: nothing is worse\n\nA: a  \nB: b\n\n1 same of 1.\n" {
		t.Errorf("%v: %q", err, got.String())
	}
}

// A job's summary has room for so much.
func TestMarkdownHasBounds(t *testing.T) {
	a, b := metrics{}, metrics{}
	for n := range mostRows + 7 {
		a[fmt.Sprint("m", n)], b[fmt.Sprint("m", n)] = insns(1), insns(2)
	}
	c, err := Compare(side("a", run(a)), side("b", run(b)), usual)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	if err := c.Markdown(&got, false); err != nil || strings.Count(got.String(), "\n| arm64 ") != mostRows || !strings.Contains(got.String(), "and 7 more") {
		t.Errorf("%v: %d rows", err, strings.Count(got.String(), "\n| arm64 "))
	}
}

// Of several seeds it is said how many changed, and which is shown.
func TestSaidOfSeeds(t *testing.T) {
	var a, b []*runs.Run
	for n := range uint64(3) {
		a = append(a, run(metrics{"x": insns(100)}, seed(n)))
		b = append(b, run(metrics{"x": insns(100 + float64(n))}, seed(n)))
	}
	m := onlyMetric(t, usual, a, b)
	if got := m.said(); got != "worse, with 2 of 3 seeds, shown is 2" {
		t.Errorf("%q", got)
	}
}

// With nothing to print but what came out otherwise, there is still a sum.
func TestSumOfNothing(t *testing.T) {
	c, err := Compare(side("a", run(nil)), side("b", run(nil, came(status.Failed))), usual)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	if err := c.Table(&got, false); err != nil || got.String() != "arm64  cost  passed -> failed  got 3 want 4\nno figure is in both\n" {
		t.Errorf("%v: %q", err, got.String())
	}
	c, err = Compare(side("a", run(nil)), side("b", run(nil, unfinished)), usual)
	got.Reset()
	if err == nil {
		err = c.Table(&got, false)
	}
	if err != nil || !strings.Contains(got.String(), "arm64  (run)  passed -> lab_failed  the run ended before it had results\n") {
		t.Errorf("%v: %q", err, got.String())
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{0: "0.00", 25: "+25.00", -4.4: "-4.40", 0.00001: "+1e-05", -0.004: "-0.004", 1e12: "+1e+12", 123456.789: "+123456.79"} {
		if got := signed(v, ""); got != want {
			t.Errorf("%g: %s, want %s", v, got, want)
		}
	}
	for v, want := range map[float64]string{3: "3", 613924123: "613924123", 332.58125: "332.58", 1e20: "1e+20", 1.0 / 3: "0.33333"} {
		if got := significant(v, 5); got != want {
			t.Errorf("%g: %s, want %s", v, got, want)
		}
	}
}

// What is read may be anybody's, and stands in a page.
func TestMarkdownIsEscaped(t *testing.T) {
	c := several(t)
	c.Differ = append(c.Differ, Difference{Arch: "arm64", What: "host", A: "<script>", B: "a|b\n# c"})
	c.Outcomes[0].Why = "<img> | x"
	var got strings.Builder
	if err := c.Markdown(&got, false); err != nil {
		t.Fatal(err)
	}
	for _, raw := range []string{"<script>", "<img>", "a|b", "\n# c", " | x |"} {
		if strings.Contains(got.String(), raw) {
			t.Errorf("%q is not escaped in\n%s", raw, got.String())
		}
	}
}
