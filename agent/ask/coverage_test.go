package ask

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"kerninst/agent/probe"
	"kerninst/agent/wire"
)

// TestCoverage: a block is covered when it was found so, or counted at the end; what was
// refused is no block that could have been; the curve rises to all that was found with time.
func TestCoverage(t *testing.T) {
	r := &Request{Timeout: time.Second, Do: []string{"cover"}, Specs: []string{"kinst::*:block"}, Shell: "true"}
	if _, err := r.Job(probe.At{}); err != nil {
		t.Fatal(err)
	}
	point := func(symbol string, offset uint64, refused bool) *wire.PointResult {
		p := &wire.PointResult{Spec: symbol + string(rune('a'+offset)), Symbol: symbol, Offset: offset}
		if refused {
			p.Refusal = &wire.Refusal{}
		}
		return p
	}
	points := []*wire.PointResult{point("f", 0, false), point("f", 4, false), point("f", 8, true), point("g", 0, false), point("g", 2, false), point("h", 0, true)}
	values := []*wire.Value{
		{Spec: points[0].Spec, Action: "cover", Count: 3, CoveredNs: 1e6},
		{Spec: points[1].Spec, Action: "cover"},
		{Spec: points[3].Spec, Action: "cover", Count: 1, CoveredNs: 4e6},
		{Spec: points[4].Spec, Action: "cover", Count: 1}, // and could not be taken away
	}
	a := r.Answer([]*wire.Record{
		{Body: &wire.Record_Result{Result: &wire.Result{Step: "splice", Points: points}}},
		{Body: &wire.Record_Result{Result: &wire.Result{Step: "read", Values: values}}},
	})
	text, err := json.Marshal(a.Coverage)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"covered":3,"points":4,"refused":2,"functions":[` +
		`{"symbol":"f","covered":1,"points":2,"refused":1,"blocks":[{"offset":0,"covered":true,"ns":1000000},{"offset":4,"covered":false}]},` +
		`{"symbol":"g","covered":2,"points":2,"blocks":[{"offset":0,"covered":true,"ns":4000000},{"offset":2,"covered":true}]},` +
		`{"symbol":"h","covered":0,"points":0,"refused":1,"blocks":[]}],` +
		`"curve":[{"ns":1000000,"covered":1},{"ns":4000000,"covered":2}]}`
	if string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	var out strings.Builder
	a.Coverage.Print(&out)
	for _, line := range []string{"1 2 1 50.0 % f", "2 2 0 100.0 % g", "0 0 1 - h", "3 4 2 75.0 % 3 functions"} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), line) {
			t.Errorf("%s\nhas no line %s", out.String(), line)
		}
	}
	if got := a.Coverage.sparkline(8); got != "▁▅▅▅▅▅▅█" {
		t.Errorf("sparkline %s", got)
	}
}

// TestCoverageOfNone: without such an action nothing is said of coverage.
func TestCoverageOfNone(t *testing.T) {
	r := &Request{Timeout: time.Second, Do: []string{"count"}, Specs: []string{"kinst::f:8"}, Shell: "true"}
	if _, err := r.Job(probe.At{}); err != nil {
		t.Fatal(err)
	}
	a := r.Answer([]*wire.Record{{Body: &wire.Record_Result{Result: &wire.Result{Step: "read", Values: []*wire.Value{{Spec: "f", Action: "count", Count: 1}}}}}})
	if a.Coverage != nil {
		t.Errorf("%+v", a.Coverage)
	}
}
