package measure

import (
	"reflect"
	"strings"
	"testing"
)

const suite = "goos: linux\n" +
	"# Control 0.00 -0.01\n" +
	"# Null 334.50 334.00 340.00\nBenchmarkNull-1 1440 334.00 ns/op\n" +
	"# Ctx/16p/0K 4900.00 4800.00\nBenchmarkCtx/16p/0K-1 96 4800.00 ns/op\n" +
	"# MemRead 500000.00 524288.00\nBenchmarkMemRead-1 2 500000.00 ns/op 2097.15 MB/s\n"

func TestParseSuite(t *testing.T) {
	got, err := ParseSuite([]byte(suite))
	if err != nil {
		t.Fatal(err)
	}
	want := []*Operation{
		{"Null", 1440, 334, 0, []float64{334.5, 334, 340}},
		{"Ctx/16p/0K", 96, 4800, 0, []float64{4900, 4800}},
		{"MemRead", 2, 500000, 2097.15, []float64{500000, 524288}},
	}
	if !reflect.DeepEqual(got.Operations, want) {
		for _, o := range got.Operations {
			t.Errorf("%+v", *o)
		}
	}
	if !reflect.DeepEqual(got.Control, []float64{0, -0.01}) {
		t.Errorf("control %v", got.Control)
	}
	if s := want[2].Spread(); s < 4.857 || s > 4.858 {
		t.Errorf("spread %g, want 4.8576", s)
	}
}

func TestParseSuiteRefuses(t *testing.T) {
	for _, tt := range []struct{ name, old, new, err string }{
		{"another line", "goos: linux", "hello", "unexpected line"},
		{"a terminal's escape", "linux", "\x1b[31m", "unexpected line"},
		{"another unit", "334.00 ns/op", "334.00 B/op", "unexpected line"},
		{"no figure", " 4800.00 ns/op", "", "unexpected line"},
		{"not a number", "334.50", "3.34.50", "invalid syntax"},
		{"nor in a result", "334.00 ns/op", "3.34.00 ns/op", "parsing"},
		{"no samples", "# Null 334.50 334.00 340.00\n", "", "0 samples"},
		{"not the shortest", "334.50", "333.50", "the shortest sample has 333.5"},
		{"less than no time", "4900.00 4800.00\nBenchmarkCtx/16p/0K-1 96 4800.00", "1.00 -1.00\nBenchmarkCtx/16p/0K-1 96 -1.00", "the shortest sample has -1"},
		{"nothing", suite, "", "unexpected line"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := strings.Replace(suite, tt.old, tt.new, 1)
			if _, err := ParseSuite([]byte(in)); in == suite || err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %v, want an error about %q", err, tt.err)
			}
		})
	}
}
