package main

import (
	"errors"

	"golang.org/x/sys/unix"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/kdev"
	"kerninst/guest/check"
)

// sited writes code with sites that something is wrong about: one that may fault, and one of a key.
func sited(spoil func(at *isa.Addr, s *[]kdev.Site)) func(*env) error {
	return func(e *env) error {
		links, err := e.text.Links("")
		if err != nil {
			return err
		}
		lo, hi := e.text.Bounds()
		at := e.area.Addr + isa.Addr(areaSize) - 4096
		s := []kdev.Site{{Off: 8}, {Off: 16, Key: true, To: at + 32}} // riscv64 has a key's jump lead 512 KiB at the most
		for _, f := range links.Faults {
			if f.Site >= lo && f.Site < hi {
				s[0].Orig = f.Site
			}
		}
		for _, k := range links.Keys {
			if k.Site >= lo && k.Site < hi {
				s[1].Orig, s[1].Entry = k.Site, k.Entry
			}
		}
		if s[0].Orig == 0 || s[1].Orig == 0 {
			return errors.New("the kernel's tables have nothing of its text")
		}
		spoil(&at, &s)
		return e.dev.WriteSites(at, make([]byte, 64), nil, s)
	}
}

// sitesRefused are about what code stands for, where it can stand for anything: in the module's text,
// or everywhere.
var sitesRefused = []struct {
	what  string
	errno unix.Errno
	early bool // refused before it is asked whether a key's site may be there
	spoil func(at *isa.Addr, s *[]kdev.Site)
}{
	{"sites that are good", 0, false, func(*isa.Addr, *[]kdev.Site) {}},
	{"sites, twice at one place", 0, false, func(*isa.Addr, *[]kdev.Site) {}}, // the former are forgotten
	{"sites that overlap", unix.EINVAL, false, func(_ *isa.Addr, s *[]kdev.Site) { *s = append(*s, (*s)[1]); (*s)[2].Off += 2 }},
	{"sites that do not ascend", unix.EINVAL, true, func(_ *isa.Addr, s *[]kdev.Site) { (*s)[0].Off = 30 }},
	{"a site behind the code", unix.EINVAL, true, func(_ *isa.Addr, s *[]kdev.Site) { (*s)[1].Off = 62 }},
	{"a site of an access that faults nowhere", unix.EINVAL, false, func(_ *isa.Addr, s *[]kdev.Site) { (*s)[0].Orig++ }},
	{"a key's site that is none", unix.EINVAL, false, func(_ *isa.Addr, s *[]kdev.Site) { (*s)[1].Orig++ }},
	{"a key's entry that is none", unix.EINVAL, false, func(_ *isa.Addr, s *[]kdev.Site) { (*s)[1].Entry += 4 }},
	{"a key's entry outside the table", unix.EINVAL, false, func(_ *isa.Addr, s *[]kdev.Site) { (*s)[1].Entry = 1 << 63 }},
	{"a site that leads elsewhere", unix.EINVAL, true, func(_ *isa.Addr, s *[]kdev.Site) { (*s)[1].To = (*s)[1].Orig }},
	{"more sites than there may be", unix.EINVAL, true, func(_ *isa.Addr, s *[]kdev.Site) { *s = make([]kdev.Site, kdev.MaxSites+1) }},
}

// sites checks them, and that the good ones' bytes are the key's.
func (e *env) sites() error {
	here := e.info.Sited() || e.arch.Name == "amd64" // where the area is in the module's text
	for _, r := range sitesRefused {
		errno := r.errno
		if !e.info.Keys() && (!r.early || !here) && r.what != "more sites than there may be" {
			errno = unix.EOPNOTSUPP
		}
		check.Errno(r.what, sited(r.spoil)(e), errno)
	}
	if !e.info.Keys() {
		return nil
	}
	at := e.area.Addr + isa.Addr(areaSize) - 4096 + 16
	got := make([]byte, gen.SiteLen(e.arch))
	if err := e.dev.Read(at, got); err != nil {
		return err
	}
	i := e.arch.Decode(got, at)
	check.Report("a key's site is a nop or a jump", 1, i.Len == len(got) && (i.Flow == isa.FlowJump || i.Flow == isa.FlowNone && i.Writes == 0), "%x", got)
	return e.dev.WriteCode(at-16, make([]byte, 64))
}
