package daemon

import (
	"bytes"
	"fmt"
	"math/bits"
	"os"
	"slices"
	"strconv"
	"strings"

	"kerninst/agent/kdev"
	"kerninst/agent/ktext"
	"kerninst/agent/plan"
	"kerninst/agent/snippet"
	"kerninst/agent/splice"
	"kerninst/agent/wire"
)

// Virtual time is by the clocks of tasks (snippet.Cell), which stand still while they do not
// run. They are kept by a splice of the daemon's own, which is there as long as virtual time
// is taken of anything: on the way into what the kernel does when it has switched to a task
// (finish_task_switch, kernel/sched/core.c), on the new task's stack, with interrupts off, the
// old task as argument, and before anything branches or calls. A task that is new comes there
// too, through schedule_tail. The old task cannot run elsewhere before: that it has no CPU any
// more is said further down in there (finish_task, behind a branch), so its word is not
// changed by two CPUs at once. An interrupt waits; an NMI reads the new task's clock before it
// goes.
//
// What passes between the switch and this point is the old task's time. What runs in between,
// the rest of __switch_to and the first instructions there, would read the new one's clock
// before it goes: virtual time is not taken of these.
//
// A task's number may be another's as soon as it has been reaped, which may be before its last
// switch; numbers are given out in turn, so all others have to be taken meanwhile.

const (
	switched   = "finish_task_switch"
	pidMaxFile = "/proc/sys/kernel/pid_max"
)

// switches are functions that begin in one task and end in another, or before the clock of
// theirs goes.
var switches = []string{"__switch_to", "__switch_to_asm", "cpu_switch_to", switched}

// clocks are those of a device's tasks.
type clocks struct {
	words kdev.Clocks  // where they are, once any are asked for
	plan  *plan.Plan   // of what keeps them, which is to be live
	live  *splice.Live // what keeps them
}

// pidMax is what all numbers of tasks are below.
func pidMax() (int, error) {
	b, err := os.ReadFile(pidMaxFile)
	if err != nil {
		return 0, fmt.Errorf("how many clocks tasks need: %w", err)
	}
	n, err := strconv.Atoi(string(bytes.TrimSpace(b)))
	if err != nil || n < 1 {
		return 0, fmt.Errorf("how many clocks tasks need: %s says %q", pidMaxFile, b)
	}
	return n, nil
}

// bindClocks says to a cell where clocks are: as many as tasks may have numbers when what
// keeps them is planned.
func (d *Daemon) bindClocks(c *snippet.Cell) error {
	if d.dry { // nothing is written: any place will do
		c.Records, c.Ring = 1<<15, snippet.Ring{At: 8}
		return nil
	}
	if d.clocks.live == nil && d.clocks.plan == nil {
		if err := d.getClocks(); err != nil {
			return err
		}
	}
	c.Records, c.Ring = d.clocks.words.Words, snippet.Ring{At: uint64(d.clocks.words.At)}
	return nil
}

// getClocks gets clocks for all tasks, unless there are enough. They stay until the device is
// closed, also those that have become too few: there are twice as many each time.
func (d *Daemon) getClocks() error {
	n, err := pidMax()
	if err != nil || n <= d.clocks.words.Words {
		return err
	}
	if n > snippet.MaxClocks {
		return fmt.Errorf("tasks have numbers up to %d, and there are clocks for %d at the most: lower %s for vtime", n-1, snippet.MaxClocks, pidMaxFile)
	}
	words, page := max(2, 1<<bits.Len(uint(n-1))), d.info.PageSize
	pages := (8*words + page*d.info.CPUs - 1) / (page * d.info.CPUs) // for each CPU, one behind the other
	got, err := d.dev.AllocRings(pages*page, d.info.CPUs)
	if err != nil {
		return fmt.Errorf("clocks of %d tasks: %w", words, err)
	}
	d.clocks.words = kdev.Clocks{At: got.At, Words: words}
	return nil
}

// kept is where clocks are that are kept; there may be none.
func (c *clocks) kept() kdev.Clocks {
	if c.live == nil {
		return kdev.Clocks{}
	}
	return c.words
}

// room says if tasks may have numbers by now for which there are no clocks.
func (c *clocks) room() error {
	if c.live == nil {
		return nil
	}
	n, err := pidMax()
	if err == nil && n > c.words.Words {
		err = fmt.Errorf("%s was raised to %d: tasks would share clocks, of which there are %d", pidMaxFile, n, c.words.Words)
	}
	return err
}

// clocked is the first instruction by which any of what is timed reads a clock.
func clocked(points []*wire.Point) (*snippet.Insn, error) {
	for _, p := range points {
		timed := slices.DeleteFunc(slices.Clone(p.Actions), func(a *wire.Action) bool { return a.Timed == wire.Timed_UNTIMED })
		for _, a := range timed {
			s, err := snippet.Parse(a.Snippet)
			if err != nil {
				return nil, fmt.Errorf("action %q: %w", a.Name, err)
			}
			if k := slices.IndexFunc(s.Code, func(i snippet.Insn) bool { return i.Op == snippet.Clock }); k >= 0 {
				return &s.Code[k], nil
			}
		}
	}
	return nil, nil
}

// planClocks plans what keeps the clocks that a step asks for, unless that is live already. It
// comes before the step's points: none of them can be where it has to be.
func (d *Daemon) planClocks(s *wire.Splice, before *plan.Set) error {
	d.clocks.plan = nil
	reads, err := clocked(s.Points)
	if err != nil || reads == nil || d.clocks.live != nil {
		return err
	}
	one, r, err := d.planSwitch(reads, before)
	if err == nil && one == nil {
		err = needsSwitch(r.Symbol, fmt.Errorf("%s: %s", r.Refusal.Reason, r.Refusal.Detail))
	}
	if err != nil {
		return err
	}
	d.clocks.plan = one
	before.Add(one)
	return nil
}

// planSwitch plans what keeps the clock that an instruction reads, with the result to report.
func (d *Daemon) planSwitch(reads *snippet.Insn, before *plan.Set) (*plan.Plan, *wire.PointResult, error) {
	name, err := d.switchedName()
	if err != nil {
		return nil, nil, err
	}
	text := fmt.Sprintf("c0 clocks 2\nc1 faults\nv0 u64 = arg 0\nv1 u64 = load 4 v0 %[1]d c1\nswitch c0 v1 %[1]d", reads.Off)
	p := &wire.Point{Function: name, Entry: true, Actions: []*wire.Action{{Name: "switch", Snippet: text}}}
	one, r, err := d.plan(p, before, true)
	if err != nil {
		err = needsSwitch(name, err)
	}
	return one, r, err
}

func needsSwitch(name string, why error) error {
	return fmt.Errorf("virtual time needs a splice at the entry of %s: %w", name, why)
}

// switchedName is the function that is spliced for that, with what the compiler puts behind
// its name.
func (d *Daemon) switchedName() (string, error) {
	found := slices.DeleteFunc(d.text.Named("", switched, func(name string) bool {
		rest := name[len(switched):]
		return (rest == "" || rest[0] == '.') && !plan.Half(name)
	}), func(f ktext.Func) bool { return !d.stays(f) })
	if len(found) != 1 {
		return "", fmt.Errorf("virtual time needs to see the switch of tasks: this kernel has %d functions %s, not one", len(found), switched)
	}
	return found[0].Name, nil
}

// dropped are the plans that will not be live.
func (c *clocks) dropped() (out []*plan.Plan) {
	if c.plan != nil {
		out = append(out, c.plan)
	}
	c.plan = nil
	return out
}

// run notes that what keeps clocks is live, if it is the last of those that became so, and
// gives the points'.
func (c *clocks) run(live []*splice.Live, points int) []*splice.Live {
	if c.plan != nil {
		c.live, c.plan = live[points], nil
	}
	return live[:points]
}

// stopClocks takes back what keeps clocks if nobody reads any more.
func (d *Daemon) stopClocks() error {
	if d.clocks.live == nil || slices.ContainsFunc(d.splicer.Live(), func(l *splice.Live) bool { return l.Plan.Snippet.Has(snippet.Clock) }) {
		return nil
	}
	err := d.splicer.Undo([]*splice.Live{d.clocks.live})
	if err == nil {
		d.clocks.live = nil
	}
	return err
}

// clockless refuses what reads clocks where it is not known whose goes.
func clockless(function string, s snippet.Snippet) *wire.Refusal {
	name, _, _ := strings.Cut(ktext.Base(function), ".") // of the compiler's
	if !s.Has(snippet.Clock) || !slices.Contains(switches, name) {
		return nil
	}
	return &wire.Refusal{Reason: plan.BadSnippet.String(), Detail: function + " is where one task is left for another: it has no virtual time"}
}
