package daemon

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFindPCI(t *testing.T) {
	root := t.TempDir()
	for name, id := range map[string][2]string{
		"0000:00:00.0": {"0x1b36\n", "0x0008\n"},
		"0000:00:01.0": {"0x1af4\n", "0x1043\n"},
		"0000:00:02.0": {"0x1af4\n", "0x1110\n"},
	} {
		dir := filepath.Join(root, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for i, file := range []string{"vendor", "device"} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(id[i]), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir, err := findPCI(root, 0x1af4, 0x1110)
	if err != nil || filepath.Base(dir) != "0000:00:02.0" {
		t.Errorf("got %s, %v", dir, err)
	}
	if dir, err := findPCI(root, 0x1af4, 0x1111); err == nil {
		t.Errorf("got %s for a device that is not there", dir)
	}
}
