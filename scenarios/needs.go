package scenarios

import (
	"cmp"
	"slices"

	"kerninst/images"
	"kerninst/lab/runner"
	"kerninst/lab/vm"
)

// Needs is what a host has to have for a scenario, while it runs.
type Needs struct {
	CPUs   int
	MemMiB int
	// Alone: it measures host time, so nothing else may run beside it.
	Alone bool
}

// What a scenario takes beside its guests' memory, in MiB.
const (
	besideGuest = 256 // of each guest: QEMU's own, translated code above all
	besideAll   = 256 // the lab's process
	ofAnalysis  = 512 // the graph of a whole kernel, while its index is made or points are drawn
)

// Needs are those of a scenario with some guests at a time, of which each has at least own CPUs, and
// memory MiB, if they are not 0.
func (s Scenario) Needs(arch string, t vm.Time, jobs, own, memory int) Needs {
	n := Needs{CPUs: 1, MemMiB: besideAll, Alone: s.Timed}
	var cpus, mems []int
	for _, g := range s.Guests(arch) {
		cpus = append(cpus, g.busy(t, own))
		mems = append(mems, besideGuest+cmp.Or(memory, g.Memory, images.SoftwareMemory(g.Software...), runner.DefaultMemory))
		if g.Index || g.Text || g.Executed > 0 {
			n.MemMiB = besideAll + ofAnalysis
		}
	}
	n.CPUs = max(n.CPUs, largest(cpus, jobs))
	n.MemMiB += largest(mems, jobs)
	return n
}

// busy is how many of the host's CPUs a guest keeps busy: in exact time its own take turns.
func (g Guest) busy(t vm.Time, own int) int {
	if cmp.Or(g.Time, t) == vm.Exact {
		return 1
	}
	return max(g.CPUs, own)
}

// largest is the sum of the n largest.
func largest(list []int, n int) (sum int) {
	slices.Sort(list)
	for _, v := range list[max(0, len(list)-n):] {
		sum += v
	}
	return sum
}
