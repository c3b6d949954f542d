// Command locks counts how often atomic exchanges that are followed by a jump, as those by which locks are
// taken, have to be done again or go another way, as JIFL's figure 17 does: where others contend.
package main

import (
	"fmt"
	"io"
	"strings"

	"kerninst/agent/clone/plugin"
)

// exchange is a lock cmpxchg, and the jump that says whether it was in vain.
type exchange struct {
	insn      *plugin.Insn
	came, not *plugin.Point
}

func main() {
	var all []exchange
	plugin.Main(plugin.Plugin{
		Block: func(b *plugin.Block) {
			for k, i := range b.Insns {
				if !i.Locked || !strings.Contains(i.Text, "cmpxchg") {
					continue
				}
				x := exchange{insn: i, came: i.Insert("count")}
				for _, j := range b.Insns[k+1:] { // the first jump behind it asks whether it has worked
					if j.Kind != plugin.Plain {
						if j.Kind == plugin.Conditional && strings.HasPrefix(j.Text, "jne") {
							x.not = j.Taken("count")
						}
						break
					}
				}
				all = append(all, x)
			}
		},
		Report: func(w io.Writer) {
			for _, x := range all {
				r := x.insn.Block.Routine
				if x.came.Value() == 0 {
					continue
				}
				not := "no jump says whether it worked"
				if x.not != nil {
					not = fmt.Sprintf("%d in vain", x.not.Value())
				}
				fmt.Fprintf(w, "%8d times, %s  %s: %s+%#x  %s  %s\n", x.came.Value(), not, r.Syscall.Name, r.Name, x.insn.Offset, x.insn.Text, x.insn.Source)
			}
		},
	})
}
