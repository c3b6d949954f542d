package main

import (
	"bytes"
	"math/rand/v2"

	"golang.org/x/sys/unix"

	"kerninst/agent/isa"
	"kerninst/agent/kdev"
)

// refusal is a request that must be answered by one errno and change nothing.
type refusal struct {
	what string
	want unix.Errno
	do   func(e *env) error
}

// area asks for memory in a window; what is given by mistake is not used.
func area(lo, hi func(kdev.Info) isa.Addr, n int) func(*env) error {
	return func(e *env) error {
		_, err := e.dev.AllocArea(lo(e.info), hi(e.info), n)
		return err
	}
}

func at(a isa.Addr) func(kdev.Info) isa.Addr { return func(kdev.Info) isa.Addr { return a } }

func imageStart(i kdev.Info) isa.Addr { return i.ImageStart }
func imageEnd(i kdev.Info) isa.Addr   { return i.ImageEnd }
func areaLo(i kdev.Info) isa.Addr     { return i.AreaLo }
func areaHi(i kdev.Info) isa.Addr     { return i.AreaHi }

// splice asks for the prepared splice with something wrong about it.
func splice(spoil func(e *env, s *kdev.Splice)) func(*env) error {
	return func(e *env) error {
		s := whole(e.one)
		spoil(e, &s)
		ids, err := e.dev.Splice([]kdev.Splice{s})
		if err == nil {
			return e.dev.Undo(ids)
		}
		return err
	}
}

func read(from func(kdev.Info) isa.Addr) func(*env) error {
	return func(e *env) error { return e.dev.Read(from(e.info), make([]byte, 16)) }
}

func write(to func(*env) isa.Addr) func(*env) error {
	return func(e *env) error { return e.dev.WriteCode(to(e), make([]byte, 64)) }
}

var refused = []refusal{
	{"area over _text", unix.EACCES, area(imageStart, imageEnd, 4096)},
	{"area below the range", unix.EACCES, area(at(0x1000), areaLo, 4096)},
	{"area in user space", unix.EACCES, area(at(0x1000), at(0x100000), 4096)},
	{"area above the range", unix.EACCES, area(areaHi, at(^isa.Addr(0)), 4096)},
	{"area in an empty window", unix.EINVAL, area(areaLo, areaLo, 4096)},
	{"area of half a page", unix.EINVAL, area(areaLo, areaHi, 2048)},
	{"area too long", unix.EINVAL, area(areaLo, areaHi, 16<<20)},
	{"area where one is", unix.ENOSPC, func(e *env) error {
		_, err := e.dev.AllocArea(e.area.Addr, e.area.Addr+2*areaSize, areaSize)
		return err
	}},
	{"read user memory", unix.EACCES, read(at(0x10000))},
	{"code outside areas", unix.ERANGE, write(func(e *env) isa.Addr { return e.info.TextStart })},
	{"code into cells", unix.ERANGE, write(func(e *env) isa.Addr { return e.area.Cells() })},
	{"code across the end", unix.ERANGE, write(func(e *env) isa.Addr { return e.area.Cells() - 32 })},
	{"splice: other bytes are there", unix.EILSEQ, splice(func(_ *env, s *kdev.Splice) { s.Old[0] ^= 1 })},
	{"splice: patch in the cells", unix.ERANGE, splice(func(e *env, s *kdev.Splice) { s.Patch = e.area.Cells() })},
	{"splice: patch without length", unix.EINVAL, splice(func(_ *env, s *kdev.Splice) { s.PatchLen = 0 })},
	{"splice: patch longer than its area", unix.ERANGE, splice(func(_ *env, s *kdev.Splice) { s.PatchLen = 2 * areaSize })},
	{"splice: too many bytes", unix.EINVAL, splice(func(_ *env, s *kdev.Splice) { s.Old, s.New = make([]byte, 17), make([]byte, 17) })},
	{"splice: twice in a batch", unix.EEXIST, func(e *env) error {
		s := whole(e.one)
		_, err := e.dev.Splice([]kdev.Splice{s, s})
		return err
	}},
	{"splice: the second of a batch is wrong", unix.EILSEQ, func(e *env) error {
		p, err := e.plan(e.one.Offset + isa.Off(e.one.Back-e.one.Point))
		if err != nil {
			return err
		}
		s := whole(p)
		s.Old[0] ^= 1
		_, err = e.dev.Splice([]kdev.Splice{whole(e.one), s})
		return err
	}},
	{"splice: batch too long", unix.EINVAL, func(e *env) error {
		_, err := e.dev.Splice(make([]kdev.Splice, 4097))
		return err
	}},
	{"undo what is not there", unix.ENOENT, func(e *env) error { return e.dev.Undo([]uint32{1 << 31}) }},
	{"open twice", unix.EBUSY, func(*env) error { _, err := kdev.Open(); return err }},
	{"unload while open", unix.EAGAIN, func(*env) error { return kdev.Unload(kdev.ModuleName) }},
}

// whileLive are refused because a splice is live.
var whileLive = []refusal{
	{"splice over a live one", unix.EEXIST, splice(func(*env, *kdev.Splice) {})},
	{"code under a live splice", unix.EBUSY, func(e *env) error { return e.dev.WriteCode(e.one.Patch, e.one.Code) }},
	{"free the area of a live splice", unix.EBUSY, func(e *env) error { return e.dev.FreeArea(e.area) }},
}

func (e *env) refusals(rng *rand.Rand) error {
	e.refuse(rng, refused)
	ids, err := e.dev.Splice([]kdev.Splice{whole(e.one)})
	if err != nil {
		return err
	}
	e.refuse(rng, whileLive)
	reportErrno("undo the same one twice at once", e.dev.Undo([]uint32{ids[0], ids[0]}), unix.EINVAL)
	return e.dev.Undo(ids)
}

// refuse asks in random order, and looks at the point after each.
func (e *env) refuse(rng *rand.Rand, rows []refusal) {
	here := make([]byte, 64)
	before := make([]byte, len(here))
	for _, k := range rng.Perm(len(rows)) {
		r := rows[k]
		err := e.dev.Read(e.fn.Addr, before)
		if err == nil {
			reportErrno(r.what, r.do(e), r.want)
			err = e.dev.Read(e.fn.Addr, here)
		}
		if err != nil || !bytes.Equal(here, before) {
			report(r.what+": nothing changed", 1, false, "%x became %x (%v)", before, here, err)
		}
	}
}
