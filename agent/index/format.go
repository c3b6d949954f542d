package index

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
)

// Version is part of the magic, and of what an index's name is made from: count
// it up when the format or what is written into it changes.
const Version = 7

// chunk is how much one sum covers, in bytes: touching a record costs the sum of
// one or two chunks, once.
const chunk = 16 << 10

// maxSize bounds an index, in bytes.
const maxSize = 64 << 20

// magic begins every index.
var magic = [8]byte{'k', 'i', 'n', 'd', 'e', 'x', ' ', '0' + Version}

// Tables by their number in the header.
const (
	tableSums = iota
	tableAbout
	tableFuncs
	tableBlocks
	tableEdges
	tableMasks
	tableTexts
	tables
)

// widths of the tables' records, in bytes.
var widths = [tables]int{4, 1, funcWidth, blockWidth, edgeWidth, maskWidth, 4}

const (
	funcWidth  = 32
	blockWidth = 20
	edgeWidth  = 24
)

// header is the beginning of the file as it lies there.
type header struct {
	Magic  [8]byte
	Arch   [8]byte  // the ISA's name, then zeros
	Source [32]byte // SHA-256 of the dump that it was made from
	Size   uint64   // of the file, in bytes
	Text   uint64   // of the kernel's text, in bytes
	Tables [tables]extent
	_      uint32
	Sums   uint32 // CRC-32C of the sums
	Sum    uint32 // CRC-32C of the header before this field
	_      uint32
}

// extent is where a table lies: offset in the file and number of records.
type extent struct {
	Off   uint64
	Count uint64
}

var (
	headerSize = binary.Size(header{})
	order      = binary.LittleEndian
	crcTable   = crc32.MakeTable(crc32.Castagnoli)
)

// encode gives the header as bytes, its sum filled in.
func (h *header) encode() []byte {
	var b bytes.Buffer
	_ = binary.Write(&b, order, h) // to memory
	out := b.Bytes()
	order.PutUint32(out[headerSize-8:], crc32.Checksum(out[:headerSize-8], crcTable))
	return out
}

// Func is one function: a symbol's code up to the next symbol.
type Func struct {
	Start  isa.Off // from _stext
	Size   isa.Off
	First  Block   // of its blocks
	Blocks int     // how many
	Skip   isa.Off // bytes at its start that ftrace owns: not in the hash
	Hash   uint64  // of its text; see hashes
	Traced bool    // an ftrace site begins it: it is compiled code
	// Rebases: some instruction may change what a CPU finds per-CPU memory with.
	Rebases bool
}

// Block numbers a block of the index.
type Block uint32

// NoBlock is no block.
const NoBlock = ^Block(0)

// Info is one block. Its end is the start of the next.
type Info struct {
	Start  isa.Off // from _stext
	End    isa.Off
	Kind   cfg.Kind
	Site   bool // the kernel rewrites its last instruction while it runs
	Odd    bool // not instructions end to end: one runs over the end, or bytes are none
	Marks  cfg.Mark
	Target Block      // of its last instruction; NoBlock if there is none in the kernel
	Out    isa.RegSet // live behind its last instruction; at a call, as the callee begins
}

// holdsCode tells instructions from padding and data, also where code is seen to
// run into it.
func (i *Info) holdsCode() bool { return i.Kind != cfg.KindPad && i.Marks&cfg.Data == 0 }

// Edge leaves a block by other ways than its last instruction shows.
type Edge struct {
	From, To Block
	Fault    bool       // taken instead of the block's only instruction
	Live     isa.RegSet // on the way of a fault
}

const (
	funcTraced = 1 << iota
	funcRebases
)

const (
	blockSite = 1 << iota
	blockOdd
)

func (f *Func) append(b []byte) []byte {
	flags := uint32(0)
	if f.Traced {
		flags |= funcTraced
	}
	if f.Rebases {
		flags |= funcRebases
	}
	for _, v := range []uint32{uint32(f.Start), uint32(f.Size), uint32(f.First), uint32(f.Blocks), uint32(f.Skip), flags} {
		b = order.AppendUint32(b, v)
	}
	return order.AppendUint64(b, f.Hash)
}

func decodeFunc(b []byte) Func {
	return Func{
		Start: isa.Off(order.Uint32(b)), Size: isa.Off(order.Uint32(b[4:])),
		First: Block(order.Uint32(b[8:])), Blocks: int(order.Uint32(b[12:])),
		Skip: isa.Off(order.Uint32(b[16:])), Traced: order.Uint32(b[20:])&funcTraced != 0,
		Rebases: order.Uint32(b[20:])&funcRebases != 0, Hash: order.Uint64(b[24:]),
	}
}

func (i *Info) append(b []byte) []byte {
	flags := byte(0)
	if i.Site {
		flags |= blockSite
	}
	if i.Odd {
		flags |= blockOdd
	}
	b = order.AppendUint32(b, uint32(i.Start))
	b = order.AppendUint32(b, uint32(i.Target))
	b = append(b, byte(i.Kind), flags)
	b = order.AppendUint16(b, uint16(i.Marks))
	return order.AppendUint64(b, uint64(i.Out))
}

// decodeInfo leaves the end to the caller.
func decodeInfo(b []byte) Info {
	return Info{
		Start: isa.Off(order.Uint32(b)), Target: Block(order.Uint32(b[4:])),
		Kind: cfg.Kind(b[8]), Site: b[9]&blockSite != 0, Odd: b[9]&blockOdd != 0,
		Marks: cfg.Mark(order.Uint16(b[10:])),
		Out:   isa.RegSet(order.Uint64(b[12:])),
	}
}

func (e *Edge) append(b []byte) []byte {
	fault := uint64(0)
	if e.Fault {
		fault = 1
	}
	b = order.AppendUint32(b, uint32(e.From))
	b = order.AppendUint32(b, uint32(e.To))
	b = order.AppendUint64(b, fault)
	return order.AppendUint64(b, uint64(e.Live))
}

func decodeEdge(b []byte) Edge {
	return Edge{
		From: Block(order.Uint32(b)), To: Block(order.Uint32(b[4:])),
		Fault: order.Uint64(b[8:]) != 0, Live: isa.RegSet(order.Uint64(b[16:])),
	}
}

// Damaged says that bytes are not an index, or not the one that was written. It
// has to be made again.
type Damaged struct{ What string }

func (e *Damaged) Error() string { return "index: " + e.What }

func damaged(format string, args ...any) error { return &Damaged{fmt.Sprintf(format, args...)} }
