package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"kerninst/agent/ask"
	"kerninst/agent/ktext"
)

type options struct {
	pid    int
	from   string
	by     string // one of measures
	window time.Duration
	deep   int
	rest   float64 // how many times as long as a question took
}

// measures are what may be followed: all time, or that in which there was a CPU. Time in which
// nothing is done is nobody's; who follows what CPUs did has none of it.
var measures = map[string]struct {
	of    func(Inside) float64
	waits []string
}{
	"elapsed": {func(in Inside) float64 { return in.Concurrency }, waits},
	"virtual": {func(in Inside) float64 { return in.Virtual }, nil},
}

// most is what there is of a function, of what is followed.
func (d *detective) most(in Inside) float64 { return measures[d.by].of(in) }

// Level is what was found of one function, and of what it calls.
type Level struct {
	// Function is that of the level; empty: all system calls.
	Function string `json:"function"`
	Inside   Inside `json:"inside"`
	// Callees are what it calls, those with most of its time first.
	Callees []Callee `json:"callees"`
	// Next is that at which the next level is; empty: Why there is none.
	Next string `json:"next,omitempty"`
	Why  string `json:"why,omitempty"`
}

// Inside is what was found of a function in one window, of the process alone.
type Inside struct {
	Calls       uint64  `json:"calls"`
	PerSecond   float64 `json:"per_second"`
	Concurrency float64 `json:"concurrency"` // threads inside in the mean, asleep or not
	Virtual     float64 `json:"virtual"`     // those of them that had a CPU
}

// Callee is a function that another one calls.
type Callee struct {
	Function string `json:"function"`
	Inside
	// Here is how many of the calls were from the function of the level.
	Here uint64 `json:"here"`
	// Share is what these have of the time that is followed, as a part of elapsed time: taken to be
	// as long as any other, or so long that nothing else could have had it.
	Share float64 `json:"share"`
	// Refused is why nothing is known of it.
	Refused string `json:"refused,omitempty"`
}

// detective is one investigation.
type detective struct {
	options
	ask      func(args ...string) (answer, error)
	prefix   string      // of the functions of system calls
	dispatch dispatcher  // may be none
	found    func(Level) // each level, as it is found; may be nil
}

// waits are system calls that wait for others to do something: time in them is nobody's.
var waits = []string{"epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6", "nanosleep", "clock_nanosleep",
	"futex", "wait4", "waitid", "pause", "rt_sigtimedwait", "rt_sigsuspend", "io_getevents", "io_pgetevents"}

// sleeps are functions in which a task gives its CPU away: who calls them sleeps, and what is
// further down is the scheduler's.
var sleeps = []string{"schedule", "__schedule", "schedule_timeout", "io_schedule", "io_schedule_timeout", "schedule_preempt_disabled", "schedule_hrtimeout_range", "preempt_schedule_common"}

// half of a function's time has to be in what it calls for that to be followed.
const half = 0.5

func (d *detective) follow() (levels []Level, err error) {
	l := Level{Function: d.from}
	if d.from == "" {
		if l, err = d.systemCalls(); err != nil {
			return nil, err
		}
		levels = d.add(levels, l)
		l = Level{Function: l.Next}
	}
	for l.Function != "" && len(levels) < d.deep {
		if l, err = d.level(l.Function); err != nil {
			return levels, err
		}
		l.decide(d.most(l.Inside), levels)
		levels = d.add(levels, l)
		l = Level{Function: l.Next}
	}
	return levels, nil
}

func (d *detective) add(levels []Level, l Level) []Level {
	if d.found != nil {
		d.found(l)
	}
	return append(levels, l)
}

// decide chooses what comes next: what has most of the time, if that is at least half of it.
func (l *Level) decide(time float64, before []Level) {
	if len(l.Callees) == 0 {
		l.Why = "it calls nothing"
		return
	}
	most := l.Callees[0]
	over := func(c Level) bool { return c.Function == most.Function }
	switch {
	case slices.Contains(sleeps, most.Function):
		l.Why = "it sleeps, in " + most.Function
	case most.Share < half*time || most.Share == 0:
		l.Why = "nothing that it calls has half of its time"
	case most.Function == l.Function || slices.ContainsFunc(before, over):
		l.Why = most.Function + " calls itself"
	default:
		l.Next = most.Function
	}
}

// systemCalls is the level above all functions. What waits is not followed.
func (d *detective) systemCalls() (l Level, err error) {
	called, err := d.calledFromUser()
	if err != nil {
		return l, err
	}
	l.Callees, err = d.measure(called, nil)
	if err != nil {
		return l, err
	}
	for k, c := range l.Callees {
		l.Callees[k].Here, l.Callees[k].Share = c.Calls, d.most(c.Inside)
		l.Inside.Calls += c.Calls
		l.Inside.PerSecond += c.PerSecond
		l.Inside.Concurrency += c.Concurrency
		l.Inside.Virtual += c.Virtual
	}
	byShare(l.Callees)
	k := slices.IndexFunc(l.Callees, func(c Callee) bool {
		return c.Refused == "" && !slices.Contains(measures[d.by].waits, strings.TrimPrefix(c.Function, d.prefix))
	})
	if k < 0 {
		l.Why = fmt.Sprintf("process %d did nothing but wait", d.pid)
		return l, nil
	}
	l.Next = l.Callees[k].Function
	return l, nil
}

// calledFromUser are the functions of the system calls that the process made in one window.
func (d *detective) calledFromUser() (called []string, err error) {
	specs := []string{d.spec(d.prefix+"*", "entry", "")}
	if d.dispatch.spec != "" {
		specs = []string{d.dispatch.spec + d.of("count by ksym("+d.dispatch.function+")")}
	}
	a, err := d.watch(specs)
	if err != nil {
		return nil, err
	}
	for _, p := range a.Points {
		switch {
		case d.dispatch.spec != "":
			for _, to := range d.targets(site{spec: p.Spec}, a.Points) {
				called = append(called, to.function)
			}
		case p.Value != nil && p.Value.Bits > 0:
			called = append(called, p.Symbol)
		}
	}
	if len(called) == 0 {
		return nil, fmt.Errorf("process %d made no system call within %v", d.pid, d.window)
	}
	slices.Sort(called)
	return called, nil
}

// level measures one function and what it calls; and, where nothing of that has half of the time, what was left to by jumps
// from there, as who looks from outside has it, to whom what is jumped to is called by the function itself.
func (d *detective) level(function string) (l Level, err error) {
	l.Function = function
	sites, err := d.sites(function)
	if err != nil {
		return l, err
	}
	calls, err := d.called(sites)
	if err != nil {
		return l, err
	}
	if err := d.timed(&l, calls, sites); err != nil {
		return l, err
	}
	if len(calls) == 0 || l.Callees[0].Share >= half*d.most(l.Inside) {
		return l, nil
	}
	jumps, err := d.leads(calls, "return")
	if err != nil {
		return l, err
	}
	further, err := d.called(jumps)
	if err != nil || len(further) == 0 {
		return l, err
	}
	calls = append(calls, further...)
	slices.Sort(calls)
	return l, d.timed(&l, slices.Compact(calls), append(sites, jumps...))
}

// timed measures a level's function and what it calls. Where what it calls has left by a jump, its time is over, and that of
// what it jumped to has begun.
func (d *detective) timed(l *Level, calls []string, sites []site) error {
	all, err := d.measure(append([]string{l.Function}, calls...), sites)
	if err != nil {
		return err
	}
	l.Inside, l.Callees = all[0].Inside, all[1:]
	if all[0].Refused != "" {
		return fmt.Errorf("%s cannot be timed: %s", l.Function, all[0].Refused)
	}
	if d.by == "elapsed" {
		l.asleep()
	}
	byShare(l.Callees)
	return nil
}

// asleep gives each callee at least the time of the level that nothing else can have had: while a
// function has no CPU it sleeps in something that it calls. Calls from here may sleep, and all
// others, which are as many, not.
func (l *Level) asleep() {
	left := l.Inside.Concurrency - l.Inside.Virtual
	for _, c := range l.Callees {
		left -= c.Concurrency
	}
	for k, c := range l.Callees {
		l.Callees[k].Share = max(c.Share, c.Concurrency+min(left, 0)) // above 0: what cannot be timed slept, too
	}
}

func byShare(all []Callee) {
	slices.SortStableFunc(all, func(a, b Callee) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), strings.Compare(a.Function, b.Function))
	})
}

// site is an instruction that calls.
type site struct {
	spec     string // kinst:module:function:offset
	to       string // the function; empty: what is in
	register string
}

// sites lists those of a function, jumps out of it too.
func (d *detective) sites(function string) (out []site, err error) {
	return d.leads([]string{function}, "call", "return")
}

// leads are those of these kinds in functions.
func (d *detective) leads(functions []string, kinds ...string) (out []site, err error) {
	words := []string{"-l"}
	for _, f := range functions {
		for _, kind := range kinds {
			words = append(words, "kinst:"+kinstName(f)+":"+kind)
		}
	}
	a, err := d.ask(words...)
	if err != nil {
		return nil, err
	}
	for _, p := range a.Points {
		if p.LeadsTo == "" && p.LeadsBy == "" {
			continue
		}
		if p.Refusal == nil {
			out = append(out, site{p.Spec, p.LeadsTo, p.LeadsBy})
		} else if spec, ok := behindStatic(p); ok {
			out = append(out, site{spec: spec, to: p.LeadsTo})
		}
	}
	return out, nil
}

// behindStatic is the place behind a static call, which the kernel rewrites, so that nothing else can be there: who calls comes by
// behind it. Only amd64 has such, of five bytes.
func behindStatic(p ask.Point) (spec string, ok bool) {
	at := strings.LastIndexByte(p.Spec, ':')
	if !strings.Contains(p.Refusal.Detail, ktext.StaticCall.String()) || !strings.HasPrefix(p.Instruction, "call ") || p.LeadsTo == "" || at < 0 {
		return "", false
	}
	return fmt.Sprintf("%s:%d", p.Spec[:at], p.Offset+5), true
}

// called are the functions that sites called in one window. Who calls by a register says whom
// then.
func (d *detective) called(sites []site) (out []string, err error) {
	if len(sites) == 0 {
		return nil, nil
	}
	a, err := d.watch(d.counts(sites))
	if err != nil {
		return nil, err
	}
	for _, s := range sites {
		for _, to := range d.targets(s, a.Points) {
			if to.n > 0 && !slices.Contains(out, to.function) {
				out = append(out, to.function)
			}
		}
	}
	return out, nil
}

// counts are the questions by which sites are counted.
func (d *detective) counts(sites []site) (specs []string) {
	for _, s := range sites {
		action := ""
		if s.to == "" {
			action = fmt.Sprintf("count by ksym(reg(%q))", s.register)
		}
		specs = append(specs, s.spec+d.of(action))
	}
	return specs
}

// target is a function that a site called so often.
type target struct {
	function string
	n        uint64
}

// targets are what a site called.
func (d *detective) targets(s site, points []ask.Point) (out []target) {
	k := slices.IndexFunc(points, func(p ask.Point) bool { return p.Spec == s.spec && p.Refusal == nil })
	switch {
	case k < 0:
	case s.to != "" && points[k].Value != nil:
		return []target{{s.to, points[k].Value.Bits}}
	case s.to == "" && len(points[k].Actions) > 0:
		for _, row := range points[k].Actions[0].Rows {
			if name := row.Keys[0]; !strings.HasPrefix(name, "0x") && !strings.Contains(name, "+") { // it is a function's first
				out = append(out, target{name, row.Hits})
			}
		}
	}
	return out
}

// measure times functions for one window, and counts by which sites they are called. A callee's
// time is of all its calls; of those that are from here it is taken to be the same part.
func (d *detective) measure(functions []string, sites []site) (out []Callee, err error) {
	var specs []string
	for _, f := range functions {
		specs = append(specs, d.spec(f, "entry", "time"), d.spec(f, "entry", "vtime"))
	}
	a, err := d.watch(append(specs, d.counts(sites)...))
	if err != nil {
		return nil, err
	}
	here := map[string]uint64{}
	for _, s := range sites {
		for _, to := range d.targets(s, a.Points) {
			here[to.function] += to.n
		}
	}
	for _, f := range functions {
		c := Callee{Function: f, Inside: d.inside(f, a.Times), Here: here[f], Refused: refused(f, a)}
		if c.Calls > 0 {
			c.Share = d.most(c.Inside) * min(1, float64(c.Here)/float64(c.Calls))
		}
		out = append(out, c)
	}
	return out, nil
}

// inside is what was found of a function.
func (d *detective) inside(f string, times []ask.Times) (in Inside) {
	for _, t := range times {
		if t.Function != kinstName(f) || len(t.Rows) == 0 {
			continue
		}
		switch row := t.Rows[0]; t.Action {
		case "time":
			in.Calls, in.Concurrency = row.Calls, row.Inside
			in.PerSecond = float64(row.Calls) / d.window.Seconds()
		case "vtime":
			in.Virtual = row.Inside
		}
	}
	return in
}

// refused is why a function was not timed; empty: it was.
func refused(f string, a answer) string {
	for _, t := range a.Times {
		if t.Function == kinstName(f) {
			return ""
		}
	}
	name := f[strings.IndexByte(f, ':')+1:]
	for _, p := range a.Points {
		if p.Refusal != nil && (p.Symbol == name || strings.HasPrefix(p.Spec, "kinst:"+kinstName(f)+":")) {
			return p.Refusal.Reason + ": " + p.Refusal.Detail
		}
	}
	return "nothing was said of it"
}

// watch asks while the process goes on for one window, and rests.
func (d *detective) watch(specs []string) (answer, error) {
	begin := time.Now()
	defer func() { time.Sleep(time.Duration(d.rest * float64(time.Since(begin)))) }()
	return d.ask(slices.Concat(specs, []string{"--", "sleep", strconv.FormatFloat(d.window.Seconds(), 'f', -1, 64)})...)
}

// spec is a probe of a function's, for this process alone.
func (d *detective) spec(function, name, action string) string {
	return "kinst:" + kinstName(function) + ":" + name + d.of(action)
}

func (d *detective) of(action string) string {
	s := fmt.Sprintf(" /pid == %d/", d.pid)
	if action != "" {
		s += " " + action
	}
	return s
}

// kinstName is a function with its module and a colon in front, which is empty of the kernel's own.
func kinstName(function string) string {
	if strings.Contains(function, ":") {
		return function
	}
	return ":" + function
}
