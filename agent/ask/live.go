package ask

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"kerninst/agent/wire"
)

// Live shows what is counted while the workload runs: a table that is drawn anew with each
// sample.
type Live struct {
	to    io.Writer
	f     followed
	again bool // lines are overwritten: a terminal
	all   int  // points
	drawn int
}

// mostFollowed is how many points a daemon samples, if they are not timed.
const mostFollowed = 256

// liveLines is how many points the table has: those that are come by most often now.
const liveLines = 20

// liveWidth is how many samples the table looks back.
const liveWidth = 24

// liveOn follows a request's workload, on a terminal or not.
func (r *Request) liveOn(to io.Writer, terminal bool) *Live {
	traced := func(v *wire.Value, _ uint64) uint64 { return r.followed.tracer.Came(v.Spec, v.Action) }
	return &Live{to: to, f: followed{r: r, traced: traced}, again: terminal}
}

// see looks at what the daemon says.
func (l *Live) see(rec *wire.Record) {
	if res := rec.GetResult(); res.GetStep() == stepSplice {
		for _, p := range res.Points {
			if p.Refusal == nil {
				l.all++
			}
		}
	}
	x := rec.GetSample()
	if x == nil {
		return
	}
	l.f.add(x)
	if l.again && l.drawn > 0 {
		fmt.Fprintf(l.to, "\x1b[%dA\x1b[J", l.drawn) // up, and erase to the end of the screen
	}
	text := l.table(x.Ns)
	l.drawn = strings.Count(text, "\n")
	io.WriteString(l.to, text)
}

func (l *Live) table(now uint64) string {
	all := slices.Clone(l.f.all)
	slices.SortStableFunc(all, func(a, b *Series) int {
		return cmp.Or(cmp.Compare(b.now(), a.now()), cmp.Compare(b.Hits[len(b.Hits)-1], a.Hits[len(a.Hits)-1]))
	})
	came := len(all)
	for came > 0 && all[came-1].Hits[len(all[came-1].Hits)-1] == 0 && !all[came-1].timed {
		came--
	}
	shown := all[:min(came, liveLines)]
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "after %.1f s\thits\ta second\t\t\n", float64(now)/1e9)
	for _, s := range shown {
		last, inside := len(s.Hits)-1, ""
		if s.timed {
			inside = fmt.Sprintf("  %d inside", s.Inside[last])
		}
		fmt.Fprintf(w, "%s\t%d\t%.0f\t%s\t%s\n", s.Name, s.Hits[last], s.now(), s.sparks(), inside)
	}
	w.Flush()
	if n := came - len(shown); n > 0 {
		fmt.Fprintf(&out, "and %d that are come by less\n", n)
	}
	switch n := len(all) - came; {
	case l.all > mostFollowed:
		fmt.Fprintf(&out, "of %d points: those that are come by most are followed\n", l.all)
	case n > 0:
		fmt.Fprintf(&out, "nobody came by at %d more\n", n)
	}
	return out.String()
}

// now is how many hits a second there are now.
func (s *Series) now() float64 {
	if n := len(s.Hits); n > 1 {
		return s.Rate(n - 1)
	}
	return 0
}

// sparks draws the last rates, of which the highest is as high as a line.
func (s *Series) sparks() string {
	var rates []float64
	for k := max(1, len(s.Hits)-liveWidth); k < len(s.Hits); k++ {
		rates = append(rates, s.Rate(k))
	}
	out := strings.Repeat(" ", liveWidth-len(rates))
	for _, r := range rates {
		out += string(spark(r, slices.Max(rates)))
	}
	return out
}

// spark is how high a value is, of at most so much.
func spark(v, most float64) rune {
	if most <= 0 {
		return sparks[0]
	}
	return sparks[int(v/most*float64(len(sparks)-1)+0.5)]
}
