package images

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// entry is what the kernel would see in an archive.
type entry struct {
	name string
	mode uint64
	data string
}

// readCpio follows do_header and do_name of the kernel's init/initramfs.c: an
// entry with content that is neither file nor link is skipped.
func readCpio(t *testing.T, b []byte) (all []entry) {
	t.Helper()
	for at := 0; at < len(b); {
		if at%4 != 0 || string(b[at:at+6]) != cpioMagic {
			t.Fatalf("no header at %#x", at)
		}
		var f [13]uint64
		for i := range f {
			v, err := strconv.ParseUint(string(b[at+6+8*i:at+14+8*i]), 16, 32)
			if err != nil {
				t.Fatalf("header at %#x: %v", at, err)
			}
			f[i] = v
		}
		if f[2] != 0 || f[3] != 0 || f[5] != 0 {
			t.Errorf("entry at %#x has owner %d:%d, time %d, want zeros", at, f[2], f[3], f[5])
		}
		name := string(b[at+cpioHeader : at+cpioHeader+int(f[11])-1])
		data := (at + cpioHeader + int(f[11]) + 3) &^ 3
		at = (data + int(f[6]) + 3) &^ 3
		dir := f[1]&0o170000 == 0o040000
		if name != cpioTrailer && !(dir && f[6] > 0) {
			all = append(all, entry{name, f[1], string(b[data : data+int(f[6])])})
		}
	}
	return all
}

func writeSegment(t *testing.T, s segment, all []File) ([]byte, error) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "segment")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(s.write(f, all), f.Close())
	b, rerr := os.ReadFile(name)
	if rerr != nil {
		t.Fatal(rerr)
	}
	return b, err
}

func TestSegment(t *testing.T) {
	src := filepath.Join(t.TempDir(), "src")
	if err := os.WriteFile(src, []byte("from the host"), 0o640); err != nil {
		t.Fatal(err)
	}
	all := []File{
		{Path: "/sbin/b", Mode: 0o755, Source: src},
		{Path: "/dev/console", Mode: fs.ModeDevice | fs.ModeCharDevice | 0o600, Major: 5, Minor: 1},
		{Path: "/bin/sh", Mode: fs.ModeSymlink | 0o777, Link: "busybox"},
		{Path: "/a", Mode: 0o600, Data: []byte("x")},
	}
	got, err := writeSegment(t, segment{"size", 1 << 16}, all)
	if err != nil || len(got) != 1<<16 {
		t.Fatalf("%d bytes, %v, want %d", len(got), err, 1<<16)
	}
	want := []entry{
		{"a", 0o100600, "x"},
		{"bin", 0o040755, ""},
		{"bin/sh", 0o120777, "busybox"},
		{"dev", 0o040755, ""},
		{"dev/console", 0o020600, ""},
		{"sbin", 0o040755, ""},
		{"sbin/b", 0o100755, "from the host"},
	}
	if e := readCpio(t, got); !reflect.DeepEqual(e, want) {
		t.Errorf("entries %v, want %v", e, want)
	}
	slicesReversed := []File{all[3], all[2], all[1], all[0]}
	again, err := writeSegment(t, segment{"size", 1 << 16}, slicesReversed)
	if err != nil || !bytes.Equal(got, again) {
		t.Errorf("the same files in another order give other bytes (%v)", err)
	}
}

// Every length from empty to full gives the exact size or the error.
func TestSegmentBounds(t *testing.T) {
	const size = 4096
	overhead := 0
	for n := 0; n <= size; n += 4 {
		got, err := writeSegment(t, segment{"jobSegmentSize", size},
			[]File{{Path: "/f", Mode: 0o644, Data: make([]byte, n)}})
		switch {
		case err == nil && len(got) == size && overhead == 0:
			if e := readCpio(t, got); len(e) != 1 || len(e[0].data) != n {
				t.Fatalf("%d bytes of content: %d entries, the first with %d bytes", n, len(e), len(e[0].data))
			}
		case err != nil && strings.Contains(err.Error(), "raise jobSegmentSize"):
			overhead = n
		default:
			t.Fatalf("%d bytes of content: %d bytes, %v", n, len(got), err)
		}
	}
	if overhead == 0 {
		t.Error("a full segment was no error")
	}
}

func TestWithParentsRefuses(t *testing.T) {
	tests := []struct {
		all  []File
		want string
	}{
		{[]File{{Path: "a"}}, "not absolute"},
		{[]File{{Path: "/a"}, {Path: "/b/../a"}}, "two files"},
	}
	for _, tt := range tests {
		if got, err := withParents(tt.all); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("withParents(%v) = %v, %v, want %s", tt.all, got, err, tt.want)
		}
	}
}

func TestWriteInitrd(t *testing.T) {
	dir := t.TempDir()
	base := filepath.Join(dir, "base")
	if err := os.WriteFile(base, make([]byte, 512), 0o444); err != nil {
		t.Fatal(err)
	}
	img := &Image{Base: base}
	dst := filepath.Join(dir, "initrd")
	if err := img.WriteInitrd(dst, []byte("job"), File{Path: "/etc/x", Mode: 0o644, Data: []byte("y")}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(dst)
	if err != nil || len(b) != 512+jobSegmentSize {
		t.Fatalf("%d bytes, %v, want %d", len(b), err, 512+jobSegmentSize)
	}
	want := []entry{{"etc", 0o040755, ""}, {"etc/x", 0o100644, "y"}, {"job", 0o100600, "job"}}
	if e := readCpio(t, b[512:]); !reflect.DeepEqual(e, want) {
		t.Errorf("entries %v, want %v", e, want)
	}
	whole := bytes.NewBuffer(make([]byte, 512))
	if err := img.WriteJob(whole, []byte("job"), File{Path: "/etc/x", Mode: 0o644, Data: []byte("y")}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(whole.Bytes(), b) {
		t.Error("base and job are not the initramfs")
	}
}

func TestApplets(t *testing.T) {
	tests := []struct {
		bin, want string
	}{
		{"\xff[\x00[[\x00acpid\x00ls\x00sh\x00\x00more", "[[ [[ acpid ls sh] <nil>"},
		{"\xff\x00nothing", "no table"},
		{"[\x00[[\x00acpid\x00ls\x00\x00", "is not one"},
		{"[\x00[[\x00acpid\x00sh\x00ls\x00\x00", "is not one"},
		{"[\x00[[\x00acpid\x00ls\x00sh\x00x/../y\x00\x00", "is not one"},
	}
	for _, tt := range tests {
		names, err := applets([]byte(tt.bin))
		if got := fmt.Sprint(names, err); !strings.Contains(got, tt.want) {
			t.Errorf("applets(%q) = %s, want %s", tt.bin, got, tt.want)
		}
	}
}
