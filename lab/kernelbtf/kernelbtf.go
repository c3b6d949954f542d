// Package kernelbtf finds the types in a kernel's image, as it is booted from: no guest has
// to run for them.
package kernelbtf

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"

	"github.com/klauspost/compress/zstd"
)

// most is how much of a file is read, and how much what it holds may be when it is not
// compressed: kernels of distributions have some 60 MB.
const most = 512 << 20

var errNone = errors.New("it has no types in it: the kernel was built without CONFIG_DEBUG_INFO_BTF")

// Read is the types of a kernel's image, as a blob of BTF.
func Read(image string) ([]byte, error) {
	f, err := os.Open(image)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := whole(f)
	if err == nil {
		b, err = find(b)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", image, err)
	}
	return b, nil
}

// whole reads all, unless that is too much.
func whole(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && len(b) > most {
		err = fmt.Errorf("more than %d MB are no kernel", most>>20)
	}
	return b, err
}

// packings are how images, or what they unpack, are compressed, by what they begin with.
var packings = []struct {
	name, magic string
	unpack      func([]byte) ([]byte, error) // nil: not known
}{
	{"zstd", "\x28\xb5\x2f\xfd", unzstd},
	{"gzip", "\x1f\x8b", gunzip},
	{"xz", "\xfd7zXZ", unxz},
	{"lz4", "\x02\x21\x4c\x18", nil},
	{"lzma", "\x5d\x00\x00", nil},
	{"lzo", "\x89LZO", nil},
	{"bzip2", "BZh", nil},
}

// find looks for the types in what an image holds, or in what that unpacks.
func find(b []byte) ([]byte, error) {
	if p := payload(b); p != nil {
		b = p
	}
	for _, p := range packings {
		switch {
		case !bytes.HasPrefix(b, []byte(p.magic)):
			continue
		case p.unpack == nil:
			return nil, fmt.Errorf("it is compressed with %s, of which no types are read: give --kernel a build directory, or ask for no fields", p.name)
		}
		var err error
		if b, err = p.unpack(b); err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		break
	}
	if bytes.HasPrefix(b, []byte(elf.ELFMAG)) {
		return section(b)
	}
	return scan(b)
}

// payload is the compressed kernel in a bzImage (Documentation/arch/x86/boot.rst in the
// kernel's source); nil: it is none.
func payload(b []byte) []byte {
	const magicAt, sectors, offsetAt, lengthAt = 0x202, 0x1f1, 0x248, 0x24c
	if len(b) < lengthAt+4 || string(b[magicAt:magicAt+4]) != "HdrS" {
		return nil
	}
	at := (uint64(b[sectors])+1)*512 + uint64(binary.LittleEndian.Uint32(b[offsetAt:]))
	end := at + uint64(binary.LittleEndian.Uint32(b[lengthAt:]))
	if end > uint64(len(b)) {
		return nil
	}
	return b[at:end]
}

// unzstd unpacks a frame, and no more: behind it in a bzImage is the size of what it holds.
func unzstd(b []byte) ([]byte, error) {
	d, err := zstd.NewReader(bytes.NewReader(b), zstd.WithDecoderMaxMemory(most), zstd.WithDecoderMaxWindow(most))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	out, err := whole(d)
	if len(out) > 0 && errors.Is(err, zstd.ErrMagicMismatch) {
		err = nil
	}
	return out, err
}

func gunzip(b []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	r.Multistream(false)
	return whole(r)
}

// unxz unpacks the first stream by the program xz: behind it in a bzImage is the size of what it holds.
func unxz(b []byte) ([]byte, error) {
	c := exec.Command("xz", "-dc", "--single-stream", "--memlimit-decompress="+strconv.Itoa(most))
	var said bytes.Buffer
	c.Stdin, c.Stderr = bytes.NewReader(b), &said
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return nil, err
	}
	unpacked, err := whole(out)
	out.Close() // of too much, xz does not write the rest
	if failed := c.Wait(); err == nil && failed != nil {
		err = fmt.Errorf("%w: %s", failed, bytes.TrimSpace(said.Bytes()))
	}
	return unpacked, err
}

// section is that of a vmlinux.
func section(b []byte) ([]byte, error) {
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	if s := f.Section(".BTF"); s != nil && s.Type != elf.SHT_NOBITS && s.Size <= uint64(len(b)) {
		return s.Data()
	}
	return nil, errNone
}

// header of BTF, without its version's flags.
//
//	magic, 2 | version, 1 | flags, 1 | header's length, 4 | types' offset, 4, and length, 4 | strings', likewise
const (
	headerLen = 24
	leastSize = 1 << 20 // programs that kernels bring along have some, too
)

var header = []byte{0x9f, 0xeb, 1, 0, headerLen, 0, 0, 0, 0, 0, 0, 0}

// scan finds a blob of BTF in an image that is not compressed: where its header is right,
// and what it says is in it is there.
func scan(b []byte) ([]byte, error) {
	for at := 0; ; at++ {
		n := bytes.Index(b[at:], header)
		if n < 0 {
			return nil, errNone
		}
		at += n
		if len(b)-at < headerLen {
			return nil, errNone
		}
		h := b[at:]
		types, strings, size := binary.LittleEndian.Uint32(h[12:]), binary.LittleEndian.Uint32(h[16:]), binary.LittleEndian.Uint32(h[20:])
		end := headerLen + uint64(strings) + uint64(size)
		if types == strings && end >= leastSize && end <= uint64(len(h)) {
			return h[:end], nil
		}
	}
}
