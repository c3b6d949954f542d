package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"kerninst/agent/wire"
)

// window is the guest time from ready to the one look into the mailbox. The guest
// idles in it, and two seconds into it the watchdog stops the machine; the host
// keeps its state, writes the job, and lets it go on, at its leisure. An idle guest
// of exact time spends some 5 ms of host time on a second.
const window = 5 * time.Second

// The watchdog's registers in PCI configuration space (Intel 6300ESB datasheet,
// "WDT Configuration" and "WDT Lock").
const (
	wdtConfig = 0x60
	wdtLock   = 0x68
	// Ticks of 0.96 µs (bit 2), no interrupt after the first stage (bits 1:0), and
	// the second one counts (bit 5 clear). Each stage has 0xfffff ticks after a reset.
	wdtFast = 1<<2 | 3
	wdtOn   = 1 << 1
)

// Mailbox is the memory that the host puts a job into.
type Mailbox struct {
	mem      []byte
	watchdog string // its configuration space
}

const pciDevices = "/sys/bus/pci/devices"

// OpenMailbox finds mailbox and watchdog, enables the mailbox and maps its memory.
func OpenMailbox() (*Mailbox, error) {
	dir, err := findPCI(pciDevices, wire.MailboxVendor, wire.MailboxDevice)
	if err != nil {
		return nil, err
	}
	watchdog, err := findPCI(pciDevices, wire.WatchdogVendor, wire.WatchdogDevice)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "enable"), []byte("1"), 0); err != nil {
		return nil, fmt.Errorf("mailbox: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "resource"+strconv.Itoa(wire.MailboxBAR)), os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("mailbox: %w", err)
	}
	defer f.Close()
	mem, err := unix.Mmap(int(f.Fd()), 0, wire.MailboxSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mailbox: map %s: %w", f.Name(), err)
	}
	return &Mailbox{mem, filepath.Join(watchdog, "config")}, nil
}

// findPCI is the sysfs folder of the only device with these numbers.
func findPCI(devices string, vendor, device uint64) (string, error) {
	dirs, err := filepath.Glob(filepath.Join(devices, "*"))
	if err != nil {
		return "", err
	}
	for _, dir := range dirs {
		if number(dir, "vendor") == vendor && number(dir, "device") == device {
			return dir, nil
		}
	}
	return "", fmt.Errorf("mailbox: no PCI device %04x:%04x: is it in the emulator's command?", vendor, device)
}

func number(dir, file string) uint64 {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseUint(strings.TrimSpace(string(b)), 0, 64)
	return n
}

// arm starts the watchdog.
func (m *Mailbox) arm() error {
	f, err := os.OpenFile(m.watchdog, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("watchdog: %w", err)
	}
	_, err = f.WriteAt([]byte{wdtFast, 0}, wdtConfig)
	if err == nil {
		_, err = f.WriteAt([]byte{wdtOn}, wdtLock)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("watchdog: %w", err)
	}
	return nil
}

// Wait returns the job. It is called when all that is slow has been done.
//
// The guest looks once, at a time of its own clock, so that when the host wrote the
// job leaves no trace. The host cannot come too late, however busy it is: the
// machine stops itself, in QEMU's main loop, without which the clock of an idle
// guest does not move on.
func (m *Mailbox) Wait() ([]byte, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return nil, fmt.Errorf("clock: %w", err)
	}
	t = unix.NsecToTimespec(t.Nano() + int64(window))
	if err := m.arm(); err != nil {
		return nil, err
	}
	for {
		err := unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &t, nil)
		if err == nil {
			m.mem[wire.MailboxLooked] = 1
			return wire.OpenMail(m.mem)
		}
		if !errors.Is(err, unix.EINTR) {
			return nil, fmt.Errorf("sleep: %w", err)
		}
	}
}

// pollInterval is the guest time between two looks of Poll.
const pollInterval = 10 * time.Millisecond

// Poll returns the job as soon as it is there: for guests of host time, in which it
// comes at no exact time anyhow, and which would idle in real time before they looked.
// The host writes while the machine is stopped, so no half of a job is ever seen.
func (m *Mailbox) Poll() ([]byte, error) {
	if err := m.arm(); err != nil {
		return nil, err
	}
	for {
		job, err := wire.OpenMail(m.mem)
		if !errors.Is(err, wire.ErrNoMail) {
			return job, err
		}
		time.Sleep(pollInterval) // nothing wakes who waits: the host writes into the memory of a machine that stands
	}
}
