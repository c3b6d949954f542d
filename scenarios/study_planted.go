package scenarios

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"kerninst/agent/wire"
	"kerninst/lab/oracle"
	"kerninst/lab/report"
)

// callProfile is what was seen outside of the calls of one task; in is what there is of a call.
type callProfile struct {
	tree  *oracle.Call
	names oracle.Names
	arch  string
	in    func(*oracle.Call) uint64
}

// systemCalls is what has all of them as children: what is between the kernel's entry and their
// functions is left out.
func (p callProfile) systemCalls() []*oracle.Call {
	all := &oracle.Call{}
	prefix := syscallEntry(p.arch, "")
	p.tree.Walk(func(path []*oracle.Call) {
		of := func(c *oracle.Call) bool { return strings.HasPrefix(p.names.Of(c.Addr), prefix) }
		if last := len(path) - 1; of(path[last]) && !slices.ContainsFunc(path[:last], of) {
			all.Children = append(all.Children, path[last])
		}
	})
	return []*oracle.Call{all}
}

// called is what there is of each function that is called at some places.
func (p callProfile) called(at []*oracle.Call) map[string]uint64 {
	seen := map[string]uint64{}
	for _, c := range at {
		for _, d := range c.Children {
			if !d.Exception {
				seen[p.names.Of(d.Addr)] += p.in(d)
			}
		}
	}
	return seen
}

// next are the places at which one of these functions is called.
func (p callProfile) next(at []*oracle.Call, function string) (next []*oracle.Call) {
	for _, c := range at {
		for _, d := range c.Children {
			if !d.Exception && p.names.Of(d.Addr) == function {
				next = append(next, d)
			}
		}
	}
	return next
}

// mostOf is the function with the most time, of several with as much the first by name.
func mostOf(seen map[string]uint64) (most string) {
	for _, f := range slices.Sorted(maps.Keys(seen)) {
		if most == "" || seen[f] > seen[most] {
			most = f
		}
	}
	return most
}

// The planted delay -------------------------------------------------------------

// plantedDelay is how much longer it takes to call a function from the one that was drawn, in
// microseconds; what waits is a handler of ftrace's before the called function's first instruction.
const plantedDelay = 200

// delayed is a function, what it calls later than it would, and how often it does.
type delayed struct {
	function, callee string
	calls            uint64
}

// clear is by how much a function with the delay must have more than what is beside it, and of what
// is above it, so that windows in which there was a bit more of one or of another tell the same.
const clear = 1.3

// plantable are the functions in which a delay would have the most of Squid's time at each level
// down to them, by name. Who goes down without one comes by none of them.
func (p callProfile) plantable() (out []delayed) {
	calls := map[string]map[string]uint64{}
	p.tree.Walk(func(path []*oracle.Call) {
		if len(path) < 2 || path[len(path)-1].Exception || path[len(path)-2].Exception {
			return
		}
		from, to := p.names.Of(path[len(path)-2].Addr), p.names.Of(path[len(path)-1].Addr)
		if calls[from] == nil {
			calls[from] = map[string]uint64{}
		}
		calls[from][to] += path[len(path)-1].Calls
	})
	often, way := p.occurrences(), p.way()
	for _, f := range slices.Sorted(maps.Keys(calls)) {
		d := delayed{function: f, callee: mostOf(calls[f])}
		d.calls = calls[f][d.callee]
		if often[d.function] == 1 && often[d.callee] == 1 && !slices.Contains(way, f) && p.leadsTo(d) {
			out = append(out, d)
		}
	}
	return out
}

// way is by which functions who goes down by what there is most of comes, to the last.
func (p callProfile) way() (way []string) {
	for at := p.systemCalls(); ; {
		most := mostOf(p.called(at))
		if most == "" {
			return way
		}
		at, way = p.next(at, most), append(way, most)
	}
}

// occurrences is how many functions have each name.
func (p callProfile) occurrences() map[string]int {
	often := map[string]int{}
	for _, name := range p.names {
		often[name]++
	}
	return often
}

// leadsTo reports whether who goes down by what there is most of comes to the delay, and no further.
func (p callProfile) leadsTo(d delayed) bool {
	with := p.with(d)
	at := p.systemCalls()
	for function := ""; function != d.function; {
		seen := with.called(at)
		most := mostOf(seen)
		if most == "" {
			return false
		}
		all := uint64(0)
		for f, n := range seen {
			if f != most && float64(n)*clear > float64(seen[most]) {
				return false
			}
			all += n
		}
		if function != "" {
			all = with.sum(at)
		}
		if float64(seen[most]) < clear/2*float64(all) {
			return false
		}
		at, function = with.next(at, most), most
	}
	below := with.called(at)
	return float64(below[mostOf(below)])*clear < float64(with.sum(at))/2
}

func (p callProfile) sum(at []*oracle.Call) (n uint64) {
	for _, c := range at {
		n += p.in(c)
	}
	return n
}

// with is the profile as it would be if there were the delay.
func (p callProfile) with(d delayed) callProfile {
	more := map[*oracle.Call]uint64{}
	p.tree.Walk(func(path []*oracle.Call) {
		k := len(path) - 1
		if k < 1 || p.names.Of(path[k].Addr) != d.callee || p.names.Of(path[k-1].Addr) != d.function {
			return
		}
		for _, above := range path[:k] {
			more[above] += path[k].Calls * plantedDelay * 1000
		}
	})
	q := p
	q.in = func(c *oracle.Call) uint64 { return p.in(c) + more[c] }
	return q
}

// mostPlanted is how many are tried of those that were drawn: some can be called by ftrace, or
// timed by splices, in no way.
const mostPlanted = 8

// drawnDelays are those that are tried, in this order, and of how many they were drawn.
func (p callProfile) drawnDelays(seed uint64) (tried []delayed, of int) {
	all := p.plantable()
	r := rand.New(rand.NewPCG(seed, plantedDelay))
	r.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	return all[:min(len(all), mostPlanted)], len(all)
}

// plantedJob is of a guest in which one of these is delayed when the detective begins.
func plantedJob(arch string) func(*Answer) (*wire.Job, error) {
	return func(a *Answer) (*wire.Job, error) {
		r, ok := a.Results["names"]
		if !ok || len(r.Runs) == 0 {
			return nil, fmt.Errorf("the profile's guest has no names of its kernel")
		}
		names, err := readNames(r.Runs[0].Stdout)
		if err != nil {
			return nil, err
		}
		argv := []string{"plant", fmt.Sprint(plantedDelay)}
		tried, _ := (callProfile{a.Calls, names, arch, virtualIn}).drawnDelays(a.Seed)
		for _, d := range tried {
			argv = append(argv, d.function, d.callee)
		}
		if len(argv) == 2 {
			return nil, fmt.Errorf("in no function of the profile a delay of %d µs would have the most time", plantedDelay)
		}
		return studied(plantedGuest, store{}, plantedRequests, squidPart("plant", argv...), follows("virtual", 0), squidPart("unplant", "unplant")).Job, nil
	}
}

// foundPlanted holds that the detective ends where the delay is.
func (t *T) foundPlanted(found []level, p callProfile) {
	all, of := p.drawnDelays(t.Guests[profileGuest].Seed)
	var words []string
	for _, d := range all {
		words = append(words, fmt.Sprintf("%s > %s (%d calls)", d.function, d.callee, d.calls))
	}
	said := strings.Fields(string(t.ran(plantedGuest, "plant")[0]))
	text, err := json.MarshalIndent(struct {
		Drawn, Planted []string
		Why            string // others were not
	}{words, said, string(t.done(plantedGuest, "plant").Runs[0].Stderr)}, "", " ")
	t.noError(plantedGuest, err)
	t.Files["planted-drawn.json"] = text
	t.Metrics["study.planted.of"] = report.Metric{Value: float64(of), Unit: "functions", N: 1}
	t.atLeast("functions that the seed draws from", float64(of), 2)
	k := slices.IndexFunc(all, func(d delayed) bool { return len(said) == 2 && d.function == said[0] && d.callee == said[1] })
	t.atLeast("functions that were drawn, of which one was planted", float64(k), 0)
	t.wentDown(plantedGuest, len(found), 2)
	t.equal("the function that was drawn, and delayed", withoutModule(found[len(found)-1].Function), all[k].function)
}
