package daemon

import (
	"errors"
	"fmt"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/kdev"
	"kerninst/agent/splice"
)

// poker is the device as splicing wants it.
type poker struct {
	dev   *kdev.Device
	info  kdev.Info
	areas map[uint32]*kdev.Area
	local *kdev.Local // nil: none

	stages *stages // of the step that asks for it
}

func newPoker(dev *kdev.Device, info kdev.Info, s *stages) *poker {
	return &poker{dev: dev, info: info, areas: map[uint32]*kdev.Area{}, stages: s}
}

// cells are an area's counters by offset.
type cells struct{ area *kdev.Area }

func (c cells) Load(off int) uint64     { return c.area.Load(c.area.Cells() + isa.Addr(off)) }
func (c cells) Store(off int, v uint64) { c.area.Store(c.area.Cells()+isa.Addr(off), v) }

func (p *poker) Read(a isa.Addr, b []byte) error { return p.dev.Read(a, b) }
func (p *poker) Undo(ids []uint32) error         { return blame(p.dev.Undo(ids)) }

func (p *poker) AllocArea(lo, hi isa.Addr, codeLen int) (splice.Area, error) {
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
	p.areas[a.ID] = a
	return area(a), nil
}

func (p *poker) AllocAnnex() (splice.Area, error) {
	a, err := p.dev.AllocAnnex()
	if err != nil {
		return splice.Area{}, err
	}
	p.areas[a.ID] = a
	return area(a), nil
}

func area(a *kdev.Area) splice.Area {
	return splice.Area{ID: a.ID, Addr: a.Addr, Cells: cells{a}, CodeLen: a.CodeLen, CellAddr: a.Cells()}
}

func (p *poker) WriteCode(a isa.Addr, code []byte, states []gen.State) error {
	return p.dev.WriteCode(a, code, kdev.Frames(p.info.Arch, states)...)
}

func (p *poker) AllocLocal() (splice.Local, error) {
	l, err := p.dev.AllocLocal(p.info.PageSize, p.info.CPUs)
	if err != nil {
		return splice.Local{}, err
	}
	p.local = l
	return splice.Local{Addr: l.Addr, Len: l.Len, Load: l.Load}, nil
}

func (p *poker) Quarantined() (uint64, error) {
	s, err := p.dev.Stats()
	return s.Quarantined, err
}

func (p *poker) FreeArea(id uint32) error {
	err := p.dev.FreeArea(p.areas[id])
	if err == nil {
		delete(p.areas, id)
	}
	return err
}

func (p *poker) Splice(batch []splice.Splice) error {
	if len(batch) > kdev.MaxBatch { // the module would say no more than that it is invalid
		return fmt.Errorf("%d writes, springboards included, in one batch, the most is %d: splice fewer points at once", len(batch), kdev.MaxBatch)
	}
	in := make([]kdev.Splice, len(batch))
	for i, s := range batch {
		in[i] = kdev.Splice{Point: s.Point, Patch: s.Patch, PatchLen: s.PatchLen, Old: s.Old, New: s.New, Window: s.Window, Springboard: s.Springboard, Code: s.Code, Awake: s.Awake, Trap: s.Trap, Fault: s.Fault, Original: s.Original, Annex: s.Annex, AnnexLen: s.AnnexLen, Span: s.Span}
	}
	former := p.stages.enter(stagePoint)
	ids, err := p.dev.Splice(in)
	p.stages.enter(former)
	if err != nil {
		return blame(err)
	}
	for i := range batch {
		batch[i].ID = ids[i]
	}
	return nil
}

// blame names the member of a batch that the module says is to blame.
func blame(err error) error {
	var e *kdev.Error
	if errors.As(err, &e) && e.Index >= 0 {
		return &splice.BatchError{Index: e.Index, Err: err}
	}
	return err
}
