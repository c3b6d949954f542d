package runs

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"kerninst/lab/report"
	"kerninst/lab/status"
)

// results of a run on one ISA.
func results(arch, time string, scenarios ...string) report.Results {
	r := report.Results{Arch: arch, Kernel: "6.12-" + arch, QEMU: "7.2", Time: time, Seed: 1, Status: status.Passed}
	for _, s := range scenarios {
		r.Scenarios = append(r.Scenarios, report.Scenario{Name: s, Status: status.Passed, Metrics: map[string]report.Metric{"n": {Value: 1, Unit: "x"}}})
	}
	return r
}

// write makes the folder of an ISA.
func write(t *testing.T, dir string, r report.Results, manifest string, timings report.Timings) {
	t.Helper()
	if err := report.WriteArch(filepath.Join(dir, r.Arch), r, json.RawMessage(manifest), timings); err != nil {
		t.Fatal(err)
	}
}

const noManifest = `{"schema": 1}`

func mkdir(t *testing.T, parts ...string) string {
	t.Helper()
	dir := filepath.Join(parts...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func touch(t *testing.T, parts ...string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(parts...), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// found are the places in what is named, as name and ISA.
func found(t *testing.T, named string) (out []string) {
	t.Helper()
	places, errs := Find(named)
	if len(errs) > 0 {
		t.Fatalf("%s: %v", named, errs)
	}
	for _, p := range places {
		out = append(out, p.Name+" "+p.Arch)
	}
	return out
}

func TestFind(t *testing.T) {
	top := t.TempDir()
	for _, run := range []string{"b", "a", "deep/er/c"} {
		write(t, filepath.Join(top, run), results("arm64", "exact"), noManifest, report.Timings{})
	}
	write(t, filepath.Join(top, "a"), results("amd64", "exact"), noManifest, report.Timings{})
	mkdir(t, top, "left", "riscv64", "guests") // it ended before it had results
	mkdir(t, top, "early", "riscv64")
	touch(t, top, "early", report.HTMLFile)
	// What is no run's, and what may not be looked into.
	touch(t, mkdir(t, top, "isa", "amd64"), "decode.go")
	write(t, filepath.Join(top, "isa", "amd64", "kept"), results("arm64", "exact"), noManifest, report.Timings{})
	write(t, filepath.Join(top, ".hidden"), results("arm64", "exact"), noManifest, report.Timings{})
	write(t, filepath.Join(top, "a", "amd64", "guests", "fetched"), results("arm64", "exact"), noManifest, report.Timings{})
	if err := os.Symlink("a", filepath.Join(top, "latest")); err != nil {
		t.Fatal(err)
	}
	want := []string{"a amd64", "a arm64", "b arm64", "deep/er/c arm64", "early riscv64", "left riscv64"}
	if got := found(t, top); !slices.Equal(got, want) {
		t.Errorf("all: %q, want %q", got, want)
	}
	for named, want := range map[string][]string{
		"a":                       {". amd64", ". arm64"},
		"latest":                  {". amd64", ". arm64"},
		"b/arm64":                 {top + "/b/arm64 arm64"},
		"b/arm64/results.json":    {top + "/b/arm64/results.json "},
		"left":                    {". riscv64"},
		"a/amd64/guests/fetched/": {". arm64"}, // named, it is what it is
	} {
		if got := found(t, top+"/"+named); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", named, got, want)
		}
	}
}

func TestFindNothing(t *testing.T) {
	dir := t.TempDir()
	locked := mkdir(t, dir, "locked")
	empty := mkdir(t, dir, "empty")
	for named, want := range map[string]string{
		filepath.Join(dir, "none"):    "none: no such file or folder: want the folder of a run",
		empty:                         "empty: no run is here, nor below: want the folder of a run",
		mkdir(t, dir, "src", "amd64"): "no run is here",
	} {
		places, errs := Find(named)
		if len(places) > 0 || len(errs) != 1 || !strings.Contains(errs[0].Error(), want) {
			t.Errorf("%s: %v, %v, want …%s…", named, places, errs, want)
		}
	}
	if os.Geteuid() != 0 { // who may read everything
		if err := os.Chmod(locked, 0); err != nil {
			t.Fatal(err)
		}
		if _, errs := Find(dir); len(errs) != 1 || !errors.Is(errs[0], os.ErrPermission) {
			t.Errorf("a folder that cannot be read: %v", errs)
		}
	}
}

// A folder with a disk below it is not gone through for ever.
func TestFindHasBounds(t *testing.T) {
	s := search{root: t.TempDir(), seen: most - 1}
	s.folder(s.root, 0)
	if len(s.errs) != 1 || !strings.Contains(s.errs[0].Error(), "more than 20000 folders") {
		t.Errorf("%v", s.errs)
	}
	top := t.TempDir()
	write(t, filepath.Join(top, "1/2/3/4/5/6"), results("arm64", "exact"), noManifest, report.Timings{})
	write(t, filepath.Join(top, "1/2/3/4/5/six/7"), results("arm64", "exact"), noManifest, report.Timings{})
	if got, want := found(t, top), []string{"1/2/3/4/5/6 arm64"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// read is what is read of a run that is written.
func read(t *testing.T, dir string, r report.Results, manifest string, timings report.Timings) (*Run, error) {
	t.Helper()
	write(t, dir, r, manifest, timings)
	return Place{Name: "x", Dir: filepath.Join(dir, r.Arch), File: report.ResultsFile, Arch: r.Arch}.Read()
}

func TestRead(t *testing.T) {
	timings := report.Timings{
		Seconds: map[string]float64{"guest/storm.storm": 1, "guest/cost.cost": 1, "guest/cost.other": 1, "total": 3, "guest/cost-long.x": 1},
		Host:    map[string]string{"start": "2026-11-27T04:50:16Z", "cpus": "2", "accel": "tcg: QEMU says no", "commit": "abc\n\x1b[31mdef"},
	}
	manifest := `{"schema": 1, "exact": ["cost.cost", "cost.other"], "new": {}, "own": {"cpus": 2, "mem_mib": 512, "modprobe": ["a", "b"], "with": ["perf"]}}`
	r, err := read(t, t.TempDir(), results("arm64", "exact", "cost", "storm"), manifest, timings)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Start.Equal(time.Date(2026, 11, 27, 4, 50, 16, 0, time.UTC)) || r.Commit != "abc def" || r.Host != "CPUs 2, tcg" || r.Bare || r.Unfinished {
		t.Errorf("%+v", r)
	}
	if want := map[string]bool{"storm": true}; !maps.Equal(r.Loose, want) || !r.Inexact("storm") || r.Inexact("cost") {
		t.Errorf("loose: %v, want %v", r.Loose, want)
	}
	want := map[string]string{"CPUs of guests": "2", "memory of guests in MiB": "512", "modules loaded": "a,b", "software": "perf"}
	if !reflect.DeepEqual(r.Made, want) {
		t.Errorf("made: %v, want %v", r.Made, want)
	}
	if !slices.IsSorted(r.Words()) || len(r.Words()) != len(want) {
		t.Errorf("words %v", r.Words())
	}
	host, err := read(t, t.TempDir(), results("arm64", "host", "ab", "storm"), noManifest, timings)
	if err != nil || !host.Inexact("ab") || len(host.Loose) != 0 || host.Host == "" {
		t.Errorf("host time: %+v, %v", host, err)
	}
	// All guests were exact ones, so it does not matter where they ran.
	exact, err := read(t, t.TempDir(), results("arm64", "exact", "cost"), manifest, report.Timings{Seconds: map[string]float64{"guest/cost.cost": 1}})
	if err != nil || exact.Host != "" || exact.Inexact("cost") {
		t.Errorf("exact time: %+v, %v", exact, err)
	}
}

// When a run was, its folder may say, too; nothing else is taken for it.
func TestBegun(t *testing.T) {
	at := time.Date(2026, 11, 27, 4, 50, 16, 0, time.UTC)
	noted := report.Timings{Host: map[string]string{"start": "2026-11-27T04:50:16Z"}}
	for _, tt := range []struct {
		timings report.Timings
		dir     string
		want    time.Time
	}{
		{noted, "/out/20201127T045016Z-1/arm64", at},
		{report.Timings{}, "/out/20261127T045016Z-1/arm64", at},
		{report.Timings{}, "/out/20261127T045016Z-1-2/arm64", at},
		{report.Timings{}, "/out/mine/arm64", time.Time{}},
		{report.Timings{}, "/out/20261327T045016Z-1/arm64", time.Time{}},
		{report.Timings{Host: map[string]string{"start": "yesterday"}}, "/out/mine/arm64", time.Time{}},
		{report.Timings{}, ".", time.Time{}},
	} {
		if got := begun(tt.timings, tt.dir); !got.Equal(tt.want) {
			t.Errorf("%v %s: %v, want %v", tt.timings, tt.dir, got, tt.want)
		}
	}
}

// Results may be all there is, or nothing.
func TestReadAlone(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, results("arm64", "exact", "cost"), noManifest, report.Timings{})
	arch := filepath.Join(dir, "arm64")
	for _, f := range []string{report.ManifestFile, report.TimingsFile} {
		if err := os.Remove(filepath.Join(arch, f)); err != nil {
			t.Fatal(err)
		}
	}
	at := Place{Name: "x\t\x1b[2J", Dir: arch, File: report.ResultsFile, Arch: "arm64"}
	r, err := at.Read()
	if err != nil || !r.Bare || !r.Start.IsZero() || r.Name != "x" || len(r.Results.Scenarios) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	write(t, dir, results("arm64", "exact", "cost"), noManifest, report.Timings{})
	if err := os.Remove(filepath.Join(arch, report.TimingsFile)); err != nil {
		t.Fatal(err)
	}
	if r, err := at.Read(); err != nil || !r.Bare {
		t.Errorf("without timings: %+v, %v", r, err)
	}
	// A file of another name is not of the run that lies beside it.
	write(t, dir, results("arm64", "exact", "cost"), noManifest, report.Timings{Host: map[string]string{"commit": "abc"}})
	if err := os.Rename(filepath.Join(arch, report.ResultsFile), filepath.Join(arch, "old.json")); err != nil {
		t.Fatal(err)
	}
	named, err := Place{Dir: arch, File: "old.json", Named: true}.Read()
	if err != nil || !named.Bare || named.Commit != "" {
		t.Errorf("%+v, %v", named, err)
	}
	left, err := at.Read()
	if err != nil || !left.Unfinished || left.Results.Status != status.LabFailed || left.Results.Arch != "arm64" {
		t.Errorf("%+v, %v", left, err)
	}
}

// Whatever lies there, it is said which file is no run's.
func TestReadDamaged(t *testing.T) {
	for name, damage := range map[string]func(path string, was []byte) error{
		"truncated":    func(p string, was []byte) error { return os.WriteFile(p, was[:len(was)/2], 0o600) },
		"foreign":      func(p string, _ []byte) error { return os.WriteFile(p, []byte(`{"results": []}`), 0o600) },
		"newer schema": func(p string, _ []byte) error { return os.WriteFile(p, []byte(`{"schema": 2}`), 0o600) },
		"a pipe":       func(p string, _ []byte) error { return errors.Join(os.Remove(p), syscall.Mkfifo(p, 0o600)) },
		"a link":       func(p string, _ []byte) error { return errors.Join(os.Remove(p), os.Symlink("/etc/hostname", p)) },
	} {
		for _, file := range []string{report.ResultsFile, report.ManifestFile, report.TimingsFile} {
			dir := t.TempDir()
			write(t, dir, results("arm64", "exact", "cost"), `{"schema": 1, "exact": []}`, report.Timings{})
			path := filepath.Join(dir, "arm64", file)
			was, err := os.ReadFile(path)
			if err = errors.Join(err, damage(path, was)); err != nil {
				t.Fatal(err)
			}
			r, err := Place{Dir: filepath.Join(dir, "arm64"), File: report.ResultsFile, Arch: "arm64"}.Read()
			if r != nil || err == nil || !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s %s: %+v, %v", file, name, r, err)
			}
		}
	}
	dir := t.TempDir()
	write(t, dir, results("arm64", "exact"), `{"schema": 1, "exact": 3}`, report.Timings{})
	if _, err := (Place{Dir: filepath.Join(dir, "arm64"), File: report.ResultsFile, Arch: "arm64"}).Read(); err == nil {
		t.Error("a manifest of another form is taken")
	}
	if _, err := (Place{Dir: filepath.Join(dir, "arm64"), File: report.ResultsFile, Arch: "amd64"}).Read(); err == nil || !strings.Contains(err.Error(), "results of arm64 in the folder of amd64") {
		t.Errorf("in the folder of another ISA: %v", err)
	}
}

func TestPatterns(t *testing.T) {
	for text, want := range map[string]bool{
		"splice.insns_per_hit":             true,
		"splice.*":                         true,
		"*":                                true,
		"*.insns_per_hit":                  true,
		"cost/*":                           true,
		"c[a-o]st/splice.insns_per_???":    true,
		"arm64/cost/*":                     true,
		"*/cost/*":                         true,
		"splice":                           false, // the whole name
		"lmbench/*":                        false,
		"amd64/cost/*":                     false,
		"*/*/kprobe*":                      false,
		"arm64/cost/splice.insns_per_hitx": false,
	} {
		p, err := ParsePattern(text)
		if err != nil || p.Matches("arm64", "cost", "splice.insns_per_hit") != want {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"a/b/c/d": "4 parts", "": "a part is empty", "a//c": "a part is empty", "/x": "a part is empty", "a[": "a bracket is not closed", "cost/[": "a bracket", `a\`: "a backslash",
	} {
		if _, err := ParsePattern(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want …%s…", text, err, want)
		}
	}
	some, err := ParsePatterns([]string{"a", "b/*"})
	if err != nil || !some.Match("x", "y", "a") || !some.Match("x", "b", "z") || some.Match("x", "y", "z") || !Patterns(nil).Match("x", "y", "z") {
		t.Errorf("%v, %v", some, err)
	}
	if _, err := ParsePatterns([]string{"a", ""}); err == nil {
		t.Error("an empty pattern is taken")
	}
}
