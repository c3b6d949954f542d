package probe

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"kerninst/agent/snippet"
	"kerninst/agent/wire"
)

// What is timed. While counting, each entry of a function takes the cycles of its moment
// away from a sum and each exit adds those of its own. So, with those inside at the begin
// taken for entered then and those inside at the end for left then, the sum is the time
// that all calls have spent inside while it was counted; and by the time that was counted,
// how many were inside in the mean (KernInst §4.2). Nothing is kept for each call, so
// that calls may nest, recur, sleep and change CPUs.
//
// Virtual time is the same by another clock: that of the task, which stands still while the
// task is switched out (KernInst §4.2.2; snippet.Cell). Who is inside at a moment has entered,
// or left, when his clock showed what it shows then.

// task is who is asked whether a predicate holds for him, and what his keys are.
type task = *wire.Moment_Inside

// facts are what is known of a task that is inside at a moment.
var facts = map[string]func(task) string{
	"pid":  func(t task) string { return strconv.FormatUint(uint64(t.Process), 10) },
	"tid":  func(t task) string { return strconv.FormatUint(uint64(t.Thread), 10) },
	"comm": func(t task) string { return t.Comm },
}

// timees are whose calls are timed, and what they are kept by.
type timees struct {
	keys  []string // of facts
	holds func(task) bool
}

var errWho = errors.New("who is inside when counting begins is known by pid, tid and comm only: predicates and keys of what is timed can ask for nothing else")

// timed is time and concurrency: the cycles of all calls and how many they are.
func (c *compiler) timed([]number) error {
	now, err := c.number(ast.NewIdent("cycles"))
	if err != nil {
		return err
	}
	c.adds(now.Operand, snippet.C(1))
	return nil
}

// virtual is the time of all calls while their tasks ran. Which clocks there are is said where
// they are kept.
func (c *compiler) virtual([]number) error {
	e := ast.NewIdent("vtime")
	number, err := c.task(e, "pid")
	if err != nil {
		return err
	}
	if number.is.Size() != 4 || number.off > snippet.MaxTask {
		return at(e, "a task's number has %d bytes at %d of it, not 4 up to %d", number.is.Size(), number.off, snippet.MaxTask)
	}
	cell := c.cell(snippet.Cell{Kind: snippet.Clocks, Records: 2})
	now := c.set(snippet.Insn{Op: snippet.Clock, Cell: cell, Off: int32(number.off)}, snippet.U64)
	c.adds(now.Operand, snippet.C(1))
	return nil
}

// who reads predicate and keys of what is timed.
func who(predicate, keys string) (w timees, err error) {
	for name := range strings.SplitSeq(keys, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if facts[name] == nil {
			return w, fmt.Errorf("by %s: %w", name, errWho)
		}
		w.keys = append(w.keys, name)
	}
	w.holds = func(task) bool { return true }
	if predicate != "" {
		e, err := parse(predicate)
		if err == nil {
			w.holds, err = holds(e)
		}
		if err != nil {
			return w, fmt.Errorf("predicate %q: %w", predicate, inColumns(err, predicate))
		}
	}
	return w, nil
}

// holds is what an expression says of a task.
func holds(e ast.Expr) (func(task) bool, error) {
	switch x := e.(type) {
	case *ast.ParenExpr:
		return holds(x.X)
	case *ast.UnaryExpr:
		if is, err := holds(x.X); err == nil && x.Op == token.NOT {
			return func(t task) bool { return !is(t) }, nil
		}
	case *ast.BinaryExpr:
		if x.Op != token.LAND && x.Op != token.LOR {
			return equals(x)
		}
		a, err := holds(x.X)
		if err != nil {
			return nil, err
		}
		b, err := holds(x.Y)
		if x.Op == token.LAND {
			return func(t task) bool { return a(t) && b(t) }, err
		}
		return func(t task) bool { return a(t) || b(t) }, err
	}
	return nil, at(e, "%s: %w", show(e), errWho)
}

// equals is a comparison of a fact with a number or a text.
func equals(x *ast.BinaryExpr) (func(task) bool, error) {
	name, value := x.X, x.Y
	if _, ok := name.(*ast.BasicLit); ok {
		name, value = value, name
	}
	fact, lit := facts[show(name)], constant(value)
	if fact == nil || lit == nil || x.Op != token.EQL && x.Op != token.NEQ {
		return nil, at(x, "%s: %w; compare them by == and != with a constant", show(x), errWho)
	}
	return func(t task) bool { return (fact(t) == *lit) == (x.Op == token.EQL) }, nil
}

// constant is one as facts are written; nil: it is none.
func constant(e ast.Expr) *string {
	l, ok := e.(*ast.BasicLit)
	if !ok {
		return nil
	}
	s, err := strconv.Unquote(l.Value)
	if n, bad := strconv.ParseUint(l.Value, 0, 64); bad == nil {
		s, err = strconv.FormatUint(n, 10), nil
	}
	if err != nil {
		return nil
	}
	return &s
}

// Timed is the time that was spent in a function, of one of the keys or of all.
type Timed struct {
	Keys  []string `json:"keys,omitempty"`
	Calls uint64   `json:"calls"` // that came while it was counted
	Begin int64    `json:"begin"` // inside when counting began,
	End   int64    `json:"end"`   // and when it ended
	// Missing is how many calls more came or were inside at first than left or were inside at last;
	// of those that end otherwise than by a return, or came when keys had no room. Unless
	// it is 0, time and concurrency are not known.
	Missing int64   `json:"missing,omitempty"`
	NS      float64 `json:"ns"`     // spent inside by all calls, together; of vtime while they ran
	Inside  float64 `json:"inside"` // how many were, in the mean; likewise
}

// Block is a basic block, in bytes from its function's start: where it begins, and behind its
// last instruction.
type Block struct {
	Begin uint64 `json:"begin"`
	End   uint64 `json:"end"`
}

// Times are what was found of one function, or of one of its blocks.
type Times struct {
	Function string  `json:"function"` // module:function
	Block    *Block  `json:"block,omitempty"`
	Action   string  `json:"action"`
	Rows     []Timed `json:"rows"`
	Cut      bool    `json:"cut,omitempty"`  // of a stack only the innermost frames were looked at
	Lost     uint64  `json:"lost,omitempty"` // entries and exits that came when there was no room for one key more
	shape    Shape
}

// tally is what is added up for one of the keys.
type tally struct {
	cycles        uint64 // mod 2^64
	enters, exits uint64
	begin, end    int64
}

// unit is a function, or a block of one, whose End is not 0.
type unit struct {
	function string
	Block
}

// unitOf is what a value, or a task that is inside, is of.
func unitOf(of interface {
	GetFunction() string
	GetBlock() *wire.Block
}) unit {
	return unit{of.GetFunction(), Block{of.GetBlock().GetBegin(), of.GetBlock().GetEnd()}}
}

// Times reads what was found of the functions and blocks that an action times, in order of
// their names and places.
func (a Action) Times(values []*wire.Value, moments []*wire.Moment) (out []Times) {
	if len(moments) != 2 {
		return nil
	}
	of := map[unit][]*wire.Value{}
	for _, v := range values {
		of[unitOf(v)] = append(of[unitOf(v)], v)
	}
	inside := [2]map[unit][]task{tasksOf(moments[0]), tasksOf(moments[1])}
	for u, values := range of {
		t := Times{Function: u.function, Action: a.Text, shape: a.Shape}
		if u.End > 0 {
			t.Block = &u.Block
		}
		t.fill(a, values, moments, [2][]task{inside[0][u], inside[1][u]})
		for _, v := range values {
			t.Function = cmp.Or(AskedAs(v), t.Function)
		}
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b Times) int {
		return cmp.Or(strings.Compare(a.Function, b.Function), cmp.Compare(a.begin(), b.begin()))
	})
	return out
}

// tasksOf are those that are inside at a moment, by what they are inside of.
func tasksOf(m *wire.Moment) map[unit][]task {
	out := map[unit][]task{}
	for _, i := range m.Inside {
		out[unitOf(i)] = append(out[unitOf(i)], i)
	}
	return out
}

// AskedAs is the name by which somebody asked for a function that is timed, which may have
// several; "" if what was found at its entry is not what this is.
func AskedAs(v *wire.Value) string {
	if v.Timed != wire.Timed_ENTERS || v.Symbol == "" {
		return ""
	}
	module, _, _ := strings.Cut(v.Function, ":")
	return module + ":" + v.Symbol
}

// begin is where what is timed begins.
func (t Times) begin() uint64 {
	if t.Block == nil {
		return 0
	}
	return t.Block.Begin
}

// Inside is how many calls of a function that an action times, or threads in a block, were
// inside at a moment: of what the value is of.
func (a Action) Inside(m *wire.Moment, of *wire.Value) (n int64) {
	for _, i := range m.GetInside() {
		if unitOf(i) == unitOf(of) && a.who.holds(i) {
			n += int64(i.Frames)
		}
	}
	return n
}

func (t *Times) fill(a Action, values []*wire.Value, moments []*wire.Moment, in [2][]task) {
	began, ended := moments[0], moments[1]
	all := map[string]*tally{}
	of := func(keys []string) *tally {
		k := strings.Join(keys, "\x00")
		if all[k] == nil {
			all[k] = &tally{}
		}
		return all[k]
	}
	if len(a.who.keys) == 0 {
		of(nil)
	}
	for _, v := range values {
		t.Lost += v.Lost
		for _, r := range v.Rows {
			if len(r.Values) == 2 {
				of(Write(a.Shape.Keys, r.Keys)).add(v.Timed == wire.Timed_LEAVES, r.Values[0], r.Values[1])
			}
		}
	}
	inside := func(m *wire.Moment, in []task, add func(y *tally, n int64, cycles uint64)) {
		t.Cut = t.Cut || m.Cut > 0
		for _, i := range in {
			if a.who.holds(i) {
				var keys []string
				for _, name := range a.who.keys {
					keys = append(keys, facts[name](i))
				}
				cycles := m.Cycles
				if a.Virtual() {
					cycles = i.Clock
				}
				add(of(keys), int64(i.Frames), uint64(i.Frames)*cycles)
			}
		}
	}
	inside(began, in[0], func(y *tally, n int64, cycles uint64) { y.begin, y.cycles = y.begin+n, y.cycles-cycles })
	inside(ended, in[1], func(y *tally, n int64, cycles uint64) { y.end, y.cycles = y.end+n, y.cycles+cycles })
	for k, y := range all {
		row := y.timed(began, ended)
		if k != "" {
			row.Keys = strings.Split(k, "\x00")
		}
		t.Rows = append(t.Rows, row)
	}
	slices.SortFunc(t.Rows, func(a, b Timed) int {
		return cmp.Or(cmp.Compare(a.Inside, b.Inside), slices.Compare(a.Keys, b.Keys))
	})
}

func (y *tally) add(leaves bool, cycles, n uint64) {
	if leaves {
		y.cycles, y.exits = y.cycles+cycles, y.exits+n
	} else {
		y.cycles, y.enters = y.cycles-cycles, y.enters+n
	}
}

// timed is a row of what was found between two moments.
func (y *tally) timed(began, ended *wire.Moment) Timed {
	out := Timed{Calls: y.enters, Begin: y.begin, End: y.end, Missing: y.begin + int64(y.enters) - int64(y.exits) - y.end}
	if whole := ended.Cycles - began.Cycles; out.Missing == 0 && whole > 0 {
		out.Inside = float64(y.cycles) / float64(whole)
		out.NS = out.Inside * float64(ended.Ns-began.Ns)
	}
	return out
}

// PrintTimes writes what was found for people: a table for each function, and one for all
// blocks of one.
func PrintTimes(to io.Writer, all []Times) {
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[0].Block != nil && all[n].Block != nil && all[n].Function == all[0].Function && all[n].Action == all[0].Action {
			n++
		}
		table(to, all[:n])
		all = all[n:]
	}
}

// table writes what was found of one function, or of its blocks.
func table(to io.Writer, all []Times) {
	name, head := "entry", "calls\tthere at first\tat last\ttime\tof a call\tinside in the mean\t"
	if all[0].Block != nil {
		name, head = "block", "entries\tthere at first\tat last\ttime\tof an entry\tinside in the mean\t  block"
	}
	fmt.Fprintf(to, "kinst:%s:%s  %s\n", all[0].Function, name, all[0].Action)
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\t%s\n", head)
	cut, lost := false, uint64(0)
	for _, t := range all {
		cut, lost = cut || t.Cut, lost+t.Lost
		t.rows(w)
	}
	w.Flush()
	if cut {
		fmt.Fprintln(to, "who is inside was looked for in the innermost frames only: some stacks are deeper")
	}
	if lost > 0 {
		fmt.Fprintf(to, "%d entries and exits had no room for one key more\n", lost)
	}
}

func (t Times) rows(w io.Writer) {
	for _, r := range t.Rows {
		names := r.Keys
		if t.Block != nil {
			names = append([]string{fmt.Sprintf("%d to %d", t.Block.Begin, t.Block.End)}, names...)
		}
		of := strings.Join(names, ", ")
		if r.Missing != 0 {
			fmt.Fprintf(w, "\t%d\t%d\t%d\tnot known: %s\t\t\t  %s\n", r.Calls, r.Begin, r.End, r.missing(), of)
			continue
		}
		fmt.Fprintf(w, "\t%d\t%d\t%d\t%s\t%s\t%.6f\t  %s\n", r.Calls, r.Begin, r.End, duration(r.NS), r.each(), r.Inside, of)
	}
}

// missing is what is wrong where not all that began ended, or the other way round, as of a task
// that has another name when it leaves.
func (r Timed) missing() string {
	if r.Missing < 0 {
		return fmt.Sprintf("%d calls more ended than began", -r.Missing)
	}
	return fmt.Sprintf("%d calls more began than ended", r.Missing)
}

// each is the time of a call in the mean, where all began and ended while it was counted.
func (r Timed) each() string {
	if r.Calls == 0 || r.Begin != 0 || r.End != 0 {
		return "-"
	}
	return duration(r.NS / float64(r.Calls))
}

// duration is nanoseconds in the largest unit of which there is one.
func duration(ns float64) string {
	for _, u := range []struct {
		name string
		ns   float64
	}{{"s", 1e9}, {"ms", 1e6}, {"µs", 1e3}} {
		if ns >= u.ns {
			return fmt.Sprintf("%.4f %s", ns/u.ns, u.name)
		}
	}
	return fmt.Sprintf("%.0f ns", ns)
}
