// Package untrusted opens files in a folder that a guest's emulator may write.
//
// Whoever breaks out of a guest owns that folder. It can put a link to
// somebody's secrets, a pipe without a writer or a hard link where the lab
// expects a file; a lab of root's would follow it. So only plain files with one
// name are opened, and new ones replace what is there.
package untrusted

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// safely: no symbolic link as the last element, and no waiting for a pipe.
const safely = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// Open opens a file that exists for reading.
func Open(path string) (*os.File, error) { return open(path, os.O_RDONLY) }

// OpenToWrite opens a file that exists for writing.
func OpenToWrite(path string) (*os.File, error) { return open(path, os.O_WRONLY) }

func open(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, how|safely, 0)
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENXIO) { // a link; a pipe or socket
		return nil, foreign(path)
	} else if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !plain(info) {
		err = foreign(path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func plain(info fs.FileInfo) bool {
	sys, ok := info.Sys().(*syscall.Stat_t)
	return info.Mode().IsRegular() && ok && sys.Nlink <= 1
}

// ForeignError says that something else is where a plain file should be.
type ForeignError struct{ Path string }

func (e *ForeignError) Error() string {
	return fmt.Sprintf("%s is not the plain file that it was: the emulator has changed it, do not trust this guest", e.Path)
}

func foreign(path string) error { return &ForeignError{path} }

// Create makes an empty file, whatever has that name.
func Create(path string) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
}

// Read returns the first bytes of a file, at most max.
func Read(path string, max int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, max))
}
