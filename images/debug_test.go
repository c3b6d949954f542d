package images

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// debugArchive is lockedArchive with the kernel's debug package, in which there is a file of this name.
func debugArchive(t *testing.T, name string) (opt Options, a *brokenMirror, pkg Package) {
	t.Helper()
	opt, pkgs, pool := lockedArchive(t)
	vmlinux, err := os.ReadFile("../agent/inline/testdata/arm64.elf")
	must(t, err)
	deb := makeDeb(t, "linux-image-6.12.1+deb13-arm64-dbg", map[string]string{
		"usr/lib/debug/.build-id/a": "no vmlinux", "usr/lib/debug/boot/" + name: string(vmlinux), "usr/lib/debug/lib/modules/b": "a module's"})
	pkg = inArchive("linux-image-6.12.1+deb13-arm64-dbg", deb, "pool/dbg.deb")
	pool[pkg.Path] = deb
	l := Lock{guestSet("arm64"): pkgs[:2], toolchainSet(hostArch(), "arm64"): pkgs[2:], debugSet("arm64"): {pkg}}
	must(t, os.WriteFile(filepath.Join(opt.Root, LockFile), l.format(), 0o644))
	a = newBrokenMirror(t, pool)
	opt.Mirror = a.URL + "/debian"
	return opt, a, pkg
}

// What is made of a vmlinux is made once, and neither the vmlinux nor its package is kept.
func TestFromVmlinux(t *testing.T) {
	c, _ := testCache(t)
	opt, a, pkg := debugArchive(t, "vmlinux-6.12.1+deb13-arm64")
	var said strings.Builder
	opt.Progress = func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }
	times := 0
	ask := func() string {
		t.Helper()
		b, err := FromVmlinux(context.Background(), opt, "first", func(r io.ReaderAt) ([]byte, error) {
			times++
			begin := make([]byte, 4)
			_, err := r.ReadAt(begin, 0)
			return append([]byte("of "), begin...), err
		})
		must(t, err)
		return string(b)
	}
	for range 2 {
		if got := ask(); got != "of \x7fELF" || times != 1 {
			t.Errorf("%q, made %d times", got, times)
		}
	}
	if c.check(pkg.Digest) == nil {
		t.Error("the package is kept")
	}
	if !regexp.MustCompile(`arm64-dbg: read in [0-9.]+ s; \d+ MB of disk were taken at the most, [0-9.]+ MB are kept\n`).MatchString(said.String()) {
		t.Errorf("what it has taken is not said: %s", said.String())
	}
	if left, _ := filepath.Glob(filepath.Join(c.dir, "tmp", "debug*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if lock, ok := held.LoadAndDelete(c.dir); ok { // as if this lab had ended
		lock.(*os.File).Close()
	}
	if _, err := GC(context.Background(), opt, -time.Hour); err != nil || ask() == "" || times != 1 {
		t.Errorf("after what nobody needs has gone: made %d times (%v)", times, err)
	}
	if n := strings.Count(strings.Join(a.asked, " "), pkg.Path); n != 1 {
		t.Errorf("the package was asked for %d times: %q", n, a.asked)
	}
}

// What cannot be made is an error that says what goes without, and leaves nothing.
func TestNoVmlinux(t *testing.T) {
	broken := errors.New("not of this kernel")
	for name, tt := range map[string]struct {
		file   string
		change func(a *brokenMirror, opt *Options, pkg Package)
		err    string
	}{
		"offline":          {"vmlinux-6", func(_ *brokenMirror, o *Options, _ Package) { must(t, choose(t, *o)); o.Offline = true }, "offline"},
		"gone":             {"vmlinux-6", func(a *brokenMirror, _ *Options, p Package) { delete(a.pool, p.Path) }, "no mirror has linux-image-6.12.1+deb13-arm64-dbg"},
		"other bytes":      {"vmlinux-6", func(a *brokenMirror, _ *Options, p Package) { a.pool[p.Path] = strings.ToUpper(a.pool[p.Path]) }, "not used"},
		"none in it":       {"System.map", func(*brokenMirror, *Options, Package) {}, "no vmlinux in it"},
		"nothing of it is": {"vmlinux-6", func(*brokenMirror, *Options, Package) {}, broken.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := testCache(t)
			opt, a, pkg := debugArchive(t, tt.file)
			tt.change(a, &opt, pkg)
			_, err := FromVmlinux(context.Background(), opt, "x", func(io.ReaderAt) ([]byte, error) { return nil, broken })
			var none *NoDebugError
			if !errors.As(err, &none) || !strings.Contains(err.Error(), tt.err) || !strings.Contains(err.Error(), "all else is") {
				t.Errorf("%v", err)
			}
			if left, _ := filepath.Glob(filepath.Join(c.dir, "tmp", "debug*")); len(left) != 0 || c.check(pkg.Digest) == nil {
				t.Errorf("left: %v, and the package: %v", left, c.check(pkg.Digest))
			}
		})
	}
}

// Without room nothing is fetched.
func TestNoRoomForVmlinux(t *testing.T) {
	testCache(t)
	opt, a, pkg := debugArchive(t, "vmlinux-6")
	b, err := newBuilder(opt)
	must(t, err, b.cache.use(context.Background()))
	if err := b.room(1 << 60); err == nil || !strings.Contains(err.Error(), "make room") {
		t.Errorf("%v", err)
	}
	must(t, b.room(pkg.Size))
	if len(a.asked) != 0 {
		t.Errorf("asked for %q", a.asked)
	}
}

// A build directory has its own, of which nothing is kept.
func TestVmlinuxOfBuildDir(t *testing.T) {
	b := &builder{own: &buildDir{path: t.TempDir(), release: "6.99"}}
	var none *NoDebugError
	if _, err := b.ofBuildDir(nil); !errors.As(err, &none) || none.Kernel != "6.99" {
		t.Errorf("without one: %v", err)
	}
	must(t, os.WriteFile(filepath.Join(b.own.path, "vmlinux"), []byte("mine"), 0o644))
	all := func(r io.ReaderAt) ([]byte, error) { return io.ReadAll(io.NewSectionReader(r, 0, 99)) }
	if got, err := b.ofBuildDir(all); err != nil || !bytes.Equal(got, []byte("mine")) {
		t.Errorf("%q, %v", got, err)
	}
}

// What has been made and is damaged since, cut off or changed, is made anew at once.
func TestDamagedOfVmlinux(t *testing.T) {
	c, _ := testCache(t)
	opt, _, _ := debugArchive(t, "vmlinux-6")
	times, want := 0, "of this vmlinux"
	ask := func() {
		t.Helper()
		b, err := FromVmlinux(context.Background(), opt, "first", func(io.ReaderAt) ([]byte, error) { times++; return []byte(want), nil })
		if err != nil || string(b) != want {
			t.Errorf("%q, %v", b, err)
		}
	}
	ask()
	sum := sha256.Sum256([]byte(want))
	object := c.object(Digest{hex.EncodeToString(sum[:]), int64(len(want))})
	for n, damaged := range []string{"of this vmlinuX", "of"} {
		must(t, os.Chmod(object, 0o644), os.WriteFile(object, []byte(damaged), 0o644))
		if ask(); times != n+2 {
			t.Errorf("%q: made %d times", damaged, times)
		}
	}
}

// A mirror that cannot be reached is said to be so once, and not for each suite that it might have.
func TestNoMirrorForVmlinux(t *testing.T) {
	testCache(t)
	opt, a, _ := debugArchive(t, "vmlinux-6")
	must(t, choose(t, opt))
	a.mute = true
	_, err := FromVmlinux(context.Background(), opt, "x", nil)
	var none *NoDebugError
	if !errors.As(err, &none) || strings.Count(err.Error(), "cannot be reached") != 1 || !strings.Contains(err.Error(), "all else is") {
		t.Errorf("%v", err)
	}
}
