// Package kpoke is the device as splicing wants it: agent/splice's Poker, by agent/kdev.
package kpoke

import (
	"errors"
	"fmt"
	"sync"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/kdev"
	"kerninst/agent/splice"
)

// Poker is an open device. Several splicers may share one: what is kept here is locked, and
// the module does one call after the other.
type Poker struct {
	dev   *kdev.Device
	info  kdev.Info
	point func() (end func()) // around each batch; nil: nothing

	mu    sync.Mutex
	areas map[uint32]*kdev.Area
	local *kdev.Local // nil: none
}

// New has the device spliced with. point is called before each batch is made, and what it
// returns after that; nil: nothing is.
func New(dev *kdev.Device, info kdev.Info, point func() (end func())) *Poker {
	if point == nil {
		point = func() func() { return func() {} }
	}
	return &Poker{dev: dev, info: info, point: point, areas: map[uint32]*kdev.Area{}}
}

// Holding is the area that has the code at an address; nil: none has.
func (p *Poker) Holding(code isa.Addr) *kdev.Area {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.areas {
		if code >= a.Addr && code < a.Addr+isa.Addr(a.CodeLen) {
			return a
		}
	}
	return nil
}

// Local is the memory of local cells; nil: there is none.
func (p *Poker) Local() *kdev.Local {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.local
}

// cells are an area's counters by offset.
type cells struct{ area *kdev.Area }

func (c cells) Load(off int) uint64     { return c.area.Load(c.area.Cells() + isa.Addr(off)) }
func (c cells) Store(off int, v uint64) { c.area.Store(c.area.Cells()+isa.Addr(off), v) }

// Read reads kernel memory.
func (p *Poker) Read(a isa.Addr, b []byte) error { return p.dev.Read(a, b) }

// ReadUnprobed reads kernel memory as it is without kprobes.
func (p *Poker) ReadUnprobed(a isa.Addr, b []byte) error { return p.dev.ReadUnprobed(a, b) }

// Undo takes splices back.
func (p *Poker) Undo(ids []uint32) error { return blame(p.dev.Undo(ids)) }

// AllocArea gets patch memory, above the kernel's image if there is some.
func (p *Poker) AllocArea(lo, hi isa.Addr, codeLen int) (splice.Area, error) {
	lo, hi = max(lo, p.info.AreaLo), min(hi, p.info.AreaHi)
	// Above the image first: on amd64, operands in per-CPU memory are distances
	// to addresses near 0, which the lowest ones below the image do not reach.
	first := max(lo, p.info.ImageEnd)
	if first >= hi {
		first = lo
	}
	a, err := p.dev.AllocArea(first, hi, codeLen)
	if err != nil && first != lo {
		a, err = p.dev.AllocArea(lo, hi, codeLen)
	}
	if err != nil {
		return splice.Area{}, err
	}
	return p.keep(a), nil
}

// AllocAnnex gets the memory whose faults the kernel looks up.
func (p *Poker) AllocAnnex() (splice.Area, error) {
	a, err := p.dev.AllocAnnex()
	if err != nil {
		return splice.Area{}, err
	}
	return p.keep(a), nil
}

func (p *Poker) keep(a *kdev.Area) splice.Area {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.areas[a.ID] = a
	return splice.Area{ID: a.ID, Addr: a.Addr, Cells: cells{a}, CodeLen: a.CodeLen, CellAddr: a.Cells()}
}

// WriteCode writes a patch.
func (p *Poker) WriteCode(a isa.Addr, code []byte, states []gen.State, sites []gen.Site) error {
	var all []kdev.Site
	for _, s := range sites {
		all = append(all, kdev.Site{Off: s.Off, Orig: s.Orig, To: s.To, Entry: s.Entry, Key: s.Entry != 0})
	}
	return p.dev.WriteSites(a, code, kdev.Frames(p.info.Arch, states), all)
}

// AllocLocal gets cells of each CPU.
func (p *Poker) AllocLocal() (splice.Local, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, err := p.dev.AllocLocal(p.info.PageSize, p.info.CPUs)
	if err != nil {
		return splice.Local{}, err
	}
	p.local = l
	return splice.Local{Addr: l.Addr, Len: l.Len, Load: l.Load}, nil
}

// Quarantined is how many bytes of patches somebody may still be in.
func (p *Poker) Quarantined() (uint64, error) {
	s, err := p.dev.Stats()
	return s.Quarantined, err
}

// FreeArea gives patch memory back.
func (p *Poker) FreeArea(id uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.dev.FreeArea(p.areas[id])
	if err == nil {
		delete(p.areas, id)
	}
	return err
}

// Splice makes a batch.
func (p *Poker) Splice(batch []splice.Splice) error {
	if len(batch) > kdev.MaxBatch { // the module would say no more than that it is invalid
		return fmt.Errorf("%d writes, springboards included, in one batch, the most is %d: splice fewer points at once", len(batch), kdev.MaxBatch)
	}
	in := make([]kdev.Splice, len(batch))
	for i, s := range batch {
		in[i] = kdev.Splice{Point: s.Point, Patch: s.Patch, PatchLen: s.PatchLen, Old: s.Old, New: s.New, Window: s.Window, Springboard: s.Springboard, Code: s.Code, Awake: s.Awake, Trap: s.Trap, Home: s.Home, Fault: s.Fault, Original: s.Original, Annex: s.Annex, AnnexLen: s.AnnexLen, Span: s.Span, Copied: s.Copied, Resumes: resumes(s)}
	}
	end := p.point()
	ids, err := p.dev.Splice(in)
	end()
	if err != nil {
		return blame(err)
	}
	for i := range batch {
		batch[i].ID = ids[i]
	}
	return nil
}

// resumes are a patch's, by address.
func resumes(s splice.Splice) []kdev.Resume {
	out := make([]kdev.Resume, len(s.Resumes))
	for k, r := range s.Resumes {
		out[k] = kdev.Resume{From: s.Patch + isa.Addr(r.Off), To: r.To}
	}
	return out
}

// blame names the member of a batch that the module says is to blame.
func blame(err error) error {
	var e *kdev.Error
	if errors.As(err, &e) && e.Index >= 0 {
		return &splice.BatchError{Index: e.Index, Err: err}
	}
	return err
}
