package images

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
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"kerninst/lab/plain"
)

// Digest names an object: its content and its length in bytes.
type Digest struct {
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// DamagedError says that a file or folder of the cache is not what was put there.
type DamagedError struct {
	Path string
	Why  string
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%s in the cache is damaged: %s; remove it and run again", e.Path, e.Why)
}

// cache is the content-addressed store of the package comment.
type cache struct {
	dir string
	say func(format string, args ...any)
	// used, if not nil, collects the paths of what is found, and nothing is
	// made: GC and Export look around without changing anything.
	used *found
	look bool // nothing is removed or locked either
}

// found is a set of paths, for use by several goroutines: an image's parts are looked
// for at once.
type found struct {
	mu    sync.Mutex
	paths map[string]bool
}

func newFound() *found { return &found{paths: map[string]bool{}} }

func (f *found) add(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paths[path] = true
}

func (c *cache) note(path string) {
	if c.used != nil {
		c.used.add(path)
	}
}

// cacheVersion is of the cache's layout: count it up when labs of before could
// not use, or would damage, what is written from now on.
const cacheVersion = 1

// versionFile says which version wrote the cache; none means 1.
const versionFile = "version"

// openCache names the cache; it is created by the first write.
func openCache(say func(string, ...any)) (*cache, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("images: no cache directory: %w; set XDG_CACHE_HOME", err)
	}
	c := &cache{dir: filepath.Join(base, "kerninst"), say: say}
	return c, c.known()
}

// known refuses a cache that a newer lab has written.
func (c *cache) known() error {
	name := filepath.Join(c.dir, versionFile)
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	} else if err != nil {
		return fmt.Errorf("images: cache: %w", err)
	}
	v, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || v < 1 {
		return fmt.Errorf("images: %s does not hold a number: remove the cache %s, or set XDG_CACHE_HOME to use another", name, c.dir)
	}
	if v > cacheVersion {
		return fmt.Errorf("images: the cache %s is of version %d, written by a newer lab; this one knows version %d: update these sources, or set XDG_CACHE_HOME to use another cache",
			c.dir, v, cacheVersion)
	}
	return nil
}

// create makes the cache's own folder, with its version.
func (c *cache) create() error {
	if _, err := os.Stat(filepath.Join(c.dir, versionFile)); err == nil {
		return nil
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	return c.write(filepath.Join(c.dir, versionFile), fmt.Appendf(nil, "%d\n", cacheVersion))
}

// inUse is locked by whoever needs the cache to stay as it is: shared by labs
// until their process ends, alone by GC.
const inUse = "in-use"

// held has the locks of caches that this process has declared in use, by folder:
// open files, which the programs that it starts inherit (tie).
var held sync.Map

// use keeps GC away from the cache until this process ends, and removes what labs
// left there that were killed. Of a cache that cannot be written there is no GC.
func (c *cache) use(ctx context.Context) error {
	if _, done := held.Load(c.dir); done || c.look {
		return nil
	}
	c.sweep()
	lock, err := c.flock(ctx, inUse, syscall.LOCK_SH, "lab image gc")
	if err == nil {
		held.Store(c.dir, lock) // for ever: a file that nobody refers to is closed
	}
	return ctx.Err()
}

// path is a file of the cache, whose parent is made when create is set.
func (c *cache) path(create bool, elem ...string) (string, error) {
	p := filepath.Join(append([]string{c.dir}, elem...)...)
	if create {
		if err := errors.Join(c.create(), os.MkdirAll(filepath.Dir(p), 0o755)); err != nil {
			return "", c.unwritable(err)
		}
	}
	return p, nil
}

func (c *cache) unwritable(err error) error {
	return fmt.Errorf("images: cache directory %s cannot be written: %w; "+
		"set XDG_CACHE_HOME to one that can", c.dir, err)
}

func (c *cache) object(d Digest) string {
	return filepath.Join(c.dir, "sha256", d.SHA256[:2], d.SHA256)
}

// check looks at the object's length: fs.ErrNotExist, *DamagedError or nil.
func (c *cache) check(d Digest) error {
	if !validSum(d.SHA256) {
		return &DamagedError{c.dir, fmt.Sprintf("an index names %q as a SHA-256", d.SHA256)}
	}
	info, err := os.Stat(c.object(d))
	if err != nil {
		return err
	}
	if info.Size() != d.Size {
		return &DamagedError{c.object(d), fmt.Sprintf("%d bytes instead of %d", info.Size(), d.Size)}
	}
	c.note(c.object(d))
	return nil
}

// verify reads the whole object.
func (c *cache) verify(d Digest) error {
	if err := c.check(d); err != nil {
		return err
	}
	sum, _, err := hashFile(c.object(d))
	if err != nil {
		return err
	}
	if sum != d.SHA256 {
		return &DamagedError{c.object(d), "its SHA-256 is " + sum}
	}
	return nil
}

// discard removes an object that is damaged and says so; other errors mean
// that there is none.
func (c *cache) discard(d Digest, what string, err error) {
	var bad *DamagedError
	if !errors.As(err, &bad) || !validSum(d.SHA256) || c.look {
		return
	}
	c.say("%s: cached file %s is damaged (%s): removed, to be made again", what, bad.Path, bad.Why)
	os.Remove(c.object(d))
}

// put stores what r holds.
func (c *cache) put(r io.Reader) (Digest, error) {
	tmp, err := c.temp("object")
	if err != nil {
		return Digest{}, err
	}
	defer os.RemoveAll(tmp)
	name := filepath.Join(tmp, "data")
	f, err := os.Create(name)
	if err != nil {
		return Digest{}, c.unwritable(err)
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, h), r)
	if err = errors.Join(err, f.Close()); err != nil {
		return Digest{}, fmt.Errorf("images: %s: %w", name, err)
	}
	d := Digest{hex.EncodeToString(h.Sum(nil)), n}
	return d, c.adopt(name, d)
}

// adopt moves a finished file of the same file system into the store.
func (c *cache) adopt(name string, d Digest) error {
	dst, err := c.path(true, "sha256", d.SHA256[:2], d.SHA256)
	if err != nil {
		return err
	}
	if err := os.Chmod(name, 0o444); err != nil {
		return c.unwritable(err)
	}
	if err := os.Rename(name, dst); err != nil {
		return c.unwritable(err)
	}
	return nil
}

// write replaces a file of the cache by a complete one.
func (c *cache) write(name string, data []byte) error {
	if err := os.MkdirAll(filepath.Join(c.dir, unfinished), 0o755); err != nil {
		return err
	}
	return replaceFile(name, filepath.Join(c.dir, unfinished), data, 0o644)
}

// unfinished is the folder of work that has not been put into its place.
const unfinished = "tmp"

// dead are the patterns of what a lab that was killed leaves behind.
var dead = []string{unfinished + "/*", "tree/*/build/*"}

// sweep removes what killed labs left behind, if nobody else uses the cache: a lab,
// or a program that a killed one had started. Nothing depends on it, so it never
// fails.
func (c *cache) sweep() {
	var found []string
	for _, pattern := range dead {
		names, _ := filepath.Glob(filepath.Join(c.dir, pattern))
		found = append(found, names...)
	}
	if len(found) == 0 {
		return // without a lock, on which others would wait
	}
	lock, err := c.tryFlock(inUse, syscall.LOCK_EX)
	if err != nil {
		return
	}
	defer lock.Close()
	for _, name := range found {
		os.RemoveAll(name)
	}
}

// temp makes a directory for unfinished work.
func (c *cache) temp(kind string) (string, error) {
	p, err := c.path(true, unfinished, "x")
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(filepath.Dir(p), kind+"-")
	if err != nil {
		return "", c.unwritable(err)
	}
	return dir, nil
}

// lock makes the caller the only one that makes the named entry, among all
// processes. The kernel releases it if the process dies.
func (c *cache) lock(ctx context.Context, name string) (unlock func(), err error) {
	f, err := c.lockFile(ctx, name)
	return func() { f.Close() }, err
}

// lockFile is lock for a step that starts programs. They are given the file, so
// that the lock is theirs too.
func (c *cache) lockFile(ctx context.Context, name string) (*os.File, error) {
	return c.flock(ctx, name, syscall.LOCK_EX, "another lab that makes "+name)
}

// flock waits for a lock, held until the file is closed; whom for is said if it
// takes time.
func (c *cache) flock(ctx context.Context, name string, how int, whom string) (*os.File, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for waiting := false; ; waiting = true {
		f, err := c.tryFlock(name, how)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return f, err
		}
		if !waiting {
			c.say("waiting for %s", whom)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// tryFlock takes a lock now or gives EWOULDBLOCK.
func (c *cache) tryFlock(name string, how int) (*os.File, error) {
	p, err := c.path(true, "lock", name)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(p, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, c.unwritable(err)
	}
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		err = syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("images: lock %s: %w", p, err)
	}
	return f, nil
}

// load reads an index entry; false means that there is none to be used.
func (c *cache) load(kind, key string, v any) bool {
	p, _ := c.path(false, "index", kind, key)
	b, err := os.ReadFile(p)
	if err != nil || json.Unmarshal(b, v) != nil {
		return false
	}
	c.note(p)
	return true
}

func (c *cache) store(kind, key string, v any) error {
	b, err := json.MarshalIndent(v, "", "\t")
	if err != nil {
		return err
	}
	dst, err := c.path(true, "index", kind, key)
	if err != nil {
		return err
	}
	return c.write(dst, append(b, '\n'))
}

// files are what one step made, by name.
type files map[string]Digest

// made returns the files of the step (kind, key), from the cache if it has
// them all, else by running it.
func (c *cache) made(ctx context.Context, kind, key string, step func() (files, error)) (files, error) {
	if got := c.have(kind, key); got != nil {
		return got, nil
	}
	if c.used != nil {
		return nil, ErrNotCached
	}
	unlock, err := c.lock(ctx, kind+"-"+key)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if got := c.have(kind, key); got != nil {
		return got, nil
	}
	got, err := step()
	if err != nil {
		return nil, err
	}
	return got, c.store(kind, key, got)
}

func (c *cache) have(kind, key string) files {
	var got files
	if !c.load(kind, key, &got) || len(got) == 0 {
		return nil
	}
	for name, d := range got {
		if err := c.check(d); err != nil {
			c.discard(d, name, err)
			return nil
		}
	}
	return got
}

// writeFile replaces name by a complete file.
func writeFile(name string, data []byte, mode fs.FileMode) error {
	return replaceFile(name, filepath.Dir(name), data, mode)
}

// replaceFile writes it in the folder dir of the same file system first.
func replaceFile(name, dir string, data []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(dir, ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

func hashFile(name string) (sum string, size int64, err error) {
	f, err := plain.Open(name)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := sha256.New()
	size, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), size, err
}

func digestOf(b []byte) Digest {
	sum := sha256.Sum256(b)
	return Digest{hex.EncodeToString(sum[:]), int64(len(b))}
}

// keyOf hashes parts unambiguously: no part can run into the next.
func keyOf(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s,", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func validSum(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}
