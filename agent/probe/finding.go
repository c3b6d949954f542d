package probe

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"kerninst/agent/ktext"
	"kerninst/agent/wire"
)

// Finding is what one action at a point found.
type Finding struct {
	Action  string      `json:"action"`
	Value   *Number     `json:"value,omitempty"`
	Hits    uint64      `json:"hits"` // how often it was done; of a sum, its value
	Rows    []Row       `json:"rows,omitempty"`
	Buckets []Bucket    `json:"buckets,omitempty"`
	Stacks  []Backtrace `json:"stacks,omitempty"`
	Dropped uint64      `json:"dropped,omitempty"` // stacks that came when there was no room
	Holes   uint64      `json:"holes,omitempty"`   // stacks that somebody was still writing
	Faults  uint64      `json:"faults,omitempty"`  // loads that came to nothing: 0 was taken for what is there
	Lost    uint64      `json:"lost,omitempty"`    // hits that came when there was no room for one key more
}

// Backtrace is a stack that was there when somebody came by.
type Backtrace struct {
	Number  uint64   `json:"number"`  // of those that came, from 0
	Fields  []uint64 `json:"fields"`  // addresses, the point's first
	Symbols []string `json:"symbols"` // what each is in
	// Source is which line each is of, if somebody knows: FILE:LINE and the inlined copies that it is in.
	Source []string `json:"source,omitempty"`
}

// Found reads what an action found.
func (a Action) Found(v *wire.Value) Finding {
	f := Finding{Action: a.Text, Hits: v.Count, Dropped: v.Dropped, Holes: v.Holes, Faults: v.Faults, Lost: v.Lost}
	rows := a.Shape.Rows(v)
	if len(a.Shape.Keys) > 0 {
		f.Rows, f.Hits = rows, v.Lost
		for _, r := range rows {
			f.Hits += r.Hits
		}
	} else {
		f.Value, f.Hits, f.Buckets = rows[0].Value, rows[0].Hits, rows[0].Buckets
	}
	for _, r := range v.Records {
		f.Stacks = append(f.Stacks, Backtrace{Number: r.Number, Fields: r.Fields, Symbols: r.Symbols})
	}
	return f
}

// Traces reports whether the action makes records.
func (a Action) Traces() bool { return a.Shape.Kind == Trace }

// Untimed reports whether the records that it makes have no time.
func (a Action) Untimed() bool { return a.Traces() && len(a.Shape.Fields) == 0 }

// Print writes it for people, in columns that a tabwriter aligns: a line with what it comes
// to, and those of its rows, buckets and stacks. Events are printed with those of others, in
// order of time where they have one.
func (f Finding) Print(t io.Writer, spec, mechanism string) {
	fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", spec, mechanism, f.Action, f.summary())
	for _, line := range Bars(f.Buckets) {
		fmt.Fprintf(t, "\t\t\t%s\n", line)
	}
	for _, r := range f.Rows {
		value := ""
		if r.Value != nil {
			value = r.Value.String()
		}
		fmt.Fprintf(t, "\t\t%s\t%s\n", strings.Join(r.Keys, ", "), value)
		for _, line := range Bars(r.Buckets) {
			fmt.Fprintf(t, "\t\t\t%s\n", line)
		}
	}
	f.printStacks(t)
}

// summary is what it comes to, in a line.
func (f Finding) summary() string {
	out := "nothing came"
	switch {
	case f.Value != nil:
		out = f.Value.String()
	case len(f.Rows) == 1:
		out = "1 key"
	case len(f.Rows) > 0:
		out = fmt.Sprintf("%d keys", len(f.Rows))
	case len(f.Buckets) > 0:
		out = fmt.Sprintf("%d hits", f.Hits)
	case f.Stacks != nil:
		out = fmt.Sprintf("%d stacks, %d of them dropped, %d unfinished", f.Hits, f.Dropped, f.Holes)
	case f.Hits > 0:
		out = fmt.Sprintf("%d records", f.Hits)
	}
	if f.Faults > 0 {
		out += fmt.Sprintf(" (%d loads came to nothing: 0 was taken)", f.Faults)
	}
	if f.Lost > 0 {
		out += fmt.Sprintf(" (%d hits of keys that had no room)", f.Lost)
	}
	return out
}

// printStacks writes each stack once, with how often it was there: the rarest first, as
// profilers do, so that what matters is at the end.
func (f Finding) printStacks(t io.Writer) {
	times := map[string]int{}
	for _, r := range f.Stacks {
		times[strings.Join(r.frames(), "\n")]++
	}
	all := slices.SortedFunc(maps.Keys(times), func(a, b string) int {
		return cmp.Or(times[a]-times[b], strings.Compare(a, b))
	})
	for _, stack := range all {
		fmt.Fprintf(t, "\t\t\t%d times\n", times[stack])
		for frame := range strings.SplitSeq(stack, "\n") {
			fmt.Fprintf(t, "\t\t\t  %s\n", frame)
		}
	}
}

// frames are what a stack is in, in words.
func (b Backtrace) frames() []string {
	out := slices.Clone(b.Symbols)
	for k, s := range b.Source {
		if s != "" {
			out[k] += " " + s
		}
	}
	return out
}

// OnlyCounts reports whether all that an action found is a count.
func (f Finding) OnlyCounts() bool { return f.Action == "count" && f.Faults == 0 }

// Compiled are the actions of several specifications, by the names that they have at their
// points.
type Compiled map[string]Action

// Apart are the actions, as written, that specifications ask for with different predicates:
// what each of these found is another thing, so they have their predicates in their names.
// predicate and do are given for all.
func Apart(specs []Spec, predicate string, do []string) map[string]bool {
	apart, first := map[string]bool{}, map[string]string{}
	for _, s := range specs {
		own := cmp.Or(s.Predicate, predicate)
		for _, text := range s.does(do) {
			if had, ok := first[text]; ok && had != own {
				apart[text] = true
			}
			first[text] = own
		}
	}
	return apart
}

// does is what a specification does: its own action, or else those that are given for all.
func (s Spec) does(do []string) []string {
	if s.Action != "" {
		return []string{s.Action}
	}
	return do
}

// Add compiles what is to be done at the points of a specification, beside what is done there
// already: its own action, or else those that are given for all, with its own predicate or
// that which is given for all. apart is what Apart says of all specifications.
func (all Compiled) Add(s Spec, predicate string, do []string, apart map[string]bool, in At, beside []*wire.Action) (out []*wire.Action, err error) {
	if !strings.ContainsAny(s.Function, `*?[\`) {
		// Of several that share a name types tell only if all have the same (pahole leaves out others).
		in.Function, in.Module = ktext.Base(s.Function), s.Module
	}
	predicate = cmp.Or(s.Predicate, predicate)
	out = beside
	for _, text := range s.does(do) {
		a, err := in.Compile(predicate, text)
		if err != nil {
			return nil, err
		}
		if a.Timed() && s.Name != "entry" && s.Name != "block" {
			return nil, fmt.Errorf("probe %q: %s is of a whole function, kinst:%s:%s:entry, or of each of its blocks, kinst:%[3]s:%[4]s:block", s.Text, text, s.Module, s.Function)
		}
		name := text
		if apart[text] && predicate != "" {
			name = "/" + predicate + "/ " + text
		}
		if named(out, name) {
			return nil, fmt.Errorf("probe %q: %s is given twice there", s.Text, name)
		}
		a.Text = name
		if had, ok := all[name]; ok && !had.Shape.equal(a.Shape) { // the same words, of other types
			name += " of " + s.Function
		}
		all[name] = a
		w := &wire.Action{Name: name, Snippet: a.Snippet.String(), Cover: a.Covers(), CodeKeys: a.Shape.CodeKeys()}
		if a.Timed() {
			w.Timed = wire.Timed_ENTERS
		}
		out = append(out, w)
	}
	return out, nil
}

func named(all []*wire.Action, name string) bool {
	return slices.ContainsFunc(all, func(a *wire.Action) bool { return a.Name == name })
}

func (s Shape) equal(o Shape) bool {
	return s.Kind == o.Kind && s.Signed == o.Signed && slices.Equal(s.Keys, o.Keys) && slices.Equal(s.Fields, o.Fields)
}
