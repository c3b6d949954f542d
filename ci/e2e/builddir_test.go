package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kerninst/images"
	"kerninst/lab/status"
)

// foreign has programs of another Debian release run on this host, by their own
// loader and C library: whatever release the host is of.
type foreign struct{ root, loader, libs string }

func foreignIn(t *testing.T, root string) foreign {
	t.Helper()
	loader, err1 := filepath.Glob(filepath.Join(root, "usr/lib/*/ld-linux-*.so.*"))
	libs, err2 := filepath.Glob(filepath.Join(root, "usr/lib/*/libc.so.6"))
	if must(t, err1, err2); len(loader) != 1 || len(libs) != 1 {
		t.Fatalf("loaders %v, C libraries %v in %s", loader, libs, root)
	}
	return foreign{root, loader[0], filepath.Dir(libs[0])}
}

// wrap writes a script called name that runs a program of the root.
func (f foreign) wrap(t *testing.T, name, program string, flags ...string) {
	t.Helper()
	script := fmt.Sprintf("#!/bin/sh\nexec %s --library-path %s %s %s \"$@\"\n", f.loader, f.libs, program, strings.Join(flags, " "))
	must(t, os.RemoveAll(name), os.WriteFile(name, []byte(script), 0o755))
}

// tools wraps what builds modules, in a folder for the PATH.
func (f foreign) tools(t *testing.T, triplet string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, tool := range []string{"ar", "ld", "nm", "objcopy", "strip", "gcc-14"} {
		var flags []string
		if tool == "gcc-14" { // which starts programs itself
			flags = []string{"-wrapper", f.loader + ",--library-path," + f.libs}
		}
		name := triplet + "-" + tool
		f.wrap(t, filepath.Join(dir, name), filepath.Join(f.root, "usr/bin", name), flags...)
	}
	return dir
}

// wrapAll wraps the programs below dir, which are copies of those in of.
func (f foreign) wrapAll(t *testing.T, dir, of string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(name)
		if err == nil && bytes.HasPrefix(b, []byte("\x7fELF")) {
			f.wrap(t, name, filepath.Join(of, strings.TrimPrefix(name, dir)))
		}
		return err
	}))
}

// assembled is a build directory of Debian's arm64 kernel, put together from its
// packages, and the PATH that it needs. It lies where only its owner comes, as
// people's folders may.
func assembled(t *testing.T) (dir, path string) {
	t.Helper()
	ctx := context.Background()
	opts := images.Options{Arch: "arm64", Root: "../..", Progress: t.Logf}
	img, err := images.Ensure(ctx, opts)
	must(t, err)
	root, err := images.Toolchain(ctx, opts)
	must(t, err)
	release, f := img.Release, foreignIn(t, root.Path)
	headers := filepath.Join(root.Path, "usr/src/linux-headers-"+release)
	kbuild := filepath.Join(root.Path, "usr/lib/linux-kbuild-"+strings.TrimSuffix(release, "-arm64"))
	dir = t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	must(t,
		os.CopyFS(in("include"), os.DirFS(filepath.Join(headers, "include"))),
		os.CopyFS(in("scripts"), os.DirFS(filepath.Join(kbuild, "scripts"))),
		os.Symlink(filepath.Join(headers, "arch"), in("arch")),
		os.Link(filepath.Join(headers, ".config"), in(".config")),
		os.Link(filepath.Join(headers, "Module.symvers"), in("Module.symvers")),
		os.WriteFile(in("Makefile"), []byte("include "+strings.TrimSuffix(headers, "-arm64")+"-common/Makefile\n"), 0o644),
	)
	f.wrapAll(t, in("scripts"), filepath.Join(kbuild, "scripts"))
	// Debian's own chooses among those for four kinds of target by what it is called.
	must(t, os.Remove(in("scripts/mod/modpost")), os.Symlink("modpost.real-lsb-64", in("scripts/mod/modpost")))
	modules := "usr/lib/modules/" + release
	unpack := exec.Command("sh", "-ec", `dpkg-deb --fsys-tarfile "$1" | tar -C "$2" -x --exclude='*/drivers/*' "./boot/vmlinuz-$3" "./$4/kernel/fs/configfs" "./$4/modules.builtin"`,
		"sh", img.Modules, dir, release, modules)
	if a := finish(t, unpack); a.code != 0 {
		t.Fatal(a)
	}
	must(t, os.MkdirAll(in("lib/modules"), 0o755), os.Rename(in(modules), in("lib/modules/"+release)))
	return dir, f.tools(t, "aarch64-linux-gnu") + ":" + os.Getenv("PATH")
}

// A guest has the kernel of a build directory, with the module built there and
// with modules from there.
func TestBuildDir(t *testing.T) {
	dir, path := assembled(t)
	a := call(t, []string{"PATH=" + path}, "probe", "--arch", "arm64", "--time", "host", "--kernel", dir, "--modprobe", "configfs",
		"kinst::__arm64_sys_getppid:28", "--run", "/lib/kerninst/bench/bench null 1000 2 >/dev/null; lsmod | cut -d' ' -f1")
	// The shell asks for its parent once, too.
	if a.code != 0 || !strings.Contains(a.stdout, "\nconfigfs\n") || !strings.HasSuffix(a.stdout, "jump  3001\n") {
		t.Errorf("exit status %d: %s", a.code, a)
	}
	if !strings.Contains(a.stderr, "in "+dir) {
		t.Errorf("the module was not built there: %s", a.stderr)
	}

	// One that is wrong is found before anything is made.
	t.Run("without modules", func(t *testing.T) {
		must(t, os.Remove(filepath.Join(dir, "Module.symvers")))
		out := filepath.Join(t.TempDir(), "out")
		a := call(t, []string{"PATH=" + path}, "run", "--arch", "arm64", "--kernel", dir, "--out", out)
		if a.code != status.ExitUsage || !strings.Contains(a.stderr, "run make modules there") {
			t.Errorf("exit status %d: %s", a.code, a)
		}
		if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("left behind: %v", err)
		}
	})
}
