package scenarios

import (
	"bytes"
	"strings"
	"testing"

	"kerninst/agent/gen"
	"kerninst/agent/index"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/wire"
	"kerninst/lab/analysis"
)

// surveyedAnswer is an answer of a guest with a recorded kernel, elsewhere by slide, and
// what its daemon says if it says what the survey does.
func surveyedAnswer(t *testing.T, arch string, points int, slide uint64) (*Answer, []uint64, []*wire.PointResult) {
	t.Helper()
	recorded := ktexttest.Load(t, arch)
	var file bytes.Buffer
	d := &ktext.Dump{Arch: arch, Release: "6.12", CPUs: 1, Parts: recorded.Text(t).DumpParts([]byte(recorded.Kallsyms), nil, nil)}
	if err := d.Write(&file, recorded.Read); err != nil {
		t.Fatal(err)
	}
	d, err := ktext.ReadDump(file.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	k, err := analysis.Analyse(d)
	if err != nil {
		t.Fatal(err)
	}
	text := k.Text
	b, err := k.MakeIndex()
	if err != nil {
		t.Fatal(err)
	}
	x, err := index.Open(b)
	if err != nil {
		t.Fatal(err)
	}
	lo, _ := text.Bounds()
	of := &Answer{Text: text, Index: x, Dump: file.Bytes(), Seed: 1, Hello: &wire.Hello{TextStart: uint64(lo) + slide}}
	offsets, err := drawText(of, points)
	if err != nil || len(offsets) != points {
		t.Fatalf("%d points: %v", len(offsets), err)
	}
	p, err := analysis.NewPlanner(text, x, gen.Features{LSE: true})
	if err != nil {
		t.Fatal(err)
	}
	var at []isa.Addr
	for _, off := range offsets {
		at = append(at, lo+isa.Addr(off))
	}
	all, err := p.Of(at)
	if err != nil {
		t.Fatal(err)
	}
	var said []*wire.PointResult
	for _, a := range at {
		v, r := all[a], &wire.PointResult{}
		if v.Refusal != nil {
			r.Refusal = &wire.Refusal{Reason: v.Refusal.Reason.String(), Class: v.Refusal.Class}
		} else if r.Mechanism = v.Plan.Mechanism.String(); v.Plan.For != 0 {
			r.RunsAt = uint64(v.Plan.At()) + slide
		}
		said = append(said, r)
	}
	return of, offsets, said
}

// TestVerdictsDiffer: what the daemon says is compared with the survey wherever the kernel
// lies, and each way to differ is seen.
func TestVerdictsDiffer(t *testing.T) {
	const points, slide = 300, 0x1c00000
	for _, arch := range ktexttest.Arches {
		of, offsets, said := surveyedAnswer(t, arch, points, slide)
		check := func() []string {
			wrong, n, err := differingVerdicts(of, gen.Features{LSE: true}, offsets, said)
			if err != nil || n["refused"] == 0 || n["refused"] == points {
				t.Fatalf("%s: %v, %v", arch, n, err)
			}
			return wrong
		}
		if wrong := check(); len(wrong) > 0 {
			t.Errorf("%s: %d differ: %q", arch, len(wrong), wrong[0])
		}
		seen := map[string]bool{}
		for k, r := range said {
			switch {
			case r.Refusal != nil && !seen["reason"]:
				seen["reason"] = true
				said[k] = &wire.PointResult{Refusal: &wire.Refusal{Reason: "recursion"}}
			case r.Refusal.GetClass() != "" && !seen["class"]:
				seen["class"] = true
				said[k] = &wire.PointResult{Refusal: &wire.Refusal{Reason: r.Refusal.Reason, Class: "another"}}
			case r.Refusal == nil && r.RunsAt == 0 && !seen["mechanism"]:
				seen["mechanism"] = true
				said[k] = &wire.PointResult{Mechanism: "trap"}
			case r.Refusal == nil && !seen["elsewhere"]:
				seen["elsewhere"] = true
				said[k] = &wire.PointResult{Mechanism: r.Mechanism, RunsAt: r.RunsAt + uint64(slide)}
			default:
				continue
			}
			if wrong := check(); len(wrong) != 1 || !strings.Contains(wrong[0], "the daemon says") {
				t.Errorf("%s: %v: %d differ: %q", arch, r, len(wrong), wrong)
			}
			said[k] = r
		}
		if len(seen) < 3 {
			t.Errorf("%s: only %v were tried", arch, seen)
		}
	}
}

// TestVerdictJob asks for each of the drawn points once, in steps that only plan.
func TestVerdictJob(t *testing.T) {
	of, offsets, _ := surveyedAnswer(t, "arm64", 300, 0)
	job, err := verdictJob(of, 300)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, s := range job.Steps {
		if do := s.GetSplice(); do != nil {
			if !do.OnlyPlan || !do.SkipRefused {
				t.Errorf("%s would splice", s.Name)
			}
			for _, p := range do.Points {
				if p.Text != offsets[n]+1 {
					t.Errorf("point %d at %d, want %d", n, p.Text, offsets[n]+1)
				}
				n++
			}
		}
	}
	if n != 300 {
		t.Errorf("%d points", n)
	}
	if _, err := verdictJob(&Answer{}, 1); err == nil {
		t.Error("points were drawn from nothing")
	}
}
