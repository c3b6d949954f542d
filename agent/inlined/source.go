package inlined

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"kerninst/agent/inline"
	"kerninst/agent/isa"
)

// Source is of which line of the source a place is, function+offset, and which inlined copies it is in, from inside to
// outside: "include/linux/fs.h:2998 sb_start_write < file_start_write". It is empty
// where that is not known. returned says that a call returns there: the call is meant, which may be the last
// instruction of the function in front.
func (c *Copies) Source(place string, returned bool) string {
	function, in, ok := strings.Cut(place, "+")
	offset, err := strconv.ParseUint(in, 0, 64)
	f, unknown := c.text.Function(c.module, function)
	if !ok || err != nil || unknown != nil {
		return ""
	}
	a := f.Addr + isa.Addr(offset)
	if returned {
		a--
	}
	o, known := c.Off(a)
	if !known {
		return ""
	}
	return c.sourceAt(o)
}

func (c *Copies) sourceAt(o isa.Off) string {
	l := c.x.LineAt(o)
	if l.File == "" {
		return ""
	}
	at := fmt.Sprintf("%s:%d", l.File, l.Line)
	found, err := c.x.At(o)
	if err != nil || found.Body == nil {
		return at
	}
	var in []string
	for k := found.Copy; k >= 0; k = found.Body.Copy(k).In {
		in = append(in, found.Body.Copy(k).Func.Name)
	}
	return strings.TrimSpace(at + " " + strings.Join(in, " < "))
}

// SourceIn is Source of a place in a module that is loaded elsewhere: it is found by the names of the module's functions
// alone. Empty: nothing else in the module may have the name, and the place has to be in the function's own code.
func SourceIn(m *inline.Module, place string, returned bool) string {
	function, in, _ := strings.Cut(place, "+")
	offset, err := strconv.ParseUint(in, 0, 32)
	if err != nil {
		return ""
	}
	if returned && offset > 0 { // else it is the end of another, of which the place does not tell
		offset--
	}
	for _, s := range m.Sections {
		k := slices.IndexFunc(s.Labels, func(l inline.Label) bool { return l.Name == function })
		if k < 0 {
			continue
		}
		begin := s.Labels[k].Off
		at := begin + isa.Off(offset)
		of, err := m.Index.At(begin)
		if of.Body == nil { // see inline.MostFree
			of, err = m.Index.At(begin + inline.MostFree)
		}
		this, failed := m.Index.At(at)
		if err != nil || failed != nil || of.Body == nil || this.Body == nil || of.Body.Ranges[0] != this.Body.Ranges[0] {
			return ""
		}
		return (&Copies{x: m.Index}).sourceAt(at)
	}
	return ""
}
