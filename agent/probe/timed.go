package probe

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
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
		e, err := parser.ParseExpr(predicate)
		if err == nil {
			w.holds, err = holds(e)
		}
		if err != nil {
			return w, fmt.Errorf("predicate %q: %w", predicate, err)
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

// Times are what was found of one function.
type Times struct {
	Function string  `json:"function"` // module:function
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

// Times reads what was found of the functions that an action times, in order of their names.
func (a Action) Times(values []*wire.Value, moments []*wire.Moment) (out []Times) {
	if len(moments) != 2 {
		return nil
	}
	var names []string
	for _, v := range values {
		names = append(names, v.Function)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		t := Times{Function: name, Action: a.Text, shape: a.Shape}
		of := slices.DeleteFunc(slices.Clone(values), func(v *wire.Value) bool { return v.Function != name })
		t.fill(a, of, moments[0], moments[1])
		for _, v := range of {
			t.Function = cmp.Or(AskedAs(v), t.Function)
		}
		out = append(out, t)
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

// Inside is how many calls of a function that an action times were inside at a moment.
func (a Action) Inside(m *wire.Moment, function string) (n int64) {
	for _, i := range m.GetInside() {
		if i.Function == function && a.who.holds(i) {
			n += int64(i.Frames)
		}
	}
	return n
}

func (t *Times) fill(a Action, values []*wire.Value, began, ended *wire.Moment) {
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
	inside := func(m *wire.Moment, add func(y *tally, n int64, cycles uint64)) {
		t.Cut = t.Cut || m.Cut > 0
		for _, i := range m.Inside {
			if i.Function == t.Function && a.who.holds(i) {
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
	inside(began, func(y *tally, n int64, cycles uint64) { y.begin, y.cycles = y.begin+n, y.cycles-cycles })
	inside(ended, func(y *tally, n int64, cycles uint64) { y.end, y.cycles = y.end+n, y.cycles+cycles })
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

// Print writes it for people.
func (t Times) Print(to io.Writer) {
	fmt.Fprintf(to, "kinst:%s:entry  %s\n", t.Function, t.Action)
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\tcalls\tthere at first\tat last\ttime\tof a call\tinside in the mean\t\n")
	for _, r := range t.Rows {
		if r.Missing != 0 {
			fmt.Fprintf(w, "\t%d\t%d\t%d\tnot known: %s\t\t\t  %s\n", r.Calls, r.Begin, r.End, r.missing(), strings.Join(r.Keys, ", "))
			continue
		}
		fmt.Fprintf(w, "\t%d\t%d\t%d\t%s\t%s\t%.6f\t  %s\n", r.Calls, r.Begin, r.End, duration(r.NS), r.each(), r.Inside, strings.Join(r.Keys, ", "))
	}
	w.Flush()
	if t.Cut {
		fmt.Fprintln(to, "who is inside was looked for in the innermost frames only: some stacks are deeper")
	}
	if t.Lost > 0 {
		fmt.Fprintf(to, "%d entries and exits had no room for one key more\n", t.Lost)
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
