package cost

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/ktypes"
	"kerninst/agent/ktypes/ktypestest"
	"kerninst/agent/probe"
	"kerninst/agent/wire"
)

// guest answers a job as one whose operations take 100 instructions, and those with
// something in them as many more as extra says.
func guest(t *testing.T, arch string, extra func(step string) int) (*wire.Hello, []*wire.Result) {
	t.Helper()
	job, err := Job(arch, kernel(t))
	if err != nil {
		t.Fatal(err)
	}
	var out []*wire.Result
	hits := map[string]uint64{}
	for _, s := range job.Steps {
		r := &wire.Result{Step: s.Name}
		of, _, _ := strings.Cut(s.Name, ".")
		switch {
		case s.GetRun() != nil:
			text := ""
			if argv := s.GetRun().Argv; argv[1] == "null" {
				var n, samples int
				fmt.Sscan(argv[2], &n)
				fmt.Sscan(argv[3], &samples)
				for range samples {
					text += fmt.Sprintf("null %d %d\n", n, n*(100+extra(of)))
				}
				hits[of] = uint64(n * (1 + samples))
				text += fmt.Sprintf("null total %d\n", hits[of])
			}
			r.Runs = []*wire.RunResult{{Stdout: []byte(text)}}
		case s.GetSplice() != nil:
			for range s.GetSplice().Points {
				r.Points = append(r.Points, &wire.PointResult{Spec: "kinst::f:4", Symbol: "f", PatchBytes: make([]byte, 20), BoardBytes: make([]byte, 5)})
			}
			r.Stages = []*wire.Stage{{Name: "part", Ns: 7}}
		case s.GetRead() != nil:
			switch {
			case strings.HasPrefix(of, "timer"):
				r.Values = []*wire.Value{{}, {Count: 30 * hits[of]}}
			case strings.HasPrefix(of, "time/"), strings.HasPrefix(of, "vtime/"):
				at := func(cycles uint64) *wire.Value {
					return &wire.Value{Rows: []*wire.Row{{Values: []uint64{cycles, hits[of]}}}}
				}
				r.Values = []*wire.Value{at(7), at(7 + 30*hits[of])}
			case strings.HasPrefix(of, "trace"), strings.HasPrefix(of, "stack"):
				r.Values = []*wire.Value{{Count: hits[of], Records: slices.Repeat([]*wire.TraceRecord{{}}, int(hits[of]))}}
			case strings.HasPrefix(of, "average"):
				r.Values = []*wire.Value{{Rows: []*wire.Row{{Values: []uint64{5, hits[of]}}}}}
			case strings.Contains(of, " by "):
				r.Values = []*wire.Value{{Rows: []*wire.Row{{Keys: []uint64{1, 0}, Values: []uint64{1}}, {Keys: []uint64{2, 0}, Values: []uint64{hits[of] - 1}}}}}
			case strings.Contains(of, "histogram"):
				r.Values = []*wire.Value{{Rows: []*wire.Row{{Values: []uint64{0, hits[of]}}}}}
			default:
				r.Values = []*wire.Value{{Count: hits[of]}}
			}
		case s.GetKprobe().GetRemove():
			r.KprobeHits = hits[of]
		}
		out = append(out, r)
	}
	return &wire.Hello{Arch: arch, Kernel: "6.12"}, out
}

func kernel(t *testing.T) probe.At {
	return probe.At{Types: func() (*ktypes.Types, error) { return ktypestest.Kernel(t), nil }}
}

func find(t *testing.T, all []*wire.Result, step string) *wire.Result {
	t.Helper()
	i := slices.IndexFunc(all, func(r *wire.Result) bool { return r.Step == step })
	if i < 0 {
		t.Fatalf("no step %s", step)
	}
	return all[i]
}

func five(step string) int {
	if strings.HasPrefix(step, bare) || strings.HasPrefix(step, again) {
		return 0
	}
	return 5
}

func TestTable(t *testing.T) {
	hello, all := guest(t, "arm64", five)
	refused := find(t, all, "predicated counter/jump#0")
	refused.Points[0].Refusal = &wire.Refusal{Reason: "why", Detail: "because"}
	find(t, all, roundOf(peerName(5), 0)).Error = "none here"
	find(t, all, behind).Runs[0].Exit = 1
	table, err := NewTable(hello, all, kernel(t))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range table.Rows {
		got = append(got, fmt.Sprint(r.Action, " ", r.Mechanism, " ", r.Added, " ", r.Bytes, " ", r.N, " ", r.Refusal != nil))
	}
	want := []string{
		"counter jump 5 25 41000 false", "counter trap 5 25 41000 false", "counter at a jump trap 5 25 41000 false",
		"predicated counter jump 0 0 0 true", "predicated counter trap 5 25 41000 false", "timer pair jump 5 50 41000 false", "timer pair trap 5 50 41000 false", "time jump 5 50 41000 false",
		"trace record jump 5 25 24500 false", "trace record trap 5 25 24500 false",
		"trace of two words jump 5 25 24500 false", "trace record without time jump 5 25 24500 false", "stack of four jump 5 25 1000 false", "predicate on pid jump 5 25 41000 false", "predicate on comm jump 5 25 41000 false",
		"maximum jump 5 25 41000 false", "average jump 5 25 41000 false", "histogram jump 5 25 41000 false", "linear histogram jump 5 25 41000 false",
		"count by pid jump 5 25 41000 false", "count by comm jump 5 25 41000 false", "histogram by comm jump 5 25 41000 false", "vtime jump 5 50 41000 false",
		"counter kprobe 5 0 41000 false", "counter at a jump kprobe 5 0 41000 false", "counter kprobe 5 0 41000 false", "counter optprobe 0 0 0 true", "counter ftrace 5 0 41000 false", "counter kretprobe 0 0 0 true",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(table.Insertion) != 1 || table.Insertion[0] != (Part{"part", 7}) {
		t.Errorf("insertion %+v", table.Insertion)
	}
}

// A figure whose hits were not all counted is none, and neither is one beside a bare run
// that does not come out again.
func TestRefusesFigures(t *testing.T) {
	for want, spoil := range map[string]func([]*wire.Result){
		"counted 1 of":   func(all []*wire.Result) { find(t, all, "counter/jump#0.read").Values[0].Count = 1 },
		"dropped 2":      func(all []*wire.Result) { find(t, all, "trace record/jump#0.read").Values[0].Dropped = 2 },
		"without room 4": func(all []*wire.Result) { find(t, all, "count by pid/jump#0.read").Values[0].Lost = 4 },
		"came by":        func(all []*wire.Result) { find(t, all, "time/jump#0.read").Values[1].Rows[0].Values[1]-- },
		"ticks":          func(all []*wire.Result) { find(t, all, "timer pair/jump#0.read").Values[0].Count = 1 << 62 },
		"says -": func(all []*wire.Result) {
			find(t, all, "timer pair/jump#0").Points[0].Offset = 9
			find(t, all, "timer pair/jump#0.read").Values[1].Count += 1e6
		},
		"values for 1 points":    func(all []*wire.Result) { find(t, all, "counter/jump#0.read").Values = nil },
		"kretprobe counted 3 of": func(all []*wire.Result) { find(t, all, "peer-5#0.undo").KprobeHits = 3 },
		"ended well":             func(all []*wire.Result) { find(t, all, "counter/jump#0.work").Runs[0].Exit = 1 },
	} {
		hello, all := guest(t, "arm64", five)
		spoil(all)
		if _, err := NewTable(hello, all, kernel(t)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	hello, all := guest(t, "arm64", func(step string) int { return map[bool]int{true: 3}[strings.HasPrefix(step, again)] })
	if _, err := NewTable(hello, all, kernel(t)); err == nil || !strings.Contains(err.Error(), "more at the end") {
		t.Errorf("%v, want what differs at the end", err)
	}
}
