package kdev

// ABIVersion is the version of the module's interface that this package speaks.
const ABIVersion = 18

// Limits of the module's calls.
const (
	MaxPatch = 24       // bytes replaced at a point
	MaxBatch = 16384    // splices in one call
	MaxArea  = 16 << 20 // bytes of code and cells in one area
	AnnexLen = 0x4000   // bytes of the annex's code
	ArenaLen = 0x100000 // bytes of code of an area that may be in the module's text
	maxRead  = 64 << 20 // bytes read in one call
	// MaxWords is the most words of cells that a Moment copies.
	MaxWords = 16 << 20
	// MaxRanges and MaxInside are the most ranges of functions, and tasks inside, of a Moment.
	MaxRanges = 65536
	MaxInside = 65536
	// MaxWatched is the most rings that are waited for.
	MaxWatched = 4096
	// MaxFrames is the most that is said of the stack of one piece of code.
	MaxFrames = 1024
	// LineFrames is how many entries a line of patch memory has in the unwinder's table
	// (amd64). Two of them are for what goes on from the line before, and what ends.
	LineFrames = 32
)

// Features of a kernel, in Info.Features.
const (
	FeatureNoWindows = 1 << 0 // kernel code can be preempted: no windows
	FeatureLSE       = 1 << 1 // arm64: atomics of ARMv8.1
	FeatureTrap      = 1 << 2 // breakpoints may lead to patches
	// FeaturePreempted: a thread may lose its CPU anywhere in the kernel, in a patch too.
	FeaturePreempted = 1 << 3
	// FeatureKeys: code may have sites of static keys.
	FeatureKeys = 1 << 4
	// FeatureSited: code anywhere may have sites, not only that in the module's text.
	FeatureSited = 1 << 5
)

// Kinds of sites that code has.
const (
	siteFault = 1
	siteKey   = 2
	// MaxSites is the most of one piece of code.
	MaxSites = 1024
	// AnnexFaults is the most of all code that may fault, splices' instructions among it, and MaxKeys of static keys.
	AnnexFaults = 1024
	MaxKeys     = 4096
	// MaxResumes is the most of a batch.
	MaxResumes = 1 << 20
)

// Flags of a splice, of an undo and of a read.
const (
	spliceWindow      = 1 << 0
	spliceSpringboard = 1 << 1
	spliceCode        = 1 << 2
	spliceAwake       = 1 << 3
	spliceTrap        = 1 << 4
	spliceHome        = 1 << 5
	undoNoWait        = 1 << 0
	readUnprobed      = 1 << 0
	bpKept            = 0xffff // kiFrame.BP: it is not saved
	areaWindow        = 0
	areaAnnex         = 1
	areaLocal         = 2
	areaRings         = 3
)

// The structures of kerninst.h, field by field. They are fixed-width and have
// no implicit padding, so Go and C lay them out alike; layout_test.go holds
// them against the literals that the module is compiled with.
type (
	kiInfo struct {
		ABI, Arch            uint32
		ImageStart, ImageEnd uint64
		TextStart, TextEnd   uint64
		AreaLo, AreaHi       uint64
		PageSize, CPUs       uint32
		Features, TaskCPU    uint32
		Loads                uint64
	}
	kiArea struct {
		Lo, Hi      uint64
		CodeLen, ID uint32
		Addr        uint64
		MmapOffset  uint64
		Cells       uint64
		Kind        uint32
		Reserved    uint32
	}
	kiAreaFree struct {
		ID, Reserved uint32
	}
	kiRead struct {
		Addr, Buf, Len  uint64
		Flags, Reserved uint32
	}
	kiCode struct {
		Addr, Buf, Len uint64
		Frames, Sites  uint64
		N, NSites      uint32
	}
	kiSite struct {
		Orig, Entry, To uint64
		Off, Kind       uint32
	}
	kiFrame struct {
		Orig                    uint64
		Off, Down, BP, Reserved uint16
	}
	kiSplice struct {
		Point, Patch uint64
		PatchLen     uint32
		Len          uint32
		Flags        uint32
		ID           uint32
		Fault        uint64
		Original     uint64
		Annex        uint64
		AnnexLen     uint32
		Span         uint32
		Old, New     [MaxPatch]byte
	}
	kiBatch struct {
		Splices           uint64
		N, Failed         uint32
		Copied, Resumes   uint64
		NCopied, NResumes uint32
	}
	kiResume struct {
		From, To         uint64
		Splice, Reserved uint32
	}
	kiCopied struct {
		Start, End       uint64
		Splice, Reserved uint32
	}
	kiUndo struct {
		IDs             uint64
		N, Failed       uint32
		Flags, Reserved uint32
	}
	kiCells struct {
		Addr         uint64
		Words, Local uint32
	}
	kiRange struct {
		Start, End   uint64
		ID, Reserved uint32
	}
	kiInside struct {
		TGID, TID  uint32
		ID, Frames uint32
		Comm       [16]byte
		Clock      uint64
	}
	kiMoment struct {
		Cells, Words, Ranges, Inside  uint64
		NCells, NWords, NRanges, Room uint32
		Found, Cut                    uint32
		Cycles, Ns                    uint64
		Clocks                        uint64
		NClocks, Reserved             uint32
	}
	kiRing struct {
		At             uint64
		Room, Reserved uint32
	}
	kiWait struct {
		Rings           uint64
		Period, Timeout uint64
		N, Reserved     uint32
	}
	kiStats struct {
		Areas, Splices     uint32
		Spliced, Unspliced uint64
		Refused            uint64
		Quarantined        uint64
		Cycles, Ns         uint64
	}
)

// Request numbers: direction << 30 | size << 16 | 0xce << 8 | number, with
// 1 for "the caller writes" and 2 for "the caller reads" as direction, alike on
// all three ISAs.
const (
	iocInfo     = 0x8050ce00
	iocArea     = 0xc038ce01
	iocAreaFree = 0x4008ce02
	iocRead     = 0x4020ce03
	iocCode     = 0x4030ce04
	iocSplice   = 0xc028ce05
	iocUndo     = 0xc018ce06
	iocStats    = 0x8038ce07
	iocMoment   = 0xc058ce08
	iocWait     = 0x4020ce09
	iocWake     = 0x0000ce0a
)
