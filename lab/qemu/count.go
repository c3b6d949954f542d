package qemu

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A state of exact time holds how many instructions have been executed, and by how many
// nanoseconds the clock is ahead of them: the time that was idle (softmmu/cpu-timers.c,
// icount_vmstate_timers). A machine that records takes the count for what it executes
// next, in an int, and gives up if that is negative (replay/replay-internal.c). So what
// was executed before the state becomes idle time: the clock is their sum, and nothing
// else looks at them. Offline, in QEMU's own format, since no command of its sets them.

// countHead is what that part of a state begins with: subsection, name, version 1. Two
// numbers of 64 bits follow: the clock's lead, and the count.
var countHead = []byte("\x05\x0ctimer/icount\x00\x00\x00\x01")

// clearCount changes a state's file so. A guest's memory is in that file as well: one
// that holds the same bytes is refused.
func clearCount(file string) (err error) {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return errors.New("an empty state")
	}
	state, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Munmap(state)) }()
	return clearCountIn(state)
}

func clearCountIn(state []byte) error {
	if n := bytes.Count(state, countHead); n != 1 {
		return fmt.Errorf("a count of instructions is there %d times, not once: exact time cannot go on from this state", n)
	}
	at := bytes.Index(state, countHead) + len(countHead)
	if at+16 > len(state) {
		return errors.New("the state ends within its count of instructions")
	}
	lead, count := state[at:at+8], state[at+8:at+16]
	ahead, executed := int64(binary.BigEndian.Uint64(lead)), int64(binary.BigEndian.Uint64(count))
	if ahead < 0 || executed < 0 || ahead+executed < 0 {
		return fmt.Errorf("%d instructions and %d ns ahead of them are no clock of exact time", executed, ahead)
	}
	binary.BigEndian.PutUint64(lead, uint64(ahead+executed))
	binary.BigEndian.PutUint64(count, 0)
	return nil
}
