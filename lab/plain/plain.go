// Package plain reads files that a user names, or that lie in a folder that he
// names. A pipe would be waited for, a device may have no end, and a document may be
// as long as the disk: the lab would hang or take all memory, and say nothing.
//
// What an emulator may have tampered with is read by lab/untrusted, which is
// stricter.
package plain

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// NotPlainError says that something else is where a plain file should be.
type NotPlainError struct{ Path string }

func (e *NotPlainError) Error() string {
	return fmt.Sprintf("%s is not a plain file: want one, no pipe, device, link or folder", e.Path)
}

// TooLongError says that a file is longer than what it could be.
type TooLongError struct {
	Path string
	Max  int64 // bytes
}

func (e *TooLongError) Error() string {
	return fmt.Sprintf("%s has more than %d bytes, which none of its kind has", e.Path, e.Max)
}

// Open opens a plain file, or what links lead to, for reading. It never waits. Its
// errors are *NotPlainError and those of os.Open.
func Open(path string) (*os.File, error) { return open(path, 0) }

// OpenHere is Open, but for a link it is a *NotPlainError: it leads out of the
// folder that was named.
func OpenHere(path string) (*os.File, error) { return open(path, syscall.O_NOFOLLOW) }

func open(path string, how int) (*os.File, error) {
	// Looked at first: to open a device may do something to it.
	look := os.Stat
	if how&syscall.O_NOFOLLOW != 0 {
		look = os.Lstat
	}
	info, err := look(path)
	if err == nil && !info.Mode().IsRegular() {
		err = &NotPlainError{path}
	}
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|how, 0)
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENXIO) { // it was changed meanwhile
		return nil, &NotPlainError{path}
	} else if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() {
		err = &NotPlainError{path}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Read returns what is in a plain file of max bytes at most. Links are followed. Its
// errors are those of Open, and *TooLongError.
func Read(path string, max int64) ([]byte, error) { return read(path, max, 0) }

// ReadHere is Read of what OpenHere opens.
func ReadHere(path string, max int64) ([]byte, error) { return read(path, max, syscall.O_NOFOLLOW) }

func read(path string, max int64, how int) ([]byte, error) {
	f, err := open(path, how)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, max+1))
	if err == nil && int64(len(b)) > max {
		return nil, &TooLongError{path, max}
	}
	return b, err
}
