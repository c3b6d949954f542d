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

	DaemonEnded Class = "daemon-ended"
)

// rule recognises one line.
type rule struct {
	class   Class
	pattern *regexp.Regexp
	why     string // where the text comes from, and what else it stands for
	fatal   bool   // the guest, or the daemon in it, does not go on from here, if it is they who say so
}

// pattern matches at the start of a message.
func pattern(p string) *regexp.Regexp {
	return regexp.MustCompile(`^(?:` + p + `)`)
}

// stamp is what precedes a message of the kernel's: its time and, in some
// configurations, its thread or CPU.
var stamp = regexp.MustCompile(`\[ *\d+\.\d{6}\](?:\[ *[TC]\d+\])? `)

// maxStamps is how many time stamps are looked for in one line.
const maxStamps = 4

// messages are the places in a line where a message may begin: its start, and
// behind each time stamp, since a program's unfinished line may precede one. A
// program that mentions a panic in the middle of a line does not match.
func messages(line string) []string {
	all := []string{line}
	for _, at := range stamp.FindAllStringIndex(line, maxStamps) {
		all = append(all, line[at[1]:])
	}
	return all
}

// matches says whether a message in the line begins as the pattern says.
func matches(p *regexp.Regexp, line string) bool {
	for _, m := range messages(line) {
		if p.MatchString(m) {
			return true
		}
	}
	return false
}

// rules are tried in this order; the first that matches classifies the line.
var rules = []rule{
	{InitDied, pattern(`Kernel panic - not syncing: Attempted to kill init!`),
		"PID 1 ended, kernel/exit.c; the kernel itself may be well", true},
	{Panic, pattern(`Kernel panic - not syncing`),
		"kernel/panic.c", true},

	{Oops, pattern(`BUG: kernel NULL pointer dereference|BUG: unable to handle page fault|BUG: unable to handle kernel`),
		"amd64, arch/x86/mm/fault.c: the line before the oops proper", true},
	{Oops, pattern(`Oops: |Oops general protection fault|general protection fault|double fault: `),
		"amd64, arch/x86/kernel/dumpstack.c and traps.c", true},
	{Oops, pattern(`Unable to handle kernel `),
		"arm64 and riscv64, arch/*/mm/fault.c: the line before the oops proper", true},
	{Oops, pattern(`Internal error: `),
		"arm64, arch/arm64/kernel/traps.c die()", true},
	{Oops, pattern(`(?:Oops|Kernel BUG|kernel BUG)(?: - [^\[]+)? \[#\d+\]`),
		"riscv64, arch/riscv/kernel/traps.c die()", true},
	{Oops, pattern(`Bad mode in .* handler|Unhandled 64-bit el1|Insufficient stack space to handle exception`),
		"arm64 and riscv64: exception that no handler takes, kernel stack overflow", true},
	{Oops, pattern(`kernel BUG at `),
		"BUG(), lib/bug.c: ends in an oops", true},

	{SoftLockup, pattern(`watchdog: BUG: soft lockup`),
		"kernel/watchdog.c: a CPU has not scheduled for 20 s", false},
	{HardLockup, pattern(`(?:NMI )?[Ww]atchdog: (?:Watchdog detected hard LOCKUP|CPU\d+: Watchdog detected hard LOCKUP)|Watchdog detected hard LOCKUP`),
		"kernel/watchdog.c: a CPU has not taken an interrupt for 10 s", false},
	{RCUStall, pattern(`rcu: INFO: \S+ (?:self-)?detected (?:expedited )?stalls?|INFO: rcu_tasks\S* detected stalls|rcu: \S+ kthread (?:starved|timer wakeup)|rcu_tasks\S* grace period .* is \d+ jiffies old`),
		"kernel/rcu/tree_stall.h, tree_exp.h, tasks.h", false},
	{HungTask, pattern(`INFO: task .* blocked for more than \d+ seconds`),
		"kernel/hung_task.c", false},

	{OOM, pattern(`Out of memory: Killed process|Memory cgroup out of memory|\S+ invoked oom-killer|Out of memory and no killable processes`),
		"mm/oom_kill.c", false},
	{Bug, pattern(`BUG: `),
		"scheduling while atomic, bad page state, list corruption and others", false},
	{Warning, pattern(`WARNING: (?:CPU: \d+ PID: \d+ at |(?:\S+:\d+ )?at .+, CPU#\d+: )`),
		"WARN(), kernel/panic.c __warn(): before 6.19, and since", false},

	{Segfault, pattern(`(?:init|kerninstd|kinst)\[\d+\]: (?:segfault at|unhandled (?:signal|exception))`),
		"the daemon took a fatal signal: arch/x86/mm/fault.c, arch/*/kernel/traps.c", true},
	{Segfault, pattern(`traps: (?:init|kerninstd|kinst)\[\d+\] `),
		"the same for traps other than page faults, arch/x86/kernel/traps.c", true},
	{GoPanic, pattern(`panic: |fatal error: |SIG[A-Z]+: .*|unexpected fault address |runtime: (?:out of memory|goroutine stack exceeds)`),
		"the Go run time of the daemon, on the console as its standard error", true},
	{DaemonEnded, pattern(`kerninst-init: daemon (?:killed by signal|exited: status [1-9])`),
		"guest/init runJob(), which powers off next; also after a job that failed", false},
}

// end recognises the last line of a report, after which lines are no longer its
// context.
var end = pattern(`---\[ end (?:trace|Kernel panic)`)

// boilerplate are the lines of a report that say nothing to a person at first
// sight: they are left out of the decisive lines.
var boilerplate = pattern(`Modules linked in:|Code: |Hardware name: |Mem abort info:|  (?:ESR|EC|SET|EA|FSC) = |Data abort info:|  (?:ISV|CM|GCS|Xs) ?=|` +
	`\s*(?:R[0-9A-HJ-Z][0-9A-Z]|RSP|[A-Z]S|CR\d|PKRU): |` + // amd64; RIP says where
	`\s*x\d+ ?: |sp : |pstate: |user pgtable|\[[0-9a-f]{16}\] |swapper pgtable|` + // arm64
	`\s*(?:epc|ra|sp|gp|tp|[ast]\d+) ?: [0-9a-f]{16}|status: |` + // riscv64
	`OpenSBI |(?:Platform|Firmware|Runtime|Domain0|Boot HART|Standard|SBI) .*: |[ |_/\\().<>'-]+$|` + // riscv64's firmware
	`---\[ |------------\[|(?:Kernel Offset|SMP: stopping|PHYS_OFFSET|CPU features|Memory Limit)|Rebooting in |\s*</?TASK>`)
