package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"kerninst/lab/plain"
	"kerninst/lab/qmp"
)

// Names in the folder beside the run directory of a machine that outlives its lab.
const (
	keptFile    = "kept.json"
	SymbolsFile = "vmlinux" // the kernel as an ELF file, if it could be made
)

// Kept is a machine that outlives its lab. As long as it is there, sweeps leave it
// alone.
type Kept struct {
	Schema int    `json:"schema"`
	Pid    int    `json:"pid"`
	Arch   string `json:"arch"`
	Guest  string `json:"guest"`
	State  string `json:"state"` // in which it was left, for people
	Dir    string `json:"-"`     // its run directory
}

// GDB is the socket at which gdb is served.
func (k Kept) GDB() string { return filepath.Join(k.Dir, GDBSock) }

// Symbols is the kernel as an ELF file; empty: there is none.
func (k Kept) Symbols() string {
	file := filepath.Join(beside(k.Dir), SymbolsFile)
	if _, err := os.Stat(file); err != nil {
		return ""
	}
	return file
}

// beside is the folder for what is kept about the machine in a run directory.
func beside(dir string) string {
	return filepath.Join(filepath.Dir(dir), besidePrefix+strings.TrimPrefix(filepath.Base(dir), runPrefix))
}

// Beside makes a folder beside the run directory, for what QEMU must not touch,
// and returns its path. Close removes it.
func (d *RunDir) Beside() (string, error) {
	dir := beside(d.Path)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return dir, nil
}

// Keep makes the machine in the run directory, which was left, outlive the lab.
func (d *RunDir) Keep(k Kept) error {
	k.Schema = 1
	b, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return err
	}
	dir, err := d.Beside()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, keptFile), append(b, '\n'), 0o600); err != nil {
		return err
	}
	d.kept = true
	return d.lock.Close()
}

// AllKept lists the kept machines of this user. Those that have ended meanwhile
// are not among them: the next sweep removes what is left of them.
func AllKept() ([]Kept, error) {
	var all []Kept
	for _, b := range bases() {
		dirs, err := filepath.Glob(filepath.Join(b, runPrefix+"*"))
		if err != nil {
			return nil, err
		}
		for _, dir := range dirs {
			if k, err := FindKept(dir); err == nil {
				all = append(all, k)
			}
		}
	}
	return all, nil
}

// maxKept bounds what is written down of a kept machine, in bytes.
const maxKept = 1 << 16

// FindKept is the kept machine in a run directory.
func FindKept(dir string) (Kept, error) {
	k := Kept{}
	file := filepath.Join(beside(dir), keptFile)
	b, err := plain.ReadHere(file, maxKept)
	if errors.Is(err, os.ErrNotExist) {
		return k, fmt.Errorf("no guest was kept in %s", dir)
	} else if err != nil {
		return k, err
	}
	if err := private(filepath.Dir(dir)); err != nil {
		return k, err
	}
	if err := json.Unmarshal(b, &k); err != nil || k.Schema != 1 {
		return k, fmt.Errorf("%s is damaged, or of another version of the lab", file)
	}
	k.Dir = dir
	if !k.alive() {
		return k, fmt.Errorf("the guest that was kept in %s has ended", dir)
	}
	return k, nil
}

func (k Kept) alive() bool { return worksIn(fmt.Sprintf("/proc/%d", k.Pid), k.Dir) }

// endLimit bounds the end of a machine that was killed.
const endLimit = 10 * time.Second

// End ends the machine and removes what there is of it.
func (k Kept) End() error {
	if err := killThoseIn(k.Dir); err != nil {
		return err
	}
	for deadline := time.Now().Add(endLimit); k.alive(); time.Sleep(redial) {
		if time.Now().After(deadline) {
			return fmt.Errorf("QEMU %d was killed and is still there", k.Pid)
		}
	}
	unlock, err := lockBase(filepath.Dir(k.Dir))
	if err != nil {
		return err
	}
	defer unlock()
	return removeRun(k.Dir)
}

// removeRun removes a run directory and what lies beside it.
func removeRun(dir string) error {
	return errors.Join(os.RemoveAll(dir), os.RemoveAll(beside(dir)))
}

// Reopen looks into a machine in a run directory that was left, or is kept.
func Reopen(ctx context.Context, dir string, pid int) (*Inside, error) {
	c := qmp.New(dialer(dir, debugSock, pid, nil), qmp.Options{})
	if err := c.ConnectContext(ctx); err != nil {
		c.Disconnect()
		return nil, err
	}
	return &Inside{Monitor: c, Files: RunFiles{Dir: dir}}, nil
}
