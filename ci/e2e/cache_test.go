package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"kerninst/images"
	"kerninst/lab/status"
)

// unreachable is a mirror that answers nobody: nothing can come from a network.
const unreachable = "MIRROR=http://127.0.0.1:1/debian"

// store is a cache for one test, warm for riscv64, and temporary files.
type store struct {
	dir, temp string // kerninst's own folder; TMPDIR
	env       []string
}

func newStore(t *testing.T) store {
	t.Helper()
	return newStoreOf(t, "riscv64")
}

// newStoreOf is warm for another ISA. It lies beside the real cache, so that
// objects can be linked.
func newStoreOf(t *testing.T, arch string) store {
	t.Helper()
	base, err := os.UserCacheDir()
	must(t, err)
	top, err := os.MkdirTemp(base, "kerninst-e2e-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(top) })
	s := store{dir: filepath.Join(top, "kerninst"), temp: t.TempDir()}
	s.env = []string{"XDG_CACHE_HOME=" + top, "TMPDIR=" + s.temp, "XDG_RUNTIME_DIR=", "GO=" + goPath(t), unreachable}
	warm(t, s.dir, arch)
	return s
}

// clean fails the test if something unfinished is left.
func (s store) clean(t *testing.T) {
	t.Helper()
	if left := s.unfinished(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if pids := emulators(t, s.temp); len(pids) > 0 {
		t.Errorf("QEMU still runs: %v", pids)
	}
}

// unfinished are the files that no lab leaves when it ends by itself.
func (s store) unfinished(t *testing.T) []string {
	t.Helper()
	left := leftovers(t, s.temp)
	for _, pattern := range []string{"tmp/*", "index/*/.new-*", "golden/tmp/*", "sha256/*/.*"} {
		found, err := filepath.Glob(filepath.Join(s.dir, pattern))
		must(t, err)
		left = append(left, found...)
	}
	return left
}

// objects are the files that steps of one kind have made.
func (s store) objects(t *testing.T, kind string) (paths []string) {
	t.Helper()
	indexes, err := filepath.Glob(filepath.Join(s.dir, "index", kind, "*"))
	must(t, err)
	for _, name := range indexes {
		b, err := os.ReadFile(name)
		made := map[string]images.Digest{}
		must(t, err, json.Unmarshal(b, &made))
		for _, d := range made {
			paths = append(paths, filepath.Join(s.dir, "sha256", d.SHA256[:2], d.SHA256))
		}
	}
	if len(paths) == 0 {
		t.Fatalf("no %s in the cache", kind)
	}
	return paths
}

// kernelPackage is the file of Debian's kernel package.
func (s store) kernelPackage(t *testing.T) string {
	t.Helper()
	m, err := needed("riscv64")
	must(t, err)
	for _, p := range m.Packages {
		if strings.HasPrefix(p.Name, "linux-image-") {
			return filepath.Join(s.dir, "sha256", p.SHA256[:2], p.SHA256)
		}
	}
	t.Fatal("no kernel among the packages")
	return ""
}

// spoil replaces files, which may be links to ones that are still needed.
func spoil(t *testing.T, change func([]byte) []byte, paths ...string) {
	t.Helper()
	for _, path := range paths {
		b, err := os.ReadFile(path)
		must(t, err, os.Remove(path), os.WriteFile(path, change(b), 0o444))
	}
}

func truncated(b []byte) []byte { return b[:len(b)/2] }

func tampered(b []byte) []byte {
	b = bytes.Clone(b)
	b[len(b)/2] ^= 1
	return b
}

// What the cache lost is noticed, said, and made again if nothing has to be
// fetched for it.
func TestDamagedCache(t *testing.T) {
	gone := func(t *testing.T, s store, kind string) { must(t, os.RemoveAll(filepath.Join(s.dir, "index", kind))) }
	for _, tt := range []struct {
		name   string
		damage func(t *testing.T, s store)
		code   int
		says   []string
	}{
		{"nothing", func(*testing.T, store) {}, 0, nil},
		{"kernel truncated", func(t *testing.T, s store) { spoil(t, truncated, s.objects(t, "kernel")...) }, 0, []string{"damaged"}},
		{"kernel tampered", func(t *testing.T, s store) { spoil(t, tampered, s.objects(t, "kernel")...) }, 0, []string{"damaged"}},
		{"initramfs truncated", func(t *testing.T, s store) { spoil(t, truncated, s.objects(t, "base")...) }, 0, []string{"damaged", "writing the initramfs"}},
		{"initramfs tampered", func(t *testing.T, s store) { spoil(t, tampered, s.objects(t, "base")...) }, 0, []string{"damaged", "writing the initramfs"}},
		{"busybox tampered", func(t *testing.T, s store) {
			spoil(t, tampered, s.objects(t, "busybox")...)
			gone(t, s, "base")
		}, 0, []string{"damaged"}},
		{"index is rubbish", func(t *testing.T, s store) {
			found, err := filepath.Glob(filepath.Join(s.dir, "index", "base", "*"))
			must(t, err)
			spoil(t, truncated, found...)
		}, 0, []string{"writing the initramfs"}},
		{"package truncated", func(t *testing.T, s store) { spoil(t, truncated, s.kernelPackage(t)) },
			status.ExitLabFailed, []string{"linux-image-", "damaged", "127.0.0.1:1"}},
		{"package tampered", func(t *testing.T, s store) {
			spoil(t, tampered, s.kernelPackage(t))
			gone(t, s, "kernel")
		}, status.ExitLabFailed, []string{"linux-image-", "damaged", "127.0.0.1:1"}},
		{"written by a newer lab", func(t *testing.T, s store) {
			must(t, os.WriteFile(filepath.Join(s.dir, "version"), []byte("2\n"), 0o644))
		}, status.ExitLabFailed, []string{"version 2", "version 1", "XDG_CACHE_HOME"}},
		{"version is no number", func(t *testing.T, s store) {
			must(t, os.WriteFile(filepath.Join(s.dir, "version"), nil, 0o644))
		}, status.ExitLabFailed, []string{"version", "XDG_CACHE_HOME"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStore(t)
			tt.damage(t, s)
			a := call(t, s.env, "image", "build", "--arch", "riscv64")
			if a.code != tt.code {
				t.Fatalf("exit status %d, want %d: %s", a.code, tt.code, a)
			}
			for _, says := range tt.says {
				if !strings.Contains(a.stderr, says) {
					t.Errorf("%q does not say %q", a.stderr, says)
				}
			}
			if len(tt.says) == 0 && a.stderr != "" {
				t.Errorf("said %q", a.stderr)
			}
			s.clean(t)
			if tt.code != 0 {
				return
			}
			if a := call(t, s.env, "image", "build", "--arch", "riscv64"); a.code != 0 || a.stderr != "" {
				t.Errorf("the second time: %s", a)
			}
		})
	}
}

// A disk without room: the file-size limit stands in for it, since every user
// can set that one.
func TestFullDisk(t *testing.T) {
	s := newStore(t)
	must(t, os.RemoveAll(filepath.Join(s.dir, "index", "base")))
	limited := func(args ...string) answer {
		t.Helper()
		const blocks = "20000" // of 512 bytes: less than an initramfs
		cmd := exec.Command("/bin/sh", append([]string{"-c", `ulimit -f "$1" && shift && exec "$@"`, "sh", blocks, lab}, args...)...)
		cmd.Env = append(os.Environ(), s.env...)
		return finish(t, cmd)
	}
	out := t.TempDir()
	check := func(what string, a answer) {
		t.Helper()
		if a.code != status.ExitLabFailed || !strings.Contains(a.String(), "file too large") {
			t.Errorf("%s: exit status %d, want %d: %s", what, a.code, status.ExitLabFailed, a)
		}
		s.clean(t)
	}
	check("filling the cache", limited("image", "build", "--arch", "riscv64"))
	if a := call(t, s.env, "image", "build", "--arch", "riscv64"); a.code != 0 {
		t.Fatal(a)
	}
	check("starting a guest", limited("run", "--arch", "riscv64", "--scenario", "boot", "--out", out))
}

// filling is for a mount namespace of its own, which in a chroot cannot be made
// private. It runs a lab whose run directories lie on a small disk, fills that disk as
// soon as the guest says something, and leaves what is on it then in a list.
const filling = `mount --make-rprivate / 2>/dev/null
mount -t tmpfs -o size=64m none "$TMPDIR" || exit 99
"$@" & lab=$!
until [ -n "$(find "$TMPDIR" -name console.log -size +0)" ]; do kill -0 $lab || exit 98; done
cat /dev/zero 2>"$TMPDIR/../no-space" >"$TMPDIR/full"
wait $lab; code=$?
rm "$TMPDIR/full"
find "$TMPDIR" -type f ! -name lock >"$TMPDIR/../left"
umount "$TMPDIR" || exit 97
exit $code`

// A disk that is full in the middle of a run is the lab's fault: what the guest
// went on to say was lost, and does not look as if it had died. The disk is
// mounted in a namespace of the test's own.
func TestDiskFillsUp(t *testing.T) {
	top, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	temp := filepath.Join(top, "temp")
	must(t, os.Chmod(top, 0o755), os.Mkdir(temp, 0o755))
	cmd := exec.Command("/bin/sh", "-c", filling, "sh", lab, "run", "--arch", "riscv64", "--scenario", "boot", "--out", out)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, "XDG_RUNTIME_DIR=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 { // root needs no other rights, and in a chroot gets none
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN},
			UidMappings: sameIDs(os.Getuid()), GidMappings: sameIDs(os.Getgid()),
		}
	}
	a := finish(t, cmd)
	if a.code != status.ExitLabFailed || !strings.Contains(a.stderr, "disk") || !strings.Contains(a.stderr, temp) {
		t.Errorf("exit status %d, want %d: %s", a.code, status.ExitLabFailed, a)
	}
	if f := results(t, out, "riscv64").Scenarios[0].Failure; f == nil || f.Kind != "disk-full" {
		t.Errorf("failure %+v", f)
	}
	noSpace, err := os.ReadFile(filepath.Join(top, "no-space"))
	must(t, err)
	if !strings.Contains(string(noSpace), "space") {
		t.Errorf("the disk was not full: %q", noSpace)
	}
	left, err := os.ReadFile(filepath.Join(top, "left"))
	must(t, err)
	if len(left) > 0 {
		t.Errorf("left behind: %s", left)
	}
}

// sameIDs map users or groups of a namespace to themselves: all that there are, of
// root, who runs QEMU as another, and else the caller's own.
func sameIDs(own int) []syscall.SysProcIDMap {
	if os.Getuid() == 0 {
		return []syscall.SysProcIDMap{{Size: 1 << 16}}
	}
	return []syscall.SysProcIDMap{{ContainerID: own, HostID: own, Size: 1}}
}

// A cache that cannot be written serves what it has.
func TestReadOnlyCache(t *testing.T) {
	p := newPlace(t)
	must(t, filepath.Walk(p.cache, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.IsDir() {
			err = os.Chmod(path, 0o555)
		}
		return err
	}))
	t.Cleanup(func() {
		_ = filepath.Walk(p.cache, func(path string, info os.FileInfo, err error) error {
			if err == nil && info.IsDir() {
				err = os.Chmod(path, 0o755)
			}
			return err
		})
	})
	// A guest of host time, whose state could be kept elsewhere.
	if a := p.run(t, false, "run", "--arch", "riscv64", "--scenario", "undo", "--out", "out"); a.code != 0 || !strings.Contains(a.stderr, "boots, for there is no golden state") {
		t.Errorf("warm: %s", a)
	}
	cold := filepath.Join(p.home, "cold")
	must(t, os.Mkdir(cold, 0o555))
	p.env = append(p.env, "XDG_CACHE_HOME="+cold, unreachable)
	a := p.run(t, false, "run", "--arch", "riscv64", "--scenario", "boot", "--out", "out2")
	if a.code != status.ExitLabFailed || !strings.Contains(a.stderr, "cannot be written") || !strings.Contains(a.stderr, "XDG_CACHE_HOME") {
		t.Errorf("cold: exit status %d, want %d: %s", a.code, status.ExitLabFailed, a)
	}
	if left := leftovers(t, p.temp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Of two labs that lack the same, one makes it and the other waits.
func TestTwoLabsOnOneCache(t *testing.T) {
	s := newStore(t)
	must(t, os.RemoveAll(filepath.Join(s.dir, "index", "base")), os.RemoveAll(filepath.Join(s.dir, "index", "kernel")))
	answers := make(chan answer)
	for range 2 {
		go func() { answers <- call(t, s.env, "image", "build", "--arch", "riscv64") }()
	}
	made := 0
	for range 2 {
		a := <-answers
		if a.code != 0 {
			t.Errorf("exit status %d: %s", a.code, a)
		}
		made += strings.Count(a.stderr, "writing the initramfs")
	}
	if made != 1 {
		t.Errorf("the initramfs was made %d times", made)
	}
	s.clean(t)
}

// While a lab runs, nothing is collected; afterwards what it needs stays.
func TestCollecting(t *testing.T) {
	s := newStore(t)
	cmd := exec.Command(lab, "run", "--arch", "riscv64", "--scenario", "fault-boot-hang", "--out", t.TempDir())
	cmd.Env, cmd.SysProcAttr = append(os.Environ(), s.env...), &syscall.SysProcAttr{Setpgid: true}
	must(t, cmd.Start())
	eventually(t, "QEMU runs", func() bool { return len(emulators(t, s.temp)) > 0 })
	a := call(t, s.env, "image", "gc", "--age", "0s")
	if a.code != status.ExitLabFailed || !strings.Contains(a.stderr, "using the cache") {
		t.Errorf("beside a lab: exit status %d: %s", a.code, a)
	}
	must(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGINT))
	_ = cmd.Wait()

	old := filepath.Join(s.dir, "sha256", "00", strings.Repeat("0", 64))
	must(t, os.MkdirAll(filepath.Dir(old), 0o755), os.WriteFile(old, []byte("old"), 0o444))
	a = call(t, s.env, "image", "gc", "--age", "0s")
	if _, err := os.Stat(old); a.code != 0 || err == nil {
		t.Errorf("afterwards: exit status %d, %v: %s", a.code, err, a)
	}
	if a := call(t, s.env, "image", "build", "--arch", "riscv64"); a.code != 0 || a.stderr != "" {
		t.Errorf("an image was collected that is needed: %s", a)
	}
	for _, plugin := range s.objects(t, "plugin") {
		if _, err := os.Stat(plugin); err != nil {
			t.Errorf("a plugin was collected that is needed: %v", err)
		}
	}
	s.clean(t)
}

// A host without a network and with an empty cache does a run again that was
// done elsewhere, from a bundle of the packages.
func TestOfflineHost(t *testing.T) {
	t.Parallel()
	from := newStore(t)
	out, bundle := t.TempDir(), filepath.Join(t.TempDir(), "packages.tar")
	for _, args := range [][]string{
		{"run", "--arch", "riscv64", "--scenario", "boot", "--out", out},
		{"image", "export", "--arch", "riscv64", bundle},
	} {
		if a := call(t, from.env, args...); a.code != 0 {
			t.Fatal(a)
		}
	}
	must(t, os.RemoveAll(from.dir))
	to := from // the same place, now empty
	// What Go would fetch are modules; what it has compiled before need not be
	// compiled again.
	gocache, err := exec.Command(goPath(t), "env", "GOCACHE").Output()
	must(t, err)
	to.env = append(to.env, "GOPROXY=off", "GOCACHE="+strings.TrimSpace(string(gocache)))
	if a := call(t, to.env, "repro", out); a.code != status.ExitLabFailed || !strings.Contains(a.stderr, "127.0.0.1:1") {
		t.Errorf("with an empty cache: exit status %d: %s", a.code, a)
	}
	spoiled := filepath.Join(t.TempDir(), "spoiled.tar")
	b, err := os.ReadFile(bundle)
	must(t, err, os.WriteFile(spoiled, tampered(b), 0o600))
	if a := call(t, to.env, "image", "import", spoiled); a.code != status.ExitUsage || !strings.Contains(a.stderr, "the bundle is damaged") {
		t.Errorf("a tampered bundle: exit status %d: %s", a.code, a)
	}
	if a := call(t, to.env, "image", "import", bundle); a.code != 0 {
		t.Fatal(a)
	}
	linkToolchain(t, to.dir, "riscv64")
	if a := call(t, to.env, "repro", out); a.code != 0 || !strings.Contains(a.stdout, "REPRODUCED") {
		t.Errorf("exit status %d: %s", a.code, a)
	}
	to.clean(t)
}

// linkToolchain saves unpacking the toolchain for an ISA, most of a minute's
// work: that it unpacks is what every cold cache shows.
func linkToolchain(t *testing.T, cache, arch string) {
	t.Helper()
	base, err := os.UserCacheDir()
	must(t, err)
	found, err := filepath.Glob(filepath.Join(base, "kerninst", "tree", "*", "usr", "src", "linux-headers-*-"+arch))
	must(t, err, os.MkdirAll(filepath.Join(cache, "tree"), 0o755))
	for _, headers := range found {
		root := filepath.Dir(filepath.Dir(filepath.Dir(headers)))
		if out, err := exec.Command("cp", "-al", root, filepath.Join(cache, "tree")).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
}
