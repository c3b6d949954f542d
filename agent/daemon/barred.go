package daemon

import (
	"bytes"
	"strconv"

	"kerninst/agent/isa"
)

// withoutOurs is the kernel's list of where it has no kprobes (kernel/kprobes.c, kprobe_blacklist_seq_show: lines of
// "0xSTART-0xEND\tNAME") without what the module has put there, which is where what is live begins, and all of what clones are
// copies of: no kprobe is let in there, but a clone is to be planned anew when it has grown.
func withoutOurs(list []byte, ours func(isa.Addr) bool) (out []byte) {
	for line := range bytes.Lines(list) {
		start, _, _ := bytes.Cut(line, []byte("-"))
		a, err := strconv.ParseUint(string(start), 0, 64)
		if err == nil && ours(isa.Addr(a)) {
			continue
		}
		out = append(out, line...)
	}
	return out
}
