package libvirt

import (
	"encoding/xml"
	"fmt"

	"kerninst/lab/qemu"
	"kerninst/lab/vm"
)

// The domain XML of libvirt, as much of it as the lab needs.
type (
	domain struct {
		XMLName    xml.Name `xml:"domain"`
		Type       string   `xml:"type,attr"`
		Namespace  string   `xml:"xmlns:qemu,attr"`
		Name       string   `xml:"name"`
		Memory     memory   `xml:"memory"`
		VCPU       int      `xml:"vcpu"`
		OS         osBoot   `xml:"os"`
		Features   *feature `xml:"features"`
		OnPowerOff string   `xml:"on_poweroff"`
		OnReboot   string   `xml:"on_reboot"`
		OnCrash    string   `xml:"on_crash"`
		Devices    devices  `xml:"devices"`
		Labels     []label  `xml:"seclabel"`
		Args       []arg    `xml:"qemu:commandline>qemu:arg"`
	}
	memory struct {
		Unit string `xml:"unit,attr"`
		Size int    `xml:",chardata"`
	}
	osBoot struct {
		Type    osType `xml:"type"`
		Kernel  string `xml:"kernel"`
		Initrd  string `xml:"initrd"`
		Cmdline string `xml:"cmdline"`
	}
	osType struct {
		Arch    string `xml:"arch,attr"`
		Machine string `xml:"machine,attr"`
		Name    string `xml:",chardata"`
	}
	feature struct {
		ACPI *struct{} `xml:"acpi"`
		APIC *struct{} `xml:"apic"`
	}
	devices struct {
		Emulator string `xml:"emulator"`
		USB      device `xml:"controller"`
		Balloon  device `xml:"memballoon"`
		// Watchdog is not among the arguments: libvirtd 9.0 dies of a watchdog that
		// it was not told of.
		Watchdog *device `xml:"watchdog"`
	}
	device struct {
		Type    string   `xml:"type,attr,omitempty"`
		Model   string   `xml:"model,attr"`
		Action  string   `xml:"action,attr,omitempty"`
		Address *address `xml:"address"`
	}
	// address of a PCI device on the root bus.
	address struct {
		Type string `xml:"type,attr"`
		Bus  int    `xml:"bus,attr"`
		Slot string `xml:"slot,attr"`
	}
	arg struct {
		Value string `xml:"value,attr"`
	}
)

// features are what libvirt leaves out unless told, and QEMU has by itself.
// libvirt gives ACPI to arm64 only together with UEFI; the guest, booted without
// it, reads the device tree in either case.
var features = map[string]*feature{
	"amd64": {ACPI: &struct{}{}, APIC: &struct{}{}},
}

// pidFile is QEMU's own, in the run directory. QEMU removes it when it ends by
// exit, and not when it is killed.
const pidFile = "pid"

// override takes back what libvirt adds and a guest could see. Of one option
// given twice QEMU takes the last.
type override struct {
	args []string
	why  string
}

func overrides(s vm.Spec) []override {
	return []override{
		{[]string{"-smp", fmt.Sprintf("%d,sockets=1,cores=%d,threads=1", s.CPUs, s.CPUs)},
			"libvirt makes each CPU a socket, and on riscv64 lets nobody say otherwise"},
		{[]string{"-uuid", "00000000-0000-0000-0000-000000000000"}, "libvirt invents one, and the kernel stirs it into its randomness"},
		{[]string{"-boot", "strict=off"}, "firmware would be told to give up after the first device"},
		{[]string{"-no-reboot"}, "a reset ends QEMU, whatever libvirt would do with it"},
	}
}

// turns make the CPUs of a machine take turns. libvirt's own -accel comes first,
// and of several QEMU takes the first, so that thread=single cannot be said; but
// CPUs that count instructions always take turns. shift=auto lets the guest's
// clock follow the host's, to within a few seconds.
var turns = []string{"-icount", "shift=auto"}

// domainXML describes a machine to libvirt. What libvirt has no words for, and
// what must not be worded otherwise, goes to QEMU as it is. There is no -accel
// among it: threads are by default as the lab wants them, one alone under icount
// and else one per CPU, but for machines that need turns.
func domainXML(name string, s vm.Spec, p qemu.Parts, labels []label, pid string) ([]byte, error) {
	args := p.Args
	for _, o := range overrides(s) {
		args = append(args, o.args...)
	}
	if s.CPUs > 1 && s.Time == vm.Host && !p.Threads {
		args = append(args, turns...)
	}
	args = append(args, "-pidfile", pid)
	d := domain{
		Type: "qemu", Namespace: "http://libvirt.org/schemas/domain/qemu/1.0",
		Name: name, Memory: memory{"MiB", s.MemMiB}, VCPU: s.CPUs,
		OS:         osBoot{osType{p.Target, p.Machine, "hvm"}, s.Kernel, s.Initrd, p.Cmdline},
		Features:   features[s.Arch],
		OnPowerOff: "destroy", OnReboot: "destroy", OnCrash: "destroy",
		Devices: devices{Emulator: p.Binary, USB: device{Type: "usb", Model: "none"}, Balloon: device{Model: "none"}},
		Labels:  labels,
	}
	if p.Watchdog {
		d.Devices.Watchdog = &device{
			Model: qemu.WatchdogModel, Action: qemu.WatchdogAction,
			Address: &address{"pci", 0, fmt.Sprintf("%#x", qemu.WatchdogSlot)},
		}
	}
	for _, a := range args {
		d.Args = append(d.Args, arg{a})
	}
	out, err := xml.MarshalIndent(d, "", "  ")
	return append(out, '\n'), err
}
