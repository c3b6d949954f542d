package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// brokenMirror is a mirror whose index is broken.
type brokenMirror struct {
	*httptest.Server
	pool  map[string]string // what files hold, by their escaped paths; of others it knows nothing
	mute  bool              // it breaks off instead of answering
	mu    sync.Mutex
	asked []string
}

func newBrokenMirror(t *testing.T, pool map[string]string) *brokenMirror {
	a := &brokenMirror{pool: pool}
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

func (a *brokenMirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.EscapedPath(), "/debian/")
	a.mu.Lock()
	a.asked = append(a.asked, path)
	a.mu.Unlock()
	text, ok := a.pool[path]
	switch {
	case a.mute:
		panic(http.ErrAbortHandler)
	case ok:
		io.WriteString(w, text)
	case strings.HasPrefix(path, "dists/"):
		io.WriteString(w, "half of an index")
	default:
		http.NotFound(w, r)
	}
}

// askedFor says whether an address that begins so was asked for.
func (a *brokenMirror) askedFor(prefix string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.asked, func(p string) bool { return strings.HasPrefix(p, prefix) })
}

// inArchive is a package of a lock whose file holds text.
func inArchive(name, text, path string) Package {
	sum := sha256.Sum256([]byte(text))
	return Package{name, "6.12.1-1", "arm64", Digest{hex.EncodeToString(sum[:]), int64(len(text))}, path}
}

// lockedArchive is a repository whose lock names files of an archive, and that archive's pool.
func lockedArchive(t *testing.T) (opt Options, pkgs []Package, pool map[string]string) {
	t.Helper()
	pkgs = []Package{
		inArchive("busybox-static", "busybox", "pool/busybox.deb"),
		inArchive("linux-image-6.12.1+deb13-arm64", "kernel", "pool/linux-6.12.1%2bdeb13.deb"),
		inArchive("make", "make", "pool/make.deb"),
	}
	pool = map[string]string{}
	for k, text := range []string{"busybox", "kernel", "make"} {
		pool[pkgs[k].Path] = text
	}
	root := t.TempDir()
	name := filepath.Join(root, LockFile)
	l := Lock{guestSet("arm64"): pkgs[:2], toolchainSet(hostArch(), "arm64"): pkgs[2:]}
	must(t, os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, l.format(), 0o644))
	return Options{Arch: "arm64", Root: root}, pkgs, pool
}

// What is locked is had by its path; the index is asked only for what is gone. These run
// apt itself.
func TestLockedWithoutIndex(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(a *brokenMirror, opt *Options, pkgs []Package)
		had    int    // of the three packages
		index  bool   // it is asked
		err    string // in the error; empty: none
	}{
		"all is there":     {func(*brokenMirror, *Options, []Package) {}, 3, false, ""},
		"one is gone":      {func(a *brokenMirror, _ *Options, p []Package) { delete(a.pool, p[1].Path) }, 2, true, "mirror"},
		"the first is":     {func(a *brokenMirror, _ *Options, p []Package) { delete(a.pool, p[0].Path) }, 2, true, "mirror"},
		"other bytes":      {func(a *brokenMirror, _ *Options, p []Package) { a.pool[p[1].Path] = "Kernel" }, 2, false, "linux-image-6.12.1+deb13-arm64 6.12.1-1 arm64: what mirror"},
		"other length":     {func(a *brokenMirror, _ *Options, p []Package) { a.pool[p[0].Path] = "busybox2" }, 2, false, "not used; try another mirror"},
		"no answer":        {func(a *brokenMirror, _ *Options, _ []Package) { a.mute = true }, 0, true, "cannot be reached"},
		"a locked kernel":  {func(_ *brokenMirror, o *Options, _ []Package) { o.Kernel = "6.12.1" }, 3, false, ""},
		"another kernel":   {func(_ *brokenMirror, o *Options, _ []Package) { o.Kernel = "6.12.2" }, 0, true, "mirror"},
		"without network":  {func(_ *brokenMirror, o *Options, _ []Package) { o.Offline = true }, 0, false, "offline"},
		"nothing for ISA":  {func(_ *brokenMirror, o *Options, _ []Package) { o.Arch = "riscv64" }, 0, true, "mirror"},
		"a slash too many": {func(_ *brokenMirror, o *Options, _ []Package) { o.Mirror += "/" }, 3, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := testCache(t)
			opt, pkgs, pool := lockedArchive(t)
			a := newBrokenMirror(t, pool)
			opt.Mirror = a.URL + "/debian"
			tt.change(a, &opt, pkgs)
			err := choose(t, opt)
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("choose: %v, want %q", err, tt.err)
			}
			if a.askedFor("dists/") != tt.index || a.mute && a.askedFor(pkgs[1].Path) {
				t.Errorf("asked for %q", a.asked)
			}
			if got := cachedOf(c, pkgs); got != tt.had {
				t.Errorf("%d packages are cached, want %d", got, tt.had)
			}
			opt.Offline = true
			if err := choose(t, opt); tt.err == "" && err != nil {
				t.Errorf("afterwards, offline: %v", err)
			}
		})
	}
}

// cachedOf counts the packages that are cached, with the right bytes.
func cachedOf(c *cache, pkgs []Package) (n int) {
	for _, p := range pkgs {
		if c.verify(p.Digest) == nil {
			n++
		}
	}
	return n
}

// A mirror in a folder keeps its files as they are, and the cache has copies.
func TestLockedInFolder(t *testing.T) {
	c, _ := testCache(t)
	opt, pkgs, pool := lockedArchive(t)
	dir := t.TempDir()
	opt.Mirror = "file://" + dir
	must(t, os.Mkdir(filepath.Join(dir, "pool"), 0o755))
	for path, text := range pool {
		must(t, os.WriteFile(filepath.Join(dir, strings.ReplaceAll(path, "%2b", "+")), []byte(text), 0o640))
	}
	must(t, choose(t, opt))
	for _, p := range pkgs {
		there, err := os.Lstat(filepath.Join(dir, strings.ReplaceAll(p.Path, "%2b", "+")))
		must(t, err)
		here, err := os.Lstat(c.object(p.Digest))
		must(t, err)
		if there.Mode() != 0o640 || here.Mode() != 0o444 {
			t.Errorf("%s is %v in the folder and %v in the cache", p, there.Mode(), here.Mode())
		}
	}
	must(t, os.Remove(filepath.Join(dir, "pool", "make.deb")), os.Remove(c.object(pkgs[2].Digest)))
	if err := choose(t, opt); err == nil || !strings.Contains(err.Error(), "has no Debian trixie") {
		t.Errorf("one is gone: %v, want that the index is asked", err)
	}
}

// Of several mirrors, a later one gives what an earlier one has not; what it says of a file
// counts only if no earlier one knew anything of it.
func TestLockedOfSeveralMirrors(t *testing.T) {
	c, _ := testCache(t)
	opt, pkgs, pool := lockedArchive(t)
	first := newBrokenMirror(t, map[string]string{pkgs[0].Path: "other"})
	second := newBrokenMirror(t, map[string]string{pkgs[0].Path: pool[pkgs[0].Path], pkgs[1].Path: "a page for all", pkgs[2].Path: "other"})
	b, err := newBuilder(opt)
	must(t, err)
	answers := map[string]error{}
	for _, m := range []*brokenMirror{first, second} {
		a, err := newApt(context.Background(), c, m.URL+"/debian", trixie, b.host, b.t.name)
		must(t, err, b.fetchFrom(context.Background(), a, b.missing(pkgs), answers))
	}
	refused, known := answers[pkgs[1].SHA256]
	if c.check(pkgs[0].Digest) != nil || !known || refused != nil || cachedOf(c, pkgs) != 1 {
		t.Errorf("%d packages are cached, answers %v", cachedOf(c, pkgs), answers)
	}
}

// A choice that a lab without paths has cached or exported is as good as one with them.
func TestPathsDoNotCount(t *testing.T) {
	_, pkgs, _ := lockedArchive(t)
	l := Lock{"set": pkgs}
	old := slices.Clone(pkgs)
	for k := range old {
		old[k].Path = ""
	}
	const want = `# Debian packages that guests and their toolchains are made of.
# Written by "lab image build --refresh"; do not edit.
# package version architecture size sha256 sets
make 6.12.1-1 arm64 4 ` + sumA + ` a,b
`
	p := Package{"make", "6.12.1-1", "arm64", Digest{sumA, 4}, "pool/make.deb"}
	if got := (Lock{"b": {p}, "a": {p}}).content(); got != want {
		t.Errorf("choices are kept by %q, not as before by %q", got, want)
	}
	drift, err := compare(pkgs, old)
	if others := l.lacks(old); len(others) > 0 || len(drift) > 0 || err != nil {
		t.Errorf("without paths, %v are not locked, drift %q, %v", others, drift, err)
	}
	old[0].Size++
	if others := l.lacks(old); len(others) != 1 {
		t.Errorf("of another length, %v are not locked, want one", others)
	}
}
