package qemu

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"kerninst/lab/untrusted"
)

// Files are those by which a machine is reached, by the names that they have in its run
// directory, wherever its QEMU is. What QEMU has written is not trusted.
type Files interface {
	// At is what QEMU calls a file.
	At(name string) string
	// Await makes room for a file that QEMU is about to write: one that is there goes.
	Await(ctx context.Context, name string) error
	// Read reads from an offset to the end of a file, at most max bytes.
	Read(ctx context.Context, name string, from, max int64) ([]byte, error)
	// Write overwrites the beginning of a file that is there.
	Write(ctx context.Context, name string, b []byte) error
	// Fetch copies a file into a new one of the lab's.
	Fetch(ctx context.Context, name, to string) error
	// Give makes a file that QEMU may write to, of what is in it.
	Give(ctx context.Context, name string, b []byte) error
	// Lend gives QEMU a file of the lab's, which is used up.
	Lend(ctx context.Context, name, from string) (Lent, error)
	// Remove removes a file, if it is there.
	Remove(ctx context.Context, name string) error
}

// Lent is a file that QEMU may read.
type Lent struct {
	At   string // what QEMU calls it
	Size int64  // in bytes
	Skip int64  // so many bytes lie in front of it
	Ours bool   // it is this machine's alone, and may be written to
}

// RunFiles are the files of a QEMU on this host: they lie in the run directory.
type RunFiles struct {
	Dir string
	// Root is the same as QEMU has it: empty for one that works there.
	Root string
	// Own makes a file QEMU's. It is nil if QEMU runs as the lab's user.
	Own func(path string) error
}

var _ Files = RunFiles{}

// At is Files'.
func (r RunFiles) At(name string) string { return filepath.Join(r.Root, name) }

func (r RunFiles) mine(name string) string { return filepath.Join(r.Dir, name) }

// Await is Files'.
func (r RunFiles) Await(ctx context.Context, name string) error { return r.Remove(ctx, name) }

// Read is Files'.
func (r RunFiles) Read(_ context.Context, name string, from, max int64) ([]byte, error) {
	f, err := untrusted.Open(r.mine(name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.NewSectionReader(f, from, max))
}

// Write is Files'.
func (r RunFiles) Write(_ context.Context, name string, b []byte) error {
	f, err := untrusted.OpenToWrite(r.mine(name))
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	return errors.Join(err, f.Close())
}

// Fetch is Files'.
func (r RunFiles) Fetch(_ context.Context, name, to string) error { return copyTo(to, r.mine(name)) }

// Give is Files'.
func (r RunFiles) Give(ctx context.Context, name string, b []byte) error {
	if err := r.Remove(ctx, name); err != nil {
		return err
	}
	f, err := untrusted.Create(r.mine(name))
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return r.own(name)
}

// own makes a file QEMU's.
func (r RunFiles) own(name string) error {
	if r.Own == nil {
		return nil
	}
	return r.Own(r.mine(name))
}

// Lend is Files'.
func (r RunFiles) Lend(_ context.Context, name, from string) (Lent, error) {
	info, err := os.Stat(from)
	if err != nil {
		return Lent{}, err
	}
	mine := r.mine(name)
	err = os.Rename(from, mine)
	if errors.Is(err, syscall.EXDEV) {
		if err = copyTo(mine, from); err == nil {
			err = os.Remove(from)
		}
	}
	if err != nil {
		return Lent{}, err
	}
	return Lent{At: r.At(name), Size: info.Size(), Ours: true}, r.own(name)
}

// Remove is Files'.
func (r RunFiles) Remove(_ context.Context, name string) error {
	err := os.Remove(r.mine(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// copyTo copies a file of the run directory, or into it.
func copyTo(dst, src string) error {
	in, err := untrusted.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := untrusted.Create(dst)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
