package analysis

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"sync"
	"text/tabwriter"

	"kerninst/agent/gen"
	"kerninst/agent/index"
	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/ktext"
	"kerninst/agent/pad"
	"kerninst/agent/place"
	"kerninst/agent/plan"
)

// Survey says how each instruction of a kernel's own text can be spliced with a
// counter, each planned alone; keys are a contract. Instructions are those that the
// index knows: neither padding nor data. They are the reserved ones, those that a
// mechanism serves, and those that are refused for another reason.
type Survey struct {
	Schema       int            `json:"schema"`
	Arch         string         `json:"arch"`
	Kernel       string         `json:"kernel"`
	Instructions int            `json:"instructions"`
	Reserved     int            `json:"reserved"`
	ReservedAs   map[string]int `json:"reserved_as"` // of those, by class
	Mechanisms   map[string]int `json:"mechanisms"`
	AsOften      int            `json:"as_often"` // of those, counted at another instruction that runs as often
	Refused      map[string]int `json:"refused"`  // by reason
}

// surveyed are the mechanisms that a document always has.
var surveyed = []plan.Mechanism{plan.Jump, plan.Springboard, plan.Pun, plan.Quiesced, plan.Trap}

// Where the survey takes patch memory to be: behind the image, as in a guest.
const (
	surveyBehind = 32 << 20
	surveyArea   = 256 << 10
)

// NewSurvey plans every instruction of a dumped kernel, whose index is x.
func NewSurvey(d *ktext.Dump, x *index.Index) (*Survey, error) {
	if x == nil {
		return nil, errors.New("survey: no index says what an instruction is")
	}
	arch, err := all.Lookup(d.Arch)
	if err != nil {
		return nil, err
	}
	text, err := d.Text(arch)
	if err != nil {
		return nil, err
	}
	view, err := index.NewView(x, text)
	if err != nil {
		return nil, err
	}
	s := newSurvey(d)
	if err := s.all(text, view); err != nil {
		return nil, err
	}
	return s, nil
}

func newSurvey(d *ktext.Dump) *Survey {
	s := &Survey{Schema: 1, Arch: d.Arch, Kernel: d.Release, Mechanisms: map[string]int{}, Refused: map[string]int{}, ReservedAs: map[string]int{}}
	for _, m := range surveyed {
		s.Mechanisms[m.String()] = 0
	}
	return s
}

// all adds the functions of the kernel's text, on as many CPUs as there are: how one is
// planned does not depend on another.
func (s *Survey) all(text *ktext.Text, view *index.View) error {
	lo, hi := text.Bounds()
	padding, functions := pad.New(text), make(chan ktext.Func, 64)
	parts, errs := make([]*Survey, runtime.GOMAXPROCS(0)), make([]error, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for k := range parts {
		parts[k] = newSurvey(&ktext.Dump{})
		req := plan.Request{Block: true, Heap: surveyHeap(hi), Padding: padding, Known: &plan.Functions{}, Terse: true, Features: gen.Features{LSE: true}}
		wg.Go(func() {
			for f := range functions {
				if errs[k] == nil { // else only emptied
					errs[k] = parts[k].function(text, view, f, req)
				}
			}
		})
	}
	text.Functions("", func(f ktext.Func) bool {
		if f.Addr >= lo && f.Addr < hi {
			functions <- f
		}
		return true
	})
	close(functions)
	wg.Wait()
	for _, p := range parts {
		s.join(p)
	}
	return errors.Join(errs...)
}

// surveyHeap is the patch memory of a kernel whose text ends at hi.
func surveyHeap(hi isa.Addr) *place.Heap {
	heap := &place.Heap{}
	code := (hi + surveyBehind) &^ 4095
	heap.Add(place.NewArea(1, code, code+surveyArea, surveyArea))
	annex := code + 2*surveyArea
	heap.Add(place.NewAnnex(2, annex, annex+surveyArea, surveyArea))
	return heap
}

// join adds what another has found.
func (s *Survey) join(o *Survey) {
	s.Instructions, s.Reserved, s.AsOften = s.Instructions+o.Instructions, s.Reserved+o.Reserved, s.AsOften+o.AsOften
	for _, m := range []struct{ to, from map[string]int }{
		{s.Mechanisms, o.Mechanisms}, {s.Refused, o.Refused}, {s.ReservedAs, o.ReservedAs},
	} {
		for key, n := range m.from {
			m.to[key] += n
		}
	}
}

// function adds one function's instructions.
func (s *Survey) function(text *ktext.Text, view *index.View, f ktext.Func, req plan.Request) error {
	known, err := view.Function(f)
	if err != nil || known.How != index.Indexed { // padding is in no index
		return err
	}
	facts, err := view.ForSplice(f)
	if err != nil {
		return err
	}
	n := 0
	req.Facts = func(g ktext.Func) (plan.Facts, error) {
		of := facts
		if g.Addr != f.Addr { // a neighbour
			var err error
			if of, err = view.ForSplice(g); err != nil {
				return plan.Facts{}, err
			}
		}
		return plan.Facts{Source: plan.SourceIndex, Free: of.Free, Begins: of.Begins}, nil
	}
	whole := plan.Survey(text, f, req, func(off isa.Off, p *plan.Plan, r *plan.Refusal) bool {
		if _, ok := known.Before(f.Addr + isa.Addr(off)); ok {
			s.add(p, r)
			n++
		}
		return true
	})
	if whole == nil { // where a function's start does not lead to an instruction, it has no offset
		whole = &plan.Refusal{Reason: plan.Undecodable}
	}
	for ; n < known.Instructions(); n++ {
		s.add(nil, whole)
	}
	return nil
}

func (s *Survey) add(p *plan.Plan, r *plan.Refusal) {
	s.Instructions++
	switch {
	case r == nil:
		s.Mechanisms[p.Mechanism.String()]++
		if p.For != 0 {
			s.AsOften++
		}
	case r.Reason == plan.ReservedText:
		s.Reserved++
		s.ReservedAs[r.Class]++
	default:
		s.Refused[r.Reason.String()]++
	}
}

// Print writes the survey for people: the numbers, and the shares of all.
func (s *Survey) Print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	line := func(name string, n int) {
		if n > 0 {
			fmt.Fprintf(tw, "%s\t%s\t%.1f %%\t\n", name, count(n), 100*float64(n)/float64(max(s.Instructions, 1)))
		}
	}
	line(s.Kernel+", instructions", s.Instructions)
	for _, m := range surveyed {
		line(m.String(), s.Mechanisms[m.String()])
	}
	line("of those, at another that runs as often", s.AsOften)
	line("reserved", s.Reserved)
	for _, c := range largest(s.ReservedAs) {
		line("reserved: "+c, s.ReservedAs[c])
	}
	for _, r := range largest(s.Refused) {
		line("refused: "+r, s.Refused[r])
	}
	return tw.Flush()
}

// largest are the keys, that of the largest number first.
func largest(m map[string]int) []string {
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		return cmp.Or(cmp.Compare(m[b], m[a]), cmp.Compare(a, b))
	})
}
