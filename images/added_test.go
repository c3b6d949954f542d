package images

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseAdd(t *testing.T) {
	dir := t.TempDir()
	file, colon := filepath.Join(dir, "prog"), filepath.Join(dir, "a:b")
	must(t, os.WriteFile(file, nil, 0o755), os.WriteFile(colon, nil, 0o755))
	for _, tt := range []struct{ word, src, dst, err string }{
		{file, file, "/root/prog", ""},
		{file + ":/opt/x", file, "/opt/x", ""},
		{file + ":/opt/", file, "/opt/prog", ""},
		{file + ":/opt/../etc/x", file, "/etc/x", ""},
		{colon, colon, "/root/a:b", ""},
		{colon + ":/c", colon, "/c", ""},
		{file + ":opt", "", "", "not absolute"},
		{file + "x", "", "", "no such file"},
		{file + ":/tmp/x", "", "", "mounts over /tmp"},
		{file + ":/proc", "", "", "mounts over /proc"},
		{file + ":/init", "", "", "lab's own"},
		{file + ":/lib/kerninst/kerninst.ko", "", "", "lab's own"},
		{dir + ":/", "", "/" + filepath.Base(dir), ""},
		{dir + ":/..", "", "", "not to be replaced"},
	} {
		src, dst, err := ParseAdd(tt.word)
		switch {
		case tt.err != "":
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v, want an error about %q", tt.word, err, tt.err)
			}
		case err != nil || dst != tt.dst || tt.src != "" && src != tt.src:
			t.Errorf("%s: %s, %s, %v; want %s, %s", tt.word, src, dst, err, tt.src, tt.dst)
		}
	}
}

// A folder that reaches under the lab's own files from above is refused too.
func TestAddRefuses(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "kerninst"), 0o755), os.WriteFile(filepath.Join(dir, "kerninst", "x"), nil, 0o644))
	if _, err := Add([]string{dir + ":/lib"}); err == nil || !strings.Contains(err.Error(), "/lib/kerninst") {
		t.Errorf("a folder over /lib/kerninst: %v", err)
	}
	for _, folder := range []string{"/bin", "/lib", "/usr", "/root", "/var"} { // as cp takes it
		if _, err := Add([]string{dir + "/kerninst/x:" + folder}); err == nil || !strings.Contains(err.Error(), "for a file in it give "+folder+"/") {
			t.Errorf("a file over %s: %v", folder, err)
		}
	}
	if _, err := Add([]string{dir + "/kerninst/x:/usr/bin/env", dir + "/kerninst/x:/bi", dir + "/kerninst:/usr"}); err != nil {
		t.Errorf("beside folders, and a folder: %v", err)
	}
	if _, err := Add([]string{dir + "/kerninst/x:/a", dir + "/kerninst/x:/a"}); err == nil || !strings.Contains(err.Error(), "two files") {
		t.Errorf("twins: %v", err)
	}
}

// What the kernel makes up as it is read has no length, and may have no end.
func TestAddRefusesWhatIsMadeUp(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Symlink("/proc/version", filepath.Join(dir, "link")))
	for src, want := range map[string]string{
		"/proc/version": "is on proc", filepath.Join(dir, "link"): "/proc/version is on proc",
		"/sys/kernel/mm": "is on sysfs", "/dev/zero": "is neither file",
	} {
		if _, err := Add([]string{src}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want …%s…", src, err, want)
		}
	}
}

// A file that says another length than it has would be read without end.
func TestKeepReadsNoMore(t *testing.T) {
	f := File{Path: "/root/v", Source: "/proc/version"} // says 0
	if _, _, err := Keep(t.TempDir(), []File{f}); err == nil || !strings.Contains(err.Error(), "changed while it was read") {
		t.Errorf("%v", err)
	}
}

// What was added comes back as it was, or not at all.
func TestKeep(t *testing.T) {
	src, kept := t.TempDir(), filepath.Join(t.TempDir(), "added")
	must(t, os.WriteFile(filepath.Join(src, "a"), []byte("content"), 0o750), os.Symlink("a", filepath.Join(src, "l")))
	files, err := Add([]string{src + ":/opt/x"})
	must(t, err)
	files, list, err := Keep(kept, files)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(src, "a"), []byte("changed"), 0o750)) // the copy is what counts
	back, err := Unkeep(kept, list)
	must(t, err)
	if len(back) != len(files) || len(files) != 3 {
		t.Fatalf("%d and %d files, want 3", len(files), len(back))
	}
	for i, f := range back {
		if f.Path != files[i].Path || f.Mode != files[i].Mode || f.Link != files[i].Link || f.Source != files[i].Source {
			t.Errorf("%+v came back as %+v", files[i], f)
		}
		if f.Mode.Type() == 0 {
			b, err := os.ReadFile(f.Source)
			if err != nil || string(b) != "content" || f.Mode != fs.FileMode(0o750) {
				t.Errorf("%s: %q, %v, %v", f.Path, b, f.Mode, err)
			}
			must(t, os.WriteFile(f.Source, []byte("forged"), 0o644))
		}
	}
	if _, err := Unkeep(kept, list); err == nil || !strings.Contains(err.Error(), "changed since") {
		t.Errorf("a forged copy: %v", err)
	}
}
