package analysis_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/lab/analysis"
)

// TestSurvey: every instruction of the index is served, reserved or refused, and the
// document has the keys that it always has.
func TestSurvey(t *testing.T) {
	for _, c := range []struct {
		arch string
		by   []string // mechanisms that serve some
	}{{"amd64", []string{"jump", "springboard"}}, {"arm64", []string{"jump"}}, {"riscv64", []string{"quiesced"}}} {
		var lines bytes.Buffer
		s, err := analysis.NewSurvey(t.Context(), recorded(t, c.arch), indexed(t, analyse(t, c.arch)), &lines, nil)
		if err != nil {
			t.Fatal(err)
		}
		checkLines(t, s, lines.String())
		checkSections(t, s)
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
		if n, ok := s.Mechanisms["pun"]; !ok || (n > 0) != (c.arch == "amd64") {
			t.Errorf("%s: %d by pun", c.arch, n)
		}
		if n, ok := s.Mechanisms["trap"]; !ok || n*10 > s.Instructions {
			t.Errorf("%s: %d by trap, the last resort", c.arch, n)
		}
		doc, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"schema", "arch", "instructions", "reserved", "mechanisms", "refused", "percent", "sections", "modules", "springboard_space", "jumps",
			"reached_without_trap", "reserved_as", "as_often"} {
			if !strings.Contains(string(doc), `"`+key+`":`) {
				t.Errorf("no %q in %s", key, doc)
			}
		}
		var out strings.Builder
		if err := s.Print(&out); err != nil || !strings.Contains(out.String(), c.by[0]) || !strings.Contains(out.String(), "100.0 %") {
			t.Errorf("%v\n%s", err, out.String())
		}
	}
	_, err := analysis.NewSurvey(t.Context(), recorded(t, "arm64"), nil, nil, nil)
	if err == nil {
		t.Error("without an index, there is nothing to count")
	}
}

// TestSurveyEnds: who is asked to end does not plan the rest, and how far it is was said.
func TestSurveyEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	said := 0
	end := func(done, of int) {
		if said++; done < 1 || done > of {
			t.Errorf("%d of %d are done", done, of)
		}
	}
	if _, err := analysis.NewSurvey(ctx, recorded(t, "arm64"), indexed(t, analyse(t, "arm64")), nil, end); err != nil || said == 0 {
		t.Errorf("%v, said %d times", err, said)
	}
	cancel()
	if _, err := analysis.NewSurvey(ctx, recorded(t, "arm64"), indexed(t, analyse(t, "arm64")), nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("asked to end: %v", err)
	}
}

// checkLines: each instruction has a line of five columns, and they add up to the table.
func checkLines(t *testing.T, s *analysis.Survey, lines string) {
	t.Helper()
	got, last := map[string]int{}, ""
	for line := range strings.Lines(lines) {
		c := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(c) != 5 || c[0] <= last || !strings.Contains(c[1], "+0x") {
			t.Fatalf("%s: %q, behind %s", s.Arch, line, last)
		}
		if last = c[0]; c[2] == "refused" || c[2] == "reserved" {
			if c[3] == "" || c[4] == "" {
				t.Fatalf("%s: no reason in %q", s.Arch, line)
			}
			c[2] += ": " + c[3]
		}
		got[c[2]]++
	}
	want := map[string]int{}
	for prefix, m := range map[string]map[string]int{"": s.Mechanisms, "refused: ": s.Refused, "reserved: ": s.ReservedAs} {
		for key, n := range m {
			if n > 0 {
				want[prefix+key] = n
			}
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("%s: lines of %v, the table has %v", s.Arch, got, want)
	}
}

// checkSections: they add up to the whole, and so do the shares.
func checkSections(t *testing.T, s *analysis.Survey) {
	t.Helper()
	n, reserved := 0, 0
	for _, x := range s.Sections {
		n, reserved = n+x.Instructions, reserved+x.Reserved
	}
	if n != s.Instructions || reserved != s.Reserved || s.Sections[0].Name != ".text" {
		t.Errorf("%s: sections of %d instructions, %d reserved; the whole has %d and %d: %+v", s.Arch, n, reserved, s.Instructions, s.Reserved, s.Sections)
	}
	if p := s.Percent; math.Abs(p.Reached+p.Trapped+p.Refused-100) > 0.001 || p.Reserved <= 0 {
		t.Errorf("%s: %+v", s.Arch, p)
	}
	d := xml.NewDecoder(bytes.NewReader(s.SVG()))
	for {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("%s: %v", s.Arch, err)
		}
	}
}

// TestPlannerOf: what is asked for one by one, in any order, is what the survey says.
func TestPlannerOf(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64", "riscv64"} {
		k := analyse(t, arch)
		p, err := analysis.NewPlanner(k.Text, indexed(t, k), gen.Features{LSE: true})
		if err != nil {
			t.Fatal(err)
		}
		want, at := map[isa.Addr]string{}, []isa.Addr(nil)
		for _, f := range analysis.Functions(k.Text) {
			list, err := p.Instructions(f)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Each(f, list, func(v analysis.Verdict) { want[v.At] = v.Line() }); err != nil {
				t.Fatal(err)
			}
			for n := 0; n < len(list); n += 3 {
				at = append(at, list[n])
			}
		}
		slices.Reverse(at)
		got, err := p.Of(at)
		if err != nil || len(got) != len(at) || len(at) < 200 {
			t.Fatalf("%s: %d of %d: %v", arch, len(got), len(at), err)
		}
		for a, v := range got {
			if v.Line() != want[a] {
				t.Errorf("%s: alone %q, among others %q", arch, v.Line(), want[a])
			}
		}
		if _, err := p.Of([]isa.Addr{0x1000}); !errors.Is(err, analysis.ErrNoFunction) {
			t.Errorf("%s: %v", arch, err)
		}
	}
}
