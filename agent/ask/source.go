package ask

import (
	"fmt"
	"strings"

	"kerninst/agent/probe"
)

// Tell adds which lines of the source are meant, to points and to what is in stacks. of says it of a
// place, function+offset or module:function+offset, or nothing; returned: of the call that returns there.
func (a *Answer) Tell(of func(place string, returned bool) string) {
	for k := range a.Points {
		p := &a.Points[k]
		if s, err := probe.Parse(p.Spec); err == nil {
			p.Source = of(fmt.Sprintf("%s+%#x", strings.TrimPrefix(s.Module+":"+s.Function, ":"), p.Offset), false)
		}
		for n := range p.Actions {
			for m := range p.Actions[n].Stacks {
				stack := &p.Actions[n].Stacks[m]
				stack.Source = make([]string, len(stack.Symbols))
				for at, symbol := range stack.Symbols {
					stack.Source[at] = of(symbol, at > 0)
				}
			}
		}
	}
}

// sources are those of points, by their specifications.
func (a Answer) sources() map[string]string {
	out := map[string]string{}
	for _, p := range a.Points {
		out[p.Spec] = p.Source
	}
	return out
}
