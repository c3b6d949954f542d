package analysis

import (
	"bytes"
	"errors"
	"fmt"

	"kerninst/agent/cfg"
	"kerninst/agent/gen"
	"kerninst/agent/index"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/pad"
	"kerninst/agent/place"
	"kerninst/agent/plan"
)

// Planner plans a counter at instructions of a kernel, each alone, as its daemon would:
// with the index, with patch memory where a guest has it, and of modules function by
// function. It is for one goroutine.
type Planner struct {
	text     *ktext.Text
	view     *index.View
	padding  *pad.Finder
	features gen.Features
	heaps    map[string]*place.Heap // by module: where patches of its points go
	known    *plan.Functions
}

// Verdict is what plan says of the instruction at At: a plan or a refusal.
type Verdict struct {
	Func    ktext.Func // that it is in
	At      isa.Addr
	Plan    *plan.Plan
	Refusal *plan.Refusal
}

// NewPlanner plans in a kernel whose index is x.
func NewPlanner(text *ktext.Text, x *index.Index, f gen.Features) (*Planner, error) {
	if x == nil {
		return nil, errors.New("survey: no index says what an instruction is")
	}
	view, err := index.NewView(x, text)
	if err != nil {
		return nil, err
	}
	return &Planner{text: text, view: view, padding: pad.New(text), features: f, heaps: map[string]*place.Heap{}, known: &plan.Functions{}}, nil
}

// another is one that shares what was found out, for another goroutine.
func (p *Planner) another() *Planner {
	q := *p
	q.heaps, q.known = map[string]*place.Heap{}, &plan.Functions{}
	return &q
}

// Instructions are those of a function that the survey counts, by their addresses: of the
// kernel's own text what the index knows, neither padding nor data; of a module what is
// decoded from a function's start, less what fills up behind its ends.
func (p *Planner) Instructions(f ktext.Func) ([]isa.Addr, error) {
	known, err := p.view.Function(f)
	if err != nil || f.Module == "" && known.How != index.Indexed || cfg.IsPaddingName(f.Name) {
		return nil, err
	}
	var out []isa.Addr
	known.Each(func(a isa.Addr, _ isa.RegSet) { out = append(out, a) })
	if f.Module == "" || len(out) == 0 {
		return out, nil
	}
	code, err := p.text.Code(f)
	if err != nil {
		return nil, err
	}
	return p.unfilled(f, out, code), nil
}

// unfilled leaves out what fills up behind instructions that control does not go on from,
// and the zeros of a section's last page, whatever those decode to.
func (p *Planner) unfilled(f ktext.Func, at []isa.Addr, code []byte) (out []isa.Addr) {
	end, over := f.Addr+isa.Addr(len(bytes.TrimRight(code, "\x00"))), false
	for _, a := range at {
		if a >= end {
			break
		}
		rest := code[a-f.Addr:]
		i := p.text.Arch.Decode(rest, a)
		if over && cfg.IsPad(p.text.Arch.Name, i, rest) {
			continue
		}
		out, over = append(out, a), i.Flow.Ends()
	}
	return out
}

// Each visits the verdicts on instructions of one function in the given order, which is
// that of their addresses.
func (p *Planner) Each(f ktext.Func, at []isa.Addr, visit func(Verdict)) error {
	if len(at) == 0 {
		return nil
	}
	req, err := p.request(f)
	if err != nil {
		return err
	}
	n := 0
	req.Only = func(off isa.Off) bool {
		for n < len(at) && at[n] < f.Addr+isa.Addr(off) { // it begins inside another, to who decodes from the function's start
			visit(p.point(f, req, at[n]))
			n++
		}
		return n < len(at) && at[n] == f.Addr+isa.Addr(off)
	}
	plan.Survey(p.text, f, req, func(off isa.Off, one *plan.Plan, r *plan.Refusal) bool {
		visit(Verdict{f, f.Addr + isa.Addr(off), one, r})
		n++
		return true
	})
	for ; n < len(at); n++ {
		own := f
		if at[n] >= f.End() { // to the index, what is between two functions is of the first
			own, _ = p.text.Locate(at[n])
			if req, err = p.request(own); err != nil {
				return err
			}
		}
		visit(p.point(own, req, at[n]))
	}
	return nil
}

// point plans one by itself.
func (p *Planner) point(f ktext.Func, req plan.Request, a isa.Addr) Verdict {
	req.Offset, req.Only, req.Dry = isa.Off(a-f.Addr), nil, true
	one, r := plan.At(p.text, f, req)
	return Verdict{f, a, one, r}
}

// Entry plans a counter where each call of a function comes by exactly once.
func (p *Planner) Entry(f ktext.Func) (Verdict, error) {
	req, err := p.request(f)
	if err != nil {
		return Verdict{}, err
	}
	req.Module, req.Function, req.Dry = f.Module, p.text.Known(f).Known(), true
	v := Verdict{Func: f, At: f.Addr}
	v.Plan, v.Refusal = plan.Entry(p.text, req)
	return v, nil
}

// request is what the points of a function are planned with.
func (p *Planner) request(f ktext.Func) (plan.Request, error) {
	heap := p.heaps[f.Module]
	if heap == nil {
		heap = surveyHeap(p.text.Arch, p.behind(f.Module))
		lo, _ := p.text.Bounds()
		heap.Pages(place.PageRoom(p.text.Arch, lo), nil) // it plans, and makes none
		p.heaps[f.Module] = heap
	}
	own, err := p.facts(f)
	return plan.Request{Block: true, Heap: heap, Padding: p.padding, Known: p.known, Terse: true, Features: p.features,
		Facts: func(g ktext.Func) (plan.Facts, error) {
			if g.Addr == f.Addr {
				return own, nil
			}
			return p.facts(g) // a neighbour
		}}, err
}

// facts are what is known of a function's registers.
func (p *Planner) facts(f ktext.Func) (plan.Facts, error) {
	known, err := p.view.ForSplice(f)
	switch {
	case err != nil:
		return plan.Facts{}, fmt.Errorf("%v: %w", f, err)
	case known.How == index.Indexed:
		return plan.Facts{Source: plan.SourceIndex, Free: known.Free, Jumps: known, Rebases: known.Rebases()}, nil
	}
	return plan.Facts{Source: plan.SourceFunction, Free: known.Free, Rebases: known.Rebases()}, nil
}

// behind is where the code of a module, or the kernel's own, ends.
func (p *Planner) behind(module string) isa.Addr {
	_, hi := p.text.Bounds()
	if module == "" {
		return hi
	}
	hi = 0
	for _, s := range p.text.Sections(module) {
		if s.Text() {
			hi = max(hi, s.End())
		}
	}
	return hi
}

// Where the survey takes patch memory to be: behind the code, as in a guest, and as long
// as there, in bytes. Cells in per-CPU memory are where such memory begins.
const (
	surveyBehind = 32 << 20
	surveyArea   = 256 << 10
	surveyLocal  = 4096
)

// surveyHeap is the patch memory of code that ends at hi.
func surveyHeap(arch *isa.Arch, hi isa.Addr) *place.Heap {
	heap := &place.Heap{}
	code := (hi + surveyBehind) &^ 4095
	heap.Add(place.NewArea(1, code, code+surveyArea, surveyArea))
	annex := code + 2*surveyArea
	heap.Add(place.NewAnnex(2, annex, annex+surveyArea, surveyArea))
	if gen.Locals(arch) {
		heap.AddLocals(surveyLocal, 4096)
	}
	return heap
}
