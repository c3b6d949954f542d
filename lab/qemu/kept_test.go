package qemu

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kerninst/lab/qemu/qemutest"
	"kerninst/lab/vm"
)

// leftBehind is a machine that was left running and is kept.
func leftBehind(t *testing.T) (*machine, *RunDir) {
	t.Helper()
	dir := runDir(t)
	s := tiny(t, "arm64", "", qemutest.Hang)
	s.Dir, s.Keep = dir.Path, true
	m := mustStart(t, s)
	if err := m.Leave(); err != nil {
		t.Fatal(err)
	}
	if e := mustEnd(t, m); e.Kind != vm.Left {
		t.Errorf("ending %+v", e)
	}
	if err := dir.Keep(Kept{Pid: m.Pid(), Arch: "arm64", Guest: "g", State: "running"}); err != nil {
		t.Fatal(err)
	}
	return m, dir
}

func gone(t *testing.T, dir string) {
	t.Helper()
	for _, path := range []string{dir, beside(dir)} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
}

// A machine that is kept is not swept, can be looked into, and ends when it is
// told to.
func TestKept(t *testing.T) {
	m, dir := leftBehind(t)
	if err := dir.Close(); err != nil {
		t.Error(err)
	}
	if err := sweep(filepath.Dir(dir.Path)); err != nil {
		t.Fatal(err)
	}
	k, err := FindKept(dir.Path)
	if err != nil || k.Guest != "g" || k.Pid != m.Pid() || k.Symbols() != "" {
		t.Fatalf("%+v, %v", k, err)
	}
	in, err := Reopen(soon(t), k.Dir, k.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if text, err := in.Registers(soon(t)); err != nil || !strings.Contains(text, "CPU#0") {
		t.Errorf("registers %q, %v", text, err)
	}
	if sock, err := in.ServeGDB(soon(t)); err != nil || sock != k.GDB() {
		t.Errorf("gdb at %q, %v", sock, err)
	}
	if err := k.End(); err != nil {
		t.Fatal(err)
	}
	<-m.child.Exited
	gone(t, dir.Path)
}

// What is left of a kept machine that has ended is swept.
func TestKeptThatEnded(t *testing.T) {
	m, dir := leftBehind(t)
	m.Kill()
	<-m.child.Exited
	if k, err := FindKept(dir.Path); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("%+v, %v", k, err)
	}
	if err := sweep(filepath.Dir(dir.Path)); err != nil {
		t.Fatal(err)
	}
	gone(t, dir.Path)
}

// A machine cannot have itself kept: what says so lies where QEMU cannot write.
func TestKeptBySelf(t *testing.T) {
	dir := runDir(t)
	s := tiny(t, "arm64", "", qemutest.Hang)
	s.Dir = dir.Path
	m := mustStart(t, s)
	if err := m.Leave(); err == nil {
		t.Error("a machine that dies with the lab was left")
	}
	for _, name := range []string{keptFile, filepath.Base(beside(dir.Path))} {
		if err := os.WriteFile(filepath.Join(dir.Path, name), []byte(`{"schema":1}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir.lock.Close() // as the kernel does when the lab dies
	if err := sweep(filepath.Dir(dir.Path)); err != nil {
		t.Fatal(err)
	}
	<-m.child.Exited
	gone(t, dir.Path)
}

// What lies beside a run directory goes with it, also when a lab died in between.
func TestSweepBeside(t *testing.T) {
	dir := runDir(t)
	if _, err := dir.Beside(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir.Path); err != nil {
		t.Fatal(err)
	}
	if err := sweep(filepath.Dir(dir.Path)); err != nil {
		t.Fatal(err)
	}
	gone(t, dir.Path)
}
