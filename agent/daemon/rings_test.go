package daemon

import (
	"math/rand/v2"
	"testing"

	"kerninst/agent/gen"
	"kerninst/agent/isa/all"
	"kerninst/agent/kdev"
	"kerninst/agent/snippet"
	"kerninst/agent/wire"
)

// ringsOf are rings without a device, for records of one field, of two CPUs.
func ringsOf(t *testing.T, records int) (*rings, *ringSet) {
	t.Helper()
	arch, err := all.Lookup("amd64")
	if err != nil {
		t.Fatal(err)
	}
	c := gen.Form(arch, snippet.Cell{Kind: snippet.InRing, Fields: 1, Records: records})
	s := &ringSet{cell: c, rings: &kdev.Rings{}, readers: make([]snippet.Reader, 2), since: make([]snippet.Reader, 2), last: make([]*chunk, 2)}
	for range 2 {
		ring := make([]uint64, c.RingWords())
		c.StartRing(ring, 0)
		s.rings.CPUs = append(s.rings.CPUs, ring)
	}
	return &rings{sets: map[int]*ringSet{1: s}}, s
}

// TestCut: of what is taken out of rings when a program has ended, what came after its end is left out,
// whatever was taken out before, and whether there was room or not.
func TestCut(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	const records = 64
	for round := range 300 {
		r, s := ringsOf(t, records)
		came, next := [2]uint64{}, uint64(1)
		come := func() {
			for range rng.IntN(250) { // some have no room
				cpu := rng.IntN(2)
				s.cell.Append(s.rings.CPUs[cpu], 1, []uint64{next})
				came[cpu]++
				next++
			}
		}
		for range rng.IntN(3) {
			come()
			r.drain()
		}
		come()
		ends, end, last := r.now(), came, next
		for cpu, e := range ends[s] {
			if e.came != came[cpu] || e.lost > e.came {
				t.Fatalf("round %d: CPU %d: %+v, %d came", round, cpu, e, came[cpu])
			}
		}
		come()
		r.drain()
		r.cut(ends)
		read := [2]uint64{}
		for _, c := range r.chunks {
			for k := 1; k < len(c.w); k += 2 {
				if read[c.cpu]++; c.w[k] >= last {
					t.Fatalf("round %d: record %d came after the end, at %d", round, c.w[k], last)
				}
			}
		}
		for cpu, e := range ends[s] {
			if read[cpu] != e.places() || e.came != end[cpu] {
				t.Fatalf("round %d: CPU %d: %d records, %+v", round, cpu, read[cpu], e)
			}
		}
	}
}

// TestTags: one is the same as long as it is used, and no other's; when it was given back it is free.
func TestTags(t *testing.T) {
	var r rings
	stays := &wire.Action{Name: "stays"}
	first, err := r.tag(traced{action: stays})
	if err != nil || first == 0 {
		t.Fatal(first, err)
	}
	again := &wire.Action{Name: "as it can be planned again"}
	r.known(&wire.Point{Function: "f", Actions: []*wire.Action{again}}, []uint32{uint32(first)})
	for round := range 3 * mostTags / 2 {
		goes := &wire.Action{}
		tag, err := r.tag(traced{action: goes})
		if err != nil || tag == 0 || tag == first {
			t.Fatalf("round %d: tag %d, that of another is %d: %v", round, tag, first, err)
		}
		if round%1000 == 0 {
			r.untag(map[*wire.Action]bool{again: true})
		}
	}
	if tag, err := r.tag(traced{function: "f", action: again}); tag != first || err != nil {
		t.Errorf("what stays has tag %d, had %d: %v", tag, first, err)
	}
	r.untag(nil)
	for n := range mostTags {
		if _, err := r.tag(traced{offset: uint64(n)}); err != nil {
			t.Fatalf("tag %d: %v", n, err)
		}
	}
	if tag, err := r.tag(traced{offset: mostTags}); err == nil {
		t.Errorf("one more than there are: %d", tag)
	}
}

// TestSized: rings of another size come into use when nothing is traced into those that there are, which come
// back when their size does.
func TestSized(t *testing.T) {
	r, s := ringsOf(t, 8)
	r.of = 1 << 16
	live := false
	sized := func(bytes int) error {
		if err := r.room(bytes); err != nil {
			return err
		}
		return r.sized(func() bool { return live })
	}
	if err := sized(0); err != nil || r.of != 1<<16 || r.sets[1] != s {
		t.Errorf("no size: %v, %d", err, r.of)
	}
	if err := sized(1 << 20); err != nil || r.of != 1<<20 || len(r.sets) != 0 {
		t.Errorf("another size: %v, %d, %v", err, r.of, r.sets)
	}
	r.sets = map[int]*ringSet{2: {}}
	if err := sized(1 << 16); err != nil || r.sets[1] != s || r.sets[2] != nil {
		t.Errorf("the first size again: %v, %v", err, r.sets)
	}
	live = true
	if err := sized(1 << 16); err != nil {
		t.Errorf("the same while something is traced: %v", err)
	}
	if err := sized(1 << 20); err == nil || r.of != 1<<16 {
		t.Errorf("another size while something is traced: %v, %d", err, r.of)
	}
	for _, bytes := range []int{-1, 1, 5000, 1 << 11} {
		if err := r.room(bytes); err == nil {
			t.Errorf("rings of %d bytes", bytes)
		}
	}
}
