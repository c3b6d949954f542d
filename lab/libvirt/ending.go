package libvirt

import (
	"encoding/json"
	"fmt"

	golibvirt "github.com/digitalocean/go-libvirt"

	"kerninst/lab/qemu"
	"kerninst/lab/vm"
)

// destroyed is the reason of a machine that libvirtd was told to end.
const destroyed = "destroyed"

// ending tells how a domain ended, from the reason of QEMU's first SHUTDOWN
// event (empty if there was none) and libvirt's word for how it stopped.
// saysNothing holds when this machine powers off without an event and its QEMU
// ended by exit.
func ending(reason string, how golibvirt.DomainEventStoppedDetailType, saysNothing bool) vm.Ending {
	kind, known := qemu.Shutdown(reason)
	switch {
	case known:
		return vm.Ending{Kind: kind, Reason: reason}
	case reason != "":
		return vm.Ending{Kind: vm.LabFault, Reason: reason, Detail: "the lab does not know this reason"}
	case how == golibvirt.DomainEventStoppedDestroyed:
		return vm.Ending{Kind: vm.Killed, Reason: destroyed}
	case saysNothing:
		return vm.Ending{Kind: vm.Clean, Reason: "exit"}
	}
	return vm.Ending{Kind: vm.LabFault, Detail: fmt.Sprintf(
		"QEMU ended without saying why (libvirt's word: stopped, %d): killed from outside, or by a fault of its own; libvirt's log of the domain says more", how)}
}

func shutdownReason(details []byte) string {
	var d struct{ Reason string }
	_ = json.Unmarshal(details, &d) // of anything else the reason is ""
	return d.Reason
}
