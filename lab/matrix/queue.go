package matrix

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"kerninst/lab/status"
)

// Outcome is how a cell came out on a host.
type Outcome struct {
	Status  status.Status
	Exit    int    // of the process that ran it
	Reason  string // why it has not passed
	Release string // of the kernel that ran; "": none did
	Figures string // what it found, in a few words
	Seconds float64
	// Lost says why the host cannot be used any more: what came out is not the cell's.
	Lost string
}

// Result is what became of a cell.
type Result struct {
	Cell Cell
	Outcome
	Host  string // that it came out on; "": it ran nowhere
	Moved []Move
}

// Move is a host that was lost while it had the cell.
type Move struct {
	Host   string `json:"host"`
	Reason string `json:"reason"`
}

// Event is something that has happened, for those who watch.
type Event struct {
	Kind   EventKind
	Cell   int     // its place; of Begun and Ended
	Host   string  // of Begun and Lost
	Reason string  // of Lost
	Result *Result // of Ended
}

// EventKind says what happened.
type EventKind int

const (
	Begun EventKind = iota + 1
	Ended
	Lost // of a host, once
)

// mostMoves bounds how many hosts are lost under one cell before it is taken for what ends them.
const mostMoves = 3

// Queue is the cells that wait, and who can run them.
//
// Cells begin in their order. Where one waits for room, none that came later is let in before it: a
// large one would wait until all small ones are done. What is left of a machine stays free meanwhile.
type Queue struct {
	Cells    []Cell
	Hosts    []Host
	Machines map[string]Size
	// Known are cells, by their places, that need not run to know how they come out.
	Known map[int]Outcome
	// Do runs a cell on a host. It is called from goroutines.
	Do func(context.Context, Cell, Host) Outcome
	// See is told of each event, from the goroutine that called Run.
	See func(Event)
}

// Impossible says why no host can ever run a cell; "": one can.
func (q Queue) Impossible(cell int) string {
	able, why := (&queue{Queue: q}).able(cell)
	if len(able) > 0 {
		return ""
	}
	return why
}

// queue is one that runs. Its goroutine alone changes it.
type queue struct {
	Queue
	waiting  []int // places of cells, in order
	running  int
	used     []load          // by the cells that run, on each host
	given    []int           // cells that each host has had
	machines map[string]load // and on each machine
	lost     map[int]string  // hosts, and why
	results  []Result
	done     chan finished
}

type load struct{ cpus, mem int }

type finished struct {
	cell, host int
	outcome    Outcome
}

// Run returns when each cell has a result, in their order. When ctx ends, no cell begins any more,
// and those that run have to end by themselves.
func (q Queue) Run(ctx context.Context) []Result {
	r := &queue{Queue: q, used: make([]load, len(q.Hosts)), given: make([]int, len(q.Hosts)), machines: map[string]load{}, lost: map[int]string{},
		results: make([]Result, len(q.Cells)), done: make(chan finished)}
	for k, c := range q.Cells {
		r.results[k].Cell = c
		if o, known := q.Known[k]; known {
			r.result(k, o)
			continue
		}
		r.waiting = append(r.waiting, k)
	}
	for {
		r.place(ctx)
		if r.running == 0 {
			return r.results
		}
		r.ended(<-r.done)
	}
}

// place begins all cells that there is room for, and gives up those that nobody will ever have room for.
func (r *queue) place(ctx context.Context) {
	if ctx.Err() != nil {
		for _, k := range r.waiting {
			r.result(k, Outcome{Status: status.Skipped, Exit: status.ExitInterrupted, Reason: "interrupted before its turn"})
		}
		r.waiting = nil
		return
	}
	held := held{hosts: map[int]bool{}, machines: map[string]bool{}}
	var left []int
	for n, k := range r.waiting {
		if len(held.hosts) > 0 && r.full(held) {
			left = append(left, r.waiting[n:]...)
			break
		}
		able, why := r.able(k)
		if len(able) == 0 {
			r.result(k, Outcome{Status: status.LabFailed, Exit: status.ExitLabFailed, Reason: why})
			continue
		}
		host := r.roomiest(k, able, held)
		if host < 0 {
			r.hold(k, able, held)
			left = append(left, k)
			continue
		}
		r.begin(ctx, k, host)
	}
	r.waiting = left
}

// held is what cells wait for, and later ones may not have.
type held struct {
	hosts    map[int]bool
	machines map[string]bool
}

func (r *queue) full(h held) bool {
	for n, host := range r.Hosts {
		if r.lost[n] == "" && !h.hosts[n] && !h.machines[host.Machine] {
			return false
		}
	}
	return true
}

// able are the hosts that can run a cell once they have room; of none, why.
func (r *queue) able(cell int) (hosts []int, why string) {
	var reasons []string
	for n, h := range r.Hosts {
		no := h.unable(r.Cells[cell], r.Machines[h.Machine])
		if r.lost[n] != "" {
			no = "lost: " + r.lost[n]
		}
		if no == "" {
			hosts = append(hosts, n)
		} else {
			reasons = append(reasons, h.Name+": "+no)
		}
	}
	return hosts, nobody(reasons, len(r.lost) > 0 && len(r.lost) == len(r.Hosts))
}

// mostReasons bounds how many hosts tell why none of them can run a cell.
const mostReasons = 4

func nobody(reasons []string, gone bool) string {
	if more := len(reasons) - mostReasons; more > 0 {
		reasons = append(reasons[:mostReasons:mostReasons], fmt.Sprintf("and %d more", more))
	}
	head := "no host can run it"
	switch {
	case len(reasons) == 0:
		return "there is no host"
	case gone:
		head = "no host is left"
	}
	return head + ": " + strings.Join(reasons, "; ")
}

// takes is what a cell takes of a host, and of its machine.
func (r *queue) takes(cell, host int) (own, shared load) {
	n, h := r.Cells[cell].Needs, r.Hosts[host]
	all := r.Machines[h.Machine].CPUs
	own = load{min(n.CPUs, h.CPUs), n.MemMiB}
	shared = load{min(n.CPUs, h.CPUs, all), n.MemMiB}
	if n.Alone {
		shared.cpus = all
	}
	return own, shared
}

// free is what is left of a host and of its machine, and which of them has no room for a cell.
func (r *queue) free(cell, host int) (cpus int, hostFull, machineFull bool) {
	own, shared := r.takes(cell, host)
	h, m := r.Hosts[host], r.Machines[r.Hosts[host].Machine]
	used, taken := r.used[host], r.machines[h.Machine]
	hostFull = used.cpus+own.cpus > h.CPUs || used.mem+own.mem > h.MemMiB
	machineFull = taken.cpus+shared.cpus > m.CPUs || taken.mem+shared.mem > m.MemMiB
	return min(h.CPUs-used.cpus, m.CPUs-taken.cpus), hostFull, machineFull
}

// roomiest is the host with the most CPUs left that has room for a cell now, or -1. Of equal ones
// it is the one that has had the fewest cells.
func (r *queue) roomiest(cell int, able []int, h held) int {
	best, most := -1, 0
	for _, n := range able {
		cpus, hostFull, machineFull := r.free(cell, n)
		if hostFull || machineFull || h.hosts[n] || h.machines[r.Hosts[n].Machine] {
			continue
		}
		if best < 0 || cpus > most || cpus == most && r.given[n] < r.given[best] {
			best, most = n, cpus
		}
	}
	return best
}

// hold keeps what a cell waits for from those behind it.
func (r *queue) hold(cell int, able []int, h held) {
	for _, n := range able {
		h.hosts[n] = true
		if _, _, machineFull := r.free(cell, n); machineFull {
			h.machines[r.Hosts[n].Machine] = true
		}
	}
}

func (r *queue) begin(ctx context.Context, cell, host int) {
	r.running++
	r.given[host]++
	r.account(cell, host, 1)
	r.See(Event{Kind: Begun, Cell: cell, Host: r.Hosts[host].Name})
	go func() {
		r.done <- finished{cell, host, r.Do(ctx, r.Cells[cell], r.Hosts[host])}
	}()
}

func (r *queue) account(cell, host, sign int) {
	own, shared := r.takes(cell, host)
	machine := r.Hosts[host].Machine
	r.used[host] = r.used[host].plus(own, sign)
	r.machines[machine] = r.machines[machine].plus(shared, sign)
}

func (l load) plus(o load, sign int) load {
	return load{l.cpus + sign*o.cpus, l.mem + sign*o.mem}
}

// ended takes what came of a cell. One whose host was lost waits again, in its place.
func (r *queue) ended(f finished) {
	r.running--
	r.account(f.cell, f.host, -1)
	name := r.Hosts[f.host].Name
	if f.outcome.Lost == "" {
		r.results[f.cell].Host = name
		r.result(f.cell, f.outcome)
		return
	}
	if r.lost[f.host] == "" {
		r.lost[f.host] = f.outcome.Lost
		r.See(Event{Kind: Lost, Host: name, Reason: f.outcome.Lost})
	}
	res := &r.results[f.cell]
	res.Moved = append(res.Moved, Move{name, f.outcome.Lost})
	if len(res.Moved) == mostMoves {
		r.result(f.cell, Outcome{Status: status.LabFailed, Exit: status.ExitLabFailed,
			Reason: fmt.Sprintf("%d hosts were lost while they had it: it may be what ends them; the last, %s: %s", mostMoves, name, f.outcome.Lost)})
		return
	}
	at, _ := slices.BinarySearch(r.waiting, f.cell)
	r.waiting = slices.Insert(r.waiting, at, f.cell)
}

func (r *queue) result(cell int, o Outcome) {
	res := &r.results[cell]
	res.Outcome = o
	r.See(Event{Kind: Ended, Cell: cell, Result: res})
}
