// Command branches counts how often each conditional jump of a system call's code is taken and is not, as
// JIFL's figure 15 does, and names those that nearly always go the way that the compiler has not laid out
// straight: there, a hint in the source would help.
package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"kerninst/agent/clone/plugin"
)

// branch is a conditional jump in the code of one system call.
type branch struct {
	insn           *plugin.Insn
	taken, through *plugin.Point
}

// few are too few to say anything, and often is what is nearly always.
const (
	few   = 20
	often = 0.95
)

func main() {
	var all []branch
	plugin.Main(plugin.Plugin{
		Insn: func(i *plugin.Insn) {
			if i.Kind == plugin.Conditional {
				all = append(all, branch{i, i.Taken("count"), i.Behind("count")})
			}
		},
		Report: func(w io.Writer) { report(w, all) },
	})
}

func report(w io.Writer, all []branch) {
	run, biased := 0, []branch{}
	for _, b := range all {
		n := b.taken.Value() + b.through.Value()
		if n > 0 {
			run++
		}
		if n >= few && float64(b.taken.Value()) >= often*float64(n) {
			biased = append(biased, b)
		}
	}
	slices.SortStableFunc(biased, func(a, b branch) int { return cmp.Compare(b.taken.Value(), a.taken.Value()) })
	fmt.Fprintf(w, "%d conditional jumps, %d of them come to, %d taken nearly always\n", len(all), run, len(biased))
	for _, b := range biased {
		r := b.insn.Block.Routine
		fmt.Fprintf(w, "%8d taken  %6d not  %s: %s+%#x  %s  %s\n", b.taken.Value(), b.through.Value(), r.Syscall.Name, r.Name, b.insn.Offset, b.insn.Text, b.insn.Source)
	}
}
