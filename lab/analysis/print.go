package analysis

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// Print writes the survey for people: the numbers with their shares of all, then each
// section, and what there is for springboards.
func (s *Survey) Print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	s.Counts.print(tw, s.Kernel)
	if s.Modules.Instructions > 0 {
		s.Modules.print(tw, "modules")
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, part := range []func(io.Writer) error{s.printSections, s.printRooms, s.printJumps} {
		fmt.Fprintln(w)
		if err := part(w); err != nil {
			return err
		}
	}
	return nil
}

// print writes the numbers of one kind of text and their shares.
func (c *Counts) print(w io.Writer, name string) {
	line := func(name string, n int) {
		if n > 0 {
			fmt.Fprintf(w, "%s\t%s\t%.1f %%\t\n", name, count(n), percent(n, c.Instructions))
		}
	}
	line(name+", instructions", c.Instructions)
	for _, m := range surveyed {
		line(m.String(), c.Mechanisms[m.String()])
	}
	line("of those, at another that runs as often", c.AsOften)
	line("reserved", c.Reserved)
	for _, k := range largest(c.ReservedAs) {
		line("reserved: "+k, c.ReservedAs[k])
	}
	for _, r := range largest(c.Refused) {
		line("refused: "+r, c.Refused[r])
	}
	fmt.Fprintf(w, "reached without trap, of what is not reserved\t%s\t%.3f %%\t\n", count(c.reached()), c.Percent.Reached)
	fmt.Fprintf(w, "refused, of what is not reserved\t%s\t%.3f %%\t\n", count(c.refused()), c.Percent.Refused)
	fmt.Fprintf(w, "reserved, of all\t%s\t%.3f %%\t\n", count(c.Reserved), c.Percent.Reserved)
}

// printSections has a line for each section and module.
func (s *Survey) printSections(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "section\tinstructions\treserved\t")
	for _, m := range surveyed {
		if s.has(m.String()) {
			fmt.Fprintf(tw, "%v\t", m)
		}
	}
	fmt.Fprintln(tw, "refused\treserved of all\treached of others\t")
	for _, x := range s.Sections {
		name := x.Name
		if x.Module {
			name = "module " + name
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t", name, count(x.Instructions), count(x.Reserved))
		for _, m := range surveyed {
			if s.has(m.String()) {
				fmt.Fprintf(tw, "%s\t", count(x.Mechanisms[m.String()]))
			}
		}
		reached := "-" // all is reserved
		if x.Instructions > x.Reserved {
			reached = fmt.Sprintf("%.2f %%", x.Percent.Reached)
		}
		fmt.Fprintf(tw, "%s\t%.2f %%\t%s\t\n", count(x.refused()), x.Percent.Reserved, reached)
	}
	return tw.Flush()
}

// has reports whether a mechanism serves any instruction.
func (s *Survey) has(m string) bool { return s.Counts.Mechanisms[m]+s.Modules.Mechanisms[m] > 0 }

// printRooms is figure 10 of the KernInst paper, for this kernel.
func (s *Survey) printRooms(w io.Writer) error {
	if len(s.Boards) == 0 {
		_, err := fmt.Fprintln(w, "springboards: none are needed, one jump reaches patch memory from anywhere")
		return err
	}
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "room for springboards\tbytes\tpieces")
	for _, r := range s.Boards {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", r.Where, count(int(r.Bytes)), count(r.Pieces))
	}
	return tw.Flush()
}

// printJumps is figure 8 of it, for this ISA.
func (s *Survey) printJumps(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "jump\tbytes\treach\tregister\tside effects\tused for")
	for _, j := range s.Jumps {
		fmt.Fprintf(tw, "%s\t%d\t%s\t%s\t%s\t%s\n", j.Insn, j.Length, j.reach(), none(j.Register), none(j.Effects), nothing(j.Use))
	}
	return tw.Flush()
}

func none(s string) string    { return cmp.Or(strings.TrimSpace(s), "none") }
func nothing(s string) string { return cmp.Or(s, "-") }

// largest are the keys, that of the largest number first.
func largest(m map[string]int) []string {
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		return cmp.Or(cmp.Compare(m[b], m[a]), cmp.Compare(a, b))
	})
}
