package klog

import "testing"

func TestComplaint(t *testing.T) {
	for record, want := range map[string]string{
		"4,812,1234567,-;WARNING: CPU: 0 PID: 1 at kernel/x.c:12 f+0x1/0x2\n SUBSYSTEM=cpu\n": "WARNING: CPU: 0 PID: 1 at kernel/x.c:12 f+0x1/0x2",
		"4,1,1,-;WARNING: kernel/x.c:12 at f+0x1/0x2, CPU#1: x/1":                             "WARNING: kernel/x.c:12 at f+0x1/0x2, CPU#1: x/1",
		"3,1,1,-;BUG: sleeping function called from invalid context at x.c:1":                 "BUG: sleeping function called from invalid context at x.c:1",
		"4,1,1,-;WARNING: possible circular locking dependency detected":                      "WARNING: possible circular locking dependency detected",
		"0,1,1,-;watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [x:1]":                     "watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [x:1]",
		"3,1,1,-;rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:":                       "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
		"3,1,1,-;rcu: INFO: rcu_sched self-detected stall on CPU":                             "rcu: INFO: rcu_sched self-detected stall on CPU",
		"3,1,1,-;INFO: task x:1 blocked for more than 120 seconds.":                           "INFO: task x:1 blocked for more than 120 seconds.",
		"6,1,1,-;kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)":     "kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)",
		"1,1,1,-;Unable to handle kernel paging request at virtual address 0":                 "Unable to handle kernel paging request at virtual address 0",

		"3,1,1,-;BUG kmalloc-64 (Tainted: G           OE): Poison overwritten": "BUG kmalloc-64 (Tainted: G           OE): Poison overwritten",
		"3,1,1,-;INFO: trying to register non-static key.":                     "INFO: trying to register non-static key.",

		"12,1,1,-;WARNING: CPU: 0 PID: 1 at kernel/x.c:12": "", // a program's
		"6,1,1,-;Spectre V2 : WARNING: Unprivileged eBPF":  "",
		"6,1,1,-;installed, BUG: or so":                    "",
		"4,1,1,-;kerninst: loading out-of-tree module":     "",
		"WARNING: ": "",
		"":          "",
	} {
		got, ok := Complaint(record)
		if ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q, %v; want %q", record, got, ok, want)
		}
	}
}

// TestSlow: what a busy host makes its guests say is told from what only they can.
func TestSlow(t *testing.T) {
	for message, want := range map[string]bool{
		"watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [x:1]":                    true,
		"rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: {":          true,
		"INFO: rcu_tasks detected stalls on tasks:":                                  true,
		"INFO: task x:1 blocked for more than 120 seconds.":                          true,
		"WARNING: CPU: 0 PID: 1 at kernel/x.c:12 f+0x1/0x2":                          false,
		"BUG: workqueue lockup - pool cpus=0 node=0 flags=0x0 nice=0 stuck for 33s!": true,
		"BUG: scheduling while atomic: x/1/0x2":                                      false,
	} {
		if got := Slow(message); got != want {
			t.Errorf("%q: %v, want %v", message, got, want)
		}
	}
}
