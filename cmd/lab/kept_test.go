package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kerninst/lab/qemu"
	"kerninst/lab/runner"
)

// keep has a program stand for a guest that the run in dir kept, and returns its run
// directory.
func keep(t *testing.T, dir, arch, guest string) string {
	t.Helper()
	d, err := qemu.NewRunDir()
	if err != nil {
		t.Fatal(err)
	}
	emulator := filepath.Join(t.TempDir(), "qemu-system-none") // by which a machine is known
	sleep, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(emulator, sleep, 0o755); err != nil {
		t.Fatal(err)
	}
	p := exec.Command(emulator, "600")
	p.Dir = d.Path
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go p.Wait() //nolint:errcheck // it is killed
	t.Cleanup(func() { p.Process.Kill() })
	if err := d.Keep(qemu.Kept{Pid: p.Process.Pid, Arch: arch, Guest: guest}); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, arch, "guests", guest)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, runner.KeptFile), []byte(d.Path+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return d.Path
}

// A run may keep several guests: gdb wants one of them, --end ends all, and those of
// other runs live.
func TestEndAllOfARun(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "")
	t.Setenv("TMPDIR", t.TempDir())
	run, other := t.TempDir(), t.TempDir()
	dirs := []string{keep(t, run, "amd64", "a"), keep(t, run, "amd64", "b"), keep(t, run, "arm64", "a")}
	stays := keep(t, other, "arm64", "a")
	if _, err := findKept(run); err == nil || !strings.Contains(err.Error(), "3 guests of this run were kept") || !strings.Contains(err.Error(), dirs[1]) {
		t.Errorf("for gdb: %v", err)
	}
	if k, err := findKept(filepath.Join(run, "arm64")); err != nil || k.Dir != dirs[2] {
		t.Errorf("for gdb, of one ISA: %+v, %v", k, err)
	}
	if err := (&keptFlags{end: run}).kept(); err != nil {
		t.Error(err)
	}
	left, err := qemu.AllKept()
	if err != nil || len(left) != 1 || left[0].Dir != stays {
		t.Errorf("left: %+v, %v; want %s", left, err, stays)
	}
	if err := (&keptFlags{end: run}).kept(); err == nil || !strings.Contains(err.Error(), "have ended") {
		t.Errorf("once more: %v", err)
	}
	if err := (&keptFlags{end: stays}).kept(); err != nil {
		t.Error(err)
	}
}
