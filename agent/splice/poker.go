package splice

import (
	"fmt"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
)

// Poker is what splicing needs of a running kernel: the calls of /dev/kerninst
// in terms of plans. agent/kdev is the real one; guest/module/uapi/kerninst.h
// says what each call promises. Every call that fails has changed nothing.
type Poker interface {
	// Read fills b with kernel memory.
	Read(a isa.Addr, b []byte) error
	// ReadUnprobed reads it as it is without kprobes.
	ReadUnprobed(a isa.Addr, b []byte) error
	// AllocArea makes codeLen bytes of code inside [lo, hi) and as many of cells.
	AllocArea(lo, hi isa.Addr, codeLen int) (Area, error)
	// AllocAnnex gets the area whose patches may fault, with its cells.
	AllocAnnex() (Area, error)
	// AllocLocal gets cells in per-CPU memory, for as long as the kernel's side is
	// there. Where there are none, the error says why.
	AllocLocal() (Local, error)
	// FreeArea gives an area back. No splice may lead into it.
	FreeArea(id uint32) error
	// WriteCode writes a patch into an area, with its state map, for who walks up a
	// stack from there; none of code that nobody comes to. Of its sites those of static keys are
	// written as the keys are.
	WriteCode(a isa.Addr, code []byte, states []gen.State, sites []gen.Site) error
	// Splice makes all splices of the batch, or none, and sets their IDs. An
	// error that one of them is to blame for is a *BatchError.
	Splice(batch []Splice) error
	// Undo takes splices back, all or none. When it returns, no CPU and no
	// task is inside their patches. Errors as with Splice.
	Undo(ids []uint32) error
	// Quarantined is how many bytes of patches that were undone a task may still be
	// asleep in.
	Quarantined() (uint64, error)
}

// Local is memory for cells of which each CPU has its own: Load is their sum.
type Local struct {
	Addr isa.Addr // in per-CPU memory
	Len  int      // bytes of one CPU
	Load func(off int) uint64
}

// Area is patch memory as the kernel gave it.
type Area struct {
	ID       uint32
	Addr     isa.Addr
	Cells    Cells
	CodeLen  int
	CellAddr isa.Addr
}

// Cells are the counters of an area, shared with the kernel.
type Cells interface {
	// Load reads the 64-bit cell at a byte offset, in one access.
	Load(off int) uint64
	// Store sets it, in one access. While a splice leads to its patch, what a CPU
	// writes at the same time may be lost.
	Store(off int, v uint64)
}

// Splice is one replacement of bytes, as the kernel is asked for it.
type Splice struct {
	Point    isa.Addr
	Old, New []byte // of equal length
	Patch    isa.Addr
	PatchLen int
	Window   bool
	// Springboard: nothing leads to Point but the splice that follows in the batch,
	// and it is undone only when nobody is between the two any more.
	Springboard bool
	Code        bool // the springboard is a copy of the patch, and no jump to it
	Awake       bool // no task falls asleep in the patch
	Trap        bool // New begins with a breakpoint, and the rest of it is Old's
	Home        bool // with Trap: the patch ends in a breakpoint that leads to behind New
	// Fault is where the patch has the instruction from Original, faults of which
	// have a fixup; 0: there is none.
	Fault, Original isa.Addr
	// Annex is the second part of a patch, with Fault in it, if it has one.
	Annex    isa.Addr
	AnnexLen int
	// Span is how many bytes from Point on nobody runs while it is live: the patch is a
	// copy of them, and springboards may lie behind the New ones. 0: it is no such copy.
	Span int
	// Copied is the kernel text that the patch is a copy of, from and up to where.
	Copied [][2]isa.Addr
	// Resumes says where whoever sleeps in the patch when it is undone goes on.
	Resumes []gen.Resume
	ID      uint32 // set by Poker.Splice
}

// BatchError names the member of a batch that could not be done.
type BatchError struct {
	Index int
	Err   error
}

func (e *BatchError) Error() string { return fmt.Sprintf("splice %d of the batch: %v", e.Index, e.Err) }

func (e *BatchError) Unwrap() error { return e.Err }
