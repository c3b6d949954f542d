package inline

import (
	"encoding/binary"
	"slices"
	"sort"
	"strings"

	"kerninst/agent/isa"
)

// Rows of lines are a byte with what follows, then how many bytes of code the one before it has,
// the file by its number, and by how much the line differs.
const (
	rowBegins = 1 << iota // a statement begins
	rowFile               // the file is another than the row's before
	rowEnd                // no line from here on
	rowShort  = 3         // the upper bits: the distance plus 1, if that is less than 32
)

// perMark is how many rows are read at most before the one that is looked for.
const perMark = 128

// lineMark is a row, and what was said before it.
type lineMark struct {
	state row
	at    uint32
}

// row is what rows are told by: what the one before it was.
type row struct {
	off  isa.Off
	file uint32
	line int64
}

// appendLines writes rows that are in order.
func (p *pool) appendLines(lines []Line) (b []byte, marks []lineMark) {
	var last row
	for k, l := range lines {
		if k%perMark == 0 {
			marks = append(marks, lineMark{last, uint32(len(b))})
		}
		now := row{l.Off, p.at[l.File], int64(l.Line)}
		how := byte(0)
		if l.Begins {
			how |= rowBegins
		}
		if l.File == "" {
			how, now.file, now.line = how|rowEnd, last.file, last.line
		} else if now.file != last.file {
			how |= rowFile
		}
		short := uint64(now.off-last.off) + 1
		if short < 1<<(8-rowShort) {
			b = append(b, how|byte(short)<<rowShort)
		} else {
			b = binary.AppendUvarint(append(b, how), short-1)
		}
		if how&rowFile != 0 {
			b = binary.AppendUvarint(b, uint64(now.file))
		}
		if how&rowEnd == 0 {
			b = binary.AppendVarint(b, now.line-last.line)
		}
		last = now
	}
	return b, marks
}

// markedFile are the marks behind which a file has rows, in order.
type markedFile struct {
	file  uint32
	marks []uint32
}

func (p *pool) markFiles(lines []Line) (out []markedFile) {
	at := map[string]int{}
	for k, l := range lines {
		if l.File == "" {
			continue
		}
		n, ok := at[l.File]
		if !ok {
			n = len(out)
			at[l.File] = n
			out = append(out, markedFile{file: p.at[l.File]})
		}
		m, mark := &out[n].marks, uint32(k/perMark)
		if len(*m) == 0 || (*m)[len(*m)-1] != mark {
			*m = append(*m, mark)
		}
	}
	slices.SortFunc(out, func(a, b markedFile) int { return int(a.file) - int(b.file) })
	return out
}

// next reads a row.
func (r *reader) next(last *row) Line {
	how := r.byte()
	short := uint64(how >> rowShort)
	if short == 0 {
		short = r.uleb() + 1
	}
	last.off += isa.Off(short - 1)
	if how&rowFile != 0 {
		last.file = uint32(r.uleb())
	}
	l := Line{Off: last.off, Begins: how&rowBegins != 0}
	if how&rowEnd != 0 {
		return l
	}
	last.line += r.signed()
	if int(last.file) >= len(r.x.strings) {
		r.damaged()
		return l
	}
	l.File, l.Line = r.x.strings[last.file], int(last.line)
	return l
}

// LineAt is the row that says of which line the code at a place is; its File is "" where none does.
func (x *Index) LineAt(o isa.Off) (found Line) {
	for k := x.mark(o); k < len(x.marks) && x.marks[k].state.off <= o; k++ {
		x.rows(k, func(l Line) {
			if l.Off <= o {
				found = l
			}
		})
	}
	return found
}

// mark is one in front of the row that says what a place is, with few rows in between.
func (x *Index) mark(o isa.Off) int {
	k := sort.Search(len(x.marks), func(k int) bool { return x.marks[k].state.off > o })
	return max(k-2, 0) // the first row behind the one at k-1 may be behind the place
}

// LinesOf lists where statements begin that are of a line, in order; or if none of the line does,
// where its code is. file is a name or its end ("open.c",
// "fs/open.c"), and files are all that have it. near is the next line of the file that has code; 0: none has.
// Of a part of an index it is a *PartError: lines are those of the functions around, too.
func (x *Index) LinesOf(file string, line int) (out []isa.Off, files []string, near int, err error) {
	if x.Of != nil {
		return nil, nil, 0, &PartError{x.Of, someLines}
	}
	var others []isa.Off
	for _, m := range x.marked {
		name := x.strings[m.file]
		if name != file && !strings.HasSuffix(name, "/"+file) {
			continue
		}
		files = append(files, name)
		for _, k := range m.marks {
			x.rows(int(k), func(l Line) {
				switch {
				case l.File != name:
				case l.Line == line && l.Begins:
					out = append(out, l.Off)
				case l.Line == line:
					others = append(others, l.Off)
				case l.Line > line && (near == 0 || l.Line < near):
					near = l.Line
				}
			})
		}
	}
	if out == nil {
		out = others
	}
	slices.Sort(out)
	return slices.Compact(out), files, near, nil
}

// rows visits those behind a mark, up to the next one.
func (x *Index) rows(k int, visit func(Line)) {
	m, end := x.marks[k], len(x.lines)
	if k+1 < len(x.marks) {
		end = int(x.marks[k+1].at)
	}
	r, last := reader{x: x, buffer: buffer{rest: x.lines[m.at:end]}}, m.state
	for len(r.rest) > 0 {
		visit(r.next(&last))
	}
}
