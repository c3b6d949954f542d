package runner

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"kerninst/agent/wire"
	"kerninst/images"
	"kerninst/lab/vm"
)

// Guests with files start from a state if the files are to come again, and from
// that of the same files.
func TestFilesInStates(t *testing.T) {
	r := New(Runner{Image: &images.Image{Arch: "arm64"}, Progress: t.Logf})
	for _, tt := range []struct {
		own, q Request
		want   bool
	}{
		{Request{}, Request{}, true},
		{Request{Files: []images.File{{Path: "/a"}}}, Request{}, false},
		{Request{Files: []images.File{{Path: "/a"}}, FilesAgain: true}, Request{}, true},
		{Request{Files: []images.File{{Path: "/a"}}, FilesAgain: true}, Request{Files: []images.File{{Path: "/b"}}}, false},
	} {
		tt.q.Time, tt.q.Job = vm.Exact, &wire.Job{}
		own := Own{Files: tt.own.Files, FilesAgain: tt.own.FilesAgain}
		if got := r.fromGolden(own.of(tt.q)); got != tt.want {
			t.Errorf("%+v and %+v: %v", own, tt.q, got)
		}
	}
	source := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(source, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	spec := vm.Spec{Arch: "arm64", CPUs: 1, MemMiB: DefaultMemory, Time: vm.Exact, Seed: 1, Dir: "/run", Mailbox: true, Append: mailMode}
	keys := map[string]images.File{}
	for _, f := range []images.File{
		{Path: "/a"}, {Path: "/b"}, {Path: "/a", Data: []byte("x")}, {Path: "/a", Data: []byte("y")}, {Path: "/a", Mode: 0o755}, {Path: "/b", Source: source},
	} {
		key, err := r.key(context.Background(), spec, []images.File{f})
		if other, twice := keys[key]; err != nil || twice {
			t.Errorf("%+v and %+v have one state: %v", f, other, err)
		}
		keys[key] = f
	}
	if _, err := r.key(context.Background(), spec, []images.File{{Path: "/a", Source: source + "gone"}}); err == nil {
		t.Error("a file that is not there was hashed")
	}
}
