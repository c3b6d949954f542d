package e2e

import (
	"encoding/json"
	"testing"

	"kerninst/lab/cost"
	"kerninst/lab/status"
)

// costOn is the table of an ISA.
func costOn(t *testing.T, arch string) (table cost.Table) {
	t.Helper()
	a := call(t, nil, "cost", "--arch", arch, "--json")
	if a.code != status.ExitPassed {
		t.Fatal(a)
	}
	if err := json.Unmarshal([]byte(a.stdout), &table); err != nil {
		t.Fatal(err)
	}
	return table
}

// TestCostOfRecords holds what records add on the other ISAs, by the first mechanism of each.
func TestCostOfRecords(t *testing.T) {
	t.Parallel()
	for arch, budget := range map[string]map[string]float64{
		"arm64":   {"trace of two words/jump": 12, "trace record without time/jump": 9},
		"riscv64": {"trace of two words/quiesced": 18, "trace record without time/quiesced": 13},
	} {
		t.Run(arch, func(t *testing.T) {
			for _, r := range costOn(t, arch).Rows {
				name := r.Action + "/" + r.Mechanism
				most, ok := budget[name]
				delete(budget, name)
				if ok && (r.Refusal != nil || r.Added == 0 || r.Added > most) {
					t.Errorf("%s adds %v instructions, want at most %v: %+v", name, r.Added, most, r.Refusal)
				}
			}
			if len(budget) > 0 {
				t.Errorf("there are no rows of %v", budget)
			}
		})
	}
}

// TestCost makes djprobe's table on amd64, where every mechanism and every probe of the
// kernel's own can be had; scenario cost holds the counter's figure on each ISA.
func TestCost(t *testing.T) {
	t.Parallel()
	table := costOn(t, "amd64")
	added := map[string]float64{}
	for _, r := range table.Rows {
		if r.Action == "timer pair" && r.Mechanism == "quiesced" {
			continue // two windows are more than so short a function may have room for
		}
		if r.Mechanism == "pun" && (r.Action == "timer pair" || r.Action == "trace record") {
			continue // likewise; and a page has no room for so many records
		}
		if r.Refusal != nil {
			t.Errorf("%s by %s: refused: %v", r.Action, r.Mechanism, *r.Refusal)
		}
		if name := r.Action + "/" + r.Mechanism; added[name] == 0 || r.Added < added[name] { // a kprobe is there twice
			added[name] = r.Added
		}
	}
	for name, most := range map[string]float64{
		"counter/jump": 3, "counter/springboard": 4, "counter/pun": 5, "predicated counter/jump": 10, "timer pair/jump": 22, "time/jump": 24, "vtime/jump": 56, "trace record/jump": 27,
		"trace of two words/jump": 14, "trace record without time/jump": 8, "predicate on pid/jump": 14, "predicate on comm/jump": 20, "maximum/jump": 10, "average/jump": 6, "histogram/jump": 20,
		"linear histogram/jump": 33, "count by pid/jump": 45, "count by comm/jump": 52, "histogram by comm/jump": 59,
		"stack of four/jump": 1550, // the kernel's search for what a frame looks like is a step longer in some builds of the module
	} {
		if got := added[name]; got == 0 || got > most {
			t.Errorf("%s adds %v instructions, want at most %v", name, got, most)
		}
	}
	// As djprobe's authors found them, and what this is for.
	order := []string{"trace record/springboard", "counter/optprobe", "counter/kprobe", "counter/kretprobe"}
	for i, name := range order[1:] {
		if added[name] <= added[order[i]] {
			t.Errorf("%s adds %v, %s %v", order[i], added[order[i]], name, added[name])
		}
	}
	if len(table.Insertion) != 5 {
		t.Errorf("an insertion has %d parts: %+v", len(table.Insertion), table.Insertion)
	}
}
