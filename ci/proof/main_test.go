package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"kerninst/lab/status"
	"kerninst/scenarios"
)

func TestRead(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{`[{"arch": "amd64", "seed": 3, "status": "passed", "scenarios": [{"name": "p", "status": "passed", "metrics": {"m": {"value": 7}}}]}]`, "proof p amd64 7 3 passed\nproof p/c amd64 0 3 failed\nproof p/d amd64 0 3 failed"},
		{`[{"arch": "amd64", "seed": 3, "status": "passed", "scenarios": [{"name": "p", "status": "crashed"}]}]`, "proof p amd64 0 3 crashed"},
		{`[{"arch": "amd64", "seed": 3, "status": "passed", "scenarios": [{"name": "p", "status": "passed", "metrics": {"m": {"value": 0}}}]}]`, "proof p amd64 0 3 failed\nproof p/c amd64 0 3 failed\nproof p/d amd64 0 3 failed"},
		{`[{"arch": "amd64", "seed": 3, "status": "passed", "scenarios": [{"name": "p", "status": "passed"}]}]`, "proof p amd64 0 3 failed\nproof p/c amd64 0 3 failed\nproof p/d amd64 0 3 failed"},
		{`[{"arch": "amd64", "seed": 3, "status": "passed", "scenarios": [{"name": "p", "status": "passed", "metrics": {"m": {"value": 7}, "m.c": {"value": 2}, "m.d": {"value": 0}}}]}]`,
			"proof p amd64 7 3 passed\nproof p/c amd64 2 3 passed\nproof p/d amd64 0 3 failed"},
		{`[]`, "proof p amd64 0 3 lab_failed"},
		{``, "proof p amd64 0 3 lab_failed"},
		{`[{"arch": "amd64", "seed": 3, "status": "lab_failed", "scenarios": [{"name": "p", "status": "passed", "metrics": {"m": {"value": 7}}}]}]`, "proof p amd64 7 3 lab_failed"},
		{`[{"arch": "arm64", "seed": 3, "status": "passed", "scenarios": [{"name": "p", "status": "passed", "metrics": {"m": {"value": 7}}}]}]`, "proof p amd64 0 3 lab_failed"},
		{`[{"arch": "amd64", "seed": 4, "status": "passed", "scenarios": [{"name": "p", "status": "passed", "metrics": {"m": {"value": 7}}}]}]`, "proof p amd64 0 3 lab_failed"},
		{`[{"arch": "amd64", "seed": 3, "status": "passed", "scenarios": [{"name": "q", "status": "passed", "metrics": {"m": {"value": 7}}}]}]`, "proof p amd64 0 3 lab_failed"},
	} {
		p := scenarioProof{"p", "exact", "m", []class{{"c", "m.c", nil}, {"d", "m.d", amd64}, {"e", "m.e", []string{"arm64"}}}}
		var got []string
		for _, l := range p.read([]byte(tt.text), "amd64", 3) {
			got = append(got, l.String())
		}
		if strings.Join(got, "\n") != tt.want {
			t.Errorf("%s: got %q, want %q", tt.text, got, tt.want)
		}
	}
}

// Every proof is a scenario, and every scenario of that label a proof.
func TestTable(t *testing.T) {
	labelled, err := scenarios.Select("proof")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for _, p := range scenarioProofs {
		rows[p.name] = true
	}
	for _, s := range labelled {
		if !rows[s.Name] {
			t.Errorf("scenario %s is labelled proof and has no row", s.Name)
		}
		delete(rows, s.Name)
	}
	for name := range rows {
		t.Errorf("row %s has no scenario of that label", name)
	}
}

// Every fuzz target of the repository has a row, and every row a target.
func TestFuzzers(t *testing.T) {
	rows := map[string]bool{}
	for _, f := range fuzzers {
		for _, arch := range []string{"amd64", "arm64", "riscv64"} {
			rows[strings.Replace(f.pkg, "%s", arch, 1)+" "+f.target] = true
		}
	}
	declared := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(f \*testing\.F\)`)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range declared.FindAllSubmatch(b, -1) {
			pkg, _ := filepath.Rel("../..", filepath.Dir(path))
			row := "./" + pkg + " " + string(m[1])
			if !rows[row] {
				t.Errorf("%s has no row in the table of fuzzers", row)
			}
			delete(rows, row)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for row := range rows {
		t.Errorf("%s is in the table of fuzzers alone", row)
	}
}

// The first is answered last; the lines come in order all the same, and no more
// run at once than may.
func TestInOrder(t *testing.T) {
	var running atomic.Int32
	second := make(chan struct{})
	work := func(name string, do func()) func() []line {
		return func() []line {
			if n := running.Add(1); n > 2 {
				t.Errorf("%d at once", n)
			}
			do()
			running.Add(-1)
			return []line{{name: name}}
		}
	}
	var got []string
	inOrder([]func() []line{
		work("a", func() { <-second }), work("b", func() { close(second) }), work("c", func() {}),
	}, 2, func(l line) { got = append(got, l.name) })
	if !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("%q", got)
	}
}

func TestPattern(t *testing.T) {
	for test, want := range map[string]string{
		"TestA":        "^TestA$/^riscv64$",
		"TestA/%s/low": "^TestA$/^riscv64$/^low$",
	} {
		if got := (testProof{test: test}).pattern("riscv64"); got != want {
			t.Errorf("%s: %s, want %s", test, got, want)
		}
	}
}

func TestJudge(t *testing.T) {
	out := []byte("x: proof sweep arm64 7 of 8\nproof sweep arm64 5\nfuzz: execs: 3 (1/sec)\nfuzz: execs: 9 (1/sec)\n")
	if n := sum(out, regexp.MustCompile(`proof sweep arm64 (\d+)`)); n != 12 {
		t.Errorf("sum %d", n)
	}
	if n := last(out, regexp.MustCompile(`execs: (\d+)`)); n != 9 {
		t.Errorf("last %d", n)
	}
	for _, tt := range []struct {
		err  error
		n    uint64
		want string
	}{
		{nil, 3, "proof p any 3 1 passed"},
		{nil, 0, "proof p any 0 1 failed"},
		{errors.New("exit status 1"), 3, "proof p any 3 1 failed"},
	} {
		l := line{"p", "any", 0, 1, status.LabFailed}
		if l.judge(tt.err, tt.n, nil); l.String() != tt.want {
			t.Errorf("%v, %d: %q, want %q", tt.err, tt.n, l, tt.want)
		}
	}
}

// TestNamed: a name is one proof's, if there is one of it, and else the begin of some.
func TestNamed(t *testing.T) {
	all := []proof{{name: "kills"}, {name: "kills-long"}, {name: "fuzz-a"}, {name: "fuzz-b"}}
	for name, want := range map[string]int{"": 4, "kills": 1, "fuzz": 2, "fuz": 0, "kills-long": 1} {
		if got := named(all, name); len(got) != want {
			t.Errorf("%q means %d, want %d", name, len(got), want)
		}
	}
	for list, want := range map[string]int{"all": 3, "arm64,amd64": 2, "amd64": 1, "x86": 0, "": 0} {
		if got, err := listed(list); len(got) != want || (err == nil) != (want > 0) {
			t.Errorf("%q is %v, %v", list, got, err)
		}
	}
}

// TestPassed: a kernel has passed when each scenario that was asked for has.
func TestPassed(t *testing.T) {
	for _, tt := range []struct {
		text   string
		n      uint64
		result status.Status
	}{
		{`[{"status": "passed", "scenarios": [{"name": "a", "status": "passed"}, {"name": "b", "status": "passed"}]}]`, 2, status.Passed},
		{`[{"status": "passed", "scenarios": [{"name": "a", "status": "passed"}]}]`, 1, status.Failed},
		{`[{"status": "crashed", "scenarios": [{"name": "a", "status": "passed"}, {"name": "b", "status": "crashed"}]}]`, 1, status.Crashed},
		{`[{"status": "lab_failed", "scenarios": [{"name": "a", "status": "passed"}, {"name": "b", "status": "passed"}]}]`, 2, status.LabFailed},
		{`[]`, 0, status.LabFailed},
		{``, 0, status.LabFailed},
	} {
		if n, result := passed([]byte(tt.text), []string{"a", "b"}); n != tt.n || result != tt.result {
			t.Errorf("%s: %d, %s", tt.text, n, result)
		}
	}
	if n := len(meant(othersScenarios)); n <= len(othersScenarios) { // one is a label
		t.Errorf("%d scenarios are meant", n)
	}
}
