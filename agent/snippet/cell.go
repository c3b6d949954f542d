package snippet

import (
	"math/bits"
	"slices"
)

// Kind is what a cell is.
type Kind uint8

const (
	NoKind Kind = iota
	Sum         // a number that is added to, modulo 2^64
	Min         // the smallest that came by
	Max         // the largest
	InRing      // where the records of a ring are
	Faults      // how many loads came to nothing
	Stacks      // the first stacks that came by, and how many did
	Array       // numbers that are added to or raised, each by itself
	Map         // such numbers for each of the keys that came by
	Clocks      // where it is kept how long tasks did not run
)

var kindNames = [...]string{"none", "sum", "min", "max", "ring", "faults", "stacks", "array", "map", "clocks"}

func (k Kind) String() string { return word(kindNames[:], int(k), "kind") }

// Cell is memory that a snippet changes, in 64-bit words.
//
// Stacks are a word with how many records were asked for, and then the records. One is
// reserved by one atomic addition to that word. What comes when all are taken is counted
// there and not kept: a writer that was overtaken by a whole round could otherwise leave a
// record of which half is another's. The first word of a record is written last, and is its
// number plus one: a reader takes no other for whole. A ring is elsewhere; its cell has its
// address and the tag's part of a stamp.
//
// A record of a map is its state, two keys, and its values. It is looked for from where
// the keys' hash says, in MapProbes places. One that is free is claimed by whoever raises
// its state to Claimed first, and has its keys when that is Known. Who comes by a record
// that another has claimed and not written goes on to the next, and does not wait: the
// other may be who it has interrupted. So a key may have several records; a reader adds
// them up.
//
// Clocks are elsewhere, as rings are: a word for each task's number, by the number's lower
// bits. It is how long the task did not run, in cycles, and, while it does not, less the
// moment at which it went. So the cycles less the word of who runs are a clock that stands
// still while he does not; of who does not run, the word's negative is what his clock shows.
// Where words start does not matter: it is where the clocks start.
type Cell struct {
	Kind    Kind
	Type    Type // of Min and Max
	Records int  // of InRing, Stacks and Map: how many it keeps, a power of two; of Array and Clocks: words
	Fields  int  // of InRing and Stacks: words that a record holds, 0 in a ring for the tag alone; of Map: values that it has
	Ring    Ring // of InRing: where that is; of Clocks: At is where they are
}

// Stride is the distance of two records in words, a power of two.
func (c Cell) Stride() int {
	n, head := 1, 1
	if c.Kind == Map {
		head = MapHead
	}
	for n < head+c.Fields {
		n *= 2
	}
	return n
}

// Words is the size of a cell.
func (c Cell) Words() int {
	switch {
	case c.Kind == Stacks:
		return 1 + c.Records*c.Stride()
	case c.Kind == InRing:
		return ringWords
	case c.Kind == Array:
		return c.Records
	case c.Kind == Map:
		return c.Records * c.Stride()
	}
	return 1
}

// Start is what each word of a cell holds before anything came by.
func (c Cell) Start() uint64 {
	switch {
	case c.Kind == Min && c.Type == S64:
		return 1<<63 - 1
	case c.Kind == Min:
		return 1<<64 - 1
	case c.Kind == Max && c.Type == S64:
		return 1 << 63
	}
	return 0
}

// Words is the size of all cells, which lie one behind the other.
func (s Snippet) Words() int { return s.Word(len(s.Cells)) }

// Word is where a cell begins, in words behind the first.
func (s Snippet) Word(cell int) int {
	n := 0
	for _, c := range s.Cells[:cell] {
		n += c.Words()
	}
	return n
}

// Starts is what all cells hold before anything came by.
func (s Snippet) Starts() []uint64 {
	out := make([]uint64, s.Words())
	for k, c := range s.Cells {
		out[s.Word(k)] = c.Start()
		if c.Kind == InRing {
			copy(out[s.Word(k):], []uint64{c.Ring.At, c.Ring.stamp()})
		}
		if c.Kind == Clocks {
			out[s.Word(k)] = c.Ring.At
		}
	}
	return out
}

// Record is one of a stack, or of a ring.
type Record struct {
	Number uint64 // of those that were asked for, from 0
	Fields []uint64
}

// Read reads stacks. holes are those that somebody had reserved and not
// written to the end; dropped are those that came when it was full.
func (c Cell) Read(words []uint64) (out []Record, holes, dropped uint64) {
	asked := words[0]
	kept := min(asked, uint64(c.Records))
	for k := uint64(0); k < kept; k++ {
		at := 1 + int(k)*c.Stride()
		if words[at] != k+1 {
			holes++
			continue
		}
		fields := words[at+1 : at+1+c.Fields]
		if n := slices.Index(fields, 0); n >= 0 {
			fields = fields[:n]
		}
		out = append(out, Record{k, fields})
	}
	return out, holes, asked - kept
}

// What a map's records are made of.
const (
	MapHead   = 3 // words before the values
	MapProbes = 8 // places where a record is looked for

	Claimed = 1
	Known   = 2

	mapFactor = 0x9e3779b97f4a7c15 // 2^64 by the golden ratio, odd
)

// Probes is in how many places a record of a map is looked for.
func (c Cell) Probes() int { return min(MapProbes, c.Records) }

// MapFactor is what the sum of the keys is multiplied with; the first place is what the
// upper bits of that say, as many as there are places.
func MapFactor() uint64 { return mapFactor }

// place is the first of a map's records to look for keys at.
func (c Cell) place(keys []uint64) int {
	var sum uint64
	for _, k := range keys {
		sum += k
	}
	return int(sum * mapFactor >> (64 - bits.Len(uint(c.Records)) + 1))
}

// Entry is what a map knows of keys.
type Entry struct {
	Keys   [2]uint64
	Values []uint64
}

// Entries reads a map, in the order in which its records lie. Keys may come several times.
func (c Cell) Entries(words []uint64) (out []Entry) {
	for k := range c.Records {
		w := words[k*c.Stride():]
		if w[0] == Known {
			out = append(out, Entry{[2]uint64{w[1], w[2]}, w[MapHead : MapHead+c.Fields]})
		}
	}
	return out
}
