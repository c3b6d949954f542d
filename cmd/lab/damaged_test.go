package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"kerninst/images"
	"kerninst/lab/report"
	"kerninst/lab/repro"
)

// aRun makes the folder of a run on arm64 that is whole.
func aRun(t *testing.T) (out, arch string) {
	t.Helper()
	out = t.TempDir()
	m, err := repro.Manifest{Arch: "arm64", Scenario: "boot", Time: "exact", Seed: 1, QEMU: "7.2", Go: "go1"}.Encode()
	arch = filepath.Join(out, "arm64")
	err = errors.Join(err, report.WriteArch(arch,
		report.Results{Arch: "arm64", Kernel: "6.12", QEMU: "7.2", Time: "exact", Seed: 1, Status: "passed"}, m, report.Timings{}))
	if err != nil {
		t.Fatal(err)
	}
	return out, arch
}

// damages are what may become of a file; what it was is given.
var damages = map[string]func(path string, was []byte) error{
	"truncated":      func(p string, was []byte) error { return os.WriteFile(p, was[:len(was)/2], 0o600) },
	"empty":          func(p string, _ []byte) error { return os.WriteFile(p, nil, 0o600) },
	"not JSON":       func(p string, _ []byte) error { return os.WriteFile(p, []byte("results\n"), 0o600) },
	"no object":      func(p string, _ []byte) error { return os.WriteFile(p, []byte("[1]"), 0o600) },
	"deep":           func(p string, _ []byte) error { return os.WriteFile(p, []byte(strings.Repeat("[", 1<<20)), 0o600) },
	"another schema": func(p string, was []byte) error { return rewrite(p, was, `"schema": 1`, `"schema": 2`) },
	"another ISA":    func(p string, was []byte) error { return rewrite(p, was, `"arm64"`, `"mips"`) },
	"another type":   func(p string, was []byte) error { return rewrite(p, was, `"exact"`, `{"exact": 1}`) },
	"endless":        func(p string, _ []byte) error { return os.Truncate(p, 1<<40) },
	"a pipe":         func(p string, _ []byte) error { return errors.Join(os.Remove(p), syscall.Mkfifo(p, 0o600)) },
	"a device":       func(p string, _ []byte) error { return errors.Join(os.Remove(p), os.Symlink("/dev/zero", p)) },
	"a folder":       func(p string, _ []byte) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o700)) },
}

func rewrite(path string, was []byte, from, to string) error {
	now := strings.Replace(string(was), from, to, 1)
	if now == string(was) {
		return errors.New("nothing to replace: " + from)
	}
	return os.WriteFile(path, []byte(now), 0o600)
}

// What is in the folder of a run may be anybody's: a command that reads it says which
// file is not a run's, at once, and that it was given the wrong thing.
func TestDamagedRuns(t *testing.T) {
	for name, damage := range damages {
		for _, file := range []string{report.ResultsFile, report.ManifestFile} {
			out, arch := aRun(t)
			path := filepath.Join(arch, file)
			was, err := os.ReadFile(path)
			if err == nil {
				err = damage(path, was)
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for _, verb := range []string{"report", "repro"} {
				if verb == "report" && file == report.ManifestFile && strings.HasPrefix(name, "another ") && name != "another schema" {
					continue // to a report, a manifest is any document
				}
				if got := refused(t, verb, out); !strings.Contains(got, file) {
					t.Errorf("%s: lab %s: %q does not name %s", name, verb, got, file)
				}
			}
		}
	}
}

// A manifest whose sum is right may still ask for what no lab does.
func TestHostileManifests(t *testing.T) {
	for want, m := range map[string]repro.Manifest{
		"--cpus 1000":           {Own: &repro.Own{CPUs: 1000}},
		"--mem 1":               {Own: &repro.Own{MemMiB: 1}},
		"--with: no software":   {Own: &repro.Own{With: []string{"bpf"}}},
		"--timeout -1":          {Own: &repro.Own{Timeout: -1}},
		"--fetch ../x":          {Own: &repro.Own{Fetch: []string{"../x"}}},
		"--time later":          {Time: "later"},
		`no scenario or label`:  {Scenario: "frob"},
		"no lab adds files":     {Own: &repro.Own{Added: []images.Kept{{Path: "/init"}}}},
		"is not a SHA-256":      {Own: &repro.Own{Added: []images.Kept{{Path: "/root/x"}}}},
		"the manifest of a run": {Arch: "riscv64"},
	} {
		out, arch := aRun(t)
		if m.Arch == "" {
			m.Arch = "arm64"
		}
		if m.Time == "" {
			m.Time = "exact"
		}
		if m.Scenario == "" {
			m.Scenario = "boot"
		}
		text, err := m.Encode()
		if err == nil {
			err = os.WriteFile(filepath.Join(arch, report.ManifestFile), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := refused(t, "repro", out); !strings.Contains(got, want) {
			t.Errorf("%q, want …%s…", got, want)
		}
	}
}
