package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// goProgram is a Go program for guests.
type goProgram struct {
	name    string // in the guest
	pkg     string
	sources []string // folders whose content decides about it
}

// goPrograms are those of every image.
var goPrograms = []goProgram{
	{"init", "guest/init", []string{"guest/init"}},
	{"sbin/kerninstd", "cmd/kerninstd", []string{"cmd/kerninstd", "agent"}},
}

// besides is what programs that come along are made of beside their own folder.
var besides = []string{"guest/check", "agent"}

// goFlags make a binary depend on its source and compiler alone.
var goFlags = []string{"-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid="}

// goBuild is what the Go compiler made, and which one it was.
type goBuild struct {
	files   files
	version string
}

// programs builds Go programs for the target.
func (b *builder) programs(ctx context.Context, list []goProgram) (*goBuild, error) {
	gocmd, err := b.gocmd(ctx)
	if err != nil {
		return nil, err
	}
	out, err := b.run(ctx, nil, gocmd, "env", "GOVERSION")
	if err != nil {
		return nil, err
	}
	made := &goBuild{files{}, strings.TrimSpace(string(out))}
	for _, p := range list {
		src, err := b.read(isGoInput, append([]string{"go.mod", "go.sum"}, p.sources...)...)
		if err != nil {
			return nil, err
		}
		key := keyOf(append([]string{b.t.name, b.t.level, made.version, p.pkg, sourceKey(src)}, goFlags...)...)
		got, err := b.cache.made(ctx, "go", key, func() (files, error) {
			b.say("compiling %s for %s", p.pkg, b.t.name)
			return b.compile(ctx, gocmd, p.name, p.pkg)
		})
		if err != nil {
			return nil, err
		}
		maps.Copy(made.files, got)
	}
	return made, nil
}

// Program compiles a Go program of the repository for a guest, to be added to
// what one boot brings along: the image itself, and what was kept of it, stay.
func Program(ctx context.Context, opt Options, pkg, dst string) (File, error) {
	b, err := newBuilder(opt)
	if err == nil {
		err = b.cache.use(ctx)
	}
	if err != nil {
		return File{}, err
	}
	got, err := b.programs(ctx, []goProgram{{dst, pkg, append([]string{pkg}, besides...)}})
	if err != nil {
		return File{}, err
	}
	d := got.files[dst]
	if err := b.cache.verify(d); err != nil {
		b.cache.discard(d, pkg, err)
		return File{}, err
	}
	return File{Path: dst, Mode: 0o755, Source: b.cache.object(d)}, nil
}

func (b *builder) compile(ctx context.Context, gocmd, name, pkg string) (files, error) {
	dir, err := b.cache.temp("go")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	bin := filepath.Join(dir, "program")
	env := []string{"GOTMPDIR=" + dir, "CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + b.t.name, b.t.level, "GOFLAGS=", "GOEXPERIMENT="}
	argv := append(append([]string{gocmd, "build"}, goFlags...), "-o", bin, "./"+pkg)
	if _, err := b.run(ctx, env, argv...); err != nil {
		return nil, err
	}
	f, err := os.Open(bin)
	if err != nil {
		return nil, fmt.Errorf("images: %s did not come out of its build: %w", pkg, err)
	}
	defer f.Close()
	d, err := b.cache.put(f)
	return files{name: d}, err
}

// gocmd finds a Go that is new enough: $GO, the one that ci/setup.sh knows, or
// the one on the PATH.
func (b *builder) gocmd(ctx context.Context) (string, error) {
	if g := os.Getenv("GO"); g != "" {
		return g, nil
	}
	if setup := b.source("ci", "setup.sh"); fileExists(setup) {
		out, err := b.run(ctx, nil, "/bin/sh", setup, "--go")
		return strings.TrimSpace(string(out)), err
	}
	g, err := exec.LookPath("go")
	if err != nil {
		return "", errors.New("images: no Go compiler on the PATH: apt-get install golang-go")
	}
	return g, nil
}

func fileExists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// tie has a program end with the lab, however that ends, and the caches stay in use
// until it has. It is asked to end, not killed: make passes that on. What it has
// started, and does not end at once, compiles one file.
//
// When the lab alone gives up, the whole process group is killed.
func tie(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	// The signal comes when the thread ends that started the program: none of
	// ours does before the process, since none runs locked to its end.
	cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	cmd.SysProcAttr.Setpgid = true
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	held.Range(func(_, lock any) bool {
		cmd.ExtraFiles = append(cmd.ExtraFiles, lock.(*os.File))
		return true
	})
}

// run runs a command of the host at the repository's root.
func (b *builder) run(ctx context.Context, env []string, argv ...string) ([]byte, error) {
	return runIn(ctx, b.opt.Root, append(os.Environ(), env...), argv...)
}

// runIn runs a command of the host and returns what it printed.
func runIn(ctx context.Context, dir string, env []string, argv ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, env
	tie(cmd)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("images: %s: %w\n%s", strings.Join(argv, " "), err, tail(errs.Bytes()))
	}
	return out.Bytes(), nil
}

// read returns the files below the repository's paths that keep wants.
func (b *builder) read(keep func(name string) bool, paths ...string) ([]source, error) {
	var all []source
	for _, p := range paths {
		err := filepath.WalkDir(b.source(p), func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return fmt.Errorf("images: sources in %s: %w", b.source(p), err)
			}
			if d.IsDir() && d.Name() == "testdata" {
				return filepath.SkipDir
			}
			rel, err := filepath.Rel(b.opt.Root, name)
			if err != nil || d.IsDir() || !keep(filepath.ToSlash(rel)) {
				return err
			}
			data, err := os.ReadFile(name)
			all = append(all, source{filepath.ToSlash(rel), data})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// isGoInput drops what cannot change a binary: a change of a test or a text
// shall not change the image's name.
func isGoInput(name string) bool {
	return !strings.HasSuffix(name, "_test.go") && !strings.HasSuffix(name, ".md")
}

// isCInput keeps what compilers and makefiles read, so that a build's leftovers
// in the working tree have no effect.
func isCInput(name string) bool {
	base := path.Base(name)
	return slices.Contains([]string{".c", ".h", ".S", ".lds"}, path.Ext(base)) ||
		base == "Kbuild" || base == "Makefile"
}

func sourceKey(src []source) string {
	var parts []string
	for _, s := range src {
		parts = append(parts, s.name, string(s.data))
	}
	return keyOf(parts...)
}

// below makes names relative to dir.
func below(dir string, src []source) []source {
	out := make([]source, len(src))
	for i, s := range src {
		out[i] = source{strings.TrimPrefix(s.name, dir+"/"), s.data}
	}
	return out
}

// native builds what needs the C toolchain, the module and the workloads, and adds what the
// kernel needs beside them.
func (b *builder) native(ctx context.Context, sel *selection) (files, error) {
	made := files{}
	for _, step := range []func(*selection) (job, error){b.module, b.bench, b.lmbench} {
		j, err := step(sel)
		if err != nil {
			return nil, err
		}
		build := b.inRoot
		if b.own != nil && j.name == moduleJob {
			build = b.onHost
		}
		got, err := build(ctx, sel, j)
		if err != nil && j.name == moduleJob {
			err = b.notFor(sel.Kernel+"-"+b.t.name, err)
		}
		if err != nil {
			return nil, err
		}
		for name, d := range got {
			made["lib/kerninst/"+installedAs(j.name, name)] = d
		}
	}
	more, err := b.carried(ctx, sel)
	maps.Copy(made, more)
	return made, err
}

// installedAs is an output's name below /lib/kerninst in the guest.
func installedAs(job, output string) string {
	if job == moduleJob {
		return path.Base(output)
	}
	return job + "/" + output
}

// inRoot runs the job in the selection's toolchain, once for its inputs.
func (b *builder) inRoot(ctx context.Context, sel *selection, j job) (files, error) {
	key := []string{b.treeKey(sel), j.name, sourceKey(j.sources)}
	for _, argv := range j.argv {
		key = append(key, argv...)
	}
	return b.cache.made(ctx, j.name, keyOf(append(key, j.outputs...)...), func() (files, error) {
		root, err := b.tree(ctx, sel)
		if err != nil {
			return nil, err
		}
		if err := b.fits(root, sel); err != nil {
			return nil, err
		}
		b.say("building %s for %s", j.name, b.t.name)
		return root.build(ctx, j)
	})
}

// undefinedCheck fails on a symbol that neither the kernel exports nor the
// daemon sets: since modpost only warns, it would be found at load. $1 is objcopy,
// $2 nm, $3 the kernel's headers.
const undefinedCheck = `
"$1" -O binary --only-section=.kerninst.internals --set-section-flags .kerninst.internals=alloc kerninst.ko internals.bin
{ awk '{ print $2 }' "$3/Module.symvers"; tr '\0' '\n' <internals.bin | tr -d '?'; } | LC_ALL=C sort -u >known
"$2" -u kerninst.ko | awk '{ print $2 }' | LC_ALL=C sort -u >wanted
unknown=$(LC_ALL=C comm -13 known wanted)
[ -z "$unknown" ] || { echo "undefined, not exported, not in internals.h: $unknown" >&2; exit 1; }
`

// modules are what guest/module builds.
var modules = []string{"kerninst.ko", "peer/peer.ko", "peer/nap/nap.ko", "peer/redirect/redirect.ko", "peer/access/access.ko", "peer/truth/truth.ko", "peer/patched/patched.ko"}

const moduleJob = "module"

// module builds guest/module: in the toolchain's root for Debian's kernels, else
// by what built the kernel.
func (b *builder) module(sel *selection) (job, error) {
	src, err := b.read(isCInput, "guest/module")
	j := job{name: moduleJob, sources: below("guest/module", src), outputs: modules}
	if b.own != nil {
		t := b.own.tools
		// The same comes out wherever it is built.
		names := fmt.Sprintf("FLAGS=-ffile-prefix-map=%s=. -ffile-prefix-map=%s=.", moduleHere, b.own.path)
		t.make = append(slices.Clone(t.make), "KC"+names, "KA"+names)
		j.argv = moduleArgv(b.own.path, moduleHere, t)
		return j, err
	}
	prefix := b.t.triplet + "-"
	j.argv = moduleArgv("/usr/src/linux-headers-"+sel.Kernel+"-"+b.t.name, "/build/module", kbuildTools{
		make: append([]string{"ARCH=" + b.t.kbuild, "CROSS_COMPILE=" + prefix, "CC=" + b.t.gcc()}, b.t.unknown...),
		nm:   prefix + "nm", objcopy: prefix + "objcopy", strip: prefix + "strip",
	})
	return j, err
}

// moduleArgv are the commands that build the module in the folder dir. Undefined
// symbols are what the daemon sets before it loads the module: modpost's
// complaints about them are warnings.
func moduleArgv(headers, dir string, t kbuildTools) [][]string {
	argv := append([]string{"make", "-j2", "-s", "-C", headers, "M=" + dir}, t.make...)
	return [][]string{
		append(argv, "KBUILD_MODPOST_WARN=1", "modules"),
		{"sh", "-ec", undefinedCheck, "sh", t.objcopy, t.nm, headers},
		append([]string{t.strip, "--strip-debug"}, modules...),
	}
}

// cFlags make a guest's program of what lies in the folder of a job. They link statically
// at fixed addresses: an emulator plugin looks for the markers where .kimark is put.
func cFlags(job string) []string {
	return []string{"-O2", "-static", "-fno-pie", "-no-pie", "-Wall", "-Werror",
		"-ffile-prefix-map=/build/" + job + "=.", "-Wl,--build-id=none", "-Wl,--section-start=.kimark=0x7ab00000"}
}

// assemble compiles a .S file by itself: the linker records the names of objects
// that have none of a source in them, and temporary names are random.
func (b *builder) assemble(name string) (argv []string, object string) {
	object = name + ".o"
	return []string{b.t.gcc(), "-Wall", "-Werror", "-c", "-o", object, name}, object
}

// bench builds guest/bench: every .c file is a program, every .S file is linked
// into all of them.
func (b *builder) bench(*selection) (job, error) {
	src, err := b.read(isCInput, "guest/bench")
	j := job{name: "bench", sources: below("guest/bench", src)}
	var shared []string
	for _, s := range j.sources {
		if path.Ext(s.name) == ".S" {
			argv, object := b.assemble(s.name)
			j.argv, shared = append(j.argv, argv), append(shared, object)
		}
	}
	for _, s := range j.sources {
		if name, ok := strings.CutSuffix(s.name, ".c"); ok {
			argv := append(append([]string{b.t.gcc()}, cFlags(j.name)...), "-o", name, s.name)
			j.argv = append(j.argv, append(argv, shared...))
			j.outputs = append(j.outputs, name)
		}
	}
	if err == nil && len(j.outputs) == 0 {
		err = fmt.Errorf("images: no programs in %s", b.source("guest", "bench"))
	}
	return j, err
}

// plainLoops keep a loop over words one: no vector instructions, whose width differs
// by ISA, and no calls of the C library's memory functions.
var plainLoops = []string{"-fno-tree-vectorize", "-fno-tree-loop-distribute-patterns"}

// lmbench builds guest/lmbench: all in it is one program, with the marks of guest/bench;
// every .c file in its folder exec is one that it starts.
func (b *builder) lmbench(*selection) (job, error) {
	const dir = "guest/lmbench"
	src, err := b.read(isCInput, dir)
	marks, e := b.read(isCInput, "guest/bench/mark.S", "guest/bench/mark.h")
	j := job{name: "lmbench", sources: append(below(dir, src), below("guest/bench", marks)...), outputs: []string{"lmbench"}}
	argv := slices.Concat([]string{b.t.gcc()}, cFlags(j.name), plainLoops, []string{"-o", "lmbench"})
	for _, s := range j.sources {
		name, ext := strings.TrimSuffix(s.name, path.Ext(s.name)), path.Ext(s.name)
		switch {
		case ext == ".S":
			compile, object := b.assemble(s.name)
			j.argv, argv = append(j.argv, compile), append(argv, object)
		case ext == ".c" && path.Dir(name) == "exec":
			out := path.Base(name)
			j.argv = append(j.argv, slices.Concat([]string{b.t.gcc()}, cFlags(j.name), []string{"-o", out, s.name}))
			j.outputs = append(j.outputs, out)
		case ext == ".c":
			argv = append(argv, s.name)
		}
	}
	j.argv = append(j.argv, argv)
	return j, errors.Join(err, e)
}

// pluginFlags make a shared object that needs nothing of the host but the
// emulator that loads it, whatever its C library.
var pluginFlags = []string{"-shared", "-fPIC", "-nostdlib", "-ffreestanding", "-O2", "-Wall", "-Werror",
	"-fno-stack-protector", "-ffile-prefix-map=/build/plugin=.", "-Wl,--build-id=none"}

// BuildPlugin compiles a .c file, with the headers beside it, for the host into a
// plugin for QEMU, with defines as NAME or NAME=VALUE, and returns its path.
func BuildPlugin(ctx context.Context, opt Options, file string, defines ...string) (string, error) {
	b, err := newBuilder(opt)
	if err != nil {
		return "", err
	}
	if err := b.cache.use(ctx); err != nil {
		return "", err
	}
	sel, err := b.choose(ctx)
	if err != nil {
		return "", err
	}
	j, err := b.plugin(file, defines)
	if err != nil {
		return "", err
	}
	for pass := 0; ; pass++ {
		got, err := b.inRoot(ctx, sel, j)
		if err != nil {
			return "", err
		}
		d := got[j.outputs[0]]
		if err = b.cache.verify(d); err == nil {
			return b.cache.object(d), nil
		}
		b.cache.discard(d, "plugin", err) // the second pass makes it
		if pass > 0 {
			return "", err
		}
	}
}

func (b *builder) plugin(file string, defines []string) (job, error) {
	dir, name := filepath.Split(file)
	argv := slices.Clone(pluginFlags)
	for _, d := range defines {
		argv = append(argv, "-D"+d)
	}
	at := *b
	at.opt.Root = dir
	src, err := at.read(func(s string) bool { return s == name || path.Ext(s) == ".h" }, ".")
	if err != nil {
		return job{}, err
	}
	argv = append([]string{"gcc-14"}, append(argv, "-o", "plugin.so", name)...)
	return job{name: "plugin", sources: src, argv: [][]string{argv}, outputs: []string{"plugin.so"}}, nil
}
