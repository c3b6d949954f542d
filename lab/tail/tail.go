// Package tail reads files that somebody else is still writing.
package tail

import (
	"errors"
	"io"
	"io/fs"
	"time"

	"kerninst/lab/untrusted"
)

// interval is how often a file at its end is looked at again. Polling works on
// every file system and needs no teardown; at this rate it costs nothing.
const interval = 10 * time.Millisecond

// Reader reads a file to its end and waits there for more.
type Reader struct {
	path string
	done <-chan struct{}
	file io.ReadCloser // nil until the file is there
}

// Follow reads path, which need not exist yet. Once done is closed, nobody
// writes any more, and the end of the file is the end: everything written
// before done is delivered, then io.EOF.
func Follow(path string, done <-chan struct{}) *Reader {
	return &Reader{path: path, done: done}
}

// Read waits for at least one byte or the end.
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		// Asked before reading: what was written before done closed is then
		// there to be read.
		over := isClosed(r.done)
		n, err := r.read(p)
		if n > 0 || err != nil {
			return n, err
		}
		if over {
			return 0, io.EOF
		}
		pause(r.done)
	}
}

// read returns 0, nil at the end of what there is so far.
func (r *Reader) read(p []byte) (int, error) {
	if r.file == nil {
		f, err := untrusted.Open(r.path)
		if errors.Is(err, fs.ErrNotExist) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		r.file = f
	}
	n, err := r.file.Read(p)
	if err == io.EOF {
		err = nil
	}
	return n, err
}

// Close releases the file.
func (r *Reader) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func pause(done <-chan struct{}) {
	t := time.NewTimer(interval)
	defer t.Stop()
	select {
	case <-t.C:
	case <-done:
	}
}
