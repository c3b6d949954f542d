package kdev

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"kerninst/agent/isa"
)

// Cells are words of an area's cells or, if they are local, of local cells: then each is the
// sum of all CPUs'.
type Cells struct {
	Addr  isa.Addr
	Words int
	Local bool
}

// Range is code of a function, which the caller has a number for.
type Range struct {
	Start, End isa.Addr
	Of         int
}

// Inside is a task that is inside a function so often.
type Inside struct {
	Process, Thread uint32 // 0, 0: a CPU's idle task
	Comm            string
	Of              int // the function's number
	Frames          int
	Clock           uint64 // what the task's shows, if there are clocks
}

// Moment is what cells held, and who was inside which functions, while all CPUs stood still.
type Moment struct {
	Words  []uint64 // of all cells, one list behind the other
	Inside []Inside
	Cut    int    // tasks of which only the innermost frames were looked at
	Cycles uint64 // when it was, as patches read it
	NS     uint64 // and on the guest's monotonic clock, nanoseconds
}

// Clocks are those of tasks, in rings: see kerninst.h. Without words there are none.
type Clocks struct {
	At    isa.Addr
	Words int
}

// Moment stops all CPUs to take a look. The ranges may be in any order, and must not overlap.
func (d *Device) Moment(cells []Cells, ranges []Range, clocks Clocks) (Moment, error) {
	for room := 1024; ; room *= 4 {
		m, err := d.moment(cells, ranges, clocks, room)
		if !errors.Is(err, unix.ENOSPC) || room >= MaxInside {
			return m, err
		}
	}
}

func (d *Device) moment(cells []Cells, ranges []Range, clocks Clocks, room int) (Moment, error) {
	ks, n := make([]kiCells, len(cells)), 0
	for i, c := range cells {
		ks[i] = kiCells{Addr: uint64(c.Addr), Words: uint32(c.Words)}
		if c.Local {
			ks[i].Local = 1
		}
		n += c.Words
	}
	rs := make([]kiRange, len(ranges))
	for i, r := range ranges {
		rs[i] = kiRange{Start: uint64(r.Start), End: uint64(r.End), ID: uint32(r.Of)}
	}
	slices.SortFunc(rs, func(a, b kiRange) int { return cmp.Compare(a.Start, b.Start) })
	words, inside := make([]uint64, n), make([]kiInside, room)
	var pin runtime.Pinner
	defer pin.Unpin()
	in := kiMoment{
		Cells: list(&pin, ks), Words: list(&pin, words), Ranges: list(&pin, rs), Inside: list(&pin, inside),
		NCells: uint32(len(ks)), NWords: uint32(n), NRanges: uint32(len(rs)), Room: uint32(room),
		Clocks: uint64(clocks.At), NClocks: uint32(clocks.Words),
	}
	if err := d.call("moment", iocMoment, unsafe.Pointer(&in)); err != nil {
		return Moment{}, fmt.Errorf("a moment of %d words in %d lists and of %d ranges: %w", n, len(ks), len(rs), err)
	}
	m := Moment{Words: words, Cut: int(in.Cut), Cycles: in.Cycles, NS: in.Ns}
	for _, t := range inside[:in.Found] {
		name, _, _ := bytes.Cut(t.Comm[:], []byte{0})
		m.Inside = append(m.Inside, Inside{Process: t.TGID, Thread: t.TID, Comm: string(name), Of: int(t.ID), Frames: int(t.Frames), Clock: t.Clock})
	}
	return m, nil
}

// list is a list's address for the kernel, 0 of an empty one.
func list[T any](pin *runtime.Pinner, l []T) uint64 {
	if len(l) == 0 {
		return 0
	}
	return address(pin, (*byte)(unsafe.Pointer(&l[0])))
}
