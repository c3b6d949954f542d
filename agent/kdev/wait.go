package kdev

import (
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"kerninst/agent/isa"
)

// Watched is a ring that is waited for until it has less room than so many bytes.
type Watched struct {
	At   isa.Addr // of its state
	Room int
}

// Wait waits until one of the rings has less room than is wanted, at which the kernel looks
// once in a period of 100 us at least, or until Wake, for a second at the most. A signal
// does not end it. Others use the device meanwhile.
func (d *Device) Wait(rings []Watched, period, most time.Duration) error {
	watched := make([]kiRing, len(rings))
	for k, r := range rings {
		watched[k] = kiRing{At: uint64(r.At), Room: uint32(r.Room)}
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	in := kiWait{Rings: list(&pin, watched), N: uint32(len(watched)), Period: uint64(period), Timeout: uint64(most)}
	for end := time.Now().Add(most); ; in.Timeout = uint64(max(1, time.Until(end))) {
		err := d.call("wait", iocWait, unsafe.Pointer(&in))
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EINTR): // which Go's runtime sends to threads, to have them give way
			return fmt.Errorf("wait for %d rings: %w", len(rings), err)
		case !time.Now().Before(end):
			return nil
		}
	}
}

// Wake ends the wait of who waits, or the next if nobody does.
func (d *Device) Wake() error { return d.call("wake", iocWake, nil) }
