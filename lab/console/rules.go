package console

import "regexp"

// Class is a kind of trouble.
type Class string

const (
	Panic      Class = "panic"
	Oops       Class = "oops"
	Bug        Class = "bug"
	Warning    Class = "warning"
	SoftLockup Class = "soft-lockup"
	HardLockup Class = "hard-lockup"
	RCUStall   Class = "rcu-stall"
	HungTask   Class = "hung-task"
	OOM        Class = "oom"
	Segfault   Class = "segfault"
	GoPanic    Class = "go-panic"
	InitDied   Class = "init-died"
)

// rule recognises one line.
type rule struct {
	class   Class
	pattern *regexp.Regexp
	why     string // where the text comes from, and what else it stands for
	fatal   bool   // the guest, or the daemon in it, does not go on from here
}

// kernel anchors a pattern where the kernel's messages begin: at the start of a
// line, or behind a time stamp, since a program's unfinished line may precede
// one. A program that only mentions a panic does not match.
func kernel(pattern string) *regexp.Regexp {
	return regexp.MustCompile(`(?:^|\[ *\d+\.\d{6}\](?:\[ *[TC]\d+\])? )(?:` + pattern + `)`)
}

// program anchors a pattern at the start of a line.
func program(pattern string) *regexp.Regexp {
	return regexp.MustCompile(`^(?:` + pattern + `)`)
}

// rules are tried in this order; the first that matches classifies the line.
var rules = []rule{
	{InitDied, kernel(`Kernel panic - not syncing: Attempted to kill init!`),
		"PID 1 ended, kernel/exit.c; the kernel itself may be well", true},
	{Panic, kernel(`Kernel panic - not syncing`),
		"kernel/panic.c", true},

	{Oops, kernel(`BUG: kernel NULL pointer dereference|BUG: unable to handle page fault|BUG: unable to handle kernel`),
		"amd64, arch/x86/mm/fault.c: the line before the oops proper", true},
	{Oops, kernel(`Oops: |Oops general protection fault|general protection fault|double fault: `),
		"amd64, arch/x86/kernel/dumpstack.c and traps.c", true},
	{Oops, kernel(`Unable to handle kernel `),
		"arm64 and riscv64, arch/*/mm/fault.c: the line before the oops proper", true},
	{Oops, kernel(`Internal error: `),
		"arm64, arch/arm64/kernel/traps.c die()", true},
	{Oops, kernel(`(?:Oops|Kernel BUG|kernel BUG)(?: - [^\[]+)? \[#\d+\]`),
		"riscv64, arch/riscv/kernel/traps.c die()", true},
	{Oops, kernel(`Bad mode in .* handler|Unhandled 64-bit el1|Insufficient stack space to handle exception`),
		"arm64 and riscv64: exception that no handler takes, kernel stack overflow", true},
	{Oops, kernel(`kernel BUG at `),
		"BUG(), lib/bug.c: ends in an oops", true},

	{SoftLockup, kernel(`watchdog: BUG: soft lockup`),
		"kernel/watchdog.c: a CPU has not scheduled for 20 s", false},
	{HardLockup, kernel(`(?:NMI )?[Ww]atchdog: (?:Watchdog detected hard LOCKUP|CPU\d+: Watchdog detected hard LOCKUP)|Watchdog detected hard LOCKUP`),
		"kernel/watchdog.c: a CPU has not taken an interrupt for 10 s", false},
	{RCUStall, kernel(`rcu: INFO: \S+ (?:self-)?detected (?:expedited )?stalls?|INFO: rcu_tasks\S* detected stalls|rcu: \S+ kthread (?:starved|timer wakeup)|rcu_tasks\S* grace period .* is \d+ jiffies old`),
		"kernel/rcu/tree_stall.h, tree_exp.h, tasks.h", false},
	{HungTask, kernel(`INFO: task .* blocked for more than \d+ seconds`),
		"kernel/hung_task.c", false},

	{OOM, kernel(`Out of memory: Killed process|Memory cgroup out of memory|\S+ invoked oom-killer|Out of memory and no killable processes`),
		"mm/oom_kill.c", false},
	{Bug, kernel(`BUG: `),
		"scheduling while atomic, bad page state, list corruption and others", false},
	{Warning, kernel(`WARNING: CPU: \d+ PID: \d+ at `),
		"WARN(), kernel/panic.c __warn()", false},

	{Segfault, kernel(`(?:init|kerninstd|kinst)\[\d+\]: (?:segfault at|unhandled (?:signal|exception))`),
		"the daemon took a fatal signal: arch/x86/mm/fault.c, arch/*/kernel/traps.c", true},
	{Segfault, kernel(`traps: (?:init|kerninstd|kinst)\[\d+\] `),
		"the same for traps other than page faults, arch/x86/kernel/traps.c", true},
	{GoPanic, program(`panic: |fatal error: |SIG[A-Z]+: .*|unexpected fault address |runtime: (?:out of memory|goroutine stack exceeds)`),
		"the Go run time of the daemon, on the console as its standard error", true},
}

// end recognises the last line of a report, after which lines are no longer its
// context.
var end = kernel(`---\[ end (?:trace|Kernel panic)`)

// boilerplate are the lines of a report that say nothing to a person at first
// sight: they are left out of the decisive lines.
var boilerplate = kernel(`Modules linked in:|Code: |Hardware name: |Mem abort info:|  (?:ESR|EC|SET|EA|FSC) = |Data abort info:|  (?:ISV|CM|GCS|Xs) ?=|` +
	`[a-z]{1,3}\d?\d? ?: [0-9a-f]{16}|\s*(?:R[A-Z0-9]{2}|[A-Z]S|CR\d): |\s*x\d+ ?: |\s*(?:epc|gp|t\d|s\d+|a\d) : |` +
	`---\[ |(?:Kernel|SMP|PHYS_OFFSET|CPU features|Memory Limit)[^:]*: |Rebooting in |pstate: |sp : |<(?:/)?TASK>|user pgtable|\[[0-9a-f]{16}\] (?:pgd|user)|status: `)
