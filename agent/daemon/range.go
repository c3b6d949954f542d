package daemon

import (
	"errors"
	"fmt"
	"iter"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/kdev"
	"kerninst/agent/ktext"
	"kerninst/agent/place"
	"kerninst/agent/plan"
	"kerninst/agent/wire"
)

// Points of all functions from one to another: tens of thousands. Functions and points are
// told by address, since names may be shared, and each function is decoded once.

// knownFunctions is how many functions of a range are listed before what is known of them is
// dropped.
const knownFunctions = 256

// inRange lists the points of the functions of a range, those of each function together. What
// begins elsewhere, as cold halves, is in the range of its own address.
func (d *Daemon) inRange(p *wire.Point) (iter.Seq[[]*wire.Point], error) {
	if p.Each == wire.Each_ITSELF || p.Module != "" || p.Offset != 0 || timing(p) {
		return nil, errors.New("a range is of each of some instructions of the kernel's own functions, from their begin, and of no time")
	}
	var bounds [2]isa.Addr
	lo, hi := d.text.Bounds()
	for k, name := range []string{p.Function, p.Until} {
		if a, ok := d.text.Symbol(name); ok { // a section's bound
			bounds[k] = a
			continue
		}
		f, err := d.text.Function("", name)
		if err != nil {
			return nil, fmt.Errorf("bound of a range: %w", err)
		}
		bounds[k] = f.Addr
	}
	if bounds[0] < lo || bounds[0] >= bounds[1] || bounds[1] > hi {
		return nil, fmt.Errorf("%s at %v to %s at %v is no range of the kernel's text", p.Function, bounds[0], p.Until, bounds[1])
	}
	return func(yield func([]*wire.Point) bool) {
		n := 0
		d.text.Functions("", func(f ktext.Func) bool {
			if f.Addr < bounds[0] || f.Addr >= bounds[1] || cfg.IsPaddingName(f.Name) {
				return true
			}
			if n++; n%knownFunctions == 0 {
				d.forget()
			}
			return yield(d.eachAt(p, f))
		})
	}, nil
}

// eachAt lists the points of one function by their addresses; where they cannot be told, one
// that stands for all of them, whose result says why.
func (d *Daemon) eachAt(p *wire.Point, f ktext.Func) (out []*wire.Point) {
	at := func(off isa.Off, each wire.Each) *wire.Point {
		return &wire.Point{Text: uint64(f.Addr-d.info.TextStart) + uint64(off) + 1, Each: each, Mechanism: p.Mechanism,
			Without: p.Without, Cheap: p.Cheap, Actions: p.Actions, Apart: p.Apart}
	}
	offsets, r := plan.OffsetsAt(d.text, f, plan.Request{Facts: d.facts, Known: d.known}, eaches[p.Each])
	if r != nil {
		return []*wire.Point{at(0, p.Each)}
	}
	for _, off := range offsets {
		out = append(out, at(off, wire.Each_ITSELF))
	}
	return out
}

// wholeRefused is the result of a point that stands for all of a function's, which cannot be
// told.
func (d *Daemon) wholeRefused(p *wire.Point, f ktext.Func) *wire.PointResult {
	res := result(p)
	res.Address = uint64(f.Addr)
	_, r := plan.OffsetsAt(d.text, f, plan.Request{Facts: d.facts, Known: d.known}, eaches[p.Each])
	if r == nil { // it was refused just before
		r = &plan.Refusal{Reason: plan.Undecodable, Detail: fmt.Sprintf("%v: what it has points at has changed meanwhile", f)}
	}
	res.Refusal = refused(r)
	return res
}

// room gets patch memory for so many points, beside what there is, where that has fewer lines
// than their patches take. Where the kernel has none to give, those without room are refused.
func (d *Daemon) room(points int) {
	free := 0
	for _, a := range d.splicer.Heap().Areas() {
		if !a.Annex() && !a.Page() {
			free += a.Unused()
		}
	}
	largest := place.LargestCode(d.arch, kdev.MaxArea/2)
	for need := (points + points/spareLines[d.arch.Name] - free) * place.Line; need > 0; need -= largest {
		n := min(largest, max(areaSize, (need+place.PageLen-1)/place.PageLen*place.PageLen))
		if d.splicer.Reserve(d.info.TextStart, d.info.TextEnd, n) != nil {
			return
		}
	}
}

// spareLines: of so many patches one has two lines. riscv64's lead far by two instructions, there and back, and spill for that.
var spareLines = map[string]int{"amd64": 4, "arm64": 4, "riscv64": 2}

// patchMemory says what patches have.
func (d *Daemon) patchMemory() *wire.PatchMemory {
	m := &wire.PatchMemory{}
	for _, a := range d.splicer.Heap().Areas() {
		switch {
		case a.Page():
			m.Pages += uint64(a.CodeLen)
		default:
			m.Areas += uint64(a.CodeLen)
			m.Used += uint64(a.CodeLen - a.Unused()*place.Line)
		}
	}
	return m
}

// kept has a result say how much of what was unspliced stays, for some task may be in there.
func (d *Daemon) kept(res *wire.Result) error {
	st, err := d.dev.Stats()
	if err == nil {
		res.PatchMemory = &wire.PatchMemory{Kept: st.Quarantined}
	}
	return err
}

// brief are results without what nobody reads of so many.
func brief(all []*wire.PointResult) (out []*wire.PointResult) {
	for _, r := range all {
		b := &wire.PointResult{Address: r.Address, Mechanism: r.Mechanism, WrittenAt: r.WrittenAt, RunsAt: r.RunsAt, Added: r.Added}
		if r.Refusal != nil {
			b.Refusal = &wire.Refusal{Reason: r.Refusal.Reason, Class: r.Refusal.Class}
		}
		out = append(out, b)
	}
	return out
}
