package daemon

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"kerninst/agent/klog"
)

// mostComplaints is how many are told: what follows the first is often of its making.
const mostComplaints = 16

// ourLoading is in what the kernel says when a module from elsewhere is first loaded
// (kernel/module/main.c), as ours is when the guest has come up.
const ourLoading = ";kerninst: loading out-of-tree module"

// grave are the kernel's notes, which stay, that it has met a bad page, died, warned or locked up
// (Documentation/admin-guide/tainted-kernels.rst).
const grave = 1<<5 | 1<<7 | 1<<9 | 1<<14

// complaints are those of the kernel since our module was first loaded. Where its log does not reach back as far, all that
// are in it, and what it has noted of others. That they cannot be had is one.
func complaints() (all []string) {
	whole := false
	err := klog.Each(func(record string) {
		if strings.Contains(record, ourLoading) {
			all, whole = nil, true
		}
		if message, ok := klog.Complaint(record); ok && len(all) < mostComplaints {
			all = append(all, strings.ToValidUTF8(message, "?"))
		}
	})
	if err != nil {
		return append(all, klog.Path+": "+err.Error())
	}
	if !whole && len(all) == 0 {
		all = noted()
	}
	return all
}

// noted is a complaint of what the kernel has noted of itself.
func noted() []string {
	const file = "/proc/sys/kernel/tainted"
	b, err := os.ReadFile(file)
	if err != nil {
		return []string{err.Error()}
	}
	taints, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return []string{file + ": " + err.Error()}
	}
	if taints&grave == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s is %d: the kernel has complained, and what it said is not in its log any more", file, taints)}
}
