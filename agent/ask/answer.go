package ask

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"kerninst/agent/plan"
	"kerninst/agent/probe"
	"kerninst/agent/wire"
)

// Answer is what became of a request.
type Answer struct {
	Points []Point `json:"points"`
	Clocks *Point  `json:"clocks,omitempty"` // what would be spliced besides, listed, to keep those of virtual time
	// Clones are copies of functions that many points are in, where nobody has said how these are to be reached.
	Clones   []Clone   `json:"clones,omitempty"`
	Times    []Times   `json:"times,omitempty"` // of functions that are timed
	Coverage *Coverage `json:"coverage,omitempty"`
	Workload *Workload `json:"workload,omitempty"`
	Series   []*Series `json:"series,omitempty"`
	Trace    *Trace    `json:"trace,omitempty"`
	// IndexError is why the index that the guest has is not used: registers are known function by function then.
	IndexError string `json:"index_error,omitempty"`

	// Wrong is the first error of a step, in the order of the steps, or else of the end.
	Wrong string `json:"-"`
}

// Point is what became of one point, and what its actions found there.
type Point struct {
	Spec    string `json:"spec"`
	Symbol  string `json:"symbol"`
	Offset  uint64 `json:"offset"`
	Address string `json:"address"`
	// Instruction is what is there, if points are listed.
	Instruction string `json:"instruction,omitempty"`
	// Source is which line the instruction is of, and which inlined copies it is in, from inside to outside, if
	// somebody knows.
	Source string `json:"source,omitempty"`
	// LeadsTo is where a listed point goes that calls, or jumps out of its function: to a function,
	// module and colon in front; LeadsBy is the register that holds where.
	LeadsTo   string   `json:"leads_to,omitempty"`
	LeadsBy   string   `json:"leads_by,omitempty"`
	Mechanism string   `json:"mechanism,omitempty"`
	Liveness  string   `json:"liveness,omitempty"`
	RunsAt    string   `json:"runs_at,omitempty"` // what is counted, if it is not what is at the address: runs as often
	Called    bool     `json:"called,omitempty"`  // it jumps to another function, which is called now, to know what that returns
	Moved     string   `json:"moved,omitempty"`   // the function that runs elsewhere, to make room for the springboard
	Added     int      `json:"added,omitempty"`   // instructions a hit
	Spilled   int      `json:"spilled,omitempty"` // registers and flag words saved
	Refusal   *Refusal `json:"refusal,omitempty"`
	// Passed are the mechanisms that were tried before this one, and why they are not it.
	Passed []Refusal `json:"passed,omitempty"`
	// Value is of the first action, if it has a number: none has been the smallest or
	// largest of nothing, nor has a trace.
	Value   *probe.Number   `json:"value,omitempty"`
	Actions []probe.Finding `json:"actions,omitempty"` // unless the one there is counts, and no load came to nothing
	// together: what it found is told with that of others of its function.
	together bool
}

// Clone is a copy of a function that was chosen for its points.
type Clone struct {
	Function  string `json:"function"`
	Points    int    `json:"points"`
	Mechanism string `json:"mechanism"` // by which it is entered
	Bytes     int    `json:"bytes"`
	// Inside are the tasks that sleep in the function since before it was led to the copy.
	Inside int `json:"inside,omitempty"`
}

// chosen says of points what is cheaper than to splice each.
func (a Answer) chosen() string {
	points, bytes := 0, 0
	for _, c := range a.Clones {
		points, bytes = points+c.Points, bytes+c.Bytes
	}
	of := fmt.Sprintf("%d functions are in copies of these", len(a.Clones))
	if len(a.Clones) == 1 {
		of = fmt.Sprintf("%s are in a copy of it, entered by %s", a.Clones[0].Function, a.Clones[0].Mechanism)
	}
	return fmt.Sprintf("the %d points of %s (%d bytes): each saves a jump there and a jump back; --no-mechanism clone has each by itself", points, of, bytes)
}

// Times are what was found of one function that is timed.
type Times = probe.Times

// times fills in what was found of functions that are timed: those of which each point could
// be had.
func (a *Answer) times(results map[string]*wire.Result, compiled probe.Compiled) {
	read := results[stepRead]
	of := map[string][]*wire.Value{}
	for _, v := range read.GetValues() {
		if v.Timed != wire.Timed_UNTIMED {
			of[v.Action] = append(of[v.Action], v)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		a.Times = append(a.Times, compiled[name].Times(of[name], read.GetMoments())...)
	}
}

// Refusal is why something is not done.
type Refusal struct {
	Reason string `json:"reason"`
	Detail string `json:"detail"`
}

// Workload is how what ran ended.
type Workload struct {
	Exit   int32  `json:"exit"`
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	// Truncated: it wrote more to stdout or stderr than is kept of either.
	Truncated bool `json:"truncated,omitempty"`
	TimedOut  bool `json:"-"`
}

// Answer puts together what the daemon said to the job.
func (r *Request) Answer(records []*wire.Record) Answer {
	a := Answer{Points: []Point{}}
	results := map[string]*wire.Result{}
	for _, rec := range records {
		if res := rec.GetResult(); res != nil {
			results[res.Step] = res
			if a.Wrong == "" {
				a.Wrong = res.Error
			}
		}
		if done := rec.GetDone(); done.GetFailed() && a.Wrong == "" {
			a.Wrong = done.Error
		}
	}
	a.IndexError = results[stepSplice].GetIndexError()
	a.trace(r, records)
	for _, p := range results[stepSplice].GetPoints() {
		out := point(p)
		if p.Refusal == nil {
			out.found(results[stepRead].GetValues(), r)
		}
		a.Points = append(a.Points, out)
	}
	for _, c := range results[stepSplice].GetClones() {
		if c.Points == 0 { // it was asked for
			continue
		}
		a.Clones = append(a.Clones, Clone{c.Entry, int(c.Points), c.Mechanism, int(c.Bytes), int(c.Inside)})
	}
	if p := results[stepSplice].GetPlanned().GetClocks(); p != nil {
		clocks := point(p)
		a.Clocks = &clocks
	}
	if a.Wrong == "" && r.List {
		a.Wrong = a.missing()
	}
	if a.Wrong == "" && !r.List && a.nothing() {
		a.Wrong = "every point is refused: nothing was looked at"
	}
	a.times(results, r.compiled)
	a.cover(results, r.compiled)
	a.series(r, results[stepWorkload].GetSamples())
	for _, w := range results[stepWorkload].GetRuns() {
		a.Workload = &Workload{Exit: w.Exit, Stdout: string(w.Stdout), Stderr: string(w.Stderr), Truncated: w.Truncated, TimedOut: w.TimedOut}
	}
	return a
}

// missing says which of the points that were asked for are in no function that there is.
func (a *Answer) missing() string {
	for _, p := range a.Points {
		if p.Refusal != nil && p.Refusal.Reason == plan.NoSuchFunction.String() {
			return p.Spec + ": " + p.Refusal.Detail
		}
	}
	return ""
}

// nothing reports whether there are points and all are refused.
func (a *Answer) nothing() bool {
	return len(a.Points) > 0 && !slices.ContainsFunc(a.Points, func(p Point) bool { return p.Refusal == nil })
}

func point(p *wire.PointResult) Point {
	out := Point{Spec: p.Spec, Symbol: p.Symbol, Offset: p.Offset, Address: fmt.Sprintf("%#x", p.Address), Instruction: p.Instruction, LeadsTo: p.LeadsTo, LeadsBy: p.LeadsBy,
		Mechanism: p.Mechanism, Liveness: p.Liveness, Called: p.Called, Moved: p.Moved, Added: int(p.Added), Spilled: int(p.Spilled)}
	if p.RunsAt != 0 {
		out.RunsAt = fmt.Sprintf("%#x", p.RunsAt)
	}
	for _, r := range p.Passed {
		out.Passed = append(out.Passed, Refusal{r.Reason, r.Detail})
	}
	if r := p.Refusal; r != nil {
		out.Refusal = &Refusal{r.Reason, r.Detail}
	}
	return out
}

// found fills in what the actions at a point found.
func (p *Point) found(values []*wire.Value, r *Request) {
	for _, v := range values {
		if v.Spec != p.Spec {
			continue
		}
		c := r.compiled[v.Action]
		if c.Timed() || c.Covers() { // it is the function's
			p.together = true
			continue
		}
		a := c.Found(v)
		if c.Traces() {
			a.Hits = r.followed.tracer.Came(v.Spec, v.Action)
		}
		p.Actions = append(p.Actions, a)
	}
	if len(p.Actions) > 0 {
		p.Value = p.Actions[0].Value
	}
	if len(p.Actions) == 1 && p.Actions[0].OnlyCounts() {
		p.Actions = nil
	}
}

// Print writes the answer for people: a listing, or what was found. What the workload wrote
// is the caller's to show, before; if that ends in the middle of a line, the line ends here.
func (r *Request) Print(to io.Writer, a Answer) {
	if w := a.Workload; w != nil && w.Stdout != "" && !strings.HasSuffix(w.Stdout, "\n") {
		fmt.Fprintln(to)
	}
	t := tabwriter.NewWriter(to, 0, 8, 2, ' ', 0)
	for _, p := range a.Points {
		switch {
		case r.List:
			p.list(t)
		case p.Refusal == nil || a.Coverage == nil: // of a function's it says how many
			p.print(t)
		}
	}
	if a.Clocks != nil {
		a.Clocks.list(t)
	}
	t.Flush()
	if a.Clocks != nil {
		fmt.Fprintf(to, "(%s is spliced besides, to keep the clocks of vtime: each switch of tasks comes by)\n", a.Clocks.Spec)
	}
	probe.PrintTimes(to, a.Times)
	if a.Coverage != nil {
		a.Coverage.Print(to)
	}
	if a.Trace != nil {
		a.Trace.print(to, a.sources())
	}
	for _, p := range a.Points {
		for _, why := range p.Passed {
			if r.Why {
				fmt.Fprintf(to, "%s is not reached by %s (%s)\n", p.Spec, why.Detail, why.Reason)
			}
		}
	}
}

// list writes that a point can be had, or why it cannot.
func (p Point) list(t io.Writer) {
	how := p.Mechanism
	switch {
	case p.Refusal != nil:
		how = "refused: " + p.Refusal.Reason + ": " + p.Refusal.Detail
	case p.RunsAt != "":
		how += ", at " + p.RunsAt
	case p.Called:
		how += ", as a call"
	}
	if p.Source != "" {
		how += "\t" + p.Source
	}
	fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", p.Spec, p.Address, p.Instruction+p.leads(), how)
}

// leads is where a point goes, as it is listed behind the instruction.
func (p Point) leads() string {
	if p.LeadsTo == "" {
		return "" // the register is in the instruction, or in its thunk's name
	}
	return " <" + p.LeadsTo + ">"
}

// print writes what was found at a point.
func (p Point) print(t io.Writer) {
	switch {
	case p.Refusal != nil:
		fmt.Fprintf(t, "%s\trefused\t%s: %s\n", p.Spec, p.Refusal.Reason, p.Refusal.Detail)
	case len(p.Actions) > 0:
		for _, a := range p.Actions {
			a.Print(t, p.Spec, p.Mechanism)
		}
	case p.Value != nil:
		fmt.Fprintln(t, strings.TrimRight(strings.Join([]string{p.Spec, p.Mechanism, p.Value.String(), p.Source}, "\t"), "\t"))
	case p.together:
	default:
		fmt.Fprintf(t, "%s\t%s\tnot counted\n", p.Spec, p.Mechanism)
	}
}

// Notes are what should be known beside what was found, a line each.
func (r *Request) Notes(a Answer) (notes []string) {
	if w := a.Workload; w != nil {
		if w.Exit != 0 {
			notes = append(notes, fmt.Sprintf("workload: exit status %d", w.Exit))
		}
		if w.Truncated {
			notes = append(notes, "workload: its output is cut: the first MiB of stdout and of stderr is kept")
		}
	}
	if t := a.Trace; t != nil && t.Lost > 0 {
		notes = append(notes, fmt.Sprintf("trace: %d records were lost, as there was no room: raise --ring", t.Lost))
	}
	if t := a.Trace; t != nil && t.Unfinished > 0 {
		notes = append(notes, fmt.Sprintf("trace: %d records were not written to their end when the workload ended, or are behind one that was not", t.Unfinished))
	}
	if a.IndexError != "" {
		notes = append(notes, "probe: the index is not used, each function is analysed by itself: "+a.IndexError)
	}
	if len(a.Clones) > 0 {
		notes = append(notes, "probe: "+a.chosen())
	}
	for _, c := range a.Clones {
		if c.Inside > 0 {
			notes = append(notes, fmt.Sprintf("probe: %d tasks sleep in %s since before that: they come by no point until they come to it again", c.Inside, c.Function))
		}
	}
	for _, p := range a.Points {
		if p.RunsAt != "" && !r.List {
			notes = append(notes, fmt.Sprintf("probe: %s cannot be spliced itself: counted at %s, which runs exactly as often", p.Spec, p.RunsAt))
		}
	}
	if !r.Inline && slices.ContainsFunc(a.Points, unnamed) {
		notes = append(notes, "probe: --inline finds the copies of functions that the compiler has inlined, of which the kernel has no symbol")
	}
	return notes
}

// unnamed reports whether a point is in a function of which the kernel has no symbol.
func unnamed(p Point) bool {
	return p.Refusal != nil && p.Refusal.Reason == plan.NoSuchFunction.String()
}

// Saved is the most registers and flag words that a point saves.
func (a Answer) Saved() (n int) {
	for _, p := range a.Points {
		n = max(n, p.Spilled)
	}
	return n
}
