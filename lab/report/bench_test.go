package report

import (
	"bytes"
	"fmt"
	"testing"

	perf "golang.org/x/perf/benchfmt"
)

// One file of several runs is read as each of them by itself: with its own keys, and with units that
// say what all of them say.
func TestBenchOfSeveral(t *testing.T) {
	run := func(arch, time string, seed uint64, better Better) *Results {
		return &Results{Arch: arch, Kernel: "6.12", QEMU: "7.2", Time: time, Seed: seed, Scenarios: []Scenario{{Name: "cost", Metrics: map[string]Metric{
			"a": {Value: float64(seed), Unit: "insns", Better: Lower}, "b": {Value: 1, Unit: "count", Better: better}}}}}
	}
	text := Bench(run("amd64", "exact", 1, Lower), run("arm64", "exact", 2, Higher), run("amd64", "exact", 3, Lower))
	r := perf.NewReader(bytes.NewReader(text), "bench.txt")
	var got []string
	for r.Scan() {
		switch rec := r.Result().(type) {
		case *perf.SyntaxError:
			t.Error(rec)
		case *perf.Result:
			got = append(got, fmt.Sprintf("%s %s %s %g", rec.GetConfig("arch"), rec.GetConfig("seed"), rec.Name, rec.Values[0].Value))
		}
	}
	want := "[amd64 1 Cost/a 1 amd64 1 Cost/b 1 arm64 2 Cost/a 2 arm64 2 Cost/b 1 amd64 3 Cost/a 3 amd64 3 Cost/b 1]"
	if fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
	units := r.Units()
	if units.GetBetter("insns") != -1 || units.GetBetter("count") != 0 || units.Get("insns", "assume") == nil {
		t.Errorf("units of\n%s", text)
	}
	text = Bench(run("amd64", "exact", 1, Lower), run("amd64", "host", 2, Lower))
	if bytes.Contains(text, []byte("assume=exact")) {
		t.Errorf("not all of this is exact:\n%s", text)
	}
}
