// Package golden keeps the states of machines that have booted and are ready
// for a job, so that each kind of machine boots once.
//
// A store is shared by all labs of a user:
//
//	$XDG_CACHE_HOME/kerninst/golden/
//	    KEY/       one entry: its files, and sums.json with their hashes
//	    lock/KEY   held shared while an entry is read, alone while it is made
//	    tmp/KEY/   an entry that is being made, under that lock
//
// An entry appears whole, by rename. One that is damaged is found when it is
// read, since every byte is hashed on its way, and is made again.
package golden

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"time"

	"golang.org/x/sys/unix"

	"kerninst/lab/untrusted"
)

const (
	sumsFile = "sums.json"
	// room is how much a store may hold, in bytes: some thirty states. What was
	// used longest ago goes first.
	room = 5 << 30
	// retry is how often a lock that somebody else holds is tried again.
	retry = 20 * time.Millisecond
)

// Store is a folder of entries. Any number of processes may use it.
type Store struct {
	dir  string
	room int64
	say  func(format string, args ...any)
}

// Open names the user's store; the first entry creates it. say is told what is
// odd and what takes long.
func Open(say func(format string, args ...any)) (*Store, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("golden states: no cache directory: %w; set XDG_CACHE_HOME", err)
	}
	return at(filepath.Join(base, "kerninst", "golden"), say), nil
}

func at(dir string, say func(string, ...any)) *Store { return &Store{dir: dir, room: room, say: say} }

// Key hashes everything that a state depends on. No part can run into the next.
func Key(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s,", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Get copies an entry's files into the folder to, and says what their SHA-256 is, in hex, by their
// names. If there is none that can be used, make is called to write them into the folder that it is given.
func (s *Store) Get(ctx context.Context, key, to string, make func(dir string) error) (sums map[string]string, err error) {
	for _, name := range []string{"lock", "tmp"} {
		if err := os.MkdirAll(filepath.Join(s.dir, name), 0o700); err != nil {
			return nil, fmt.Errorf("golden states: %w; set XDG_CACHE_HOME to a folder that can be written", err)
		}
	}
	s.sweep()
	copied := func() (err error) { sums, err = s.copy(key, to); return err }
	if done, err := s.locked(ctx, key, unix.LOCK_SH, copied); done || err != nil {
		return sums, err
	}
	_, err = s.locked(ctx, key, unix.LOCK_EX, func() error {
		// Somebody else may have made it meanwhile.
		if err := copied(); err == nil || !isUnusable(err) {
			return err
		}
		if err := s.make(key, make); err != nil {
			return err
		}
		return copied()
	})
	if err == nil {
		s.evict(key)
	}
	return sums, err
}

// sweep removes what labs left behind that were killed while they made an entry,
// that is, without a lock. Nothing depends on it, so it never fails.
func (s *Store) sweep() {
	tmp := filepath.Join(s.dir, "tmp")
	left, _ := os.ReadDir(tmp)
	for _, e := range left {
		s.alone(e.Name(), func() error { return os.RemoveAll(filepath.Join(tmp, e.Name())) })
	}
}

// alone does something with an entry, unless somebody else uses it now.
func (s *Store) alone(key string, do func() error) bool {
	lock, err := os.OpenFile(filepath.Join(s.dir, "lock", key), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return false
	}
	defer lock.Close()
	return unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil && do() == nil
}

// Discard removes an entry that turned out to be of no use, and says why.
func (s *Store) Discard(ctx context.Context, key string, why error) error {
	_, err := s.locked(ctx, key, unix.LOCK_EX, func() error {
		s.say("golden state removed, to be made again: %v", why)
		return os.RemoveAll(filepath.Join(s.dir, key))
	})
	return err
}

// Verify reads all entries. It returns how many there are, and an error for each
// that is not what was written.
func (s *Store) Verify(ctx context.Context) (n int, damaged []error, err error) {
	all, _ := s.entries()
	for _, e := range all {
		dir := filepath.Join(s.dir, e.key)
		done, err := s.locked(ctx, e.key, unix.LOCK_SH, func() error {
			return eachSum(dir, func(name string, want sum) error {
				got, err := copySum(io.Discard, filepath.Join(dir, name))
				if err == nil && got != want {
					err = &unusable{name + " is not what was written"}
				}
				return err
			})
		})
		n++
		if ctx.Err() != nil {
			return n, damaged, ctx.Err()
		}
		if !done || err != nil {
			damaged = append(damaged, fmt.Errorf("the golden state %s is damaged; remove it and run again", dir))
		}
	}
	return n, damaged, nil
}

// unusable says why an entry cannot be used; "" means that there is none.
type unusable struct{ why string }

func (e *unusable) Error() string { return "golden state: " + e.why }

func isUnusable(err error) bool {
	var u *unusable
	return errors.As(err, &u)
}

// locked calls f under the entry's lock. It reports whether f came to an end
// other than that the entry cannot be used.
func (s *Store) locked(ctx context.Context, key string, how int, f func() error) (done bool, err error) {
	name := filepath.Join(s.dir, "lock", key)
	lock, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil && how == unix.LOCK_SH { // a store that cannot be written can be read
		lock, err = os.Open(name)
	}
	if err != nil {
		return false, fmt.Errorf("golden states: %w; set XDG_CACHE_HOME to a folder that can be written", err)
	}
	defer lock.Close()
	for {
		err := unix.Flock(int(lock.Fd()), how|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return false, fmt.Errorf("golden states: lock %s: %w", lock.Name(), err)
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	err = f()
	if how == unix.LOCK_SH && isUnusable(err) {
		return false, nil
	}
	return true, err
}

// sum of one file.
type sum struct {
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// make has an entry made and puts it in its place.
func (s *Store) make(key string, make func(dir string) error) error {
	tmp, dst := filepath.Join(s.dir, "tmp", key), filepath.Join(s.dir, key)
	if err := os.RemoveAll(tmp); err != nil { // of a lab that was killed
		return err
	}
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return fmt.Errorf("golden states: %w", err)
	}
	defer os.RemoveAll(tmp)
	if err := make(tmp); err != nil {
		return err
	}
	if err := seal(tmp); err != nil {
		return fmt.Errorf("golden states: %w", err)
	}
	if _, err := os.Lstat(dst); err == nil {
		s.say("golden state %.12s is damaged: made again", key)
	}
	return errors.Join(os.RemoveAll(dst), os.Rename(tmp, dst))
}

// seal writes the sums of all files in dir.
func seal(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	sums := map[string]sum{}
	for _, f := range files {
		got, err := copySum(io.Discard, filepath.Join(dir, f.Name()))
		if err != nil {
			return err
		}
		sums[f.Name()] = got
	}
	b, err := json.Marshal(sums)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, sumsFile), b, 0o600)
}

// copy copies an entry's files and checks them on the way.
func (s *Store) copy(key, to string) (sums map[string]string, err error) {
	dir := filepath.Join(s.dir, key)
	sums = map[string]string{}
	err = eachSum(dir, func(name string, want sum) error {
		sums[name] = want.SHA256
		return copyChecked(filepath.Join(to, name), filepath.Join(dir, name), want)
	})
	if err != nil {
		return nil, err
	}
	now := time.Now()
	_ = os.Chtimes(filepath.Join(dir, sumsFile), now, now) // for evict alone
	return sums, nil
}

// eachSum calls f with the files of an entry and what they should be.
func eachSum(dir string, f func(name string, want sum) error) error {
	b, err := os.ReadFile(filepath.Join(dir, sumsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return &unusable{"there is none"}
	} else if err != nil {
		return &unusable{err.Error()}
	}
	var sums map[string]sum
	if err := json.Unmarshal(b, &sums); err != nil || len(sums) == 0 {
		return &unusable{"its list of files cannot be read"}
	}
	for name, want := range sums {
		if err := f(filepath.Base(name), want); err != nil {
			return err
		}
	}
	return nil
}

func copyChecked(dst, src string, want sum) (err error) {
	out, err := untrusted.Create(dst)
	if err != nil {
		return fmt.Errorf("golden state: %w", err)
	}
	defer func() {
		if e := out.Close(); err == nil && e != nil {
			err = fmt.Errorf("golden state: %w", e)
		}
	}()
	got, err := copySum(out, src)
	var path *fs.PathError
	switch {
	case errors.As(err, &path) && path.Path == src:
		return &unusable{err.Error()}
	case err != nil:
		return fmt.Errorf("golden state: %w", err)
	case got != want:
		return &unusable{fmt.Sprintf("%s is not what was written", filepath.Base(src))}
	}
	return nil
}

func copySum(dst io.Writer, src string) (sum, error) {
	f, err := os.Open(src)
	if err != nil {
		return sum{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.CopyBuffer(io.MultiWriter(dst, h), struct{ io.Reader }{f}, make([]byte, 1<<20))
	return sum{hex.EncodeToString(h.Sum(nil)), n}, err
}

// entry is what evict wants to know of one.
type entry struct {
	key  string
	used time.Time
	size int64
}

// evict removes what was used longest ago until the rest has room. Entries in
// use, and the one to keep, stay. Nothing depends on it, so it never fails.
func (s *Store) evict(keep string) {
	all, total := s.entries()
	sort.Slice(all, func(i, j int) bool { return all[i].used.Before(all[j].used) })
	for _, e := range all {
		if total <= s.room {
			return
		}
		if e.key == keep {
			continue
		}
		if s.alone(e.key, func() error { return os.RemoveAll(filepath.Join(s.dir, e.key)) }) {
			total -= e.size
		}
	}
}

func (s *Store) entries() (all []entry, total int64) {
	found, _ := filepath.Glob(filepath.Join(s.dir, "*", sumsFile))
	for _, f := range found {
		dir := filepath.Dir(f)
		st, err := os.Stat(f)
		if err != nil {
			continue
		}
		e := entry{key: filepath.Base(dir), used: st.ModTime()}
		files, _ := os.ReadDir(dir)
		for _, f := range files {
			if info, err := f.Info(); err == nil {
				e.size += info.Size()
			}
		}
		all, total = append(all, e), total+e.size
	}
	return all, total
}
