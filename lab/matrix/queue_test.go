package matrix

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kerninst/lab/status"
)

// fleet runs cells in time that only seems to pass, and watches that no bound is broken.
type fleet struct {
	t     *testing.T
	queue Queue
	// takes is how long a cell runs; a second if nil.
	takes func(Cell, Host) time.Duration
	// down is when hosts go, by name, from the begin of the run.
	down map[string]time.Duration

	mu      sync.Mutex
	running map[string]load // by host, and by "machine " and machine
	alone   map[string]bool
	begun   []string // "cell host"
	events  []Event
}

const second = time.Second

func newFleet(t *testing.T, cells []Cell, hosts []Host, machines map[string]Size) *fleet {
	f := &fleet{t: t, running: map[string]load{}, alone: map[string]bool{}, down: map[string]time.Duration{}}
	f.queue = Queue{Cells: cells, Hosts: hosts, Machines: machines, Do: f.do, See: func(e Event) { f.events = append(f.events, e) }}
	return f
}

// run runs the queue in a bubble; ctx may be ended by what is passed.
func (f *fleet) run(after func(cancel context.CancelFunc)) (results []Result, took time.Duration) {
	synctest.Test(f.t, func(*testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if after != nil {
			go after(cancel)
		}
		start := time.Now()
		results = f.queue.Run(ctx)
		took = time.Since(start)
	})
	return results, took
}

func (f *fleet) do(ctx context.Context, c Cell, h Host) Outcome {
	f.enter(c, h, 1)
	defer f.enter(c, h, -1)
	d := second
	if f.takes != nil {
		d = f.takes(c, h)
	}
	lost := make(<-chan time.Time)
	if at, goes := f.down[h.Name]; goes {
		lost = time.After(time.Until(epoch.Add(at)))
	}
	select {
	case <-ctx.Done():
		return Outcome{Status: status.Skipped, Exit: status.ExitInterrupted, Reason: "interrupted"}
	case <-lost:
		return Outcome{Status: status.LabFailed, Exit: status.ExitLabFailed, Lost: "libvirtd went away"}
	case <-time.After(d):
		return Outcome{Status: status.Passed}
	}
}

// epoch is when bubbles begin.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// enter holds what runs against what there is, by itself: not by the queue's own sums.
func (f *fleet) enter(c Cell, h Host, sign int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	machine := f.queue.Machines[h.Machine]
	if sign > 0 {
		f.begun = append(f.begun, c.Name()+" "+h.Name)
		if f.alone[h.Machine] || c.Needs.Alone && f.running["machine "+h.Machine] != (load{}) {
			f.t.Errorf("%s is not alone on %s", c.Name(), h.Machine)
		}
		f.alone[h.Machine] = c.Needs.Alone
	} else if c.Needs.Alone {
		f.alone[h.Machine] = false
	}
	for key, bound := range map[string]Size{h.Name: {h.CPUs, h.MemMiB}, "machine " + h.Machine: machine} {
		l := f.running[key]
		l = load{l.cpus + sign*min(c.Needs.CPUs, h.CPUs, machine.CPUs), l.mem + sign*c.Needs.MemMiB}
		f.running[key] = l
		if l.cpus > bound.CPUs || l.mem > bound.MemMiB {
			f.t.Errorf("%s has %d CPUs and %d MiB, and %d and %d are in use", key, bound.CPUs, bound.MemMiB, l.cpus, l.mem)
		}
	}
}

// some are n cells of one CPU and 1,000 MiB, on ISAs in turn.
func some(n int, arches ...string) (cells []Cell) {
	for k := range n {
		cells = append(cells, Cell{Arch: arches[k%len(arches)], Kernel: Kernel{Name: locked}, Scenario: "boot", Seed: uint64(k), Needs: Needs{CPUs: 1, MemMiB: 1000}})
	}
	return cells
}

func host(name, machine string, cpus, mem int, arches ...string) Host {
	return Host{Name: name, Machine: machine, CPUs: cpus, MemMiB: mem, Arches: arches}
}

// once holds that each cell was reported once, in the order of cells.
func (f *fleet) once(results []Result) {
	f.t.Helper()
	told := map[int]int{}
	for _, e := range f.events {
		if e.Kind == Ended {
			told[e.Cell]++
		}
	}
	for k := range f.queue.Cells {
		if told[k] != 1 || results[k].Cell.Name() != f.queue.Cells[k].Name() || results[k].Status == "" {
			f.t.Errorf("%s: told %d times, result %+v", f.queue.Cells[k].Name(), told[k], results[k])
		}
	}
}

func statuses(results []Result) map[status.Status]int {
	n := map[status.Status]int{}
	for _, r := range results {
		n[r.Status]++
	}
	return n
}

// As many cells run at a time as CPUs and memory allow: of the host, of the machine that it shares.
func TestCapacity(t *testing.T) {
	for _, tt := range []struct {
		name     string
		hosts    []Host
		machines map[string]Size
		rounds   int // of a second, for 12 cells
	}{
		{"CPUs", []Host{host("a", "m", 4, 99000, "amd64")}, map[string]Size{"m": {4, 99000}}, 3},
		{"memory", []Host{host("a", "m", 12, 3500, "amd64")}, map[string]Size{"m": {12, 99000}}, 4},
		{"memory of the machine", []Host{host("a", "m", 12, 99000, "amd64")}, map[string]Size{"m": {12, 2000}}, 6},
		{"two hosts of two machines", []Host{host("a", "m", 2, 99000, "amd64"), host("b", "n", 4, 99000, "amd64")}, map[string]Size{"m": {2, 99000}, "n": {4, 99000}}, 2},
		{"two hosts of one machine", []Host{host("a", "m", 2, 99000, "amd64"), host("b", "m", 2, 99000, "amd64")}, map[string]Size{"m": {2, 99000}}, 6},
		{"one is limited", []Host{host("a", "m", 1, 99000, "amd64"), host("b", "m", 4, 99000, "amd64")}, map[string]Size{"m": {4, 99000}}, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFleet(t, some(12, "amd64"), tt.hosts, tt.machines)
			results, took := f.run(nil)
			f.once(results)
			if n := statuses(results)[status.Passed]; n != 12 || took != time.Duration(tt.rounds)*second {
				t.Errorf("%d passed after %v, want 12 after %d s", n, took, tt.rounds)
			}
		})
	}
}

// One that needs more CPUs than there are gets all of them, one that needs more memory is refused.
func TestTooLarge(t *testing.T) {
	cells := some(3, "amd64")
	cells[0].Needs.CPUs, cells[1].Needs.MemMiB = 64, 5000
	f := newFleet(t, cells, []Host{host("a", "m", 2, 4000, "amd64")}, map[string]Size{"m": {2, 4000}})
	results, took := f.run(nil)
	f.once(results)
	if results[0].Status != status.Passed || results[2].Status != status.Passed || took != 2*second {
		t.Errorf("after %v: %+v", took, results)
	}
	if r := results[1]; r.Status != status.LabFailed || r.Exit != status.ExitLabFailed || !strings.Contains(r.Reason, "a: the cell needs 5000 MiB of memory, and there are 4000") || r.Host != "" {
		t.Errorf("got %+v", r)
	}
}

// Cells go only where their ISA is; one that is nowhere is refused, and the rest runs.
func TestISAs(t *testing.T) {
	hosts := []Host{host("a", "m", 2, 9000, "amd64"), host("b", "n", 2, 9000, "arm64")}
	hosts[1].Lacks = map[string]string{"riscv64": "no emulator"}
	f := newFleet(t, some(9, "amd64", "arm64", "riscv64"), hosts, map[string]Size{"m": {2, 9000}, "n": {2, 9000}})
	results, _ := f.run(nil)
	f.once(results)
	for _, r := range results {
		want := map[string]string{"amd64": "a", "arm64": "b", "riscv64": ""}[r.Cell.Arch]
		if r.Host != want || (r.Status == status.Passed) != (want != "") {
			t.Errorf("%s ran on %q: %+v", r.Cell.Name(), r.Host, r)
		}
		if want == "" && r.Reason != "no host can run it: a: it is not for riscv64; b: no emulator" {
			t.Errorf("reason %q", r.Reason)
		}
	}
}

// What a cell waits for is not taken by those behind it, however small; what it cannot use is.
func TestNobodyIsOvertaken(t *testing.T) {
	cells := some(40, "amd64")
	cells[2].Needs.CPUs = 4
	cells[3].Arch, cells[3].Needs.CPUs = "arm64", 1
	f := newFleet(t, cells, []Host{host("a", "m", 4, 99000, "amd64"), host("b", "n", 1, 99000, "arm64")}, map[string]Size{"m": {4, 99000}, "n": {1, 99000}})
	f.takes = func(c Cell, _ Host) time.Duration { return time.Duration(1+c.Seed%3) * second }
	results, _ := f.run(nil)
	f.once(results)
	want := []string{cells[0].Name() + " a", cells[1].Name() + " a", cells[3].Name() + " b", cells[2].Name() + " a"}
	if got := f.begun[:4]; !sameBegin(got, want) {
		t.Errorf("began %v, want %v", got, want)
	}
}

// Likewise where a host is full, and its machine is not; and where the machine is full of others' cells.
func TestNobodyIsOvertakenWhere(t *testing.T) {
	for _, tt := range []struct {
		name   string
		large  int // CPUs of the third cell
		others string
		hosts  []Host
	}{
		{"a host is full", 2, "amd64", []Host{host("a", "m", 2, 99000, "amd64")}},
		{"a machine is full", 8, "arm64", []Host{host("a", "m", 8, 99000, "amd64"), host("b", "m", 8, 99000, "arm64")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cells := some(20, tt.others)
			cells[0].Arch, cells[1].Arch, cells[2].Arch, cells[2].Needs.CPUs = "amd64", "amd64", "amd64", tt.large
			f := newFleet(t, cells, tt.hosts, map[string]Size{"m": {8, 99000}})
			f.takes = func(c Cell, _ Host) time.Duration { return time.Duration(1+c.Seed%3) * second }
			results, _ := f.run(nil)
			f.once(results)
			if third := f.begun[2]; third != cells[2].Name()+" a" {
				t.Errorf("began %v", f.begun)
			}
		})
	}
}

// sameBegin: those that begin at one moment do so in any order.
func sameBegin(got, want []string) bool {
	g, w := slices.Clone(got[:3]), slices.Clone(want[:3])
	slices.Sort(g)
	slices.Sort(w)
	return slices.Equal(g, w) && got[3] == want[3]
}

// A cell that measures host time has its machine to itself, also from other hosts of it.
func TestAlone(t *testing.T) {
	cells := some(12, "amd64")
	cells[4].Needs.Alone, cells[9].Needs.Alone = true, true
	f := newFleet(t, cells, []Host{host("a", "m", 4, 99000, "amd64"), host("b", "m", 2, 99000, "amd64")}, map[string]Size{"m": {4, 99000}})
	f.takes = func(c Cell, _ Host) time.Duration { return time.Duration(1+c.Seed%2) * second }
	results, _ := f.run(nil)
	f.once(results)
	if n := statuses(results)[status.Passed]; n != 12 {
		t.Errorf("%d passed", n)
	}
}

// Cells of a host that is lost are done elsewhere, and told once; the host gets nothing more.
func TestHostLost(t *testing.T) {
	f := newFleet(t, some(12, "amd64"), []Host{host("a", "m", 2, 9000, "amd64"), host("b", "n", 2, 9000, "amd64")}, map[string]Size{"m": {2, 9000}, "n": {2, 9000}})
	f.down["b"] = 3 * second / 2
	results, took := f.run(nil)
	f.once(results)
	moved, onB := 0, 0
	for _, r := range results {
		if len(r.Moved) > 0 {
			moved++
			if r.Moved[0] != (Move{"b", "libvirtd went away"}) || r.Host != "a" {
				t.Errorf("%s: on %s, moved %+v", r.Cell.Name(), r.Host, r.Moved)
			}
		}
		if r.Host == "b" {
			onB++
		}
	}
	if n := statuses(results)[status.Passed]; n != 12 || moved != 2 || onB != 2 {
		t.Errorf("%d passed, %d moved, %d on b: want 12, 2, 2", n, moved, onB)
	}
	if took != 5*second { // two rounds of four, of which two come to nothing; then two at a time
		t.Errorf("took %v", took)
	}
	lost := 0
	for _, e := range f.events {
		if e.Kind == Lost {
			lost++
		}
	}
	if lost != 1 {
		t.Errorf("the loss of b was told %d times", lost)
	}
}

// The place of a cell that comes back is its own again: before all that have not begun.
func TestMovedCellIsNext(t *testing.T) {
	f := newFleet(t, some(8, "amd64"), []Host{host("a", "m", 1, 9000, "amd64"), host("b", "n", 1, 9000, "amd64")}, map[string]Size{"m": {1, 9000}, "n": {1, 9000}})
	f.down["b"] = second / 2
	f.run(nil)
	if again := f.begun[2]; again != "amd64-locked-boot-1 a" {
		t.Errorf("began %v", f.begun)
	}
}

// Hosts that have as much take turns, also where one cell runs at a time.
func TestTurns(t *testing.T) {
	f := newFleet(t, some(6, "amd64"), []Host{host("a", "m", 1, 9000, "amd64"), host("b", "m", 1, 9000, "amd64")}, map[string]Size{"m": {1, 9000}})
	results, _ := f.run(nil)
	on := map[string]int{}
	for _, r := range results {
		on[r.Host]++
	}
	if on["a"] != 3 || on["b"] != 3 {
		t.Errorf("got %v", on)
	}
}

// Without a host, what is left says which were lost and why.
func TestAllHostsLost(t *testing.T) {
	f := newFleet(t, some(6, "amd64"), []Host{host("a", "m", 1, 9000, "amd64"), host("b", "n", 1, 9000, "amd64")}, map[string]Size{"m": {1, 9000}, "n": {1, 9000}})
	f.down["a"], f.down["b"] = 3*second/2, 5*second/2
	results, _ := f.run(nil)
	f.once(results)
	if n := statuses(results); n[status.Passed] != 3 || n[status.LabFailed] != 3 {
		t.Errorf("got %v", n)
	}
	for _, r := range results {
		if r.Status == status.LabFailed && (r.Reason != "no host is left: a: lost: libvirtd went away; b: lost: libvirtd went away" || r.Exit != status.ExitLabFailed) {
			t.Errorf("%s: %+v", r.Cell.Name(), r.Outcome)
		}
	}
}

// A cell under which host after host goes is not let loose on the rest.
func TestCellThatEndsHosts(t *testing.T) {
	var hosts []Host
	machines := map[string]Size{}
	for _, n := range strings.Fields("a b c d e") {
		hosts, machines[n] = append(hosts, host(n, n, 1, 9000, "amd64")), Size{1, 9000}
	}
	f := newFleet(t, some(7, "amd64"), hosts, machines)
	plain := f.queue.Do
	f.queue.Do = func(ctx context.Context, c Cell, h Host) Outcome {
		if c.Seed == 0 {
			return Outcome{Lost: "died"}
		}
		return plain(ctx, c, h)
	}
	results, _ := f.run(nil)
	f.once(results)
	if n := statuses(results); n[status.Passed] != 6 || !strings.Contains(results[0].Reason, "3 hosts were lost while they had it") || len(results[0].Moved) != 3 {
		t.Errorf("got %v, %+v", n, results[0])
	}
}

// A cell that is refused is one red cell.
func TestCellRefused(t *testing.T) {
	f := newFleet(t, some(4, "amd64"), []Host{host("a", "m", 1, 9000, "amd64")}, map[string]Size{"m": {1, 9000}})
	plain := f.queue.Do
	f.queue.Do = func(ctx context.Context, c Cell, h Host) Outcome {
		if c.Seed == 1 {
			return Outcome{Status: status.LabFailed, Exit: status.ExitUsage, Reason: "no such kernel"}
		}
		return plain(ctx, c, h)
	}
	results, _ := f.run(nil)
	f.once(results)
	if n := statuses(results); n[status.Passed] != 3 || results[1].Reason != "no such kernel" || results[1].Host != "a" || results[1].Exit != status.ExitUsage {
		t.Errorf("got %v, %+v", n, results[1])
	}
}

// A cell of which it is known how it comes out runs nowhere.
func TestKnown(t *testing.T) {
	f := newFleet(t, some(4, "amd64"), []Host{host("a", "m", 1, 9000, "amd64")}, map[string]Size{"m": {1, 9000}})
	f.queue.Known = map[int]Outcome{2: {Status: status.LabFailed, Exit: status.ExitUsage, Reason: "no such kernel"}}
	results, took := f.run(nil)
	f.once(results)
	if r := results[2]; r.Reason != "no such kernel" || r.Exit != status.ExitUsage || r.Host != "" || took != 3*second || len(f.begun) != 3 {
		t.Errorf("after %v: %+v, began %v", took, r, f.begun)
	}
}

// After an interrupt nothing begins, what runs is waited for, and the rest is said not to have run.
func TestInterrupted(t *testing.T) {
	f := newFleet(t, some(8, "amd64"), []Host{host("a", "m", 2, 9000, "amd64")}, map[string]Size{"m": {2, 9000}})
	results, took := f.run(func(cancel context.CancelFunc) {
		time.Sleep(3 * second / 2)
		cancel()
	})
	f.once(results)
	if n := statuses(results); n[status.Passed] != 2 || n[status.Skipped] != 6 || took != 3*second/2 || len(f.begun) != 4 {
		t.Errorf("after %v: %v, began %v", took, n, f.begun)
	}
	if r := results[7]; r.Reason != "interrupted before its turn" || r.Exit != status.ExitInterrupted || r.Host != "" {
		t.Errorf("got %+v", r)
	}
}

func TestNoHosts(t *testing.T) {
	f := newFleet(t, some(2, "amd64"), nil, nil)
	results, _ := f.run(nil)
	f.once(results)
	if r := results[0]; r.Status != status.LabFailed || r.Reason != "there is no host" {
		t.Errorf("got %+v", r)
	}
}

// Whatever is drawn, no bound is broken (enter), each cell is told once, and only those do not pass
// that nobody could run, or that were given up.
func TestDrawn(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		arches := []string{"amd64", "arm64", "riscv64"}
		var hosts []Host
		machines := map[string]Size{}
		for n := range 1 + r.IntN(4) {
			m := fmt.Sprint("m", r.IntN(3))
			machines[m] = Size{1 + r.IntN(8), 1000 + r.IntN(9000)}
			hosts = append(hosts, host(fmt.Sprint("h", n), m, 1+r.IntN(8), 500+r.IntN(9000), arches[:1+r.IntN(3)]...))
		}
		cells := some(1+r.IntN(30), arches...)
		for k := range cells {
			cells[k].Needs = Needs{CPUs: 1 + r.IntN(5), MemMiB: 500 + r.IntN(4000), Alone: r.IntN(8) == 0}
		}
		f := newFleet(t, cells, hosts, machines)
		f.takes = func(c Cell, _ Host) time.Duration { return time.Duration(1+c.Seed*7%5) * second }
		for _, h := range hosts[1:] {
			if r.IntN(3) == 0 {
				f.down[h.Name] = time.Duration(r.IntN(20000)) * time.Millisecond
			}
		}
		results, _ := f.run(nil)
		f.once(results)
		for _, res := range results {
			if res.Status != status.Passed && len(res.Moved) < mostMoves && !strings.Contains(res.Reason, "no host") {
				t.Errorf("%s: %+v", res.Cell.Name(), res.Outcome)
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d: hosts %+v, machines %+v", seed, hosts, machines)
		}
	}
}
