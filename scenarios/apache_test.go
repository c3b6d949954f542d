package scenarios

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
)

// apachePrinted is what the script prints of two samples of 20 requests that were answered.
func apachePrinted() string {
	one := fmt.Sprintf("complete: 20\nfailed: 0\nlength: %d\nhtml: %d\nlogged: 20\n", apacheBytes, 20*apacheBytes)
	out := one + one + fmt.Sprintf("sum: %x\n", sha256.Sum256(apacheDocument()))
	for _, o := range apacheOps {
		out += fmt.Sprintf("# %s 240000.5 230000.5\nBenchmark%s-1 20 230000.5 ns/op\n", o, o)
	}
	return out
}

// What answers were is held against what was asked for, each word of it.
func TestApacheAnswers(t *testing.T) {
	for name, c := range map[string]struct{ old, new, fails string }{
		"as it should be":    {"", "", ""},
		"one is missing":     {"complete: 20\n", "complete: 19\n", "complete"},
		"one failed":         {"failed: 0", "failed: 1", "failed"},
		"of another length":  {"length: 8192", "length: 8191", "length"},
		"not all has come":   {"html: 163840", "html: 163839", "html"},
		"one is not logged":  {"logged: 20", "logged: 19", "logged"},
		"a sample less":      {"failed: 0\n", "", "failed"},
		"another document":   {"sum: ", "sum: 0", "SHA-256"},
		"nobody looked":      {"sum: ", "sums: ", "SHA-256"},
		"what else was said": {"# Request", "Request", "bare"},
	} {
		text := strings.Replace(apachePrinted(), c.old, c.new, 1)
		got := failure(func(fail func(string)) {
			x := NewT("amd64", "", nil, fail)
			x.apacheAnswers("spliced", "bare", []byte(text), 2, 20)
			if v := x.Metrics["rate.spliced.bare"].Value; int(v) != 4347 {
				t.Errorf("%s: %v requests a second", name, v)
			}
		})
		if (got == "") != (c.fails == "") || !strings.Contains(got, c.fails) {
			t.Errorf("%s: failed with %q, want %q", name, got, c.fails)
		}
	}
}

// Of few requests kprobes are asked what does not take minutes; of many, all that they have.
func TestApacheAsks(t *testing.T) {
	count := func(s Scenario) (n int) {
		for _, g := range s.Guests("amd64") {
			if g.Name == "ftraced" || g.Name == "bpftraced" || g.Name == "optprobed" {
				n++
			}
		}
		return n
	}
	all := apaches()
	if few, many := count(all[0]), count(all[1]); few != 0 || many != 3 {
		t.Errorf("%d and %d guests of other mechanisms", few, many)
	}
	few := granularSuite{rivals: []string{toolKprobe}, unasked: map[string]string{"blocks": "why"}}
	for g, want := range map[string]string{"blocks": "why", "counted": ""} {
		if got := few.rival(toolKprobe).lacks("amd64", granularityOf(g)); got != want {
			t.Errorf("%s: %q", g, got)
		}
		if got := few.rival(toolSplice).lacks("amd64", granularityOf(g)); got != "" {
			t.Errorf("%s of splices: %q", g, got)
		}
	}
	if few.rival(toolFtrace).lacks("amd64", granularities[2]) == "" {
		t.Error("ftrace is asked")
	}
}
