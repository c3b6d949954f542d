package session

import (
	"fmt"
	"slices"
	"strings"

	"kerninst/agent/wire"
	"kerninst/lab/console"
	"kerninst/lab/status"
	"kerninst/lab/vm"
)

// Kind refines a status. It is empty for a run that passed.
type Kind string

const (
	StepFailed     Kind = "step-failed"       // the job ended early; Done says why
	Panicked       Kind = "panic"             // the kernel panicked
	Oopsed         Kind = "oops"              // the kernel oopsed
	DaemonDied     Kind = "daemon-died"       // the daemon or init ended without Done
	Reset          Kind = "reset"             // the guest reset and did not say why
	Flood          Kind = "console-flood"     // the console never ended
	PoweredOff     Kind = "power-off"         // the guest powered off before hello
	Hang           Kind = "hang"              // a time limit was exceeded
	HangAtPowerOff Kind = "hang-at-power-off" // likewise, after Done
	QEMUStart      Kind = "qemu-start"        // QEMU did not come up
	QEMUDied       Kind = "qemu-died"         // QEMU ended by itself
	QEMUKilled     Kind = "qemu-killed"       // somebody else killed QEMU
	HostLost       Kind = "host-lost"         // the host that ran QEMU went away
	DiskFull       Kind = "disk-full"         // what the guest said could not be written
	Protocol       Kind = "protocol"          // the records break the protocol
)

// cause is why the lab killed the machine.
type cause int

const (
	notKilled    cause = iota
	bootTimeout        // no hello in time
	runTimeout         // not off in time
	badRecords         // the records break the protocol
	consoleFlood       // the console exceeds its limit
	lockup             // the kernel reports lockups and has noted one, and nothing else comes
)

// kernelDead are the findings after which no kernel goes on, as the lab boots
// it.
var kernelDead = map[console.Class]bool{
	console.Panic:    true,
	console.Oops:     true,
	console.InitDied: true,
}

// kinds says what a fatal finding means.
var kinds = map[console.Class]Kind{
	console.Panic:    Panicked,
	console.Oops:     Oopsed,
	console.InitDied: DaemonDied,
	console.Segfault: DaemonDied,
	console.GoPanic:  DaemonDied,
}

// facts are everything that an outcome is decided from.
type facts struct {
	cause    cause
	ending   vm.Ending
	hello    *wire.Hello
	done     *wire.Done
	fault    error
	findings []console.Finding
	full     error // why nothing more can be written where console and records go
	cfg      Config
}

// verdict decides one kind of outcome, or passes (ok false).
type verdict func(facts) (status.Status, Kind, string, bool)

// verdicts are asked in turn; the first that does not pass decides. The order is
// the argument: of a machine on a host that is gone nobody knows the end; what
// QEMU itself did wrong says nothing about the guest; QEMU goes on when it cannot
// write what the guest says, so a full disk explains any silence; a dead
// kernel explains garbled records and silence, not the other way round; somebody
// who kills QEMU explains everything that is left but a broken protocol.
var verdicts = []verdict{
	hostLost,
	qemuDied,
	diskFull,
	kernelDied,
	guestReset,
	flood,
	protocolBroken,
	killedFromOutside,
	daemonDied,
	hung,
	poweredOffEarly,
	stepFailed,
	passed,
}

func (f facts) decide() (status.Status, Kind, string) {
	for _, v := range verdicts {
		if st, kind, summary, ok := v(f); ok {
			return st, kind, summary
		}
	}
	return status.LabFailed, QEMUDied, fmt.Sprintf("the machine ended in a way that the lab does not know: %s %s",
		f.ending.Reason, f.ending.Detail)
}

// crashed is the status of a guest that died: before hello it did not boot.
func (f facts) crashed() status.Status {
	if f.hello == nil {
		return status.BootFailed
	}
	return status.Crashed
}

// when says how far the guest came.
func (f facts) when() string {
	switch {
	case f.done != nil:
		return "after done"
	case f.hello != nil:
		return "after hello"
	}
	return "before hello"
}

func hostLost(f facts) (status.Status, Kind, string, bool) {
	return status.LabFailed, HostLost,
		fmt.Sprintf("the host of the guest went away %s: %s", f.when(), f.ending.Detail),
		f.ending.Kind == vm.HostLost
}

func qemuDied(f facts) (status.Status, Kind, string, bool) {
	return status.LabFailed, QEMUDied,
		fmt.Sprintf("QEMU died %s, which is no fault of the guest's: %s; run it again, and `lab doctor` if it repeats",
			f.when(), f.ending.Detail),
		f.ending.Kind == vm.LabFault
}

func diskFull(f facts) (status.Status, Kind, string, bool) {
	return status.LabFailed, DiskFull,
		fmt.Sprintf("the disk of the run directory %s is full, and what the guest said was lost %s: %v; make room, or set XDG_RUNTIME_DIR to a folder on another disk",
			f.cfg.Spec.Dir, f.when(), f.full),
		f.full != nil && !(f.done != nil && f.ending.Kind == vm.Clean)
}

// kernelDied believes the console only of a guest that did not end well: the
// lab boots kernels so that none goes on after an oops, and any program can
// write to the console what looks like one.
func kernelDied(f facts) (status.Status, Kind, string, bool) {
	if f.done != nil && f.ending.Kind == vm.Clean {
		return "", "", "", false
	}
	var first *console.Finding // a daemon's own last words precede init's death
	for i, finding := range f.findings {
		if first == nil && finding.Fatal {
			first = &f.findings[i]
		}
		if kernelDead[finding.Class] {
			kind := kinds[finding.Class]
			return f.crashed(), kind,
				fmt.Sprintf("%s %s: %s; the console shows where", diedOf[kind], f.when(), message(first.Line)), true
		}
	}
	return "", "", "", false
}

var diedOf = map[Kind]string{
	Panicked:   "the guest's kernel panicked",
	Oopsed:     "the guest's kernel oopsed",
	DaemonDied: "the guest's init ended",
}

func guestReset(f facts) (status.Status, Kind, string, bool) {
	return f.crashed(), Reset,
		fmt.Sprintf("the guest reset %s, and its kernel told of no panic: a reboot, a triple fault, or a panic before the console; "+
			"lab shell boots the same guest to look at", f.when()),
		f.ending.Kind == vm.Panicked
}

func flood(f facts) (status.Status, Kind, string, bool) {
	return f.crashed(), Flood,
		fmt.Sprintf("the guest wrote more than %d MiB to its console; the console's end shows what", consoleLimit>>20),
		f.cause == consoleFlood
}

func protocolBroken(f facts) (status.Status, Kind, string, bool) {
	return status.LabFailed, Protocol,
		fmt.Sprintf("the guest's records break the protocol: %v; lab and daemon must come from the same build", f.fault),
		f.fault != nil
}

func killedFromOutside(f facts) (status.Status, Kind, string, bool) {
	return status.LabFailed, QEMUKilled,
		fmt.Sprintf("QEMU was killed from outside %s (%s); if nobody did, look for the kernel's OOM killer on the host",
			f.when(), f.ending.Reason),
		f.ending.Kind == vm.Killed && f.cause == notKilled
}

// daemonDied goes by how the guest ended: init powers it off when the daemon has.
// What is on the console says no more than why.
func daemonDied(f facts) (status.Status, Kind, string, bool) {
	if f.done != nil || f.ending.Kind != vm.Clean {
		return "", "", "", false
	}
	for _, finding := range f.findings {
		if finding.Fatal {
			return f.crashed(), DaemonDied,
				fmt.Sprintf("the daemon died %s: %s; the console shows where", f.when(), message(finding.Line)), true
		}
	}
	last := "it died without a word"
	if line, ok := f.daemonEnded(); ok {
		last = line
	}
	return status.Crashed, DaemonDied,
		fmt.Sprintf("the guest powered off after hello, but its daemon never said done: %s%s", last, f.outOfMemory()),
		f.hello != nil
}

// outOfMemory says so if the guest's kernel did, and what to do.
func (f facts) outOfMemory() string {
	if slices.ContainsFunc(f.findings, func(x console.Finding) bool { return x.Class == console.OOM }) {
		return fmt.Sprintf("; its kernel reported that the memory, %d MiB, was used up: give more with --mem", f.cfg.Spec.MemMiB)
	}
	return ""
}

// daemonEnded is what init said of its end, if it was a bad one.
func (f facts) daemonEnded() (line string, ok bool) {
	for _, finding := range f.findings {
		if finding.Class == console.DaemonEnded {
			return message(finding.Line), true
		}
	}
	return "", false
}

// hung goes by why the lab gave up, unless the guest came to its end while the lab
// looked into it.
func hung(f facts) (status.Status, Kind, string, bool) {
	if f.done != nil && f.ending.Kind == vm.Clean {
		return "", "", "", false
	}
	switch f.cause {
	case bootTimeout:
		return status.BootFailed, Hang,
			fmt.Sprintf("the guest did not say hello within %v of host time%s; its registers and the console show where it was",
				f.cfg.BootTimeout, f.signs()), true
	case runTimeout:
		kind := Hang
		if _, ended := f.daemonEnded(); f.done != nil || ended {
			kind = HangAtPowerOff
		}
		return status.Timeout, kind,
			fmt.Sprintf("the guest hung %s and was stopped %v of host time after hello%s; its registers and the console show where it was",
				f.when(), f.cfg.RunTimeout, f.signs()), true
	case lockup:
		st := status.Timeout
		if f.hello == nil {
			st = status.BootFailed
		}
		return st, Hang,
			fmt.Sprintf("the guest hung %s: its kernel reported a lockup %d times, and nothing else came%s; its registers and the console show where it was",
				f.when(), lockups, f.signs()), true
	}
	return "", "", "", false
}

// notKernels are the findings that are no kernel's words.
var notKernels = map[console.Class]bool{console.GoPanic: true, console.DaemonEnded: true}

// signs lists the kernel's own complaints, which often name the culprit.
func (f facts) signs() string {
	var classes []string
	seen := map[console.Class]bool{}
	for _, finding := range f.findings {
		if !seen[finding.Class] && !notKernels[finding.Class] {
			seen[finding.Class] = true
			classes = append(classes, string(finding.Class))
		}
	}
	if len(classes) == 0 {
		return ""
	}
	return " (its kernel reported " + strings.Join(classes, ", ") + ")"
}

func poweredOffEarly(f facts) (status.Status, Kind, string, bool) {
	return status.BootFailed, PoweredOff,
		"the guest powered off before hello: its init gave up; the console shows why",
		f.hello == nil && f.ending.Kind == vm.Clean
}

func stepFailed(f facts) (status.Status, Kind, string, bool) {
	if f.done == nil || !f.done.Failed {
		return "", "", "", false
	}
	return status.Failed, StepFailed, "the job ended early: " + clean(f.done.Error), true
}

func passed(f facts) (status.Status, Kind, string, bool) {
	return status.Passed, "", "the job is done", f.done != nil && f.ending.Kind == vm.Clean
}

// message is a console line without its time stamp.
func message(line string) string {
	if _, rest, ok := strings.Cut(line, "] "); ok && strings.HasPrefix(line, "[") {
		return rest
	}
	return line
}

// clean makes one line of text that comes from the guest.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r <= 0x9f {
			return ' '
		}
		return r
	}, s)
}
