package plain

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Whatever stands in for a file is refused at once, and a long file is not read on.
func TestOnlyPlainFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		put        func(path string) error
		read, here bool // or it is refused
	}{
		"file":   {func(p string) error { return os.Link(file, p) }, true, true},
		"link":   {func(p string) error { return os.Symlink(file, p) }, true, false},
		"pipe":   {func(p string) error { return syscall.Mkfifo(p, 0o600) }, false, false},
		"folder": {func(p string) error { return os.Mkdir(p, 0o700) }, false, false},
		"device": {func(p string) error { return os.Symlink("/dev/zero", p) }, false, false},
	} {
		path := filepath.Join(dir, "a "+name)
		if err := tt.put(path); err != nil {
			t.Fatal(err)
		}
		for how, f := range map[string]struct {
			read func(string, int64) ([]byte, error)
			want bool
		}{"Read": {Read, tt.read}, "ReadHere": {ReadHere, tt.here}} {
			b, err := f.read(path, 7)
			var not *NotPlainError
			if f.want && (err != nil || string(b) != "content") || !f.want && !errors.As(err, &not) {
				t.Errorf("%s of a %s: %q, %v", how, name, b, err)
			}
		}
	}
	var long *TooLongError
	if b, err := Read(file, 6); !errors.As(err, &long) {
		t.Errorf("a file of 7 bytes, where 6 are allowed: %q, %v", b, err)
	}
	if _, err := Open(file + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
