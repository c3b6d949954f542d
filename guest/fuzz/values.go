package main

import "encoding/binary"

// kind is what a field of a structure means, and so which values are worth a try.
type kind int

const (
	text   kind = iota // a kernel address at which code is
	bound              // of a range of kernel addresses
	user               // a pointer to the caller's memory
	length             // of bytes
	count              // of elements
	flags
	name // of an area or a splice
	zero // must be
)

// field is one of a structure: where it is, and how many bytes it has.
type field struct {
	off, size int
	kind      kind
}

// borders are lengths and counts at which something ends, or that overflow.
var borders = []uint64{0, 1, 2, 7, 8, 63, 64, 4095, 4096, 4097, 8192, 0x4000, 0x80000, 16384, 16385, 1 << 16, 1<<16 + 1,
	1 << 20, 16 << 20, 16<<20 + 4096, 64 << 20, 64<<20 + 1, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1<<63 - 1, 1 << 63, 1<<64 - 1, 1<<64 - 4096}

// odd is a value that a field of a kind is not likely to take.
func (f *fuzzer) odd(k kind) uint64 {
	switch k {
	case text, bound:
		return f.address()
	case user:
		return f.pointer()
	case flags:
		return 1 << f.rng.IntN(40)
	case zero:
		return 1 << f.rng.IntN(32)
	case name:
		return uint64(f.rng.Uint32())
	}
	return borders[f.rng.IntN(len(borders))]
}

// address is a kernel address, or none. None is in code that runs: what would be spliced
// there, by chance, would be wrong.
func (f *fuzzer) address() uint64 {
	in := f.k.Info
	of := []uint64{0, 1, 1<<64 - 1, 1<<64 - 4096, 1 << 63, 1<<63 - 1, 0xffff8000_00000000, addrOf(f.arena),
		uint64(in.ImageStart), uint64(in.ImageEnd), uint64(in.TextEnd), uint64(in.AreaLo), uint64(in.AreaHi), f.rng.Uint64()}
	for _, a := range f.areas {
		of = append(of, a.addr, a.addr+uint64(a.len), a.addr+uint64(f.rng.IntN(2*a.len)), a.cells)
	}
	v := f.victim()
	of = append(of, v.Addr, v.Addr+uint64(len(v.Code))-1, v.Addr+uint64(f.rng.IntN(len(v.Code))))
	return of[f.rng.IntN(len(of))]
}

// pointer is one to memory that is there, that is not, of which only a part is, or that may
// not be written.
func (f *fuzzer) pointer() uint64 {
	at := addrOf(f.arena)
	of := []uint64{0, 1, at + 1, at + arenaLen - 8, at + arenaLen, at + arenaLen - uint64(f.rng.IntN(4096)), f.readOnly, f.readOnly + 4096 - 8,
		f.noAccess, 1 << 47, 1<<63 + 8, 1<<64 - 8, uint64(f.k.Info.TextStart), f.rng.Uint64()}
	return of[f.rng.IntN(len(of))]
}

func put(b []byte, v uint64, size int) {
	switch size {
	case 2:
		binary.LittleEndian.PutUint16(b, uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(b, uint32(v))
	case 8:
		binary.LittleEndian.PutUint64(b, v)
	}
}

func get(b []byte, size int) uint64 {
	if size == 4 {
		return uint64(binary.LittleEndian.Uint32(b))
	}
	return binary.LittleEndian.Uint64(b)
}

// spoil replaces some fields of a structure by what they are not likely to take.
func (f *fuzzer) spoil(b []byte, fields []field) {
	if len(fields) == 0 {
		return
	}
	for range 1 + f.rng.IntN(2) {
		x := fields[f.rng.IntN(len(fields))]
		v := f.odd(x.kind)
		if x.kind == flags {
			v |= get(b[x.off:], x.size)
		}
		put(b[x.off:], v, x.size)
	}
}
