package images

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"kerninst/agent/near"
)

// versionForm is what versions of Debian's kernels are made of: a release, with or
// without its architecture, an upstream or a package's version.
var versionForm = regexp.MustCompile(`^[0-9]+(\.[0-9]+)+[0-9A-Za-z.+~-]*$`)

// NoVersionError says that a word names no kernel that could be anywhere.
type NoVersionError struct{ Word string }

func (e *NoVersionError) Error() string {
	return fmt.Sprintf("%q is neither a folder that is here nor a version, as 6.12.94 or 6.12.94+deb13", e.Word)
}

// Foreseen is what is known of a kernel that is not built yet, without a network.
type Foreseen struct {
	Release string   // of the packages that will be used; empty: they are not known here
	Known   []string // releases that the lock file and earlier runs name
	Fetch   int      // packages of them that are not cached
	Bytes   int64    // that those have
}

// Foresee looks for the kernel of opt in the lock file and among the choices that the
// cache has. Like Options.Look, it makes and removes nothing.
func Foresee(opt Options) (f Foreseen, err error) {
	opt.Look = true
	b, err := newBuilder(opt)
	if err != nil {
		return f, err
	}
	lock, err := ReadLock(b.opt.Root)
	if err != nil {
		return f, err
	}
	var candidates []*selection
	if s, ok := selectionOf(b.host, b.t, lock); ok {
		candidates = append(candidates, s)
	}
	candidates = append(candidates, b.cache.chosen(b.t)...)
	for _, s := range candidates {
		f.Known = append(f.Known, s.Kernel)
		if f.Release == "" && b.wants(s) {
			f.Release = s.Kernel
			f.Fetch, f.Bytes = b.lacks(s)
		}
	}
	slices.Sort(f.Known)
	f.Known = slices.Compact(f.Known)
	return f, nil
}

// lacks counts the packages of a selection that are not cached, and their bytes.
func (b *builder) lacks(s *selection) (n int, bytes int64) {
	for _, p := range s.all() {
		if b.cache.check(p.Digest) != nil {
			n, bytes = n+1, bytes+p.Size
		}
	}
	return n, bytes
}

// String is for people: what a run would fetch of a kernel of this name, in which
// nothing stands for the locked one.
func (f Foreseen) String(word string) string {
	if isBuildDir(word) {
		return fmt.Sprintf("the kernel in %s would be used, with %d packages, %d MB, that are not cached", word, f.Fetch, f.Bytes/1e6)
	}
	switch {
	case f.Release == "" && word == "":
		return "the lock file has no kernel: Debian's current one would be fetched"
	case f.Release == "":
		return fmt.Sprintf("kernel %s is not known here (the lock file and earlier runs have %s%s): the mirror would be asked for it",
			word, strings.Join(f.Known, ", "), near.Hint(word, f.Known))
	case f.Fetch > 0:
		return fmt.Sprintf("kernel %s: %d packages, %d MB, are not cached and would be fetched", f.Release, f.Fetch, f.Bytes/1e6)
	}
	return fmt.Sprintf("kernel %s: its packages are cached, and would be built", f.Release)
}
