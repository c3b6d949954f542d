package qemu

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestRunDirIsPrivate(t *testing.T) {
	d := runDir(t)
	for _, path := range []string{d.Path, filepath.Dir(d.Path)} {
		st, err := os.Stat(path)
		if err != nil || st.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", path, st.Mode(), err)
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(d.Path); !os.IsNotExist(err) {
		t.Errorf("still there after Close: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestNewRunDirPlace(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", "")
	t.Setenv("TMPDIR", temp)
	d, err := NewRunDir()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(d.Path, temp+"/kerninst-") {
		t.Errorf("path = %s", d.Path)
	}
	// The next lab has XDG_RUNTIME_DIR, and still sweeps the other place.
	d.lock.Close()
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	if err := Sweep(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(d.Path); !os.IsNotExist(err) {
		t.Errorf("not swept: %v", err)
	}
}

// In a shared temporary folder somebody else may have been first.
func TestForeignBase(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"open to others": func(p string) error {
			if err := os.Mkdir(p, 0o700); err != nil {
				return err
			}
			return os.Chmod(p, 0o755)
		},
		"a link": func(p string) error { return os.Symlink(t.TempDir(), p) },
		"a file": func(p string) error { return os.WriteFile(p, nil, 0o600) },
	} {
		base := filepath.Join(t.TempDir(), "k")
		if err := make(base); err != nil {
			t.Fatal(err)
		}
		if _, err := newRunDir(base); err == nil {
			t.Errorf("%s: taken for ours", name)
		}
		if err := sweep(base); err == nil {
			t.Errorf("%s: swept", name)
		}
	}
}

func TestSweepNothing(t *testing.T) {
	if err := sweep(filepath.Join(t.TempDir(), "none")); err != nil {
		t.Error(err)
	}
}

// A QEMU that was not tied to its lab is killed; a process that merely works in
// the directory is not.
func TestSweepKillsQEMUOnly(t *testing.T) {
	base := filepath.Join(t.TempDir(), "k")
	d, err := newRunDir(base)
	if err != nil {
		t.Fatal(err)
	}
	qemu := orphan(t, d.Path, "qemu-system-x86_64", "-machine", "none", "-nodefaults", "-display", "none", "-S")
	shell := orphan(t, d.Path, "cat")
	d.lock.Close() // as the kernel does when the lab dies
	if err := sweep(base); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(d.Path); !os.IsNotExist(err) {
		t.Errorf("not swept: %v", err)
	}
	if err := qemu.wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("QEMU: %v, want signal: killed", err)
	}
	shell.in.Close() // cat ends by itself, with status 0, if it is alive
	if err := shell.wait(); err != nil {
		t.Errorf("bystander: %v", err)
	}
}

type process struct {
	in   interface{ Close() error }
	wait func() error
}

// orphan starts a program in dir, as a lab would that has died since.
func orphan(t *testing.T, dir string, argv ...string) process {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	return process{in, cmd.Wait}
}
