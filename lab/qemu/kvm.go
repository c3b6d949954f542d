package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"kerninst/lab/untrusted"
	"kerninst/lab/vm"
)

// A /dev/kvm that opens, and even one that makes a virtual machine, may be unable
// to run a guest: under another hypervisor the first instruction that needs
// emulation can be the end of it. So KVM is used only once the very kernel that
// is to run has got as far as its first program.

const (
	kvmDevice = "/dev/kvm"
	// kvmLimit bounds the probe. A kernel under KVM boots in a second or two.
	kvmLimit = 30 * time.Second
	// kvmSign is what the kernel says before its first program.
	kvmSign  = "Run /init as init process"
	kvmCheck = 20 * time.Millisecond
	// kvmAgain is how long it is believed that guests do not run: what stopped one
	// may have been the host's load, or somebody else's guest.
	kvmAgain = 10 * time.Minute

	// linux/kvm.h; the version has been the same since Linux 2.6.22.
	kvmGetAPIVersion = 0xae00
	kvmCreateVM      = 0xae01
	kvmAPIVersion    = 12
)

// KVMDevice is the device to look at: KERNINST_KVM says which, so that
// KERNINST_KVM=/dev/null turns KVM off.
func KVMDevice() string { return or(os.Getenv("KERNINST_KVM"), kvmDevice) }

// KVM is whether guests of host time may run under KVM.
type KVM struct {
	Usable bool   `json:"usable"`
	Why    string `json:"why"` // for people
	// Of what: a result holds for one boot of the host, one QEMU and one kernel.
	Of    string    `json:"of"`
	Found time.Time `json:"found"`
}

// holds says whether a result is still good, of the same and now.
func (k KVM) holds(of string, now time.Time) bool {
	age := now.Sub(k.Found)
	return k.Of == of && (k.Usable || age >= 0 && age < kvmAgain)
}

// OpenKVM asks the device itself: does it open and make virtual machines? It
// says nothing yet about running them.
func OpenKVM(device string) error {
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no %s", device)
	} else if err != nil {
		return fmt.Errorf("%s does not open: %w", device, err)
	}
	defer unix.Close(fd)
	version, err := unix.IoctlRetInt(fd, kvmGetAPIVersion)
	if err != nil || version != kvmAPIVersion {
		return fmt.Errorf("%s is not KVM (version %d, %v)", device, version, err)
	}
	machine, err := unix.IoctlRetInt(fd, kvmCreateVM)
	if err != nil {
		return fmt.Errorf("%s makes no virtual machine: %w", device, err)
	}
	return unix.Close(machine)
}

// FindKVM finds out whether a guest like s runs under KVM; s need not have a run
// directory. It keeps in the folder cache that one does, until the host boots
// anew, and that one does not, for kvmAgain. An error is the lab's own; a KVM that
// does not work is none.
func FindKVM(ctx context.Context, device, cache string, s vm.Spec) (KVM, error) {
	if s.Arch != runtime.GOARCH {
		return KVM{Why: s.Arch + " is not the host's ISA"}, nil
	}
	if err := OpenKVM(device); err != nil {
		return KVM{Why: err.Error()}, nil
	}
	version, err := FindVersion(ctx, s.Arch)
	if err != nil {
		return KVM{}, err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return KVM{}, err
	}
	of := strings.Join([]string{strings.TrimSpace(string(boot)), version.Binary, version.String(), s.Kernel}, " ")
	if known, err := KnownKVM(cache, s.Arch); err == nil && known.holds(of, time.Now()) {
		return known, nil
	}
	found, err := runUnderKVM(ctx, s)
	if err != nil {
		return KVM{}, err
	}
	found.Of, found.Found = of, time.Now().UTC()
	return found, found.write(kvmFile(cache, s.Arch))
}

func kvmFile(cache, arch string) string { return filepath.Join(cache, "kvm-"+arch+".json") }

// KnownKVM is what was found last, for whichever boot, QEMU and kernel.
func KnownKVM(cache, arch string) (KVM, error) {
	var k KVM
	text, err := os.ReadFile(kvmFile(cache, arch))
	if err != nil {
		return k, err
	}
	return k, json.Unmarshal(text, &k)
}

// write replaces the file whole, since other labs may read it.
func (k KVM) write(file string) error {
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	unfinished := filepath.Join(filepath.Dir(file), "tmp") // which is swept
	if err := os.MkdirAll(unfinished, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(unfinished, filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// runUnderKVM boots a guest under KVM until its kernel starts a program.
func runUnderKVM(ctx context.Context, s vm.Spec) (KVM, error) {
	dir, err := NewRunDir()
	if err != nil {
		return KVM{}, err
	}
	defer dir.Close()
	s.Dir, s.Time, s.KVM, s.Append = dir.Path, vm.Host, true, "loglevel=8"
	return startsProgram(ctx, s, kvmLimit)
}

// startsProgram boots a guest until its kernel starts a program.
func startsProgram(ctx context.Context, s vm.Spec, most time.Duration) (KVM, error) {
	m, err := Backend{}.Start(ctx, s)
	var failed *StartError
	if errors.As(err, &failed) {
		return KVM{Why: firstLine(failed.Ending.Detail)}, nil
	} else if err != nil {
		return KVM{}, err
	}
	limit, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	defer func() {
		m.Kill()
		m.Wait(context.Background())
	}()
	for {
		console, err := untrusted.Read(m.Console(), 1<<20)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return KVM{}, err
		}
		if strings.Contains(string(console), kvmSign) {
			return KVM{Usable: true, Why: "a guest ran"}, nil
		}
		turn, done := context.WithTimeout(limit, kvmCheck)
		end, err := m.Wait(turn)
		done()
		switch {
		case err == nil:
			return KVM{Why: fmt.Sprintf("a guest died in its boot (%s %s)", end.Reason, firstLine(end.Detail))}, nil
		case ctx.Err() != nil:
			return KVM{}, ctx.Err()
		case limit.Err() != nil:
			return KVM{Why: fmt.Sprintf("a guest did not boot in %s", most)}, nil
		}
	}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
