package libvirt

import (
	"testing"

	golibvirt "github.com/digitalocean/go-libvirt"

	"kerninst/lab/vm"
)

func TestEnding(t *testing.T) {
	const (
		shutdown = golibvirt.DomainEventStoppedShutdown
		destroy  = golibvirt.DomainEventStoppedDestroyed
		crashed  = golibvirt.DomainEventStoppedCrashed
		failed   = golibvirt.DomainEventStoppedFailed
	)
	for _, tt := range []struct {
		name   string
		reason string
		how    golibvirt.DomainEventStoppedDetailType
		exited bool
		kind   vm.Kind
		says   string
	}{
		{"power-off", "guest-shutdown", shutdown, true, vm.Clean, "guest-shutdown"},
		{"reset", "guest-reset", shutdown, false, vm.Panicked, "guest-reset"},
		{"signal", "host-signal", shutdown, false, vm.Killed, "host-signal"},
		{"reset, then killed", "guest-reset", destroy, false, vm.Panicked, "guest-reset"},
		{"destroyed", "", destroy, false, vm.Killed, destroyed},
		{"destroyed, mute", "", destroy, true, vm.Killed, destroyed},
		{"mute power-off", "", failed, true, vm.Clean, "exit"},
		{"died", "", failed, false, vm.LabFault, ""},
		{"crashed", "", crashed, false, vm.LabFault, ""},
		{"a reason of a later QEMU", "sunspots", shutdown, false, vm.LabFault, "sunspots"},
		{"an event that got lost", "", shutdown, false, vm.LabFault, ""},
	} {
		e := ending(tt.reason, tt.how, tt.exited)
		if e.Kind != tt.kind || e.Reason != tt.says || e.Kind == vm.LabFault && e.Detail == "" {
			t.Errorf("%s: %+v", tt.name, e)
		}
	}
}

func TestShutdownReason(t *testing.T) {
	for in, want := range map[string]string{
		`{"guest":true,"reason":"guest-reset"}`: "guest-reset",
		`{"guest":true}`:                        "",
		``:                                      "",
		`[`:                                     "",
	} {
		if got := shutdownReason([]byte(in)); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}
