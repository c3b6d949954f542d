package analysis_test

import (
	"encoding/json"
	"strings"
	"testing"

	"kerninst/agent/index"
	"kerninst/lab/analysis"
)

// TestSurvey: every instruction of the index is served, reserved or refused, and the
// document has the keys that it always has.
func TestSurvey(t *testing.T) {
	for _, c := range []struct {
		arch string
		by   []string // mechanisms that serve some
	}{{"amd64", []string{"jump", "springboard"}}, {"arm64", []string{"jump"}}, {"riscv64", []string{"quiesced"}}} {
		b, err := analyse(t, c.arch).MakeIndex()
		if err != nil {
			t.Fatal(err)
		}
		x, err := index.Open(b)
		if err != nil {
			t.Fatal(err)
		}
		s, err := analysis.NewSurvey(recorded(t, c.arch), x)
		if err != nil {
			t.Fatal(err)
		}
		sum := s.Reserved
		for _, m := range []map[string]int{s.Mechanisms, s.Refused} {
			for _, n := range m {
				sum += n
			}
		}
		if sum != s.Instructions || sum < 500 || s.Reserved == 0 || len(s.Mechanisms) != 5 {
			t.Errorf("%s: %d in all: %+v", c.arch, sum, s)
		}
		for _, m := range c.by {
			if s.Mechanisms[m] < 20 {
				t.Errorf("%s: %d by %s", c.arch, s.Mechanisms[m], m)
			}
		}
		for _, m := range []string{"trap", "pun"} {
			if n, ok := s.Mechanisms[m]; !ok || n != 0 {
				t.Errorf("%s: %d by %s", c.arch, n, m)
			}
		}
		doc, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"schema", "arch", "instructions", "reserved", "mechanisms", "refused"} {
			if !strings.Contains(string(doc), `"`+key+`":`) {
				t.Errorf("no %q in %s", key, doc)
			}
		}
		var out strings.Builder
		if err := s.Print(&out); err != nil || !strings.Contains(out.String(), c.by[0]) || !strings.Contains(out.String(), "100.0 %") {
			t.Errorf("%v\n%s", err, out.String())
		}
	}
	_, err := analysis.NewSurvey(recorded(t, "arm64"), nil)
	if err == nil {
		t.Error("without an index, there is nothing to count")
	}
}
