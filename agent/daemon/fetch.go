package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"kerninst/agent/wire"
)

// Bounds of what one job fetches.
const (
	maxFetched     = 64 << 20 // bytes
	maxFetchedFile = 4096     // files
	maxSkipped     = 16       // names that are told
)

// fetchStep is the name of the result that says what was fetched.
const fetchStep = "fetch"

// fetch sends files as chunks, and what became of each path as a result.
func (d *Daemon) fetch(ctx context.Context, paths []string, s *stream) error {
	f := &fetcher{ctx: ctx, send: func(path string, data []byte) error {
		return s.send(&wire.Record{Body: &wire.Record_Chunk{Chunk: &wire.Chunk{Path: path, Data: data}}})
	}}
	res := &wire.Result{Step: fetchStep}
	for _, p := range paths {
		res.Fetched = append(res.Fetched, f.path(p))
	}
	return errors.Join(f.broken, s.result(res))
}

// fetcher counts over all paths of a job.
type fetcher struct {
	ctx    context.Context
	send   func(path string, data []byte) error
	broken error // of send: nothing can be sent any more
	files  int
	bytes  int64
}

// path sends a file, or a folder with all below it. A link that is named means
// what it points to; others are skipped, as is whatever is no file.
func (f *fetcher) path(name string) *wire.Fetched {
	out := &wire.Fetched{Path: name}
	bytes, files := f.bytes, f.files
	real, err := filepath.EvalSymlinks(name)
	if err == nil {
		err = filepath.WalkDir(real, func(at string, e fs.DirEntry, err error) error {
			if err == nil {
				err = f.ctx.Err()
			}
			if err != nil || e.IsDir() {
				return err
			}
			sent := name + at[len(real):]
			if e.Type().IsRegular() && utf8.ValidString(sent) {
				return f.file(at, sent)
			}
			if len(out.Skipped) < maxSkipped {
				out.Skipped = append(out.Skipped, strings.ToValidUTF8(sent, "\uFFFD"))
			}
			return nil
		})
	}
	if err != nil {
		out.Error = strings.ToValidUTF8(err.Error(), "\uFFFD")
	}
	out.Files, out.Bytes = uint32(f.files-files), uint64(f.bytes-bytes)
	return out
}

// file sends one file under a name. What the kernel makes up has no size before
// it is read, and may have no end: such reads do not wait.
func (f *fetcher) file(at, name string) error {
	if f.files++; f.files > maxFetchedFile {
		return fmt.Errorf("more than %d files", maxFetchedFile)
	}
	in, err := os.OpenFile(at, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	buf := make([]byte, chunkSize)
	for first := true; ; first = false {
		n, err := io.ReadFull(in, buf)
		end := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !end {
			return err
		}
		if f.bytes += int64(n); f.bytes > maxFetched {
			return fmt.Errorf("%s: more than %d MiB in all", name, maxFetched>>20)
		}
		if n > 0 || first {
			if f.broken = errors.Join(f.ctx.Err(), f.send(name, buf[:n])); f.broken != nil {
				return f.broken
			}
		}
		if end {
			return nil
		}
	}
}
