package compare

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"kerninst/lab/history"
	"kerninst/lab/report"
	"kerninst/lab/runs"
)

// FuzzCompare: whatever lies where results, manifest and timings should, it is refused, or
// comes out as a document, tables and a page.
func FuzzCompare(f *testing.F) {
	results, err := json.Marshal(run(metrics{"x": insns(4), "y": points(7)}).Results)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(results, results, []byte(`{"schema": 1, "exact": ["cost.cost"], "own": {"cpus": 2}}`), []byte(`{"schema": 1, "seconds": {"guest/cost.2cpu": 1}, "host": {"start": "2026-11-27T04:50:16Z"}}`))
	f.Add(results[:len(results)/2], []byte(`{"schema": 2}`), []byte(`{}`), []byte(`[]`))
	f.Fuzz(func(t *testing.T, a, b, manifest, timings []byte) {
		dir := t.TempDir()
		sides := [2]Side{{Name: "a"}, {Name: "b"}}
		for i, text := range [][]byte{a, b} {
			at := filepath.Join(dir, sides[i].Name)
			for name, content := range map[string][]byte{report.ResultsFile: text, report.ManifestFile: manifest, report.TimingsFile: timings} {
				if err := os.MkdirAll(at, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(at, name), content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r, err := runs.Place{Name: "x", Dir: at, File: report.ResultsFile}.Read()
			if (r == nil) != (err != nil) {
				t.Fatalf("%v and %v", r, err)
			}
			if err != nil {
				return
			}
			sides[i].Runs = append(sides[i].Runs, r)
		}
		shown(t, sides)
	})
}

// numbers are those that a document can hold, of eight bytes each.
func numbers(b []byte) (out []float64) {
	for ; len(b) >= 8; b = b[8:] {
		if v := math.Float64frombits(binary.LittleEndian.Uint64(b)); !math.IsNaN(v) && !math.IsInf(v, 0) {
			out = append(out, v)
		}
	}
	return out
}

// FuzzFigures: whatever numbers results have, what is made of them can be printed, and the
// interval holds the change.
func FuzzFigures(f *testing.F) {
	bytes := func(of ...float64) (b []byte) {
		for _, v := range of {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
		}
		return b
	}
	f.Add(bytes(1, 2, 3, 4), bytes(5, 6, 7, 8), true)
	f.Add(bytes(0, math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64), bytes(1, 1, 1, math.Copysign(0, -1), 1), true)
	f.Add(bytes(3), bytes(4), false)
	f.Fuzz(func(t *testing.T, a, b []byte, hosted bool) {
		sides := [2]Side{{Name: "a"}, {Name: "b"}}
		for i, values := range [][]float64{numbers(a), numbers(b)} {
			for n, v := range values {
				m := insns(v)
				if m.Lo, m.Hi = &v, &v; n == 0 && hosted {
					m.Samples = values
				}
				r := run(metrics{"x": m}, seed(uint64(n)), func(r *runs.Run) { r.Start = time.Unix(int64(n), 0) })
				if hosted {
					host(r)
				}
				sides[i].Runs = append(sides[i].Runs, r)
			}
		}
		shown(t, sides)
		c, err := Compare(sides[0], sides[1], usual)
		if err != nil {
			return // a side has nothing
		}
		for _, m := range c.Metrics {
			if m.Lo != nil && !(*m.Lo <= m.Change && m.Change <= *m.Hi) {
				t.Fatalf("%+v", m)
			}
		}
	})
}

// shown makes all that can be made of two runs.
func shown(t *testing.T, sides [2]Side) {
	c, err := Compare(sides[0], sides[1], usual)
	if (c == nil) != (err != nil) {
		t.Fatalf("%v and %v", c, err)
	}
	if err == nil {
		if _, err := json.Marshal(c); err != nil {
			t.Fatal(err)
		}
		if err := c.Table(io.Discard, true); err != nil {
			t.Fatal(err)
		}
		if err := c.Markdown(io.Discard, true); err != nil {
			t.Fatal(err)
		}
	}
	h := history.Of(append(sides[0].Runs, sides[1].Runs...), nil)
	if _, err := json.Marshal(h); err != nil {
		t.Fatal(err)
	}
	for _, write := range []func(io.Writer) error{h.Lines, h.Page, func(w io.Writer) error { return h.Overview(w, true) }} {
		if err := write(io.Discard); err != nil {
			t.Fatal(err)
		}
	}
}

// FuzzRules: a file of thresholds is refused, or each of its figures has one.
func FuzzRules(f *testing.F) {
	f.Add([]byte("cost/* 2% better=lower # why\n*\t-\n"), "arm64", "cost", "x")
	f.Add([]byte("a[b 1"), "", "", "")
	f.Fuzz(func(t *testing.T, text []byte, arch, scenario, metric string) {
		rules, err := ParseRules("f", text)
		if (len(rules) == 0) != (err != nil) {
			t.Fatalf("%v and %v", rules, err)
		}
		l := limits{rules: rules, used: make([]bool, len(rules))}
		limit, _ := l.of(arch, scenario, metric, report.Lower)
		if again, err := ParseLimit(limit.String()); err != nil || again != limit {
			t.Fatalf("%+v is written %s and read %+v, %v", limit, limit, again, err)
		}
		limit.exceeded(1, 2)
	})
}
