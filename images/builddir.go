package images

import (
	"bufio"
	"context"

	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"kerninst/lab/plain"
)

// BuildDirError says why a folder is not a kernel build directory that a guest
// can be made of, and what to do.
type BuildDirError struct{ Dir, Why string }

func (e *BuildDirError) Error() string { return "kernel build directory " + e.Dir + " " + e.Why }

// KernelWord is what Options.Kernel takes for a user's word: that of a build
// directory by its absolute path, a version as it is.
func KernelWord(word string) string {
	if abs, err := filepath.Abs(word); err == nil && isBuildDir(word) {
		return abs
	}
	return word
}

// isBuildDir tells a folder from a version, in which there is no slash.
func isBuildDir(word string) bool {
	if strings.Contains(word, "/") {
		return true
	}
	info, err := os.Stat(word)
	return word != "" && err == nil && info.IsDir()
}

// buildDir is a folder in which somebody has built a kernel, or installed one
// beside the headers it was built with (make install, make modules_install with
// their paths set to it).
type buildDir struct {
	path    string
	t       target
	release string
	config  map[string]string // without CONFIG_
	image   string            // path of the kernel
	tools   kbuildTools
	modules moduleTree
}

// needed are the options that kernels have to be built with.
var needed = []struct{ option, arches, why string }{
	{"MODULES", "", "kerninst.ko is a module"},
	{"MODULE_UNLOAD", "", "kerninst.ko is unloaded, too"},
	{"KALLSYMS", "", "functions are found by name"},
	{"KALLSYMS_ALL", "", "kerninst.ko is told where some of the kernel's data is"},
	{"KPROBES", "", "its list of what must not be probed holds for kerninst.ko"},
	{"JUMP_LABEL", "", "kerninst.ko asks it which text it rewrites"},
	{"DYNAMIC_FTRACE", "", "kerninst.ko asks it which text it rewrites"},
	{"INTERVAL_TREE", "", "kerninst.ko keeps its patches in one; KVM, FUSE_FS and INTERVAL_TREE_TEST select it"},
	{"SMP", "", "kerninst.ko has never been tried without"},
	{"BLK_DEV_INITRD", "", "guests boot from an initramfs"},
	{"BINFMT_ELF", "", "guests have programs"},
	{"FUTEX", "", "the guest's daemon is written in Go"},
	{"EPOLL", "", "the guest's daemon is written in Go"},
	{"PROC_FS", "", "the guest's init mounts it"},
	{"SYSFS", "", "the guest's init mounts it"},
	{"DEVTMPFS", "", "the guest's init mounts it"},
	{"TMPFS", "", "the guest's init mounts it"},
	{"VIRTIO_PCI", "", "results come that way"},
	{"VIRTIO_CONSOLE", "", "results come that way"},
	{"SERIAL_8250_CONSOLE", "amd64 riscv64", "it is the guest's console"},
	{"SERIAL_OF_PLATFORM", "riscv64", "it is the guest's console"},
	{"SERIAL_AMBA_PL011_CONSOLE", "arm64", "it is the guest's console"},
	{"PCI_HOST_GENERIC", "arm64 riscv64", "it is the guest's bus"},
	{"ACPI", "amd64", "a guest powers off by it"},
}

// openBuildDir looks at everything that can be wrong with a build directory
// before anything is made of it.
func openBuildDir(dir string, t target) (*buildDir, error) {
	d := &buildDir{path: dir, t: t}
	for _, look := range []func() error{d.readConfig, d.checkConfig, d.readRelease, d.findImage, d.findModules, d.findTools} {
		if err := look(); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (d *buildDir) wrong(format string, args ...any) error {
	return &BuildDirError{d.path, fmt.Sprintf(format, args...)}
}

func (d *buildDir) file(name string) string { return filepath.Join(d.path, filepath.FromSlash(name)) }

// autoConf is what the last build took from .config.
const autoConf = "include/config/auto.conf"

func (d *buildDir) readConfig() error {
	if info, err := os.Stat(d.path); err != nil || !info.IsDir() {
		return d.wrong("does not exist, or is no folder")
	}
	f, err := plain.Open(d.file(autoConf))
	if errors.Is(err, os.ErrNotExist) {
		if fileExists(d.file(".config")) {
			return d.wrong("is configured, but not built (no %s): run make there", autoConf)
		}
		return d.wrong("is not one (no %s): name the folder that a kernel was built in, O= of its make", autoConf)
	} else if err != nil {
		return d.wrong("cannot be read: %v", err)
	}
	defer f.Close()
	d.config, err = readOptions(f)
	return err
}

// readOptions reads lines of CONFIG_NAME=value.
func readOptions(r io.Reader) (map[string]string, error) {
	config := map[string]string{}
	in := bufio.NewScanner(r)
	for in.Scan() {
		if name, value, ok := strings.Cut(in.Text(), "="); ok {
			config[strings.TrimPrefix(name, "CONFIG_")] = strings.Trim(value, `"`)
		}
	}
	return config, in.Err()
}

// lacking says which of the needed options a kernel has not been built with, and why they
// are needed. Modules are as good where allowed says so.
func lacking(config map[string]string, t target, allowed func(option string) bool) string {
	var lacks []string
	for _, n := range needed {
		if n.arches != "" && !slices.Contains(strings.Fields(n.arches), t.name) {
			continue
		}
		if got := config[n.option]; got != "y" && (got != "m" || !allowed(n.option)) {
			lacks = append(lacks, fmt.Sprintf("CONFIG_%s=y (%s)", n.option, n.why))
		}
	}
	return strings.Join(lacks, ", ")
}

func (d *buildDir) checkConfig() error {
	if d.config[d.t.option] != "y" || d.config["64BIT"] != "y" {
		for _, t := range targets {
			if d.config[t.option] == "y" && d.config["64BIT"] == "y" {
				return d.wrong("is of %s, not of %s: give --arch %s", t.name, d.t.name, t.name)
			}
		}
		return d.wrong("is of none of %s", strings.Join(Arches(), ", "))
	}
	if lacks := lacking(d.config, d.t, func(string) bool { return false }); lacks != "" {
		return d.wrong("lacks %s: set that, and build it again", lacks)
	}
	if d.config["MODULE_SIG_FORCE"] == "y" {
		return d.wrong("has CONFIG_MODULE_SIG_FORCE=y and would not load kerninst.ko, which nobody signs: unset that, and build it again")
	}
	return nil
}

func (d *buildDir) readRelease() error {
	b, err := plain.Read(d.file("include/config/kernel.release"), 1<<10)
	d.release = strings.TrimSpace(string(b))
	if err != nil || d.release == "" || strings.ContainsAny(d.release, "/ \n") {
		return d.wrong("is configured, but not built (no include/config/kernel.release): run make there")
	}
	return nil
}

func (d *buildDir) findImage() error {
	tried := append(slices.Clone(d.t.images), "boot/vmlinuz-"+d.release, "boot/vmlinux-"+d.release)
	for _, name := range tried {
		if info, err := os.Stat(d.file(name)); err == nil && info.Mode().IsRegular() {
			d.image = d.file(name)
			return nil
		}
	}
	return d.wrong("has no kernel (none of %s): run make there", strings.Join(tried, ", "))
}

// findModules finds the symbols that modules are linked with and the modules
// themselves: installed ones, or as they were built.
func (d *buildDir) findModules() error {
	if !fileExists(d.file("Module.symvers")) {
		return d.wrong("has no modules (no Module.symvers): run make modules there")
	}
	if dir := d.file("lib/modules/" + d.release); fileExists(dir) {
		d.modules = installedModules{dir}
		return nil
	}
	built := builtModules{d.path}
	list, err := built.list()
	if err != nil {
		return d.wrong("has no modules (neither modules.order nor lib/modules/%s): run make modules there", d.release)
	}
	for k, name := range list {
		if !fileExists(d.file(name)) {
			return d.wrong("has no modules: %s is not there, nor are perhaps %d more: run make modules there", name, len(list)-k-1)
		}
	}
	d.modules = built
	return nil
}

// kbuildTools are the programs by which a kernel was built.
type kbuildTools struct {
	make               []string // arguments of make
	cc                 string
	nm, objcopy, strip string
}

// findTools takes the compiler from the configuration, where kconfig has left
// what it said of itself, beginning with its name. As for the kernel's own make,
// CROSS_COMPILE and LLVM in the environment say where else to find it.
func (d *buildDir) findTools() error {
	said := d.config["CC_VERSION_TEXT"]
	if d.config["CC_IS_CLANG"] == "y" {
		d.tools = llvmTools(os.Getenv("LLVM"))
	} else {
		d.tools = gnuTools(said, os.Getenv("CROSS_COMPILE"), d.t)
	}
	d.tools.make = append([]string{"ARCH=" + d.t.kbuild}, d.tools.make...)
	for _, p := range []string{"make", d.tools.cc, d.tools.nm, d.tools.objcopy, d.tools.strip} {
		if _, err := exec.LookPath(p); err != nil {
			return d.wrong("was built with %s, and kerninst.ko has to be: %s is not on the PATH; install it, or say where it is with CROSS_COMPILE or LLVM, as for the kernel's make",
				said, p)
		}
	}
	return nil
}

// gnuTools are those of a GCC that said so of itself. Without a prefix in cross
// or in its name it is the host's own, and good for the host's ISA only.
func gnuTools(said, cross string, t target) kbuildTools {
	cc, _, _ := strings.Cut(said, " ")
	prefix, _, known := strings.Cut(cc, "gcc")
	if cross != "" || !known || prefix == "" && t.name != hostArch() {
		if prefix = cross; cross == "" && t.name != hostArch() {
			prefix = t.triplet + "-"
		}
		cc = prefix + "gcc"
	}
	return kbuildTools{
		make: []string{"CROSS_COMPILE=" + prefix, "CC=" + cc},
		cc:   cc, nm: prefix + "nm", objcopy: prefix + "objcopy", strip: prefix + "strip",
	}
}

// llvmTools reads LLVM as kbuild does: a folder that ends in a slash, a suffix
// such as -19, or 1 for neither.
func llvmTools(llvm string) kbuildTools {
	prefix, suffix := "", ""
	switch {
	case strings.HasSuffix(llvm, "/"):
		prefix = llvm
	case strings.HasPrefix(llvm, "-"):
		suffix = llvm
	default:
		llvm = "1"
	}
	name := func(tool string) string { return prefix + tool + suffix }
	return kbuildTools{
		make: []string{"LLVM=" + llvm},
		cc:   name("clang"), nm: name("llvm-nm"), objcopy: name("llvm-objcopy"), strip: name("llvm-strip"),
	}
}

// ownKernel stores the build directory's kernel: what boots is what was hashed,
// whatever make does meanwhile.
func (b *builder) ownKernel() (Digest, error) {
	sum, size, err := hashFile(b.own.image)
	if err != nil {
		return Digest{}, b.own.wrong("cannot be read: %v", err)
	}
	d := Digest{sum, size}
	if b.cache.check(d) == nil {
		return d, nil
	}
	if b.cache.used != nil {
		return Digest{}, ErrNotCached
	}
	f, err := os.Open(b.own.image)
	if err != nil {
		return Digest{}, b.own.wrong("cannot be read: %v", err)
	}
	defer f.Close()
	return b.cache.put(f)
}

// moduleHere stands for the folder that the module is built in.
const moduleHere = "@MODULE@"

// hostEnv is of the host's environment what a kernel's make may see: MAKEFLAGS,
// KBUILD_OUTPUT and others of a make that started us would change what it does.
var hostEnv = []string{"PATH", "HOME", "LD_LIBRARY_PATH"}

// onHost builds the module where the kernel was built, which is not written to.
// Headers can change without a trace; that the kernel is another shows.
func (b *builder) onHost(ctx context.Context, _ *selection, j job) (files, error) {
	key := []string{"own", b.t.name, sourceKey(j.sources)}
	for _, name := range []string{b.own.image, b.own.file("Module.symvers"), b.own.file(autoConf)} {
		sum, _, err := hashFile(name)
		if err != nil {
			return nil, b.own.wrong("cannot be read: %v", err)
		}
		key = append(key, sum)
	}
	for _, argv := range j.argv {
		key = append(key, argv...)
	}
	env := []string{"LC_ALL=C", "TZ=UTC", "SOURCE_DATE_EPOCH=0", "KBUILD_BUILD_USER=lab", "KBUILD_BUILD_HOST=lab", "KBUILD_BUILD_TIMESTAMP=1970-01-01"}
	for _, name := range hostEnv {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return b.cache.made(ctx, j.name, keyOf(key...), func() (files, error) {
		b.say("building %s for %s in %s", j.name, b.own.release, b.own.path)
		dir, err := b.cache.temp(j.name)
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		return b.cache.doJob(j, dir, func(argv []string) error {
			argv = slices.Clone(argv)
			for k, a := range argv {
				argv[k] = strings.ReplaceAll(a, moduleHere, dir)
			}
			if _, err := runIn(ctx, dir, append(slices.Clone(env), "TMPDIR="+dir), argv...); err != nil && ctx.Err() == nil {
				return b.own.wrong("is not one that kerninst.ko can be built in: %v", err)
			}
			return ctx.Err()
		})
	})
}
