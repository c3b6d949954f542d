package libvirt

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kerninst/lab/qemu/qemutest"
)

// A file that its QEMU has removed is not there, whatever else goes on in the pool.
func TestRemovedElsewhere(t *testing.T) {
	_, folder, ways := elsewhere(t)
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
	if err := os.Remove(filepath.Join(folder, "kerninst-x.f")); err != nil {
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

// What lies in a pool and was not finished is gone on from; what is there is not sent again.
func TestPush(t *testing.T) {
	_, folder, ways := elsewhere(t)
	v, err := openVolumes(soon(t), reach(t, ways["tls"]), "kerninst-x")
	if err != nil {
		t.Fatal(err)
	}
	defer v.close()
	text := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MiB
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	push := func() (name string) {
		t.Helper()
		err := v.with(soon(t), func(p *pool) (err error) { name, err = p.push(soon(t), file, 0); return err })
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Join(folder, name)
	}
	there := push()
	half := append(append([]byte(nil), text[:100]...), make([]byte, len(text)-100)...)
	whole := there + wholeSuffix
	for name, tt := range map[string]struct {
		remove string
		want   []byte
	}{"whole": {"", half}, "cut off": {whole, text}} {
		if err := os.WriteFile(there, half, 0o600); err != nil {
			t.Fatal(err)
		}
		if tt.remove != "" {
			if err := v.with(soon(t), func(p *pool) error { return p.remove(soon(t), filepath.Base(tt.remove)) }); err != nil {
				t.Fatal(err)
			}
		}
		push()
		if got, err := os.ReadFile(there); err != nil || !bytes.Equal(got, tt.want) {
			t.Errorf("%s: %.20q, %v, want %.20q", name, got, err, tt.want)
		}
	}
}

// A file that does not fit is refused before any of it is sent, with what can be done.
func TestPoolFull(t *testing.T) {
	_, folder, ways := elsewhere(t)
	v, err := openVolumes(soon(t), reach(t, ways["unix"]), "kerninst-x")
	if err != nil {
		t.Fatal(err)
	}
	defer v.close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var full *PoolError
	err = v.with(soon(t), func(p *pool) error { return p.room(soon(t), file, 1<<50) })
	if !errors.As(err, &full) || !strings.Contains(err.Error(), "is full") || !strings.Contains(err.Error(), contentPrefix) {
		t.Errorf("%v", err)
	}
	if err := v.with(soon(t), func(p *pool) error { return p.room(soon(t), file, 1) }); err != nil {
		t.Errorf("a byte: %v", err)
	}
	if left := others(t, folder); len(left) > 0 {
		t.Errorf("the pool has %q", left)
	}
}

// What a killed lab has left is removed once it is old, and nothing else is.
func TestSweepAbandoned(t *testing.T) {
	_, folder, ways := elsewhere(t)
	b := reach(t, ways["unix"])
	m := begin(t, b, guest(t, "riscv64", "", qemutest.Hang))
	v, err := openVolumes(soon(t), b, "kerninst-x")
	if err != nil {
		t.Fatal(err)
	}
	defer v.close()
	const dead = "kerninst-aaaaaaaaaaaaaaaaaaaaaaaaaa.results"
	mine := "kerninst-mine.raw"
	alive := len(others(t, folder))
	sweep := func(later time.Duration) (left []string) {
		t.Helper()
		err := v.with(soon(t), func(p *pool) error {
			for _, name := range []string{dead, mine} {
				if _, err := p.make(soon(t), name, 0); err != nil {
					return err
				}
			}
			return p.sweepAbandoned(soon(t), time.Now().Add(later))
		})
		if err != nil {
			t.Fatal(err)
		}
		return others(t, folder)
	}
	if left := sweep(0); len(left) != alive+2 {
		t.Errorf("at once: %q", left)
	}
	if left := sweep(2 * abandoned); len(left) != alive+1 || !slices.Contains(left, mine) || slices.Contains(left, dead) {
		t.Errorf("later: %q", left)
	}
	m.Kill()
	end(t, m)
}
