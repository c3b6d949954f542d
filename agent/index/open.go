package index

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"sort"
	"sync/atomic"

	"kerninst/agent/isa"
)

// Index is an opened index. It may be used by several goroutines at once; the
// bytes that it was opened from must stay as they are.
type Index struct {
	head header
	b    []byte
	body uint64          // where the chunks begin
	seen []atomic.Uint32 // chunks whose sum was right, a bit each
}

// Open checks the header of an index and that its tables lie within b. The rest
// is checked as it is read. Errors are *Damaged.
func Open(b []byte) (*Index, error) {
	x := &Index{b: b}
	if err := x.readHeader(); err != nil {
		return nil, err
	}
	if err := x.checkTables(); err != nil {
		return nil, err
	}
	t := x.head.Tables[tableSums]
	sums := b[t.Off : t.Off+t.Count*4]
	if crc32.Checksum(sums, crcTable) != x.head.Sums {
		return nil, damaged("its sums are not those that were written")
	}
	x.body = t.Off + t.Count*4
	if want := (x.head.Size - x.body + chunk - 1) / chunk; t.Count != want {
		return nil, damaged("%d sums for %d chunks", t.Count, want)
	}
	x.seen = make([]atomic.Uint32, t.Count/32+1)
	return x, nil
}

func (x *Index) readHeader() error {
	b, h := x.b, &x.head
	switch {
	case len(b) < len(magic) || !bytes.Equal(b[:7], magic[:7]):
		return damaged("does not begin with %q: no index", magic[:6])
	case b[7] != magic[7]:
		return damaged("of version %q, this program reads %q", b[7:8], magic[7:])
	case len(b) < headerSize:
		return damaged("%d bytes, less than a header: cut off", len(b))
	}
	if _, err := binary.Decode(b, order, h); err != nil {
		return damaged("header: %v", err)
	}
	switch {
	case crc32.Checksum(b[:headerSize-8], crcTable) != h.Sum:
		return damaged("its header is not the one that was written")
	case h.Size != uint64(len(b)):
		return damaged("%d bytes, %d were written: cut off or damaged", len(b), h.Size)
	case h.Size > maxSize:
		return damaged("%d bytes, more than %d", h.Size, maxSize)
	case h.Text >= 1<<32:
		return damaged("of %d bytes of text", h.Text)
	}
	return nil
}

// checkTables: one behind the other, the last ends with the file.
func (x *Index) checkTables() error {
	at := uint64(headerSize)
	for k, t := range x.head.Tables {
		if t.Off != at || t.Off > x.head.Size || t.Count > (x.head.Size-t.Off)/uint64(widths[k]) {
			return damaged("table %d: %d records at %d of %d bytes", k, t.Count, t.Off, x.head.Size)
		}
		at = t.Off + t.Count*uint64(widths[k])
	}
	if at != x.head.Size {
		return damaged("%d bytes behind its tables", x.head.Size-at)
	}
	return nil
}

// Arch names the ISA.
func (x *Index) Arch() string { return string(bytes.TrimRight(x.head.Arch[:], "\x00")) }

// Source is the SHA-256 of the dump that the index was made from.
func (x *Index) Source() [32]byte { return x.head.Source }

// TextSize is the size of the kernel's text, in bytes.
func (x *Index) TextSize() isa.Off { return isa.Off(x.head.Text) }

// Size is the size of the index, in bytes.
func (x *Index) Size() int { return len(x.b) }

// Funcs, Blocks and Edges are how many there are of each.
func (x *Index) Funcs() int  { return int(x.head.Tables[tableFuncs].Count) }
func (x *Index) Blocks() int { return int(x.head.Tables[tableBlocks].Count) }
func (x *Index) Edges() int  { return int(x.head.Tables[tableEdges].Count) }

// About is what the maker put into the index beside its tables.
func (x *Index) About() ([]byte, error) {
	t := x.head.Tables[tableAbout]
	return x.bytes(t.Off, t.Count)
}

// bytes are n bytes at off, whose chunks have the right sums.
func (x *Index) bytes(off, n uint64) ([]byte, error) {
	for c := (off - x.body) / chunk; n > 0 && c <= (off+n-1-x.body)/chunk; c++ {
		if err := x.check(c); err != nil {
			return nil, err
		}
	}
	return x.b[off : off+n : off+n], nil
}

// check checks one chunk, the first time that it is touched.
func (x *Index) check(c uint64) error {
	bit := uint32(1) << (c % 32)
	if x.seen[c/32].Load()&bit != 0 {
		return nil
	}
	lo := x.body + c*chunk
	got := crc32.Checksum(x.b[lo:min(lo+chunk, x.head.Size)], crcTable)
	if got != order.Uint32(x.b[x.head.Tables[tableSums].Off+4*c:]) {
		return damaged("its bytes from %d on are not those that were written", lo)
	}
	x.seen[c/32].Or(bit)
	return nil
}

// record is record k of a table.
func (x *Index) record(table, k int) ([]byte, error) {
	t, w := x.head.Tables[table], uint64(widths[table])
	if k < 0 || uint64(k) >= t.Count {
		return nil, damaged("record %d of %d in table %d asked for", k, t.Count, table)
	}
	return x.bytes(t.Off+uint64(k)*w, w)
}

// Func is function k, from 0 to Funcs.
func (x *Index) Func(k int) (Func, error) {
	b, err := x.record(tableFuncs, k)
	if err != nil {
		return Func{}, err
	}
	f := decodeFunc(b)
	if f.Start+f.Size > x.TextSize() || f.Skip > f.Size || int(f.First)+f.Blocks > x.Blocks() {
		return f, damaged("function %d: %d bytes at %#x, %d blocks from %d on", k, f.Size, uint64(f.Start), f.Blocks, f.First)
	}
	return f, nil
}

// Block is block b, from 0 to Blocks.
func (x *Index) Block(b Block) (Info, error) {
	r, err := x.record(tableBlocks, int(b))
	if err != nil {
		return Info{}, err
	}
	i := decodeInfo(r)
	i.End = x.TextSize()
	if int(b)+1 < x.Blocks() {
		if r, err = x.record(tableBlocks, int(b)+1); err != nil {
			return i, err
		}
		i.End = isa.Off(order.Uint32(r))
	}
	switch {
	case i.Start >= i.End || i.End > x.TextSize():
		return i, damaged("block %d from %#x to %#x", b, uint64(i.Start), uint64(i.End))
	case i.Target != NoBlock && int(i.Target) >= x.Blocks():
		return i, damaged("block %d leads to block %d of %d", b, i.Target, x.Blocks())
	case !i.Kind.Known():
		return i, damaged("block %d is of kind %d", b, uint8(i.Kind))
	}
	return i, nil
}

// Edge is edge k, from 0 to Edges.
func (x *Index) Edge(k int) (Edge, error) {
	b, err := x.record(tableEdges, k)
	if err != nil {
		return Edge{}, err
	}
	e := decodeEdge(b)
	if int(e.From) >= x.Blocks() || e.To != NoBlock && int(e.To) >= x.Blocks() {
		return e, damaged("edge %d from block %d to %d of %d", k, e.From, e.To, x.Blocks())
	}
	return e, nil
}

// EdgesOf lists the edges that leave b.
func (x *Index) EdgesOf(b Block) (out []Edge, err error) {
	k, err := x.search(tableEdges, func(r []byte) bool { return Block(order.Uint32(r)) >= b })
	for ; err == nil && k < x.Edges(); k++ {
		var e Edge
		if e, err = x.Edge(k); err != nil || e.From != b {
			break
		}
		out = append(out, e)
	}
	return out, err
}

// FuncAt finds the function that begins at off.
func (x *Index) FuncAt(off isa.Off) (f Func, ok bool, err error) {
	f, k, err := x.funcAt(off)
	return f, k >= 0, err
}

// funcAt is FuncAt with the function's number, -1 if there is none.
func (x *Index) funcAt(off isa.Off) (f Func, k int, err error) {
	k, err = x.search(tableFuncs, func(r []byte) bool { return isa.Off(order.Uint32(r)) >= off })
	if err != nil || k == x.Funcs() {
		return f, -1, err
	}
	if f, err = x.Func(k); err != nil || f.Start != off {
		return f, -1, err
	}
	return f, k, nil
}

// table is all of a table.
func (x *Index) table(k int) ([]byte, error) {
	t := x.head.Tables[k]
	return x.bytes(t.Off, t.Count*uint64(widths[k]))
}

// search is sort.Search over the records of a table.
func (x *Index) search(table int, reached func(record []byte) bool) (int, error) {
	var failed error
	k := sort.Search(int(x.head.Tables[table].Count), func(k int) bool {
		r, err := x.record(table, k)
		if err != nil {
			failed = err
			return true
		}
		return reached(r)
	})
	return k, failed
}

// Verify reads everything and checks that tables are in order: for who has time.
func (x *Index) Verify() error {
	for c := range x.head.Tables[tableSums].Count {
		if err := x.check(c); err != nil {
			return err
		}
	}
	return x.verifyOrder()
}

// verifyOrder checks each record, and that starts ascend: Block fails on a start
// that does not.
func (x *Index) verifyOrder() error {
	for b := range Block(x.Blocks()) {
		if i, err := x.Block(b); err != nil {
			return err
		} else if b == 0 && i.Start != 0 {
			return damaged("its blocks begin at %#x", uint64(i.Start))
		}
	}
	last := isa.Off(0)
	for k := range x.Funcs() {
		f, err := x.Func(k)
		if err != nil {
			return err
		}
		if k > 0 && f.Start <= last {
			return damaged("function %d at %#x is not behind the one before it", k, uint64(f.Start))
		}
		last = f.Start
	}
	from := Block(0)
	for k := range x.Edges() {
		e, err := x.Edge(k)
		if err != nil {
			return err
		}
		if e.From < from {
			return damaged("edge %d leaves block %d, the one before it block %d", k, e.From, from)
		}
		from = e.From
	}
	return nil
}
