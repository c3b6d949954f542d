package ask

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"kerninst/agent/probe"
	"kerninst/agent/wire"
)

func samplesOf(t *testing.T, r *Request) []*wire.Sample {
	t.Helper()
	if _, err := r.Job(probe.At{}); err != nil {
		t.Fatal(err)
	}
	count := func(spec string, n uint64) *wire.Value { return &wire.Value{Spec: spec, Action: "count", Count: n} }
	timed := func(spec string, way wire.Timed, n uint64) *wire.Value {
		return &wire.Value{Spec: spec, Action: "time", Timed: way, Function: ":g", Rows: []*wire.Row{{Values: []uint64{1000 * n, n}}}}
	}
	enters, leaves := wire.Timed_ENTERS, wire.Timed_LEAVES
	return []*wire.Sample{
		{Ns: 0, Began: &wire.Moment{Cycles: 1, Inside: []*wire.Moment_Inside{{Function: ":g", Frames: 2}, {Function: ":h", Frames: 1}}}, Values: []*wire.Value{count("kinst::f:8", 0), timed("kinst::g:0", enters, 0), timed("kinst::g:40", leaves, 0), timed("kinst::g:60", leaves, 0)}},
		{Ns: 5e8, Values: []*wire.Value{count("kinst::f:8", 10), timed("kinst::g:0", enters, 5), timed("kinst::g:40", leaves, 2), timed("kinst::g:60", leaves, 1)}},
		{Ns: 1e9, Values: []*wire.Value{count("kinst::f:8", 40), timed("kinst::g:0", enters, 6), timed("kinst::g:40", leaves, 5), timed("kinst::g:60", leaves, 1)}},
	}
}

// TestSeries: a function that is timed is one line, of all its exits, with those who were
// there at first.
func TestSeries(t *testing.T) {
	r := &Request{Timeout: time.Second, Specs: []string{"kinst::f:8", "kinst::g:entry time"}, Do: []string{"count"}, Shell: "true", Sampled: true}
	a := r.Answer([]*wire.Record{
		{Body: &wire.Record_Result{Result: &wire.Result{Step: stepWorkload, Samples: samplesOf(t, r)}}},
	})
	var got strings.Builder
	for _, s := range a.Series {
		fmt.Fprintln(&got, s.Name, s.NS, s.Hits, s.Inside)
	}
	const want = "kinst::f:8 [0 500000000 1000000000] [0 10 40] []\n" +
		"kinst::g:entry  time [0 500000000 1000000000] [0 5 6] [2 4 2]\n"
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
	if n := a.Series[0].Rate(2); n != 60 {
		t.Errorf("%v hits a second, want 60", n)
	}
}

// TestSeriesOfBlocks: each block of a function is a line of its own.
func TestSeriesOfBlocks(t *testing.T) {
	r := &Request{Timeout: time.Second, Specs: []string{"kinst::g:block time"}, Do: []string{"count"}, Shell: "true", Sampled: true}
	if _, err := r.Job(probe.At{}); err != nil {
		t.Fatal(err)
	}
	var values []*wire.Value
	for _, b := range []*wire.Block{{Begin: 8, End: 24}, {Begin: 24, End: 60}} {
		for way, n := range map[wire.Timed]uint64{wire.Timed_ENTERS: b.Begin, wire.Timed_LEAVES: 5} {
			values = append(values, &wire.Value{Spec: "kinst::g:9", Action: "time", Timed: way, Function: ":g", Block: b, Rows: []*wire.Row{{Values: []uint64{0, n}}}})
		}
	}
	there := &wire.Moment{Cycles: 1, Inside: []*wire.Moment_Inside{{Function: ":g", Frames: 7}, {Function: ":g", Block: values[0].Block, Frames: 1}}}
	a := r.Answer([]*wire.Record{{Body: &wire.Record_Result{Result: &wire.Result{Step: stepWorkload, Samples: []*wire.Sample{{Began: there, Values: values}}}}}})
	var got strings.Builder
	for _, s := range a.Series {
		fmt.Fprintln(&got, s.Name, s.Hits, s.Inside)
	}
	if want := "kinst::g:8  time [8] [4]\nkinst::g:24  time [24] [19]\n"; got.String() != want {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
}

// TestLive: the table is drawn over the one before on a terminal, and below it elsewhere.
func TestLive(t *testing.T) {
	for _, terminal := range []bool{true, false} {
		r := &Request{Timeout: time.Second, Specs: []string{"kinst::f:8", "kinst::g:entry time"}, Do: []string{"count"}, Shell: "true", Live: true, Interval: time.Second}
		var out strings.Builder
		l := r.liveOn(&out, terminal)
		for _, x := range samplesOf(t, r) {
			l.see(&wire.Record{Body: &wire.Record_Sample{Sample: x}})
		}
		if n, want := strings.Count(out.String(), "\x1b["), map[bool]int{true: 4, false: 0}[terminal]; n != want {
			t.Errorf("terminal %v: %d sequences of escape, want %d: %q", terminal, n, want, out.String())
		}
		last := out.String()[strings.LastIndex(out.String(), "after"):]
		for _, want := range []string{"after 1.0 s hits a second", "kinst::f:8 40 60 ▃█", "kinst::g:entry time 6 2 █▂ 2 inside"} {
			if !strings.Contains(strings.Join(strings.Fields(last), " "), want) {
				t.Errorf("%s\nhas no %s", last, want)
			}
		}
	}
}

// TestSampledOf: what cannot be followed, or not in two ways at once, is refused.
func TestSampledOf(t *testing.T) {
	for _, r := range []Request{
		{Live: true, Interval: time.Millisecond, Shell: "true"}, {Live: true, Interval: time.Second, JSON: true, Shell: "true"},
		{Live: true, Interval: time.Second, Sampled: true, Shell: "true"}, {Sampled: true, List: true},
	} {
		r.Timeout, r.Specs = time.Second, []string{"kinst::f:8"}
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), "--") {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// TestSeriesOfTrace: what is traced is followed by its records, by those that have come while
// it runs, and by their times afterwards; where they are not kept there is no series of zeros.
func TestSeriesOfTrace(t *testing.T) {
	const spec, action = "kinst::f:8", "trace(arg0)"
	sample := func(ns uint64) *wire.Sample {
		return &wire.Sample{Ns: ns, Values: []*wire.Value{{Spec: spec, Action: action}}}
	}
	for to, want := range map[string]string{"": "[0 2 3]", t.TempDir() + "/trace": ""} {
		r := &Request{Timeout: time.Second, Specs: []string{spec}, Do: []string{action}, Shell: "true", Sampled: true, TraceTo: to}
		if _, err := r.Job(probe.At{}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Follow(nil, false); err != nil {
			t.Fatal(err)
		}
		for _, ns := range []probe.Moment{100, 200, 300} {
			r.followed.got(probe.Event{NS: ns, Spec: spec, Action: action})
		}
		a := r.Answer([]*wire.Record{{Body: &wire.Record_Result{Result: &wire.Result{Step: stepWorkload, Samples: []*wire.Sample{sample(0), sample(200), sample(1000)}}}}})
		got := ""
		for _, s := range a.Series {
			got += fmt.Sprint(s.Hits)
		}
		if got != want {
			t.Errorf("to %q: %s, want %s", to, got, want)
		}
	}
}

// TestSeriesAsAsked: a function of several names has the one by which it was asked for.
func TestSeriesAsAsked(t *testing.T) {
	r := &Request{Timeout: time.Second, Specs: []string{"kinst::other:entry time"}, Shell: "true", Sampled: true}
	if _, err := r.Job(probe.At{}); err != nil {
		t.Fatal(err)
	}
	values := []*wire.Value{{Symbol: "other", Timed: wire.Timed_LEAVES}, {Symbol: "other", Timed: wire.Timed_ENTERS}}
	for _, v := range values {
		v.Action, v.Function, v.Rows = "time", ":first", []*wire.Row{{Values: []uint64{0, 0}}}
	}
	a := r.Answer([]*wire.Record{
		{Body: &wire.Record_Result{Result: &wire.Result{Step: stepWorkload, Samples: []*wire.Sample{{Values: values}}}}},
		{Body: &wire.Record_Result{Result: &wire.Result{Step: stepRead, Values: values, Moments: []*wire.Moment{{}, {}}}}},
	})
	if len(a.Series) != 1 || a.Series[0].Name != "kinst::other:entry  time" || len(a.Times) != 1 || a.Times[0].Function != ":other" {
		t.Errorf("series %+v, times %+v", a.Series, a.Times)
	}
}

// TestSeriesBegunLate: a point that is in samples from when somebody came by had nobody before, and
// a table of many points says that it is not of all.
func TestSeriesBegunLate(t *testing.T) {
	r := &Request{Timeout: time.Second, Specs: []string{"kinst::f:"}, Do: []string{"count"}, Shell: "true", Live: true, Interval: time.Second}
	if _, err := r.Job(probe.At{}); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	l := r.liveOn(&out, false)
	l.see(&wire.Record{Body: &wire.Record_Result{Result: &wire.Result{Step: stepSplice, Points: slices.Repeat([]*wire.PointResult{{}}, mostFollowed+1)}}})
	sample := func(ns uint64, all ...*wire.Value) {
		l.see(&wire.Record{Body: &wire.Record_Sample{Sample: &wire.Sample{Ns: ns, Values: all}}})
	}
	sample(0, &wire.Value{Spec: "a", Action: "count"})
	sample(1e9, &wire.Value{Spec: "b", Action: "count", Count: 7})
	got := ""
	for _, s := range l.f.all {
		got += fmt.Sprint(s.Name, s.NS, s.Hits)
	}
	if want := "a[0 1000000000] [0 0]b[0 1000000000] [0 7]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if text := out.String(); !strings.Contains(text, "of 257 points: those that are come by most are followed") || strings.Contains(text, "nobody came") {
		t.Error(text)
	}
}
