// Package matrix runs cells over hosts: each cell is one scenario on one ISA, with one kernel and one
// seed. It decides what runs where and when, and tells how it came out; it starts nothing, reads no
// clock and writes no file: who calls it does.
package matrix

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// Cell is one thing to run.
type Cell struct {
	Arch     string
	Kernel   Kernel
	Scenario string
	Seed     uint64
	Needs    Needs
}

// Kernel is one that was asked for.
type Kernel struct {
	Word string // as lab run --kernel takes it; "": the locked one
	Name string // in the names of cells, where it is one kernel's alone
}

// Needs is what a host has to have free for a cell.
type Needs struct {
	CPUs   int // of which it gets fewer where the host has fewer
	MemMiB int
	// Alone: nothing may run beside it on the same machine.
	Alone bool
}

// Name is the cell's alone. It is a folder's, too.
func (c Cell) Name() string {
	return c.Arch + "-" + c.Kernel.Name + "-" + c.Scenario + "-" + strconv.FormatUint(c.Seed, 10)
}

// locked is the name of the kernel that is used if none is asked for.
const locked = "locked"

// unnamed is what is in no name of a folder.
var unnamed = regexp.MustCompile(`[^A-Za-z0-9.+_-]+`)

// Kernels names kernels: a version by itself, a folder by its last part.
func Kernels(words []string) (kernels []Kernel) {
	taken := map[string]bool{}
	for _, w := range words {
		base := locked
		if w != "" {
			base = unnamed.ReplaceAllString(filepath.Base(w), "_")
		}
		name := base
		for n := 2; taken[name]; n++ {
			name = fmt.Sprintf("%s_%d", base, n)
		}
		taken[name] = true
		kernels = append(kernels, Kernel{w, name})
	}
	return kernels
}

// Cells are all combinations, in the order in which they are to begin: neighbours are of different
// ISAs, or at least seeds, as those of one wait for each other's golden state.
func Cells(kernels []Kernel, scenarios []string, seeds []uint64, arches []string, needs func(scenario, arch string) Needs) (cells []Cell) {
	for _, k := range kernels {
		for _, s := range scenarios {
			for _, seed := range seeds {
				for _, a := range arches {
					cells = append(cells, Cell{Arch: a, Kernel: k, Scenario: s, Seed: seed, Needs: needs(s, a)})
				}
			}
		}
	}
	return cells
}

// Host is something that runs cells.
type Host struct {
	Name string
	URI  string
	// Machine is what it is on: hosts of one machine share its CPUs and memory.
	Machine string
	CPUs    int // for its cells together, at the most
	MemMiB  int // likewise
	// Arches that it runs; Lacks says why not of others that were asked for.
	Arches []string
	Lacks  map[string]string
}

// Size is what a machine has for cells.
type Size struct{ CPUs, MemMiB int }

// Machines are what hosts are on. Hosts tell of one machine at different moments: it has what each
// of them says that it has.
func Machines(hosts []Host, has func(Host) Size) map[string]Size {
	all := map[string]Size{}
	for _, h := range hosts {
		size := has(h)
		if m, known := all[h.Machine]; known {
			size = Size{min(size.CPUs, m.CPUs), min(size.MemMiB, m.MemMiB)}
		}
		all[h.Machine] = size
	}
	return all
}

// unable says why a host can never run a cell; "": it can.
func (h Host) unable(c Cell, machine Size) string {
	switch have := min(h.MemMiB, machine.MemMiB); {
	case !slices.Contains(h.Arches, c.Arch):
		if why := h.Lacks[c.Arch]; why != "" {
			return why
		}
		return "it is not for " + c.Arch
	case c.Needs.MemMiB > have:
		return fmt.Sprintf("the cell needs %d MiB of memory, and there are %d", c.Needs.MemMiB, have)
	}
	return ""
}
