package images

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// modulesArchive is debugArchive with debug files of modules, one of them packed.
func modulesArchive(t *testing.T) (opt Options, a *brokenMirror, pkg Package) {
	t.Helper()
	opt, a, pkg = debugArchive(t, "vmlinux-6.12.1+deb13-arm64")
	const below = "usr/lib/debug/lib/modules/6.12.1+deb13-arm64/kernel/"
	deb := makeDeb(t, pkg.Name, map[string]string{
		below + "fs/binfmt_misc.ko": "of binfmt", below + "drivers/net/dummy-net.ko": "of dummy", below + "fs/ext4/ext4.ko.gz": gzipped(t, "of ext4"),
		"usr/lib/debug/boot/vmlinux-6": "no module"})
	a.pool[pkg.Path] = deb
	renewed := inArchive(pkg.Name, deb, "pool/dbg.deb")
	lock, err := ReadLock(opt.Root)
	must(t, err)
	lock[debugSet("arm64")] = []Package{renewed}
	must(t, os.WriteFile(filepath.Join(opt.Root, LockFile), lock.format(), 0o644))
	return opt, a, renewed
}

func gzipped(t *testing.T, text string) string {
	t.Helper()
	var b strings.Builder
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(text))
	must(t, err, w.Close())
	return b.String()
}

// What is made of modules' debug files is made once of each, of one fetch for all that lack, and nothing else is kept.
func TestFromModules(t *testing.T) {
	c, _ := testCache(t)
	opt, a, pkg := modulesArchive(t)
	made := 0
	ask := func(fetches, times int, names ...string) map[string][]byte {
		t.Helper()
		out, err := FromModules(context.Background(), opt, "first", names, func(r io.ReaderAt) ([]byte, error) {
			made++
			return io.ReadAll(io.NewSectionReader(r, 0, 99))
		})
		must(t, err)
		if n := strings.Count(strings.Join(a.asked, " "), pkg.Path); n != fetches || made != times {
			t.Errorf("%q: the package was asked for %d times, %d were made; not %d and %d", names, n, made, fetches, times)
		}
		return out
	}
	want := map[string][]byte{"binfmt_misc": []byte("of binfmt"), "dummy_net": []byte("of dummy")}
	for range 2 {
		if got := ask(1, 2, "dummy-net", "binfmt_misc", "dummy_net"); !reflect.DeepEqual(got, want) {
			t.Errorf("%q", got)
		}
	}
	want["ext4"] = []byte("of ext4")
	if got := ask(2, 3, "ext4", "binfmt_misc", "dummy_net"); !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
	opt.Offline = true
	ask(2, 3, "ext4")
	if left, _ := filepath.Glob(filepath.Join(c.dir, "tmp", "debug*")); len(left) != 0 || c.check(pkg.Digest) == nil {
		t.Errorf("left: %v, and the package: %v", left, c.check(pkg.Digest))
	}
}

// What cannot be made is an error that says why, and which module was meant, and leaves nothing.
func TestNoDebugModule(t *testing.T) {
	broken := errors.New("it is no module")
	for name, tt := range map[string]struct {
		module string
		change func(a *brokenMirror, opt *Options, pkg Package)
		err    string
	}{
		"unknown":          {"binfmt_msc", func(*brokenMirror, *Options, Package) {}, "did you mean binfmt_misc?"},
		"offline":          {"ext4", func(_ *brokenMirror, o *Options, _ Package) { must(t, choose(t, *o)); o.Offline = true }, "offline"},
		"gone":             {"ext4", func(a *brokenMirror, _ *Options, p Package) { delete(a.pool, p.Path) }, "no mirror has linux-image-6.12.1+deb13-arm64-dbg"},
		"nothing of it is": {"binfmt_misc", func(*brokenMirror, *Options, Package) {}, "module binfmt_misc: it is no module"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := testCache(t)
			opt, a, pkg := modulesArchive(t)
			tt.change(a, &opt, pkg)
			_, err := FromModules(context.Background(), opt, "x", []string{tt.module}, func(io.ReaderAt) ([]byte, error) { return nil, broken })
			var none *NoDebugError
			if !errors.As(err, &none) || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%v", err)
			}
			if left, _ := filepath.Glob(filepath.Join(c.dir, "tmp", "debug*")); len(left) != 0 || c.check(pkg.Digest) == nil {
				t.Errorf("left: %v, and the package: %v", left, c.check(pkg.Digest))
			}
		})
	}
}

// A build directory has its own modules, where they were built; nothing of them is kept.
func TestModulesOfBuildDir(t *testing.T) {
	testCache(t)
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "fs"), 0o755), os.WriteFile(filepath.Join(dir, "modules.order"), []byte("fs/mine.o\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "fs", "mine.ko"), []byte("built"), 0o644))
	b, err := newBuilder(Options{Arch: "arm64"})
	must(t, err)
	for name, want := range map[string]string{"mine": "built", "yours": "kernel 6.99 has no module yours"} {
		got, err := b.eachModule(context.Background(), builtModules{dir}.visit, "6.99", []string{name}, func(r io.ReaderAt) ([]byte, error) {
			return io.ReadAll(io.NewSectionReader(r, 0, 99))
		})
		if said := fmt.Sprint(string(got[name]), err); !strings.Contains(said, want) {
			t.Errorf("%s: %s, want %s", name, said, want)
		}
	}
}
