package snippet

import "slices"

// Kind is what a cell is.
type Kind uint8

const (
	NoKind Kind = iota
	Sum         // a number that is added to, modulo 2^64
	Min         // the smallest that came by
	Max         // the largest
	Buffer      // the first records that came by, and how many did
	Faults      // how many loads came to nothing
	Stacks      // like Buffer; each of its records is what a stack was
)

var kindNames = [...]string{"none", "sum", "min", "max", "buffer", "faults", "stacks"}

func (k Kind) String() string { return word(kindNames[:], int(k), "kind") }

// Cell is memory that a snippet changes, in 64-bit words.
//
// A buffer is a word with how many records were asked for, and then its records.
// One is reserved by one atomic addition to that word. What comes when all are taken is
// counted there and not kept: a writer that was overtaken by a whole round could
// otherwise leave a record of which half is another's. The first word of a record
// is written last, and is its number plus one: a reader takes no other for whole.
type Cell struct {
	Kind    Kind
	Type    Type // of Min and Max
	Records int  // of Buffer and Stacks: how many it keeps, a power of two
	Fields  int  // of Buffer and Stacks: words that a record holds
}

// Stride is the distance of two records of a buffer in words, a power of two.
func (c Cell) Stride() int {
	n := 1
	for n < 1+c.Fields {
		n *= 2
	}
	return n
}

// keeps reports whether a cell keeps records.
func (c Cell) keeps() bool { return c.Kind == Buffer || c.Kind == Stacks }

// Words is the size of a cell.
func (c Cell) Words() int {
	if c.keeps() {
		return 1 + c.Records*c.Stride()
	}
	return 1
}

// Start is what a cell of one word holds before anything came by.
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
	}
	return out
}

// Record is one that a buffer kept.
type Record struct {
	Number uint64 // of those that were asked for, from 0
	Fields []uint64
}

// Read reads a buffer. holes are those that somebody had reserved and not
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
		if n := slices.Index(fields, 0); c.Kind == Stacks && n >= 0 {
			fields = fields[:n]
		}
		out = append(out, Record{k, fields})
	}
	return out, holes, asked - kept
}
