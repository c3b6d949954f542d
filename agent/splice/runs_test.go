package splice

import (
	"bytes"
	"reflect"
	"testing"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/place"
)

// piece is a part of n bytes in the slots that it needs, of which two things are said.
func piece(at isa.Addr, n int) part {
	return part{at: at, code: bytes.Repeat([]byte{byte(at / place.Line)}, n), slot: n, states: []gen.State{{Orig: at}, {Off: n / 2, Orig: at + 1}}}
}

// TestRuns: neighbours are one run, whatever their order; what is no neighbour, or in another
// area, or comes to too much, begins another.
func TestRuns(t *testing.T) {
	const at = 0x10000
	h := &place.Heap{}
	h.Add(place.NewArea(1, at, 0x1000000, 4096*place.Line))
	h.Add(place.NewArea(2, at+4096*place.Line, 0x2000000, 4096*place.Line))
	var sizes []int
	for _, r := range runs(h, []part{piece(at+3*place.Line, 64), piece(at, 40), piece(at+place.Line, 65), piece(at+5*place.Line, 8)}) {
		sizes = append(sizes, len(r))
	}
	if want := []int{3, 1}; !reflect.DeepEqual(sizes, want) {
		t.Errorf("runs of %d parts, want %d", sizes, want)
	}
	var many []part
	for k := range isa.Addr(2 * mostFilled / place.Line) {
		many = append(many, piece(at+k*place.Line, place.Line))
	}
	total := 0
	for _, r := range runs(h, many) {
		all := merged(r, []byte{0xcc})
		total += len(r)
		if len(all.code) > mostFilled || len(all.states) > mostStates {
			t.Errorf("%d bytes, %d states in one run", len(all.code), len(all.states))
		}
	}
	if total != len(many) {
		t.Errorf("%d parts in runs, want %d", total, len(many))
	}
	const border = at + 4096*place.Line
	if got := runs(h, []part{piece(border-place.Line, 64), piece(border, 64)}); len(got) != 2 {
		t.Errorf("%d runs of parts in two areas", len(got))
	}
}

// TestMerged: each part is in its place, traps are between them, and of these nothing is said.
func TestMerged(t *testing.T) {
	const at = 0x10000
	a, b, c := piece(at, 40), piece(at+place.Line, place.Line), piece(at+2*place.Line, 10)
	b.states = nil
	got := merged([]part{a, b, c}, []byte{0xcc})
	code := append(append(append(bytes.Clone(a.code), bytes.Repeat([]byte{0xcc}, 24)...), b.code...), c.code...)
	if got.at != at || !bytes.Equal(got.code, code) {
		t.Errorf("%v: %x, want %x", got.at, got.code, code)
	}
	want := []gen.State{{Orig: at}, {Off: 20, Orig: at + 1}, {Off: 40}, {Off: 64}, {Off: 128, Orig: c.at}, {Off: 133, Orig: c.at + 1}}
	if !reflect.DeepEqual(got.states, want) {
		t.Errorf("states %v, want %v", got.states, want)
	}
}
