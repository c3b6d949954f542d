package analysis

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"kerninst/agent/index"
	"kerninst/agent/ktext"
	"kerninst/lab/golden"
	"kerninst/lab/qemu"
)

// Stored is a kernel's index as it is kept, with what was found when it was made.
type Stored struct {
	Index *index.Index
	// Totals' Seconds are of this call: of each step if the index was made,
	// else how long it took to read it.
	Totals Totals
	Bytes  []byte // of the index
	Made   bool   // now; else it was there
}

// indexFile is the index's name in its entry of the store.
const indexFile = "kernel.index"

// Find returns the index of a dumped kernel from the user's store; one that is
// not there, or not what was written, is made. say is told of the odd.
func Find(ctx context.Context, d *ktext.Dump, say func(format string, args ...any)) (*Stored, error) {
	key, err := indexKey(d)
	if err != nil {
		return nil, err
	}
	store, err := golden.Open(say)
	if err != nil {
		return nil, err
	}
	dir, err := qemu.NewRunDir()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	for first := true; ; first = false {
		s, err := find(ctx, store, key, dir.Path, d)
		var damaged *index.Damaged
		if !errors.As(err, &damaged) || !first {
			return s, err
		}
		if err := store.Discard(ctx, key, damaged); err != nil {
			return nil, err
		}
	}
}

// indexKey names an index by all that decides about it: the dump, and the program
// that makes it, which is this one.
func indexKey(d *ktext.Dump) (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	f, err := os.Open(exe)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return golden.Key("index", fmt.Sprint(index.Version), fmt.Sprintf("%x", h.Sum(nil)), fmt.Sprintf("%x", d.Sum)), nil
}

func find(ctx context.Context, store *golden.Store, key, dir string, d *ktext.Dump) (*Stored, error) {
	start := time.Now()
	s := &Stored{}
	_, err := store.Get(ctx, key, dir, func(to string) (err error) {
		*s, err = makeIndex(d)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, indexFile), s.Bytes, 0o600)
	})
	if err != nil {
		return nil, err
	}
	if s.Made {
		s.Totals.Seconds.Total = time.Since(start).Seconds()
		return s, nil
	}
	if s.Bytes, err = os.ReadFile(filepath.Join(dir, indexFile)); err != nil {
		return nil, err
	}
	if err := s.open(d); err != nil {
		return nil, err
	}
	cached := time.Since(start).Seconds()
	s.Totals.Seconds = Seconds{Cached: cached, Total: cached}
	return s, nil
}

// makeIndex analyses a kernel and makes its index.
func makeIndex(d *ktext.Dump) (Stored, error) {
	k, err := Analyse(d)
	if err != nil {
		return Stored{}, err
	}
	k.Average()
	s := Stored{Totals: k.Totals, Made: true}
	if s.Bytes, err = k.MakeIndex(); err != nil {
		return s, err
	}
	s.Index, err = index.Open(s.Bytes)
	return s, err
}

// MakeIndex makes the index of an analysed kernel; its totals go along, without
// the seconds.
func (k *Kernel) MakeIndex() ([]byte, error) {
	t := k.Totals
	t.Seconds = Seconds{}
	about, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	return index.Make(index.Source{Text: k.Text, Graph: k.Graph, Live: k.Live, Dump: k.dump,
		About: about, Workers: runtime.GOMAXPROCS(0)})
}

// open reads a whole index and checks that it is the one that was wanted.
func (s *Stored) open(d *ktext.Dump) (err error) {
	if s.Index, err = index.Open(s.Bytes); err != nil {
		return err
	}
	if err := s.Index.Verify(); err != nil {
		return err
	}
	if sum := s.Index.Source(); !bytes.Equal(sum[:], d.Sum[:]) || s.Index.Arch() != d.Arch {
		return &index.Damaged{What: "it is of another dump"}
	}
	about, err := s.Index.About()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(about, &s.Totals); err != nil {
		return &index.Damaged{What: "what it says of itself cannot be read: " + err.Error()}
	}
	return nil
}
