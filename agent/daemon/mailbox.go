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

// window is the guest time from ready to the one look into the mailbox. The
// guest idles in it, and somewhere in it the host stops the machine, keeps its
// state, and writes the job. Where exactly is not known and does not matter:
// what the guest executes is the same. An idle guest of exact time spends some
// 100 ms of host time on it, which every guest pays; the host needs 1 ms.
const window = 20 * time.Second

// Mailbox is the memory that the host puts a job into.
type Mailbox struct{ mem []byte }

// OpenMailbox finds the device, enables it and maps its memory.
func OpenMailbox() (*Mailbox, error) {
	dir, err := findPCI("/sys/bus/pci/devices", wire.MailboxVendor, wire.MailboxDevice)
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
	return &Mailbox{mem}, nil
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

// Wait returns the job. It is called when all that is slow has been done; the
// host takes the opening of the results port, just before, as the word for it.
// The guest looks once, at a time of its own clock, so that when the host wrote
// the job leaves no trace.
func (m *Mailbox) Wait() ([]byte, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return nil, fmt.Errorf("clock: %w", err)
	}
	t = unix.NsecToTimespec(t.Nano() + int64(window))
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
