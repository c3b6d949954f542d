package images

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Root is an unpacked Debian system that builds for one target. It is shared
// by all labs on this machine and never changed, but for /build.
type Root struct {
	Path string // on the host
	Key  string // of the packages in it
	t    target
	c    *cache
}

// Toolchain returns the root that builds for opt.Arch, making it if needed.
func Toolchain(ctx context.Context, opt Options) (*Root, error) {
	b, err := newBuilder(opt)
	if err != nil {
		return nil, err
	}
	if err := b.cache.use(ctx); err != nil {
		return nil, err
	}
	sel, err := b.choose(ctx)
	if err != nil {
		return nil, err
	}
	return b.tree(ctx, sel)
}

// treeVersion is part of a tree's key: count it up when what is added to the
// packages changes.
const treeVersion = "2"

// tools are the packages of the toolchain's root: its closure, and the headers
// for the target.
func (s *selection) tools() []Package {
	pkgs := slices.Clone(s.Toolchain)
	for _, p := range s.Guest {
		// Since Linux 7.0 the headers' configuration is a link into linux-base-VERSION.
		if strings.HasPrefix(p.Name, "linux-headers-") || strings.HasPrefix(p.Name, "linux-base-") {
			pkgs = append(pkgs, p)
		}
	}
	// base-files comes first: it makes /bin, /lib... links into /usr.
	slices.SortStableFunc(pkgs, func(a, b Package) int {
		return btoi(b.Name == "base-files") - btoi(a.Name == "base-files")
	})
	return pkgs
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (b *builder) treeKey(sel *selection) string {
	key := []string{treeVersion, b.t.name}
	for _, p := range sel.tools() {
		key = append(key, p.SHA256)
	}
	return keyOf(key...)
}

// tree unpacks the toolchain unless that is done.
func (b *builder) tree(ctx context.Context, sel *selection) (*Root, error) {
	key := b.treeKey(sel)
	dst, _ := b.cache.path(false, "tree", key)
	root := &Root{Path: dst, Key: key, t: b.t, c: b.cache}
	if _, err := os.Stat(dst); err == nil {
		return root, nil
	}
	unlock, err := b.cache.lock(ctx, "tree-"+key)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, err := os.Stat(dst); err == nil {
		return root, nil
	}
	b.say("unpacking the toolchain for %s", b.t.name)
	tmp, err := b.cache.temp("tree")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	if err := b.unpackAll(ctx, sel.tools(), tmp); err != nil {
		return nil, err
	}
	if err := finishTree(tmp); err != nil {
		return nil, err
	}
	if _, err := b.cache.path(true, "tree", key); err != nil {
		return nil, err
	}
	if err := os.Rename(tmp, dst); err != nil {
		return nil, b.cache.unwritable(err)
	}
	return root, nil
}

// unpackAll verifies and unpacks: the first package alone, the rest two at a
// time.
func (b *builder) unpackAll(ctx context.Context, pkgs []Package, dir string) error {
	one := func(p Package) error {
		if err := b.cache.verify(p.Digest); err != nil {
			b.cache.discard(p.Digest, p.Name, err)
			return err
		}
		if err := extract(ctx, b.cache.object(p.Digest), dir); err != nil {
			return fmt.Errorf("images: %s cannot be unpacked: %w", p, err)
		}
		return nil
	}
	if len(pkgs) == 0 {
		return errors.New("images: no packages to unpack")
	}
	if err := one(pkgs[0]); err != nil {
		return err
	}
	queue := make(chan Package, len(pkgs))
	for _, p := range pkgs[1:] {
		queue <- p
	}
	close(queue)
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for p := range queue {
				if errs[i] = one(p); errs[i] != nil {
					return
				}
			}
		}()
	}
	wg.Wait()
	return errors.Join(errs...)
}

// stackMap is where objtool, since Linux 7.0, looks for its stack before it does anything:
// if it dies, it says whether that was full. It refuses to work without.
const stackMap = "7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0 [stack]\n"

// finishTree adds what maintainer scripts and a running system would.
func finishTree(dir string) error {
	in := func(p string) string { return filepath.Join(dir, p) }
	err := errors.Join(
		os.Chmod(dir, 0o755),
		os.MkdirAll(in("build"), 0o755),
		os.MkdirAll(in("dev"), 0o755),
		os.MkdirAll(in("tmp"), 0o777),
		os.MkdirAll(in("proc/self"), 0o755),
		os.WriteFile(in("proc/self/maps"), []byte(stackMap), 0o644),
		os.Symlink("gawk", in("usr/bin/awk")),
		os.Symlink("dash", in("usr/bin/sh")))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("images: toolchain: %w", err)
	}
	if os.Geteuid() == 0 {
		err := syscall.Mknod(in("dev/null"), syscall.S_IFCHR|0o666, 1<<8|3)
		if err == nil {
			return os.Chmod(in("dev/null"), 0o666)
		}
	}
	// Something to mount the host's on.
	return os.WriteFile(in("dev/null"), nil, 0o666)
}

// rootEnv is the environment inside a root: nothing of the host's comes in.
var rootEnv = []string{
	"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/tmp", "LC_ALL=C.UTF-8", "TZ=UTC",
	"SOURCE_DATE_EPOCH=0", "KBUILD_BUILD_USER=lab", "KBUILD_BUILD_HOST=lab",
	"KBUILD_BUILD_TIMESTAMP=1970-01-01",
}

// enter starts in the host's sh, in a user namespace where we are root and a
// mount namespace of our own: gives the root a working /dev/null and enters it.
// $0 is the root, $1 the directory inside, the rest the command.
const enter = `mount --bind /dev/null "$0/dev/null" || exit 125
dir=$1; shift
exec chroot "$0" /bin/sh -c 'cd "$0" && exec "$@"' "$dir" "$@"`

// Command prepares argv to run inside the root, in dir. Set its Stdin, Stdout
// and Stderr before starting it.
func (r *Root) Command(ctx context.Context, dir string, argv ...string) *exec.Cmd {
	var cmd *exec.Cmd
	if os.Geteuid() == 0 {
		cmd = exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", `exec "$0" "$@"`}, argv...)...)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: r.Path}
	} else {
		cmd = exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", enter, r.Path, dir}, argv...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		}
	}
	// What make and the compiler leave in the middle goes with the directory.
	cmd.Env = append(slices.Clone(rootEnv), "TMPDIR="+dir)
	tie(cmd)
	return cmd
}

// Run runs argv in a private copy of the host's directory src (which may be
// empty: none) and returns what it printed. The copy is dropped afterwards.
func (r *Root) Run(ctx context.Context, src string, argv ...string) ([]byte, error) {
	dir, err := os.MkdirTemp(filepath.Join(r.Path, "build"), "run-")
	if err != nil {
		return nil, r.c.unwritable(err)
	}
	defer os.RemoveAll(dir)
	if src != "" {
		if err := os.CopyFS(filepath.Join(dir, "src"), os.DirFS(src)); err != nil {
			return nil, fmt.Errorf("images: %w", err)
		}
	}
	return r.output(ctx, "/build/"+path.Join(filepath.Base(dir), map[bool]string{true: "src"}[src != ""]), argv)
}

// Stream runs argv beside a file of the given name and content, and has read
// take what it prints.
func (r *Root) Stream(ctx context.Context, name string, content []byte, argv []string, read func(io.Reader) error) error {
	dir, err := os.MkdirTemp(filepath.Join(r.Path, "build"), "run-")
	if err != nil {
		return r.c.unwritable(err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
		return r.c.unwritable(err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cmd := r.Command(ctx, "/build/"+filepath.Base(dir), argv...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("images: in the toolchain: %s: %w", argv[0], err)
	}
	if err := read(out); err != nil {
		stop() // it may have more to say
		_ = cmd.Wait()
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("images: in the toolchain: %s: %w\n%s", argv[0], err, tail(errs.Bytes()))
	}
	return nil
}

// output runs argv, which inherits the files.
func (r *Root) output(ctx context.Context, dir string, argv []string, inherited ...*os.File) ([]byte, error) {
	cmd := r.Command(ctx, dir, argv...)
	cmd.ExtraFiles = append(cmd.ExtraFiles, inherited...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if errors.Is(err, syscall.EPERM) {
		err = fmt.Errorf("%w: this user may not chroot or make user namespaces: "+
			"run as root, or sysctl kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0", err)
	}
	if err != nil {
		return nil, &toolError{strings.Join(argv, " "), err, out.Bytes(), errs.Bytes()}
	}
	return out.Bytes(), nil
}

// tail keeps the end of a long output.
func tail(b []byte) []byte {
	const most = 8000
	if len(b) > most {
		return append([]byte("...\n"), b[len(b)-most:]...)
	}
	return b
}

// job is one build inside a root, at a path that is the same everywhere, so
// that its output is too.
type job struct {
	name    string   // below /build
	sources []source // copied there
	argv    [][]string
	outputs []string // below /build/NAME
}

type source struct {
	name string // slash-separated, relative
	data []byte
}

// build runs the job and stores its outputs by their names.
func (r *Root) build(ctx context.Context, j job) (files, error) {
	lock, err := r.c.lockFile(ctx, "build-"+j.name+"-"+r.Key)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	dir := filepath.Join(r.Path, "build", j.name)
	defer os.RemoveAll(dir)
	if err := os.RemoveAll(dir); err != nil {
		return nil, r.c.unwritable(err)
	}
	return r.c.doJob(j, dir, func(argv []string) error {
		_, err := r.output(ctx, "/build/"+j.name, argv, lock)
		return err
	})
}

// doJob has run do the job's commands in the folder dir and stores its outputs.
func (c *cache) doJob(j job, dir string, run func(argv []string) error) (files, error) {
	for _, s := range j.sources {
		name := filepath.Join(dir, filepath.FromSlash(s.name))
		err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, s.data, 0o644))
		if err != nil {
			return nil, c.unwritable(err)
		}
	}
	for _, argv := range j.argv {
		if err := run(argv); err != nil {
			return nil, err
		}
	}
	made := files{}
	for _, name := range j.outputs {
		f, err := os.Open(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			return nil, fmt.Errorf("images: %s did not come out of its build: %w", name, err)
		}
		made[name], err = c.put(f)
		f.Close()
		if err != nil {
			return nil, err
		}
	}
	return made, nil
}

// unpack takes what the guest is made of out of its packages.
func (b *builder) unpack(ctx context.Context, sel *selection) (files, error) {
	made := files{}
	for _, part := range []struct {
		name     string
		pkgs     []string
		patterns []string
	}{
		{"kernel", kernelIn, []string{"boot/vmlinu?-*", "usr/lib/modules/*/vmlinu?"}}, // the latter since 7.0
		{"busybox", []string{"busybox-static"}, []string{"usr/bin/busybox"}},
		{"firmware", []string{firmwarePackage}, []string{b.t.firmware}},
	} {
		if part.patterns[0] == "" {
			continue
		}
		if part.name == "kernel" && b.own != nil {
			d, err := b.ownKernel()
			if err != nil {
				return nil, err
			}
			made[part.name] = d
			continue
		}
		p, err := sel.guest(part.pkgs...)
		if err != nil {
			return nil, err
		}
		got, err := b.cache.made(ctx, part.name, p.SHA256, func() (files, error) {
			if err := b.cache.verify(p.Digest); err != nil {
				b.cache.discard(p.Digest, p.Name, err)
				return nil, err
			}
			d, err := b.member(ctx, p, part.patterns...)
			return files{part.name: d}, err
		})
		if err != nil {
			return nil, err
		}
		made[part.name] = got[part.name]
	}
	return made, nil
}

// member stores the first file of a package whose name matches one of the patterns.
func (b *builder) member(ctx context.Context, p Package, patterns ...string) (d Digest, err error) {
	found := false
	err = packageFiles(ctx, b.cache.object(p.Digest), func(h *tar.Header, content io.Reader) (err error) {
		if h.Typeflag != tar.TypeReg || !slices.ContainsFunc(patterns, func(pattern string) bool {
			ok, _ := path.Match(pattern, path.Clean(h.Name))
			return ok
		}) {
			return nil
		}
		found = true
		if d, err = b.cache.put(content); err != nil {
			return err
		}
		return errEnough
	})
	if err != nil {
		return Digest{}, fmt.Errorf("images: %s: %w", p, err)
	}
	if !found {
		return Digest{}, fmt.Errorf("images: %s has no %s", p, strings.Join(patterns, " or "))
	}
	return d, nil
}
