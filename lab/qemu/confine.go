package qemu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"kerninst/lab/vm"
)

// An emulator runs what the guest says, so it gets little: no environment, no
// network, no new programs or privileges (sandbox), and not root.
//
// A lab of root's starts it as a user that owns nothing else. Changing the user
// makes the kernel forget the parent-death signal, which is why QEMU's own
// -runas will not do: here the user changes between fork and exec, before the
// signal is asked for (the order in syscall.SysProcAttr). The run directory
// becomes that user's. Everything else, which may lie in folders of root's, is
// handed over as open files.

// Users that belong to nobody: the range that systemd takes its dynamic users
// from, below 65536 so that a container has them too. Labs take different ones,
// so that one's guests cannot reach another's.
const (
	firstUser = 61184
	lastUser  = 65519
)

// unprivileged is the user for QEMU; 0 means the lab's own: one that is not
// root, or root of a user namespace that has no other.
func unprivileged() int {
	if os.Geteuid() != 0 {
		return 0
	}
	uidMap, err := os.ReadFile("/proc/self/uid_map")
	if err == nil && !mapped(string(uidMap), lastUser) {
		return 0
	}
	const n = lastUser - firstUser + 1
	for i := range n {
		uid := firstUser + (os.Getpid()+i)%n
		var unknown user.UnknownUserIdError
		if _, err := user.LookupId(strconv.Itoa(uid)); errors.As(err, &unknown) {
			return uid
		}
	}
	return firstUser
}

// mapped says whether a user namespace has a user (user_namespaces(7), "first
// inside, first outside, count" in each line).
func mapped(uidMap string, uid int) bool {
	for line := range strings.Lines(uidMap) {
		var first, outside, count int
		if n, _ := fmt.Sscan(line, &first, &outside, &count); n == 3 && first <= uid && uid-first < count {
			return true
		}
	}
	return false
}

// jail is what it takes to run one QEMU as another user.
type jail struct {
	uid  int
	lent []*os.File // in the order in which QEMU has them, from descriptor 3
}

// firstLent is the number that the first of exec.Cmd's ExtraFiles gets.
const firstLent = 3

// confine changes cmd, which runs a machine, so that it runs with few rights.
// The jail is to be closed once cmd has started.
func confine(cmd *exec.Cmd, s vm.Spec) (*jail, error) {
	cmd.Dir, cmd.Env, cmd.SysProcAttr = s.Dir, environment(), &syscall.SysProcAttr{}
	j := &jail{uid: unprivileged()}
	if j.uid == 0 {
		return j, nil
	}
	dir, err := os.Open(s.Dir)
	if err != nil {
		return nil, err
	}
	// Not passed on: the child goes there before it becomes QEMU.
	cmd.Dir = fmt.Sprintf("/proc/self/fd/%d", dir.Fd())
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(j.uid), Gid: uint32(j.uid)}
	if s.KVM {
		// A device that is not there is QEMU's to complain about, as with files.
		var st syscall.Stat_t
		if err = syscall.Stat(kvmDevice, &st); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		cmd.SysProcAttr.Credential.Groups = []uint32{st.Gid}
	}
	for i := 1; i < len(cmd.Args) && err == nil; i++ {
		switch cmd.Args[i-1] {
		case "-kernel", "-initrd", "-bios":
			cmd.Args[i], err = j.lend(s.Dir, cmd.Args[i])
		case "-plugin":
			path, options, _ := strings.Cut(cmd.Args[i], ",")
			path, err = j.lend(s.Dir, path)
			cmd.Args[i] = strings.TrimSuffix(path+","+options, ",")
		}
	}
	cmd.ExtraFiles = j.lent
	j.lent = append(j.lent, dir)
	if err = errors.Join(err, j.own(s.Dir)); err != nil {
		j.close()
		return nil, fmt.Errorf("confine QEMU: %w", err)
	}
	return j, nil
}

// environment is QEMU's: what it takes to start, and none of the secrets that
// people and CI systems keep in theirs.
func environment() []string {
	env := []string{"LC_ALL=C"}
	for _, name := range []string{"PATH", "LD_LIBRARY_PATH"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// own gives the run directory to QEMU's user, but not the lock by which the lab
// is known to be alive.
func (j *jail) own(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != lockName {
			if err := j.give(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return j.give(dir)
}

// give makes a file QEMU's, where QEMU is another user.
func (j *jail) give(path string) error {
	if j.uid == 0 {
		return nil
	}
	return os.Lchown(path, j.uid, j.uid)
}

// lend opens a file for QEMU and returns the path by which QEMU opens it. Of one
// that only its owner may read, QEMU gets a copy; one that is not there is
// QEMU's to complain about.
func (j *jail) lend(dir, path string) (string, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil
	} else if err != nil {
		return "", err
	}
	j.lent = append(j.lent, f)
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if info.Mode().Perm()&0o004 == 0 && filepath.Dir(path) != filepath.Clean(dir) {
		own := fmt.Sprintf("./lent%d", len(j.lent))
		return own, errors.Join(copyTo(filepath.Join(dir, own), path), j.give(filepath.Join(dir, own)))
	}
	return fmt.Sprintf("/proc/self/fd/%d", firstLent+len(j.lent)-1), nil
}

func (j *jail) close() {
	for _, f := range j.lent {
		f.Close()
	}
}
