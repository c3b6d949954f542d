//go:build linux

package kdev

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
)

// Path of the device.
const Path = "/dev/kerninst"

// Device is the opened device. Its methods may be called from several
// goroutines; the module serialises them. Closing it undoes every splice and
// frees every area.
type Device struct {
	fd    int
	areas map[uint32]*Area
	local *Local
	rings []*Rings
}

// Info describes the kernel to the planner.
type Info struct {
	Arch               string // as isa.Arch.Name
	ImageStart         isa.Addr
	ImageEnd           isa.Addr
	TextStart, TextEnd isa.Addr
	AreaLo, AreaHi     isa.Addr // areas lie inside, and outside the image
	PageSize, CPUs     int
	Features           uint32
	Loads              isa.Addr // what patches call to load from memory: gen.Input.Loads
	TaskCPU            int      // riscv64: where in a task the number of its CPU is
}

// NoWindows reports whether nothing proves that nobody is inside a window: there are none then.
func (i Info) NoWindows() bool { return i.Features&FeatureNoWindows != 0 }

// Preempted reports whether a thread may lose its CPU anywhere in the kernel, in a patch too.
func (i Info) Preempted() bool { return i.Features&FeaturePreempted != 0 }

// Traps reports whether breakpoints may lead to patches.
func (i Info) Traps() bool { return i.Features&FeatureTrap != 0 }

// Keys reports whether code may have sites of static keys.
func (i Info) Keys() bool { return i.Features&FeatureKeys != 0 }

// Sited reports whether code anywhere may have sites, not only that in the module's text.
func (i Info) Sited() bool { return i.Features&FeatureSited != 0 }

// LSE reports whether an arm64 CPU has the atomics of ARMv8.1.
func (i Info) LSE() bool { return i.Features&FeatureLSE != 0 }

// Area is executable memory with its cells.
type Area struct {
	ID      uint32
	Addr    isa.Addr // of the code
	CodeLen int
	Offset  int64    // at which the device maps the cells
	at      isa.Addr // of the cells; as far from one as from the next is each cell from its code
	cells   []byte
}

// Splice is one change of live text.
type Splice struct {
	Point       isa.Addr
	Patch       isa.Addr // where control finally goes
	PatchLen    int      // bytes of the patch, for the freeing rules
	Old, New    []byte   // of equal length, at most MaxPatch
	Window      bool     // replaces several instructions
	Springboard bool     // reached only by the jump of another splice
	Code        bool     // a springboard that is a copy of the patch, and no jump to it
	Awake       bool     // no task falls asleep in the patch
	Trap        bool     // a breakpoint, and no jump
	Home        bool     // with Trap: the patch ends in a breakpoint that leads behind the point's instruction
	// Fault is where the patch has an instruction from Original whose faults have a
	// fixup; 0: it has none.
	Fault, Original isa.Addr
	// Annex is where the patch has a second part, of so many bytes, with Fault in it.
	Annex    isa.Addr
	AnnexLen int
	// Span is how many bytes from Point on nobody runs while it is live, since the patch
	// is a copy of them; 0: no such copy.
	Span int
	// Copied is the kernel text that the patch is a copy of, from and up to where: no kprobe is let in there.
	Copied [][2]isa.Addr
	// Resumes says where who sleeps in the patch goes on when it is undone; ascending.
	Resumes []Resume
}

// Resume is an address in a patch at which a task may sleep, and one of the original's at which all is as it is there.
type Resume struct{ From, To isa.Addr }

// Stats of the module.
type Stats struct {
	Areas, Splices     int // live now
	Spliced, Unspliced uint64
	Refused            uint64 // batches
	Quarantined        uint64 // bytes of patches in which some task sleeps
	// Cycles is the time as snippets read it, and NS what the monotonic clock showed then.
	Cycles, NS uint64
}

// Error is a refusal by the module. It wraps a unix.Errno.
type Error struct {
	Op    string
	Errno unix.Errno
	Index int    // of the splice to blame, or -1
	Hint  string // what it means here, and what to do
}

func (e *Error) Error() string {
	at := ""
	if e.Index >= 0 {
		at = fmt.Sprintf(": splice %d of the batch", e.Index)
	}
	hint := ""
	if e.Hint != "" {
		hint = ": " + e.Hint
	}
	return fmt.Sprintf("%s: %s%s%s (%s)", Path, e.Op, at, hint, unix.ErrnoName(e.Errno))
}

func (e *Error) Unwrap() error { return e.Errno }

// hints say what an errno means in one call.
var hints = map[string]map[unix.Errno]string{
	"open": {
		unix.EBUSY:  "another daemon has " + Path + " open; stop it first",
		unix.EPERM:  "needs CAP_SYS_MODULE and CAP_SYS_RAWIO, and a kernel that is not locked down; run as root",
		unix.EACCES: "only root may open it",
		unix.ENOENT: "the module is not loaded; load kerninst.ko first",
	},
	"area": {
		unix.EACCES:     "no areas may lie in that window (kernel image, or outside the allowed range)",
		unix.ENOSPC:     "nothing is free in that window; ask for a wider one",
		unix.ENOMEM:     "no memory, or too many areas; free some",
		unix.EOPNOTSUPP: "this ISA has no instruction that adds to per-CPU memory",
		unix.EINVAL:     "the length must be whole pages, at most half of MaxArea, and the window not empty",
	},
	"free area": {
		unix.EBUSY:  "a live splice leads there, or a task sleeps in one of its patches; undo, or try later",
		unix.ENOENT: "no such area",
	},
	"read": {
		unix.EACCES: "not the kernel's image, a module, or an own area",
		unix.EFAULT: "nothing is mapped there (any more)",
	},
	"write code": {
		unix.EBUSY:  "a live splice leads there, or a task sleeps there; use another slot",
		unix.ERANGE: "not inside the code of one area",
		unix.EINVAL: "misaligned, or frames that are not in order or too many",
	},
	"splice": {
		unix.EINVAL:     "misaligned, or a length or form that this ISA cannot write",
		unix.ERANGE:     "the patch is not inside the code of an area",
		unix.EACCES:     "not kernel text, or text that must not be changed",
		unix.EEXIST:     "overlaps a live splice",
		unix.EBUSY:      "a kprobe is registered in the function, which has to go first; or a live patch is being loaded, or a task waits for memory in a patch of this point that was undone, and both are waited for: try again",
		unix.EOPNOTSUPP: "windows cannot be replaced on a kernel that preempts itself",
		unix.EILSEQ:     "the bytes there are not the expected ones; read them again and plan anew",
	},
	"moment": {
		unix.EINVAL: "ranges that overlap, or too many of them, or of cells",
		unix.ERANGE: "not cells of an area",
		unix.ENOSPC: "more tasks are inside than can be listed",
	},
	"wait": {
		unix.EINVAL: "too many rings, or a time that is too short or too long",
		unix.ERANGE: "not in rings of an area",
	},
	"undo": {
		unix.EBUSY:  "a kprobe sits on the splice, or a newer splice depends on it; remove that first",
		unix.ENOENT: "no such splice",
		unix.EINVAL: "the same splice twice",
		unix.EILSEQ: "someone else changed the spliced bytes",
	},
}

func refusal(op string, errno unix.Errno, index int) error {
	return &Error{Op: op, Errno: errno, Index: index, Hint: hints[op][errno]}
}

// Open opens the device and checks that both sides speak the same version.
func Open() (*Device, error) {
	fd, err := unix.Open(Path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	var errno unix.Errno
	if errors.As(err, &errno) {
		return nil, refusal("open", errno, -1)
	}
	d := &Device{fd: fd, areas: map[uint32]*Area{}}
	if _, err := d.Info(); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return d, nil
}

// Close undoes everything and gives the device back.
func (d *Device) Close() error {
	for _, a := range d.areas {
		unix.Munmap(a.cells) // cannot fail on a mapping of our own
	}
	if d.local != nil {
		unix.Munmap(d.local.cells)
	}
	for _, r := range d.rings {
		unix.Munmap(r.mapped)
	}
	d.areas, d.local, d.rings = nil, nil, nil
	return unix.Close(d.fd)
}

// Share is another descriptor of the same open device, for a child that maps cells.
// What is live stays so until that one is closed, too.
func (d *Device) Share() (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(d.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Path, err)
	}
	return os.NewFile(uintptr(fd), Path), nil
}

// call makes one request. What arg refers to must be pinned.
func (d *Device) call(op string, request uint, arg unsafe.Pointer) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(d.fd), uintptr(request), uintptr(arg))
	if errno != 0 {
		return refusal(op, errno, -1)
	}
	return nil
}

// address of b for the kernel: the memory stays where it is until unpin.
func address(pin *runtime.Pinner, b *byte) uint64 {
	pin.Pin(b)
	return uint64(uintptr(unsafe.Pointer(b)))
}

var archNames = [...]string{"", "amd64", "arm64", "riscv64"}

// Info asks for the layout of the kernel.
func (d *Device) Info() (Info, error) {
	var in kiInfo
	if err := d.call("info", iocInfo, unsafe.Pointer(&in)); err != nil {
		return Info{}, err
	}
	if in.ABI != ABIVersion || in.Arch == 0 || int(in.Arch) >= len(archNames) {
		return Info{}, fmt.Errorf("%s: module speaks version %d for architecture %d, this daemon version %d; use a pair that was built together",
			Path, in.ABI, in.Arch, ABIVersion)
	}
	return Info{
		Arch:       archNames[in.Arch],
		ImageStart: isa.Addr(in.ImageStart), ImageEnd: isa.Addr(in.ImageEnd),
		TextStart: isa.Addr(in.TextStart), TextEnd: isa.Addr(in.TextEnd),
		AreaLo: isa.Addr(in.AreaLo), AreaHi: isa.Addr(in.AreaHi),
		PageSize: int(in.PageSize), CPUs: int(in.CPUs), Features: in.Features, Loads: isa.Addr(in.Loads), TaskCPU: int(in.TaskCPU),
	}, nil
}

// AllocAnnex gets the area in the module's own text: of its patches the kernel accepts
// faults, as many at a time as there are.
func (d *Device) AllocAnnex() (*Area, error) {
	return d.alloc(kiArea{CodeLen: AnnexLen, Kind: areaAnnex})
}

// AllocArea makes codeLen bytes of code and as many of cells somewhere in
// [lo, hi), at the lowest free address.
func (d *Device) AllocArea(lo, hi isa.Addr, codeLen int) (*Area, error) {
	if codeLen <= 0 || codeLen > MaxArea {
		return nil, refusal("area", unix.EINVAL, -1)
	}
	return d.alloc(kiArea{Lo: uint64(lo), Hi: uint64(hi), CodeLen: uint32(codeLen), Kind: areaWindow})
}

// Local is cells of which each CPU has its own: Len bytes of them. Only the CPU adds
// to its own, in one instruction, so that none needs to be locked; the count is the sum.
type Local struct {
	ID     uint32
	Addr   isa.Addr // in per-CPU memory
	Len    int      // bytes for one CPU
	CPUs   int
	Offset int64 // at which the device maps the cells of all CPUs, one behind the other
	cells  []byte
}

// AllocLocal gets local cells: a page for each of so many possible CPUs. They stay
// until the device is closed; who asks again gets the same. The error wraps EOPNOTSUPP
// on ISAs that have none.
func (d *Device) AllocLocal(page, cpus int) (*Local, error) {
	if d.local != nil && page == d.local.Len {
		return d.local, nil
	}
	in := kiArea{CodeLen: uint32(page), Kind: areaLocal}
	cells, err := d.get(&in, cpus*page)
	if err != nil {
		return nil, err
	}
	d.local = &Local{ID: in.ID, Addr: isa.Addr(in.Cells), Len: page, CPUs: cpus, Offset: int64(in.MmapOffset), cells: cells}
	return d.local, nil
}

// Load is the sum of all CPUs' cells at a byte offset, each read in one access. What
// is added meanwhile may be in it. It panics if off is not that of a cell.
func (l *Local) Load(off int) (sum uint64) {
	if off%8 != 0 || off < 0 || off >= l.Len {
		panic(fmt.Sprintf("kdev: no local cell is at %d of %d bytes", off, l.Len))
	}
	for cpu := range l.CPUs {
		sum += atomic.LoadUint64((*uint64)(unsafe.Pointer(&l.cells[cpu*l.Len+off])))
	}
	return sum
}

// Rings are memory of which each CPU has a part, Len bytes.
type Rings struct {
	Each isa.Addr   // where a patch finds the address of its CPU's: see kerninst.h; 0: it cannot
	At   isa.Addr   // address of the first CPU's
	CPUs [][]uint64 // what each CPU has, as words
	Len  int

	mapped []byte
}

// AllocRings gets rings of so many bytes for each of the possible CPUs, whole pages. They are
// all 0, and stay until the device is closed. Together they have MaxArea at the most.
func (d *Device) AllocRings(bytes, cpus int) (*Rings, error) {
	in := kiArea{CodeLen: uint32(bytes), Kind: areaRings}
	all, err := d.get(&in, cpus*bytes)
	if err != nil {
		return nil, err
	}
	r := &Rings{Each: isa.Addr(in.Addr), At: isa.Addr(in.Cells), Len: bytes, mapped: all}
	for part := range slices.Chunk(all, bytes) {
		r.CPUs = append(r.CPUs, unsafe.Slice((*uint64)(unsafe.Pointer(&part[0])), bytes/8))
	}
	d.rings = append(d.rings, r)
	return r, nil
}

// Bytes are words as they are in memory: each with its lowest byte first.
func Bytes(w []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), 8*len(w))
}

// get asks for memory and maps so many bytes of its cells.
func (d *Device) get(in *kiArea, bytes int) ([]byte, error) {
	if err := d.call("area", iocArea, unsafe.Pointer(in)); err != nil {
		return nil, err
	}
	cells, err := unix.Mmap(d.fd, int64(in.MmapOffset), bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		free := kiAreaFree{ID: in.ID}
		d.call("free area", iocAreaFree, unsafe.Pointer(&free))
		return nil, fmt.Errorf("%s: map the cells of area %d: %w", Path, in.ID, err)
	}
	return cells, nil
}

func (d *Device) alloc(in kiArea) (*Area, error) {
	codeLen := int(in.CodeLen)
	cells, err := d.get(&in, codeLen)
	if err != nil {
		return nil, err
	}
	a := &Area{ID: in.ID, Addr: isa.Addr(in.Addr), CodeLen: codeLen, at: isa.Addr(in.Cells), Offset: int64(in.MmapOffset), cells: cells}
	d.areas[a.ID] = a
	return a, nil
}

// FreeArea gives an area back. Its cells must not be used any more.
func (d *Device) FreeArea(a *Area) error {
	free := kiAreaFree{ID: a.ID}
	if err := d.call("free area", iocAreaFree, unsafe.Pointer(&free)); err != nil {
		return err
	}
	delete(d.areas, a.ID)
	return unix.Munmap(a.cells)
}

// Cells is the address of the first cell.
func (a *Area) Cells() isa.Addr { return a.at }

// word is the 64-bit cell at a kernel address.
func (a *Area) word(cell isa.Addr) *uint64 {
	off := cell - a.Cells()
	if off%8 != 0 || off >= isa.Addr(a.CodeLen) {
		panic(fmt.Sprintf("kdev: cell %v is not an aligned word of the cells at %v", cell, a.Cells()))
	}
	return (*uint64)(unsafe.Pointer(&a.cells[off]))
}

// Load reads the 64-bit cell at the kernel address cell, in one access. It
// panics if that is not a cell of the area.
func (a *Area) Load(cell isa.Addr) uint64 { return atomic.LoadUint64(a.word(cell)) }

// Store writes a cell, in one access. It panics as Load does.
func (a *Area) Store(cell isa.Addr, v uint64) { atomic.StoreUint64(a.word(cell), v) }

// Read fills b with the kernel's memory at addr.
func (d *Device) Read(addr isa.Addr, b []byte) error { return d.read(addr, b, 0) }

// ReadUnprobed fills b with the kernel's memory at addr as it is without kprobes, each page
// at a moment at which nobody writes text.
func (d *Device) ReadUnprobed(addr isa.Addr, b []byte) error {
	return d.read(addr, b, readUnprobed)
}

func (d *Device) read(addr isa.Addr, b []byte, flags uint32) error {
	for len(b) > 0 {
		n := min(len(b), maxRead)
		var pin runtime.Pinner
		in := kiRead{Addr: uint64(addr), Buf: address(&pin, &b[0]), Len: uint64(n), Flags: flags}
		err := d.call("read", iocRead, unsafe.Pointer(&in))
		pin.Unpin()
		if err != nil {
			return fmt.Errorf("%d bytes at %v: %w", n, addr, err)
		}
		addr += isa.Addr(n)
		b = b[n:]
	}
	return nil
}

// Frame says how the stack is from an offset of a patch to the next Frame's: as at the
// kernel's instruction at Orig, but for Down bytes that were pushed since.
type Frame struct {
	Off, Down int
	Orig      isa.Addr
	// BP is how many bytes above the stack pointer the frame pointer is saved, if Saved.
	BP    int
	Saved bool
}

// tabled is the ISA whose kernel walks up stacks by a table.
const tabled = "amd64"

// Frames are a patch's state map as the module takes it; none where it ignores them.
func Frames(arch string, states []gen.State) []Frame {
	if arch != tabled {
		return nil
	}
	out := make([]Frame, len(states))
	for k, s := range states {
		bp, saved := s.FramePointer(arch)
		out[k] = Frame{Off: s.Off, Orig: s.Orig, Down: s.SP, BP: bp, Saved: saved}
	}
	return out
}

func (f Frame) encode() kiFrame {
	k := kiFrame{Orig: uint64(f.Orig), Off: uint16(f.Off), Down: uint16(f.Down), BP: bpKept}
	if f.Saved {
		k.BP = uint16(f.BP)
	}
	return k
}

// Site is code that stands for an instruction that the kernel finds by its address: struct
// ki_site in guest/module/uapi/kerninst.h.
type Site struct {
	Off             int
	Orig, Entry, To isa.Addr
	Key             bool // it is a static key's; else one that may fault
}

func (s Site) encode() kiSite {
	k := kiSite{Orig: uint64(s.Orig), Entry: uint64(s.Entry), To: uint64(s.To), Off: uint32(s.Off), Kind: siteFault}
	if s.Key {
		k.Kind = siteKey
	}
	return k
}

// WriteCode writes into the code of an area. Nothing live may lead there. Frames are for
// who walks up a stack from there, with the first at 0; without, he ends there.
func (d *Device) WriteCode(addr isa.Addr, code []byte, frames ...Frame) error {
	return d.WriteSites(addr, code, frames, nil)
}

// WriteSites is WriteCode of what has sites. What is there of keys is as they are, whatever code has.
func (d *Device) WriteSites(addr isa.Addr, code []byte, frames []Frame, sites []Site) error {
	if len(code) == 0 {
		return nil
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	in := kiCode{Addr: uint64(addr), Buf: address(&pin, &code[0]), Len: uint64(len(code)), N: uint32(len(frames))}
	if len(frames) > 0 {
		ks := make([]kiFrame, len(frames))
		for i, f := range frames {
			ks[i] = f.encode()
		}
		in.Frames = address(&pin, (*byte)(unsafe.Pointer(&ks[0])))
	}
	if len(sites) > 0 {
		ks := make([]kiSite, len(sites))
		for i, s := range sites {
			ks[i] = s.encode()
		}
		in.Sites, in.NSites = address(&pin, (*byte)(unsafe.Pointer(&ks[0]))), uint32(len(ks))
	}
	if err := d.call("write code", iocCode, unsafe.Pointer(&in)); err != nil {
		return fmt.Errorf("%d bytes at %v: %w", len(code), addr, err)
	}
	return nil
}

// encode lays out one splice for the module.
func (s Splice) encode() (kiSplice, bool) {
	if len(s.Old) != len(s.New) || len(s.New) > MaxPatch || s.PatchLen < 0 || s.AnnexLen < 0 || s.Span < 0 {
		return kiSplice{}, false
	}
	k := kiSplice{
		Point: uint64(s.Point), Patch: uint64(s.Patch),
		PatchLen: uint32(s.PatchLen), Len: uint32(len(s.New)),
		Fault: uint64(s.Fault), Original: uint64(s.Original), Annex: uint64(s.Annex), AnnexLen: uint32(s.AnnexLen), Span: uint32(s.Span),
	}
	copy(k.Old[:], s.Old)
	copy(k.New[:], s.New)
	if s.Window {
		k.Flags |= spliceWindow
	}
	if s.Springboard {
		k.Flags |= spliceSpringboard
	}
	if s.Code {
		k.Flags |= spliceCode
	}
	if s.Awake {
		k.Flags |= spliceAwake
	}
	if s.Trap {
		k.Flags |= spliceTrap
	}
	if s.Home {
		k.Flags |= spliceHome
	}
	return k, true
}

// Splice applies a batch, whole or not at all, in the order given, and returns
// the names of the splices.
func (d *Device) Splice(batch []Splice) ([]uint32, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	ks := make([]kiSplice, len(batch))
	var copied []kiCopied
	var resumes []kiResume
	for i, s := range batch {
		k, ok := s.encode()
		if !ok {
			return nil, refusal("splice", unix.EINVAL, i)
		}
		ks[i] = k
		for _, c := range s.Copied {
			copied = append(copied, kiCopied{Start: uint64(c[0]), End: uint64(c[1]), Splice: uint32(i)})
		}
		if len(resumes)+len(s.Resumes) > MaxResumes {
			continue // who sleeps there stays until he goes by himself
		}
		for _, r := range s.Resumes {
			resumes = append(resumes, kiResume{From: uint64(r.From), To: uint64(r.To), Splice: uint32(i)})
		}
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	in := kiBatch{Splices: address(&pin, (*byte)(unsafe.Pointer(&ks[0]))), N: uint32(len(ks)), NCopied: uint32(len(copied)), NResumes: uint32(len(resumes))}
	if len(copied) > 0 {
		in.Copied = address(&pin, (*byte)(unsafe.Pointer(&copied[0])))
	}
	if len(resumes) > 0 {
		in.Resumes = address(&pin, (*byte)(unsafe.Pointer(&resumes[0])))
	}
	if err := d.call("splice", iocSplice, unsafe.Pointer(&in)); err != nil {
		return nil, blame(err, in.Failed, in.N)
	}
	ids := make([]uint32, len(ks))
	for i := range ks {
		ids[i] = ks[i].ID
	}
	return ids, nil
}

// Undo restores the text of all the splices or of none. On return no CPU is in
// their patches; slots whose patch a task still sleeps in answer EBUSY.
func (d *Device) Undo(ids []uint32) error { return d.undo(ids, 0) }

// UndoNoWait restores the text only. The patches may be spliced to again, as
// they are; writing or freeing them waits.
func (d *Device) UndoNoWait(ids []uint32) error { return d.undo(ids, undoNoWait) }

func (d *Device) undo(ids []uint32, flags uint32) error {
	if len(ids) == 0 {
		return nil
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	in := kiUndo{IDs: address(&pin, (*byte)(unsafe.Pointer(&ids[0]))), N: uint32(len(ids)), Flags: flags}
	if err := d.call("undo", iocUndo, unsafe.Pointer(&in)); err != nil {
		return blame(err, in.Failed, in.N)
	}
	return nil
}

// blame adds the index that the module gave, if any, to its refusal.
func blame(err error, failed, n uint32) error {
	var e *Error
	if errors.As(err, &e) && failed < n {
		e.Index = int(failed)
	}
	return err
}

// Stats asks for the module's counts.
func (d *Device) Stats() (Stats, error) {
	var in kiStats
	if err := d.call("stats", iocStats, unsafe.Pointer(&in)); err != nil {
		return Stats{}, err
	}
	return Stats{
		Areas: int(in.Areas), Splices: int(in.Splices),
		Spliced: in.Spliced, Unspliced: in.Unspliced,
		Refused: in.Refused, Quarantined: in.Quarantined,
		Cycles: in.Cycles, NS: in.Ns,
	}, nil
}
