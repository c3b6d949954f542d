package images

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// File is one entry of an initramfs. Owner is root, times are zero: an image
// depends on its content only.
type File struct {
	Path   string // in the guest, absolute
	Mode   fs.FileMode
	Data   []byte
	Source string // if not empty, the host file that holds the data
	Link   string // target, if Mode has ModeSymlink
	Major  uint32 // of a device
	Minor  uint32
}

// FilesFrom reads a file or a directory tree of the host, to appear at dst in
// the guest.
func FilesFrom(src, dst string) ([]File, error) {
	var all []File
	err := filepath.WalkDir(src, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, name)
		if err != nil {
			return err
		}
		f := File{Path: path.Join(dst, filepath.ToSlash(rel)), Mode: info.Mode().Perm() | info.Mode().Type()}
		switch info.Mode().Type() {
		case 0:
			f.Source = name
		case fs.ModeSymlink:
			f.Link, err = os.Readlink(name)
		case fs.ModeDir:
		default:
			err = fmt.Errorf("images: %s is neither file, directory nor symbolic link", name)
		}
		all = append(all, f)
		return err
	})
	return all, err
}

// A newc archive is a sequence of entries; numbers are 8 hexadecimal digits
// (Documentation/driver-api/early-userspace/buffer-format.rst in the kernel):
//
//	magic 070701 | ino | mode | uid | gid | nlink | mtime | filesize |
//	major | minor | rmajor | rminor | namesize | check | name NUL | pad to 4 |
//	data | pad to 4
const (
	cpioMagic   = "070701"
	cpioHeader  = 110
	cpioTrailer = "TRAILER!!!"
)

// Type bits of cpio's mode, as of st_mode in inode(7).
var cpioTypes = map[fs.FileMode]uint32{
	0:                                 0o100000,
	fs.ModeDir:                        0o040000,
	fs.ModeSymlink:                    0o120000,
	fs.ModeDevice | fs.ModeCharDevice: 0o020000,
	fs.ModeDevice:                     0o060000,
	fs.ModeNamedPipe:                  0o010000,
}

// cpioWriter writes entries to a file from where that file stands.
type cpioWriter struct {
	f   *os.File
	ino uint32
	n   int64 // bytes so far
}

func (w *cpioWriter) write(b []byte) error {
	n, err := w.f.Write(b)
	w.n += int64(n)
	return err
}

func (w *cpioWriter) align() error {
	return w.write(make([]byte, -w.n&3))
}

func (w *cpioWriter) header(name string, mode uint32, size int64, rmajor, rminor uint32) error {
	w.ino++
	h := cpioMagic
	for _, v := range []uint32{w.ino, mode, 0, 0, 1, 0, uint32(size), 0, 0, rmajor, rminor, uint32(len(name) + 1), 0} {
		h += fmt.Sprintf("%08x", v)
	}
	return errors.Join(w.write([]byte(h+name+"\x00")), w.align())
}

// add writes one entry.
func (w *cpioWriter) add(f File) error {
	kind, ok := cpioTypes[f.Mode.Type()]
	if !ok {
		return fmt.Errorf("images: %s: no such thing as %v in an initramfs", f.Path, f.Mode)
	}
	name := strings.TrimPrefix(f.Path, "/")
	mode := kind | uint32(f.Mode.Perm())
	data := f.Data
	if f.Mode.Type() == fs.ModeSymlink {
		data = []byte(f.Link)
	}
	if f.Source == "" {
		return errors.Join(w.header(name, mode, int64(len(data)), f.Major, f.Minor), w.write(data), w.align())
	}
	src, err := os.Open(f.Source)
	if err != nil {
		return err
	}
	defer src.Close()
	info, err := src.Stat()
	if err != nil {
		return err
	}
	if err := w.header(name, mode, info.Size(), 0, 0); err != nil {
		return err
	}
	n, err := io.Copy(w.f, src)
	w.n += n
	if err == nil && n != info.Size() {
		err = fmt.Errorf("images: %s changed while it was read", f.Source)
	}
	return errors.Join(err, w.align())
}

// finish fills the archive to exactly size bytes. The filler is a directory
// entry with content: the kernel skips that in one step (init/initramfs.c,
// do_header), where it would walk over plain zeros byte by byte.
func (w *cpioWriter) finish(size int64) error {
	trailer := int64(cpioHeader+len(cpioTrailer)+1+3) &^ 3
	// With content, for without it would be a directory.
	filler := int64(cpioHeader+len(fillerName)+1+3)&^3 + 4
	rest := size - w.n - trailer
	if rest < filler {
		return &tooBigError{w.n + trailer + filler, size}
	}
	content := rest - filler + 4
	if err := w.header(fillerName, cpioTypes[fs.ModeDir]|0o700, content, 0, 0); err != nil {
		return err
	}
	// A hole: reads as zeros and takes no space.
	if _, err := w.f.Seek(content, io.SeekCurrent); err != nil {
		return err
	}
	w.n += content
	w.ino = 0
	if err := w.header(cpioTrailer, 0, 0, 0, 0); err != nil {
		return err
	}
	if w.n != size {
		return fmt.Errorf("images: segment of %d bytes came out as %d", size, w.n)
	}
	return nil
}

// fillerName never appears in the guest.
const fillerName = "filler"

type tooBigError struct{ need, have int64 }

func (e *tooBigError) Error() string {
	return fmt.Sprintf("%d bytes do not fit into %d", e.need, e.have)
}

// withParents sorts files by path and adds the directories they are in, each
// before its content.
func withParents(all []File) ([]File, error) {
	byPath := map[string]File{}
	for _, f := range all {
		f.Path = path.Clean(f.Path)
		if !path.IsAbs(f.Path) {
			return nil, fmt.Errorf("images: path %q in the guest is not absolute", f.Path)
		}
		if old, dup := byPath[f.Path]; dup && !(old.Mode.IsDir() && f.Mode.IsDir()) {
			return nil, fmt.Errorf("images: two files want to be %s in the guest", f.Path)
		}
		byPath[f.Path] = f
	}
	for _, f := range all {
		for dir := path.Dir(path.Clean(f.Path)); dir != "/"; dir = path.Dir(dir) {
			if _, ok := byPath[dir]; !ok {
				byPath[dir] = File{Path: dir, Mode: fs.ModeDir | 0o755}
			}
		}
	}
	delete(byPath, "/")
	sorted := make([]File, 0, len(byPath))
	for _, f := range byPath {
		sorted = append(sorted, f)
	}
	slices.SortFunc(sorted, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return sorted, nil
}
