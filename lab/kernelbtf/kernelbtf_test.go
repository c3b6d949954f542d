package kernelbtf

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// blob is as long as a kernel's types, and nothing is in it.
func blob() []byte {
	b := append([]byte(nil), header...)
	b = binary.LittleEndian.AppendUint32(b, leastSize)
	b = binary.LittleEndian.AppendUint32(b, leastSize)
	b = binary.LittleEndian.AppendUint32(b, 100)
	return append(b, make([]byte, leastSize+100)...)
}

// raw has types of something else before those of the kernel, and more behind.
func raw() []byte {
	small := append(append([]byte(nil), header...), make([]byte, 40)...)
	return bytes.Join([][]byte{[]byte("MZ code"), small, []byte("more"), blob(), []byte("code behind")}, nil)
}

func zipped(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write(b)
	w.Close()
	return out.Bytes()
}

// bzImage is a kernel for amd64 with a payload, behind which is its size.
func bzImage(packed []byte) []byte {
	b := make([]byte, 2*512+100)
	b[0x1f1] = 1
	copy(b[0x202:], "HdrS")
	binary.LittleEndian.PutUint32(b[0x248:], 100)
	binary.LittleEndian.PutUint32(b[0x24c:], uint32(len(packed)))
	return append(b, packed...)
}

// xzed packs as the kernel's scripts/xz_wrap.sh does.
func xzed(t *testing.T, b []byte) []byte {
	c := exec.Command("xz", "-c", "--check=crc32", "--x86", "--lzma2=dict=32MiB")
	c.Stdin = bytes.NewReader(b)
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestRead(t *testing.T) {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	packed := append(w.EncodeAll(raw(), nil), 1, 2, 3, 4)
	truncated := bzImage(packed)
	for _, c := range []struct {
		name  string
		image []byte
		want  string // "": the types are found
	}{
		{"raw", raw(), ""},
		{"gzip", zipped(raw()), ""},
		{"bzImage", bzImage(packed), ""},
		{"bzImage of gzip", bzImage(zipped(raw())), ""},
		{"without", []byte("MZ code"), "CONFIG_DEBUG_INFO_BTF"},
		{"empty", nil, "CONFIG_DEBUG_INFO_BTF"},
		{"bzImage of xz", bzImage(append(xzed(t, raw()), 1, 2, 3, 4)), ""},
		{"xz, broken", bzImage([]byte("\xfd7zXZ\x00 and so on")), "xz: exit status 1: xz: (stdin): "},
		{"xz, cut short", bzImage(xzed(t, raw())[:100]), "xz: exit status 1: xz: (stdin): Unexpected end of input"},
		{"lzo", bzImage([]byte("\x89LZO\x00 and so on")), "compressed with lzo"},
		{"truncated", truncated[:len(truncated)-20], "no types"},
		{"cut short", bzImage(packed[:len(packed)/2]), "zstd"},
		{"not an ELF file", zipped([]byte("\x7fELF and nothing")), "ELF"},
		{"ends in its header", append([]byte("MZ"), header...), "no types"},
	} {
		file := filepath.Join(t.TempDir(), "image")
		if err := os.WriteFile(file, c.image, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Read(file)
		switch {
		case c.want == "" && (err != nil || !bytes.Equal(got, blob())):
			t.Errorf("%s: %d bytes, %v", c.name, len(got), err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v; want %q", c.name, err, c.want)
		}
	}
}
