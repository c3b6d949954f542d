package snippet_test

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"kerninst/agent/snippet"
)

// forms are ways in which states count: of records from the lowest bit on, up to the lower half's
// end, and between; with the sign of before an addition, and of behind it.
var forms = []snippet.Ring{{}, {Low: 3, After: true}, {Low: 10}, {Low: top}}

const top = 255 // up to the lower half's end

// inForms runs a test with a cell in each form.
func inForms(t *testing.T, c snippet.Cell, test func(*testing.T, snippet.Cell)) {
	t.Helper()
	for _, form := range forms {
		c.Ring = form
		if form.Low == top {
			c.Ring.Low = uint8(32 - bits.Len(uint(c.Records-1)))
		}
		t.Run(fmt.Sprintf("%d from bit %d, %v", c.Records, c.Ring.Low, c.Ring.After), func(t *testing.T) { test(t, c) })
	}
}

func newRing(c snippet.Cell) []uint64 {
	r := make([]uint64, c.RingWords())
	c.StartRing(r, 0)
	return r
}

// reserve is the first half of what generated code does; at is 0 where there is no room.
func reserve(ring []uint64, c snippet.Cell) (at int) {
	old := atomic.AddUint64(&ring[0], ring[snippet.RingStep]) - ring[snippet.RingStep]
	if signed := old + map[bool]uint64{true: c.Step()}[c.Ring.After]; int64(signed) >= 0 {
		return 0
	}
	return snippet.RingHead + int(uint32(old)>>c.Ring.Low)%c.Records*c.Stride()
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
	inForms(t, snippet.Cell{Kind: snippet.InRing, Records: 4, Fields: 2}, ringFull)
}

func ringFull(t *testing.T, c snippet.Cell) {
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
	inForms(t, snippet.Cell{Kind: snippet.InRing, Records: 4, Fields: 1}, ringSlow)
}

func ringSlow(t *testing.T, c snippet.Cell) {
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
	for _, records := range []int{2, 64, 4096} {
		inForms(t, snippet.Cell{Kind: snippet.InRing, Records: records, Fields: 2}, ringTogether)
	}
}

func ringTogether(t *testing.T, c snippet.Cell) {
	const writers, each = 4, 50_000
	m := newRing(c)
	var lost atomic.Uint64
	r, got := together(c, m, writers, func(w uint64) {
		for n := range uint64(each) {
			if !c.Append(m, 1, []uint64{w<<32 | n, ^(w<<32 | n)}) {
				lost.Add(1)
			}
		}
	})
	last := [writers]int64{-1, -1, -1, -1}
	for _, rec := range words(got, 3) {
		w, n := rec[1]>>32, int64(uint32(rec[1]))
		if rec[0] != 1 || rec[2] != ^rec[1] || w >= writers || n <= last[w] {
			t.Fatalf("%x after %v", rec, last)
		}
		last[w] = n
	}
	if r.Came != writers*each || r.Lost != lost.Load() || r.Read+r.Lost != r.Came || r.Read != uint64(len(got)/3) {
		t.Errorf("%+v, %d lost, %d words", r, lost.Load(), len(got))
	}
	t.Logf("%d of %d lost", r.Lost, r.Came)
}

// together reads while so many write.
func together(c snippet.Cell, ring []uint64, writers uint64, write func(w uint64)) (r snippet.Reader, got []uint64) {
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() { write(w) })
	}
	done := make(chan bool)
	go func() { all.Wait(); close(done) }()
	for going := true; going; {
		select {
		case <-done:
			going = false
		default:
		}
		got = r.Drain(c, ring, slices.Grow(got, (1+c.Fields)*c.Records))
	}
	return r, got
}

// TestRingOfWords: records without fields are one word each, and of each writer as many come as
// had a place.
func TestRingOfWords(t *testing.T) {
	for _, records := range []int{2, 64, 4096} {
		inForms(t, snippet.Cell{Kind: snippet.InRing, Records: records}, ringOfWords)
	}
}

func ringOfWords(t *testing.T, c snippet.Cell) {
	const writers, each = 4, 50_000
	if c.Stride() != 1 {
		t.Fatalf("a record takes %d words", c.Stride())
	}
	m := newRing(c)
	var wrote, lost atomic.Uint64
	r, got := together(c, m, writers, func(w uint64) {
		ring := snippet.Ring{Tag: uint16(1<<15 - 2 + w)} // about where a word has a sign
		for range each {
			if c.Append(m, ring.Word(), nil) {
				wrote.Add(1 << (16 * w))
			} else {
				lost.Add(1)
			}
		}
	})
	var read uint64
	for _, word := range got {
		w := uint64(snippet.Tag(word)) - (1<<15 - 2)
		if w >= writers {
			t.Fatalf("a record of %#x", word)
		}
		read += 1 << (16 * w)
	}
	if read != wrote.Load() || r.Lost != lost.Load() || r.Came != writers*each || r.Read != uint64(len(got)) || r.Read+r.Lost != r.Came {
		t.Errorf("%#x were read, %#x written, %d lost, %+v", read, wrote.Load(), lost.Load(), r)
	}
}

// TestRingOfWordsWaits: a record that is being written is waited for, and so are those behind it.
func TestRingOfWordsWaits(t *testing.T) {
	inForms(t, snippet.Cell{Kind: snippet.InRing, Records: 64}, func(t *testing.T, c snippet.Cell) {
		m, r := newRing(c), snippet.Reader{}
		for n := range 3 {
			if ring := (snippet.Ring{Tag: uint16(n + 1)}); !c.Append(m, ring.Word(), nil) {
				t.Fatal("no room")
			}
		}
		second := snippet.RingHead + 1
		written := m[second]
		m[second] = 0
		for want := range []int{0, 1} { // it is asked for twice, and nothing comes then
			if got := r.Drain(c, m, make([]uint64, 0, 64)); len(got) != 1-want || r.Read != 1 || r.Unfinished() != 2 {
				t.Errorf("%x, %+v", got, r)
			}
		}
		m[second] = written
		got := r.Drain(c, m, make([]uint64, 0, 64))
		if len(got) != 2 || snippet.Tag(got[0]) != 2 || snippet.Tag(got[1]) != 3 || r.Unfinished() != 0 {
			t.Errorf("%x, %+v", got, r)
		}
	})
}

// TestRingWraps: a state's lower half goes round, and carries into the upper; what is lost
// makes it go far.
func TestRingWraps(t *testing.T) {
	inForms(t, snippet.Cell{Kind: snippet.InRing, Records: 64, Fields: 7}, ringWraps)
}

func ringWraps(t *testing.T, c snippet.Cell) {
	m, r := newRing(c), snippet.Reader{}
	var came, lost, read uint64
	for turn := range 3000 {
		n := uint64(rand.IntN(c.Records + 1))
		if turn%40 == 0 {
			n = uint64(c.Records)
		}
		for k := range n {
			if !c.Append(m, 1, []uint64{came + k, 0, 0, 0, 0, 0, 0}) {
				t.Fatalf("no room for %d records, %+v", n, r)
			}
		}
		first := came
		came += n
		if n == uint64(c.Records) {
			more := (1<<29 + rand.Uint64N(1<<29)) / 64 // 75 times that, so the state goes round
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

// BenchmarkDrain is what a record takes who empties a ring.
func BenchmarkDrain(b *testing.B) {
	for _, fields := range []int{0, 2} {
		b.Run(strconv.Itoa(fields)+" fields", func(b *testing.B) { drainsOf(b, snippet.Cell{Kind: snippet.InRing, Records: 1 << 15, Fields: fields}) })
	}
}

func drainsOf(b *testing.B, c snippet.Cell) {
	m, r, args := newRing(c), snippet.Reader{}, make([]uint64, c.Fields)
	var got []uint64
	for n := 0; n < b.N; n += c.Records {
		b.StopTimer()
		for range c.Records {
			c.Append(m, 1, args)
		}
		b.StartTimer()
		got = r.Drain(c, m, slices.Grow(got[:0], (1+c.Fields)*c.Records))
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
