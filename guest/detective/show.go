package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// shown is how many callees of a level are printed, at most, and which part of elapsed time is
// worth a line.
const (
	shown = 8
	worth = 0.001
)

// print writes a level as a table, each line with what it is of elapsed time.
func (l Level) print(to io.Writer) {
	name := l.Function
	if name == "" {
		name = "all system calls"
	}
	fmt.Fprintf(to, "%s: %.0f calls/s, %.4f inside in the mean, %.4f with a CPU\n", name, l.Inside.PerSecond, l.Inside.Concurrency, l.Inside.Virtual)
	t := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "calls/s\tinside\twith a CPU\tshare\t \n")
	for k, c := range l.Callees {
		switch {
		case c.Refused != "":
			fmt.Fprintf(t, "-\t-\t-\t-\t %s (refused: %s)\n", c.Function, c.Refused)
		case k < shown && c.Share >= worth || c.Function == l.Next:
			fmt.Fprintf(t, "%.0f\t%.4f\t%.4f\t%.4f\t %s\n", c.PerSecond, c.Concurrency, c.Virtual, c.Share, c.Function)
		}
	}
	t.Flush()
	if l.Next != "" {
		fmt.Fprintf(to, "-> %s\n\n", l.Next)
	} else {
		fmt.Fprintf(to, "here the time goes: %s\n\n", l.Why)
	}
}
