package scenarios

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"kerninst/agent/wire"
	"kerninst/lab/vm"
)

// Places that a kernel is probed at, whichever build it is: its system calls, and the way
// to an open file. A guest lists the kernel's symbols before those of the others' jobs
// are made.

// openPath are functions that an open goes through; not every build has each of them as
// a function, or whole.
var openPath = []string{
	"do_sys_openat2", "build_open_flags", "getname_flags", "get_unused_fd_flags", "alloc_fd",
	"do_filp_open", "path_openat", "alloc_empty_file", "init_file", "path_init", "link_path_walk",
	"open_last_lookups", "lookup_open", "lookup_fast", "step_into", "complete_walk", "may_open",
	"inode_permission", "vfs_open", "do_dentry_open", "terminate_walk", "fd_install", "filp_close", "__fput",
}

// namesGuest lists the symbols of which points may be made.
func namesGuest(arch string) Guest {
	list := shell("names", fmt.Sprintf(`grep -E ' [tT] (%s|(%s)(\.|$))' /proc/kallsyms`, syscallEntry(arch, ""), strings.Join(openPath, "|")))
	return Guest{Name: "names", CPUs: 1, Time: vm.Exact, Job: job(list)}
}

// places are those of a kernel whose symbols a guest has listed.
func places(arch string, names *Answer) (calls, path []*wire.Point, err error) {
	all, err := listed(names)
	if err != nil {
		return nil, nil, err
	}
	return probedPlaces(arch, all)
}

// listed is what a guest has listed of the kernel's symbols.
func listed(names *Answer) (string, error) {
	r := names.Results["names"]
	if len(r.GetRuns()) != 1 || r.GetError() != "" || r.Runs[0].Exit != 0 || r.Runs[0].Truncated {
		return "", fmt.Errorf("guest names has not listed the kernel's symbols: %v %s", r, names.Done.GetError())
	}
	return string(r.Runs[0].Stdout), nil
}

// kernelSymbol is a line of /proc/kallsyms, of the kernel itself.
var kernelSymbol = regexp.MustCompile(`^([0-9a-f]+) [tT] (\S+)$`)

// probedPlaces are the points of system calls and of the way to an open file. Of the
// names that one function has, only the first is taken: system calls that are not built
// in all lead to the same one.
func probedPlaces(arch, kallsyms string) (calls, path []*wire.Point, err error) {
	seen := map[string]bool{}
	for line := range strings.Lines(kallsyms) {
		m := kernelSymbol.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil || seen[m[1]] || strings.HasSuffix(m[2], ".cold") { // a part of a function
			continue
		}
		base, _, _ := strings.Cut(m[2], ".")
		switch {
		case strings.HasPrefix(m[2], syscallEntry(arch, "")):
			calls = append(calls, entry(m[2]))
		case slices.Contains(openPath, base):
			path = append(path, entry(m[2]))
		default:
			continue
		}
		seen[m[1]] = true
	}
	if len(calls) == 0 || len(path) == 0 {
		return nil, nil, fmt.Errorf("%d system calls and %d functions on the way to an open file among the kernel's symbols", len(calls), len(path))
	}
	return calls, path, nil
}

// skipping is a splice without what is refused.
func skipping(name string, points []*wire.Point) *wire.Step {
	s := splice(name, points...)
	s.GetSplice().SkipRefused = true
	return s
}
