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
			flags = []string{"-B" + filepath.Join(f.root, "usr/bin", triplet+"-"), "-wrapper", f.loader + ",--library-path," + f.libs}
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

// assembled is a build directory of Debian's kernel, put together from its
// packages, and the PATH that it needs. It lies where only its owner comes, as
// people's folders may.
func assembled(t *testing.T, arch, triplet string) (dir, path string) {
	t.Helper()
	ctx := context.Background()
	opts := images.Options{Arch: arch, Root: "../..", Progress: t.Logf}
	img, err := images.Ensure(ctx, opts)
	must(t, err)
	root, err := images.Toolchain(ctx, opts)
	must(t, err)
	release, f := img.Release, foreignIn(t, root.Path)
	version := strings.TrimSuffix(release, "-"+arch)
	headers := filepath.Join(root.Path, "usr/src/linux-headers-"+release)
	kbuild := filepath.Join(root.Path, "usr/lib/linux-kbuild-"+version)
	dir = t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	must(t,
		os.CopyFS(in("include"), os.DirFS(filepath.Join(headers, "include"))),
		os.Symlink(filepath.Join(headers, "arch"), in("arch")),
		copied(filepath.Join(headers, ".config"), in(".config")),
		copied(filepath.Join(headers, "Module.symvers"), in("Module.symvers")),
		os.WriteFile(in("Makefile"), []byte("include "+filepath.Join(root.Path, "usr/src/linux-headers-"+version+"-common/Makefile")+"\n"), 0o644),
	)
	for _, programs := range []string{"scripts", "tools"} {
		must(t, os.CopyFS(in(programs), os.DirFS(filepath.Join(kbuild, programs))))
		f.wrapAll(t, in(programs), filepath.Join(kbuild, programs))
	}
	// Debian's own choose among several by what they are called, or by the target.
	for name, meant := range map[string]string{"scripts/mod/modpost": "modpost.real-lsb-64", "tools/objtool/objtool": "objtool.real-x86"} {
		must(t, os.Remove(in(name)), os.Symlink(meant, in(name)))
	}
	modules := "usr/lib/modules/" + release
	unpack := exec.Command("sh", "-ec", `dpkg-deb --fsys-tarfile "$1" |
		tar -C "$2" -x --wildcards --exclude='*/drivers/*' "./boot/vmlinu?-$3" "./$4/kernel/fs/configfs" "./$4/modules.builtin"`,
		"sh", img.Modules, dir, release, modules)
	if a := finish(t, unpack); a.code != 0 {
		t.Fatal(a)
	}
	must(t, os.MkdirAll(in("lib/modules"), 0o755), os.Rename(in(modules), in("lib/modules/"+release)))
	return dir, f.tools(t, triplet) + ":" + os.Getenv("PATH")
}

// copied is a file once more: the cache may be on another file system.
func copied(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}

// A guest has the kernel of a build directory, with the module built there and
// with modules from there.
func TestBuildDir(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ arch, triplet, point, mechanism string }{
		{"arm64", "aarch64-linux-gnu", "kinst::__arm64_sys_getppid:28", "jump"},
		{"amd64", "x86_64-linux-gnu", "kinst::__x64_sys_getppid:25", "jump"},
		{"riscv64", "riscv64-linux-gnu", "kinst::__riscv_sys_getppid:8", "quiesced"},
	} {
		if tt.arch != "arm64" && !*full {
			continue
		}
		t.Run(tt.arch, func(t *testing.T) {
			dir, path := assembled(t, tt.arch, tt.triplet)
			a := call(t, []string{"PATH=" + path}, "probe", "--arch", tt.arch, "--time", "host", "--kernel", dir, "--modprobe", "configfs",
				tt.point, "--run", "/lib/kerninst/bench/bench null 1000 2 >/dev/null; lsmod | cut -d' ' -f1")
			// The shell asks for its parent once, too.
			if a.code != 0 || !strings.Contains(a.stdout, "\nconfigfs\n") || !strings.HasSuffix(a.stdout, tt.mechanism+"  3001\n") {
				t.Errorf("exit status %d: %s", a.code, a)
			}
			if !strings.Contains(a.stderr, "in "+dir) {
				t.Errorf("the module was not built there: %s", a.stderr)
			}
			withoutModules(t, tt.arch, dir, path)
			t.Logf("proof builddir %s 3001", tt.arch)
		})
	}
}

// withoutModules: a build directory that is wrong is found before anything is
// made.
func withoutModules(t *testing.T, arch, dir, path string) {
	t.Helper()
	must(t, os.Remove(filepath.Join(dir, "Module.symvers")))
	out := filepath.Join(t.TempDir(), "out")
	a := call(t, []string{"PATH=" + path}, "run", "--arch", arch, "--kernel", dir, "--out", out)
	if a.code != status.ExitUsage || !strings.Contains(a.stderr, "run make modules there") {
		t.Errorf("exit status %d: %s", a.code, a)
	}
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
}
