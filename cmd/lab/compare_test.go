package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kerninst/lab/compare"
	"kerninst/lab/history"
	"kerninst/lab/report"
	"kerninst/lab/repro"
	"kerninst/lab/status"
)

// aCost makes the folder of a run of the scenario cost on arm64, in top/name.
func aCost(t *testing.T, top, name string, splice float64, changes ...func(*report.Results)) string {
	t.Helper()
	r := report.Results{Arch: "arm64", Kernel: "6.12", QEMU: "7.2", Time: "exact", Seed: 1, Status: status.Passed, Scenarios: []report.Scenario{{
		Name: "cost", Status: status.Passed, Metrics: map[string]report.Metric{
			"splice.insns_per_hit": {Value: splice, Unit: "insns", Better: report.Lower}, "kprobe.insns_per_hit": {Value: 523, Unit: "insns", Better: report.Lower},
		},
	}}}
	for _, c := range changes {
		c(&r)
	}
	m, err := repro.Manifest{Arch: r.Arch, Scenario: "cost", Time: r.Time, Seed: r.Seed, QEMU: r.QEMU, Go: "go1", Exact: []string{"cost.cost"}}.Encode()
	timings := report.Timings{Seconds: map[string]float64{"guest/cost.cost": 1}, Host: map[string]string{"start": "2026-11-27T04:50:1" + fmt.Sprint(len(name)%10) + "Z"}}
	dir := filepath.Join(top, name)
	if err = errors.Join(err, report.WriteArch(filepath.Join(dir, r.Arch), r, m, timings)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func otherKernel(r *report.Results) { r.Kernel = "6.13" }

// called runs a command line that is right, and returns what it writes and its exit status.
func called(t *testing.T, args ...string) (out, errs string, code int) {
	t.Helper()
	c := root()
	var stdout, stderr bytes.Buffer
	c.SetOut(&stdout)
	c.SetErr(&stderr)
	c.SetArgs(args)
	err, e := c.Execute(), (*exit)(nil)
	switch {
	case errors.As(err, &e):
		code = e.code
	case err != nil:
		t.Fatalf("lab %q: %v", args, err)
	}
	return stdout.String(), stderr.String(), code
}

// A comparison is on stdout, what else is to be said on stderr, and the exit status says
// whether anything is worse than it may be.
func TestCompare(t *testing.T) {
	top := t.TempDir()
	a, worse, better, same := aCost(t, top, "a", 4), aCost(t, top, "worse", 5), aCost(t, top, "better", 3), aCost(t, top, "same", 4)
	other := aCost(t, top, "other", 4, otherKernel)
	limits := filepath.Join(top, "limits")
	if err := os.WriteFile(limits, []byte("splice.* 30%\nlmbench/* 1%\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args string
		code int
		out  string
		errs string
	}{
		{a + " " + same, 0, "2 same of 2\n", ""},
		{a + " " + worse, 1, "splice.insns_per_hit  insns  4  5  +25.00 %  worse", ""},
		{a + " " + better, 0, "-25.00 %  better", ""},
		{"--threshold 25% " + a + " " + worse, 0, "worse, threshold 25%", ""},
		{"--threshold 24.9% " + a + " " + worse, 1, "1 beyond the threshold", ""},
		{"--thresholds " + limits + " " + a + " " + worse, 0, "worse, threshold 30%", "thresholds that no figure here has: line 2 (lmbench/*)\n"},
		{"--metric kprobe* " + a + " " + worse, 0, "1 same of 1\n", ""},
		{"--metric kprobe* --all " + a + " " + worse, 0, "523  523  =", ""},
		{a + " " + other, 1, "2 same of 2\n", "arm64: kernel: 6.12 in A, 6.13 in B: what is compared is not the same code\n"},
		{"--across-kernels " + a + " " + other, 0, "2 same of 2\n", "arm64: kernel: 6.12 in A, 6.13 in B"},
		{a + "/arm64/results.json " + worse + "/arm64", 1, "worse", ""},
		{"--markdown " + a + " " + worse, 1, "| arm64 | cost | splice.insns\\_per\\_hit | 4 | 5 | insns | \\+25.00 % | **worse** |", ""},
	} {
		out, errs, code := called(t, append([]string{"compare"}, strings.Fields(tt.args)...)...)
		blanks := func(s string) string { return strings.Join(strings.Fields(s), " ") }
		if code != tt.code || !strings.Contains(blanks(out), blanks(tt.out)) || !strings.HasPrefix(errs, tt.errs) || tt.errs == "" && errs != "" {
			t.Errorf("lab compare %s: exit status %d, want %d\n%s\nwant …%s…\n%q, want %q", tt.args, code, tt.code, out, tt.out, errs, tt.errs)
		}
	}
	out, _, code := called(t, "compare", "--json", a, worse)
	var doc compare.Comparison
	if err := json.Unmarshal([]byte(out), &doc); err != nil || code != 1 || doc.Schema != 1 || doc.Status != status.Failed || len(doc.Metrics) != 2 || doc.Metrics[1].Verdict != compare.Worse {
		t.Errorf("%v, exit status %d: %s", err, code, out)
	}
}

// Folders with several runs are samples.
func TestCompareSeveral(t *testing.T) {
	top := t.TempDir()
	for side, from := range map[string]float64{"a": 100, "b": 200} {
		for n := range 4 {
			aCost(t, top, filepath.Join(side, fmt.Sprint("run", n)), from+float64(n), func(r *report.Results) { r.Time = "host" })
		}
	}
	out, errs, code := called(t, "compare", filepath.Join(top, "a"), filepath.Join(top, "b"))
	if code != 1 || errs != "" || !strings.Contains(out, "+98.52 % [+95.57, +101.48]  worse, p=0.029 n=4+4") {
		t.Errorf("exit status %d: %s%s", code, out, errs)
	}
}

// What is no comparison is one line: what, where, and what to do.
func TestWrongComparisons(t *testing.T) {
	top := t.TempDir()
	a, b := aCost(t, top, "a", 4), aCost(t, top, "b", 4)
	amd64 := aCost(t, top, "amd64-run", 4, func(r *report.Results) { r.Arch = "amd64" })
	host := aCost(t, top, "host", 4, func(r *report.Results) { r.Time = "host" })
	other := aCost(t, top, "other", 4, func(r *report.Results) { r.Scenarios[0].Name = "other" })
	aCost(t, top, "mixed/a", 4)
	aCost(t, top, "mixed/b", 4, otherKernel)
	empty, latest := filepath.Join(top, "empty"), filepath.Join(top, "latest")
	limits := filepath.Join(top, "limits")
	err := errors.Join(os.Mkdir(empty, 0o700), os.Symlink("a", latest), os.WriteFile(limits, []byte("cost/* 2%\ncost/* 2% beter=lower\n"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"":                                       "want lab compare A B",
		a:                                        "received 1",
		a + " " + b + " x":                       "received 3",
		a + " /none":                             "/none: no such file or folder: want the folder of a run, one with several below it, or a file results.json",
		empty + " " + a:                          "empty: no run is here, nor below",
		a + " " + a:                              "a/arm64/results.json is in A and in B: name two runs that are not the same",
		a + " " + latest:                         "is in A and in B",
		a + " " + latest + "/arm64/results.json": "is in A and in B",
		a + " " + top + "/a/arm64":               "is in A and in B",
		top + " " + a:                            "is in A and in B",
		a + " " + amd64:                          "no figure is in both: " + a + " is of arm64, " + amd64 + " of amd64: compare runs of one ISA",
		a + " " + host:                           "is of exact time, " + host + " of host time: run both in one",
		a + " " + other:                          "run the same ones",
		a + " " + top + "/mixed":                 "B has runs of different kernels, 6.12 in a and 6.13 in b: name those of one",
		a + " " + limits:                         "limits: invalid character 'c'",
		a + " /dev/null":                         "/dev/null is not a plain file",
		"--json --markdown a b":                  "choose one",
		"--threshold 2 a b":                      "want a part, as 2%",
		"--threshold x% a b":                     "--threshold: limit \"x%\": want a number of 0 or more",
		"--confidence 95 a b":                    "--confidence 95: want 0.5 to 0.9999",
		"--confidence NaN a b":                   "--confidence NaN: want",
		"--metric a/b/c/d a b":                   "--metric: pattern",
		"--thresholds= a b":                      "--thresholds: its value is empty",
		"--thresholds /none a b":                 "/none: no such file",
		"--thresholds " + limits + " " + a + " " + b: limits + `:2: unknown key "beter": want better=lower, better=higher or better=neither; did you mean better?`,
		"--metric nothing " + a + " " + b:            "no figure that --metric chooses is both in",
	} {
		if got := refused(t, append([]string{"compare"}, strings.Fields(line)...)...); !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("lab compare %s: %q, want …%s…", line, got, want)
		}
	}
}

// Whatever lies where a run's files should: it is said which file is no run's, and nothing
// else happens.
func TestDamagedComparisons(t *testing.T) {
	for name, damage := range damages {
		for _, file := range []string{report.ResultsFile, report.ManifestFile, report.TimingsFile} {
			top := t.TempDir()
			a, b := aCost(t, top, "a", 4), aCost(t, top, "b", 4)
			path := filepath.Join(b, "arm64", file)
			was, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := damage(path, was); err != nil {
				if file == report.TimingsFile && strings.HasPrefix(err.Error(), "nothing to replace") {
					continue
				}
				t.Fatalf("%s: %v", name, err)
			}
			if file == report.ManifestFile && (name == "another ISA" || name == "another type") {
				continue // neither is read of it
			}
			for _, args := range [][]string{{"compare", a, b}, {"compare", b, a}, {"history", b}} {
				if got := refused(t, args...); !strings.Contains(got, file) || strings.Contains(got, "\n") {
					t.Errorf("%s: lab %s: %q does not name %s", name, args, got, file)
				}
			}
			// Beside a run that is whole, the others are shown, and the exit status says so.
			out, errs, code := called(t, "history", "--all", top)
			if code != status.ExitUsage || !strings.Contains(out, "splice.insns_per_hit") || !strings.Contains(errs, "left out: ") || !strings.Contains(errs, file) {
				t.Errorf("%s of %s: exit status %d\n%s%s", name, file, code, out, errs)
			}
		}
	}
}

func TestHistory(t *testing.T) {
	top := t.TempDir()
	aCost(t, top, "a", 4)
	aCost(t, top, "bb", 5, otherKernel)
	aCost(t, top, "ccc", 5, otherKernel)
	if err := os.MkdirAll(filepath.Join(top, "left", "arm64", "guests"), 0o700); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(top, historyFile)
	out, errs, code := called(t, "history", top)
	blanks := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	if code != 0 || !strings.Contains(blanks(out), "arm64 exact cost splice.insns_per_hit insns 3 4 5 +25.00 % ▁██") || !strings.Contains(out, "1 of 2 figures have changed in 3 runs") {
		t.Errorf("exit status %d: %s", code, out)
	}
	if want := "left out, as they ended before they had results: left/arm64\npage: " + page + "\n"; errs != want {
		t.Errorf("%q, want %q", errs, want)
	}
	text, err := os.ReadFile(page)
	if err != nil || strings.Count(string(text), "<svg") != 2 || !strings.Contains(string(text), "Linux 6.13") {
		t.Errorf("%v: %s", err, text)
	}
	elsewhere := filepath.Join(t.TempDir(), "x.html")
	out, _, code = called(t, "history", top, "--metric", "splice.*", "--html", elsewhere)
	for _, want := range []string{"arm64 cost/splice.insns_per_hit, insns, lower is better, exact time", "2026-11-27 04:50 a seed 1 4", "bb seed 1 5 +25.00 %", "Linux 6.13"} {
		if !strings.Contains(blanks(out), want) || code != 0 {
			t.Errorf("exit status %d, no %q in %s", code, want, out)
		}
	}
	if text, err := os.ReadFile(elsewhere); err != nil || strings.Count(string(text), "<svg") != 1 {
		t.Errorf("%v", err)
	}
	if err := os.Remove(page); err != nil {
		t.Fatal(err)
	}
	out, _, code = called(t, "history", top, "--json")
	var doc history.History
	if err := json.Unmarshal([]byte(out), &doc); err != nil || code != 0 || len(doc.Runs) != 3 || len(doc.Series) != 2 {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := os.Stat(page); err == nil {
		t.Error("a page is written for a program")
	}
}

// A page takes the place of a link, and is not written through it.
func TestHistoryIsNotWrittenThroughLinks(t *testing.T) {
	top := t.TempDir()
	aCost(t, top, "a", 4)
	victim := filepath.Join(t.TempDir(), "victim")
	err := errors.Join(os.WriteFile(victim, []byte("mine"), 0o600), os.Symlink(victim, filepath.Join(top, historyFile)))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, code := called(t, "history", top); code != 0 {
		t.Errorf("exit status %d", code)
	}
	if text, err := os.ReadFile(victim); err != nil || string(text) != "mine" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestWrongHistories(t *testing.T) {
	top := t.TempDir()
	a := aCost(t, top, "a", 4)
	bare := aCost(t, t.TempDir(), "bare", 4)
	boot := aCost(t, t.TempDir(), "boot", 4, func(r *report.Results) { r.Scenarios[0].Metrics = nil })
	empty := t.TempDir()
	if err := os.Remove(filepath.Join(bare, "arm64", report.TimingsFile)); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"":                           "want lab history DIR",
		"a b":                        "received 2",
		"/none":                      "/none: no such file or folder",
		empty:                        "no run is here, nor below",
		a + "/arm64/results.json":    "results.json is no folder: want one with runs below it",
		bare:                         "results.json: nothing says when it was: want timings.json beside it",
		boot:                         "the runs below have no figures",
		top + " --metric nothing":    "no figure of the runs below " + top + " is one that --metric nothing chooses",
		top + " --metric a/b/c/d":    "--metric: pattern",
		top + " --html=":             "--html: its value is empty",
		top + " --metric nothing -x": "unknown shorthand",
		top + " --metrik splice.*":   "did you mean --metric?",
	} {
		if got := refused(t, append([]string{"history"}, strings.Fields(line)...)...); !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("lab history %s: %q, want …%s…", line, got, want)
		}
	}
}
