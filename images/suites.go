package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// debianSuite is a suite of Debian's, as its Release names it and where it is from.
type debianSuite struct{ suite, origin string }

// trixie is the Debian release that guests and toolchains come from.
var trixie = debianSuite{"trixie", "Debian"}

// others are where a kernel is looked for that trixie does not have, in this order: those
// built for trixie come first. Nothing but the kernel comes from there.
var others = []debianSuite{
	{"trixie-security", "Debian"},
	{"trixie-backports", "Debian Backports"},
	{"bookworm", "Debian"},
	{"bookworm-security", "Debian"},
	{"bookworm-backports", "Debian Backports"},
	{"forky", "Debian"},
	{"sid", "Debian"},
}

// elsewhereToo says whether a kernel is to be looked for in other suites when trixie failed
// like this: it has none, or its index does not fit its Release, as while a mirror is
// updated. What keeps a mirror from being asked at all would keep the others too.
func (b *builder) elsewhereToo(err error) bool {
	var none *NoKernelError
	return b.opt.Kernel != "" && (errors.As(err, &none) || otherBytes.MatchString(err.Error()))
}

// elsewhere finds the kernel asked for in the first of the other suites that has it.
// What came of trixie is in missing.
func (b *builder) elsewhere(ctx context.Context, lock Lock, missing error) (*apt, *selection, []offer, error) {
	none := &NoKernelError{Version: b.opt.Kernel, Arch: b.t.name}
	if !errors.As(missing, &none) {
		b.say("%v", missing)
		none.Known = []suiteKernels{{suite: trixie.suite, unread: true}}
	}
	for _, of := range others {
		mirrors, known := b.mirrorsOf(of)
		if !known {
			continue
		}
		a, have, err := b.kernelsOf(ctx, of, mirrors)
		if ctx.Err() != nil {
			return nil, nil, nil, ctx.Err()
		}
		if err != nil {
			b.say("%v", err)
			none.Known = append(none.Known, suiteKernels{suite: of.suite, unread: true})
			continue
		}
		if release := newest(b.opt.Kernel, have, b.t); release != "" {
			b.say("kernel %s is of %s", release, of.suite)
			s, offers, err := b.withKernel(ctx, a, lock, release)
			return a, s, offers, err
		}
		none.Known = append(none.Known, a.having(have))
		none.Mirror = cmp.Or(none.Mirror, a.mirror)
	}
	if none.Mirror == "" { // no suite could be read
		return nil, nil, nil, missing
	}
	return nil, nil, nil, none
}

// mirrorsOf are the archives that may have a suite. Those of security updates are the
// host's; if it has none, they are not known.
func (b *builder) mirrorsOf(of debianSuite) (mirrors func() ([]string, error), known bool) {
	if !isSecurity(of.suite) {
		return b.mirrors, true
	}
	uris := securityMirrors("/etc/apt")
	return func() ([]string, error) { return uris, nil }, b.opt.Mirror == "" && len(uris) > 0
}

// kernelsOf are the kernels of a suite, with the apt that can fetch them.
func (b *builder) kernelsOf(ctx context.Context, of debianSuite, mirrors func() ([]string, error)) (*apt, map[string]string, error) {
	a, err := b.mirror(ctx, of, mirrors)
	if err != nil {
		return nil, nil, err
	}
	have, err := a.kernels(ctx, b.t)
	return a, have, err
}

// having is for people, from the oldest to the newest.
func (a *apt) having(have map[string]string) suiteKernels {
	return suiteKernels{suite: a.of.suite, releases: slices.SortedFunc(maps.Keys(have), compareReleases)}
}

// newest is the newest of the releases that a word means; empty: it means none.
func newest(word string, have map[string]string, t target) (best string) {
	for release, version := range have {
		if matches(word, release, version, t) && (best == "" || compareReleases(release, best) > 0) {
			best = release
		}
	}
	return best
}

var number = regexp.MustCompile(`[0-9]+`)

// compareReleases orders releases by the numbers in them.
func compareReleases(a, b string) int {
	return slices.CompareFunc(number.FindAllString(a, -1), number.FindAllString(b, -1), func(x, y string) int {
		m, _ := strconv.Atoi(x)
		n, _ := strconv.Atoi(y)
		return cmp.Compare(m, n)
	})
}

// withKernel is what is locked, or else trixie's, with the kernel of another suite in the
// place of its own.
func (b *builder) withKernel(ctx context.Context, a *apt, lock Lock, release string) (*selection, []offer, error) {
	base, err := b.withoutKernel(ctx, lock)
	if err != nil {
		return nil, nil, err
	}
	needs, err := a.kernelNeeds(ctx, b.t, release)
	if err != nil {
		return nil, nil, err
	}
	target, err := a.named(ctx, needs.target)
	if err != nil {
		return nil, nil, err
	}
	host, err := a.named(ctx, needs.host)
	if err != nil {
		return nil, nil, err
	}
	if err := a.runsIn(ctx, base, needs.host[0]); err != nil {
		return nil, nil, err
	}
	s := &selection{
		Kernel:    release,
		Guest:     sortPackages(append(base.Guest, packagesOf(target)...)),
		Toolchain: sortPackages(append(base.Toolchain, packagesOf(host)...)),
	}
	return s, append(target, host...), nil
}

// withoutKernel is what guest and toolchain are made of but for the kernel and its headers,
// and sees to it that it is cached. Trixie's index is asked only for what is not locked or
// gone: it may be what cannot be read.
func (b *builder) withoutKernel(ctx context.Context, lock Lock) (*selection, error) {
	s, ok := selectionOf(b.host, b.t, lock)
	s = s.bare()
	if ok {
		if err := b.fetchLocked(ctx, s.all()); err != nil {
			return nil, err
		}
		if n, _ := b.lacks(s); n == 0 {
			return s, nil
		}
	}
	usual := *b
	usual.opt.Kernel = ""
	a, err := b.mirror(ctx, trixie, b.mirrors)
	if err != nil {
		return nil, err
	}
	s, offers, err := usual.resolve(ctx, a, lock)
	if err != nil {
		return nil, err
	}
	offers = slices.DeleteFunc(offers, func(o offer) bool { return isKernels(o.Package) })
	return s.bare(), b.download(ctx, a, offers)
}

// bare leaves out what belongs to a kernel.
func (s *selection) bare() *selection {
	return &selection{
		Guest:     slices.DeleteFunc(slices.Clone(s.Guest), isKernels),
		Toolchain: slices.DeleteFunc(slices.Clone(s.Toolchain), isKernels),
	}
}

// kernelPackages are how the names of packages begin that belong to one kernel.
var kernelPackages = []string{"linux-image-", "linux-binary-", "linux-modules-", "linux-base-", "linux-headers-", "linux-kbuild-"}

func isKernels(p Package) bool {
	return slices.ContainsFunc(kernelPackages, func(prefix string) bool { return strings.HasPrefix(p.Name, prefix) })
}

// kernelNeeds are the packages of a kernel, as apt names them: for the target, and for the
// host, whose first is kbuild.
type kernelNeeds struct{ target, host []string }

// kernelNeeds follows what the image and the headers depend on, as far as that is of the
// same kernel: which packages it is in differs by version, and kbuild's name too (6.1).
func (a *apt) kernelNeeds(ctx context.Context, t target, release string) (kernelNeeds, error) {
	roots := []string{imagePackage(t, release), "linux-headers-" + release + "-" + t.name}
	var of kernelNeeds
	for k, name := range roots {
		roots[k] = name + ":" + t.name
	}
	described, err := a.show(ctx, roots...)
	if err != nil {
		return of, err
	}
	of = needsOf(described, roots, release, a.host, a.target)
	if len(of.host) == 0 || !strings.HasPrefix(of.host[0], "linux-kbuild-") {
		err = fmt.Errorf("images: mirror %s: %s of %s depends on no linux-kbuild package: the module cannot be built for it", a.mirror, roots[1], a.of.suite)
	}
	return of, err
}

// needsOf reads the descriptions of a kernel's image and headers, the roots. Since Linux
// 6.12 the headers may depend on the image.
func needsOf(described []map[string]string, roots []string, release, host, target string) (of kernelNeeds) {
	of.target = slices.Clone(roots)
	for _, s := range described {
		for _, dep := range strings.Split(s["depends"], ",") {
			name, _, _ := strings.Cut(strings.TrimSpace(dep), " ")
			switch {
			case !isKernels(Package{Name: name}):
			case strings.HasPrefix(name, "linux-kbuild-"):
				of.host = append([]string{name + ":" + host}, of.host...)
			case !strings.Contains(name, release):
			case strings.HasSuffix(name, "-common"): // for all architectures
				of.host = append(of.host, name)
			case !slices.Contains(of.target, name+":"+target):
				of.target = append(of.target, name+":"+target)
			}
		}
	}
	return of
}

// libcNeeded is in what a package depends on.
var libcNeeded = regexp.MustCompile(`\blibc6 \(>= ([^)]+)\)`)

// runsIn checks that the toolchain's C library is new enough for kbuild's programs.
func (a *apt) runsIn(ctx context.Context, s *selection, kbuild string) error {
	described, err := a.show(ctx, kbuild)
	if err != nil {
		return err
	}
	return s.runs(ctx, kbuild, described[0]["depends"], a)
}

// runs is the refusal of kbuild that depends on these packages.
func (s *selection) runs(ctx context.Context, kbuild, depends string, a *apt) error {
	needed := libcNeeded.FindStringSubmatch(depends)
	k := slices.IndexFunc(s.Toolchain, func(p Package) bool { return p.Name == "libc6" && p.Arch == a.host })
	if needed == nil || k < 0 {
		return nil
	}
	if exec.CommandContext(ctx, "dpkg", "--compare-versions", s.Toolchain[k].Version, "ge", needed[1]).Run() == nil {
		return nil
	}
	return fmt.Errorf("images: %s of %s needs libc6 %s, the toolchain's of %s is %s: the module cannot be built for this kernel",
		kbuild, a.of.suite, needed[1], trixie.suite, s.Toolchain[k].Version)
}
