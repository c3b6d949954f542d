// Package klog reads what the kernel says of itself, as /dev/kmsg has it
// (Documentation/ABI/testing/dev-kmsg): one record a read, "PRIORITY,NUMBER,TIME,FLAGS;MESSAGE"
// and lines that begin with a blank.
package klog

import (
	"errors"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Path is the file that has the records.
const Path = "/dev/kmsg"

// maxRecord is the longest record, in bytes (include/linux/printk.h, PRINTK_MESSAGE_MAX, and room).
const maxRecord = 16 << 10

// wrong begins a message after which the kernel is not as it should be: kernel/panic.c's __warn(), the many
// messages of the kernel's own checks that begin with BUG (mm/slub.c's without a colon), kernel/locking/lockdep.c, what precedes an oops on each ISA, lib/ubsan.c, mm/kmemleak.c.
var wrong = regexp.MustCompile(`^(?:WARNING: |BUG[: ]|INFO: trying to register non-static key|[kK]ernel BUG at |Oops\b|Internal error: |Unable to handle kernel |general protection fault|double fault: |UBSAN: |kmemleak: \d+ new suspected )`)

// slow is in a message of one who has not come by for long: kernel/watchdog.c, kernel/workqueue.c, kernel/rcu/tree_stall.h,
// tree_exp.h, tasks.h, kernel/hung_task.c.
var slow = regexp.MustCompile(`soft lockup|hard LOCKUP|workqueue lockup|detected (?:expedited )?stalls?\b|self-detected stall|kthread (?:starved|timer wakeup)|blocked for more than \d+ seconds`)

// Complaint is the message of a record in which the kernel says that something is amiss. Of
// what programs write to the log nothing is one: they cannot write as the kernel, facility 0
// (kernel/printk/printk.c, devkmsg_write()).
func Complaint(record string) (message string, ok bool) {
	head, rest, found := strings.Cut(record, ";")
	priority, _, _ := strings.Cut(head, ",")
	p, err := strconv.Atoi(priority)
	message, _, _ = strings.Cut(rest, "\n")
	return message, found && err == nil && p>>3 == 0 && (wrong.MatchString(message) || slow.MatchString(message))
}

// Slow reports whether a complaint is one that a kernel has whose CPUs were not run for long, as well.
func Slow(message string) bool { return slow.MatchString(message) }

// Each calls visit with each record that is in the log, the oldest first. Of those that are
// overwritten meanwhile nothing is told.
func Each(visit func(record string)) error {
	fd, err := unix.Open(Path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	b := make([]byte, maxRecord)
	for {
		n, err := unix.Read(fd, b)
		switch {
		case err == nil:
			visit(string(b[:n]))
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR):
		default:
			return err
		}
	}
}
