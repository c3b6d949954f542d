package daemon

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"kerninst/agent/klog"
)

// mostComplaints is how many are told of those that a busy host explains, and of the others:
// what follows the first is often of its making.
const mostComplaints = 16

// ourLoading is in what the kernel says when a module from elsewhere is first loaded
// (kernel/module/main.c), as ours is when the guest has come up.
const ourLoading = ";kerninst: loading out-of-tree module"

// grave are the kernel's notes, which stay, that it has met a bad page, died or warned
// (Documentation/admin-guide/tainted-kernels.rst).
const grave = 1<<5 | 1<<7 | 1<<9

// complaints are those of the kernel since our module was first loaded. Where its log does not reach back as far, all that
// are in it. What it has noted since before, and there are no words for, is one; and that they cannot be had.
func complaints(before uint64) []string {
	var slow, others []string
	err := klog.Each(func(record string) {
		if strings.Contains(record, ourLoading) {
			slow, others = nil, nil
		}
		message, ok := klog.Complaint(record)
		to := &others
		if klog.Slow(message) {
			to = &slow
		}
		if ok && len(*to) < mostComplaints {
			*to = append(*to, strings.ToValidUTF8(message, "?"))
		}
	})
	if err != nil {
		return []string{klog.Path + ": " + err.Error()}
	}
	if len(others) == 0 {
		others = noted(before)
	}
	return append(others, slow...)
}

// taintsFile has the kernel's notes of itself, a number.
const taintsFile = "/proc/sys/kernel/tainted"

func taints() (uint64, error) {
	b, err := os.ReadFile(taintsFile)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
}

// noted is a complaint of what the kernel has noted since before.
func noted(before uint64) []string {
	now, err := taints()
	switch {
	case err != nil:
		return []string{taintsFile + ": " + err.Error()}
	case now&^before&grave != 0:
		return []string{fmt.Sprintf("%s is %d, and was %d: the kernel has complained, in words that are no more in its log or not known", taintsFile, now, before)}
	}
	return nil
}
