package main

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"

	"kerninst/agent/isa"
	"kerninst/agent/kdev"
	"kerninst/agent/place"
	"kerninst/guest/check"
)

// framedLen is the length of code with frames, in bytes: more than as many as there may be
// have.
const framedLen = 3*kdev.MaxFrames + place.Line

// framed writes code with frames that something is wrong about.
func framed(spoil func(at *isa.Addr, f *[]kdev.Frame)) func(*env) error {
	return func(e *env) error {
		at := e.area.Addr + isa.Addr(areaSize) - 4096
		f := []kdev.Frame{{Orig: e.fn.Addr}, {Off: 8, Orig: e.fn.Addr, Down: 16, Saved: true, BP: 8}, {Off: 16, Orig: e.fn.Addr}}
		spoil(&at, &f)
		return e.dev.WriteCode(at, make([]byte, framedLen), f...)
	}
}

// every is n frames, so many bytes apart.
func every(step, n int) func(*isa.Addr, *[]kdev.Frame) {
	return func(_ *isa.Addr, f *[]kdev.Frame) {
		for k := len(*f); k < n; k++ {
			*f = append(*f, kdev.Frame{Off: (*f)[k-1].Off + step, Orig: (*f)[0].Orig})
		}
	}
}

// frames are about what is said of code's stack; none is said of nothing but text.
var frames = []refusal{
	{"frames that are good", 0, framed(func(*isa.Addr, *[]kdev.Frame) {})},
	{"frames, as many as there may be", 0, framed(every(3, kdev.MaxFrames))},
	{"frames, one too many", unix.EINVAL, framed(every(3, kdev.MaxFrames+1))},
	{"frames, as many as there may be in a line", 0, framed(every(1, 16))},
	{"frames, too many in a line", unix.EINVAL, framed(every(1, 40))},
	{"frames that begin behind the code's begin", unix.EINVAL, framed(func(_ *isa.Addr, f *[]kdev.Frame) { (*f)[0].Off = 1 })},
	{"frames that do not ascend", unix.EINVAL, framed(func(_ *isa.Addr, f *[]kdev.Frame) { (*f)[2].Off = 8 })},
	{"a frame behind the code", unix.EINVAL, framed(func(_ *isa.Addr, f *[]kdev.Frame) { (*f)[2].Off = framedLen })},
	{"a frame with too much pushed", unix.EINVAL, framed(func(_ *isa.Addr, f *[]kdev.Frame) { (*f)[1].Down = 4097 })},
	{"a frame pointer that is not among what was pushed", unix.EINVAL, framed(func(_ *isa.Addr, f *[]kdev.Frame) { (*f)[1].BP = 16 })},
	{"frames of code in the middle of a line", unix.EINVAL, framed(func(at *isa.Addr, _ *[]kdev.Frame) { *at += 4 })},
	{"a frame of data", 0, framed(func(_ *isa.Addr, f *[]kdev.Frame) { (*f)[0].Orig = 8 })},
	{"a second area as large as the module's own", 0, func(e *env) error {
		a, err := e.dev.AllocArea(e.info.AreaLo, e.info.AreaHi, areaSize)
		if err != nil {
			return err
		}
		return e.dev.FreeArea(a)
	}},
}

// table checks that what the unwinder searches by halves is in order: each line's entries
// lie in it, and the first at its begin.
func (e *env) table() error {
	if e.arch.Name != "amd64" {
		return nil // which has no such table
	}
	addrs, err := symbol("ki_orc_addrs")
	if err != nil {
		return err
	}
	first, err := symbol("ki_orc_first")
	if err != nil {
		return err
	}
	begin := make([]byte, 4)
	if err := e.dev.Read(first, begin); err != nil {
		return err
	}
	addrs += 4 * isa.Addr(binary.LittleEndian.Uint32(begin))
	lines := (kdev.AnnexLen + kdev.ArenaLen) / place.Line
	b := make([]byte, 4*kdev.LineFrames*lines)
	if err := e.dev.Read(addrs, b); err != nil {
		return err
	}
	wrong, before := 0, isa.Addr(0)
	for k := range kdev.LineFrames * lines {
		line := e.annex.Addr + isa.Addr(k/kdev.LineFrames*place.Line)
		at := addrs + isa.Addr(4*k) + isa.Addr(int32(binary.LittleEndian.Uint32(b[4*k:])))
		if at < before || at-line >= place.Line || k%kdev.LineFrames == 0 && at != line {
			wrong++
		}
		before = at
	}
	check.Report("the unwinder's table is in order", lines, wrong == 0, "%d entries are not", wrong)
	return nil
}

// anew gives the patch memory back, all of which nobody uses any more, and gets it again.
func (e *env) anew() error {
	if _, err := e.settled(); err != nil {
		return err
	}
	if err := e.dev.FreeArea(e.area); err != nil {
		return err
	}
	if err := e.reserve(); err != nil {
		return err
	}
	code := make([]byte, areaSize)
	if err := e.dev.Read(e.area.Addr, code); err != nil {
		return err
	}
	used := len(code) - bytes.Count(code, e.arch.Trap)*len(e.arch.Trap)
	check.Report("patch memory that is had again is traps", areaSize, used == 0, "%d bytes are something else", used)
	return nil
}
