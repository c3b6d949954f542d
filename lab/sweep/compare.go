package sweep

import (
	"fmt"
	"io"
	"strings"

	"kerninst/agent/isa"
)

// Piece is one run of code, decoded from its start.
type Piece struct {
	Name string
	Addr isa.Addr // where it lies in the kernel
	Code []byte
}

// Difference is one instruction on which the decoder and objdump disagree.
type Difference struct {
	Piece string
	Off   isa.Off // from the piece's start
	Bytes []byte
	What  string // length, flow, target, registers, memory…
	Line  Line   // objdump's word
	Ours  string
	Insn  isa.Insn // the decoder's
}

func (d Difference) String() string {
	return fmt.Sprintf("%s+%#x: %x: %s: objdump %q %q, decoder %s", d.Piece, d.Off, d.Bytes, d.What, d.Line.Mnemonic, d.Line.Operands, d.Ours)
}

// Report counts what was compared.
type Report struct {
	Instructions int
	Bytes        int
	Unknown      []Difference // that neither decodes
	Cut          int          // by the end of their piece
	Mnemonics    map[string]int
	Differences  []Difference
}

// layout is where the pieces lie in the file that objdump reads: end to end.
// Both sides decode them there, so that targets can be compared.
type layout struct {
	arch   *isa.Arch
	pieces []Piece
	base   isa.Addr
	starts []isa.Addr
	code   []byte
}

// base of the file, far from both ends of the address space.
const fileBase isa.Addr = 0xffffffff80000000

func lay(arch *isa.Arch, pieces []Piece) *layout {
	l := &layout{arch: arch, pieces: pieces, base: fileBase}
	for _, p := range pieces {
		l.starts = append(l.starts, l.base+isa.Addr(len(l.code)))
		l.code = append(l.code, p.Code...)
	}
	return l
}

// cursor walks over the pieces with our decoder.
type cursor struct {
	*layout
	piece int
	off   int // in the file
}

// next decodes the instruction at the cursor and moves on.
func (c *cursor) next() (i isa.Insn, code []byte, ok bool) {
	for c.piece < len(c.pieces) && c.off >= c.end() {
		c.piece++
	}
	if c.piece == len(c.pieces) {
		return i, nil, false
	}
	code = c.code[c.off:c.end()]
	i = c.arch.Decode(code, c.base+isa.Addr(c.off))
	c.off += i.Len
	return i, code, true
}

// end of the cursor's piece, in the file.
func (c *cursor) end() int { return int(c.starts[c.piece]-c.base) + len(c.pieces[c.piece].Code) }

// maxDifferences is how many differences are kept.
const maxDifferences = 1 << 20

// compare reads objdump's output for the layout. Where the two disagree about a
// length, both go on where objdump does.
func (l *layout) compare(out io.Reader) (*Report, error) {
	r := &Report{Mnemonics: map[string]int{}, Bytes: len(l.code)}
	book := books[l.arch.Name]
	c := &cursor{layout: l}
	next := 0 // where objdump went on to
	err := read(out, func(line *Line) error {
		c.off, next = int(line.Addr-l.base), int(line.Addr-l.base)+line.Len
		i, code, ok := c.next()
		if !ok {
			return fmt.Errorf("objdump: an instruction at %v, behind the code", line.Addr)
		}
		r.Instructions++
		if line.Len > len(code) { // the piece ends inside it
			r.Cut++
			return nil
		}
		r.Mnemonics[line.Mnemonic]++
		p := l.pieces[c.piece]
		at := Difference{Piece: p.Name, Off: isa.Off(i.Addr - l.starts[c.piece]), Bytes: code[:line.Len], What: "unknown", Line: *line, Ours: "unknown", Insn: i}
		if i.Flow == isa.FlowUnknown && line.bad() {
			r.Unknown = append(r.Unknown, at)
			return nil
		}
		for _, d := range book.judge(l.arch, line, i) {
			at.What, at.Ours = d.what, d.ours
			r.Differences = append(r.Differences, at)
		}
		if len(r.Differences) > maxDifferences {
			return fmt.Errorf("more than %d differences, the last: %v", maxDifferences, r.Differences[len(r.Differences)-1])
		}
		return nil
	})
	if err == nil && next < len(l.code) {
		err = fmt.Errorf("objdump stopped after %d of %d bytes", next, len(l.code))
	}
	return r, err
}

// bad says whether objdump did not decode the instruction, or an operand of it, as in
// "(%rax){bad}" and "{rn-bad}".
func (l *Line) bad() bool {
	switch l.Mnemonic {
	case "(bad)", ".inst", ".insn", ".word", ".short", ".byte", ".4byte", ".2byte", "":
		return true
	}
	return strings.HasSuffix(l.Mnemonic, "(bad)") || strings.Contains(l.Operands, "(bad)") || strings.Contains(l.Operands, "bad}")
}
