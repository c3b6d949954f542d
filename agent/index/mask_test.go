package index

import "testing"

// TestSplit: what lies across the end of a chunk is masked on both sides, and a word that is cut as a whole, for its
// bits are those of no half of it.
func TestSplit(t *testing.T) {
	code := make([]byte, 2*textChunk)
	for k := range code {
		code[k] = 0xff
	}
	parts := split([]mask{{textChunk - 2, 4, maskShamt}, {textChunk + 4, 4, maskShamt}})
	hidden := 0
	for _, m := range parts {
		if m.off/textChunk != (m.off+m.size-1)/textChunk || maskSizes[m.kind] != 0 && m.size != maskSizes[m.kind] {
			t.Errorf("%d bytes at %#x, of kind %d", m.size, uint64(m.off), m.kind)
			continue
		}
		m.cover(code, 0)
		hidden += int(m.size)
	}
	for k, want := range []byte{0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f, 0xfe} {
		if got := code[textChunk-3+k]; got != want {
			t.Errorf("byte %d: %#x, want %#x", k-3, got, want)
		}
	}
	if hidden != 8 {
		t.Errorf("%d bytes in %d parts", hidden, len(parts))
	}
}
