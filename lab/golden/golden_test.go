package golden

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// fixture is a store of a test's own, and what it said.
type fixture struct {
	*Store
	mu   sync.Mutex
	said []string
	made int
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{}
	f.Store = at(filepath.Join(t.TempDir(), "golden"), func(format string, _ ...any) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.said = append(f.said, format)
	})
	return f
}

// get gets an entry whose file says what is in it.
func (f *fixture) get(t *testing.T, key, content string) string {
	t.Helper()
	to := t.TempDir()
	sums, err := f.Get(context.Background(), key, to, func(dir string) error {
		f.mu.Lock()
		f.made++
		f.mu.Unlock()
		return os.WriteFile(filepath.Join(dir, "state"), []byte(content), 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(to, "state"))
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%x", sha256.Sum256(b)); len(sums) != 1 || sums["state"] != want {
		t.Errorf("sums %v, want %s", sums, want)
	}
	return string(b)
}

func TestMadeOnce(t *testing.T) {
	f := newFixture(t)
	for range 3 {
		if got := f.get(t, Key("a"), "one"); got != "one" {
			t.Errorf("got %q", got)
		}
	}
	if got := f.get(t, Key("b"), "two"); got != "two" || f.made != 2 {
		t.Errorf("another key: got %q, made %d times", got, f.made)
	}
	if Key("ab", "c") == Key("a", "bc") {
		t.Error("parts of a key run into each other")
	}
}

// Many at once, each with an open file of its own as separate labs have.
func TestMadeOnceByMany(t *testing.T) {
	f := newFixture(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { f.get(t, Key("a"), "one") })
	}
	all.Wait()
	if f.made != 1 {
		t.Errorf("made %d times", f.made)
	}
}

func TestDamageIsFoundAndMended(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"a byte":       func(dir string) error { return os.WriteFile(filepath.Join(dir, "state"), []byte("oNe"), 0o600) },
		"cut short":    func(dir string) error { return os.Truncate(filepath.Join(dir, "state"), 1) },
		"file is gone": func(dir string) error { return os.Remove(filepath.Join(dir, "state")) },
		"no sums":      func(dir string) error { return os.Remove(filepath.Join(dir, sumsFile)) },
		"bad sums":     func(dir string) error { return os.WriteFile(filepath.Join(dir, sumsFile), []byte("{"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.get(t, Key("a"), "one")
			if err := damage(filepath.Join(f.dir, Key("a"))); err != nil {
				t.Fatal(err)
			}
			if got := f.get(t, Key("a"), "one"); got != "one" || f.made != 2 {
				t.Errorf("got %q, made %d times", got, f.made)
			}
			if len(f.said) != 1 || !strings.Contains(f.said[0], "damaged") {
				t.Errorf("said %q", f.said)
			}
		})
	}
}

func TestDiscard(t *testing.T) {
	f := newFixture(t)
	f.get(t, Key("a"), "one")
	if err := f.Discard(context.Background(), Key("a"), errors.New("why")); err != nil {
		t.Fatal(err)
	}
	if f.get(t, Key("a"), "two"); f.made != 2 {
		t.Errorf("made %d times", f.made)
	}
}

// What cannot be made leaves nothing, and its error is the caller's.
func TestFailureLeavesNothing(t *testing.T) {
	f := newFixture(t)
	sorry := errors.New("sorry")
	_, err := f.Get(context.Background(), Key("a"), t.TempDir(), func(dir string) error {
		os.WriteFile(filepath.Join(dir, "state"), []byte("half"), 0o600)
		return sorry
	})
	if !errors.Is(err, sorry) {
		t.Errorf("error %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(f.dir, "tmp", "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if got := f.get(t, Key("a"), "one"); got != "one" {
		t.Errorf("then got %q", got)
	}
}

func TestCancelledWhileWaiting(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancel(context.Background())
	_, err := f.Get(ctx, Key("a"), t.TempDir(), func(string) error {
		cancel()
		_, err := f.Get(ctx, Key("a"), t.TempDir(), func(string) error { t.Error("made twice"); return nil })
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestEviction(t *testing.T) {
	f := newFixture(t)
	f.room = 400 // bytes: an entry has some 150
	for _, key := range []string{"a", "b", "a", "c", "d"} {
		f.get(t, Key(key), strings.Repeat(key, 50))
	}
	all, total := f.entries()
	if total > f.room || len(all) != 2 {
		t.Errorf("%d entries of %d bytes", len(all), total)
	}
	if f.made = 0; f.get(t, Key("d"), "") != strings.Repeat("d", 50) || f.made != 0 {
		t.Error("the newest went")
	}
}

func TestVerify(t *testing.T) {
	for name, tt := range map[string]struct {
		damage  func(dir string) error
		damaged int
	}{
		"whole":     {func(string) error { return nil }, 0},
		"truncated": {func(dir string) error { return os.Truncate(filepath.Join(dir, "state"), 1) }, 1},
		"tampered":  {func(dir string) error { return os.WriteFile(filepath.Join(dir, "state"), []byte("eno"), 0o600) }, 1},
		"removed":   {func(dir string) error { return os.Remove(filepath.Join(dir, "state")) }, 1},
		"no list":   {func(dir string) error { return os.WriteFile(filepath.Join(dir, sumsFile), []byte("{"), 0o600) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.get(t, Key("a"), "one")
			f.get(t, Key("b"), "two")
			dir := filepath.Join(f.dir, Key("a"))
			if err := tt.damage(dir); err != nil {
				t.Fatal(err)
			}
			n, damaged, err := f.Verify(context.Background())
			if err != nil || n != 2 || len(damaged) != tt.damaged {
				t.Fatalf("Verify = %d, %v, %v, want %d of 2 damaged", n, damaged, err, tt.damaged)
			}
			for _, d := range damaged {
				if !strings.Contains(d.Error(), dir) || !strings.Contains(d.Error(), "remove it") {
					t.Errorf("%q does not say what to do with %s", d, dir)
				}
			}
		})
	}
}

// A store that this user cannot write serves what it has. Modes do not stop
// root, so the test's thread takes another user's file-system identity; it is
// locked and never used again.
func TestReadOnlyStore(t *testing.T) {
	top, err := os.MkdirTemp("", "golden-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	f := newFixture(t)
	f.Store = at(filepath.Join(top, "golden"), f.say)
	f.get(t, Key("a"), "one")
	to := filepath.Join(top, "to")
	err = errors.Join(os.Mkdir(to, 0o777), os.Chmod(to, 0o777), os.Chmod(top, 0o755))
	err = errors.Join(err, filepath.Walk(f.dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		if info.IsDir() {
			return os.Chmod(path, 0o555)
		}
		return os.Chmod(path, 0o444)
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = filepath.Walk(f.dir, func(path string, info os.FileInfo, err error) error { return os.Chmod(path, 0o755) })
	})
	type answer struct{ warm, cold error }
	got := make(chan answer)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this function
		if os.Geteuid() == 0 {
			if err := unix.Setfsuid(54321); err != nil {
				got <- answer{err, nil}
				return
			}
		}
		never := func(string) error { return errors.New("made") }
		_, warm := f.Get(context.Background(), Key("a"), to, never)
		_, cold := f.Get(context.Background(), Key("b"), to, never)
		got <- answer{warm, cold}
	}()
	a := <-got
	if a.warm != nil {
		t.Errorf("what is there: %v", a.warm)
	}
	if a.cold == nil || !strings.Contains(a.cold.Error(), "XDG_CACHE_HOME") {
		t.Errorf("what is not there: %v, want a word on XDG_CACHE_HOME", a.cold)
	}
}

// What a killed lab left unfinished goes; what another one is making stays.
func TestUnfinishedEntries(t *testing.T) {
	f := newFixture(t)
	f.get(t, Key("a"), "one")
	dead, live := filepath.Join(f.dir, "tmp", Key("dead")), filepath.Join(f.dir, "tmp", Key("live"))
	for _, dir := range []string{dead, live} {
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "state"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	lock, err := os.Create(filepath.Join(f.dir, "lock", Key("live")))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	f.get(t, Key("a"), "one")
	if _, err := os.Stat(dead); err == nil {
		t.Error("what nobody makes is left")
	}
	if _, err := os.Stat(live); err != nil {
		t.Errorf("what somebody makes is gone: %v", err)
	}
}
