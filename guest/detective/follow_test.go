package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"kerninst/agent/ask"
	"kerninst/agent/ktext"
	"kerninst/agent/probe"
)

// callGraph is a kernel: what each function calls, how often a window, and how long threads are
// in it.
type callGraph map[string]struct {
	calls   map[string]uint64
	byReg   bool   // by a register
	jumps   string // to this function at its end, each time
	all     uint64
	elapsed float64
	refused bool
}

// Of an ISA on which all come by one place.
var (
	somePrefix   = ktext.Syscall("amd64", "")
	someDispatch = dispatchers["amd64"]
)

// answer answers as kinst does.
func (g callGraph) answer(args ...string) (a answer, err error) {
	a.Status = "passed"
	list := args[0] == "-l"
	for _, arg := range args {
		spec, rest, _ := strings.Cut(arg, " ")
		if !strings.HasPrefix(spec, "kinst:") {
			continue
		}
		f := strings.Split(spec, ":")
		name := f[2]
		if f[1] != "" {
			name = f[1] + ":" + name
		}
		p := ask.Point{Spec: spec, Symbol: f[2]}
		switch node := g[name]; {
		case spec == someDispatch.spec:
			var rows []probe.Row
			for _, to := range slices.Sorted(maps.Keys(g)) {
				if strings.HasPrefix(to, somePrefix) {
					rows = append(rows, probe.Row{Keys: []string{to}, Hits: g[to].all})
				}
			}
			p.Actions = []probe.Finding{{Rows: rows}}
		case strings.HasSuffix(f[2], "*"):
			for _, at := range slices.Sorted(maps.Keys(g)) {
				if strings.HasPrefix(at, strings.TrimSuffix(f[2], "*")) {
					a.Points = append(a.Points, ask.Point{Spec: at, Symbol: at, Value: &probe.Number{Bits: g[at].all}})
				}
			}
			continue
		case list && f[3] == "call":
			for k, to := range g.callees(name) {
				q := ask.Point{Spec: fmt.Sprintf("kinst:%s:%s:%d", f[1], f[2], k), LeadsTo: to}
				if node.byReg {
					q.LeadsTo, q.LeadsBy = "", "x8"
				}
				a.Points = append(a.Points, q)
			}
			continue
		case list:
			if f[3] == "return" && node.jumps != "" {
				a.Points = append(a.Points, ask.Point{Spec: fmt.Sprintf("kinst:%s:%s:99", f[1], f[2]), LeadsTo: node.jumps})
			}
			continue
		case f[3] == "99":
			p.Value = &probe.Number{Bits: node.all}
		case f[3] == "entry" && node.refused:
			p.Refusal = &ask.Refusal{Reason: "reserved", Detail: "entry code"}
		case f[3] == "entry":
			action := rest[strings.LastIndexByte(rest, ' ')+1:]
			inside := map[string]float64{"time": node.elapsed, "vtime": node.elapsed / 2}[action]
			a.Times = append(a.Times, ask.Times{Function: kinstName(name), Action: action, Rows: []probe.Timed{{Calls: node.all, Inside: inside}}})
		default:
			var k int
			fmt.Sscan(f[3], &k)
			to := g.callees(name)[k]
			n := node.calls[to]
			if p.Value = (&probe.Number{Bits: n}); node.byReg {
				p.Value, p.Actions = nil, []probe.Finding{{Rows: []probe.Row{{Keys: []string{"0x77"}, Hits: n}, {Keys: []string{to + "+0x4"}, Hits: n}, {Keys: []string{to}, Hits: n}}}}
			}
		}
		a.Points = append(a.Points, p)
	}
	return a, nil
}

func (g callGraph) callees(f string) (out []string) {
	for to := range g[f].calls {
		out = append(out, to)
	}
	slices.Sort(out)
	return out
}

// followed is where the detective went.
func followed(levels []Level) (path []string) {
	for _, l := range levels {
		path = append(path, l.Function)
	}
	return path
}

// TestFollowsJumps: what has the time was left to by a jump from what is called, and so is not in that.
func TestFollowsJumps(t *testing.T) {
	g := callGraph{
		somePrefix + "close": {all: 10, elapsed: 0.3, calls: map[string]uint64{"flush": 10, "__fput_sync": 10}},
		"flush":              {all: 10, elapsed: 0.01},
		"__fput_sync":        {all: 10, elapsed: 0.001, jumps: "__fput"},
		"__fput":             {all: 10, elapsed: 0.28, calls: map[string]uint64{"release": 10}},
		"release":            {all: 10, elapsed: 0.27},
	}
	d := detective{options: options{pid: 7, by: "elapsed", window: time.Second, deep: 20}, ask: g.answer, prefix: somePrefix, dispatch: someDispatch}
	levels, err := d.follow()
	if path, want := followed(levels), []string{"", somePrefix + "close", "__fput", "release"}; err != nil || !slices.Equal(path, want) {
		t.Errorf("followed %q, %v; want %q", path, err, want)
	}
}

// TestFollow: from the system call that does not wait, by calls of all kinds, to where a task
// sleeps. What is dear but mostly called by others is not followed.
func TestFollow(t *testing.T) {
	g := callGraph{
		somePrefix + "epoll_wait": {all: 9, elapsed: 0.6},
		somePrefix + "close":      {all: 9, elapsed: 0.01},
		somePrefix + "read":       {all: 10, elapsed: 0.3, calls: map[string]uint64{"vfs_read": 10, "fput": 10, "never": 0}},
		"fput":                    {all: 1000, elapsed: 0.4},
		"vfs_read":                {all: 12, elapsed: 0.3, byReg: true, calls: map[string]uint64{"m:read_it": 12}},
		"m:read_it":               {all: 12, elapsed: 0.29, calls: map[string]uint64{"get_page": 12, "hidden": 12}},
		"hidden":                  {refused: true},
		"get_page":                {all: 12, elapsed: 0.28, calls: map[string]uint64{"schedule": 9}},
		"schedule":                {all: 9, elapsed: 0.27},
	}
	d := detective{options: options{pid: 7, by: "elapsed", window: time.Second, deep: 20}, ask: g.answer, prefix: somePrefix, dispatch: someDispatch}
	levels, err := d.follow()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range levels {
		for _, c := range l.Callees {
			if _, ok := g[c.Function]; !ok {
				t.Errorf("%s calls %s, which is no function's first instruction", l.Function, c.Function)
			}
		}
	}
	path := followed(levels)
	if want := []string{"", somePrefix + "read", "vfs_read", "m:read_it", "get_page"}; !slices.Equal(path, want) {
		t.Errorf("followed %q, want %q", path, want)
	}
	if last := levels[len(levels)-1]; last.Why != "it sleeps, in schedule" {
		t.Errorf("it ended for %q", last.Why)
	}
	if c := levels[1].Callees; len(c) != 2 || c[1].Function != "fput" || c[1].Share < 0.0039 || c[1].Share > 0.0041 || c[0].Virtual != 0.15 {
		t.Errorf("callees of read: %+v", c)
	}
	if c := levels[3].Callees; len(c) != 2 || c[1].Refused != "reserved: entry code" {
		t.Errorf("callees of read_it: %+v", c)
	}
	var text strings.Builder
	levels[3].print(&text)
	for _, want := range []string{"m:read_it: 12 calls/s, 0.2900 inside", "hidden (refused: reserved: entry code)", "-> get_page"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
}

// TestFollowVirtual: who follows what CPUs did follows it into what waits for others, too.
func TestFollowVirtual(t *testing.T) {
	g := callGraph{
		somePrefix + "epoll_wait": {all: 9, elapsed: 0.6, calls: map[string]uint64{"look": 9}},
		somePrefix + "close":      {all: 9, elapsed: 0.01},
		"look":                    {all: 18, elapsed: 0.8},
	}
	d := detective{options: options{pid: 7, by: "virtual", window: time.Second, deep: 20}, ask: g.answer, prefix: somePrefix, dispatch: someDispatch}
	levels, err := d.follow()
	if err != nil || len(levels) != 3 || levels[0].Next != somePrefix+"epoll_wait" {
		t.Fatalf("%v, %v", levels, err)
	}
	if c := levels[1].Callees[0]; c.Function != "look" || c.Share < 0.199 || c.Share > 0.201 {
		t.Errorf("of half of look's calls: %+v", c)
	}
}

// TestAsleep: what sleeps here, of calls of which most are from elsewhere and do not sleep.
func TestAsleep(t *testing.T) {
	l := Level{Inside: Inside{Concurrency: 0.15, Virtual: 0.03}, Callees: []Callee{
		{Function: "stop", Inside: Inside{Concurrency: 0.12}, Share: 0.04},
		{Function: "add", Inside: Inside{Concurrency: 0.02}, Share: 0.02},
		{Function: "lookup", Inside: Inside{Concurrency: 0.01}, Share: 0.005},
	}}
	l.asleep()
	for k, want := range []float64{0.09, 0.02, 0.005} {
		if got := l.Callees[k].Share; got < want-1e-9 || got > want+1e-9 {
			t.Errorf("%s has %.4f, want %.4f", l.Callees[k].Function, got, want)
		}
	}
	l = Level{Inside: Inside{Concurrency: 0.15, Virtual: 0.03}, Callees: []Callee{{Inside: Inside{Concurrency: 0.05}}, {Refused: "reserved"}}}
	if l.asleep(); l.Callees[0].Share != 0.05 {
		t.Errorf("more than its own time: %+v", l.Callees)
	}
	l = Level{Inside: Inside{Concurrency: 0.03, Virtual: 0.03}, Callees: []Callee{{Inside: Inside{Concurrency: 0.5}, Share: 0.01}}}
	if l.asleep(); l.Callees[0].Share != 0.01 {
		t.Errorf("what does not sleep has slept: %+v", l.Callees)
	}
}

// TestFollowEach: where there is no one place, all functions of system calls are asked for.
func TestFollowEach(t *testing.T) {
	g := callGraph{
		"__x_read": {all: 10, elapsed: 0.3}, "__x_epoll_wait": {all: 9, elapsed: 0.6}, "__x_close": {all: 9, elapsed: 0.01},
	}
	d := detective{options: options{pid: 7, by: "elapsed", window: time.Second, deep: 20}, ask: g.answer, prefix: "__x_"}
	if levels, err := d.follow(); err != nil || !slices.Equal(followed(levels), []string{"", "__x_read"}) || len(levels[0].Callees) != 3 {
		t.Errorf("%+v, %v", levels, err)
	}
}

// TestRests: who asked rests as many times as long as it took, also where nothing was answered.
func TestRests(t *testing.T) {
	const took = 20 * time.Millisecond
	for rest, least := range map[float64]time.Duration{0: took, 2: 3 * took} {
		d := detective{options: options{rest: rest}, ask: func(...string) (answer, error) {
			time.Sleep(took) // what is looked at is the time that passes
			return answer{}, errors.New("no answer")
		}}
		began := time.Now()
		if _, err := d.watch(nil); err == nil || time.Since(began) < least {
			t.Errorf("rest %v: %v after %v, want an error after %v", rest, err, time.Since(began), least)
		}
	}
}

// TestBehindStatic: a static call is counted behind it, and nothing else that is refused is.
func TestBehindStatic(t *testing.T) {
	p := ask.Point{Spec: "kinst::security_file_free:74", Offset: 74, Instruction: "call 0xffffffff811df500", LeadsTo: "hook", Refusal: &ask.Refusal{Detail: "security_file_free+0x4a (call …): static call site: rewritten when the call changes"}}
	if spec, ok := behindStatic(p); spec != "kinst::security_file_free:79" || !ok {
		t.Errorf("%q, %v", spec, ok)
	}
	jumps, elsewhere, key := p, p, p
	jumps.Instruction, elsewhere.LeadsTo = "jmp 0xffffffff811df500", ""
	key.Refusal = &ask.Refusal{Detail: "static key site: rewritten when the key changes"}
	for _, q := range []ask.Point{jumps, elsewhere, key} {
		if spec, ok := behindStatic(q); ok {
			t.Errorf("%+v: %s", q, spec)
		}
	}
}
