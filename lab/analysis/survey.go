package analysis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"

	"kerninst/agent/gen"
	"kerninst/agent/index"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/plan"
)

// Survey says how each instruction of a kernel can be spliced with a counter, each
// planned alone; keys are a contract. The numbers at its top are of the kernel's own
// text; those of loaded modules are among the sections and, together, in Modules.
type Survey struct {
	Schema int    `json:"schema"`
	Arch   string `json:"arch"`
	Kernel string `json:"kernel"`
	Counts
	// Modules are all of them that the dump holds: none, if none was loaded.
	Modules  Counts    `json:"modules"`
	Sections []Section `json:"sections"` // in order of address, those without an instruction left out
	Boards   []Room    `json:"springboard_space"`
	Jumps    []Jump    `json:"jumps"`
}

// Section is a part of a kernel's text, or a module.
type Section struct {
	Name   string `json:"name"`             // as linkers name it, or the module's
	Module bool   `json:"module,omitempty"` // it is one
	Counts
}

// Counts are numbers of instructions: the reserved ones, those that a mechanism serves,
// and those that are refused for another reason.
type Counts struct {
	Instructions int            `json:"instructions"`
	Reserved     int            `json:"reserved"`
	ReservedAs   map[string]int `json:"reserved_as"` // of those, by class
	Mechanisms   map[string]int `json:"mechanisms"`
	AsOften      int            `json:"as_often"` // of those, counted at another instruction that runs as often
	Refused      map[string]int `json:"refused"`  // by reason
	Percent      Percent        `json:"percent"`
}

// Percent are the shares that matter.
type Percent struct {
	Reached  float64 `json:"reached_without_trap"` // of the instructions that are not reserved
	Trapped  float64 `json:"reached_by_trap"`      // of those
	Refused  float64 `json:"refused"`              // of those
	Reserved float64 `json:"reserved"`             // of all
}

// surveyed are the mechanisms that a document always has.
var surveyed = []plan.Mechanism{plan.Jump, plan.Springboard, plan.Pun, plan.Quiesced, plan.Trap}

func newCounts() Counts {
	c := Counts{Mechanisms: map[string]int{}, Refused: map[string]int{}, ReservedAs: map[string]int{}}
	for _, m := range surveyed {
		c.Mechanisms[m.String()] = 0
	}
	return c
}

// NewSurvey plans every instruction of a dumped kernel, whose index is x, and writes a
// line for each to each, if that is not nil (Line). say is told how many of the functions are
// done, now and then; nil: nobody is.
func NewSurvey(ctx context.Context, d *ktext.Dump, x *index.Index, each io.Writer, say func(done, of int)) (*Survey, error) {
	text, err := TextOf(d)
	if err != nil {
		return nil, err
	}
	p, err := NewPlanner(text, x, gen.Features{LSE: true})
	if err != nil {
		return nil, err
	}
	s := &Survey{Schema: 1, Arch: d.Arch, Kernel: d.Release, Counts: newCounts(), Modules: newCounts(), Jumps: JumpsOf(d.Arch)}
	if err := s.all(ctx, p, each, say); err != nil {
		return nil, err
	}
	s.share()
	if s.Boards, err = rooms(text, p.padding); err != nil {
		return nil, err
	}
	return s, nil
}

// Functions are those that a survey looks at: of the kernel's text, then of its modules,
// each in order of address.
func Functions(text *ktext.Text) (out []ktext.Func) {
	lo, hi := text.Bounds()
	for _, m := range append([]string{""}, text.Modules()...) {
		text.Functions(m, func(f ktext.Func) bool {
			if m != "" || f.Addr >= lo && f.Addr < hi {
				out = append(out, f)
			}
			return true
		})
	}
	return out
}

// together is how many functions are planned before what is known of them is added up:
// their lines are kept until then.
const together = 1024

// all adds all functions, on as many CPUs as there are: how one is planned does not
// depend on another.
func (s *Survey) all(ctx context.Context, p *Planner, each io.Writer, say func(done, of int)) error {
	planners, sections := make([]*Planner, runtime.GOMAXPROCS(0)), p.text.TextSections()
	for k := range planners {
		planners[k] = p.another()
	}
	all, done := Functions(p.text), 0
	for functions := range slices.Chunk(all, together) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if done += len(functions); say != nil {
			say(done, len(all))
		}
		for k, one := range surveyMany(planners, functions, each != nil) {
			if one.err != nil {
				return one.err
			}
			s.add(sections, functions[k], one)
			if each == nil {
				continue
			}
			if _, err := one.lines.WriteTo(each); err != nil {
				return err
			}
		}
	}
	return nil
}

// surveyedFunction is what is found of one function.
type surveyedFunction struct {
	counts Counts
	lines  bytes.Buffer
	err    error
}

// surveyMany surveys functions, by each of the planners some.
func surveyMany(planners []*Planner, functions []ktext.Func, lines bool) []*surveyedFunction {
	out, next := make([]*surveyedFunction, len(functions)), make(chan int, len(functions))
	for k := range functions {
		next <- k
	}
	close(next)
	var wg sync.WaitGroup
	for _, p := range planners {
		wg.Go(func() {
			for k := range next {
				out[k] = p.survey(functions[k], lines)
			}
		})
	}
	wg.Wait()
	return out
}

func (p *Planner) survey(f ktext.Func, lines bool) *surveyedFunction {
	out := &surveyedFunction{counts: newCounts()}
	at, err := p.Instructions(f)
	if err == nil {
		err = p.Each(f, at, func(v Verdict) {
			out.counts.add(v)
			if lines {
				out.lines.WriteString(v.Line())
			}
		})
	}
	out.err = err
	return out
}

// add adds a function to the whole and to its section.
func (s *Survey) add(sections []ktext.TextSection, f ktext.Func, one *surveyedFunction) {
	if one.counts.Instructions == 0 {
		return
	}
	name, whole := f.Module, &s.Modules
	if f.Module == "" {
		name, whole = ktext.SectionOf(sections, f.Addr), &s.Counts
	}
	whole.join(one.counts)
	k := slices.IndexFunc(s.Sections, func(x Section) bool { return x.Name == name && x.Module == (f.Module != "") })
	if k < 0 {
		k = len(s.Sections)
		s.Sections = append(s.Sections, Section{Name: name, Module: f.Module != "", Counts: newCounts()})
	}
	s.Sections[k].join(one.counts)
}

// share says what the shares are, when all is added.
func (s *Survey) share() {
	s.Counts.share()
	s.Modules.share()
	for k := range s.Sections {
		s.Sections[k].share()
	}
}

// join adds what another has found.
func (c *Counts) join(o Counts) {
	c.Instructions, c.Reserved, c.AsOften = c.Instructions+o.Instructions, c.Reserved+o.Reserved, c.AsOften+o.AsOften
	for _, m := range []struct{ to, from map[string]int }{
		{c.Mechanisms, o.Mechanisms}, {c.Refused, o.Refused}, {c.ReservedAs, o.ReservedAs},
	} {
		for key, n := range m.from {
			m.to[key] += n
		}
	}
}

func (c *Counts) add(v Verdict) {
	c.Instructions++
	switch {
	case v.Refusal == nil:
		c.Mechanisms[v.Plan.Mechanism.String()]++
		if v.Plan.For != 0 {
			c.AsOften++
		}
	case v.Refusal.Reason == plan.ReservedText:
		c.Reserved++
		c.ReservedAs[v.Refusal.Class]++
	default:
		c.Refused[v.Refusal.Reason.String()]++
	}
}

// reached are the instructions that a mechanism serves, but for those that trap.
func (c *Counts) reached() (n int) {
	for m, k := range c.Mechanisms {
		if m != plan.Trap.String() {
			n += k
		}
	}
	return n
}

func (c *Counts) refused() (n int) {
	for _, k := range c.Refused {
		n += k
	}
	return n
}

func (c *Counts) share() {
	open := c.Instructions - c.Reserved
	c.Percent = Percent{Reached: percent(c.reached(), open), Trapped: percent(c.Mechanisms[plan.Trap.String()], open), Refused: percent(c.refused(), open), Reserved: percent(c.Reserved, c.Instructions)}
}

// percent of nothing is nothing.
func percent(n, of int) float64 { return 100 * float64(n) / float64(max(of, 1)) }

// Line is a verdict for who asks for each, of five columns between tabs: the address; the
// place as function+offset, behind a module's name and a colon; the mechanism, or
// "reserved" or "refused"; why, or where else it is counted; and the planner's own words.
func (v Verdict) Line() string {
	f := v.Func
	where, what, why, detail := fmt.Sprintf("%v+%#x", f, uint64(v.At-f.Addr)), "refused", "", ""
	switch r := v.Refusal; {
	case r == nil:
		what = v.Plan.Mechanism.String()
		if v.Plan.For != 0 {
			why = fmt.Sprintf("counted at +%#x, which runs as often", uint64(v.Plan.At()-f.Addr))
		}
	case r.Reason == plan.ReservedText:
		what, why, detail = "reserved", r.Class, r.Detail
	default:
		why, detail = r.Reason.String(), r.Detail
	}
	return fmt.Sprintf("%#016x\t%s\t%s\t%s\t%s\n", uint64(v.At), where, what, why, strings.NewReplacer("\t", " ", "\n", " ").Replace(detail))
}

// ErrNoFunction says that an address is in no function.
var ErrNoFunction = errors.New("no function is there")

// Of is the verdict on each of many instructions, given in any order.
func (p *Planner) Of(at []isa.Addr) (map[isa.Addr]Verdict, error) {
	at = slices.Compact(slices.Sorted(slices.Values(at)))
	out := make(map[isa.Addr]Verdict, len(at))
	for len(at) > 0 {
		f, ok := p.text.Locate(at[0])
		if !ok {
			return nil, fmt.Errorf("%v: %w", at[0], ErrNoFunction)
		}
		n, _ := slices.BinarySearch(at, f.End())
		if err := p.Each(f, at[:n], func(v Verdict) { out[v.At] = v }); err != nil {
			return nil, err
		}
		at = at[n:]
	}
	return out, nil
}
