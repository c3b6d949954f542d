package libvirt

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// A file that its QEMU has removed is not there, whatever else goes on in the pool.
func TestRemovedElsewhere(t *testing.T) {
	_, pool, ways := elsewhere(t)
	v, err := openVolumes(soon(t), reach(t, ways["unix"]), "kerninst-x")
	if err != nil {
		t.Fatal(err)
	}
	defer v.close()
	if err := v.Await(soon(t), "f"); err != nil {
		t.Fatal(err)
	}
	if b, err := v.Read(soon(t), "f", 0, 1); err != nil || len(b) > 0 {
		t.Errorf("an empty file: %q, %v", b, err)
	}
	if err := os.Remove(filepath.Join(pool, "kerninst-x.f")); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Read(soon(t), "f", 0, 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that was removed: %v", err)
	}
	if _, err := v.Read(soon(t), "g", 0, 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that never was: %v", err)
	}
	if err := v.Remove(soon(t), "f"); err != nil {
		t.Errorf("removed again: %v", err)
	}
}
