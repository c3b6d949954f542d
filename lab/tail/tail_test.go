package tail

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"
)

func TestFollowWaitsForMore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	done := make(chan struct{})
	r := Follow(path, done)
	defer r.Close()

	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := make([]byte, 3)
	for _, want := range []string{"one", "two"} {
		f.WriteString(want)
		if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
	}
	rest := make(chan string)
	go func() {
		b, err := io.ReadAll(r)
		if err != nil {
			t.Error(err)
		}
		rest <- string(b)
	}()
	f.WriteString("the last words")
	close(done)
	if got := <-rest; got != "the last words" {
		t.Errorf("rest = %q", got)
	}
}

func TestFollowFileThatNeverCame(t *testing.T) {
	done := make(chan struct{})
	close(done)
	b, err := io.ReadAll(Follow(filepath.Join(t.TempDir(), "none"), done))
	if err != nil || len(b) != 0 {
		t.Errorf("got %q, %v", b, err)
	}
}

func TestFollowUnreadable(t *testing.T) {
	r := Follow(t.TempDir(), nil) // a folder cannot be read
	defer r.Close()
	if _, err := r.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("err = %v", err)
	}
}

func TestFollowIsAReader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("some text"), 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	close(done)
	r := Follow(path, done)
	defer r.Close()
	if err := iotest.TestReader(r, []byte("some text")); err != nil {
		t.Error(err)
	}
}
