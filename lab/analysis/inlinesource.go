package analysis

import (
	"fmt"
	"strings"

	"kerninst/agent/isa"
)

// Source is of which line of the source an instruction of the kernel's own text is, and which inlined copies it is
// in, from inside to outside: "include/linux/fs.h:2998 sb_start_write < file_start_write". It is empty where that is not known.
func (n *Inlines) Source(function string, offset uint64) string {
	f, err := n.text.Function("", function)
	if err != nil {
		return ""
	}
	o := isa.Off(f.Addr-n.lo) + isa.Off(offset)
	l := n.x.LineAt(o)
	if l.File == "" {
		return ""
	}
	at := fmt.Sprintf("%s:%d", l.File, l.Line)
	found, err := n.x.At(o)
	if err != nil || found.Body == nil {
		return at
	}
	var in []string
	for k := found.Copy; k >= 0; k = found.Body.Copies[k].In {
		in = append(in, found.Body.Copies[k].Func.Name)
	}
	return strings.TrimSpace(at + " " + strings.Join(in, " < "))
}
