package inline

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"kerninst/agent/isa"
)

// Version is part of the magic: count it up when the format, or what is written into it, changes.
const Version = 6

// magic begins every index; what follows is the length of the rest unpacked, a CRC-32C of that,
// and the rest, packed by zstd: numbers are unsigned or signed LEB128.
var magic = [8]byte{'k', 'i', 'n', 'l', 'i', 'n', 'e', '0' + Version}

const headLen = len(magic) + 8 + 4

// maxSize bounds an index, in bytes, unpacked.
const maxSize = 256 << 20

var crcTable = crc32.MakeTable(crc32.Castagnoli)

// pool gives strings and functions numbers.
type pool struct {
	strings []string
	at      map[string]uint32
	funcs   []function
	funcAt  map[Func]uint32
}

func newPool(bodies []Body, lines []Line) *pool {
	p := &pool{at: map[string]uint32{}, funcAt: map[Func]uint32{}}
	for k := range bodies {
		p.addFunc(bodies[k].Func)
		for _, c := range bodies[k].copies {
			p.addFunc(c.Func)
			p.add(c.File)
			for _, a := range c.args {
				p.add(a.Name)
			}
		}
	}
	for _, l := range lines {
		p.add(l.File)
	}
	slices.Sort(p.strings)
	for k, s := range p.strings {
		p.at[s] = uint32(k)
	}
	list := make([]Func, 0, len(p.funcAt))
	for f := range p.funcAt {
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b Func) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		if c := strings.Compare(a.File, b.File); c != 0 {
			return c
		}
		return a.Line - b.Line
	})
	for k, f := range list {
		p.funcAt[f] = uint32(k)
		p.funcs = append(p.funcs, function{name: p.at[f.Name], file: p.at[f.File], line: uint32(f.Line)})
	}
	return p
}

func (p *pool) add(s string) {
	if _, ok := p.at[s]; !ok {
		p.at[s] = 0
		p.strings = append(p.strings, s)
	}
}

func (p *pool) addFunc(f Func) {
	if _, ok := p.funcAt[f]; !ok {
		p.funcAt[f] = 0
		p.add(f.Name)
		p.add(f.File)
	}
}

// appendBody writes one. Places are distances: of the entry from the begin of the text, of others
// from the entry.
func (p *pool) appendBody(b []byte, body *Body) []byte {
	from := body.Ranges[0].Lo
	b = binary.AppendUvarint(b, uint64(p.funcAt[body.Func]))
	b = appendRanges(b, from, body.Ranges)
	b = binary.AppendUvarint(b, uint64(len(body.copies)))
	for k := range body.copies {
		c := &body.copies[k]
		b = binary.AppendUvarint(b, uint64(p.funcAt[c.Func]))
		b = binary.AppendUvarint(b, uint64(k-1-c.In)) // how far back; k: in none
		b = binary.AppendUvarint(b, uint64(p.at[c.File]))
		b = binary.AppendUvarint(b, uint64(c.Line))
		b = binary.AppendVarint(b, int64(c.Entry-from))
		rest := p.appendArgs(appendRanges(nil, from, c.ranges), from, c.args)
		b = append(binary.AppendUvarint(b, uint64(len(rest))), rest...)
	}
	return b
}

func (p *pool) appendArgs(b []byte, from isa.Off, args []Arg) []byte {
	for _, a := range args {
		b = binary.AppendUvarint(b, uint64(p.at[a.Name]))
		b = binary.AppendUvarint(b, uint64(len(a.Where)))
		for _, w := range a.Where {
			b = appendRange(b, from, w.Range)
			b = append(b, byte(w.Kind), byte(w.Reg))
			b = binary.AppendVarint(b, w.Off)
		}
	}
	return b
}

// appendRising writes numbers that rise.
func appendRising(b []byte, list []uint32) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	last := uint32(0)
	for _, v := range list {
		b = binary.AppendUvarint(b, uint64(v-last))
		last = v
	}
	return b
}

func appendRanges(b []byte, from isa.Off, list []Range) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, r := range list {
		b = appendRange(b, from, r)
	}
	return b
}

func appendRange(b []byte, from isa.Off, r Range) []byte {
	b = binary.AppendVarint(b, int64(r.Lo-from))
	return binary.AppendUvarint(b, uint64(r.Hi-r.Lo))
}

// body reads one, and of its copies where they are, and what they are of: only some of many are asked for.
func (x *Index) body(k uint32, each func(copy int, function uint64)) (*Body, error) {
	e := x.bodies[k]
	r := reader{x: x, buffer: buffer{rest: x.data[e.at:]}, from: e.entry}
	b := &Body{Func: r.fn(), Ranges: r.ranges()}
	b.at = make([]uint32, r.count())
	b.rest = r
	for i := range b.at {
		b.at[i] = uint32(len(b.rest.rest) - len(r.rest))
		function := r.skipCopy()
		if r.err == nil {
			each(i, function)
		}
	}
	if r.err != nil || len(b.Ranges) == 0 {
		return nil, fmt.Errorf("inline: the index is damaged: the body at %#x: %v", uint64(e.entry), r.err)
	}
	return b, nil
}

// skipCopy goes over one, holding that tables have what it refers to, and says what it is of.
func (r *reader) skipCopy() (function uint64) {
	function = r.uleb()
	r.uleb() // what it is in
	if file := r.uleb(); function >= uint64(len(r.x.funcs)) || file >= uint64(len(r.x.strings)) {
		r.damaged()
		return 0
	}
	r.uleb() // the line
	r.signed()
	r.bytes(r.uleb())
	return function
}

// Len is how many copies there are in it.
func (b *Body) Len() int { return max(len(b.copies), len(b.at)) }

// Copy is the copy with a number from 0 on.
func (b *Body) Copy(k int) *Copy {
	if b.copies != nil {
		return &b.copies[k]
	}
	r := b.rest
	r.rest = r.rest[b.at[k]:]
	c := &Copy{Func: r.fn(), In: k - 1 - int(min(r.uleb(), uint64(k))), File: r.string(), Line: int(r.uleb())}
	c.Entry = r.from + isa.Off(r.signed())
	c.rest = reader{x: r.x, buffer: buffer{rest: r.bytes(r.uleb())}, from: r.from}
	return c
}

// Ranges is the copy's code, in order of places.
func (c *Copy) Ranges() []Range {
	r := c.rest
	return r.ranges()
}

// Args are the copy's arguments, in order.
func (c *Copy) Args() (out []Arg) {
	r := c.rest
	r.ranges()
	for len(r.rest) > 0 {
		a := Arg{Name: r.string()}
		a.Where = make([]Place, r.count())
		for k := range a.Where {
			a.Where[k] = Place{Range: r.oneRange(), Kind: Kind(r.byte()), Reg: isa.Reg(r.byte()), Off: r.signed()}
		}
		out = append(out, a)
	}
	return out
}

// reader reads what refers to an index's tables.
type reader struct {
	buffer
	x    *Index
	from isa.Off
}

func (r *reader) damaged() { r.err, r.rest = errors.New("a number that is none of the table's"), nil }

func (r *reader) fn() Func {
	if k := r.uleb(); k < uint64(len(r.x.funcs)) {
		return r.x.fn(k)
	}
	r.damaged()
	return Func{}
}

func (r *reader) string() string {
	if k := r.uleb(); k < uint64(len(r.x.strings)) {
		return r.x.strings[k]
	}
	r.damaged()
	return ""
}

// count is of records, each of a byte at least.
func (r *reader) count() int {
	if n := r.uleb(); n <= uint64(len(r.rest)) {
		return int(n)
	}
	r.damaged()
	return 0
}

// rising reads what appendRising wrote.
func (r *reader) rising() []uint32 {
	out := make([]uint32, r.count())
	last := uint32(0)
	for k := range out {
		last += uint32(r.uleb())
		out[k] = last
	}
	return out
}

func (r *reader) signed() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.damaged()
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) oneRange() Range {
	lo := r.from + isa.Off(r.signed())
	return Range{lo, lo + isa.Off(r.uleb())}
}

func (r *reader) ranges() (out []Range) {
	for range r.count() {
		out = append(out, r.oneRange())
	}
	return out
}

// Bytes is the index as a file has it.
func (x *Index) Bytes() ([]byte, error) {
	var b []byte
	text := func(s string) { b = append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	num := func(list ...uint64) {
		for _, v := range list {
			b = binary.AppendUvarint(b, v)
		}
	}
	text(x.Arch)
	text(string(x.BuildID))
	num(uint64(x.Text), uint64(len(x.Of)))
	for _, name := range x.Of {
		text(name)
	}
	s := x.Stats
	for _, v := range []int{s.Units, s.Bodies, s.Copies, s.Args, s.Outside, s.Left, s.Empty, s.Lines, s.Located, s.Covered} {
		num(uint64(v))
	}
	num(uint64(len(x.strings)))
	for _, s := range x.strings {
		num(uint64(len(s)))
	}
	text(strings.Join(x.strings, ""))
	num(uint64(len(x.funcs)))
	for _, f := range x.funcs {
		num(uint64(f.name), uint64(f.file), uint64(f.line))
		b = appendRising(b, f.uses)
	}
	num(uint64(len(x.bodies)))
	last := extent{}
	for _, e := range x.bodies {
		num(uint64(e.entry-last.entry), uint64(e.at-last.at))
		last = e
	}
	num(uint64(len(x.starts)))
	from := start{}
	for _, s := range x.starts {
		num(uint64(s.Lo-from.Lo), uint64(s.Hi-s.Lo), uint64(s.body))
		from = s
	}
	num(uint64(len(x.marked)))
	for _, m := range x.marked {
		num(uint64(m.file))
		b = appendRising(b, m.marks)
	}
	num(uint64(len(x.marks)))
	mark := lineMark{}
	for _, m := range x.marks {
		num(uint64(m.state.off-mark.state.off), uint64(m.state.file), uint64(m.state.line), uint64(m.at-mark.at))
		mark = m
	}
	text(string(x.data))
	text(string(x.lines))
	return pack(magic, b)
}

func pack(magic [8]byte, b []byte) ([]byte, error) {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBetterCompression))
	if err != nil {
		return nil, err
	}
	defer w.Close()
	out := binary.LittleEndian.AppendUint64(slices.Clone(magic[:]), uint64(len(b)))
	out = binary.LittleEndian.AppendUint32(out, crc32.Checksum(b, crcTable))
	return w.EncodeAll(b, out), nil
}

// unpack is the inverse; what is what the file should be.
func unpack(magic [8]byte, what string, file []byte) ([]byte, error) {
	if len(file) < headLen || !bytes.Equal(file[:len(magic)-1], magic[:len(magic)-1]) {
		return nil, errors.New("inline: no " + what)
	}
	if file[len(magic)-1] != magic[len(magic)-1] {
		return nil, fmt.Errorf("inline: an index of version %c, this is version %c", file[len(magic)-1], magic[len(magic)-1])
	}
	size, sum := binary.LittleEndian.Uint64(file[len(magic):]), binary.LittleEndian.Uint32(file[len(magic)+8:])
	if size > maxSize {
		return nil, fmt.Errorf("inline: the index is damaged: %d bytes", size)
	}
	r, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxSize))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := r.DecodeAll(file[headLen:], make([]byte, 0, size))
	if err == nil && (uint64(len(b)) != size || crc32.Checksum(b, crcTable) != sum) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("inline: the index is damaged: %w", err)
	}
	return b, nil
}

// Open reads what Bytes wrote. What is damaged, or of another version, is an error.
func Open(file []byte) (*Index, error) {
	b, err := unpack(magic, "index of inlined copies", file)
	if err != nil {
		return nil, err
	}
	return read(b)
}

// read reads what is in a file.
func read(b []byte) (*Index, error) {
	x := &Index{}
	r := reader{x: x, buffer: buffer{rest: b}}
	text := func() string { return string(r.bytes(r.uleb())) }
	x.Arch, x.BuildID, x.Text = text(), []byte(text()), isa.Off(r.uleb())
	for range r.count() {
		x.Of = append(x.Of, text())
	}
	s := &x.Stats
	for _, v := range []*int{&s.Units, &s.Bodies, &s.Copies, &s.Args, &s.Outside, &s.Left, &s.Empty, &s.Lines, &s.Located, &s.Covered} {
		*v = int(r.uleb())
	}
	r.strings()
	r.functions()
	x.bodies = make([]extent, r.count())
	last := extent{}
	for k := range x.bodies {
		last = extent{last.entry + isa.Off(r.uleb()), last.at + uint32(r.uleb())}
		x.bodies[k] = last
	}
	r.starts()
	r.files()
	r.marks()
	x.data = r.bytes(r.uleb())
	x.lines = r.bytes(r.uleb())
	if r.err == nil && !x.fits() {
		r.damaged()
	}
	if r.err != nil {
		return nil, fmt.Errorf("inline: the index is damaged: %w", r.err)
	}
	return x, nil
}

// fits says whether what tables refer to is there.
func (x *Index) fits() bool {
	within := func(list []uint32, n int) bool {
		return !slices.ContainsFunc(list, func(v uint32) bool { return int(v) >= n })
	}
	for _, f := range x.funcs {
		if !within(f.uses, len(x.bodies)) {
			return false
		}
	}
	for _, m := range x.marked {
		if !within(m.marks, len(x.marks)) || int(m.file) >= len(x.strings) {
			return false
		}
	}
	last := uint32(0)
	for _, m := range x.marks {
		if m.at < last || int(m.at) > len(x.lines) {
			return false
		}
		last = m.at
	}
	return !slices.ContainsFunc(x.bodies, func(e extent) bool { return int(e.at) > len(x.data) })
}

// strings reads the table of strings, all of which are parts of one.
func (r *reader) strings() {
	sizes := make([]uint64, r.count())
	for k := range sizes {
		sizes[k] = r.uleb()
	}
	all := string(r.bytes(r.uleb()))
	r.x.strings = make([]string, len(sizes))
	for k, n := range sizes {
		if n > uint64(len(all)) {
			r.damaged()
			return
		}
		r.x.strings[k], all = all[:n], all[n:]
	}
}

// starts reads where code of bodies is.
func (r *reader) starts() {
	r.x.starts = make([]start, r.count())
	from := isa.Off(0)
	for k := range r.x.starts {
		from += isa.Off(r.uleb())
		s := start{Range{from, from + isa.Off(r.uleb())}, uint32(r.uleb())}
		if int(s.body) >= len(r.x.bodies) {
			r.damaged()
			return
		}
		r.x.starts[k] = s
	}
}

// files reads of which marks files have rows.
func (r *reader) files() {
	r.x.marked = make([]markedFile, r.count())
	for k := range r.x.marked {
		r.x.marked[k] = markedFile{uint32(r.uleb()), r.rising()}
	}
}

// marks reads where rows of lines may be begun at.
func (r *reader) marks() {
	r.x.marks = make([]lineMark, r.count())
	m := lineMark{}
	for k := range r.x.marks {
		m = lineMark{row{m.state.off + isa.Off(r.uleb()), uint32(r.uleb()), int64(r.uleb())}, m.at + uint32(r.uleb())}
		r.x.marks[k] = m
	}
}

// functions reads the table of functions.
func (r *reader) functions() {
	x := r.x
	x.funcs = make([]function, r.count())
	for k := range x.funcs {
		f := function{name: uint32(r.uleb()), file: uint32(r.uleb()), line: uint32(r.uleb())}
		if int(f.name) >= len(x.strings) || int(f.file) >= len(x.strings) {
			r.damaged()
			return
		}
		f.uses = r.rising()
		x.funcs[k] = f
	}
}
