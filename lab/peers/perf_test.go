package peers

import (
	"strings"
	"testing"
)

// What perf 6.12 has written.
const (
	statText   = "# started on Wed Jan  1 00:00:02 2025\n\n2304,,probe:hit,9088544,100.00,,\n"
	scriptText = "(ffffa348bbb67b88) src=0x4a0048 len=1\n(ffffa348bbb67b88) src=0x4a0048 len=2\n"
)

// TestPerf: what perf says is read whole, or it is an error: a count of a part of the time, of
// another event, or of none, and lines between records.
func TestPerf(t *testing.T) {
	if a, err := PerfStat([]byte(statText), "probe:hit"); err != nil || !a.Equal(number(2304)) {
		t.Errorf("%v, %v", a, err)
	}
	want := Answer{Records: [][]uint64{{0x4a0048, 1}, {0x4a0048, 2}}}
	if a, err := PerfScript([]byte(scriptText)); err != nil || !a.Equal(want) {
		t.Errorf("%v, %v", a, err)
	}
	for says, text := range map[string]string{
		"% of the time":     strings.Replace(statText, "100.00", "66.00", 1),
		"want one":          strings.Replace(statText, "hit", "other", 1),
		"want one, of":      statText + "1,,probe:hit,1,100.00,,\n",
		"invalid syntax":    strings.Replace(statText, "2304", "<not counted>", 1),
		"nothing of":        "# started\n",
		"want one, of prob": "perf: nothing\n",
	} {
		if a, err := PerfStat([]byte(text), "probe:hit"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, %v, want %s", text, a, err, says)
		}
	}
	for _, text := range []string{scriptText + "LOST 3 events!\n", "(ffffa348bbb67b88) src=(fault) len=1\n", "(ffffa348bbb67b88)\n"} {
		if a, err := PerfScript([]byte(text)); err == nil {
			t.Errorf("%q: %v", text, a)
		}
	}
}
