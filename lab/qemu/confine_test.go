package qemu

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"kerninst/lab/qemu/qemutest"
)

// statusOf is a process's /proc/PID/status by field, spaces made one.
func statusOf(t *testing.T, pid int) map[string]string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.Join(strings.Fields(value), " ")
	}
	return fields
}

// What the kernel says about a QEMU that runs: never root, no capability to be
// had, system calls filtered, none of our environment.
func TestConfined(t *testing.T) {
	t.Setenv("KERNINST_TEST_SECRET", "secret")
	s := tiny(t, "arm64", "", qemutest.Hang)
	if err := os.Chmod(s.Kernel, 0o600); err != nil { // as Ubuntu's are
		t.Fatal(err)
	}
	m := mustStart(t, s)
	got := statusOf(t, m.Pid())
	uid := os.Geteuid()
	if unprivileged() != 0 {
		if uid, _ = strconv.Atoi(strings.Fields(got["Uid"])[0]); uid < firstUser || uid > lastUser {
			t.Errorf("QEMU runs as user %d, want one from %d to %d", uid, firstUser, lastUser)
		}
		if got["Groups"] != "" || got["CapPrm"] != strings.Repeat("0", 16) {
			t.Errorf("groups %q, capabilities %s: want none", got["Groups"], got["CapPrm"])
		}
	}
	four := strings.TrimSuffix(strings.Repeat(strconv.Itoa(uid)+" ", 4), " ")
	for name, want := range map[string]string{"Uid": four, "NoNewPrivs": "1", "Seccomp": "2"} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", m.Pid()))
	if err != nil || strings.Contains(string(env), "secret") {
		t.Errorf("QEMU has the lab's environment (%v)", err)
	}
	for path, want := range map[string]int{
		s.Dir: uid, filepath.Join(s.Dir, controlSock): uid, filepath.Join(s.Dir, ConsoleFile): uid,
		filepath.Join(s.Dir, lockName): os.Geteuid(), filepath.Dir(s.Dir): os.Geteuid(),
	} {
		st, err := os.Stat(path)
		if err != nil || int(st.Sys().(*syscall.Stat_t).Uid) != want {
			t.Errorf("%s: %v, %v, want it to be user %d's", path, st, err, want)
		}
	}
}

func TestMapped(t *testing.T) {
	for uidMap, want := range map[string]bool{
		"         0          0 4294967295\n": true,  // the first namespace
		"0 100000 65536\n":                   true,  // a container
		"0 1000 1\n":                         false, // unshare -r
		"0 1000 1\n1 100000 65536\n":         true,
		"0 1000 1\n100000 100000 65536\n":    false,
		"":                                   false,
		"0 100000 " + strconv.Itoa(lastUser) + "\n": false,
	} {
		if got := mapped(uidMap, lastUser); got != want {
			t.Errorf("mapped(%q) = %v, want %v", uidMap, got, want)
		}
	}
}

// A link that QEMU puts in place of its socket leads nowhere.
func TestSocketOfAnother(t *testing.T) {
	one, other := mustStart(t, tiny(t, "arm64", "", qemutest.Hang)), mustStart(t, tiny(t, "arm64", "", qemutest.Hang))
	sock := filepath.Join(one.dir, debugSock)
	if err := os.Remove(sock); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(other.dir, debugSock), sock); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Inspect(soon(t)); err == nil || !strings.Contains(err.Error(), "not QEMU") {
		t.Errorf("talked to another's QEMU: %v", err)
	}
}
