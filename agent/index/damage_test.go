package index_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"strings"
	"testing"

	"kerninst/agent/index"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
)

// Places in the header; see format.go.
const (
	headerSize = 192
	sizeAt     = 48
	textAt     = 56
	tablesAt   = 64
	sumsSumAt  = 180
	headSumAt  = 184
)

// smallIndex is the file of the hand-made amd64 kernel, and its text.
func smallIndex(t testing.TB) ([]byte, *ktext.Text) {
	t.Helper()
	text := small(t, "amd64", oneBase, plain.at(oneBase), []byte{0xc3}, 4)
	return fileOf(t, text), text
}

// resum makes all sums of a file right, as if it had been written so: what is
// wrong with it has to be found by other means. Tables are taken as they are.
func resum(b []byte) []byte {
	if len(b) < headerSize {
		return b
	}
	table := crc32.MakeTable(crc32.Castagnoli)
	count := binary.LittleEndian.Uint64(b[tablesAt+8:])
	if body := headerSize + 4*count; count < 1<<20 && body <= uint64(len(b)) {
		for c := range count {
			lo := min(body+c<<14, uint64(len(b)))
			binary.LittleEndian.PutUint32(b[headerSize+4*c:], crc32.Checksum(b[lo:min(lo+1<<14, uint64(len(b)))], table))
		}
		binary.LittleEndian.PutUint32(b[sumsSumAt:], crc32.Checksum(b[headerSize:body], table))
	}
	binary.LittleEndian.PutUint32(b[headSumAt:], crc32.Checksum(b[:headSumAt], table))
	return b
}

// read reads all of an index and looks up every function of a text.
func read(b []byte, text *ktext.Text) error {
	x, err := index.Open(b)
	if err != nil {
		return err
	}
	v, err := index.NewView(x, text)
	if err != nil {
		return err
	}
	text.Functions("", func(f ktext.Func) bool {
		_, err = v.Function(f)
		return err == nil
	})
	if err != nil {
		return err
	}
	if _, err := x.About(); err != nil {
		return err
	}
	if err := v.Whole(); err != nil {
		return err
	}
	return x.Verify()
}

// tableOff is where a table of the file begins.
func tableOff(b []byte, table int) uint64 { return binary.LittleEndian.Uint64(b[tablesAt+16*table:]) }

func TestDamaged(t *testing.T) {
	whole, text := smallIndex(t)
	put32 := func(b []byte, at uint64, v uint32) []byte {
		binary.LittleEndian.PutUint32(b[at:], v)
		return b
	}
	put64 := func(b []byte, at uint64, v uint64) []byte {
		binary.LittleEndian.PutUint64(b[at:], v)
		return b
	}
	flip := func(b []byte, at uint64) []byte { b[at] ^= 0x40; return b }
	const funcs, blocks, masks = 2, 3, 5
	for _, c := range []struct {
		name   string
		damage func(b []byte) []byte
		want   string
	}{
		{"nothing in it", func([]byte) []byte { return nil }, "no index"},
		{"another file", func(b []byte) []byte { return bytes.Repeat([]byte("x"), len(b)) }, "no index"},
		{"another version", func(b []byte) []byte { b[7]++; return b }, "version"},
		{"half a header", func(b []byte) []byte { return b[:headerSize/2] }, "cut off"},
		{"a header alone", func(b []byte) []byte { return b[:headerSize] }, "cut off"},
		{"the last byte missing", func(b []byte) []byte { return b[:len(b)-1] }, "cut off"},
		{"a byte too many", func(b []byte) []byte { return append(b, 0) }, "cut off or damaged"},
		{"header", func(b []byte) []byte { return flip(b, 17) }, "header"},
		{"sums", func(b []byte) []byte { return flip(b, tableOff(b, 0)) }, "sums"},
		{"about", func(b []byte) []byte { return flip(b, tableOff(b, 1)) }, "not those that were written"},
		{"a function", func(b []byte) []byte { return flip(b, tableOff(b, funcs)) }, "not those that were written"},
		{"a block", func(b []byte) []byte { return flip(b, tableOff(b, blocks)) }, "not those that were written"},
		{"the last byte", func(b []byte) []byte { return flip(b, uint64(len(b)-1)) }, "not those that were written"},
		{"huge text", func(b []byte) []byte { return resum(put64(b, textAt, 1<<40)) }, "bytes of text"},
		{"a table outside", func(b []byte) []byte { return resum(put64(b, tablesAt+16*funcs, 1<<60)) }, "table 2"},
		{"records without end", func(b []byte) []byte { return resum(put64(b, tablesAt+16*blocks+8, ^uint64(0)/20+1)) }, "table 3"},
		{"too few sums", func(b []byte) []byte { return resum(put64(b, tablesAt+8, 0)) }, ""},
		{"blocks outside", func(b []byte) []byte { return resum(put32(b, tableOff(b, funcs)+8, 1<<30)) }, "function 0"},
		{"a function outside", func(b []byte) []byte { return resum(put32(b, tableOff(b, funcs)+4, 1<<30)) }, "function 0"},
		{"functions out of order", func(b []byte) []byte { return resum(put32(b, tableOff(b, funcs)+32, 0)) }, ""},
		{"a block without end", func(b []byte) []byte { return resum(put32(b, tableOff(b, blocks)+20, 0)) }, "block 0"},
		{"a block to nowhere", func(b []byte) []byte { return resum(put32(b, tableOff(b, blocks)+4, 1<<20)) }, "leads to block"},
		{"a kind that is none", func(b []byte) []byte { b[tableOff(b, blocks)+8] = 200; return resum(b) }, "kind 200"},
		{"a block of another function", func(b []byte) []byte { return resum(put32(b, tableOff(b, funcs)+4, 1)) }, "not inside"},
		{"a mask far away", func(b []byte) []byte { return resum(put32(b, tableOff(b, masks)+4, 1<<20)) }, "a mask of"},
		{"a mask of no kind", func(b []byte) []byte { b[tableOff(b, masks)+7] = 200; return resum(b) }, "of kind 200"},
		{"a word's mask that is none", func(b []byte) []byte { b[tableOff(b, masks)+7] = 1; return resum(b) }, "of kind 1"},
	} {
		err := read(c.damage(bytes.Clone(whole)), text)
		var d *index.Damaged
		if !errors.As(err, &d) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if err := read(whole, text); err != nil {
		t.Errorf("undamaged: %v", err)
	}
}

// TestOtherFlips: no byte of the file can change unnoticed.
func TestOtherFlips(t *testing.T) {
	whole, text := smallIndex(t)
	for k := range whole {
		b := bytes.Clone(whole)
		b[k] ^= 1 << (k % 8)
		if k >= headSumAt+4 && k < headerSize { // fills the header
			continue
		}
		if err := read(b, text); err == nil {
			t.Errorf("byte %d of %d changed, and nobody noticed", k, len(b))
		}
	}
}

// FuzzOpen: whatever the bytes, errors or answers within bounds come out.
func FuzzOpen(f *testing.F) {
	whole, text := smallIndex(f)
	f.Add(whole, true)
	f.Add(whole[:headerSize], false)
	lo, hi := text.Bounds()
	f.Fuzz(func(t *testing.T, b []byte, right bool) {
		if right {
			b = resum(bytes.Clone(b))
		}
		x, err := index.Open(b)
		if (x == nil) != (err != nil) {
			t.Fatalf("%v and %v", x, err)
		}
		if err != nil {
			return
		}
		_ = read(b, text) // must not panic; what it says depends on the bytes
		for k := range x.Blocks() {
			if i, err := x.Block(index.Block(k)); err == nil && (i.Start >= i.End || i.End > x.TextSize()) {
				t.Fatalf("block %d: %+v", k, i)
			}
		}
		for off := isa.Off(0); off < isa.Off(hi-lo); off += 16 {
			if g, ok, err := x.FuncAt(off); ok && (err != nil || g.Start != off || g.Start+g.Size > x.TextSize()) {
				t.Fatalf("function at %#x: %+v, %v", uint64(off), g, err)
			}
		}
	})
}
