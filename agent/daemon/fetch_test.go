package daemon

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fetched fetches a path and returns what came, by name.
func fetched(t *testing.T, f *fetcher) map[string]*bytes.Buffer {
	got := map[string]*bytes.Buffer{}
	f.ctx, f.send = t.Context(), func(path string, data []byte) error {
		if len(data) > chunkSize {
			t.Errorf("%s: a chunk of %d bytes", path, len(data))
		}
		if got[path] == nil {
			got[path] = &bytes.Buffer{}
		}
		got[path].Write(data)
		return nil
	}
	return got
}

func TestFetch(t *testing.T) {
	dir := t.TempDir()
	for name, size := range map[string]int{"a": 3, "sub/empty": 0, "sub/large": chunkSize + 5, "sub/full": chunkSize} {
		err := errors.Join(os.MkdirAll(filepath.Join(dir, "sub"), 0o755), os.WriteFile(filepath.Join(dir, name), bytes.Repeat([]byte("x"), size), 0o644))
		if err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.Symlink(dir, link), os.Symlink("/etc/passwd", filepath.Join(dir, "sub/out")), os.WriteFile(filepath.Join(dir, "\xff"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	var f fetcher
	got := fetched(t, &f)
	res := f.path(link)
	if res.Error != "" || res.Files != 4 || res.Bytes != 2*chunkSize+8 || len(res.Skipped) != 2 || !slices.Contains(res.Skipped, link+"/sub/out") {
		t.Errorf("got %v", res)
	}
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, []string{link + "/a", link + "/sub/empty", link + "/sub/full", link + "/sub/large"}) {
		t.Errorf("got %q", names)
	}
	if n := got[link+"/sub/large"].Len(); n != chunkSize+5 {
		t.Errorf("%d bytes of the large one", n)
	}
}

// What cannot be sent is said, and what can comes.
func TestFetchErrors(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "large")
	f, err := os.Create(large)
	if err := errors.Join(err, f.Truncate(maxFetched+1), f.Close()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		filepath.Join(dir, "none"): "no such file",
		large:                      "more than 64 MiB in all",
		"/dev/null":                "", // skipped
		"/proc/version":            "",
	} {
		var f fetcher
		got := fetched(t, &f)
		if res := f.path(name); want == "" && res.Error != "" || !strings.Contains(res.Error, want) {
			t.Errorf("%s: got %v, want an error about %q", name, res, want)
		}
		if name == "/proc/version" && !strings.HasPrefix(got[name].String(), "Linux") {
			t.Errorf("got %v", got)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var gone fetcher
	fetched(t, &gone)
	gone.ctx = ctx
	if res := gone.path(dir); res.Files != 0 || res.Error == "" {
		t.Errorf("sent for nobody: %v", res)
	}
}
