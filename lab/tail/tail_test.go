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

// lateWriter writes its last words just after a reader has seen the end, and is
// done.
type lateWriter struct {
	words string
	reads int
	done  chan struct{}
}

func (w *lateWriter) Read(p []byte) (int, error) {
	w.reads++
	switch w.reads {
	case 1:
		close(w.done)
		return 0, io.EOF
	case 2:
		return copy(p, w.words), nil
	}
	return 0, io.EOF
}

func (w *lateWriter) Close() error { return nil }

func TestFollowLosesNoLastWords(t *testing.T) {
	done := make(chan struct{})
	r := Follow("", done)
	r.file = &lateWriter{words: "the end", done: done}
	if b, err := io.ReadAll(r); err != nil || string(b) != "the end" {
		t.Errorf("got %q, %v", b, err)
	}
}
