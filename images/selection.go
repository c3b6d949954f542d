package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kerninst/agent/near"
)

// selection is which packages one image and its toolchain are made of. Once
// chosen for a lock, host, target and kernel it stays, so that the same
// command means the same image tomorrow.
type selection struct {
	Kernel    string    `json:"kernel"` // release without its architecture
	Guest     []Package `json:"guest"`
	Toolchain []Package `json:"toolchain"`
	Drift     []string  `json:"drift,omitempty"`
}

func (s *selection) all() []Package {
	return append(slices.Clone(s.Guest), s.Toolchain...)
}

// Where a kernel and its modules are, by the starts of packages' names, the first that there
// is. Since Linux 7.0 the package linux-image-VERSION does nothing but depend on the others.
var (
	kernelIn  = []string{"linux-binary-", "linux-image-"}
	modulesIn = []string{"linux-modules-", "linux-image-"}
)

// builtinsIn is where the list of what would be modules, and is built in, is since Linux 7.0;
// before, it is with the modules.
const builtinsIn = "linux-base-"

// guest finds a package of the target by the start of its name, the first of some.
func (s *selection) guest(prefixes ...string) (Package, error) {
	for _, prefix := range prefixes {
		for _, p := range s.Guest {
			if strings.HasPrefix(p.Name, prefix) {
				return p, nil
			}
		}
	}
	return Package{}, fmt.Errorf("images: no %s among the packages for the guest: "+
		"the lock file is incomplete; lab image build --refresh", strings.Join(prefixes, " or "))
}

// selectionOf is what the lock says for the pair; false if it says nothing.
func selectionOf(host string, t target, l Lock) (*selection, bool) {
	s := &selection{Guest: l[guestSet(t.name)], Toolchain: l[toolchainSet(host, t.name)]}
	for _, p := range s.Guest {
		if v, ok := releaseIn(p.Name, t); ok {
			s.Kernel = v
		}
	}
	return s, s.Kernel != "" && len(s.Toolchain) > 0
}

// matches says whether the user's word for a kernel (release, with or without
// architecture, the package's version, upstream's, or what that begins with, as 6.12)
// means this one. Of 6.1.0-50, whose package is 6.1.176-1, the latter says which it is.
func matches(word, release, version string, t target) bool {
	if slices.Contains([]string{release, release + "-" + t.name, version}, word) {
		return true
	}
	for _, of := range []string{release, version} {
		upstream, _, _ := strings.Cut(of, "+")
		upstream, _, _ = strings.Cut(upstream, "-")
		if word != "" && strings.HasPrefix(upstream+".", word+".") {
			return true
		}
	}
	return false
}

// choose finds the selection and sees to it that all its packages are cached.
func (b *builder) choose(ctx context.Context) (*selection, error) {
	lock, err := ReadLock(b.opt.Root)
	if err != nil {
		return nil, err
	}
	key := keyOf("1", b.host, b.t.name, b.opt.Kernel, Lock{
		guestSet(b.t.name):             lock[guestSet(b.t.name)],
		toolchainSet(b.host, b.t.name): lock[toolchainSet(b.host, b.t.name)],
	}.content())
	if s, _ := b.cached(key, lock); s != nil {
		return s, nil
	}
	if b.cache.look {
		return nil, ErrNotCached
	}
	unlock, err := b.cache.lock(ctx, "packages-"+key)
	if err != nil {
		return nil, err
	}
	defer unlock()
	s, missing := b.cached(key, lock)
	if s != nil {
		return s, nil
	}
	if b.opt.Offline {
		return nil, fmt.Errorf("images: offline, and the cache %s lacks %s for %s; run once with a network, or import a bundle",
			b.cache.dir, missing, b.t.name)
	}
	if s, ok := selectionOf(b.host, b.t, lock); ok && b.wants(s) {
		if err := b.fetchLocked(ctx, s.all()); err != nil {
			return nil, err
		}
		if s, _ := b.cached(key, lock); s != nil {
			return s, b.cache.store("packages", key, s)
		}
	}
	s, err = b.fetch(ctx, lock)
	if err != nil {
		return nil, err
	}
	return s, b.cache.store("packages", key, s)
}

// fetchLocked gets those of some locked packages that the cache lacks, by their paths. What
// vouches for their bytes is the lock, which is in version control, so no index is asked,
// which while an archive is updated may not fit. What is gone stays missing, for the index
// to say what there is instead; other bytes than the locked ones are an error.
func (b *builder) fetchLocked(ctx context.Context, pkgs []Package) error {
	uris, err := b.mirrors()
	if err != nil {
		return err
	}
	// By hash, what the first mirror says that knows of the file; nil: that it is gone.
	// The likely ones are asked first; behind them, anything may be at that path.
	answers := map[string]error{}
	for _, uri := range uris {
		want := b.missing(pkgs)
		if len(want) == 0 {
			return nil
		}
		a, err := newApt(ctx, b.cache, uri, trixie, b.host, b.t.name)
		if err != nil {
			return err
		}
		if err := b.fetchFrom(ctx, a, want, answers); err != nil {
			return err
		}
	}
	for _, p := range b.missing(pkgs) {
		if err := answers[p.SHA256]; err != nil {
			return err
		}
	}
	return nil
}

// missing are those of pkgs that the cache lacks and whose paths are known.
func (b *builder) missing(pkgs []Package) []Package {
	return slices.DeleteFunc(slices.Clone(pkgs), func(p Package) bool {
		return p.Path == "" || b.cache.check(p.Digest) == nil
	})
}

// fetchFrom caches what a mirror has of packages. What it says of the others it adds to
// answers, unless one is there; whether it can be asked at all is for the index to show.
func (b *builder) fetchFrom(ctx context.Context, a *apt, pkgs []Package, answers map[string]error) error {
	var size int64
	for _, p := range pkgs {
		size += p.Size
	}
	b.say("fetching %d locked packages, %d MB, from %s", len(pkgs), size/1e6, a.mirror)
	dir, err := b.cache.temp("debs")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	end := b.tellFetched(dir, size)
	failed, err := a.fetch(ctx, dir, pkgs)
	end()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		b.say("%v", err)
	}
	for _, p := range pkgs {
		name := filepath.Join(dir, p.SHA256)
		if sum, n, err := hashFile(name); err != nil || (Digest{sum, n}) != p.Digest {
			continue
		}
		if err := b.cache.adopt(name, p.Digest); err != nil {
			return err
		}
	}
	b.hear(a, b.missing(pkgs), failed, answers)
	return nil
}

// hear says how much of it a mirror did not give, with why for one, and keeps its answers.
func (b *builder) hear(a *apt, pkgs []Package, failed map[string]string, answers map[string]error) {
	for k, p := range pkgs {
		why := failed[p.SHA256]
		if k == 0 && why != "" {
			b.say("%s does not give %d of them, such as %s: %s", a.mirror, len(pkgs), p, why)
		}
		if _, known := answers[p.SHA256]; known {
			continue
		}
		switch {
		case gone.MatchString(why):
			answers[p.SHA256] = nil
		case otherBytes.MatchString(why):
			answers[p.SHA256] = fmt.Errorf("images: %s: what mirror %s has at %s is not what the lock file says, "+
				"SHA-256 %s and %d bytes (%s): not used; try another mirror (MIRROR=)", p, a.mirror, p.Path, p.SHA256, p.Size, why)
		}
	}
}

// cached is the selection for key if every package of it is in the cache,
// else what is missing.
func (b *builder) cached(key string, lock Lock) (s *selection, missing string) {
	s = new(selection)
	chosen := b.cache.load("packages", key, s) && s.Kernel != ""
	if chosen {
		// Whatever the entry says of itself, it is held against the lock.
		var err error
		if s.Drift, err = b.drift(lock, s); err != nil {
			name, _ := b.cache.path(false, "index", "packages", key)
			if b.cache.look {
				return nil, name
			}
			b.say("%s is damaged (%v): removed", name, err)
			os.Remove(name)
			chosen, s = false, new(selection)
		}
	}
	if !chosen {
		var ok bool
		if s, ok = selectionOf(b.host, b.t, lock); !ok || !b.wants(s) {
			return nil, "a list of packages"
		}
	}
	for _, p := range s.all() {
		if err := b.cache.check(p.Digest); err != nil {
			b.cache.discard(p.Digest, p.Name, err)
			return nil, p.String()
		}
	}
	return s, ""
}

// wants says whether the locked kernel is the one asked for.
func (b *builder) wants(s *selection) bool {
	if b.opt.Kernel == "" {
		return true
	}
	p, err := s.guest("linux-image-")
	return err == nil && matches(b.opt.Kernel, s.Kernel, p.Version, b.t)
}

// fetch asks the mirror for the packages, locked ones where it still has them,
// and downloads what the cache lacks.
func (b *builder) fetch(ctx context.Context, lock Lock) (*selection, error) {
	a, err := b.mirror(ctx, trixie, b.mirrors)
	var s *selection
	var offers []offer
	if err == nil {
		s, offers, err = b.resolve(ctx, a, lock)
	}
	if err != nil && b.elsewhereToo(err) {
		a, s, offers, err = b.elsewhere(ctx, lock, err)
	}
	if err != nil {
		return nil, err
	}
	if s.Drift, err = b.drift(lock, s); err != nil {
		return nil, err
	}
	for _, m := range s.Drift {
		b.say("lock file: %s", m)
	}
	return s, b.download(ctx, a, offers)
}

// drift says what of a selection is not as locked.
func (b *builder) drift(lock Lock, s *selection) ([]string, error) {
	if locked := lock.of(b.host, b.t.name); len(locked) > 0 {
		return compare(locked, s.all())
	}
	return []string{fmt.Sprintf("no packages are locked for %s on %s: the mirror's are used", b.t.name, b.host)}, nil
}

// mirror is the first that works of those that have a suite, its index up to date.
func (b *builder) mirror(ctx context.Context, of debianSuite, mirrors func() ([]string, error)) (*apt, error) {
	uris, err := mirrors()
	if err != nil {
		return nil, err
	}
	var failed []error
	for _, uri := range uris {
		a, err := newApt(ctx, b.cache, uri, of, b.host, b.t.name)
		if err != nil {
			return nil, err
		}
		b.say("reading the index of %s of %s", of.suite, uri)
		if err = b.update(ctx, a); err == nil {
			return a, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		failed = append(failed, err)
	}
	return nil, errors.Join(failed...)
}

// mirrors are the archives to try, in order.
func (b *builder) mirrors() ([]string, error) {
	if b.opt.Mirror != "" {
		return []string{strings.TrimRight(b.opt.Mirror, "/")}, nil
	}
	uris := hostMirrors("/etc/apt")
	if len(uris) == 0 {
		return nil, errors.New("images: the host's apt knows no archive: set MIRROR=http://mirror.example/debian or one nearer to you")
	}
	return uris, nil
}

// update is a.update while no other process uses the same state.
func (b *builder) update(ctx context.Context, a *apt) error {
	unlock, err := b.cache.lock(ctx, "apt-"+filepath.Base(a.dir))
	if err != nil {
		return err
	}
	defer unlock()
	return a.update(ctx)
}

// resolve picks the kernel and everything that goes with it.
func (b *builder) resolve(ctx context.Context, a *apt, lock Lock) (*selection, []offer, error) {
	kernel, err := b.kernel(ctx, a, lock)
	if err != nil {
		return nil, nil, err
	}
	guest, err := a.exactly(ctx, targetPackages(b.t, kernel))
	if err != nil {
		return nil, nil, err
	}
	tools, err := a.closure(ctx, toolchainPackages(b.host, b.t, kernel))
	if err != nil {
		return nil, nil, err
	}
	tools = slices.DeleteFunc(tools, func(o offer) bool {
		return slices.ContainsFunc(unused, func(u struct{ prefix, why string }) bool {
			return strings.HasPrefix(o.Name, u.prefix)
		})
	})
	s := &selection{Kernel: kernel, Guest: packagesOf(guest), Toolchain: packagesOf(tools)}
	return s, append(guest, tools...), nil
}

func packagesOf(offers []offer) (pkgs []Package) {
	for _, o := range offers {
		pkgs = append(pkgs, o.Package)
	}
	return sortPackages(pkgs)
}

func sortPackages(pkgs []Package) []Package {
	slices.SortFunc(pkgs, func(x, y Package) int { return strings.Compare(x.String(), y.String()) })
	return pkgs
}

// NoKernelError says that a mirror has no kernel of a version.
type NoKernelError struct {
	Version, Arch, Mirror string
	Known                 []suiteKernels
}

// suiteKernels are the releases of kernels that a suite has.
type suiteKernels struct {
	suite    string
	releases []string
	unread   bool // its index cannot be had
}

func (s suiteKernels) String() string {
	switch {
	case s.unread:
		return s.suite + " cannot be read"
	case len(s.releases) == 0:
		return s.suite + " has none"
	}
	return s.suite + " has " + strings.Join(s.releases, ", ")
}

func (e *NoKernelError) Error() string {
	var suites, all []string
	for _, s := range e.Known {
		suites, all = append(suites, s.String()), append(all, s.releases...)
	}
	return fmt.Sprintf("mirror %s has no kernel %s for %s: %s%s",
		e.Mirror, e.Version, e.Arch, strings.Join(suites, "; "), near.Hint(e.Version, all))
}

// kernel is the release to use: the one asked for, else the locked one, else
// Debian's current one.
func (b *builder) kernel(ctx context.Context, a *apt, lock Lock) (string, error) {
	have, err := a.kernels(ctx, b.t)
	if err != nil {
		return "", err
	}
	if b.opt.Kernel != "" {
		if release := newest(b.opt.Kernel, have, b.t); release != "" {
			return release, nil
		}
		return "", &NoKernelError{b.opt.Kernel, b.t.name, a.mirror, []suiteKernels{a.having(have)}}
	}
	if s, ok := selectionOf(b.host, b.t, lock); ok {
		if _, ok := have[s.Kernel]; ok {
			return s.Kernel, nil
		}
	}
	return a.current(ctx, b.t)
}

// download fetches the offers that the cache lacks.
func (b *builder) download(ctx context.Context, a *apt, offers []offer) error {
	var size int64
	want := slices.DeleteFunc(slices.Clone(offers), func(o offer) bool {
		err := b.cache.check(o.Digest)
		if err != nil {
			size += o.Size
		}
		return err == nil
	})
	if len(want) == 0 {
		return nil
	}
	b.say("fetching %d packages, %d MB, from %s", len(want), size/1e6, a.mirror)
	dir, err := b.cache.temp("debs")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	end := b.tellFetched(dir, size)
	err = a.download(ctx, dir, want)
	end()
	if err != nil {
		return err
	}
	for _, o := range want {
		name := filepath.Join(dir, o.file)
		sum, n, err := hashFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("images: apt did not fetch %s", o.Package)
		}
		if err != nil {
			return err
		}
		if got := (Digest{sum, n}); got != o.Digest {
			return fmt.Errorf("images: %s from %s has SHA-256 %s and %d bytes instead of %s and %d: not used",
				o.Package, a.mirror, got.SHA256, got.Size, o.SHA256, o.Size)
		}
		if err := b.cache.adopt(name, o.Digest); err != nil {
			return err
		}
	}
	return nil
}

// Refresh rewrites the lock file of the repository with what the mirror has
// now: Debian's current kernel for every target, and toolchains for every host
// in lockedHosts. It reports what changed.
func Refresh(ctx context.Context, opt Options) error {
	lock := Lock{}
	for _, host := range lockedHosts {
		for _, t := range targets {
			opt.Arch = t.name
			b, err := newBuilder(opt)
			if err != nil {
				return err
			}
			b.host = host
			a, err := b.mirror(ctx, trixie, b.mirrors)
			if err != nil {
				return err
			}
			s, _, err := b.resolve(ctx, a, nil)
			if err != nil {
				return err
			}
			lock[guestSet(t.name)] = s.Guest
			lock[toolchainSet(host, t.name)] = s.Toolchain
			b.say("%s on %s: kernel %s, %d packages", t.name, host, s.Kernel, len(s.all()))
			debug, err := a.exactly(ctx, []string{debugPackage(s.Kernel, t)})
			if err != nil {
				return err
			}
			lock[debugSet(t.name)] = packagesOf(debug)
			for name, w := range softwares {
				if w.host && !slices.Contains(lockedHosts, t.name) {
					continue
				}
				offers, err := a.exactly(ctx, w.of(t.name))
				if err != nil {
					return err
				}
				lock[softwareSet(name, t.name)] = packagesOf(offers)
			}
		}
	}
	return writeFile(filepath.Join(opt.Root, LockFile), lock.format(), 0o644)
}
