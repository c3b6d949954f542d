package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kerninst/lab/qemu/qemutest"
	"kerninst/lab/vm"
)

// kept is the file with the state of a guest that hangs, and what it ran from.
func kept(t *testing.T, arch string) (vm.Spec, string) {
	t.Helper()
	s := tiny(t, arch, "", qemutest.Hang)
	s.Time, s.Mailbox = vm.Exact, true
	m := mustStart(t, s)
	file := filepath.Join(t.TempDir(), "state")
	ctx := soon(t)
	if err := m.monitor.Execute(ctx, "stop", nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.freezer().stillUnread(ctx), m.freezer().Save(ctx, file)); err != nil {
		t.Fatal(err)
	}
	m.Kill()
	m.Wait(context.Background())
	s.Dir, s.State, s.Mail = runDir(t).Path, file, []byte("mail")
	return s, file
}

func TestState(t *testing.T) {
	for _, arch := range Arches() {
		t.Run(arch, func(t *testing.T) {
			s, file := kept(t, arch)
			m := mustStart(t, s)
			var status struct{ Running bool }
			if err := m.monitor.Execute(soon(t), "query-status", nil, &status); err != nil || !status.Running {
				t.Errorf("running: %v, %v", status.Running, err)
			}
			box, err := os.ReadFile(filepath.Join(s.Dir, MailboxFile))
			if err != nil || !strings.HasPrefix(string(box), "mail\x00") {
				t.Errorf("mailbox: %.10q, %v", box, err)
			}
			if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the state's file is still there (%v)", err)
			}
		})
	}
}

func TestBadStates(t *testing.T) {
	for name, damage := range map[string]func(s *vm.Spec) error{
		"not a state":     func(s *vm.Spec) error { return os.WriteFile(s.State, []byte("no state"), 0o600) },
		"gone":            func(s *vm.Spec) error { return os.Remove(s.State) },
		"another machine": func(s *vm.Spec) error { s.MemMiB *= 2; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := kept(t, "arm64")
			if err := damage(&s); err != nil {
				t.Fatal(err)
			}
			_, err := Backend{}.Start(soon(t), s)
			var state *vm.StateError
			if !errors.As(err, &state) {
				t.Errorf("error %v, want a StateError", err)
			}
		})
	}
}

// A guest that has looked is not worth keeping: no mail would ever be read.
func TestLooked(t *testing.T) {
	s := tiny(t, "arm64", "", qemutest.Hang)
	s.Mailbox = true
	m := mustStart(t, s)
	box := make([]byte, 1<<20)
	box[len(box)-1] = 1
	if err := os.WriteFile(filepath.Join(s.Dir, MailboxFile), box, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.freezer().stillUnread(soon(t)); !errors.Is(err, ErrLooked) {
		t.Errorf("error %v", err)
	}
}

func TestFreezeOfAMachineThatEnds(t *testing.T) {
	s := tiny(t, "arm64", "", qemutest.PowerOff)
	s.Mailbox = true
	m := mustStart(t, s)
	if err := m.Freeze(soon(t), filepath.Join(t.TempDir(), "state")); err == nil {
		t.Error("a machine that ended was kept")
	}
}

// TestTimers: what each CPU's timer is compared with outlives the machine, beside its
// state.
func TestTimers(t *testing.T) {
	const arch, late = "riscv64", 0x123456789abc
	s := tiny(t, arch, "", qemutest.Hang)
	s.CPUs, s.Mailbox = 2, true
	m := mustStart(t, s)
	ctx, file := soon(t), filepath.Join(t.TempDir(), "state")
	if err := m.monitor.Execute(ctx, "stop", nil, nil); err != nil {
		t.Fatal(err)
	}
	set := []uint64{late + 1, late + 2}
	if err := errors.Join(m.freezer().writeTimers(ctx, set), m.freezer().Save(ctx, file)); err != nil {
		t.Fatal(err)
	}
	m.Kill()
	m.Wait(context.Background())
	beside, err := os.ReadFile(file + timersSuffix)
	if err != nil || string(beside) != fmt.Sprintf("[%d,%d]", uint64(late+1), uint64(late+2)) {
		t.Errorf("kept %q, %v", beside, err)
	}
	s.Dir, s.State, s.Mail = runDir(t).Path, file, []byte("mail")
	m = mustStart(t, s)
	if err := m.monitor.Execute(soon(t), "stop", nil, nil); err != nil {
		t.Fatal(err)
	}
	if now, err := m.freezer().readTimers(soon(t)); err != nil || !slices.Equal(now, set) {
		t.Errorf("afterwards %#x, %v, want %#x", now, err, set)
	}
	for _, name := range []string{askedFile, answeredFile} {
		if _, err := os.Lstat(filepath.Join(s.Dir, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there (%v)", name, err)
		}
	}
	m.Kill()
	m.Wait(context.Background())
	for name, text := range map[string]string{"gone": "", "too few": "[]", "too many": "[1,2]", "no list": "{", "negative": "[-1]"} {
		s, file := kept(t, arch)
		damage := os.WriteFile(file+timersSuffix, []byte(text), 0o600)
		if name == "gone" {
			damage = os.Remove(file + timersSuffix)
		}
		if damage != nil {
			t.Fatal(damage)
		}
		var state *vm.StateError
		if _, err := (Backend{}).Start(soon(t), s); !errors.As(err, &state) {
			t.Errorf("%s: %v, want a StateError", name, err)
		}
	}
}
