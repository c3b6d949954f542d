package analysis_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"kerninst/lab/analysis"
)

// TestStored: what is made once is found again; what is damaged is made again.
func TestStored(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	d := recorded(t, "riscv64")
	find := func() *analysis.Stored {
		t.Helper()
		s, err := analysis.Find(context.Background(), d, t.Logf)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := find()
	if !first.Made || first.Totals.Seconds.CFG == 0 || first.Totals.Seconds.Cached != 0 {
		t.Errorf("made first: %+v", first.Totals)
	}
	second := find()
	if s := second.Totals.Seconds; second.Made || s.Cached <= 0 || s.CFG != 0 || !bytes.Equal(first.Bytes, second.Bytes) {
		t.Errorf("found then: made %v, %+v", second.Made, s)
	}
	second.Totals.Seconds = first.Totals.Seconds
	if first.Totals != second.Totals {
		t.Errorf("%+v, then %+v", first.Totals, second.Totals)
	}

	files, err := filepath.Glob(filepath.Join(cache, "kerninst/golden/*/kernel.index"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	for name, damage := range map[string]func([]byte) []byte{
		"half of it": func(b []byte) []byte { return b[:len(b)/2] },
		"a bit":      func(b []byte) []byte { b = bytes.Clone(b); b[len(b)/2] ^= 1; return b },
	} {
		if err := os.WriteFile(files[0], damage(first.Bytes), 0o600); err != nil {
			t.Fatal(err)
		}
		if s := find(); !s.Made || !bytes.Equal(s.Bytes, first.Bytes) {
			t.Errorf("%s missing: made %v", name, s.Made)
		}
		if s := find(); s.Made {
			t.Errorf("%s missing: not kept", name)
		}
	}
	other := recorded(t, "riscv64")
	other.Sum[0] ^= 1
	if s, err := analysis.Find(context.Background(), other, t.Logf); err != nil || !s.Made {
		t.Errorf("another dump's index was taken: %v", err)
	}
}
