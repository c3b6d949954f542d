package report

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"kerninst/lab/card"
)

// What no run writes is neither waited for nor followed.
func TestOnlyPlainFilesAreRead(t *testing.T) {
	for name, make := range map[string]func(string) error{
		"pipe":   func(f string) error { return syscall.Mkfifo(f, 0o600) },
		"link":   func(f string) error { return os.Symlink("/etc/hostname", f) },
		"folder": func(f string) error { return os.Mkdir(f, 0o700) },
	} {
		dir := t.TempDir()
		for _, f := range []string{card.JSONFile, ResultsFile, "console.log"} {
			if err := make(filepath.Join(dir, f)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := ReadCards(dir); err == nil || !strings.Contains(err.Error(), "not a plain file") {
			t.Errorf("%s: cards: %v", name, err)
		}
		if _, err := ReadArch(dir); err == nil || !strings.Contains(err.Error(), "not a plain file") {
			t.Errorf("%s: results: %v", name, err)
		}
		if got := consoleTail(filepath.Join(dir, "console.log")); len(got) != 1 || got[0] != "(console.log cannot be read)" {
			t.Errorf("%s: console: %q", name, got)
		}
	}
}
