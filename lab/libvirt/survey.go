package libvirt

import (
	"context"
	"fmt"
	"path/filepath"

	golibvirt "github.com/digitalocean/go-libvirt"

	"kerninst/lab/qemu"
)

// oldest is the first libvirt that the lab is tried with, Debian 12's, as libvirt counts.
const oldest = 9_000_000

// TooOldError says that a libvirtd cannot be relied on.
type TooOldError struct{ Version string }

func (e *TooOldError) Error() string {
	return fmt.Sprintf("libvirt is version %s: the lab needs %s or newer, which Debian 12 has", e.Version, versionOf(oldest))
}

// versionOf writes a version as people do.
func versionOf(n uint64) string { return fmt.Sprintf("%d.%d.%d", n/1e6, n/1e3%1e3, n%1e3) }

func tooOld(n uint64) error {
	if n < oldest {
		return &TooOldError{versionOf(n)}
	}
	return nil
}

// Host is what a libvirtd says of the machine that it is on.
type Host struct {
	Version string
	Name    string // of the machine
	CPUs    int
	FreeMiB int // memory that guests could have now
	// Lacks says of ISAs why no guest of theirs can run there.
	Lacks map[string]error
	// KVM are the ISAs that it has KVM for, as its libvirtd says. Guests through libvirt are emulated.
	KVM []string
}

// Survey asks a libvirtd for all that decides which guests may run there.
func (b Backend) Survey(ctx context.Context, arches []string) (*Host, error) {
	ctx, cancel := context.WithTimeout(ctx, qemu.StartLimit)
	defer cancel()
	version, err := b.Check(ctx)
	if err != nil {
		return nil, err
	}
	h := &Host{Version: version, Lacks: map[string]error{}}
	c, err := b.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", b.URI, err)
	}
	defer c.close()
	if err = h.size(ctx, c); err != nil {
		return nil, fmt.Errorf("host %s: %w", b.URI, err)
	}
	if b.pool != "" {
		_, err := openPool(ctx, c, b)
		if err == nil {
			err = otherEmulator(ctx, c, arches)
		}
		if err != nil {
			return nil, fmt.Errorf("host %s: %w", b.URI, err)
		}
	}
	for _, arch := range arches {
		if err := runs(ctx, c, arch, "qemu"); err != nil {
			h.Lacks[arch] = err
		} else if runs(ctx, c, arch, "kvm") == nil {
			h.KVM = append(h.KVM, arch)
		}
		select {
		case <-c.lost(): // and so it lacks nothing
			return nil, fmt.Errorf("host %s: %w", b.URI, errLost)
		default:
		}
	}
	return h, nil
}

// otherEmulator is an OtherEmulatorError if a host says that its QEMU is another than the lab's. One
// that has none of its own ISA does not say, and is asked by its first machine.
func otherEmulator(ctx context.Context, c *conn, arches []string) error {
	n, err := call(ctx, c, "QEMU's version", func(l *golibvirt.Libvirt) (uint64, error) { return l.ConnectGetVersion() })
	if err != nil || n == 0 || len(arches) == 0 {
		return nil
	}
	here, err := qemu.FindVersion(ctx, arches[0])
	if there := versionOf(n); err == nil && there != here.Number {
		return &OtherEmulatorError{there, here.Number}
	}
	return nil
}

// size asks for CPUs and memory. What libvirt calls free is what nothing is kept in, not even a
// copy of what is on the disk; guests can have that as well.
func (h *Host) size(ctx context.Context, c *conn) (err error) {
	h.CPUs, err = call(ctx, c, "CPUs", func(l *golibvirt.Libvirt) (int, error) {
		_, _, cpus, _, _, _, _, _, err := l.NodeGetInfo()
		return int(cpus), err
	})
	if err != nil {
		return err
	}
	h.Name, err = call(ctx, c, "name", func(l *golibvirt.Libvirt) (string, error) { return l.ConnectGetHostname() })
	if err != nil {
		return err
	}
	stats, err := call(ctx, c, "memory", func(l *golibvirt.Libvirt) ([]golibvirt.NodeGetMemoryStats, error) {
		_, n, err := l.NodeGetMemoryStats(0, int32(golibvirt.NodeMemoryStatsAllCells), 0)
		if err != nil {
			return nil, err
		}
		list, _, err := l.NodeGetMemoryStats(n, int32(golibvirt.NodeMemoryStatsAllCells), 0)
		return list, err
	})
	for _, s := range stats {
		switch s.Field {
		case golibvirt.NodeMemoryStatsFree, golibvirt.NodeMemoryStatsBuffers, golibvirt.NodeMemoryStatsCached:
			h.FreeMiB += int(s.Value >> 10)
		}
	}
	return err
}

// runs says why a libvirtd runs no guest of an ISA, emulated (qemu) or by KVM (kvm); nil: it does. It is asked about the one
// emulator that guests name: for its capabilities it would ask every QEMU that is installed.
func runs(ctx context.Context, c *conn, arch, how string) error {
	e, err := qemu.EmulatorOf(ctx, arch)
	if err != nil {
		return err
	}
	what := "capabilities of " + filepath.Base(e.Binary)
	_, err = call(ctx, c, what, func(l *golibvirt.Libvirt) (string, error) {
		return l.ConnectGetDomainCapabilities(golibvirt.OptString{e.Binary}, golibvirt.OptString{e.Target},
			golibvirt.OptString{e.Machine}, golibvirt.OptString{how}, 0)
	})
	return err
}

// Key is the same for two URIs that lead to one libvirtd's one driver, as far as can be told
// without going there.
func (b Backend) Key() string { return string(b.driver) + " " + b.way.key() }
