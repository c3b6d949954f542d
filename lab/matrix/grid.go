package matrix

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"kerninst/lab/report"
	"kerninst/lab/status"
)

// grid is the cells as a table: a line for each kernel and scenario, a column for each ISA.
type grid struct {
	Arches []string
	Lines  []gridLine
}

type gridLine struct {
	Kernel, Scenario string
	Cells            [][]int // of each ISA: places, in order of seeds
}

// gridOf lays out n cells, of which of says what they are.
func gridOf(n int, of func(int) (arch, kernel, scenario string)) (g grid) {
	lines, columns := map[[2]string]int{}, map[string]int{}
	for k := range n {
		arch, _, _ := of(k)
		if _, known := columns[arch]; !known {
			columns[arch] = len(g.Arches)
			g.Arches = append(g.Arches, arch)
		}
	}
	for k := range n {
		arch, kernel, scenario := of(k)
		key := [2]string{kernel, scenario}
		at, known := lines[key]
		if !known {
			at = len(g.Lines)
			lines[key] = at
			g.Lines = append(g.Lines, gridLine{kernel, scenario, make([][]int, len(g.Arches))})
		}
		of := &g.Lines[at].Cells[columns[arch]]
		*of = append(*of, k)
	}
	return g
}

func (d *Document) grid() grid {
	return gridOf(len(d.Cells), func(k int) (string, string, string) {
		return d.Cells[k].Arch, d.Cells[k].Kernel, d.Cells[k].Scenario
	})
}

// kernel is how a kernel is called where there is room: with the release that ran, if all cells agree
// and its name does not say it.
func (d *Document) kernel(name string) string {
	release := ""
	for _, c := range d.Cells {
		of := strings.TrimSuffix(oneLine(c.Release), "-"+c.Arch)
		switch {
		case c.Kernel != name || of == "" || of == release:
		case release != "":
			return name
		default:
			release = of
		}
	}
	if release == "" || release == name {
		return name
	}
	return name + " (" + release + ")"
}

// outcome is the cells of one line and column that came out alike.
type outcome struct {
	Glyph, Words, Class string
	Seeds               string // "1–3, 7"
}

// outcomes of some cells, in order of first appearance.
func (d *Document) outcomes(cells []int) (all []outcome) {
	var order []status.Status
	seeds := map[status.Status][]uint64{}
	for _, k := range cells {
		s := d.Cells[k].Status
		if seeds[s] == nil {
			order = append(order, s)
		}
		seeds[s] = append(seeds[s], d.Cells[k].Seed)
	}
	for _, s := range order {
		glyph, words, class := report.Look(s)
		all = append(all, outcome{glyph, words, class, ranges(seeds[s])})
	}
	return all
}

// ranges writes numbers with those that follow one another drawn together.
func ranges(list []uint64) string {
	list = slices.Sorted(slices.Values(list))
	var words []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		switch {
		case j-i < 2:
			for ; i <= j; i++ {
				words = append(words, strconv.FormatUint(list[i], 10))
			}
		default:
			words = append(words, fmt.Sprintf("%d–%d", list[i], list[j]))
			i = j + 1
		}
	}
	return strings.Join(words, ", ")
}

// figures of some cells: what they found, each finding once, with the seeds if there are several.
func (d *Document) figures(cells []int) (all []string) {
	var order []string
	seeds := map[string][]uint64{}
	for _, k := range cells {
		f := d.Cells[k].Figures
		if f == "" {
			continue
		}
		if seeds[f] == nil {
			order = append(order, f)
		}
		seeds[f] = append(seeds[f], d.Cells[k].Seed)
	}
	for _, f := range order {
		if len(order) > 1 {
			f += " (seed " + ranges(seeds[f]) + ")"
		}
		all = append(all, f)
	}
	return all
}

// lead says in one line what ran and how it came out.
func (d *Document) lead() string {
	var order []status.Status
	n := map[status.Status]int{}
	for _, c := range d.Cells {
		if n[c.Status] == 0 {
			order = append(order, c.Status)
		}
		n[c.Status]++
	}
	parts := []string{plural(len(d.Cells), "cell")}
	for _, s := range order {
		_, words, _ := report.Look(s)
		parts = append(parts, fmt.Sprintf("%d %s", n[s], words))
	}
	if moved := d.moved(); moved > 0 {
		parts = append(parts, fmt.Sprintf("%d moved from a host that was lost", moved))
	}
	hosts := plural(len(d.Hosts), "host")
	for _, s := range []HostStatus{LostMidway, Unreachable, Unfit} {
		if k := d.hosts(s); k > 0 {
			hosts += fmt.Sprintf(", %d %s", k, s)
		}
	}
	return strings.Join(parts, ", ") + "; " + hosts + "; " + d.Time + " time"
}

func (d *Document) moved() (n int) {
	for _, c := range d.Cells {
		if len(c.Moved) > 0 {
			n++
		}
	}
	return n
}

func (d *Document) hosts(s HostStatus) (n int) {
	for _, h := range d.Hosts {
		if h.Status == s {
			n++
		}
	}
	return n
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// note is what there is to say of a cell beside its status, or nothing.
func (c *CellRecord) note() string {
	words := []string{}
	if c.Reason != "" {
		words = append(words, oneLine(c.Reason))
	}
	for _, m := range c.Moved {
		words = append(words, "moved from "+m.Host+", which was lost: "+oneLine(m.Reason))
	}
	return strings.Join(words, "; ")
}

// oneLine is a text of a cell's process: it may have what a guest said.
func oneLine(s string) string { return strings.Join(strings.Fields(report.Clean(s)), " ") }
