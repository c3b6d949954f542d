package daemon

import (
	"bytes"
	"os"
	"slices"
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

// probesFile is where the kernel lists its kprobes (kernel/kprobes.c, show_kprobe_addr: "ADDRESS  TYPE  NAME+OFFSET ...").
const probesFile = "/sys/kernel/debug/kprobes/list"

// probesIn are where there are kprobes by such a list, those that are not armed among them, which no byte tells of, in order.
func probesIn(list []byte) (out []isa.Addr) {
	for line := range bytes.Lines(list) {
		at, _, _ := bytes.Cut(line, []byte(" "))
		if a, err := strconv.ParseUint(string(at), 16, 64); err == nil {
			out = append(out, isa.Addr(a))
		}
	}
	slices.Sort(out)
	return out
}

// orListed also reports what the kernel lists: no clone is made of what has a kprobe, armed or not, but all others of a step are.
func orListed(probed func(lo, hi isa.Addr) bool) func(lo, hi isa.Addr) bool {
	if probed == nil {
		return nil
	}
	list, _ := os.ReadFile(probesFile) // a kernel may have no debugfs; the module says then what is wrong
	all := probesIn(list)
	return func(lo, hi isa.Addr) bool {
		k, _ := slices.BinarySearch(all, lo)
		return k < len(all) && all[k] < hi || probed(lo, hi)
	}
}
