package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"kerninst/agent/isa"
	"kerninst/agent/kdev"
	"kerninst/guest/check"
)

// foreigner is somebody else who can put a kprobe on an instruction.
type foreigner struct {
	name   string
	attach func(isa.Addr) (detach func() error, err error)
}

var foreigners = []foreigner{
	{"a module's kprobe", attachModule},
	{"a tracefs kprobe", func(a isa.Addr) (func() error, error) { return attachTracefs(a, true) }},
	{"a tracefs kprobe that is not armed", func(a isa.Addr) (func() error, error) { return attachTracefs(a, false) }},
	{"perf", attachPerf},
}

func attachModule(a isa.Addr) (func() error, error) {
	ko, err := os.ReadFile(peerFile)
	if err != nil {
		return nil, err
	}
	return func() error { return kdev.Unload("peer") }, kdev.Load(ko, fmt.Sprintf("addr=%#x", uint64(a)))
}

// tracefs is where init mounts it.
const tracefs = "/sys/kernel/tracing/"

func control(file, line string) error {
	f, err := os.OpenFile(tracefs+file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

func attachTracefs(a isa.Addr, armed bool) (func() error, error) {
	const enable = "events/kprobes/storm/enable"
	if err := control("kprobe_events", fmt.Sprintf("p:storm %#x", uint64(a))); err != nil {
		return nil, err
	}
	remove := func() error { return control("kprobe_events", "-:storm") }
	if !armed {
		return remove, nil
	}
	if err := control(enable, "1"); err != nil {
		return nil, errors.Join(err, remove())
	}
	return func() error { return errors.Join(control(enable, "0"), remove()) }, nil
}

// attachPerf opens an event of perf's own kprobe device, as perf and bpftrace do.
func attachPerf(a isa.Addr) (func() error, error) {
	text, err := os.ReadFile("/sys/bus/event_source/devices/kprobe/type")
	if err != nil {
		return nil, err
	}
	kind, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	if err != nil {
		return nil, err
	}
	attr := unix.PerfEventAttr{Type: uint32(kind), Size: unix.PERF_ATTR_SIZE_VER1, Ext2: uint64(a)} // kprobe_func 0: kprobe_addr
	fd, err := unix.PerfEventOpen(&attr, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return func() error { return unix.Close(fd) }, nil
}

// foreigners come before, at and after a live splice.
func (e *env) foreigners(rng *rand.Rand, calls int) error {
	for _, k := range rng.Perm(len(foreigners)) {
		if err := e.foreign(foreigners[k]); err != nil {
			return fmt.Errorf("%s: %w", foreigners[k].name, err)
		}
	}
	return e.peerCounts(calls)
}

func (e *env) foreign(f foreigner) error {
	s := whole(e.one)
	detach, err := f.attach(s.Point)
	check.Errno(f.name+" comes first", err, 0)
	if err != nil {
		return nil
	}
	_, err = e.dev.Splice([]kdev.Splice{s})
	check.Errno(f.name+" is there: splice", err, unix.EBUSY)
	if err := detach(); err != nil {
		return err
	}
	ids, err := e.dev.Splice([]kdev.Splice{s})
	check.Errno(f.name+" has gone: splice", err, 0)
	if err != nil {
		return nil
	}
	if detach, err = f.attach(s.Point); err == nil {
		err = errors.Join(detach(), errors.New("it was let in"))
		check.Report(f.name+" comes to a live splice", 1, false, "%v", err)
	} else {
		check.Errno(f.name+" comes to a live splice", err, unix.EINVAL)
	}
	now := make([]byte, len(s.New))
	if err := e.dev.Read(s.Point, now); err != nil {
		return err
	}
	check.Report(f.name+" left the splice alone", 1, bytes.Equal(now, s.New), "%x, want %x", now, s.New)
	check.Errno(f.name+" was sent away: undo", e.dev.Undo(ids), 0)
	detach, err = f.attach(s.Point)
	check.Errno(f.name+" comes after undo", err, 0)
	if err != nil {
		return nil
	}
	return detach()
}

// peerCounts: a probe that came after undo sees every arrival.
func (e *env) peerCounts(calls int) error {
	ids, err := e.dev.Splice([]kdev.Splice{whole(e.one)})
	if err != nil {
		return err
	}
	if err := e.dev.Undo(ids); err != nil {
		return err
	}
	detach, err := attachModule(e.one.Point)
	if err != nil {
		return err
	}
	want, err := e.callAll(calls)
	hits, readErr := os.ReadFile("/sys/module/peer/parameters/hits")
	if err := errors.Join(err, readErr, detach()); err != nil {
		return err
	}
	got := strings.TrimSpace(string(hits))
	check.Report("a kprobe after undo counts exactly", calls, got == strconv.Itoa(want), "%s hits, %d calls", got, want)
	return nil
}
