package inlined

import (
	"fmt"
	"strconv"
	"strings"

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
	for k := found.Copy; k >= 0; k = found.Body.Copies[k].In {
		in = append(in, found.Body.Copies[k].Func.Name)
	}
	return strings.TrimSpace(at + " " + strings.Join(in, " < "))
}
