package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kerninst/lab/inventory"
	"kerninst/lab/libvirt"
	"kerninst/lab/matrix"
	"kerninst/lab/report"
	"kerninst/lab/session"
	"kerninst/lab/status"
)

// What is wrong with a call is said before any host is asked.
func TestWrongMatrix(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good", "here local\nbig qemu:///system labels=fast\n")
	for line, want := range map[string]string{
		"x":                             "unexpected argument",
		"--arch aarch64":                "did you mean arm64?",
		"--arch all --arch arm64":       "all stands for every ISA",
		"--scenario boot,smok":          "did you mean smoke?",
		"--scenario ab":                 "add --time host",
		"--seed 0x1":                    "--seed 0x1: want numbers, or N-M",
		"--seed 3-1":                    "from a smaller to a larger",
		"--seed 1-3,2":                  "a seed is given twice",
		"--seed 0-18446744073709551615": "seeds at the most",
		"--seed 1-9999 --arch all":      "cells: want 20000 at the most",
		"--kernel locked,locked":        "locked is given twice",
		"--jobs 0":                      "--jobs 0: want at least 1",
		"--mem 100":                     "want 128",
		"--json --markdown":             "choose one",
		"--local=false":                 "no host: ",
		"--host nowhere":                "not a libvirt URI",
		"--host qemu+tcp://host/system": "use ssh or tls",
		"--host qemu:///system --host qemu+unix:///system": "--host qemu+unix:///system is host1, too",
		"--on fast":                                                               "add --inventory FILE",
		"--inventory=":                                                            "--inventory: its value is empty",
		"--inventory /nonexistent":                                                "no such file",
		"--inventory /dev/zero":                                                   "not a plain file",
		"--inventory " + good + " --on fats":                                      "did you mean fast?",
		"--inventory " + good + " --host qemu:///system":                          "--host qemu:///system is big, too",
		"--inventory " + file("key", "\na local cpu=1"):                           "key:2: unknown key \"cpu\"",
		"--inventory " + file("tcp", "a qemu+tcp://h/system"):                     "tcp:1: host \"qemu+tcp://h/system\": transport \"tcp\": use ssh or tls",
		"--inventory " + file("isa", "a local arches=sparc"):                      "isa:1: arches=sparc: unknown ISA",
		"--inventory " + file("twice", "a qemu:///system\nb qemu+unix:///system"): "twice:2: qemu+unix:///system is the host of line 1",
	} {
		if got := refused(t, append([]string{"matrix"}, strings.Fields(line)...)...); !strings.Contains(got, want) {
			t.Errorf("lab matrix %s: %q, want …%s…", line, got, want)
		}
	}
}

// This machine is a host if none is named, and with --local.
func TestNamedHosts(t *testing.T) {
	for _, tt := range []struct {
		f    matrixFlags
		want string
	}{
		{matrixFlags{local: true}, "local=local"},
		{matrixFlags{hosts: []string{"qemu:///system"}}, "host1=qemu:///system"},
		{matrixFlags{hosts: []string{"qemu:///system"}, local: true}, "host1=qemu:///system local=local"},
		{matrixFlags{inventory: "testdata/inventory", local: true}, "here=local near=qemu:///session?socket=/nonexistent/libvirt-sock"},
		{matrixFlags{inventory: "testdata/inventory", on: []string{"night"}, hosts: []string{"qemu:///system"}}, "near=qemu:///session?socket=/nonexistent/libvirt-sock host1=qemu:///system"},
	} {
		hosts, err := tt.f.named()
		var got []string
		for _, h := range hosts {
			got = append(got, h.Name+"="+h.URI)
		}
		if err != nil || strings.Join(got, " ") != tt.want {
			t.Errorf("%+v: %v, %v, want %s", tt.f, got, err, tt.want)
		}
	}
	if name := free([]inventory.Host{{Name: "host1"}, {Name: "host3"}}, "host", 1); name != "host2" {
		t.Errorf("got %s", name)
	}
	if name := free([]inventory.Host{{Name: "local"}}, "local", 0); name != "local1" {
		t.Errorf("got %s", name)
	}
}

func TestParseSeeds(t *testing.T) {
	for given, want := range map[string][]uint64{"1": {1}, "3,1-2": {3, 1, 2}, "18446744073709551615": {1<<64 - 1}, "7-7": {7}} {
		if got, err := parseSeeds(strings.Split(given, ",")); err != nil || !slices.Equal(got, want) {
			t.Errorf("--seed %s: %v, %v", given, got, err)
		}
	}
}

// A host that is not of use says why, and what an inventory says bounds one that is.
func TestSurveyHosts(t *testing.T) {
	ctx := context.Background()
	isas := []string{"riscv64"}
	const nowhere = "qemu:///session?socket=/nonexistent/sock"
	way, err := libvirt.Parse(nowhere)
	if err != nil {
		t.Fatal(err)
	}
	r, _ := survey(ctx, inventory.Host{Name: "a", URI: nowhere}, way, isas)
	if r.Status != matrix.Unreachable || !strings.Contains(r.Reason, "/nonexistent/sock") {
		t.Errorf("got %+v", r)
	}
	r, size := survey(ctx, inventory.Host{Name: "a", URI: inventory.Here, CPUs: 1, MemMiB: 10}, libvirt.Backend{}, isas)
	if r.Status != matrix.Used || r.CPUs != 1 || r.MemMiB != 10 || !slices.Equal(r.Arches, isas) || size.CPUs < 1 || size.MemMiB <= 10 {
		t.Errorf("got %+v, %+v", r, size)
	}
	if r, _ = survey(ctx, inventory.Host{Name: "a", URI: inventory.Here, Arches: []string{"amd64"}}, libvirt.Backend{}, isas); r.Status != matrix.Unfit || !strings.Contains(r.Reason, "none of riscv64") {
		t.Errorf("got %+v", r)
	}
	t.Setenv("PATH", t.TempDir())
	if r, _ = survey(ctx, inventory.Host{Name: "a", URI: inventory.Here}, libvirt.Backend{}, isas); r.Status != matrix.Unfit || !strings.Contains(r.Reason, "qemu-system-riscv64") {
		t.Errorf("got %+v", r)
	}
	if r, _ = survey(ctx, inventory.Host{Name: "a", URI: inventory.Here, Arches: isas}, libvirt.Backend{}, isas); r.Status != matrix.Unfit || !strings.Contains(r.Reason, "the inventory says that it runs riscv64") {
		t.Errorf("got %+v", r)
	}
}

// wrote writes results as a cell does, with one scenario.
func wrote(t *testing.T, dir string, s report.Scenario) {
	t.Helper()
	r := report.Results{Arch: "riscv64", Kernel: "6.12", QEMU: "7.2", Time: "exact", Status: s.Status, Reason: s.Reason, Scenarios: []report.Scenario{s}}
	if err := report.WriteArch(dir, r, report.Manifest(`{"schema": 1}`), report.Timings{}); err != nil {
		t.Fatal(err)
	}
}

// What came of a cell is what it wrote, or else its exit status and last words.
func TestOutcome(t *testing.T) {
	lost := &report.Failure{Kind: string(session.HostLost), Summary: "libvirtd went"}
	for _, tt := range []struct {
		name     string
		scenario *report.Scenario
		code     int
		said     string
		want     matrix.Outcome
		lost     string
	}{
		{"passed", &report.Scenario{Name: "boot", Status: status.Passed}, 0, "", matrix.Outcome{Status: status.Passed, Release: "6.12"}, ""},
		{"failed", &report.Scenario{Name: "boot", Status: status.Failed, Failure: &report.Failure{Kind: "assertion", Summary: "1, not 2"}}, 1, "",
			matrix.Outcome{Status: status.Failed, Exit: 1, Reason: "assertion: 1, not 2", Release: "6.12"}, ""},
		{"skipped", &report.Scenario{Name: "boot", Status: status.Skipped, Reason: "no such thing here"}, 0, "",
			matrix.Outcome{Status: status.Skipped, Reason: "no such thing here", Release: "6.12"}, ""},
		{"host lost", &report.Scenario{Name: "boot", Status: status.LabFailed, Failure: lost}, 3, "",
			matrix.Outcome{Status: status.LabFailed, Exit: 3, Reason: "host-lost: libvirtd went", Release: "6.12"}, "libvirtd went"},
		{"refused", nil, 2, "no such kernel", matrix.Outcome{Status: status.LabFailed, Exit: 2, Reason: "no such kernel"}, ""},
		{"silent", nil, 3, "", matrix.Outcome{Status: status.LabFailed, Exit: 3, Reason: "it ended with exit status 3 before it had results, and did not say why"}, ""},
		{"well, without results", nil, 0, "", matrix.Outcome{Status: status.LabFailed, Exit: 3, Reason: "it ended with exit status 0 before it had results, and did not say why"}, ""},
		{"failed behind its results", &report.Scenario{Name: "boot", Status: status.Passed}, 3, "disk full",
			matrix.Outcome{Status: status.LabFailed, Exit: 3, Reason: "its results say passed, but it ended with exit status 3: disk full", Release: "6.12"}, ""},
	} {
		dir := t.TempDir()
		if tt.scenario != nil {
			wrote(t, dir, *tt.scenario)
		}
		if got, lost, err := outcome(dir, tt.code, tt.said); err != nil || got != tt.want || lost != tt.lost {
			t.Errorf("%s: %+v, %q, %v, want %+v, %q", tt.name, got, lost, err, tt.want, tt.lost)
		}
	}
}

// The error that a lab ends with is its last words, of this attempt.
func TestLastWords(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	const before = "lab: of an earlier attempt\n"
	for text, want := range map[string]string{
		"":                              "",
		"arm64: fetching\n":             "",
		"arm64: fetching\nlab: no\n":    "no",
		"lab: no kernel:\ntwo\nlines\n": "no kernel:\ntwo\nlines",
		"x\nlab: a\nlab: b\n":           "b",
		strings.Repeat("x", 2*mostSaid) + "\nlab: end\n": "end",
	} {
		if err := os.WriteFile(file, []byte(before+text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := lastWords(f, int64(len(before))); got != want {
			t.Errorf("%.40q: %q, want %q", text, got, want)
		}
		f.Close()
	}
}

// --force removes a matrix, and nothing that is of none.
func TestForceRemovesMatrix(t *testing.T) {
	made := func() (dir, cell string) {
		dir = t.TempDir()
		doc := matrix.Document{Cells: []matrix.CellRecord{{Name: "riscv64-locked-boot-1", Arch: "riscv64", Status: status.Passed}}}
		m := matrixRun{matrixFlags: &matrixFlags{}, doc: &doc, out: dir}
		cell = filepath.Join(dir, "riscv64-locked-boot-1")
		wrote(t, filepath.Join(cell, "riscv64"), report.Scenario{Name: "boot", Status: status.Passed})
		wrote(t, filepath.Join(cell, "lost-a"), report.Scenario{Name: "boot", Status: status.LabFailed})
		if err := errors.Join(os.WriteFile(filepath.Join(cell, logFile), nil, 0o600), m.writeAll()); err != nil {
			t.Fatal(err)
		}
		return dir, cell
	}
	dir, _ := made()
	other := filepath.Join(dir, "mine")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := clear(dir); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 || left[0].Name() != "mine" {
		t.Errorf("left %v", left)
	}
	for _, place := range []string{"notes", "riscv64/notes", "lost-a/notes"} {
		dir, cell := made()
		if err := os.WriteFile(filepath.Join(cell, place), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := clear(dir); err == nil || !strings.Contains(err.Error(), filepath.Join(cell, place)+" is of none") {
			t.Errorf("%s: %v", place, err)
		}
		if _, err := os.Stat(filepath.Join(cell, "riscv64", report.ResultsFile)); err != nil {
			t.Errorf("%s: something was removed: %v", place, err)
		}
	}
	dir, _ = made()
	if err := os.WriteFile(filepath.Join(dir, matrix.File), []byte(`{"schema": 1, "cells": [{"name": "../x", "arch": "riscv64"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := clear(dir); err == nil || !strings.Contains(err.Error(), "is no cell's name") {
		t.Errorf("got %v", err)
	}
}

// On a terminal what was drawn is drawn over, to the line; elsewhere there is a line for each event.
func TestScreen(t *testing.T) {
	cells := []matrix.Cell{{Arch: "amd64", Kernel: matrix.Kernel{Name: "6.12"}, Scenario: "boot", Seed: 1}, {Arch: "arm64", Kernel: matrix.Kernel{Name: "6.12"}, Scenario: "boot", Seed: 1}}
	for _, alive := range []bool{true, false} {
		from, to, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		s := &screen{to: to, alive: alive, board: matrix.NewBoard(cells, time.Now())}
		s.see(matrix.Event{Kind: matrix.Begun, Cell: 0, Host: "a"})
		s.see(matrix.Event{Kind: matrix.Begun, Cell: 1, Host: "a"})
		s.see(matrix.Event{Kind: matrix.Ended, Cell: 0, Result: &matrix.Result{Host: "a", Outcome: matrix.Outcome{Status: status.Passed}}})
		to.Close()
		text, err := io.ReadAll(from)
		if err != nil {
			t.Fatal(err)
		}
		frames := strings.Split(string(text), "\r\x1b[J")
		if !alive {
			if len(frames) != 1 || strings.Count(string(text), "\n") != 3 || strings.Contains(string(text), "\x1b") {
				t.Errorf("lines are %q", text)
			}
			continue
		}
		if len(frames) != 4 || frames[0] != "" {
			t.Fatalf("drew %d times: %q", len(frames)-1, text)
		}
		for i, frame := range frames[1:3] { // each ends with the way back up over its own lines
			drawn := frame[:strings.LastIndex(frame, "\n")+1]
			if up := fmt.Sprintf("\x1b[%dA", strings.Count(drawn, "\n")); frame != drawn+up {
				t.Errorf("frame %d: %q does not end with %q", i, frame, up)
			}
		}
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if animated(null) {
		t.Error("/dev/null is no terminal")
	}
}

// A cell's process that was interrupted is no failure, though the matrix may not know of the interrupt yet.
func TestOutcomeInterrupted(t *testing.T) {
	for code, want := range map[int]status.Status{status.ExitInterrupted: status.Skipped, 1: status.LabFailed, 0: status.LabFailed} {
		if o, _, err := outcome(t.TempDir(), code, ""); err != nil || o.Status != want {
			t.Errorf("exit status %d: %+v, %v", code, o, err)
		}
	}
}
