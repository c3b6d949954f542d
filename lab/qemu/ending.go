package qemu

import (
	"fmt"
	"strings"
	"syscall"

	"kerninst/lab/vm"
)

// reasons translates the reason of QEMU's first SHUTDOWN event. QEMU's exit
// status is 0 for all of them, and events after the first only repeat what QEMU
// does because of the first.
var reasons = map[string]vm.Kind{
	"guest-shutdown":        vm.Clean,
	"guest-reset":           vm.Panicked, // panic=-1, a triple fault, or reboot(2)
	"guest-panic":           vm.Panicked, // pvpanic
	"host-qmp-quit":         vm.Killed,   // quit, or Ctrl-A X
	"host-qmp-system-reset": vm.Killed,
	"host-signal":           vm.Killed,
	"host-ui":               vm.Killed, // its window was closed
	"host-error":            vm.LabFault,
	"subsystem-reset":       vm.LabFault,
	"snapshot-load":         vm.LabFault,
}

// Shutdown says what the reason of the first SHUTDOWN event means.
func Shutdown(reason string) (vm.Kind, bool) {
	kind, ok := reasons[reason]
	return kind, ok
}

// askedToEnd are signals that somebody sends to end a process; any other means
// that QEMU itself went wrong.
var askedToEnd = map[syscall.Signal]bool{
	syscall.SIGKILL: true,
	syscall.SIGTERM: true,
	syscall.SIGINT:  true,
	syscall.SIGHUP:  true,
}

// ending tells how a machine ended, from the reason of the first SHUTDOWN event
// (empty if there was none), how the process ended, and what it wrote. mute says
// that this machine powers off without an event.
func ending(reason string, st syscall.WaitStatus, stderr string, mute bool) vm.Ending {
	stderr = strings.TrimSpace(stderr)
	if st.Signaled() && !askedToEnd[st.Signal()] {
		return vm.Ending{Kind: vm.LabFault, Reason: reason, Detail: detail("QEMU ended by signal: "+st.Signal().String(), stderr)}
	}
	if kind, ok := reasons[reason]; ok {
		return vm.Ending{Kind: kind, Reason: reason, Detail: stderr}
	}
	e := vm.Ending{Kind: vm.LabFault, Reason: reason}
	switch {
	case reason != "":
		e.Detail = detail("the lab does not know this reason", stderr)
	case st.Signaled():
		e.Kind, e.Reason, e.Detail = vm.Killed, "signal: "+st.Signal().String(), stderr
	case st.ExitStatus() != 0:
		e.Detail = detail(fmt.Sprintf("QEMU ended with exit status %d", st.ExitStatus()), stderr)
	case mute:
		e.Kind, e.Reason, e.Detail = vm.Clean, "exit", stderr
	default:
		e.Detail = detail("QEMU ended without saying why", stderr)
	}
	return e
}

func detail(what, stderr string) string {
	if stderr == "" {
		return what
	}
	return what + ": " + stderr
}
