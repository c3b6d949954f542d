package libvirt

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"kerninst/lab/qemu/qemutest"
	"kerninst/lab/vm"
)

// opened are the files of a machine on another host, and the folder where they are there.
func opened(t *testing.T, way string) (v *volumes, folder string) {
	t.Helper()
	_, folder, ways := elsewhere(t)
	v, err := openVolumes(soon(t), reach(t, ways[way]), "kerninst-x")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.close)
	return v, folder
}

// A file that its QEMU has removed is not there, whatever else goes on in the pool.
func TestRemovedElsewhere(t *testing.T) {
	t.Parallel()
	v, folder := opened(t, "unix")
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

// What was looked up and has gone since is said to be gone, and is there again when it is made again.
func TestGoneSince(t *testing.T) {
	t.Parallel()
	v, _ := opened(t, "unix")
	for _, text := range []string{"first", "the second time"} {
		if err := v.Give(soon(t), "file", []byte(text)); err != nil {
			t.Fatal(err)
		}
		size, err := v.size(soon(t), "file")
		if b, failed := v.Read(soon(t), "file", 0, 100); err != nil || failed != nil || size != int64(len(text)) || string(b) != text {
			t.Fatalf("%d bytes, %v; %q, %v", size, err, b, failed)
		}
		if err := v.Remove(soon(t), "file"); err != nil {
			t.Fatal(err)
		}
		_, err = v.size(soon(t), "file")
		_, read := v.Read(soon(t), "file", 0, 100)
		for _, err := range []error{err, read, v.Write(soon(t), "file", []byte("third"))} {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("of what is gone: %v", err)
			}
		}
	}
}

// What lies in a pool and was not finished is gone on from; what is there is not sent again.
func TestPush(t *testing.T) {
	t.Parallel()
	v, folder := opened(t, "tls")
	text := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MiB
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	push := func() (name string) {
		t.Helper()
		err := v.with(soon(t), func(p *pool) (err error) { name, err = p.push(soon(t), file, 0, ""); return err })
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

// What is in a file of which that is said is not read when the pool has it, and held against what was said when it is sent.
func TestPushOfSum(t *testing.T) {
	t.Parallel()
	v, folder := opened(t, "unix")
	text := []byte("what there is")
	file := filepath.Join(t.TempDir(), "file")
	push := func(text []byte, sum string) (name string, err error) {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		v.sums = map[string]string{file: sum}
		return v.push(soon(t), file, gap)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(text))
	other := bytes.ToUpper(text)
	for _, wrong := range []string{"short", "longer than what there is"} {
		if name, err := push([]byte(wrong), sum); err == nil || !strings.Contains(err.Error(), "it was changed") {
			t.Errorf("%s: %s, %v", wrong, name, err)
		}
	}
	if name, err := push(other, sum); err == nil || !strings.Contains(err.Error(), "it was changed") {
		t.Errorf("another content: %s, %v", name, err)
	}
	for _, text := range [][]byte{text, other} { // the second time nobody reads it
		name, err := push(text, sum)
		if err != nil || name != contentName(sum, gap) {
			t.Fatal(name, err)
		}
		if there, err := os.ReadFile(filepath.Join(folder, name)); err != nil || string(there[gap:]) != "what there is" {
			t.Errorf("%.20q, %v", there[gap:], err)
		}
	}
	if name, err := push([]byte("short"), sum); err == nil || !strings.Contains(err.Error(), "it was changed") {
		t.Errorf("less than is there: %s, %v", name, err)
	}
	if there, err := os.ReadFile(filepath.Join(folder, contentName(sum, gap))); err != nil || string(there[gap:]) != "what there is" {
		t.Errorf("what is whole was written to: %.20q, %v", there[gap:], err)
	}
	if name, err := push(text, ""); err != nil || name != contentName(sum, gap) {
		t.Errorf("where nothing is said: %s, %v", name, err)
	}
}

// A file that does not fit is refused before any of it is sent, with what can be done.
func TestPoolFull(t *testing.T) {
	t.Parallel()
	v, folder := opened(t, "unix")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var full *PoolError
	err := v.with(soon(t), func(p *pool) error { return p.room(soon(t), file, 1<<50) })
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
	t.Parallel()
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

// fileOf is a file of the lab's with so many bytes.
func fileOf(t *testing.T, size int, fill byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, bytes.Repeat([]byte{fill}, size), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// What several send at once each has whole.
func TestPushAtOnce(t *testing.T) {
	t.Parallel()
	_, folder, ways := elsewhere(t)
	for round := range 4 {
		file := fileOf(t, 24<<20, byte(round+1))
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				v, err := openVolumes(soon(t), reach(t, ways["unix"]), fmt.Sprintf("kerninst-x%d", i)) // each as a lab of its own
				if err != nil {
					t.Error(err)
					return
				}
				defer v.close()
				time.Sleep(time.Duration(i*round) * 3 * time.Millisecond) // so that some come while others are at it
				name, err := v.push(soon(t), file, gap)
				if err != nil {
					t.Errorf("round %d, %d: %v", round, i, err)
					return
				}
				got, err := os.ReadFile(filepath.Join(folder, name))
				if err != nil || len(got) < gap || !bytes.Equal(got[gap:], want) {
					t.Errorf("round %d, %d: %d bytes, %v", round, i, len(got), err)
				}
			})
		}
		all.Wait()
	}
}

// failing is a disk that is full.
type failing struct{}

var errFull = errors.New("no space left")

func (failing) Write([]byte) (int, error) { return 0, errFull }

// Whoever has no room for what comes is told so, and goes on.
func TestReceiveWithoutRoom(t *testing.T) {
	t.Parallel()
	v, _ := opened(t, "unix")
	if err := v.Give(soon(t), "big", bytes.Repeat([]byte{7}, 40<<20)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := v.receive(soon(t), "big", failing{}, 0, 0); !errors.Is(err, errFull) {
			t.Errorf("%v, want that there is no room", err)
		}
		if b, err := v.Read(soon(t), "big", 20<<20, 1); err != nil || string(b) != "\x07" {
			t.Errorf("behind it: %q, %v", b, err)
		}
	}
	if b, err := v.Read(soon(t), "big", 0, 100); err != nil || len(b) != 100 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// What is marked as whole and is not there is sent again.
func TestMarkerAlone(t *testing.T) {
	t.Parallel()
	_, _, ways := elsewhere(t)
	b := reach(t, ways["unix"])
	s := guest(t, "riscv64", "", qemutest.Hang)
	v, err := openVolumes(soon(t), b, "kerninst-x")
	if err != nil {
		t.Fatal(err)
	}
	defer v.close()
	there, err := v.images(soon(t), s)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.with(soon(t), func(p *pool) error { return p.remove(soon(t), filepath.Base(there.Kernel)) }); err != nil {
		t.Fatal(err)
	}
	m := begin(t, b, s)
	m.Kill()
	end(t, m)
}

// What a disk took without room for it is not taken for sent.
func TestTorn(t *testing.T) {
	t.Parallel()
	v, folder := opened(t, "unix")
	if err := v.Await(soon(t), "f"); err != nil {
		t.Fatal(err)
	}
	// A device that takes everything and has nothing stands for the disk.
	file := filepath.Join(folder, v.volume("f"))
	if err := errors.Join(os.Remove(file), os.Symlink("/dev/null", file)); err != nil {
		t.Fatal(err)
	}
	if err := v.Write(soon(t), "f", []byte("text")); err == nil {
		t.Error("it was taken for sent")
	}
}

// A plugin has reported when its file ends as it says; of one that does not say how, nobody knows.
func TestReported(t *testing.T) {
	t.Parallel()
	v, _ := opened(t, "unix")
	for name, text := range map[string]string{"none": "", "part": "1\ndone", "whole": "1\ndone\n", "short": "\n"} {
		if err := v.Give(soon(t), name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		files, end string
		want       bool
	}{
		{"", "done\n", true},
		{"none", "done\n", false},
		{"part", "done\n", false},
		{"short", "done\n", false},
		{"whole", "done\n", true},
		{"whole", "", false},
		{"whole part", "done\n", false},
		{"part whole", "done\n", false},
		{"missing", "done\n", false},
	} {
		m := &machine{remote: v, mirror: &mirror{}}
		for _, out := range strings.Fields(tt.files) {
			m.mirror.reports = append(m.mirror.reports, vm.Plugin{Out: out, End: tt.end})
		}
		if got := m.reported(); got != tt.want {
			t.Errorf("%q, which end with %q: %v", tt.files, tt.end, got)
		}
	}
}

// What a file has grown by is copied, and no more, be it one byte.
func TestPiece(t *testing.T) {
	t.Parallel()
	v, folder := opened(t, "unix")
	m := &mirror{files: v, dir: t.TempDir()}
	for text, at := "", int64(0); len(text) < 3; text += "x" {
		if err := v.Await(soon(t), "f"); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, v.volume("f")), []byte(text), 0o600); err != nil { // as QEMU does
			t.Fatal(err)
		}
		for _, want := range []int64{int64(len(text)) - at, 0} {
			n, err := m.piece("f", at)
			if err != nil || int64(n) != want {
				t.Errorf("%d bytes from %d on: %d, %v", len(text), at, n, err)
			}
			at += int64(n)
		}
	}
	if got, err := os.ReadFile(filepath.Join(m.dir, "f")); err != nil || string(got) != "xx" {
		t.Errorf("there is %q, %v", got, err)
	}
}

// A file that begins as a disk does is copied to its end, whatever libvirt takes for its size.
func TestPieceOfADisk(t *testing.T) {
	t.Parallel()
	v, folder := opened(t, "unix")
	text := make([]byte, 2000)
	copy(text, "QFI\xfb\x00\x00\x00\x03")
	text[23], text[30], text[103] = 16, 2, 104 // of 512 bytes
	if err := v.Await(soon(t), "f"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, v.volume("f")), text, 0o600); err != nil {
		t.Fatal(err)
	}
	err := v.with(soon(t), func(p *pool) error { // as libvirtd does by itself behind each upload
		_, err := call(soon(t), p.conn, "refresh", func(l *golibvirt.Libvirt) (struct{}, error) {
			return struct{}{}, l.StoragePoolRefresh(p.pool, 0)
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	m := &mirror{files: v, dir: t.TempDir()}
	if n, err := m.piece("f", 512); err != nil || n != len(text)-512 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// Who was left behind does not connect anew.
func TestClosedFiles(t *testing.T) {
	t.Parallel()
	v, _ := opened(t, "unix")
	v.close()
	if _, err := v.Read(soon(t), "f", 0, 1); !errors.Is(err, fs.ErrClosed) || v.pool != nil {
		t.Errorf("%v", err)
	}
}
