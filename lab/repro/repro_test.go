package repro

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kerninst/images"
	"kerninst/lab/report"
)

func manifest() Manifest {
	return Manifest{
		Arch: "riscv64", Scenario: "cost", Time: "exact", Seed: 1<<64 - 1, QEMU: "7.2", Go: "go1",
		Image: images.Manifest{Arch: "riscv64", Files: []images.NamedSum{
			{Name: "initramfs", Digest: images.Digest{SHA256: "aa", Size: 1}},
			{Name: "kernel", Digest: images.Digest{SHA256: "bb", Size: 2}},
		}},
		Exact: []string{"cost.cost"},
	}
}

// dir is a folder with these files.
func dir(t *testing.T, files map[string]string) string {
	t.Helper()
	d := t.TempDir()
	for name, content := range files {
		path := filepath.Join(d, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func TestManifest(t *testing.T) {
	text, err := manifest().Encode()
	if err != nil {
		t.Fatal(err)
	}
	m, err := ReadManifest(dir(t, map[string]string{report.ManifestFile: string(text)}))
	if err != nil || m.Seed != 1<<64-1 || m.Image.Files[1].SHA256 != "bb" {
		t.Errorf("got %+v, %v", m, err)
	}
	for _, tt := range []struct{ name, old, new, says string }{
		{"another seed", "18446744073709551615", "2", "changed since the run"},
		{"another image", `"aa"`, `"ab"`, "changed since the run"},
		{"another sum", `"sum":"`, `"sum":"0`, "changed since the run"},
		{"another key", `"seed"`, `"sead"`, "sead"},
		{"another type", `"riscv64"`, `7`, "not the manifest"},
		{"another schema", `"schema":1,"arch"`, `"schema":2,"arch"`, "schema 2"},
		{"no sum", `"sum":"`, `"sum":"","go":"`, "no sum"},
		{"no JSON", "{", "", "not the manifest"},
	} {
		edited := strings.Replace(string(text), tt.old, tt.new, 1)
		if edited == string(text) {
			t.Fatalf("%s: nothing to edit in %s", tt.name, text)
		}
		m, err := ReadManifest(dir(t, map[string]string{report.ManifestFile: edited}))
		if err == nil || m != nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: got %v, %v; want %q", tt.name, m, err, tt.says)
		}
	}
}

func TestChanged(t *testing.T) {
	m := manifest()
	if got := Changed(&m, m.QEMU, m.Image); len(got) != 0 {
		t.Errorf("nothing changed: %q", got)
	}
	other := manifest().Image
	other.Files[0].SHA256 = "cc"
	other.Files[1].Name = "kernel2"
	got := strings.Join(Changed(&m, "8.0", other), "|")
	want := "QEMU here is 8.0, the run had 7.2|initramfs of the image here is cc, the run had aa|" +
		"kernel2 of the image here is bb, the run had none|kernel is not in the image here, the run had bb"
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestCompare(t *testing.T) {
	const console = "guests/a.b/console.log"
	base := map[string]string{
		report.ResultsFile: `{"seed":1,"scenarios":[{"name":"cost","metrics":{"x.y":{"value":7}},"points":[{"spec":"p"}]}]}`,
		console:            "one\ntwo\n",
	}
	for _, tt := range []struct{ name, file, old, new, want string }{
		{"the same", "", "", "", ""},
		{"a number", report.ResultsFile, "7", "8", "results.json: scenarios[cost].metrics.x.y.value: 7 recorded, 8 now"},
		{"seed", report.ResultsFile, `"seed":1`, `"seed":2`, "results.json: seed: 1 recorded, 2 now"},
		{"seed and what comes of it", report.ResultsFile, `"seed":1,"scenarios":[{"name":"cost","metrics":{"x.y":{"value":7}}`, `"seed":2,"scenarios":[{"name":"cost","metrics":{"x.y":{"value":8}}`,
			"results.json: seed: 1 recorded, 2 now"},
		{"a large number", report.ResultsFile, `"seed":1`, `"seed":1.0`, "results.json: seed: 1 recorded, 1.0 now"},
		{"an element less", report.ResultsFile, `{"spec":"p"}`, ``, "results.json: scenarios[cost].points: 1 elements recorded, 0 now"},
		{"a key less", report.ResultsFile, `"seed":1,`, ``, "results.json: seed: 1 recorded, absent now"},
		{"a key more", report.ResultsFile, `"seed":1,`, `"seed":1,"z":[],`, "results.json: z: not recorded, [] now"},
		{"another kind", report.ResultsFile, `{"value":7}`, `[7]`, `results.json: scenarios[cost].metrics.x.y: {"value":7} recorded, [7] now`},
		{"blanks", report.ResultsFile, `,`, ` ,`, "results.json: the same values, written otherwise"},
		{"not JSON", report.ResultsFile, `}`, ``, "results.json: not JSON"},
		{"console", console, "two", "tow", `guests/a.b/console.log: line 2: "two" recorded, "tow" now`},
		{"console's end", console, "two\n", "two\nx\n", `guests/a.b/console.log: line 3: "" recorded, "x" now`},
	} {
		now := map[string]string{}
		for name, content := range base {
			if name == tt.file {
				content = strings.Replace(content, tt.old, tt.new, 1)
			}
			now[name] = content
		}
		got, err := Compare(dir(t, base), dir(t, now), []string{"a.b"})
		if err != nil || got != tt.want && (tt.want == "" || !strings.HasPrefix(got, tt.want)) {
			t.Errorf("%s: got %q, %v\nwant %q", tt.name, got, err, tt.want)
		}
	}
	delete(base, console)
	if got, err := Compare(dir(t, base), dir(t, base), []string{"a.b"}); err != nil || got != console+": missing in both" {
		t.Errorf("no console: %q, %v", got, err)
	}
}
