package images

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Entry is something in the cache, for people to look at.
type Entry struct {
	Kind string `json:"kind"` // package, toolchain, or the step that made it
	Name string `json:"name"`
	Path string `json:"path"`
	Size int64  `json:"size"` // bytes
}

// List says what is cached: packages of the lock file and of earlier choices,
// unpacked toolchains, and everything built. It reads names and lengths only.
func List(opt Options) ([]Entry, error) {
	c, lock, err := storeOf(opt)
	if err != nil {
		return nil, err
	}
	var all []Entry
	seen := map[string]bool{}
	add := func(kind, name string, d Digest) {
		if c.check(d) == nil && !seen[d.SHA256+name] {
			seen[d.SHA256+name] = true
			all = append(all, Entry{kind, name, c.object(d), d.Size})
		}
	}
	for _, pkgs := range c.choices(lock) {
		for _, p := range pkgs {
			add("package", p.String(), p.Digest)
		}
	}
	indexes, _ := filepath.Glob(filepath.Join(c.dir, "index", "*", "*"))
	for _, name := range indexes {
		kind := filepath.Base(filepath.Dir(name))
		var made files
		if kind != "packages" && c.load(kind, filepath.Base(name), &made) {
			for _, n := range sortedNames(made) {
				add(kind, n+" "+filepath.Base(name)[:12], made[n])
			}
		}
	}
	trees, _ := filepath.Glob(filepath.Join(c.dir, "tree", "*"))
	for _, dir := range trees {
		all = append(all, Entry{"toolchain", filepath.Base(dir)[:12], dir, diskUse(dir)})
	}
	slices.SortFunc(all, func(a, b Entry) int {
		return strings.Compare(a.Kind+" "+a.Name+" "+a.Path, b.Kind+" "+b.Name+" "+b.Path)
	})
	return all, nil
}

func storeOf(opt Options) (*cache, Lock, error) {
	say := opt.Progress
	if say == nil {
		say = func(string, ...any) {}
	}
	c, err := openCache(say)
	if err != nil {
		return nil, nil, err
	}
	lock, err := ReadLock(opt.Root)
	return c, lock, err
}

// Kernels lists the releases whose packages are cached for opt.Arch: those that
// Options.Kernel can name without a network.
func Kernels(opt Options) ([]string, error) {
	c, lock, err := storeOf(opt)
	if err != nil {
		return nil, err
	}
	t, err := targetOf(opt.Arch)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, pkgs := range c.choices(lock) {
		for _, p := range pkgs {
			if v, ok := releaseIn(p.Name, t); ok && c.check(p.Digest) == nil && !slices.Contains(out, v) {
				out = append(out, v)
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// choices are all lists of packages that the lock or an earlier run has chosen,
// by the name of the index entry; the lock's have the names of their sets.
func (c *cache) choices(lock Lock) map[string][]Package {
	all := maps.Clone(lock)
	names, _ := filepath.Glob(filepath.Join(c.dir, "index", "packages", "*"))
	for _, name := range names {
		var s selection
		if c.load("packages", filepath.Base(name), &s) {
			all[filepath.Base(name)] = s.all()
		}
	}
	return all
}

// chosen are the choices of earlier runs for an ISA, in an order that stays.
func (c *cache) chosen(t target) (all []*selection) {
	names, _ := filepath.Glob(filepath.Join(c.dir, "index", "packages", "*"))
	for _, name := range names {
		s := new(selection)
		if !c.load("packages", filepath.Base(name), s) || s.Kernel == "" {
			continue
		}
		if _, err := s.guest(imagePackage(t, s.Kernel)); err == nil {
			all = append(all, s)
		}
	}
	return all
}

func diskUse(dir string) (bytes int64) {
	filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				bytes += info.Size()
			}
		}
		return nil
	})
	return bytes
}

// ErrNotCached is what a step gives that may not run.
var ErrNotCached = errors.New("images: not cached")

// GC removes what the current sources and lock file do not need and what is
// older than age. It returns the bytes freed. While a lab uses the cache, it
// removes nothing and says so.
func GC(ctx context.Context, opt Options, age time.Duration) (freed int64, err error) {
	c, _, err := storeOf(opt)
	if err != nil {
		return 0, err
	}
	lock, err := c.tryFlock(inUse, syscall.LOCK_EX)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return 0, fmt.Errorf("images: a lab is using the cache %s: try again when it has ended", c.dir)
	} else if err != nil {
		return 0, err
	}
	defer lock.Close()
	used := newFound()
	opt.Offline = true
	for _, arch := range Arches() {
		opt.Arch = arch
		b, err := newBuilder(opt)
		if err != nil {
			return 0, err
		}
		b.cache.used = used
		// What cannot be had without building is not there to be kept.
		if err := b.trace(ctx); err != nil && ctx.Err() != nil {
			return 0, err
		}
	}
	c.keepMade(used, "plugin")
	c.keepMade(used, "debug")
	oldest := time.Now().Add(-age)
	for _, pattern := range []string{"sha256/??/*", "index/*/*", "tree/*", "tmp/*"} {
		names, _ := filepath.Glob(filepath.Join(c.dir, pattern))
		for _, name := range names {
			info, err := os.Lstat(name)
			if err != nil || used.paths[name] || info.ModTime().After(oldest) {
				continue
			}
			size := info.Size()
			if info.IsDir() {
				size = diskUse(name)
			}
			if err := os.RemoveAll(name); err != nil {
				return freed, c.unwritable(err)
			}
			freed += size
		}
	}
	return freed, nil
}

// keepMade notes all that was made of a kind, which is a few small objects: the emulators' plugins,
// which depend on the installed QEMU; what was made of debugging information, which takes a
// gigabyte to make again.
func (c *cache) keepMade(used *found, kind string) {
	names, _ := filepath.Glob(filepath.Join(c.dir, "index", kind, "*"))
	for _, name := range names {
		var made files
		if c.load(kind, filepath.Base(name), &made) {
			used.add(name)
			for _, d := range made {
				used.add(c.object(d))
			}
		}
	}
}

// trace goes the way of ensure through the cache, which notes what is used,
// without making anything.
func (b *builder) trace(ctx context.Context) error {
	sel, err := b.choose(ctx)
	if err != nil {
		return err
	}
	b.cache.used.add(filepath.Join(b.cache.dir, "tree", b.treeKey(sel)))
	guest, err1 := b.unpack(ctx, sel)
	native, err2 := b.native(ctx, sel)
	gob, err3 := b.programs(ctx, goPrograms)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	for name := range softwares {
		_, err := b.software(ctx, name)
		if err != nil && !errors.Is(err, ErrNotCached) {
			return err
		}
	}
	_, err = b.base(ctx, guest, gob.files, native)
	return err
}

// maxMember bounds one member of a bundle, in bytes.
const maxMember = 2 << 30

// bundleName is what a bundle may contain: objects, and choices of packages.
var bundleName = regexp.MustCompile(`^(sha256/[0-9a-f]{2}|index/packages)/[0-9a-f]{64}$`)

// Export writes the packages for the architectures to w, as a tar archive that
// Import reads on a machine without a network.
func Export(ctx context.Context, opt Options, arches []string, w io.Writer) error {
	out := tar.NewWriter(w)
	done := map[string]bool{}
	for _, arch := range arches {
		opt.Arch = arch
		b, err := newBuilder(opt)
		if err != nil {
			return err
		}
		if err := b.cache.use(ctx); err != nil {
			return err
		}
		b.cache.used = newFound()
		if _, err := b.choose(ctx); err != nil {
			return err
		}
		for name := range softwares {
			// Notes what of it is there; who has never run it does without.
			if _, err := b.softwarePackages(ctx, name); err != nil && !errors.Is(err, ErrNotCached) {
				return err
			}
		}
		for _, name := range slices.Sorted(maps.Keys(b.cache.used.paths)) {
			rel, err := filepath.Rel(b.cache.dir, name)
			if err != nil || done[rel] || !bundleName.MatchString(rel) {
				continue
			}
			done[rel] = true
			if err := exportFile(out, name, rel); err != nil {
				return fmt.Errorf("images: export: %w", err)
			}
		}
	}
	return out.Close()
}

func exportFile(out *tar.Writer, name, rel string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := out.WriteHeader(&tar.Header{Name: rel, Mode: 0o444, Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(out, f)
	return err
}

// BundleError says what is wrong with a bundle.
type BundleError struct{ Err error }

func (e *BundleError) Error() string { return e.Err.Error() }
func (e *BundleError) Unwrap() error { return e.Err }

func badBundle(format string, args ...any) error { return &BundleError{fmt.Errorf(format, args...)} }

// Import puts a bundle into the cache. Every object is checked against its
// name. A bundle whose maker's mirror had other packages than the lock file says
// which they are; nothing here vouches for those, so they are refused unless
// trusted is set. What is wrong with the bundle is a *BundleError.
func Import(ctx context.Context, opt Options, r io.Reader, trusted bool) (objects int, err error) {
	c, lock, err := storeOf(opt)
	if err == nil {
		err = c.use(ctx)
	}
	if err != nil {
		return 0, err
	}
	for in := tar.NewReader(r); ; objects++ {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return objects, badBundle("images: the bundle cannot be read: %w", err)
		}
		if h.Typeflag != tar.TypeReg || !bundleName.MatchString(h.Name) {
			return objects, badBundle("images: the bundle holds %q, which no export writes", h.Name)
		}
		key := filepath.Base(h.Name)
		if h.Size > maxMember {
			return objects, badBundle("images: the bundle holds %q of %d bytes: more than any package has", h.Name, h.Size)
		}
		if strings.HasPrefix(h.Name, "index/") {
			err = c.importChoice(key, in, lock, trusted)
		} else {
			err = c.importObject(key, in)
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = badBundle("the bundle ends in the middle of it: %w", err)
		}
		if err != nil {
			return objects, fmt.Errorf("images: bundle: %s: %w", h.Name, err)
		}
	}
}

func (c *cache) importObject(sum string, r io.Reader) error {
	d, err := c.put(r)
	if err == nil && d.SHA256 != sum {
		// Under its true name it does no harm, and GC will find it.
		err = badBundle("its SHA-256 is %s: the bundle is damaged", d.SHA256)
	}
	return err
}

func (c *cache) importChoice(key string, r io.Reader, lock Lock, trusted bool) error {
	b, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil {
		return err
	}
	var s selection
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(&s); err != nil || s.Kernel == "" {
		return badBundle("not a choice of packages: %v", err)
	}
	if others := lock.lacks(s.all()); len(others) > 0 && !trusted {
		return badBundle("it wants %s and %d more that the lock file does not have: import it with --trust if you trust its maker",
			others[0], len(others)-1)
	}
	return c.store("packages", key, &s)
}
