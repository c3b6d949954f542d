package libvirt

import (
	"os"
	"path/filepath"
	"testing"
)

// What a file has is read each time, whichever of libvirtd's threads is faster, and libvirtd lets go
// of the file.
func TestStreams(t *testing.T) {
	t.Parallel()
	d, pool, ways := elsewhere(t)
	for name, uri := range ways {
		v, err := openVolumes(soon(t), reach(t, uri), "kerninst-x")
		if err != nil {
			t.Fatal(err)
		}
		defer v.close()
		if err := v.Await(soon(t), "f"); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(filepath.Join(pool, "kerninst-x.f"), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		const times, line = 1000, "hello\n"
		before := d.Open(t)
		for i := range times {
			if _, err := f.WriteString(line); err != nil {
				t.Fatal(err)
			}
			b, err := v.Read(soon(t), "f", int64(i*len(line)), 100)
			if err != nil || string(b) != line {
				t.Fatalf("%s: read %q the %dth time, %v", name, b, i+1, err)
			}
		}
		if n := d.Open(t); n > before+10 {
			t.Errorf("%s: libvirtd has %d files open, %d before", name, n, before)
		}
	}
}
