package report

import (
	"slices"
	"testing"

	"kerninst/lab/status"
)

// TestPublished: a figure of a paper's stands beside what each ISA has, or why it has nothing.
func TestPublished(t *testing.T) {
	of := func(arch string, scenarios ...Scenario) run {
		return run{Arch: Arch{Results: Results{Arch: arch, Status: status.Passed, Scenarios: scenarios}}}
	}
	ran := Scenario{Name: "granularities-slice", Status: status.Passed, Metrics: map[string]Metric{
		"counted.kprobe.over-splice": {Value: 164, Unit: "x"}, "counted.optprobe.over-splice": {Value: 54.25, Unit: "x"},
	}}
	studied := Scenario{Name: "squid-study", Status: status.Passed, Metrics: map[string]Metric{"study.openat.before": {Value: 0.4, Unit: "ratio"}}}
	failed, half := ran, ran
	failed.Status, failed.Metrics = status.Failed, nil
	half.Status, half.Metrics = status.Failed, map[string]Metric{"counted.kprobe.over-splice": {Value: 3, Unit: "x"}}
	only := ran
	only.Metrics = map[string]Metric{"counted.kprobe.over-splice": {Value: 128, Unit: "x"}}
	v := publishedOf([]run{of("amd64", ran, studied), of("arm64", only), of("riscv64", failed), of("riscv64", half)})
	for paper, want := range map[string][]string{
		djprobe + ", sample overheads (x86-64)": {"164 ×, 54.25 ×", "128 ×, – (no such figure)", "granularities-slice: failed", "3 ×, – (no such figure); granularities-slice: failed"},
		kernInst + ", figure 11":                {"40 %", "not run", "not run", "not run"},
		jifl + ", figure 12":                    {"not run", "not run", "not run", "not run"},
	} {
		if !slices.ContainsFunc(v.Rows, func(r publishedRow) bool { return r.Where == paper && slices.Equal(r.Here, want) }) {
			t.Errorf("%s: none is %q among %+v", paper, want, v.Rows)
		}
	}
	for k, r := range v.Rows {
		again := findings[k].scenarios[0]
		if slices.Equal(findings[k].scenarios, granular) {
			again = ran.Name
		}
		if r.Again != "bin/lab run --arch amd64,arm64,riscv64,riscv64 --scenario "+again+" --seed 0" {
			t.Errorf("%s: again by %s", r.What, r.Again)
		}
	}
	if got := publishedOf([]run{of("amd64", Scenario{Name: "smoke"})}); got.Rows != nil {
		t.Errorf("what no paper has is beside %+v", got.Rows)
	}
}
