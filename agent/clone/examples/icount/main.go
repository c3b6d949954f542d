// Command icount counts the instructions that each system call executes, as JIFL's figure 3 does: what is
// counted is how often each block is run, which takes one instruction.
package main

import (
	"fmt"
	"io"

	"kerninst/agent/clone/plugin"
)

// block is how many instructions are run as often as a point is come by.
type block struct {
	insns uint64
	came  *plugin.Point
}

// call is a system call.
type call struct {
	name   string
	came   *plugin.Point
	blocks []block
}

func main() {
	var calls []*call
	plugin.Main(plugin.Plugin{
		Syscall: func(s *plugin.Syscall) {
			calls = append(calls, &call{name: s.Name, came: s.Insert("count")})
		},
		Block: func(b *plugin.Block) {
			last := calls[len(calls)-1]
			last.blocks = append(last.blocks, block{uint64(len(b.Insns)), b.Insert("count")})
		},
		Report: func(w io.Writer) {
			for _, c := range calls {
				n := uint64(0)
				for _, b := range c.blocks {
					n += b.insns * b.came.Value()
				}
				each := 0.0
				if c.came.Value() > 0 {
					each = float64(n) / float64(c.came.Value())
				}
				fmt.Fprintf(w, "%s: %d calls, %d instructions, %.1f each\n", c.name, c.came.Value(), n, each)
			}
		},
	})
}
