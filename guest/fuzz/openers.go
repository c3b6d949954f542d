package main

import (
	"os/exec"
	"strconv"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Who opens the device has it alone until the last of its descriptors and of the mappings of its cells is gone. While one
// calls there is one all the time: so between two rounds several come at once, and let go of it soon.

// openers come at once, and each is let in so often.
const (
	openers = 4
	turns   = 24
)

// longest is how long they come at most: where patches stay that somebody may be in, each opening looks for him.
const longest = 10 * time.Second

// contest is a process of openers.
func (k *kernel) contest(seed uint64, to *tally) error {
	t, err := k.told(exec.Command("/proc/self/exe", "-seed", strconv.FormatUint(seed, 10), "openers"))
	if err != nil {
		return err
	}
	to.add(t)
	return nil
}

// asOpeners is that process. At its end it has cells mapped, and no descriptor.
func asOpeners(seed uint64) error {
	return part(func(k *kernel) (tally, error) {
		var have atomic.Int32
		end := time.Now().Add(longest)
		sum, err := together(k, -1, openers, seed, unix.EBUSY, func(f *fuzzer) { f.contend(&have, end) })
		if err != nil {
			return sum, err
		}
		last, err := newFuzzer(k, -1, seed, openers, unix.EBUSY)
		if err != nil {
			return sum, err
		}
		if last.fd, err = openDevice(); err != nil {
			return sum, err
		}
		last.mapOwn()
		if err := unix.Close(last.fd); err != nil {
			return sum, err
		}
		sum.add(last.tally)
		return sum, nil
	})
}

// contend comes until it has had its turns.
func (f *fuzzer) contend(have *atomic.Int32, end time.Time) {
	for n := 0; n < turns && time.Now().Before(end); {
		var err error
		if f.fd, err = unix.Open(devicePath, unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
			f.hold("who comes while another has the device is refused", err == f.openErrno)
			time.Sleep(time.Duration(f.rng.IntN(500)) * time.Microsecond) // that it is closed nobody is told
			continue
		}
		f.hold("one has the device alone", have.Add(1) == 1)
		f.turn(have)
		n++
	}
}

// turn uses the device, and lets go of it: sometimes the mapping goes last.
func (f *fuzzer) turn(have *atomic.Int32) {
	for _, name := range []string{"info", "stats"} {
		f.hold("who has the device is answered", ioctl(f.fd, callOf(name).cmd, uintptr(f.at(0))) == 0)
	}
	if f.rng.IntN(4) != 0 || !f.mapOwn() {
		have.Add(-1)
		unix.Close(f.fd)
		return
	}
	m := &f.maps[0]
	if f.rng.IntN(2) == 0 {
		m.unmap()
		have.Add(-1)
		unix.Close(f.fd)
		return
	}
	unix.Close(f.fd)
	fd, err := unix.Open(devicePath, unix.O_RDWR|unix.O_CLOEXEC, 0)
	f.hold("who comes while cells are mapped is refused", err == f.openErrno)
	if err == nil {
		unix.Close(fd)
	}
	f.touch(0)
	have.Add(-1)
	m.unmap()
}

// mapOwn asks for an area and maps its cells; mapped once more they are the same.
func (f *fuzzer) mapOwn() bool {
	c := callOf("area")
	b := f.arena[:c.size]
	clear(b)
	put(b[0:], uint64(f.reach.Lo), 8)
	put(b[8:], uint64(f.reach.Hi), 8)
	put(b[16:], 4096, 4)
	errno := ioctl(f.fd, c.cmd, uintptr(f.at(0)))
	f.hold("who has the device is given an area", errno == 0)
	m, again := &f.maps[0], &f.maps[1]
	if errno != 0 || !f.mapCells(m, get(b[32:], 8), unix.PROT_READ|unix.PROT_WRITE) {
		return false
	}
	f.touch(0)
	if f.mapCells(again, get(b[32:], 8), unix.PROT_READ) {
		v, ok := load(&again.words()[(uintptr(unsafe.Pointer(m.written))-uintptr(m.p))/8])
		f.hold("cells that are mapped twice are the same", ok && v == m.is)
		again.unmap()
	}
	return true
}

func (f *fuzzer) mapCells(m *mapping, off uint64, prot int) bool {
	p, err := unix.MmapPtr(f.fd, int64(off), nil, 4096, prot, unix.MAP_SHARED)
	f.hold("who has the device maps cells", err == nil)
	if err == nil {
		*m = mapping{p: p, len: 4096, prot: prot}
	}
	return err == nil
}

func callOf(name string) *call {
	for k := range calls {
		if calls[k].name == name {
			return &calls[k]
		}
	}
	return nil
}
