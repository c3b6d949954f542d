package snippet_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"kerninst/agent/snippet"
)

func newRing(c snippet.Cell) []uint64 {
	r := make([]uint64, c.RingWords())
	r[0] = c.RingStart()
	return r
}

// reserve is the first half of what generated code does; at is 0 where there is no room.
func reserve(ring []uint64, c snippet.Cell) (at int) {
	old := atomic.AddUint64(&ring[0], c.Step()) - c.Step()
	if int64(old) >= 0 {
		return 0
	}
	return snippet.RingHead + int(uint32(old)%uint32(8*c.Records*c.Stride()))/8
}

// fill is the second.
func fill(ring []uint64, at int, stamp uint64, fields ...uint64) {
	for k, f := range fields {
		atomic.StoreUint64(&ring[at+1+k], f)
	}
	atomic.StoreUint64(&ring[at], stamp)
}

// words are what a reader gave, in records of so many.
func words(all []uint64, n int) (out [][]uint64) {
	return slices.Collect(slices.Chunk(all, n))
}

// TestRingFull: what has no room is lost, and what was there before is kept.
func TestRingFull(t *testing.T) {
	c := snippet.Cell{Kind: snippet.InRing, Records: 4, Fields: 2}
	m, r := newRing(c), snippet.Reader{}
	var got []uint64
	var want, came uint64
	for _, n := range []int{3, 4, 7, 0, 1, 9, 4} {
		for k := range n {
			if c.Append(m, 1, []uint64{came, ^came}) != (k < 4) {
				t.Errorf("%d of %d: there was room, or none", k, n)
			}
			came++
		}
		want += uint64(min(n, 4))
		got = r.Drain(c, m, slices.Grow(got, 3*c.Records))
	}
	if r.Came != 28 || r.Lost != 3+5 || r.Read != 20 || r.Unfinished() != 0 {
		t.Errorf("%+v", r)
	}
	all := words(got, 3)
	if uint64(len(all)) != want {
		t.Errorf("%d records, want %d", len(all), want)
	}
	for k, w := range all {
		first := uint64(k)
		if k >= 11 { // three of the seven are lost
			first += 3
		}
		if k >= 16 {
			first += 5
		}
		if w[0] != 1 || w[1] != first || w[2] != ^first {
			t.Errorf("record %d is %x, want %d", k, w, first)
		}
	}
}

// TestRingSlow: who is away while others go on holds back what is behind him, and in the end
// the room; nothing is read that is not whole, nor twice.
func TestRingSlow(t *testing.T) {
	c := snippet.Cell{Kind: snippet.InRing, Records: 4, Fields: 1}
	m, r := newRing(c), snippet.Reader{}
	var got []uint64
	read := func(want ...uint64) {
		t.Helper()
		got = r.Drain(c, m, slices.Grow(got, 3*c.Records))
		var fields []uint64
		for _, w := range words(got, 2) {
			fields = append(fields, w[1])
		}
		if !slices.Equal(fields, want) {
			t.Fatalf("%d were read, want %d", fields, want)
		}
	}
	fill(m, reserve(m, c), 1, 10)
	slow := reserve(m, c)
	fill(m, reserve(m, c), 1, 12)
	read(10)
	fill(m, reserve(m, c), 1, 13)
	fill(m, reserve(m, c), 1, 14) // in the first one's place
	for range 2 {
		if at := reserve(m, c); at != 0 {
			t.Fatalf("the place of who is away was given to another: %d", at)
		}
		read(10)
	}
	if r.Unfinished() != 4 {
		t.Errorf("%+v: want 4 unfinished", r)
	}
	fill(m, slow, 1, 11)
	read(10, 11, 12, 13, 14)
	fill(m, reserve(m, c), 1, 17)
	read(10, 11, 12, 13, 14, 17)
	if r.Lost != 2 || r.Came != 8 {
		t.Errorf("%+v", r)
	}
}

// TestRingTogether: several write and one reads; each record comes once and whole, of each
// writer in order, and what is lost is what did not come.
func TestRingTogether(t *testing.T) {
	const writers, each = 4, 50_000
	for _, records := range []int{2, 64, 4096} {
		c := snippet.Cell{Kind: snippet.InRing, Records: records, Fields: 2}
		m := newRing(c)
		var all sync.WaitGroup
		var lost atomic.Uint64
		for w := range uint64(writers) {
			all.Go(func() {
				for n := range uint64(each) {
					if !c.Append(m, 1, []uint64{w<<32 | n, ^(w<<32 | n)}) {
						lost.Add(1)
					}
				}
			})
		}
		done := make(chan bool)
		go func() { all.Wait(); close(done) }()
		var r snippet.Reader
		var got []uint64
		for going := true; going; {
			select {
			case <-done:
				going = false
			default:
			}
			got = r.Drain(c, m, slices.Grow(got, 3*c.Records))
		}
		last := [writers]int64{-1, -1, -1, -1}
		for _, rec := range words(got, 3) {
			w, n := rec[1]>>32, int64(uint32(rec[1]))
			if rec[0] != 1 || rec[2] != ^rec[1] || w >= writers || n <= last[w] {
				t.Fatalf("%d records: %x after %v", records, rec, last)
			}
			last[w] = n
		}
		if r.Came != writers*each || r.Lost != lost.Load() || r.Read+r.Lost != r.Came || r.Read != uint64(len(got)/3) {
			t.Errorf("%d records: %+v, %d lost, %d words", records, r, lost.Load(), len(got))
		}
		t.Logf("%d records: %d of %d lost", records, r.Lost, r.Came)
	}
}

// TestRingWraps: a state's lower half goes round, and carries into the upper; what is lost
// makes it go far.
func TestRingWraps(t *testing.T) {
	c := snippet.Cell{Kind: snippet.InRing, Records: 64, Fields: 7}
	m, r := newRing(c), snippet.Reader{}
	var came, lost, read uint64
	for range 3000 {
		n := uint64(rand.IntN(c.Records + 1))
		for k := range n {
			if !c.Append(m, 1, []uint64{came + k, 0, 0, 0, 0, 0, 0}) {
				t.Fatalf("no room for %d records, %+v", n, r)
			}
		}
		first := came
		came += n
		if n == uint64(c.Records) {
			more := rand.Uint64N(1<<30) / 64
			m[0] += more * c.Step()
			came, lost = came+more, lost+more
		}
		for k, rec := range words(r.Drain(c, m, make([]uint64, 0, 8*c.Records)), 8) {
			if rec[1] != first+uint64(k) {
				t.Fatalf("%x, want %x", rec, first+uint64(k))
			}
			read++
		}
		if r.Came != came || r.Lost != lost || r.Read != read || came-lost != read {
			t.Fatalf("%+v, want %d, %d, %d", r, came, lost, read)
		}
	}
	if came < 4<<32/64 {
		t.Errorf("%d records do not go round", came)
	}
}

func BenchmarkDrain(b *testing.B) {
	c := snippet.Cell{Kind: snippet.InRing, Records: 1 << 15, Fields: 2}
	m, r := newRing(c), snippet.Reader{}
	var got []uint64
	for n := 0; n < b.N; n += c.Records {
		b.StopTimer()
		for range c.Records {
			c.Append(m, 1, []uint64{2, 3})
		}
		b.StartTimer()
		got = r.Drain(c, m, slices.Grow(got[:0], 3*c.Records))
	}
}

// TestStamp: tags and times come apart again, whichever way they were put together.
func TestStamp(t *testing.T) {
	for range 100_000 {
		now, tag := rand.Uint64(), uint16(rand.Uint32())|1
		time := now + rand.Uint64N(1<<46)*2 - 1<<46
		for over, stamp := range map[bool]uint64{false: time + uint64(tag)<<48, true: time&(1<<48-1) | uint64(tag)<<48} {
			if gotTag, gotTime := snippet.Stamp(stamp, now, over); gotTag != tag || gotTime != time {
				t.Fatalf("stamp %#x, now %#x, over %v: tag %d, time %#x; want %d, %#x", stamp, now, over, gotTag, gotTime, tag, time)
			}
		}
	}
}
