package scenarios

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/wire"
	"kerninst/lab/measure"
	"kerninst/lab/report"
)

// granularKprobed is a guest that has found four places: of which one is refused to splices, one to
// kprobes, and one is in a function that has its name from the compiler.
func granularKprobed(t *testing.T) *Answer {
	t.Helper()
	var sites bytes.Buffer
	w := gzip.NewWriter(&sites)
	fmt.Fprint(w, "a\nb\nc.isra.0\nd\n")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	const text = 0x1000
	at := func(k uint64, refused bool) *wire.PointResult {
		p := &wire.PointResult{Symbol: []string{"a", "b", "c.isra.0", "d"}[k], Address: text + 16*k}
		if refused {
			p.Refusal = &wire.Refusal{Reason: "reserved text"}
		}
		return p
	}
	return &Answer{Hello: &wire.Hello{TextStart: text}, Results: map[string]*wire.Result{
		"sites":   {Runs: []*wire.RunResult{{Stdout: sites.Bytes()}}},
		atEntries: {Points: []*wire.PointResult{at(0, false), at(1, false), at(2, false), at(3, true)}},
		"counted": {Points: []*wire.PointResult{at(0, false), at(1, true), at(2, false)}},
	}}
}

func TestGranularSets(t *testing.T) {
	g := granularities[1]
	sets, err := g.sets(granularKprobed(t))
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, s := range sets {
		got += fmt.Sprintf("%s %s %d; ", s.name, strings.Join(s.functions, ","), s.points[len(s.points)-1].Text)
	}
	if want := "counted a,b,c.isra.0 33; counted.kprobes a,c.isra.0 33; counted.named a,b 17; "; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	// Where kprobes may be everywhere, there is nothing to measure twice.
	k := granularKprobed(t)
	k.Results["counted"].Points[1].Refusal = nil
	if s, err := g.set(k, ofKprobes); err != nil || s.name != "counted" {
		t.Errorf("%v, %v", s, err)
	}
	k.Results["sites"].Runs[0].Exit = 1
	if _, err := g.sets(k); err == nil {
		t.Error("sets without ftrace's sites")
	}
}

func TestOtherwise(t *testing.T) {
	ours := map[string]uint64{"a": 10000, "b": 5000, "mine": 7000, "seldom": often - 1}
	for want, theirs := range map[float64]map[string]uint64{
		0:              {"a": 10000, "b": 5000, "theirs": 9000, "seldom": 1},
		1000.0 / 15000: {"a": 9000, "b": 5000},
		5000.0 / 20000: {"a": 10000, "b": 10000},
		1:              {"theirs": 9000},
	} {
		if got := otherwise(ours, theirs, often); got != want {
			t.Errorf("%v: %v, want %v", theirs, got, want)
		}
	}
}

// TestShared: who was asked for a place and does not have it, has a part only.
func TestShared(t *testing.T) {
	ours := map[string]uint64{"a": often, "b": often, "unasked": often, "seldom": often - 1}
	asked := func(p string) bool { return p != "unasked" }
	for want, theirs := range map[float64]map[string]uint64{
		1:   {"a": 1, "b": 2},
		0.5: {"b": 2, "unasked": 1, "seldom": 1},
		0:   {"others": 1},
	} {
		if got := shared(ours, theirs, often, asked); got != want {
			t.Errorf("%v: %v, want %v", theirs, got, want)
		}
	}
}

// Each limit holds at what is asked, and not beyond; what nothing is asked of is not judged.
func TestGranularLimits(t *testing.T) {
	asked := lmbenchSuite(2, 1, 0)
	for _, l := range slices.Concat(granularLimits, apacheLimits) {
		for _, arch := range []string{"amd64", "arm64", "riscv64"} {
			limit := l.asked[arch]
			figure, worse := ".geomean", 1.01
			if !judgedByBare(l.rival) {
				figure, worse = ".over-splice", 0.99
			}
			for _, v := range []float64{limit, limit * worse} {
				got := failure(func(fail func(string)) {
					x := NewT(arch, "", nil, fail)
					x.Metrics[l.granularity+"."+l.rival+figure] = report.Metric{Value: v}
					x.granularLimit(l, asked.rival(l.rival))
				})
				if judged := limit > 0 && asked.rival(l.rival).lacks(arch, granularityOf(l.granularity)) == ""; (got != "") != (v != limit && judged) {
					t.Errorf("%s, %s of %s at %v: %q", arch, l.granularity, l.rival, v, got)
				}
			}
		}
		if l.asked["amd64"] == 0 {
			t.Errorf("%s of %s: nothing is asked", l.granularity, l.rival)
		}
	}
}

// TestGranularLimitMissing: a figure that something is asked of has to be there.
func TestGranularLimitMissing(t *testing.T) {
	for _, l := range granularLimits {
		got := failure(func(fail func(string)) {
			NewT("amd64", "", nil, fail).granularLimit(l, lmbenchSuite(2, 1, 0).rival(l.rival))
		})
		if !strings.Contains(got, "no such figure") {
			t.Errorf("%s of %s: %q", l.granularity, l.rival, got)
		}
	}
}

// TestTracedInMoreSamples: all mechanisms have as many of one granularity, as is checked.
func TestTracedInMoreSamples(t *testing.T) {
	s := lmbenchSuite(2, 1, 0, "Null", "Read")
	for _, g := range granularities {
		want := map[bool]int{false: 2, true: 3}[g.name == "traced"]
		of := s.of(g)
		if argv := strings.Join(of.argv[3:], " "); of.samples != want || argv != fmt.Sprintf("%d Null Read", want) || of.known[0].least != uint64(1440*(want+1)) {
			t.Errorf("%s: %d samples, %s, calls %+v", g.name, of.samples, argv, of.known)
		}
	}
	steps, err := s.spliced(granularKprobed(t))
	if err != nil {
		t.Fatal(err)
	}
	ran := map[string]string{}
	for _, step := range steps {
		if r := step.GetRun(); r != nil {
			ran[step.Name] = strings.Join(r.Argv[3:], " ")
		}
	}
	if ran["traced.work"] != "3 Null Read" || ran["counted.work"] != "2 Null Read" {
		t.Errorf("%q", ran)
	}
}

// TestMeanSample: what is subtracted from the shortest sample is from all.
func TestMeanSample(t *testing.T) {
	if got := meanSample(&measure.Operation{NS: 90, Samples: []float64{100, 130, 100}}); got != 100 {
		t.Errorf("%v, want 100", got)
	}
}

// TestClonedPart: what clones leave out is not counted, and what they have more is told apart, where splices have the place.
func TestClonedPart(t *testing.T) {
	ours := map[uint64]uint64{1: 100, 2: 200, 3: 100}
	for _, tt := range []struct {
		theirs     map[uint64]uint64
		part, more float64
	}{
		{map[uint64]uint64{1: 100, 2: 200, 3: 100}, 1, 0},
		{map[uint64]uint64{1: 100, 9: 500}, 0.25, 0},
		{map[uint64]uint64{1: 140, 2: 100}, 0.5, 0.1},
		{nil, 0, 0},
	} {
		if part, more := clonedPart(ours, tt.theirs); part != tt.part || more != tt.more {
			t.Errorf("%v: %v, %v more", tt.theirs, part, more)
		}
	}
}
