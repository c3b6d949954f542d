package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Options say which image is wanted.
type Options struct {
	Arch string // target: amd64, arm64, riscv64
	// Kernel is a release, an upstream or package version, or the absolute path
	// of a kernel's build directory; empty: the locked one.
	Kernel  string
	Mirror  string // Debian archive; empty: the host's
	Root    string // of this repository
	Offline bool   // use the cache only
	// Look finds what is cached and makes, removes and locks nothing: what is not
	// there is ErrNotCached.
	Look bool
	// Progress is told what takes long and what is odd, one line each. May be
	// nil; called from several goroutines.
	Progress func(format string, args ...any)
}

// Image is a guest that can be booted.
type Image struct {
	Arch    string
	Package string // of the kernel; empty: it comes from a build directory
	Version string // of that package
	Release string // uname -r
	Kernel  string // path of the kernel image
	// Firmware is the path of the machine's; empty: QEMU's own.
	Firmware string
	Base     string // path of the initramfs without a job
	// Modules is the path of the kernel's package, if it comes from one.
	Modules  string
	Manifest Manifest

	modules  moduleTree
	carriers []string // of those, without which nothing comes out of the guest
}

// Manifest lists everything that an image was made of. It names no path, time
// or host, so that equal images have equal manifests.
type Manifest struct {
	Schema    int        `json:"schema"`
	Arch      string     `json:"arch"`
	Release   string     `json:"release"`
	Go        string     `json:"go"`
	Packages  []Package  `json:"packages"`  // in the guest
	Toolchain []Package  `json:"toolchain"` // that built the rest
	Files     []NamedSum `json:"files"`     // kernel, initramfs, and what is in it
	Drift     []string   `json:"drift,omitempty"`
}

// NamedSum is a file of the image.
type NamedSum struct {
	Name string `json:"name"`
	Digest
}

// builder makes one image.
type builder struct {
	opt   Options
	t     target
	host  string
	cache *cache
	say   func(format string, args ...any)
	own   *buildDir // the kernel comes from there, instead of from a package; or nil
}

func newBuilder(opt Options) (*builder, error) {
	t, err := targetOf(opt.Arch)
	if err != nil {
		return nil, err
	}
	if opt.Mirror != "" {
		if err := checkMirror(opt.Mirror); err != nil {
			return nil, err
		}
	}
	// Commands run there, and are named by paths below it.
	if opt.Root, err = filepath.Abs(opt.Root); err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	say := opt.Progress
	if say == nil {
		say = func(string, ...any) {}
	}
	c, err := openCache(say)
	if err != nil {
		return nil, err
	}
	if opt.Look {
		opt.Offline, c.look, c.used = true, true, newFound()
	}
	b := &builder{opt: opt, t: t, host: hostArch(), cache: c, say: say}
	if isBuildDir(opt.Kernel) {
		// All else is as with the locked kernel.
		if b.own, err = openBuildDir(opt.Kernel, t); err != nil {
			return nil, err
		}
		b.opt.Kernel = ""
	} else if opt.Kernel != "" && !versionForm.MatchString(opt.Kernel) {
		return nil, &NoVersionError{opt.Kernel}
	}
	return b, nil
}

// Ensure returns the image, making what the cache lacks. The kernel and the
// initramfs are hashed each time: what is booted is what was built.
func Ensure(ctx context.Context, opt Options) (*Image, error) {
	b, err := newBuilder(opt)
	if err != nil {
		return nil, err
	}
	if err := b.cache.use(ctx); err != nil {
		return nil, err
	}
	// A damaged file is removed where it is found; the second pass makes it.
	for pass := 0; ; pass++ {
		img, err := b.ensure(ctx)
		var bad *DamagedError
		if pass > 0 || !errors.As(err, &bad) {
			return img, err
		}
	}
}

func (b *builder) ensure(ctx context.Context) (*Image, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Compiling Go needs the CPU, fetching packages the network. Whichever
	// fails stops the other.
	programs := start(func() (*goBuild, error) {
		got, err := b.programs(ctx, goPrograms)
		if err != nil {
			cancel()
		}
		return got, err
	})
	sel, err := b.choose(ctx)
	if err != nil {
		cancel()
		_, goErr := programs.wait()
		return nil, firstCause(err, goErr)
	}
	unpacked := start(func() (files, error) { return b.unpack(ctx, sel) })
	native, nativeErr := b.native(ctx, sel)
	if nativeErr != nil {
		cancel()
	}
	guest, guestErr := unpacked.wait()
	gob, goErr := programs.wait()
	if err := firstCause(nativeErr, guestErr, goErr); err != nil {
		return nil, err
	}
	base, err := b.base(ctx, guest, gob.files, native)
	if err != nil {
		return nil, err
	}
	return b.image(sel, gob.version, base, guest, gob.files, native)
}

// image verifies what is booted and describes it.
func (b *builder) image(sel *selection, goVersion string, base Digest, made ...files) (*Image, error) {
	img, err := b.from(sel)
	if err != nil {
		return nil, err
	}
	m := &img.Manifest // which knows its packages already
	m.Schema, m.Arch, m.Release, m.Go = 1, b.t.name, img.Release, goVersion
	m.Toolchain, m.Drift, m.Files = sel.Toolchain, sel.Drift, []NamedSum{{"initramfs", base}}
	for _, fs := range made {
		for _, name := range sortedNames(fs) {
			m.Files = append(m.Files, NamedSum{name, fs[name]})
		}
	}
	kernel, firmware := made[0]["kernel"], made[0]["firmware"]
	check := b.cache.verify
	if b.cache.look {
		check = b.cache.check // what is only looked at need not be read
	}
	for _, d := range []Digest{kernel, firmware, base} {
		if d == (Digest{}) {
			continue
		}
		if err := check(d); err != nil {
			b.cache.discard(d, "image of "+b.t.name, err)
			return nil, err
		}
	}
	img.Kernel, img.Base = b.cache.object(kernel), b.cache.object(base)
	if b.t.firmware != "" {
		img.Firmware = b.cache.object(firmware)
	}
	return img, nil
}

// from is the image as far as its kernel's origin decides about it.
func (b *builder) from(sel *selection) (*Image, error) {
	if b.own != nil {
		img := &Image{Arch: b.t.name, Release: b.own.release, modules: b.own.modules}
		img.Manifest.Packages = slices.DeleteFunc(slices.Clone(sel.Guest), func(p Package) bool {
			return strings.HasPrefix(p.Name, "linux-")
		})
		return img, nil
	}
	p, err := sel.guest("linux-image-")
	if err != nil {
		return nil, err
	}
	in, err := sel.guest(modulesIn...)
	if err != nil {
		return nil, err
	}
	deb := b.cache.object(in.Digest)
	debs := []string{deb}
	if of, err := sel.guest(builtinsIn); err == nil {
		debs = append(debs, b.cache.object(of.Digest))
	}
	img := &Image{
		Arch: b.t.name, Package: p.Name, Version: p.Version, Release: sel.Kernel + "-" + b.t.name,
		Modules: deb, modules: packagedModules{debs, in.SHA256}, Manifest: Manifest{Packages: sel.Guest},
	}
	if b.opt.Kernel != "" {
		img.carriers = carriers
	}
	return img, nil
}

// task is a function that runs by itself.
type task[T any] struct {
	done  chan struct{}
	value T
	err   error
}

func start[T any](f func() (T, error)) *task[T] {
	t := &task[T]{done: make(chan struct{})}
	go func() {
		defer close(t.done)
		t.value, t.err = f()
	}()
	return t
}

func (t *task[T]) wait() (T, error) {
	<-t.done
	return t.value, t.err
}

// firstCause prefers an error that is not the echo of another's cancelling.
func firstCause(errs ...error) error {
	var echo error
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		if err != nil {
			echo = err
		}
	}
	return echo
}

// WriteInitrd writes the initramfs of one boot to dst: the image's, and the job
// with extra files in a segment of its own.
func (img *Image) WriteInitrd(dst string, job []byte, extra ...File) (err error) {
	out, err := os.Create(dst)
	if err != nil {
		return fmt.Errorf("images: %w", err)
	}
	defer func() {
		if e := out.Close(); err == nil && e != nil {
			err = fmt.Errorf("images: %s: %w", dst, e)
		}
	}()
	if err := copyInto(out, img.Base); err != nil {
		return err
	}
	return writeJob(out, job, extra)
}

// writeJob appends the segment of one boot.
func writeJob(f *os.File, job []byte, extra []File) error {
	entries := append([]File{{Path: "/job", Mode: 0o600, Data: job}}, extra...)
	s, err := jobSegment.fitting(entries)
	if err != nil {
		return err
	}
	return s.write(f, entries)
}

// InitrdSize is how long the initramfs of a boot with these files is, in bytes.
func (img *Image) InitrdSize(extra []File) (int64, error) {
	s, err := jobSegment.fitting(extra)
	return baseSegmentSize + agentSegmentSize + s.bytes, err
}

// WriteJob writes what WriteInitrd adds to the image's own initramfs to w.
func (img *Image) WriteJob(w io.Writer, job []byte, extra ...File) error {
	f, err := os.CreateTemp("", "kerninst-job-")
	if err != nil {
		return fmt.Errorf("images: %w", err)
	}
	defer f.Close()
	// At once: then it is gone however the lab ends.
	if err := os.Remove(f.Name()); err != nil {
		return fmt.Errorf("images: %w", err)
	}
	if err := writeJob(f, job, extra); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("images: %w", err)
	}
	_, err = io.Copy(w, f)
	return err
}

// source is a path below the repository's root.
func (b *builder) source(elem ...string) string {
	return filepath.Join(append([]string{b.opt.Root}, elem...)...)
}
