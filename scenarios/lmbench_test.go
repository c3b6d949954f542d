package scenarios

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"kerninst/agent/wire"
	"kerninst/lab/measure"
)

// testdata/lmbench.txt is what a guest printed.
const lmbenchSamples = 11

func lmbenchText(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("testdata/lmbench.txt")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// scaled has all figures of an operation times a factor.
func scaled(text, name string, factor float64) string {
	lines := strings.SplitAfter(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, "# "+name+" ") || strings.HasPrefix(l, "Benchmark"+name+"-") {
			lines[i] = regexp.MustCompile(` \d+\.\d\d\b`).ReplaceAllStringFunc(l, func(s string) string {
				v, _ := strconv.ParseFloat(s[1:], 64)
				return fmt.Sprintf(" %.2f", v*factor)
			})
		}
	}
	return strings.Join(lines, "")
}

// lmbenchFails is what a check says of what two guests print, of which guest/bench
// finds as many instructions more.
func lmbenchFails(t *testing.T, first, second string, more float64) (message string) {
	t.Helper()
	guests := map[string]*Answer{}
	for name, text := range map[string]string{"first": first, "second": second} {
		a := &Answer{Results: map[string]*wire.Result{"work": {Runs: []*wire.RunResult{{Stdout: []byte(text)}}}}}
		var ops []*measure.Operation
		if suite, err := measure.ParseSuite([]byte(text)); err == nil {
			ops = suite.Operations
		}
		for _, o := range twice {
			var ns float64
			for _, op := range ops {
				if op.Name == o.name {
					ns = op.NS + more
				}
			}
			out := fmt.Sprintf("%s %d %d\n%s total %d\n", o.bench, twiceOps, int(ns*twiceOps), o.bench, 2*twiceOps)
			a.Results[o.bench] = &wire.Result{Runs: []*wire.RunResult{{Stdout: []byte(out)}}}
		}
		guests[name] = a
	}
	return failure(func(fail func(string)) {
		checkLmbench(NewT("amd64", "", guests, fail), "lmbench", lmbenchSamples)
	})
}

// failure is the first thing that a check complains of.
func failure(check func(fail func(string))) (message string) {
	defer func() {
		if s, ok := recover().(stop); ok {
			message = s.message
		}
	}()
	check(func(m string) { panic(stop{m}) })
	return ""
}

func TestLmbenchCheck(t *testing.T) {
	good := lmbenchText(t)
	without := regexp.MustCompile(`# Mmap .*\nBenchmarkMmap.*\n`).ReplaceAllString(good, "")
	apart := regexp.MustCompile(`(?m)^# Stat .*`).ReplaceAllString(good, "# Stat 3892.00"+strings.Repeat(" 3933.00", lmbenchSamples-1))
	more := regexp.MustCompile(`(?m)^# Control .*`).ReplaceAllString(good, "# Control"+strings.Repeat(" 7.00", lmbenchSamples))
	few := regexp.MustCompile(`(?m)^# Stat .*`).ReplaceAllString(good, "# Stat 3892.00 3892.00")
	for _, tt := range []struct {
		name, first, second string
		more                float64
		fails               string
	}{
		{"as it was", good, good, 10, ""},
		{"an operation is missing", without, without, 10, "operations"},
		{"samples are missing", few, few, 10, "Stat: samples"},
		{"the best samples differ", apart, apart, 10, "Stat: percent by which"},
		{"the guests differ", good, strings.Replace(good, "# Stat ", "# Stat 1", 1), 10, "to the byte"},
		{"one guest says more", good, good + "# x 1.00 1.00\n", 10, "to the byte"},
		{"overhead is not subtracted", more, more, 10, "that nothing takes"},
		{"guest/bench finds more", good, good, 21, "by which guest/bench finds another"},
		{"guest/bench finds less", good, good, -21, "by which guest/bench finds another"},
		{"a program takes longer than a shell with it", scaled(good, "ForkExec", 5), scaled(good, "ForkExec", 5), 10, "ForkSh over ForkExec"},
		{"what else a ring does is not subtracted", scaled(good, "Ctx/2p/16K", 3), scaled(good, "Ctx/2p/16K", 3), 10, "factor between Ctx/2p/0K and Ctx/2p/16K"},
		{"words are not read", scaled(good, "MemRead", 0.2), scaled(good, "MemRead", 0.2), 10, "MemRead: instructions for a word"},
		{"not a line of ours", good + "hello\n", good, 10, "format"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := lmbenchFails(t, tt.first, tt.second, tt.more)
			if (got == "") != (tt.fails == "") || !strings.Contains(got, tt.fails) {
				t.Errorf("failed with %q, want %q", got, tt.fails)
			}
		})
	}
}

// Each thing that is said of two figures holds at its limit, and fails beyond.
func TestLmbenchIsPlausible(t *testing.T) {
	found := func(a string, x float64, b string, y float64) map[string]*measure.Operation {
		return map[string]*measure.Operation{a: {NS: x}, b: {NS: y}}
	}
	try := func(what string, within bool, check func(*T)) {
		t.Helper()
		got := failure(func(fail func(string)) { check(NewT("amd64", "", nil, fail)) })
		if within != (got == "") {
			t.Errorf("%s: failed with %q", what, got)
		}
	}
	for _, l := range longers {
		for _, by := range []float64{1, 0.99} {
			try(l.name+" over "+l.than, by == 1, func(t *T) { t.longer(l, found(l.name, by*100*l.factor, l.than, 100)) })
		}
	}
	for _, a := range alike {
		for _, ratio := range []float64{1, 1.01 * alikeWithin, 0.99 / alikeWithin} {
			try(a[0]+" as "+a[1], ratio == 1, func(t *T) { t.alike(a, found(a[0], 100*ratio, a[1], 100)) })
		}
	}
}
