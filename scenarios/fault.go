package scenarios

import (
	"time"

	"kerninst/agent/wire"
	"kerninst/lab/vm"
)

var faultLabel = []string{"fault"}

// FaultMark is what some of the faults say on the console when they are about to
// happen, for those who measure what follows.
const FaultMark = "fault: now"

const sayMark = "echo '" + FaultMark + "' >/dev/console; "

// faults fail on purpose, each in its own way: they show that the lab tells
// one way from another, and they are not part of any default run.
func faults() []Scenario {
	return []Scenario{
		{Name: "fault-assert", Title: "an assertion that does not hold", Labels: faultLabel,
			Guests: one(Guest{Job: job(shell("true", "true"))}),
			Check:  func(t *T) { t.equal("one is two", 1, 2) }},
		{Name: "fault-panic", Title: "the guest's kernel panics in a scenario", Labels: faultLabel,
			Guests: one(Guest{Job: job(shell("panic", sayMark+"echo c > /proc/sysrq-trigger"))}),
			Check:  unreachable},
		{Name: "fault-boot-panic", Title: "the guest's kernel finds no init", Labels: faultLabel,
			Guests: one(Guest{Append: "rdinit=/nonexistent", Job: job()}),
			Check:  unreachable},
		{Name: "fault-boot-hang", Title: "the guest hangs at boot", Labels: faultLabel,
			Guests: one(Guest{Append: "rdinit=/bin/sleep -- 1000000", Job: job(), BootTimeout: 15 * time.Second}),
			Check:  unreachable},
		{Name: "fault-token", Title: "the kernel's command line does not allow the module", Labels: faultLabel,
			Guests: one(Guest{Append: "kerninst.lab=10 xkerninst.lab=1", Job: job()}),
			Check:  unreachable},
		{Name: "fault-hang", Title: "a scenario's program never ends", Labels: faultLabel,
			Guests: one(Guest{Job: job(shell("hang", "while :; do :; done")), RunTimeout: 3 * time.Second}),
			Check:  unreachable},
		{Name: "fault-spin", Title: "the guest's kernel never returns from a tick of its timer", Labels: faultLabel,
			// The program reads the kernel's symbols before: seconds, where much else runs.
			Guests: one(Guest{Programs: []string{stormPackage}, RunTimeout: 16 * time.Second, Job: job(
				module("unload", wire.Module_UNLOAD), run("spin", ProgramPath(stormPackage), "spin", "hrtimer_interrupt"))}),
			Check: func(t *T) { t.ran("guest", "spin"); unreachable(t) }},
		{Name: "fault-wait", Title: "a scenario's program waits for what never comes", Labels: faultLabel,
			Guests: one(Guest{Job: job(shell("wait", sayMark+"sleep 1000000")), RunTimeout: 6 * time.Second}),
			Check:  unreachable},
		{Name: "fault-daemon", Title: "the daemon dies in a scenario", Labels: faultLabel,
			Guests: one(Guest{Job: job(shell("kill", sayMark+"kill -9 $(pidof kerninstd); sleep 1000"))}),
			Check:  unreachable},
		{Name: "fault-hostile", Title: "a guest's output is meant to harm who reads it", Labels: faultLabel,
			Guests: one(Guest{Job: job(shell("flood", hostileFlood), shell("hostile", hostileConsole))}),
			Check:  unreachable},
		{Name: "fault-step", Title: "a step of a job cannot be done", Labels: faultLabel,
			Guests: one(Guest{Job: job(splice("splice", at("no_such_function", 0)))}),
			Check:  func(t *T) { t.done("guest", "splice") }},
	}
}

// hostileFlood is megabytes on both outputs.
const hostileFlood = `yes '</script>' | head -c 8000000; yes '<img src=x>' | head -c 8000000 >&2`

// hostileConsole writes what terminals obey, what browsers run, NUL, a line
// without an end and bytes that are no text, and panics, so that all of it is
// beside the decisive lines.
const hostileConsole = `
for i in 1 2 3 4 5; do
	printf '</script><script>alert(1)</script>\033]0;title\007\033[2J\033[31mred\033c\000\302\233nul\377\376\r\n'
done >/dev/console
yes x | tr -d '\n' | head -c 20000 >/dev/console
printf '\n<b onclick="alert(2)">Kernel panic - not syncing: \033[8mhidden</b>\n' >/dev/console
echo c >/proc/sysrq-trigger`

func one(g Guest) func(string) []Guest {
	g.Name, g.CPUs, g.Time = "guest", 1, vm.Host
	return func(string) []Guest { return []Guest{g} }
}

// unreachable is the check of a scenario whose guest does not end well.
func unreachable(t *T) { t.equal("the guest ended well", true, false) }
