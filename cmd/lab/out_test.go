package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"kerninst/lab/status"
)

// Runs that start at once with one seed have a folder each, and out/latest is
// one of them at any moment.
func TestDefaultOut(t *testing.T) {
	t.Chdir(t.TempDir())
	now := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	const runs = 8
	dirs := make([]string, runs)
	var all sync.WaitGroup
	for i := range runs {
		all.Go(func() {
			dir, release, err := outDir("", 7, false, now)
			if err != nil {
				t.Error(err)
				return
			}
			defer release()
			dirs[i] = dir
			if _, err := os.Stat(filepath.Join("out", "latest")); err != nil {
				t.Errorf("out/latest is no folder: %v", err)
			}
		})
	}
	all.Wait()
	seen := map[string]bool{}
	for _, d := range dirs {
		if seen[d] || !strings.HasPrefix(d, filepath.Join("out", "20010203T040506Z-7")) {
			t.Errorf("folders %q", dirs)
		}
		seen[d] = true
	}
	if entries, err := os.ReadDir("out"); err != nil || len(entries) != runs+1 {
		t.Errorf("%v, %v: want %d folders and latest", entries, err, runs)
	}
}

func TestLatestIsNoLinkOfOurs(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll(filepath.Join("out", "latest", "mine"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, _, err := outDir("", 1, false, time.Now()); err == nil || !strings.Contains(err.Error(), "latest") {
		t.Errorf("a folder called latest: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join("out", ".latest*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestGivenOut(t *testing.T) {
	top := t.TempDir()
	dir, file, missing := filepath.Join(top, "dir"), filepath.Join(top, "file"), filepath.Join(top, "a", "b")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused := func(dir string, force bool, says string) {
		t.Helper()
		_, _, err := outDir(dir, 1, force, time.Now())
		if e, ok := err.(*exit); !ok || e.code != status.ExitUsage || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want one that says %q", dir, err, says)
		}
	}
	_, release, err := outDir(dir, 1, false, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	refused(dir, false, "another lab is writing")
	refused(dir, true, "another lab is writing")
	release()
	if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(dir, false, "not empty")
	refused(file, true, "not a folder")
	for _, d := range []string{dir, missing} {
		if _, release, err := outDir(d, 1, true, time.Now()); err != nil {
			t.Errorf("%s: %v", d, err)
		} else {
			release()
		}
	}
}

// Nothing of an earlier run is left beside a new one, of other ISAs neither; what no
// run wrote stays.
func TestForce(t *testing.T) {
	dir := t.TempDir()
	write := func(names ...string) {
		t.Helper()
		for _, n := range names {
			file := filepath.Join(dir, n)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("amd64/results.json", "amd64/guests/null/console.log", "arm64/card.txt", "report.html", "summary.md", "mine", "mips/x", "arm64/files/lmbench.txt")
	if err := os.Mkdir(filepath.Join(dir, "riscv64"), 0o755); err != nil { // it failed early
		t.Fatal(err)
	}
	_, release, err := outDir(dir, 1, true, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	release()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 || entries[0].Name() != "mine" || entries[1].Name() != "mips" {
		t.Errorf("left: %v, %v", entries, err)
	}

	write("amd64/results.json", "arm64/notes", "arm64/results.json")
	_, _, err = outDir(dir, 1, true, time.Now())
	if e, ok := err.(*exit); !ok || e.code != status.ExitUsage || !strings.Contains(err.Error(), "arm64/notes is of none") {
		t.Errorf("a file of nobody's: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "amd64", "results.json")); err != nil {
		t.Errorf("refused, and half of it done: %v", err)
	}
}

// What is to be added is not removed before.
func TestForceOverAdded(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "amd64", "guests", "fetched")
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	f := runFlags{force: true, out: dir, own: own{adds: []string{file}}}
	if err := f.checkAdded(); err == nil || !strings.Contains(err.Error(), "copy it elsewhere") {
		t.Errorf("%v", err)
	}
	f.out = filepath.Join(t.TempDir(), "other")
	if err := f.checkAdded(); err != nil {
		t.Errorf("another --out: %v", err)
	}
}

func TestTerminal(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if isTerminal(null) {
		t.Error("/dev/null is taken for a terminal")
	}
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	if !isTerminal(terminal) {
		t.Error("a terminal is not taken for one")
	}
}
