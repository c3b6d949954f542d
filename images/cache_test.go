package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// testCache is an empty cache of its own for the test, which is where Ensure
// looks too. What is said is in said.
func testCache(t *testing.T) (c *cache, said *[]string) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	said = new([]string)
	c, err := openCache(func(format string, args ...any) { *said = append(*said, format) })
	if err != nil {
		t.Fatal(err)
	}
	return c, said
}

func mustPut(t *testing.T, c *cache, content string) Digest {
	t.Helper()
	d, err := c.put(strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// overwrite changes an object behind the cache's back.
func overwrite(t *testing.T, c *cache, d Digest, content string) {
	t.Helper()
	name := c.object(d)
	if err := errors.Join(os.Chmod(name, 0o644), os.WriteFile(name, []byte(content), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func TestDamage(t *testing.T) {
	tests := []struct {
		name, content   string
		check, verifies bool // pass
	}{
		{"whole", "content", true, true},
		{"truncated", "cont", false, false},
		{"tampered", "kontent", true, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, _ := testCache(t)
			d := mustPut(t, c, "content")
			overwrite(t, c, d, tt.content)
			for what, got := range map[string]struct {
				err error
				ok  bool
			}{"check": {c.check(d), tt.check}, "verify": {c.verify(d), tt.verifies}} {
				var bad *DamagedError
				switch {
				case got.ok && got.err != nil:
					t.Errorf("%s: %v", what, got.err)
				case !got.ok && !errors.As(got.err, &bad):
					t.Errorf("%s = %v, want a DamagedError", what, got.err)
				case !got.ok && bad.Path != c.object(d):
					t.Errorf("%s names %s, want %s", what, bad.Path, c.object(d))
				}
			}
		})
	}
}

func TestMadeAgainWhenDamaged(t *testing.T) {
	c, said := testCache(t)
	runs := 0
	step := func() (files, error) {
		runs++
		return files{"out": mustPut(t, c, "content")}, nil
	}
	get := func() Digest {
		t.Helper()
		got, err := c.made(context.Background(), "kind", "key", step)
		if err != nil {
			t.Fatal(err)
		}
		return got["out"]
	}
	d := get()
	if get(); runs != 1 {
		t.Errorf("step ran %d times, want once", runs)
	}
	overwrite(t, c, d, "cont")
	if get(); runs != 2 || c.verify(d) != nil {
		t.Errorf("after truncation: %d runs, %v, want 2 and a good object", runs, c.verify(d))
	}
	if len(*said) != 1 || !strings.Contains((*said)[0], "damaged") {
		t.Errorf("said %q, want one line about the damage", *said)
	}
}

// Each made call has a cache of its own, as two labs have: only the files are
// shared.
func TestTwoAtOnce(t *testing.T) {
	first, _ := testCache(t)
	var runs atomic.Int32
	inside := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			c := &cache{dir: first.dir, say: func(string, ...any) {}}
			_, err := c.made(context.Background(), "kind", "key", func() (files, error) {
				if runs.Add(1) == 1 {
					close(inside)
				}
				d, err := c.put(strings.NewReader("content"))
				return files{"out": d}, err
			})
			if err != nil {
				t.Error(err)
			}
		}()
	}
	<-inside
	wg.Wait()
	if runs.Load() != 1 {
		t.Errorf("step ran %d times, want once", runs.Load())
	}
}

func TestLockIsGivenUpWithTheContext(t *testing.T) {
	c, _ := testCache(t)
	unlock, err := c.lock(context.Background(), "x")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.lock(ctx, "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("second lock = %v, want %v", err, context.Canceled)
	}
	unlock()
	if unlock, err = c.lock(context.Background(), "x"); err != nil {
		t.Errorf("lock after unlock: %v", err)
	} else {
		unlock()
	}
}

// A file where a directory should be stops even root, as mode bits do not.
func TestUnwritable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", file)
	_, err := Toolchain(context.Background(), Options{Arch: "arm64", Root: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "XDG_CACHE_HOME") || !strings.Contains(err.Error(), file) {
		t.Errorf("Toolchain = %v, want an error with the directory and XDG_CACHE_HOME", err)
	}
}

func TestKeyOfKeepsPartsApart(t *testing.T) {
	if keyOf("ab", "c") == keyOf("a", "bc") || keyOf("a") == keyOf("a", "") {
		t.Error("different parts have one key")
	}
}

// What a killed lab left unfinished goes when the next one begins, unless somebody
// else is at work: it may be theirs.
func TestSweep(t *testing.T) {
	c, _ := testCache(t)
	d := mustPut(t, c, "content")
	left := []string{"tmp/object-1/data", "tmp/.new-1", "tree/key/build/run-1/src/x"}
	kept := []string{"tree/key/usr/bin/gcc", "index/base/key"}
	for _, name := range append(left, kept...) {
		p := filepath.Join(c.dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	there := func(name string) bool {
		_, err := os.Stat(filepath.Join(c.dir, name))
		return err == nil
	}
	other, err := c.tryFlock(inUse, syscall.LOCK_SH)
	if err != nil {
		t.Fatal(err)
	}
	c.sweep()
	for _, name := range left {
		if !there(name) {
			t.Errorf("beside another lab, %s was removed", name)
		}
	}
	other.Close()
	if err := c.use(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, name := range left {
		if there(name) {
			t.Errorf("%s is left", name)
		}
	}
	for _, name := range kept {
		if !there(name) {
			t.Errorf("%s was removed", name)
		}
	}
	if err := c.verify(d); err != nil {
		t.Error(err)
	}
	if _, err := c.tryFlock(inUse, syscall.LOCK_EX); !errors.Is(err, syscall.EWOULDBLOCK) {
		t.Errorf("after sweeping, the cache is not in use: %v", err)
	}
}

// TestNoteAtOnce: several parts of an image are looked for at once.
func TestNoteAtOnce(t *testing.T) {
	c := &cache{used: newFound()}
	var wg sync.WaitGroup
	for k := range 8 {
		wg.Go(func() {
			for n := range 1000 {
				c.note(fmt.Sprint(k, " ", n))
			}
		})
	}
	wg.Wait()
	if n := len(c.used.paths); n != 8000 {
		t.Errorf("%d paths are noted, not 8000", n)
	}
}
