package runner

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"kerninst/agent/wire"
	"kerninst/lab/report"
)

// Bounds of what is taken from one guest, which are the daemon's own: a guest
// that sends more is not ours any more.
const (
	maxFetched      = 64 << 20 // bytes
	maxFetchedFiles = 4096
)

// FetchedDir is the folder, below a guest's, with what was fetched from it.
const FetchedDir = "fetched"

// Fetch is a file or folder of a guest's that is wanted here.
type Fetch struct {
	Guest string // absolute path there
	To    string // place here, where nothing is; empty: as in the guest, below FetchedDir
}

// Fetched is what became of a Fetch.
type Fetched struct {
	Fetch
	Files   int
	Bytes   int64
	Skipped []string // names of what is neither file nor folder
	Err     error    // why it did not come, or not to its end

	root *os.Root // of To's parent
	file *os.File // that is being written
	name string   // of that, in the guest
}

// errNotSent is of guests that ended, or broke, before they said what they sent.
var errNotSent = errors.New("the guest ended before it could send that")

// receive writes what a guest has sent of the files that were wanted from it.
// Names are the guest's words: none leads out of the place that was asked for.
func receive(wanted []Fetch, records []*wire.Record) []*Fetched {
	var all []*Fetched
	for _, w := range wanted {
		all = append(all, &Fetched{Fetch: w, Err: errNotSent})
	}
	files, bytes := 0, 0
	for _, rec := range records {
		if c := rec.GetChunk(); c.GetPath() != "" {
			f := wantedBy(all, c.Path)
			if f == nil {
				return stop(all, fmt.Errorf("the guest sent %q, which nobody asked for", c.Path))
			}
			if f.name != c.Path {
				files++
			}
			if bytes += len(c.Data); bytes > maxFetched || files > maxFetchedFiles {
				return stop(all, fmt.Errorf("the guest sent more than %d MiB or %d files", maxFetched>>20, maxFetchedFiles))
			}
			if err := f.write(c.Path, c.Data); err != nil {
				return stop(all, err)
			}
		}
		for _, said := range rec.GetResult().GetFetched() {
			if f := wantedBy(all, said.Path); f != nil && f.Guest == said.Path {
				f.heard(said)
			}
		}
	}
	return stop(all, nil)
}

// stop closes everything; if err is not nil, it is what became of all.
func stop(all []*Fetched, err error) []*Fetched {
	for _, f := range all {
		if e := f.close(); err == nil && e != nil {
			f.Err = e
		}
		if err != nil {
			f.Err = err
		}
	}
	return all
}

// wantedBy is the Fetch that a file of the guest's belongs to, or nil.
func wantedBy(all []*Fetched, name string) *Fetched {
	k := slices.IndexFunc(all, func(f *Fetched) bool {
		return name == f.Guest || strings.HasPrefix(name, strings.TrimSuffix(f.Guest, "/")+"/")
	})
	if k < 0 {
		return nil
	}
	return all[k]
}

// heard takes the guest's word for what became of a path.
func (f *Fetched) heard(said *wire.Fetched) {
	f.Err = nil
	if said.Error != "" {
		f.Err = errors.New(report.Clean(said.Error))
	}
	for _, s := range said.Skipped {
		f.Skipped = append(f.Skipped, report.Clean(s))
	}
}

// write adds to the file with that name in the guest, which is made for its first
// piece.
func (f *Fetched) write(name string, data []byte) error {
	if f.name != name {
		if err := f.create(name); err != nil {
			return err
		}
		f.Files++
	}
	n, err := f.file.Write(data)
	f.Bytes += int64(n)
	return err
}

func (f *Fetched) create(name string) error {
	below := name[len(strings.TrimSuffix(f.Guest, "/")):]
	at := filepath.Base(f.To) + below
	if path.Clean(name) != name || !filepath.IsLocal(at) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("the guest sent a file named %q, which is not taken", name)
	}
	var err error
	if f.root == nil {
		parent := filepath.Dir(f.To)
		if err := os.MkdirAll(parent, 0o755); err != nil {
			return err
		}
		if f.root, err = os.OpenRoot(parent); err != nil {
			return err
		}
	}
	if f.file != nil {
		if err := f.file.Close(); err != nil {
			return err
		}
	}
	if err := f.root.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	f.file, err = f.root.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	f.name = name
	return err
}

func (f *Fetched) close() error {
	var errs []error
	if f.file != nil {
		errs = append(errs, f.file.Close())
	}
	if f.root != nil {
		errs = append(errs, f.root.Close())
	}
	f.file, f.root = nil, nil
	return errors.Join(errs...)
}

// fetched takes in what was wanted from a guest and says what came.
func (r *Runner) fetched(g *Guest) {
	if len(r.Own.Fetch) == 0 {
		return
	}
	wanted := slices.Clone(r.Own.Fetch)
	for k := range wanted {
		if wanted[k].To == "" {
			wanted[k].To = filepath.Join(r.Dir, g.Request.Name, FetchedDir, filepath.FromSlash(wanted[k].Guest))
		}
	}
	g.Fetched = receive(wanted, g.Outcome.Records)
	for _, f := range g.Fetched {
		if f.Err != nil {
			r.Progress("%s: --fetch %s: %v", g.Request.Name, f.Guest, f.Err)
		}
		if f.Files > 0 {
			r.Progress("%s: %s: %d bytes, files: %d, now in %s", g.Request.Name, f.Guest, f.Bytes, f.Files, f.To)
		}
		if len(f.Skipped) > 0 {
			r.Progress("%s: %s: skipped, being neither file nor folder: %s", g.Request.Name, f.Guest, strings.Join(f.Skipped, ", "))
		}
	}
}
