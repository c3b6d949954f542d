package check

import (
	"bufio"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"kerninst/agent/kdev"
)

// told are the parts of memory that the kernel gives account of. What it has besides is in
// use by who asked for pages.
var told = []string{"MemFree", "Buffers", "Cached", "AnonPages", "Slab", "PageTables", "KernelStack", "VmallocUsed", "Percpu"}

// slabs are those that are not given back when memory is short.
const slabs = "SUnreclaim"

// Kept is what the kernel holds, in KiB, by what holds it, and how many pieces of virtual
// memory may be the module's.
func Kept() (map[string]int, error) {
	// Each CPU keeps a part of the kernel's sums to itself, until it is asked.
	if err := os.WriteFile("/proc/sys/vm/stat_refresh", []byte("1"), 0); err != nil {
		return nil, err
	}
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all := map[string]int{}
	for s := bufio.NewScanner(f); s.Scan(); {
		w := strings.Fields(s.Text())
		all[strings.TrimSuffix(w[0], ":")], _ = strconv.Atoi(w[1])
	}
	pages := all["MemTotal"]
	for _, name := range told {
		pages -= all[name]
	}
	aside, err := aside()
	if err != nil {
		return nil, err
	}
	pages -= aside
	pieces, err := Pieces()
	return map[string]int{"pages": pages, slabs: all[slabs], "VmallocUsed": all["VmallocUsed"], "Percpu": all["Percpu"],
		"pieces": pieces}, err
}

// Grown compares what was kept at two times, by how much each of some parts may be more. Slabs are not compared where the kernel
// looks for leaks, which has a record of each object in one, and where KASAN keeps what was freed: Leaks asks it.
func Grown(first, last, may map[string]int) {
	for _, what := range slices.Sorted(maps.Keys(may)) {
		if what == slabs && LooksForLeaks() {
			continue
		}
		more := last[what] - first[what]
		Report("kernel memory that is not given back: "+what, last[what], more <= may[what], "%d more", more)
	}
}

// Pieces is how many pieces of virtual memory the module may have asked for and not given back.
func Pieces() (int, error) {
	vm, err := os.ReadFile("/proc/vmallocinfo")
	return pieces(string(vm)), err
}

// pieces are those that are said to be the module's own, and those of whom nobody knows. Of code that is not there any more, as that of
// a module that is gone, or was not loaded to its end, or has begun and does without what it began with, there is an address and no name
// (%pS in lib/vsprintf.c).
func pieces(vm string) (n int) {
	for line := range strings.Lines(vm) {
		w := strings.Fields(line) // where, how much, whose (mm/vmalloc.c)
		if len(w) > 2 && (strings.HasPrefix(w[2], "0x") || strings.Contains(line, "["+kdev.ModuleName+"]")) {
			n++
		}
	}
	return n
}

// aside is how many KiB of free pages CPUs have aside: many, at times.
func aside() (all int, err error) {
	zones, err := os.ReadFile("/proc/zoneinfo")
	for line := range strings.Lines(string(zones)) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "count:"); ok {
			pages, err := strconv.Atoi(strings.TrimSpace(n))
			if err != nil {
				return 0, err
			}
			all += pages * os.Getpagesize() / 1024
		}
	}
	return all, err
}
