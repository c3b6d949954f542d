package untrusted

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Whatever stands in for a file: nothing outside is read or written.
func TestNothingElseIsOpened(t *testing.T) {
	for name, put := range map[string]func(secret, path string) error{
		"symbolic link": os.Symlink,
		"hard link":     os.Link,
		"pipe":          func(_, p string) error { return syscall.Mkfifo(p, 0o600) },
		"folder":        func(_, p string) error { return os.Mkdir(p, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			secret, path := filepath.Join(dir, "secret"), filepath.Join(dir, "file")
			if err := errors.Join(os.WriteFile(secret, []byte("secret"), 0o600), put(secret, path)); err != nil {
				t.Fatal(err)
			}
			if b, err := Read(path, 100); err == nil {
				t.Errorf("read %q", b)
			}
			if f, err := OpenToWrite(path); err == nil {
				f.Close()
				t.Error("opened for writing")
			}
			f, err := Create(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString("mine"); err != nil {
				t.Fatal(err)
			}
			f.Close()
			if b, _ := os.ReadFile(secret); string(b) != "secret" {
				t.Errorf("the file behind it is now %q", b)
			}
			if b, err := Read(path, 3); string(b) != "min" || err != nil {
				t.Errorf("own file: %q, %v", b, err)
			}
		})
	}
}
