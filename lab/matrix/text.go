package matrix

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
)

// Table prints a line for each cell, and then what there is to say of hosts.
func (d *Document) Table(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', 0)
	for i := range d.Cells {
		c := &d.Cells[i]
		note := c.note()
		if note == "" {
			note = c.Figures
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%.1f s\t%s\n", c.Arch, c.Kernel, c.Scenario, c.Seed, c.Status, cmp.Or(c.Host, "–"), c.Seconds, note)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(to, d.lead())
	return err
}

// Plan prints what would run where, and nothing is known of how it comes out.
func (d *Document) Plan(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', 0)
	for _, h := range d.Hosts {
		fmt.Fprintf(w, "host %s\t%s\t%s\t%s\n", h.Name, h.URI, h.Status, h.has())
	}
	if err := w.Flush(); err != nil {
		return err
	}
	w = tabwriter.NewWriter(to, 0, 8, 2, ' ', 0)
	for i := range d.Cells {
		c := &d.Cells[i]
		wants := fmt.Sprintf("%s, %d MiB", plural(c.CPUs, "CPU"), c.MemMiB)
		if c.Alone {
			wants += ", alone"
		}
		fmt.Fprintf(w, "cell %s\t%s\t%s\t%s\tseed %d\t%s\t%s\n", c.Name, c.Arch, c.Kernel, c.Scenario, c.Seed, wants, c.note())
	}
	return w.Flush()
}

// has is what a host offers, or why it is of no use.
func (h *HostRecord) has() string {
	if h.Status != Used {
		return oneLine(h.Reason)
	}
	s := fmt.Sprintf("%s, %d MiB, %s", plural(h.CPUs, "CPU"), h.MemMiB, join(h.Arches))
	if h.Version != "" {
		s += ", libvirt " + h.Version
	}
	for _, a := range sortedKeys(h.Lacks) {
		s += "; not " + a + ": " + oneLine(h.Lacks[a])
	}
	return s
}
