package images

import (
	"archive/tar"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// lockedRepo is a repository whose lock asks for a few packages, which c has.
func lockedRepo(t *testing.T, c *cache) (opt Options, pkgs []Package) {
	t.Helper()
	guest := []Package{
		{"linux-image-6.12.1+deb13-arm64", "6.12.1-1", "arm64", mustPut(t, c, "kernel")},
		{"busybox-static", "1", "arm64", mustPut(t, c, "busybox")},
	}
	tools := []Package{{"make", "1", "all", mustPut(t, c, "make")}}
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
	n, err := Import(opt, bytes.NewReader(bundle.Bytes()))
	if err != nil || n != 3 {
		t.Fatalf("Import = %d, %v, want 3", n, err)
	}
	if err := choose(t, opt); err != nil {
		t.Errorf("after import: %v", err)
	}
	bad := bytes.Replace(bundle.Bytes(), []byte("busybox"), []byte("busyfox"), 1)
	if _, err := Import(opt, bytes.NewReader(bad)); err == nil || !strings.Contains(err.Error(), "damaged") {
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
		if _, err := Import(Options{}, &b); err == nil || !strings.Contains(err.Error(), "no export writes") {
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
