package images

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// debugSet names the package with the kernel's debugging information in the lock.
func debugSet(arch string) string { return "debug/" + arch }

// debugPackage is its name.
func debugPackage(release string, t target) string {
	return "linux-image-" + release + "-" + t.name + "-dbg"
}

// vmlinuxRoom is what a vmlinux and what is made of it take at most, in bytes.
const vmlinuxRoom = 2 << 30

// NoDebugError says why there is no debugging information of a kernel, and what goes without.
type NoDebugError struct {
	Kernel string
	Err    error
}

func (e *NoDebugError) Error() string {
	return fmt.Sprintf("images: no debugging information of kernel %s: %v; copies of inline functions and source lines are not known without, all else is", e.Kernel, e.Err)
}
func (e *NoDebugError) Unwrap() error { return e.Err }

// FromVmlinux returns what of makes of the kernel with debugging information: from the cache if it
// has been made, else the package with it is fetched (a gigabyte), what is made is kept under
// name, and nothing else is. name is to change when what is made does. A kernel of a build
// directory has its own vmlinux, of which nothing is kept. Errors are NoDebugErrors where there is none.
func FromVmlinux(ctx context.Context, opt Options, name string, of func(vmlinux io.ReaderAt) ([]byte, error)) ([]byte, error) {
	b, err := newBuilder(opt)
	if err == nil {
		err = b.cache.use(ctx)
	}
	if err != nil {
		return nil, err
	}
	if b.own != nil {
		return b.ofBuildDir(of)
	}
	s, err := b.choose(ctx)
	if err != nil {
		return nil, err
	}
	kernel, err := s.guest(kernelIn...)
	if err != nil {
		return nil, err
	}
	return b.madeOrKept(ctx, name, keyOf(name, kernel.SHA256), s.Kernel, func() (files, error) {
		return b.ofDebugPackage(ctx, s.Kernel, name, of)
	})
}

// madeOrKept is what has been made under a key, or is made now; what has been damaged since is made anew.
func (b *builder) madeOrKept(ctx context.Context, name, key, release string, step func() (files, error)) ([]byte, error) {
	for again := false; ; again = true {
		made, err := b.cache.made(ctx, "debug", key, step)
		if errors.Is(err, ErrNotCached) {
			return nil, err
		}
		if err != nil {
			return nil, &NoDebugError{release + "-" + b.t.name, err}
		}
		out, err := b.kept(made, name)
		var damaged *DamagedError
		if !errors.As(err, &damaged) || again || b.cache.look {
			return out, err
		}
	}
}

// kept reads what was made, and removes it if it has been damaged.
func (b *builder) kept(made files, name string) ([]byte, error) {
	d := made[name]
	if err := b.cache.verify(d); err != nil {
		b.cache.discard(d, name, err)
		return nil, err
	}
	return os.ReadFile(b.cache.object(d))
}

// ofBuildDir makes it of what somebody has built, and keeps nothing, since it may be built anew.
func (b *builder) ofBuildDir(of func(io.ReaderAt) ([]byte, error)) ([]byte, error) {
	f, err := os.Open(filepath.Join(b.own.path, "vmlinux"))
	if err != nil {
		return nil, &NoDebugError{b.own.release, err}
	}
	defer f.Close()
	out, err := of(f)
	if err != nil {
		return nil, &NoDebugError{b.own.release, fmt.Errorf("%s: %w (CONFIG_DEBUG_INFO_DWARF5 is what is needed)", f.Name(), err)}
	}
	return out, nil
}

// ofDebugPackage fetches the package, takes the vmlinux out of it, and lets go of both.
func (b *builder) ofDebugPackage(ctx context.Context, release, name string, of func(io.ReaderAt) ([]byte, error)) (files, error) {
	pkg, err := b.debugPackage(ctx, release)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	defer os.Remove(b.cache.object(pkg.Digest))
	dir, err := b.cache.temp("debug")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	f, err := b.vmlinux(ctx, pkg, dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	most := bytesIn(dir) + pkg.Size // the most that there is at a time
	os.Remove(b.cache.object(pkg.Digest))
	made, err := of(f)
	if err != nil {
		return nil, err
	}
	d, err := b.cache.put(bytes.NewReader(made))
	b.say("%s: read in %.1f s; %d MB of disk were taken at the most, %.1f MB are kept", pkg.Name, time.Since(begun).Seconds(), most/1e6, float64(len(made))/1e6)
	return files{name: d}, err
}

// debugPackage sees to it that the package is cached: the locked one, or what a mirror has.
func (b *builder) debugPackage(ctx context.Context, release string) (Package, error) {
	if b.opt.Offline {
		return Package{}, errors.New("offline, and it has not been fetched before; run once with a network")
	}
	lock, err := ReadLock(b.opt.Root)
	if err != nil {
		return Package{}, err
	}
	want := debugPackage(release, b.t)
	for _, p := range lock[debugSet(b.t.name)] {
		if p.Name != want {
			continue
		}
		if err := b.room(p.Size); err != nil {
			return p, err
		}
		if err := b.fetchLocked(ctx, []Package{p}); err != nil {
			return p, err
		}
		if b.cache.check(p.Digest) == nil {
			return p, nil
		}
	}
	return b.debugFromIndex(ctx, want)
}

// debugFromIndex fetches it from the first suite that has it.
func (b *builder) debugFromIndex(ctx context.Context, want string) (Package, error) {
	var missed []error
	for _, of := range append([]debianSuite{trixie}, others...) {
		mirrors, known := b.mirrorsOf(of)
		if !known {
			continue
		}
		a, err := b.mirror(ctx, of, mirrors)
		if err == nil {
			var offers []offer
			if offers, err = a.exactly(ctx, []string{want}); err == nil {
				if err := b.room(offers[0].Size); err != nil {
					return Package{}, err
				}
				return offers[0].Package, b.download(ctx, a, offers)
			}
		}
		if ctx.Err() != nil {
			return Package{}, ctx.Err()
		}
		missed = append(missed, err)
	}
	return Package{}, fmt.Errorf("no mirror has %s: %w", want, errors.Join(oncePerCause(missed)...))
}

// oncePerCause leaves out what differs from an earlier error in what apt says of it alone: one mirror that cannot be reached has many suites.
func oncePerCause(all []error) []error {
	known := map[string]bool{}
	return slices.DeleteFunc(all, func(err error) bool {
		cause, _, _ := strings.Cut(err.Error(), " (E: ")
		again := known[cause]
		known[cause] = true
		return again
	})
}

// room says whether the cache has room for a package of so many bytes and what comes out of it.
func (b *builder) room(size int64) error {
	var s syscall.Statfs_t
	if err := syscall.Statfs(b.cache.dir, &s); err != nil {
		return fmt.Errorf("%s: %w", b.cache.dir, err)
	}
	if free, want := int64(s.Bavail)*s.Bsize, size+vmlinuxRoom; free < want {
		return fmt.Errorf("%s has %d MB left, and this takes %d MB while it is made, and %d MB afterwards: make room, or set XDG_CACHE_HOME", b.cache.dir, free/1e6, want/1e6, 20)
	}
	return nil
}

// vmlinux takes it out of the package, into dir.
func (b *builder) vmlinux(ctx context.Context, pkg Package, dir string) (*os.File, error) {
	b.say("unpacking vmlinux of %s", pkg.Name)
	f, err := os.Create(filepath.Join(dir, "vmlinux"))
	if err != nil {
		return nil, b.cache.unwritable(err)
	}
	err = packageFiles(ctx, b.cache.object(pkg.Digest), func(h *tar.Header, content io.Reader) error {
		if h.Typeflag != tar.TypeReg || !strings.HasPrefix(path.Base(h.Name), "vmlinux-") {
			return nil
		}
		if h.Size > vmlinuxRoom {
			return fmt.Errorf("%s has %d bytes", h.Name, h.Size)
		}
		if _, err := io.Copy(f, content); err != nil {
			return b.cache.unwritable(err)
		}
		return errEnough
	})
	if err == nil {
		if _, failed := elf.NewFile(f); failed != nil {
			err = fmt.Errorf("%s: no vmlinux in it: %w", pkg.Name, failed)
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
