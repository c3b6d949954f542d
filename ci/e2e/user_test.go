package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"kerninst/images"
	"kerninst/lab/oracle"
	"kerninst/lab/qemu"
	"kerninst/lab/status"
)

// stranger is an ordinary user that no host has: below 65536, so that a
// container has it too.
const stranger = 54321

// place is a user's: a home with a cache that is warm for riscv64, temporary
// files, and the sources with bin/lab, all in folders that this user can enter.
type place struct {
	uid                    int // of whom all this is
	home, cache, temp, lab string
	env                    []string
}

// newPlace makes one for an ordinary user: the stranger if the tests run as
// root, else who runs them.
func newPlace(t *testing.T) place {
	t.Helper()
	top, err := os.MkdirTemp("", "kerninst-e2e-") // t.TempDir is for its owner only
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	in := func(elem ...string) string { return filepath.Join(append([]string{top}, elem...)...) }
	p := place{uid: os.Geteuid(), home: in("home"), cache: in("home", ".cache", "kerninst"), temp: in("tmp"), lab: in("src", "bin", "lab")}
	if p.uid == 0 {
		p.uid = stranger
	}
	must(t, os.Chmod(top, 0o755), os.MkdirAll(p.home, 0o755), os.Mkdir(p.temp, 0o700))
	warm(t, p.cache, "riscv64")
	copySources(t, in("src"))
	// The Go that made what is cached, which need not be in reach of others.
	version, err := exec.Command(goPath(t), "env", "GOVERSION").Output()
	must(t, err, os.WriteFile(in("go"), []byte("#!/bin/sh\n[ \"$1\" = env ] && echo "+strings.TrimSpace(string(version))+"\n"), 0o755))
	p.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.home, "TMPDIR=" + p.temp, "GO=" + in("go")}
	must(t, filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !linked(t, path) {
			err = os.Lchown(path, p.uid, p.uid)
		}
		return err
	}))
	return p
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// linked says whether a file is one of the objects that warm linked: its owner
// is the cache's.
func linked(t *testing.T, path string) bool {
	t.Helper()
	st, err := os.Lstat(path)
	must(t, err)
	return st.Mode().IsRegular() && st.Sys().(*syscall.Stat_t).Nlink > 1
}

// needed is what the cache has for guests of an ISA and what watches them, made if
// it is not there.
func needed(arch string) (*images.Manifest, error) {
	once, _ := manifests.LoadOrStore(arch, sync.OnceValues(func() (*images.Manifest, error) { return imageFor(arch) }))
	return once.(func() (*images.Manifest, error))()
}

var manifests sync.Map // functions, by ISA

func imageFor(arch string) (*images.Manifest, error) {
	ctx := context.Background()
	root, err := filepath.Abs("../..")
	if err != nil {
		return nil, err
	}
	opts := images.Options{Arch: arch, Root: root}
	img, err := images.Ensure(ctx, opts)
	if err != nil {
		return nil, err
	}
	version, err := qemu.FindVersion(ctx, arch)
	if err != nil {
		return nil, err
	}
	define := fmt.Sprintf("PLUGIN_VERSION=%d", oracle.InterfaceVersion(version.Major))
	if _, err := images.BuildPlugin(ctx, opts, filepath.Join(root, oracle.Plugin), define); err != nil {
		return nil, err
	}
	return &img.Manifest, nil
}

// warm fills a cache with what a guest of an ISA needs, out of the cache of who
// runs the tests. Objects, which are never written in place, are linked if they
// can be.
func warm(t *testing.T, cache, arch string) {
	t.Helper()
	m, err := needed(arch)
	must(t, err)
	base, err := os.UserCacheDir()
	must(t, err)
	from := filepath.Join(base, "kerninst")
	have := map[string]bool{}
	give := func(sum string) {
		if to := filepath.Join(cache, "sha256", sum[:2], sum); !have[sum] {
			have[sum] = true
			must(t, os.MkdirAll(filepath.Dir(to), 0o755), linkOrCopy(filepath.Join(from, "sha256", sum[:2], sum), to))
		}
	}
	for _, p := range append(m.Packages, m.Toolchain...) {
		give(p.SHA256)
	}
	for _, f := range m.Files {
		give(f.SHA256)
	}
	indexes, err := filepath.Glob(filepath.Join(from, "index", "*", "*"))
	must(t, err)
	for _, name := range indexes {
		b, err := os.ReadFile(name)
		must(t, err)
		kind := filepath.Base(filepath.Dir(name))
		made := map[string]images.Digest{}
		if kind == "packages" || json.Unmarshal(b, &made) != nil {
			continue
		}
		all := true
		for _, d := range made {
			if kind == "plugin" {
				give(d.SHA256)
			}
			all = all && have[d.SHA256]
		}
		if to := filepath.Join(cache, "index", kind, filepath.Base(name)); all {
			must(t, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, b, 0o644))
		}
	}
}

func linkOrCopy(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o444)
}

// copySources copies the repository's files, and bin/lab.
func copySources(t *testing.T, to string) {
	t.Helper()
	list := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = "../.."
	out, err := list.Output()
	must(t, err)
	for _, name := range append(strings.Split(strings.TrimRight(string(out), "\x00"), "\x00"), "bin/lab") {
		b, err := os.ReadFile(filepath.Join("../..", name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, and not yet committed
		}
		st, err2 := os.Stat(filepath.Join("../..", name))
		must(t, err, err2, os.MkdirAll(filepath.Join(to, filepath.Dir(name)), 0o755),
			os.WriteFile(filepath.Join(to, name), b, st.Mode().Perm()|0o444))
	}
}

// run runs a lab in the place: as its user, or (sudo) as the one of the tests,
// which is what sudo does.
func (p place) run(t *testing.T, sudo bool, args ...string) answer {
	t.Helper()
	cmd := exec.Command(p.lab, args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = p.home, p.env, &syscall.SysProcAttr{}
	if sudo {
		cmd.Env = append(cmd.Env, "SUDO_UID=54321", "SUDO_GID=54321")
	} else if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(p.uid), Gid: uint32(p.uid)}
	}
	return finish(t, cmd)
}

// finish runs a command to its end.
func finish(t *testing.T, cmd *exec.Cmd) answer {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var e *exec.ExitError
	if err != nil && !errors.As(err, &e) {
		t.Fatal(err)
	}
	return answer{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// strangers are the files of a place that belong to somebody else.
func (p place) strangers(t *testing.T) (found []string) {
	t.Helper()
	must(t, filepath.WalkDir(filepath.Dir(p.home), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := os.Lstat(path)
		if err == nil && int(st.Sys().(*syscall.Stat_t).Uid) != p.uid && !linked(t, path) {
			found = append(found, path)
		}
		return err
	}))
	return found
}

// An ordinary user needs no root for anything but packages.
func TestOrdinaryUser(t *testing.T) {
	p := newPlace(t)
	a := p.run(t, false, "run", "--arch", "riscv64", "--scenario", "count", "--out", "out")
	if a.code != 0 {
		t.Fatal(a)
	}
	for _, s := range results(t, filepath.Join(p.home, "out"), "riscv64").Scenarios {
		if s.Status != status.Passed {
			t.Errorf("%s: %s: %+v", s.Name, s.Status, s.Failure)
		}
	}
	if found := p.strangers(t); len(found) > 0 {
		t.Errorf("files of somebody else's: %v", found)
	}
	if left := leftovers(t, p.temp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// After sudo with the user's own home, everything is the user's.
func TestSudo(t *testing.T) {
	p := newPlace(t)
	a := p.run(t, true, "run", "--arch", "riscv64", "--scenario", "boot", "--out", "out")
	if a.code != 0 {
		t.Fatal(a)
	}
	if found := p.strangers(t); len(found) > 0 {
		t.Errorf("files of somebody else's: %v", found)
	}
	made := filepath.Join(p.home, "out", "riscv64", "results.json")
	if _, err := os.Stat(made); err != nil {
		t.Error(err)
	}
}
