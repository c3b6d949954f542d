package images

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// lockedRepo is a repository whose lock asks for a few packages, which c has.
func lockedRepo(t *testing.T, c *cache) (opt Options, pkgs []Package) {
	t.Helper()
	guest := []Package{
		{"linux-image-6.12.1+deb13-arm64", "6.12.1-1", "arm64", mustPut(t, c, "kernel"), ""},
		{"busybox-static", "1", "arm64", mustPut(t, c, "busybox"), ""},
	}
	tools := []Package{{"make", "1", "all", mustPut(t, c, "make"), ""}}
	l := Lock{guestSet("arm64"): guest, toolchainSet(hostArch(), "arm64"): tools}
	root := t.TempDir()
	name := filepath.Join(root, LockFile)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, l.format(), 0o644); err != nil {
		t.Fatal(err)
	}
	return Options{Arch: "arm64", Root: root, Offline: true}, append(guest, tools...)
}

func choose(t *testing.T, opt Options) error {
	t.Helper()
	b, err := newBuilder(opt)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.choose(context.Background())
	return err
}

func TestOfflineFromCache(t *testing.T) {
	c, _ := testCache(t)
	opt, pkgs := lockedRepo(t, c)
	if err := choose(t, opt); err != nil {
		t.Fatalf("with all packages: %v", err)
	}
	opt.Kernel = "6.12.2"
	if err := choose(t, opt); err == nil || !strings.Contains(err.Error(), "offline") {
		t.Errorf("with another kernel: %v, want an error", err)
	}
	opt.Kernel = "6.12.1"
	if err := choose(t, opt); err != nil {
		t.Errorf("with the locked kernel by name: %v", err)
	}
	overwrite(t, c, pkgs[1].Digest, "busy")
	if err := choose(t, opt); err == nil || !strings.Contains(err.Error(), "busybox-static") {
		t.Errorf("with a truncated package: %v, want an error that names it", err)
	}
}

func TestBundle(t *testing.T) {
	c, _ := testCache(t)
	opt, _ := lockedRepo(t, c)
	var bundle bytes.Buffer
	if err := Export(context.Background(), opt, []string{"arm64"}, &bundle); err != nil {
		t.Fatal(err)
	}
	testCache(t) // another, empty one
	if err := choose(t, opt); err == nil {
		t.Fatal("an empty cache has all packages")
	}
	n, err := Import(context.Background(), opt, bytes.NewReader(bundle.Bytes()), false)
	if err != nil || n != 3 {
		t.Fatalf("Import = %d, %v, want 3", n, err)
	}
	if err := choose(t, opt); err != nil {
		t.Errorf("after import: %v", err)
	}
	bad := bytes.Replace(bundle.Bytes(), []byte("busybox"), []byte("busyfox"), 1)
	if _, err := Import(context.Background(), opt, bytes.NewReader(bad), false); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("Import of a changed bundle = %v, want an error", err)
	}
}

func TestImportRefusesNames(t *testing.T) {
	for _, name := range []string{"../etc/passwd", "/etc/passwd", "sha256/aa/../../x", "index/go/" + sumA, "tree/" + sumA} {
		testCache(t)
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: 0}); err != nil {
			t.Fatal(err)
		}
		w.Close()
		if _, err := Import(context.Background(), Options{}, &b, false); err == nil || !strings.Contains(err.Error(), "no export writes") {
			t.Errorf("Import of %q = %v, want a refusal", name, err)
		}
	}
}

func TestVerifyAndGC(t *testing.T) {
	c, _ := testCache(t)
	opt, pkgs := lockedRepo(t, c)
	old := mustPut(t, c, "of last year")
	overwrite(t, c, pkgs[0].Digest, "colonel")
	overwrite(t, c, pkgs[0].Digest, "Kernel")
	n, damaged, err := Verify(context.Background(), opt)
	if err != nil || n != 4 || len(damaged) != 1 || !strings.Contains(damaged[0].Error(), pkgs[0].SHA256) {
		t.Errorf("Verify = %d, %v, %v, want 4 objects, the kernel's damaged", n, damaged, err)
	}
	if freed, err := GC(context.Background(), opt, time.Hour); freed != 0 || err != nil {
		t.Errorf("GC of what is new = %d, %v, want 0", freed, err)
	}
	freed, err := GC(context.Background(), opt, -time.Hour)
	if err != nil || freed != old.Size || fileExists(c.object(old)) || !fileExists(c.object(pkgs[1].Digest)) {
		t.Errorf("GC = %d, %v, want %d and only the unlocked object gone", freed, err, old.Size)
	}
}

func TestList(t *testing.T) {
	c, _ := testCache(t)
	opt, _ := lockedRepo(t, c)
	got, err := List(opt)
	if err != nil || len(got) != 3 || got[0].Name != "busybox-static 1 arm64" || got[0].Size != 7 {
		t.Errorf("List = %v, %v, want three packages, busybox first", got, err)
	}
}

func TestAtLeast(t *testing.T) {
	tests := []struct {
		have, want string
		ok         bool
	}{
		{"7.2.22", "7.2", true}, {"7.2", "7.2", true}, {"10.0", "7.2", true}, {"7.10", "7.2", true},
		{"7.1.9", "7.2", false}, {"6.9", "7.2", false}, {"7", "7.2", false}, {"", "7.2", false}, {"x.y", "7.2", false},
	}
	for _, tt := range tests {
		if got := atLeast(tt.have, tt.want); got != tt.ok {
			t.Errorf("atLeast(%q, %q) = %v, want %v", tt.have, tt.want, got, tt.ok)
		}
	}
}

// deb makes a package of a few files and puts it into the cache.
func deb(t *testing.T, c *cache, name string, content map[string]string) Package {
	t.Helper()
	return Package{name, "1", "all", mustPut(t, c, makeDeb(t, name, content)), ""}
}

// makeDeb makes a package of a few files.
func makeDeb(t *testing.T, name string, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	content["DEBIAN/control"] = "Package: " + name + "\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@example.org>\nDescription: test\n"
	for path, text := range content {
		p := filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.Chmod(dir, 0o755)); err != nil {
			t.Fatal(err)
		}
		err := os.WriteFile(p, []byte(text), 0o644)
		if to, ok := strings.CutPrefix(text, "-> "); ok {
			err = errors.Join(os.Remove(p), os.Symlink(to, p))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(t.TempDir(), "deb")
	if text, err := exec.Command("dpkg-deb", "--root-owner-group", "-Znone", "-b", dir, out).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A toolchain that was changed after it was unpacked is found, whatever was done.
func TestVerifyTree(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(root string) error
		want   string
	}{
		"nothing":   {func(string) error { return nil }, ""},
		"a build":   {func(r string) error { return os.WriteFile(r+"/build/x", nil, 0o644) }, ""},
		"truncated": {func(r string) error { return os.Truncate(r+"/usr/bin/make", 2) }, "usr/bin/make is not what its package holds"},
		"tampered":  {func(r string) error { return os.WriteFile(r+"/usr/bin/make", []byte("fake"), 0o644) }, "usr/bin/make is not what its package holds"},
		"mode":      {func(r string) error { return os.Chmod(r+"/usr/bin/make", 0o755) }, "usr/bin/make has mode -rwxr-xr-x"},
		"removed":   {func(r string) error { return os.Remove(r + "/usr/bin/make") }, "1 of its 3 files are missing"},
		"added":     {func(r string) error { return os.WriteFile(r+"/usr/bin/a", nil, 0o644) }, "usr/bin/a is of no package"},
		"link": {func(r string) error {
			return errors.Join(os.Remove(r+"/usr/bin/gmake"), os.Symlink("sh", r+"/usr/bin/gmake"))
		}, "usr/bin/gmake leads elsewhere"},
		"not a file": {func(r string) error {
			return errors.Join(os.Remove(r+"/usr/bin/make"), os.Symlink("gmake", r+"/usr/bin/make"))
		}, "usr/bin/make leads elsewhere"},
		"merged root": {func(r string) error { return errors.Join(os.Remove(r+"/bin"), os.Symlink("usr/sbin", r+"/bin")) }, "bin leads elsewhere"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := testCache(t)
			sel := &selection{Kernel: "1", Toolchain: []Package{
				deb(t, c, "base-files", map[string]string{"bin": "-> usr/bin"}),
				deb(t, c, "make", map[string]string{"usr/bin/make": "make", "usr/bin/gmake": "-> make"}),
			}}
			b := &builder{t: targets[1], cache: c, say: c.say}
			root, err := b.tree(context.Background(), sel)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(c.store("packages", sumA, sel), tt.change(root.Path)); err != nil {
				t.Fatal(err)
			}
			_, damaged, err := Verify(context.Background(), Options{Root: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case tt.want == "" && len(damaged) > 0:
				t.Errorf("found %v", damaged)
			case tt.want != "" && (len(damaged) != 1 || !strings.Contains(damaged[0].Error(), tt.want) || !strings.Contains(damaged[0].Error(), root.Path+" in the cache is damaged")):
				t.Errorf("found %v, want %q", damaged, tt.want)
			}
		})
	}
}

// What a choice of packages says is held against the lock whenever it is used.
func TestChoiceAgainstTheLock(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(s *selection, other Digest)
		trust  bool
		want   string // in the error of Import; empty: none
	}{
		"as locked":              {func(*selection, Digest) {}, false, ""},
		"other bytes":            {func(s *selection, d Digest) { s.Guest[1].Digest = d }, false, "busybox-static 1 arm64 and 0 more"},
		"other version":          {func(s *selection, d Digest) { s.Guest[1].Version, s.Guest[1].Digest = "2", d }, false, "--trust"},
		"other version, trusted": {func(s *selection, d Digest) { s.Guest[1].Version, s.Guest[1].Digest = "2", d }, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := testCache(t)
			opt, pkgs := lockedRepo(t, c)
			other := mustPut(t, c, "evil")
			s := &selection{Kernel: "6.12.1+deb13", Guest: slices.Clone(pkgs[:2]), Toolchain: pkgs[2:]}
			tt.change(s, other)
			text, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			var bundle bytes.Buffer
			w := tar.NewWriter(&bundle)
			err = w.WriteHeader(&tar.Header{Name: "index/packages/" + sumA, Mode: 0o644, Size: int64(len(text))})
			_, err2 := w.Write(text)
			if err := errors.Join(err, err2, w.Close()); err != nil {
				t.Fatal(err)
			}
			_, err = Import(context.Background(), opt, &bundle, tt.trust)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Import = %v, want %q", err, tt.want)
			}
		})
	}
	// An entry that was changed in the cache itself.
	c, said := testCache(t)
	opt, pkgs := lockedRepo(t, c)
	lock, err := ReadLock(opt.Root)
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBuilder(opt)
	if err != nil {
		t.Fatal(err)
	}
	b.say = c.say
	s := &selection{Kernel: "6.12.1+deb13", Guest: slices.Clone(pkgs[:2]), Toolchain: pkgs[2:]}
	s.Guest[1].Digest = mustPut(t, c, "evil")
	if err := c.store("packages", sumA, s); err != nil {
		t.Fatal(err)
	}
	if got, missing := b.cached(sumA, lock); got == nil || !slices.Contains(got.Guest, pkgs[1]) {
		t.Errorf("cached = %v, lacks %q, want what is locked", got, missing)
	}
	if len(*said) != 1 || !strings.Contains((*said)[0], "damaged") {
		t.Errorf("said %q", *said)
	}
}

// Bundles that would write elsewhere, be something else than a file, or never end.
func TestImportRefusesMembers(t *testing.T) {
	good := "sha256/" + sumA[:2] + "/" + sumA
	for name, tt := range map[string]struct {
		headers []tar.Header
		want    string
	}{
		"absolute":              {[]tar.Header{{Name: "/" + good}}, "no export writes"},
		"up":                    {[]tar.Header{{Name: "../" + good}}, "no export writes"},
		"up in the middle":      {[]tar.Header{{Name: "sha256/../../" + sumA}}, "no export writes"},
		"link, then through it": {[]tar.Header{{Name: "sha256/aa", Typeflag: tar.TypeSymlink, Linkname: "/etc"}, {Name: good}}, "no export writes"},
		"link as an object":     {[]tar.Header{{Name: good, Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}}, "no export writes"},
		"hard link":             {[]tar.Header{{Name: good, Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}}, "no export writes"},
		"device":                {[]tar.Header{{Name: good, Typeflag: tar.TypeBlock, Devmajor: 8}}, "no export writes"},
		"pipe":                  {[]tar.Header{{Name: good, Typeflag: tar.TypeFifo}}, "no export writes"},
		"folder":                {[]tar.Header{{Name: good, Typeflag: tar.TypeDir}}, "no export writes"},
		"huge":                  {[]tar.Header{{Name: good, Size: 1 << 50}}, "more than"},
		"not what it is called": {[]tar.Header{{Name: good}}, "damaged"},
		"cut short":             {[]tar.Header{{Name: good, Size: 1000}}, "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := testCache(t)
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			for _, h := range tt.headers {
				h.Mode = 0o644
				if err := w.WriteHeader(&h); err != nil {
					t.Fatal(err)
				}
			}
			w.Flush()
			if _, err := Import(context.Background(), Options{}, &b, false); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Import = %v, want %q", err, tt.want)
			}
			if left, _ := os.ReadDir(filepath.Join(c.dir, "tmp")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			err := filepath.WalkDir(filepath.Dir(c.dir), func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.Type()&^fs.ModeDir != 0 {
					t.Errorf("%s is %v", path, d.Type())
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}
