package runner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kerninst/agent/wire"
)

func chunk(path, data string) *wire.Record {
	return &wire.Record{Body: &wire.Record_Chunk{Chunk: &wire.Chunk{Path: path, Data: []byte(data)}}}
}

func said(all ...*wire.Fetched) *wire.Record {
	return &wire.Record{Body: &wire.Record_Result{Result: &wire.Result{Step: "fetch", Fetched: all}}}
}

func TestReceive(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	got := receive([]Fetch{{"/log", in("new/log")}, {"/var/d", in("d")}, {"/none", in("none")}, {"/late", in("late")}}, []*wire.Record{
		chunk("", "a dump's"),
		chunk("/log", "one "), chunk("/log", "two"), chunk("/var/d/x", ""), chunk("/var/d/y/z", "deep"),
		said(&wire.Fetched{Path: "/log"}, &wire.Fetched{Path: "/var/d", Skipped: []string{"/var/d/\x1b[2Jpipe"}}, &wire.Fetched{Path: "/none", Error: "no \x07such file"}),
	})
	for name, want := range map[string]string{"new/log": "one two", "d/x": "", "d/y/z": "deep"} {
		if b, err := os.ReadFile(in(name)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v; want %q", name, b, err, want)
		}
	}
	if f := got[0]; f.Err != nil || f.Files != 1 || f.Bytes != 7 {
		t.Errorf("got %+v", f)
	}
	if f := got[1]; f.Err != nil || f.Files != 2 || f.Bytes != 4 || f.Skipped[0] != "/var/d/pipe" {
		t.Errorf("got %+v", f)
	}
	if got[2].Err == nil || got[2].Err.Error() != "no such file" || got[3].Err != errNotSent {
		t.Errorf("got %v, %v", got[2].Err, got[3].Err)
	}
}

// What a guest sends does not get out of the place that was asked for, and does
// not replace what is there.
func TestReceiveHostile(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	many := []*wire.Record{}
	for range maxFetched>>20 + 1 {
		many = append(many, chunk("/d/large", large))
	}
	for name, tt := range map[string]struct {
		records []*wire.Record
		want    string
	}{
		"not asked for":    {[]*wire.Record{chunk("/etc/shadow", "x")}, "nobody asked for"},
		"a name beside it": {[]*wire.Record{chunk("/dx", "x")}, "nobody asked for"},
		"up":               {[]*wire.Record{chunk("/d/../../out", "x")}, "not taken"},
		"up at the end":    {[]*wire.Record{chunk("/d/..", "x")}, "not taken"},
		"two slashes":      {[]*wire.Record{chunk("/d//x", "x")}, "not taken"},
		"escapes":          {[]*wire.Record{chunk("/d/\x1b[2J", "x")}, "not taken"},
		"a file as folder": {[]*wire.Record{chunk("/d/a", "x"), chunk("/d/a/b", "x")}, "to/a"},
		"again":            {[]*wire.Record{chunk("/d/a", "x"), chunk("/d/b", "x"), chunk("/d/a", "x")}, "exists"},
		"through a link":   {[]*wire.Record{chunk("/d/link/x", "x")}, "escapes"},
		"over what is":     {[]*wire.Record{chunk("/d/mine", "x")}, "exists"},
		"without end":      {many, "more than 64 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			to, out := filepath.Join(top, "to"), filepath.Join(top, "elsewhere")
			for _, err := range []error{os.Mkdir(to, 0o755), os.Mkdir(out, 0o755), os.Symlink(out, filepath.Join(to, "link")),
				os.WriteFile(filepath.Join(to, "mine"), []byte("mine"), 0o644)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			got := receive([]Fetch{{"/d", to}}, tt.records)
			if err := got[0].Err; err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error about %q", err, tt.want)
			}
			if b, err := os.ReadFile(filepath.Join(to, "mine")); string(b) != "mine" {
				t.Errorf("it was replaced: %q, %v", b, err)
			}
			if left, err := os.ReadDir(out); len(left) > 0 || err != nil {
				t.Errorf("it got out: %v, %v", left, err)
			}
		})
	}
}
