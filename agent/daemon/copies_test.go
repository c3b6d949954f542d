package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kerninst/agent/wire"
)

// TestCopied: a guest that has not been told of copies says how it is, and one that has been told of
// something else does not believe it. (What comes of the right ones, ci/e2e's TestKinst asks in a guest.)
func TestCopied(t *testing.T) {
	d := planning(t, "amd64")
	if err := d.copies(&wire.Copies{Specs: []string{"kinst::f:entry"}}, &wire.Result{}); err == nil || !strings.Contains(err.Error(), "lab shell --inline") {
		t.Errorf("of a guest that has none: %v", err)
	}
	damaged := filepath.Join(t.TempDir(), "copies")
	if err := os.WriteFile(damaged, []byte("nothing of that kind"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		damaged:                               damaged + ": inline: no index of inlined copies",
		"../../scenarios/copies/amd64.copies": "is of another build",
		"../../scenarios/copies/arm64.copies": "is of another build",
	} {
		var c copied
		err := c.readAll(file, "")
		if err == nil {
			_, err = c.of(d.text)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
}
