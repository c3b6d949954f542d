package images

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is not built yet is named, or said to be unknown; the cache stays as it is.
func TestForesee(t *testing.T) {
	c, _ := testCache(t)
	opt, pkgs := lockedRepo(t, c)
	chosen := &selection{Kernel: "6.13.2+deb13", Guest: []Package{{"linux-image-6.13.2+deb13-arm64", "6.13.2-1", "arm64", Digest{strings.Repeat("a", 64), 5e6}, ""}}}
	must(t, c.store("packages", strings.Repeat("0", 64), chosen), os.Remove(c.object(pkgs[2].Digest)))
	before := namesBelow(t, c.dir)
	for word, want := range map[string]struct{ release, says string }{
		"":                   {"6.12.1+deb13", "kernel 6.12.1+deb13: 1 packages"},
		"6.12.1":             {"6.12.1+deb13", "1 packages"},
		"6.12.1-1":           {"6.12.1+deb13", "1 packages"},
		"6.12.1+deb13-arm64": {"6.12.1+deb13", "1 packages"},
		"6.13.2":             {"6.13.2+deb13", "1 packages, 5 MB, are not cached"},
		"9.9.9":              {"", "kernel 9.9.9 is not known here (the lock file and earlier runs have 6.12.1+deb13, 6.13.2+deb13): the mirror would be asked"},
		"6.13.3+deb13":       {"", "did you mean 6.13.2+deb13?"},
	} {
		opt.Kernel = word
		f, err := Foresee(opt)
		if err != nil || f.Release != want.release || !strings.Contains(f.String(word), want.says) {
			t.Errorf("kernel %q: %+v, %v: %q, want %+v", word, f, err, f.String(word), want)
		}
	}
	if after := namesBelow(t, c.dir); after != before {
		t.Errorf("the cache was %s and is %s", before, after)
	}
	for _, word := range []string{";rm", "frob", "6", "-1.2", "6.12 1", "6.12.1\n", "v6.12.1"} {
		opt.Kernel = word
		var none *NoVersionError
		if _, err := Foresee(opt); !errors.As(err, &none) {
			t.Errorf("kernel %q: %v, want a refusal", word, err)
		}
	}
}

// namesBelow lists what is below a folder.
func namesBelow(t *testing.T, dir string) (all string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		all += name + "\n"
		return err
	}))
	return all
}
