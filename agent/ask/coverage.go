package ask

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"kerninst/agent/probe"
	"kerninst/agent/wire"
)

// Coverage is which points were come by. What was found was taken away, so it is not known
// how often.
type Coverage struct {
	Covered   int        `json:"covered"`
	Points    int        `json:"points"`
	Refused   int        `json:"refused,omitempty"` // and not among the points
	Functions []Function `json:"functions"`
	// Curve is how many had been found at some times, of which the last is the end's.
	Curve []Found `json:"curve,omitempty"`
}

// Function is how much of one was come by.
type Function struct {
	Symbol  string  `json:"symbol"`
	Covered int     `json:"covered"`
	Points  int     `json:"points"`
	Refused int     `json:"refused,omitempty"`
	Blocks  []Block `json:"blocks"`
}

// Block is a point, which stands for all that runs exactly as often.
type Block struct {
	Offset  uint64 `json:"offset"`
	Covered bool   `json:"covered"`
	NS      uint64 `json:"ns,omitempty"` // when that was found, of guest time since the workload began; 0: at its end
}

// Found is how many points had been come by at some time.
type Found struct {
	NS      uint64 `json:"ns"`
	Covered int    `json:"covered"`
}

// cover fills in what was found.
func (a *Answer) cover(results map[string]*wire.Result, compiled probe.Compiled) {
	of := map[string]*wire.Value{}
	for _, v := range results[stepRead].GetValues() {
		if compiled[v.Action].Covers() {
			of[v.Spec] = v
		}
	}
	if len(of) == 0 {
		return
	}
	c := &Coverage{}
	for _, p := range results[stepSplice].GetPoints() {
		f := c.function(p.Symbol)
		switch v := of[p.Spec]; {
		case p.Refusal != nil:
			f.Refused++
			c.Refused++
		case v != nil:
			b := Block{Offset: p.Offset, Covered: v.CoveredNs > 0 || v.Count > 0, NS: v.CoveredNs}
			f.Blocks = append(f.Blocks, b)
			f.Points++
			c.Points++
			if b.Covered {
				f.Covered++
				c.Covered++
			}
		}
	}
	c.curve()
	a.Coverage = c
}

func (c *Coverage) function(symbol string) *Function {
	if n := len(c.Functions); n == 0 || c.Functions[n-1].Symbol != symbol {
		c.Functions = append(c.Functions, Function{Symbol: symbol, Blocks: []Block{}})
	}
	return &c.Functions[len(c.Functions)-1]
}

// curve adds up what was found at each time.
func (c *Coverage) curve() {
	at := map[uint64]int{}
	for _, f := range c.Functions {
		for _, b := range f.Blocks {
			if b.NS > 0 {
				at[b.NS]++
			}
		}
	}
	for ns, n := range at {
		c.Curve = append(c.Curve, Found{ns, n})
	}
	slices.SortFunc(c.Curve, func(a, b Found) int { return cmp.Compare(a.NS, b.NS) })
	sum := 0
	for k := range c.Curve {
		sum += c.Curve[k].Covered
		c.Curve[k].Covered = sum
	}
}

// Print writes it for people: a line for each function, and all of them.
func (c *Coverage) Print(to io.Writer) {
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "covered\tof\trefused\t\t\n")
	for _, f := range c.Functions {
		fmt.Fprintf(w, "%d\t%d\t%d\t%s\t  %s\n", f.Covered, f.Points, f.Refused, percent(f.Covered, f.Points), f.Symbol)
	}
	fmt.Fprintf(w, "%d\t%d\t%d\t%s\t  %d functions\n", c.Covered, c.Points, c.Refused, percent(c.Covered, c.Points), len(c.Functions))
	w.Flush()
	if n := len(c.Curve); n > 1 {
		fmt.Fprintf(to, "found in time, to %.3f s: %s\n", float64(c.Curve[n-1].NS)/1e9, c.sparkline(60))
	}
	if c.Refused > 0 {
		fmt.Fprintln(to, "(with -l: what is refused, and why)")
	}
}

// sparks are the steps of a sparkline.
var sparks = []rune("▁▂▃▄▅▆▇█")

// sparkline draws the curve with so many letters.
func (c *Coverage) sparkline(width int) string {
	last := c.Curve[len(c.Curve)-1]
	var out strings.Builder
	k, now := 0, 0
	for x := range width {
		until := last.NS / uint64(width) * uint64(x+1)
		for k < len(c.Curve) && (c.Curve[k].NS <= until || x == width-1) {
			now = c.Curve[k].Covered
			k++
		}
		out.WriteRune(spark(float64(now), float64(last.Covered)))
	}
	return out.String()
}

func percent(n, of int) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(of))
}
