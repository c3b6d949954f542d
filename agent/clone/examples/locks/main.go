// Command locks counts how often atomic exchanges that are made only if nobody else was faster, as those by
// which locks are taken, have to be done again or go another way, as JIFL's figure 17 does: where others contend.
package main

import (
	"fmt"
	"io"
	"strings"

	"kerninst/agent/clone/plugin"
)

// exchange is a comparison and an exchange that no other CPU comes between. Either came or done is nil.
type exchange struct {
	insn *plugin.Insn
	came *plugin.Point // whoever tries
	done *plugin.Point // whoever has not tried in vain
	not  *plugin.Point // who has; nil: no jump says it
}

func main() {
	var all []exchange
	plugin.Main(plugin.Plugin{
		Routine: func(r *plugin.Routine) {
			var insns []*plugin.Insn
			for _, b := range r.Blocks {
				insns = append(insns, b.Insns...)
			}
			for k, i := range insns {
				if x, ok := exchanged(i, insns[k+1:]); ok {
					all = append(all, x)
				}
			}
		},
		Report: func(w io.Writer) { report(w, all) },
	})
}

// exchanged inserts what is counted of an instruction, if it is the exchange or begins it.
func exchanged(i *plugin.Insn, behind []*plugin.Insn) (x exchange, ok bool) {
	switch name, _, _ := strings.Cut(strings.TrimPrefix(i.Text, "lock "), " "); {
	case !i.Locked:
		return x, false
	case strings.HasPrefix(name, "cmpxchg"), strings.HasPrefix(name, "cas"):
		x = exchange{insn: i, came: i.Insert("count")}
		x.not = vain(jump(behind))
		return x, true
	case strings.HasPrefix(name, "lr."), strings.HasPrefix(name, "ldxr"), strings.HasPrefix(name, "ldaxr"):
		return pair(i, behind)
	}
	return x, false
}

// vain counts where a jump goes if something else was there than was expected; nil: it does not ask.
func vain(j *plugin.Insn) *plugin.Point {
	if j == nil {
		return nil
	}
	switch name, _, _ := strings.Cut(j.Text, " "); name {
	case "jne", "b.ne", "cbnz": // by cbnz where nothing was expected to be there
		return j.Taken("count")
	case "je", "b.eq", "cbz":
		return j.Behind("count")
	}
	return nil
}

// pair is an exchange by an exclusive load and its store: who finds something else jumps away between the two, and
// who has stored goes on behind the jump that would do it again. In between nothing can be inserted.
func pair(load *plugin.Insn, behind []*plugin.Insn) (x exchange, ok bool) {
	k := 0
	for ; k < len(behind) && !behind[k].Locked; k++ {
	}
	if k == len(behind) {
		return x, false
	}
	other, again := jump(behind[:k]), jump(behind[k+1:])
	if other == nil || again == nil {
		return x, false // it is changed whatever it is
	}
	return exchange{insn: load, done: again.Behind("count"), not: other.Taken("count")}, true
}

// jump is the first jump, if that is conditional.
func jump(insns []*plugin.Insn) *plugin.Insn {
	for _, i := range insns {
		if i.Kind == plugin.Conditional {
			return i
		}
		if i.Kind != plugin.Plain {
			return nil
		}
	}
	return nil
}

func report(w io.Writer, all []exchange) {
	for _, x := range all {
		not, vain := "no jump says whether it worked", uint64(0)
		if x.not != nil {
			vain = x.not.Value()
			not = fmt.Sprintf("%d in vain", vain)
		}
		var n uint64
		if x.came != nil {
			n = x.came.Value()
		} else {
			n = x.done.Value() + vain
		}
		if n == 0 {
			continue
		}
		r := x.insn.Block.Routine
		fmt.Fprintf(w, "%8d times, %s  %s: %s+%#x  %s  %s\n", n, not, r.Syscall.Name, r.Name, x.insn.Offset, x.insn.Text, x.insn.Source)
	}
}
