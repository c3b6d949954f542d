package daemon

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/encoding/protodelim"

	"kerninst/agent/wire"
)

func TestWithoutModule(t *testing.T) {
	const in = "1 t a\n2 t b\t[one]\n3 t c\t[two]\n4 t d\t[one]"
	if got := string(withoutModule([]byte(in), "one")); got != "1 t a\n3 t c\t[two]\n4 t d\t[one]" {
		t.Errorf("%q", got)
	}
}

func TestModuleSections(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"mod/sections/.text": "0xffffffffc0000000\n", "mod/sections/__ex_table": "0xffffffffc0001000\n", "builtin/parameters/x": "1",
	} {
		f := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(f), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	at, err := moduleSections(dir, "*")
	if err != nil || len(at) != 1 || len(at["mod"]) != 2 || at["mod"][".text"] != 0xffffffffc0000000 {
		t.Errorf("%v, %v", at, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "mod/sections/.data"), []byte("?"), 0o644); err != nil {
		t.Fatal(err)
	}
	if at, err := moduleSections(dir, "*"); err == nil {
		t.Errorf("no address was taken: %v", at)
	}
}

// TestChunks sends more than one record holds.
func TestChunks(t *testing.T) {
	var out bytes.Buffer
	want := bytes.Repeat([]byte{1, 2, 3}, chunkSize)
	if n, err := (chunks{t.Context(), newStream(&out)}).Write(want); n != len(want) || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	var got []byte
	for in := bufio.NewReader(&out); ; {
		rec := &wire.Record{}
		if protodelim.UnmarshalFrom(in, rec) != nil {
			break
		}
		if n := len(rec.GetChunk().GetData()); n > chunkSize {
			t.Errorf("a chunk of %d bytes", n)
		}
		got = append(got, rec.GetChunk().GetData()...)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes came of %d", len(got), len(want))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := (chunks{ctx, newStream(&out)}).Write(want); n != 0 || err == nil {
		t.Errorf("%d bytes were sent for nobody", n)
	}
}
