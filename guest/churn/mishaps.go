package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kerninst/agent/gen"
	"kerninst/agent/kdev"
	"kerninst/agent/plan"
	"kerninst/agent/splice"
	"kerninst/guest/check"
)

// watched does something while the kernel's log is read.
func watched(do func() error) error {
	log, err := check.WatchKernel()
	if err != nil {
		return err
	}
	err = do()
	lines, bad, logErr := log.End()
	check.Report("the kernel's log has nothing wrong", lines, logErr == nil && len(bad) == 0, "%q, %v", bad, logErr)
	return err
}

// The module's parameters for what is to go wrong: guest/module/faults.c.
const (
	failNth = "/sys/module/" + kdev.ModuleName + "/parameters/fail_nth"
	killNth = "/sys/module/" + kdev.ModuleName + "/parameters/kill_nth"
)

// knob is one of them. It is kept open: what the kernel has for who opens a file is given back some seconds later.
type knob struct{ *os.File }

func openKnob(file string) (knob, error) {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	return knob{f}, err
}

func (k knob) arm(n int) error {
	_, err := k.WriteAt([]byte(strconv.Itoa(n)), 0)
	return err
}

// left is how far what was armed has not come.
func (k knob) left() (int, error) {
	b := make([]byte, 32)
	n, err := k.ReadAt(b, 0)
	if n == 0 {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b[:n])))
}

func arm(file string, n int) error { return os.WriteFile(file, []byte(strconv.Itoa(n)), 0) }

// attempt is one call of the device, and how what it did is taken back.
type attempt struct {
	name  string
	ready func() error // what there has to be for it, each time; nil: nothing
	call  func() error
	back  func() error // nil: nothing is to be
	last  func() error // takes away what there had to be; nil: nothing
	// least is how many allocations it has that are walked.
	least int
}

// Of each call, allocations that it says to have failed do so again, so often, or so many of them, evenly drawn: what is lost each time
// shows then. To load the module takes long.
const (
	again     = 30
	againLoad = 12
	mostAgain = 32
)

// failAgain has them fail again: what the kernel holds is no more behind that, and behind what is done at last.
func failAgain(what string, times int, failing []int, fail func(n int) error, last func() error) error {
	held, err := check.Hold()
	if err != nil {
		return err
	}
	step := (len(failing) + mostAgain - 1) / mostAgain
	for range times {
		for k := len(failing) - 1; k >= 0; k -= step {
			if err := fail(failing[k]); err != nil {
				return err
			}
		}
	}
	if last != nil {
		if err := last(); err != nil {
			return err
		}
	}
	return held.Returned("fails: "+what, times)
}

// mishap is the first thread's batch: points by each mechanism.
func (k *kernel) mishap() (*thread, []*plan.Plan) {
	t := k.threads[0]
	return t, append([]*plan.Plan{t.ways[0]}, t.planned()...)
}

// fails has each allocation of each call fail, one after the other: the call says so, and
// nothing has changed, or it has gone another way and does what it should.
func fails(points int, seed uint64) error {
	without, err := check.Without()
	if err != nil {
		return err
	}
	if err := failLoads(without); err != nil {
		return err
	}
	k, err := open(points, seed)
	if err != nil {
		return err
	}
	before, err := check.Snapshot(k.dev, k.info, k.text)
	if err != nil {
		return err
	}
	if err := k.failBeside(); err != nil {
		return errors.Join(err, k.dev.Close())
	}
	if err := k.failRelease(before, points, seed); err != nil {
		return err
	}
	if gen.Locals(k.arch) {
		if err := failLocal(k.info, before); err != nil {
			return err
		}
	}
	return check.Left(without)
}

// failBeside walks all calls while there is a kprobe.
func (k *kernel) failBeside() error {
	if err := probeAside(true); err != nil {
		return err
	}
	before, err := check.Snapshot(k.dev, k.info, k.text)
	if err != nil {
		return err
	}
	late := 0
	_, plans := k.mishap()
	for _, p := range plans {
		if p.Board != nil || p.Moves() != nil {
			late++
		}
	}
	check.Report("points of the batch that leave something behind them", late, late > 0 || runtime.GOARCH == "arm64", "")
	attempts, err := k.attempts()
	if err != nil {
		return err
	}
	w, err := newWalker(k.dev, before)
	if err != nil {
		return err
	}
	for _, a := range attempts {
		if err := w.walk(a); err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
	}
	return errors.Join(w.fails.Close(), probeAside(false))
}

// aside is where that is. riscv64's kernel has no kprobe at an ftrace site, with which each function begins.
var aside = map[string]string{"riscv64": "kernel_halt+8"}

// probeAside makes a kprobe where nothing is spliced, or takes it away: where there is any, all are listed, which takes memory.
func probeAside(there bool) error {
	const tracing, enable = "/sys/kernel/tracing/", "events/kerninst/aside/enable"
	writes := [][2]string{{"kprobe_events", "p:kerninst/aside " + cmp.Or(aside[runtime.GOARCH], "kernel_halt") + "\n"}, {enable, "1\n"}}
	if !there {
		writes = [][2]string{{enable, "0\n"}, {"kprobe_events", "-:kerninst/aside\n"}}
	}
	for _, w := range writes {
		f, err := os.OpenFile(tracing+w[0], os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(w[1])
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// comesAndGoes are how a batch is made, and how it is undone, if it is there.
func (t *thread) comesAndGoes(plans []*plan.Plan) (apply, undo func() error, there func() bool) {
	var live []*splice.Live
	apply = func() (err error) { live, err = t.splicer.Apply(plans); return err }
	undo = func() error {
		err := t.splicer.Undo(live)
		if err == nil {
			live = nil
		}
		return err
	}
	return apply, undo, func() bool { return live != nil }
}

func (k *kernel) attempts() ([]attempt, error) {
	t, plans := k.mishap()
	apply, undo, there := t.comesAndGoes(plans)
	sited, err := k.sited(t)
	if err != nil {
		return nil, err
	}
	copies, err := k.copies(t)
	if err != nil {
		return nil, err
	}
	var area *kdev.Area
	buf, cells := make([]byte, 64), t.splicer.Heap().Areas()[0]
	return []attempt{
		{name: "area", call: func() (err error) {
			area, err = k.dev.AllocArea(k.info.AreaLo, k.info.AreaHi, 16<<10)
			return err
		}, back: func() error { return k.dev.FreeArea(area) }, least: areaAllocations},
		{name: "read", call: func() error { return k.dev.Read(k.info.TextStart, buf) }, least: 1},
		{name: "read without probes", call: func() error { return k.dev.ReadUnprobed(k.info.TextStart, buf) }, least: 1},
		{name: "batch", call: apply, back: undo, least: len(plans)},
		{name: "undo", ready: func() error { return unless(there(), apply) }, call: undo, last: func() error { return unless(!there(), undo) },
			least: 4}, // two lists of splices, and of kprobes, when there is one
		sited,
		copies,
		{name: "moment", call: func() error {
			_, err := k.dev.Moment(nil, nil, kdev.Clocks{})
			return err
		}, least: 3},
		{name: "moment of lists", call: func() error {
			_, err := k.dev.Moment([]kdev.Cells{{Addr: cells.Cell(cells.Addr), Words: 1}}, []kdev.Range{{Start: k.info.TextStart, End: k.info.TextStart + 16}}, kdev.Clocks{})
			return err
		}, least: 5},
		{name: "wait", call: func() error { return k.dev.Wait(nil, time.Millisecond, time.Millisecond) }, least: 1},
		{name: "rings", call: func() error { _, err := k.dev.AllocRings(ringLen, k.info.CPUs); return err }, least: 3},
	}, nil
}

func unless(so bool, do func() error) error {
	if so {
		return nil
	}
	return do()
}

// areaAllocations are those of an area: what the module knows of it, its memory, and what makes that executable; and where it is text,
// its name.
var areaAllocations = map[string]int{"amd64": 3, "arm64": 4, "riscv64": 4}[runtime.GOARCH]

const ringLen = 1 << 16

// walker has allocations of calls fail, behind which the text is what it was.
type walker struct {
	dev    *kdev.Device
	before *check.Text
	fails  knob
}

func newWalker(dev *kdev.Device, before *check.Text) (*walker, error) {
	fails, err := openKnob(failNth)
	return &walker{dev, before, fails}, err
}

// walk has the n-th allocation of a call fail, for each n that it has.
func (w *walker) walk(a attempt) error {
	var failing []int
	other := 0
	for n := 1; ; n++ {
		rest, said, err := w.fail(a, n)
		if err != nil {
			return err
		}
		if rest > 0 {
			break
		}
		if said != nil {
			failing = append(failing, n)
		} else {
			other++
		}
	}
	differ, first, err := w.before.Differing(w.dev)
	if err != nil {
		return err
	}
	all := len(failing) + other
	s, err := w.dev.Stats()
	check.Report("fails: "+a.name, all, err == nil && all >= a.least && differ == 0 && s.Splices == 0 && s.Spliced == s.Unspliced && s.Quarantined == 0,
		"%d allocations failed, of %d at the least, %d of them without harm; %d bytes differ, the first at %v; %+v, %v", all, a.least, other, differ, first, s, err)
	return failAgain(a.name, again, failing, func(n int) error { _, _, err := w.fail(a, n); return err }, a.last)
}

// fail has the n-th allocation of a call fail: it says so and leaves nothing, or does what it should. rest is how many more it would
// have taken to come to that one.
func (w *walker) fail(a attempt, n int) (rest int, said, err error) {
	if a.ready != nil {
		if err := a.ready(); err != nil {
			return 0, nil, fmt.Errorf("before allocation %d is to fail: %w", n, err)
		}
	}
	was, err := w.dev.Stats()
	if err != nil {
		return 0, nil, err
	}
	if rest, said, err = w.try(a, n); err != nil {
		return 0, nil, err
	}
	if said == nil {
		return rest, nil, unless(a.back == nil, a.back)
	}
	if rest > 0 {
		return 0, nil, fmt.Errorf("none of %d allocations failed, and yet: %w", n, said)
	}
	if !errors.Is(said, unix.ENOMEM) && !errors.Is(said, unix.ENOSPC) {
		check.Report("fails: "+a.name+", what it says", n, false, "allocation %d of it failed: %v", n, said)
	}
	now, err := w.dev.Stats()
	if err == nil && (now.Areas != was.Areas || now.Splices != was.Splices) {
		check.Report("fails: "+a.name+", what it leaves", n, false, "%+v, and before %+v", now, was)
	}
	return rest, said, err
}

func (w *walker) try(a attempt, n int) (rest int, said, err error) {
	if err := w.fails.arm(n); err != nil {
		return 0, nil, err
	}
	said = a.call()
	rest, err = w.fails.left()
	return rest, said, errors.Join(err, w.fails.arm(0))
}

// failLocal walks cells of each CPU's own. They stay until the device is closed, so it is when it had them.
func failLocal(info kdev.Info, before *check.Text) error {
	dev, err := kdev.Open()
	if err != nil {
		return err
	}
	w, err := newWalker(dev, before)
	if err != nil {
		return err
	}
	had := false
	anew := func() (err error) {
		if had {
			if err = w.dev.Close(); err == nil {
				w.dev, err = kdev.Open()
			}
			had = false
		}
		return err
	}
	get := func() error {
		_, err := w.dev.AllocLocal(info.PageSize, info.CPUs)
		had = err == nil
		return err
	}
	err = w.walk(attempt{name: "local cells", ready: anew, call: get, least: 2})
	return errors.Join(err, w.fails.Close(), w.dev.Close())
}

// failLoads loads the module with each of its allocations failing: it is not loaded then, or goes
// another way. Without it there are so many pieces of virtual memory.
func failLoads(without int) error {
	ko, err := loadable()
	if err != nil {
		return err
	}
	var failing []int
	other := 0
	for n := 1; ; n++ {
		rest, said, err := failLoad(ko, n)
		if err != nil {
			return err
		}
		if rest > 0 {
			break
		}
		if said != nil {
			failing = append(failing, n)
		} else { // where there was no room for a page there is another place, or no traps
			other++
		}
		pieces, err := check.Pieces()
		if said != nil && !errors.Is(said, unix.ENOMEM) || err != nil || pieces > without {
			check.Report("fails: load, what it says and leaves", n, false, "%v; %d pieces, %d without it, %v", said, pieces, without, err)
			return err
		}
	}
	check.Report("fails: load", len(failing)+other, len(failing) > 0, "%d of them without harm", other)
	return failAgain("load", againLoad, failing, func(n int) error { _, _, err := failLoad(ko, n); return err }, nil)
}

// loadable is the module as this kernel takes it.
func loadable() ([]byte, error) {
	ko, err := os.ReadFile(kdev.ModuleFile)
	if err != nil {
		return nil, err
	}
	names, err := kdev.Internals(ko)
	if err != nil {
		return nil, err
	}
	kallsyms, err := os.Open("/proc/kallsyms")
	if err != nil {
		return nil, err
	}
	defer kallsyms.Close()
	symbols, err := kdev.ReadKallsyms(kallsyms, names)
	if err != nil {
		return nil, err
	}
	return kdev.ResolveModule(ko, symbols.Find)
}

// failLoad has the n-th allocation of a load fail, as walker.try does of a call.
func failLoad(ko []byte, n int) (rest int, said, err error) {
	if said = unix.InitModule(ko, "fail_nth="+strconv.Itoa(n)); said != nil {
		return 0, said, nil
	}
	fails, err := openKnob(failNth)
	if err != nil {
		return 0, nil, err
	}
	rest, err = fails.left()
	return rest, nil, errors.Join(err, fails.Close(), kdev.Unload(kdev.ModuleName))
}

// failRelease closes the device with a batch live, with each allocation that its end makes
// failing: what could not be undone then is when it is looked at again.
func (k *kernel) failRelease(before *check.Text, points int, seed uint64) error {
	t, plans := k.mishap()
	fails, err := openKnob(failNth)
	if err != nil {
		return err
	}
	defer fails.Close()
	bad := 0
	n := 1
	for ; ; n++ {
		if _, err := t.splicer.Apply(plans); err != nil {
			return err
		}
		if err := fails.arm(n); err != nil {
			return err
		}
		if err := k.dev.Close(); err != nil {
			return err
		}
		rest, err := fails.left()
		if err := errors.Join(err, fails.arm(0)); err != nil {
			return err
		}
		if k, err = open(points, seed); err != nil {
			return err
		}
		t, plans = k.mishap()
		differ, _, err := before.Differing(k.dev)
		if err != nil {
			return err
		}
		if s, err := k.dev.Stats(); err != nil || s.Splices != 0 || s.Quarantined != 0 || differ != 0 {
			bad++
			check.Report("fails: release, what is left when it is opened again", n, false, "%d bytes differ, %+v, %v", differ, s, err)
		}
		if rest > 0 {
			break
		}
	}
	check.Report("fails: release", n-1, bad == 0 && n > 2, "")
	return k.dev.Close()
}

// kills has a caller killed at each step, from its first call on, of a batch that is made and
// taken back and made: what is left when it has died is nothing. stride: only each so manyth, from one on that the seed draws.
func kills(points, stride int, seed uint64) error {
	without, err := check.Without()
	if err != nil {
		return err
	}
	k, err := open(points, seed)
	if err != nil {
		return err
	}
	t, plans := k.mishap()
	for m, n := range k.mechanisms(plans) {
		check.Report("points of the batch by "+m, n, n > 0, "")
	}
	cloned, cloneErr := k.copyable(t)
	d, daemonErr := newDaemons(k.byEach(plans), cloned)
	before, err := check.Snapshot(k.dev, k.info, k.text)
	if err := errors.Join(err, cloneErr, daemonErr, k.dev.Close()); err != nil {
		return err
	}
	own := func(n int) (*exec.Cmd, error) { // which begins to count its steps when it has planned
		return exec.Command("/proc/self/exe", "-points", strconv.Itoa(points), "-seed", strconv.FormatUint(seed, 10), "victim", strconv.Itoa(n)), nil
	}
	u := untouched{before}
	if _, err := u.killEach("steps", drawn(seed, stride), stride, own); err != nil {
		return err
	}
	if _, err := u.killEach("steps of the daemon", drawn(seed, daemonStride*stride), daemonStride*stride, d.whole); err != nil {
		return err
	}
	if err := d.have(k.usable()); err != nil {
		return err
	}
	if err := u.killBatch(d, seed, stride); err != nil {
		return err
	}
	return check.Left(without)
}

// drawn is one of the first steps.
func drawn(seed uint64, of int) int { return 1 + int(seed%uint64(of)) }

// toWrite is more steps than it takes a daemon to make a batch that it has planned.
const toWrite = 96

// killBatch kills a daemon at each step from before it makes a batch on, until that is taken back.
func (u untouched) killBatch(d *daemons, seed uint64, stride int) error {
	n, err := d.toMake()
	if err != nil {
		return err
	}
	first, err := u.killEach("steps of a daemon's batch", max(0, n-toWrite)+drawn(seed, stride), stride, d.single)
	check.Report("splices made by the daemon that was killed first", int(first), first == 0, "of %d steps to make a batch, the last %d", n, toWrite)
	return err
}

// untouched is what has to be there when a caller is gone.
type untouched struct{ *check.Text }

// killEach kills a program at each so manyth step, from one on, until it comes to its end; the last has made splices. first is how many
// the first has made.
func (u untouched) killEach(what string, from, stride int, program func(n int) (*exec.Cmd, error)) (first uint64, err error) {
	times, n := 0, from
	for ; ; n += stride {
		made, err := u.made()
		if err != nil {
			return 0, err
		}
		c, err := program(n)
		if err != nil {
			return 0, err
		}
		ended, err := killed(c)
		if err != nil {
			return 0, fmt.Errorf("%s: %d: %w", what, n, err)
		}
		now, err := u.left(what, n)
		if err != nil {
			return 0, err
		}
		if n == from {
			first = now - made
		}
		if ended {
			check.Report("splices made by who was not killed: "+what, int(now-made), now > made, "")
			break
		}
		times++
	}
	check.Report("kills: "+what, times, times > 0, "from the %d-th on, each %d-th, before the %d-th", from, stride, n)
	return first, nil
}

// made is how many splices there were since the module is there.
func (u untouched) made() (uint64, error) {
	dev, err := kdev.Open()
	if err != nil {
		return 0, err
	}
	s, err := dev.Stats()
	return s.Spliced, errors.Join(err, dev.Close())
}

// left checks that nothing is left of who was killed at a step, and returns how many splices there were.
func (u untouched) left(what string, n int) (uint64, error) {
	dev, err := kdev.Open()
	if err != nil {
		return 0, fmt.Errorf("open, when a caller was killed at step %d: %w", n, err)
	}
	differ, first, err := u.Differing(dev)
	if err != nil {
		return 0, err
	}
	s, err := dev.Stats()
	if err != nil || differ != 0 || s.Splices != 0 || s.Spliced != s.Unspliced || s.Quarantined != 0 || s.Areas != 0 {
		check.Report("kills: what is left", n, false, "%s, killed at %d: %d bytes differ, the first at %v; %+v, %v", what, n, differ, first, s, err)
	}
	return s.Spliced, dev.Close()
}

// dying is how long the kernel has to end who was killed.
const dying = time.Minute

// killed runs a program that is to be killed at one of its steps, unless it ends before.
func killed(c *exec.Cmd) (ended bool, err error) {
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		return false, err
	}
	late := time.AfterFunc(dying, func() { c.Process.Kill() })
	err = c.Wait()
	if !late.Stop() {
		return false, errors.New("it neither ended nor died")
	}
	if err == nil {
		return true, arm(killNth, 0)
	}
	ws, ok := c.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !ws.Signaled() || ws.Signal() != syscall.SIGKILL {
		return false, err
	}
	return false, nil
}

// die is that process.
func die(step string, points int, seed uint64) error {
	n, err := strconv.Atoi(step)
	if err != nil {
		return err
	}
	k, err := open(points, seed)
	if err != nil {
		return err
	}
	t, plans := k.mishap()
	if err := arm(killNth, n); err != nil {
		return err
	}
	live, err := t.splicer.Apply(plans)
	if err != nil {
		return err
	}
	if err := t.splicer.Undo(live); err != nil {
		return err
	}
	if _, err := t.splicer.Apply(plans); err != nil {
		return err
	}
	return k.dev.Close()
}
