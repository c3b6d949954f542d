package ktext

import (
	"fmt"

	"kerninst/agent/isa"
)

// bugTables are how struct bug_entry has lain in memory on the kernels that have been
// looked at (include/asm-generic/bug.h): where it is, its file, a line and flags. Amd64's of
// Linux 7 has a format as well. Nothing in a kernel says which it is.
var bugTables = []layout{{bugTable, 12, false}, {bugTable, 16, false}}

// fewestBugs is how many entries tell how they lie: a kernel has thousands.
const fewestBugs = 100

// bugs is how this kernel's entries lie: so that most of them are about its text. Taken for
// longer or shorter than they are, one of three or four is; the few that are not in any case
// are of code that is gone after boot.
func (t *Text) bugs() (layout, error) {
	return t.own.bugForm.get(func() (layout, error) {
		lo, hi, err := t.kernelTable(bugTables[0])
		if err != nil || lo == 0 || hi-lo < isa.Addr(fewestBugs*bugTables[0].stride) {
			return bugTables[0], err
		}
		for _, l := range bugTables {
			if int64(hi-lo)%int64(l.stride) != 0 || hi < lo {
				continue
			}
			sites, _, err := t.load(l)
			if err != nil {
				return l, err
			}
			if 2*t.inText(sites) > len(sites) {
				return l, nil
			}
		}
		return bugTables[0], fmt.Errorf("table %s: its entries are of a kind that is not known", bugTable)
	})
}

func (t *Text) inText(sites []isa.Addr) (n int) {
	for _, a := range sites {
		if a >= t.lo && a < t.hi {
			n++
		}
	}
	return n
}
