package main

import (
	"bytes"
	"encoding/binary"
	"slices"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/kdev"
)

// call is one of the device's: its structure as agent/kdev/layout.go has it, what its fields
// mean, and how to fill it with values that are right, as far as that is known.
type call struct {
	name   string
	cmd    uintptr
	size   int
	weight int // how often, of all
	fields []field
	fill   func(f *fuzzer, b []byte)
	// done is told that it succeeded, with what came back.
	done func(f *fuzzer, b []byte)
}

// calls are all there are.
var calls = []call{
	{name: "info", cmd: 0x8050ce00, size: 80, weight: 4},
	{name: "area", cmd: 0xc038ce01, size: 56, weight: 12, fill: fillArea, done: haveArea,
		fields: []field{{0, 8, bound}, {8, 8, bound}, {16, 4, length}, {48, 4, flags}, {52, 4, zero}}},
	{name: "area free", cmd: 0x4008ce02, size: 8, weight: 12, fill: fillFree, done: lostArea,
		fields: []field{{0, 4, name}, {4, 4, zero}}},
	{name: "read", cmd: 0x4020ce03, size: 32, weight: 16, fill: fillRead,
		fields: []field{{0, 8, text}, {8, 8, user}, {16, 8, length}, {24, 4, flags}, {28, 4, zero}}},
	{name: "code", cmd: 0x4030ce04, size: 48, weight: 24, fill: fillCode,
		fields: []field{{0, 8, text}, {8, 8, user}, {16, 8, length}, {24, 8, user}, {32, 8, user}, {40, 4, count}, {44, 4, count}}},
	{name: "splice", cmd: 0xc028ce05, size: 40, weight: 20, fill: fillSplice, done: haveSplices,
		fields: []field{{0, 8, user}, {8, 4, count}, {16, 8, user}, {24, 8, user}, {32, 4, count}, {36, 4, count}}},
	{name: "undo", cmd: 0xc018ce06, size: 24, weight: 20, fill: fillUndo, done: lostSplices,
		fields: []field{{0, 8, user}, {8, 4, count}, {16, 4, flags}, {20, 4, zero}}},
	{name: "stats", cmd: 0x8038ce07, size: 56, weight: 8},
	{name: "moment", cmd: 0xc058ce08, size: 88, weight: 1, fill: fillMoment,
		fields: []field{{0, 8, user}, {8, 8, user}, {16, 8, user}, {24, 8, user}, {32, 4, count}, {36, 4, count}, {40, 4, count}, {44, 4, count},
			{72, 8, text}, {80, 4, count}, {84, 4, zero}}},
	{name: "wait", cmd: 0x4020ce09, size: 32, weight: 2, fill: fillWait,
		fields: []field{{0, 8, user}, {8, 8, length}, {16, 8, length}, {24, 4, count}, {28, 4, zero}}},
	{name: "wake", cmd: 0x0000ce0a, weight: 1},
}

// The arena: a call's structure, the lists that it points to, and what is copied.
const (
	arenaLen = 1 << 20
	listAt   = 64 << 10
	listAt2  = 128 << 10
	listAt3  = 192 << 10
	bytesAt  = 256 << 10
)

// dear is how many calls there are for each that the kernel takes long for: one that changes
// text has all CPUs wait.
var dear = 12

func (f *fuzzer) at(off int) uint64 { return addrOf(f.arena) + uint64(off) }

func (f *fuzzer) area() *area { return f.one(f.areas) }

// codeArea is one that has code.
func (f *fuzzer) codeArea() *area {
	var have []*area
	for _, a := range f.areas {
		if a.kind < 2 {
			have = append(have, a)
		}
	}
	return f.one(have)
}

func (f *fuzzer) one(of []*area) *area {
	if len(of) == 0 {
		return nil
	}
	return of[f.rng.IntN(len(of))]
}

// mostAreas is how many there are at once, besides local cells and rings, which stay until
// the device is closed: seldom is one asked for.
const mostAreas = 6

// kindsOfAreas is what is asked for, as often as it is in the list.
var kindsOfAreas = []uint64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 3}

func fillArea(f *fuzzer, b []byte) {
	kind := kindsOfAreas[f.rng.IntN(len(kindsOfAreas))]
	n := uint64(4096 * (1 + f.rng.IntN(4)))
	if kind == 1 {
		n = kdev.AnnexLen
	}
	if kind == 2 {
		n = 4096
	}
	if kind == 0 {
		put(b[0:], uint64(f.reach.Lo), 8)
		put(b[8:], uint64(f.reach.Hi), 8)
	}
	going := 0
	for _, a := range f.areas {
		if a.kind < 2 {
			going++
		}
	}
	if kind < 2 && going >= mostAreas || len(f.areas) >= 4*mostAreas || f.rng.IntN(dear) >= 12 {
		n = 0
	}
	put(b[16:], n, 4)
	put(b[48:], kind, 4)
}

func haveArea(f *fuzzer, b []byte) {
	a := &area{id: get(b[20:], 4), len: int(get(b[16:], 4)), addr: get(b[24:], 8), offset: get(b[32:], 8), cells: get(b[40:], 8), kind: get(b[48:], 4)}
	f.areas = append(f.areas, a)
}

func fillFree(f *fuzzer, b []byte) {
	if a := f.area(); a != nil && (a.kind < 2 || f.rng.IntN(dear) == 0) {
		put(b, a.id, 4)
	}
}

func lostArea(f *fuzzer, b []byte) {
	id := get(b, 4)
	f.areas = slices.DeleteFunc(f.areas, func(a *area) bool { return a.id == id })
}

func fillRead(f *fuzzer, b []byte) {
	v := f.victim()
	put(b[0:], v.Addr, 8)
	put(b[8:], f.at(bytesAt), 8)
	put(b[16:], uint64(1+f.rng.IntN(8192)), 8)
	put(b[24:], uint64(f.rng.IntN(2)), 4) // with kprobes, or without
}

// long reports whether a list is to be long: what is forgotten of a short one is too little to be
// seen before there are millions of calls.
func (f *fuzzer) long() bool { return f.rng.IntN(4) == 0 }

// mostCode is what all of an area's code is said in, of which an offset has 16 bits.
const mostCode = 32 << 10

// fillWhole is code for all of an area, with a frame for each line.
func fillWhole(f *fuzzer, b []byte, a *area) {
	n := min(a.len, mostCode)
	put(b[0:], a.addr, 8)
	put(b[8:], f.at(bytesAt), 8)
	put(b[16:], uint64(n), 8)
	put(b[24:], f.at(listAt), 8)
	put(b[40:], uint64(n/64), 4)
	for k := range n / 64 {
		x := f.arena[listAt+16*k:]
		put(x, f.victim().Addr, 8)
		put(x[8:], uint64(64*k), 2)
		put(x[10:], 0, 2)
		put(x[12:], 0xffff, 2)
		put(x[14:], 0, 2)
	}
}

func fillCode(f *fuzzer, b []byte) {
	if a := f.area(); a != nil && a.kind < 2 && f.long() {
		fillWhole(f, b, a)
		return
	}
	n := uint64(64 * (1 + f.rng.IntN(4)))
	put(b[8:], f.at(bytesAt), 8)
	put(b[16:], n, 8)
	put(b[24:], f.at(listAt), 8)
	if a := f.area(); a != nil {
		put(b[0:], a.addr+uint64(64*f.rng.IntN(a.len/64)), 8)
	}
	frames := f.rng.IntN(4)
	put(b[40:], uint64(frames), 4)
	if f.long() {
		f.fillSites(b)
	}
	for k := range frames {
		x := f.arena[listAt+16*k:]
		clear(x[:16])
		put(x, f.victim().Addr, 8)
		put(x[8:], uint64(k*16), 2)
		put(x[10:], uint64(8*f.rng.IntN(4)), 2)
		put(x[12:], 0xffff, 2)
		if f.rng.IntN(8) == 0 {
			put(x[8+2*f.rng.IntN(4):], uint64(f.rng.Uint32()), 2)
		}
	}
}

// siteSize is that of struct ki_site.
const siteSize = 32

var siteFields = []field{{0, 8, text}, {8, 8, text}, {16, 8, text}, {24, 4, length}, {28, 4, flags}}

// fillSites are sites of code, most of them such as there are.
func (f *fuzzer) fillSites(b []byte) {
	n := f.rng.IntN(4)
	put(b[32:], f.at(listAt2), 8)
	put(b[44:], uint64(n), 4)
	for k := range n {
		s := f.arena[listAt2+siteSize*k:][:siteSize]
		clear(s)
		of := f.k.Sites[f.rng.IntN(len(f.k.Sites))]
		put(s, of.Orig, 8)
		put(s[8:], of.Entry, 8)
		put(s[24:], uint64(8*k+f.rng.IntN(3)), 4)
		put(s[28:], uint64(1+min(of.Entry, 1)), 4)
		if f.long() {
			f.spoil(s, siteFields)
		}
	}
}

// spliceSize is that of struct ki_splice.
const spliceSize = 64 + 2*kdev.MaxPatch

// spliceFields are its fields; the bytes come behind them. The point stays in a function
// that nobody runs, but for those that are misplaced.
var spliceFields = []field{{8, 8, text}, {16, 4, length}, {20, 4, length}, {24, 4, flags}, {24, 4, flags}, {32, 8, text}, {40, 8, text}, {48, 8, text},
	{56, 4, length}, {60, 4, length}, {64, 8, count}, {64 + kdev.MaxPatch, 8, count}}

// copiedSize is that of struct ki_copied, and copiedFields are its fields.
const copiedSize = 24

var copiedFields = []field{{0, 8, text}, {8, 8, text}, {16, 4, count}, {20, 4, zero}}

// righter is how many batches of which all is right there are for each call that the kernel takes long for: it takes
// longer for these, and for undoing them.
const righter = 10

func fillSplice(f *fuzzer, b []byte) {
	n, copied := 1+f.rng.IntN(3), f.rng.IntN(3)
	f.elsewhere = f.rng.IntN(dear) == 0 // and right but for that, or nobody would look where
	if f.elsewhere {
		n, copied = 1, 0
	}
	// Drawn once for all of a batch: of things that are right by chance there are never many together.
	f.right = !f.elsewhere && f.rng.IntN(righter*dear) == 0 && f.codeArea() != nil
	wrong := f.rng.IntN(n + copied) // one is for sure
	put(b[0:], f.at(listAt), 8)
	put(b[8:], uint64(n), 4)
	for k := range n {
		s := f.arena[listAt+k*spliceSize:][:spliceSize]
		f.splice(s)
		if f.elsewhere {
			f.misplaced(s)
		} else {
			f.spoilMost(s, spliceFields, k == wrong)
		}
	}
	f.copies(b, n, copied, wrong-n)
	f.resumes(b, n)
	if !f.right && f.long() { // what is behind them is nothing
		clear(f.arena[listAt+n*spliceSize : listAt2])
		put(b[8:], (listAt2-listAt)/spliceSize, 4)
	}
}

// copies says what some of n splices are copies of.
func (f *fuzzer) copies(b []byte, n, copied, wrong int) {
	put(b[16:], f.at(listAt2), 8)
	of := 0
	for k := range copied {
		v, c := f.victim(), f.arena[listAt2+k*copiedSize:][:copiedSize]
		of += f.rng.IntN(n - of) // in the splices' order
		put(c[0:], uint64(v.Addr), 8)
		put(c[8:], uint64(v.Addr)+uint64(len(v.Code)), 8)
		put(c[16:], uint64(of), 4)
		put(c[20:], 0, 4)
		f.spoilMost(c, copiedFields, k == wrong)
	}
	put(b[32:], uint64(copied), 4)
}

// resumeSize is that of struct ki_resume, and resumeFields are its fields.
const resumeSize = 24

var resumeFields = []field{{0, 8, text}, {8, 8, text}, {16, 4, count}, {20, 4, zero}}

// resumes says of some of n splices where who sleeps in their patches goes on: anywhere in a function that nobody runs.
func (f *fuzzer) resumes(b []byte, n int) {
	put(b[24:], f.at(listAt3), 8)
	all := 0
	for k := range n {
		s := f.arena[listAt+k*spliceSize:][:spliceSize]
		for off := 4 * f.rng.IntN(4); off < 64 && f.rng.IntN(3) != 0; off += 4 + 4*f.rng.IntN(8) {
			v, r := f.victim(), f.arena[listAt3+all*resumeSize:][:resumeSize]
			put(r[0:], get(s[8:], 8)+uint64(off), 8)
			put(r[8:], uint64(v.Addr)+uint64(f.rng.IntN(len(v.Code)))&^3, 8)
			put(r[16:], uint64(k), 4)
			put(r[20:], 0, 4)
			if !f.right && f.rng.IntN(dear) == 0 {
				f.spoil(r, resumeFields)
			}
			all++
		}
	}
	put(b[36:], uint64(all), 4)
}

// nowhere is what stands nowhere in code, so that what is to replace it is never written.
var nowhere = []byte{0xde, 0xad, 0x06, 0xde}

// misplaced moves a splice to anywhere, such as into text that runs, begins in the middle of an instruction or is the
// module's own, or to where there is none: if the module does not refuse the place it finds other bytes there.
func (f *fuzzer) misplaced(s []byte) {
	in, at := f.k.Info, f.address()
	if f.rng.IntN(4) != 0 { // in the kernel's text, or up to a page behind it
		at = uint64(in.TextStart) + f.rng.Uint64N(uint64(in.TextEnd-in.TextStart)+4096)
	}
	put(s[0:], at, 8)
	was, becomes := s[64:64+kdev.MaxPatch], s[64+kdev.MaxPatch:spliceSize]
	n := len(nowhere) // or a longer one that leads to its patch from there
	made, _, err := gen.Entry(f.k.arch, isa.Addr(at), isa.Addr(get(s[8:], 8)), freeReg[f.k.arch.Name])
	switch {
	case get(s[24:], 4)&trap != 0 || err != nil:
		made = bytes.Repeat(f.k.arch.Break, n/len(f.k.arch.Break))
	default:
		n = max(n, len(made))
	}
	put(s[20:], uint64(n), 4)
	clear(was)
	clear(becomes)
	copy(was, bytes.Repeat(nowhere, n/len(nowhere)+1)[:n])
	copy(becomes, made)
}

// trap has who comes to a splice trap.
const trap = 1 << 4

// awake says that nobody falls asleep in a patch: then a word on a stack of who sleeps, which
// looks as if he did, keeps nothing. It stays said, or what such words keep would be left.
const awake = 1 << 3

// splice fills in a jump, a window's or a breakpoint at some instruction of a victim.
func (f *fuzzer) splice(s []byte) {
	clear(s)
	v, a := f.victim(), f.codeArea()
	if a == nil {
		return
	}
	arch := f.k.arch
	at := 0
	for to := f.rng.IntN(len(v.Code)); ; {
		i := arch.Decode(v.Code[at:], isa.Addr(v.Addr)+isa.Addr(at))
		if at+i.Len >= to || at+2*i.Len > len(v.Code) {
			break
		}
		at += i.Len
	}
	point := isa.Addr(v.Addr) + isa.Addr(at)
	n := arch.Decode(v.Code[at:], point).Len
	patch := isa.Addr(a.addr) + isa.Addr(64*f.rng.IntN(a.len/64))
	made, _, err := gen.Entry(arch, point, patch, freeReg[arch.Name])
	what := uint64(0)
	if err != nil || f.rng.IntN(4) == 0 {
		made, what = slices.Clone(arch.Break), trap
		for len(made) < n {
			made = append(made, arch.Break...)
		}
	} else if len(made) > n {
		n, what = len(made), 1 // a window, which nobody is in
	}
	for len(made) < n {
		made = append(made, arch.Break...)
	}
	if at+n > len(v.Code) || n > kdev.MaxPatch {
		return
	}
	put(s[0:], uint64(point), 8)
	put(s[8:], uint64(patch), 8)
	put(s[16:], 64, 4)
	put(s[20:], uint64(n), 4)
	put(s[24:], what|awake, 4)
	copy(s[64:64+kdev.MaxPatch], v.Code[at:at+n])
	copy(s[64+kdev.MaxPatch:], made)
}

// freeReg is what a far jump goes through on riscv64: t1.
var freeReg = map[string]isa.Reg{"riscv64": 6}

func haveSplices(f *fuzzer, b []byte) {
	f.Made[batches]++
	if get(b[32:], 4) > 0 {
		f.Made[withCopies]++
	}
	if get(b[36:], 4) > 0 {
		f.Made[withResumes]++
	}
	for k := range int(get(b[8:], 4)) {
		f.ids = append(f.ids, binary.LittleEndian.Uint32(f.arena[listAt+k*spliceSize+28:]))
	}
}

func fillUndo(f *fuzzer, b []byte) {
	put(b[0:], f.at(listAt), 8)
	put(b[16:], 1, 4) // who waits, waits long
	n := min(1+f.rng.IntN(3), len(f.ids))
	put(b[8:], uint64(n), 4)
	for k := range n {
		put(f.arena[listAt+4*k:], uint64(f.ids[len(f.ids)-1-k]), 4)
	}
	if n > 0 && f.rng.IntN(dear) != 0 {
		put(f.arena[listAt+4*f.rng.IntN(n):], f.odd(name), 4)
	}
	if f.rng.IntN(dear) == 0 {
		put(b[16:], 0, 4)
	}
	if f.long() { // what is behind them is nobody's
		clear(f.arena[listAt+4*n : listAt2])
		put(b[8:], (listAt2-listAt)/4-1, 4)
	}
}

func lostSplices(f *fuzzer, b []byte) {
	for k := range int(get(b[8:], 4)) {
		id := binary.LittleEndian.Uint32(f.arena[listAt+4*k:])
		f.ids = slices.DeleteFunc(f.ids, func(x uint32) bool { return x == id })
	}
}

// fillWait waits for a moment for what may be rings.
func fillWait(f *fuzzer, b []byte) {
	put(b[0:], f.at(listAt), 8)
	put(b[8:], uint64(100_000+f.rng.IntN(100_000)), 8)
	put(b[16:], uint64(1+f.rng.IntN(500_000)), 8)
	if a := f.area(); a != nil {
		r := f.arena[listAt:]
		put(r, a.cells, 8)
		put(r[8:], uint64(f.rng.IntN(1<<16)), 4)
		put(r[12:], 0, 4)
		f.spoilSome(r[:16], []field{{0, 8, text}, {8, 4, length}, {12, 4, zero}})
		put(b[24:], 1, 4)
	}
}

func fillMoment(f *fuzzer, b []byte) {
	put(b[0:], f.at(listAt), 8)
	put(b[8:], f.at(bytesAt), 8)
	put(b[16:], f.at(listAt2), 8)
	put(b[24:], f.at(bytesAt+(128<<10)), 8)
	words := uint64(0)
	cells := 0
	if a := f.area(); a != nil {
		words, cells = uint64(1+f.rng.IntN(16)), 1
		if f.long() {
			words = 512
		}
		c := f.arena[listAt:]
		clear(c[:16])
		put(c, a.cells, 8)
		put(c[8:], words, 4)
		if a.kind == 2 {
			put(c[12:], 1, 4)
		}
		f.spoilSome(c[:16], []field{{0, 8, text}, {8, 4, count}, {12, 4, zero}})
	}
	ranges := f.rng.IntN(3)
	at := uint64(f.k.Info.TextStart)
	for k := range ranges {
		r := f.arena[listAt2+24*k:]
		clear(r[:24])
		put(r, at, 8)
		at += uint64(1 + f.rng.IntN(1<<20))
		put(r[8:], at, 8)
		put(r[16:], uint64(k), 4)
		f.spoilSome(r[:24], []field{{0, 8, text}, {8, 8, text}, {16, 4, name}, {20, 4, zero}})
	}
	put(b[32:], uint64(cells), 4)
	put(b[36:], words, 4)
	put(b[40:], uint64(ranges), 4)
	put(b[44:], 64, 4)
}

// spoilMost spoils most of what is in no batch of which all is right, and what is sure to be wrong there: that mostly
// twice, for what stands there now may do as well.
func (f *fuzzer) spoilMost(b []byte, fields []field, sure bool) {
	if f.right || !sure && f.rng.IntN(4) == 0 {
		return
	}
	f.spoil(b, fields)
	if sure && f.rng.IntN(dear) != 0 {
		f.spoil(b, fields)
	}
}

func (f *fuzzer) spoilSome(b []byte, fields []field) {
	if f.rng.IntN(4) == 0 {
		f.spoil(b, fields)
	}
}

// some is one of the calls, as often as its weight says.
func (f *fuzzer) some() *call {
	all := 0
	for k := range calls {
		all += calls[k].weight
	}
	n := f.rng.IntN(all)
	for k := range calls {
		if n -= calls[k].weight; n < 0 {
			return &calls[k]
		}
	}
	return nil
}

// once makes a call, mostly with something that is wrong about it.
func (f *fuzzer) once() {
	c := f.some()
	b := f.arena[:c.size]
	clear(b)
	f.elsewhere, f.right = false, false
	if c.fill != nil {
		c.fill(f, b)
	}
	arg, cmd := f.at(0), c.cmd
	if !f.right {
		arg, cmd = f.mistaken(c, b)
	}
	errno := ioctl(f.fd, cmd, uintptr(arg))
	f.answered(c.name, errno)
	if f.elsewhere {
		f.answered("elsewhere", errno)
	}
	if f.right {
		f.answered("right", errno)
	}
	if errno == 0 && arg == f.at(0) && cmd == c.cmd && c.done != nil {
		c.done(f, b)
	}
}

// mistaken spoils each other call's structure, and seldom has it be elsewhere or for another call.
func (f *fuzzer) mistaken(c *call, b []byte) (arg uint64, cmd uintptr) {
	if f.rng.IntN(2) == 0 {
		f.spoil(b, c.fields)
	}
	switch f.rng.IntN(64) {
	case 0:
		return f.pointer(), c.cmd
	case 1:
		return f.at(0), c.cmd ^ 1<<f.rng.IntN(32)
	}
	return f.at(0), c.cmd
}
