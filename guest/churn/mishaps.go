package main

import (
	"bytes"
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

	"kerninst/agent/kdev"
	"kerninst/agent/plan"
	"kerninst/agent/splice"
	"kerninst/guest/check"
)

// The module's parameters for what is to go wrong: guest/module/faults.c.
const (
	failNth = "/sys/module/" + kdev.ModuleName + "/parameters/fail_nth"
	killNth = "/sys/module/" + kdev.ModuleName + "/parameters/kill_nth"
)

func arm(file string, n int) error { return os.WriteFile(file, []byte(strconv.Itoa(n)), 0) }

// left is how far what was armed has not come.
func left(file string) (int, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

// attempt is one call of the device, and how what it did is taken back.
type attempt struct {
	name  string
	ready func() error // what there has to be for it, each time; nil: nothing
	call  func() error
	back  func() error // nil: nothing is to be
	// least is how many allocations it has that are walked.
	least int
}

// mishap is the first thread's batch: points by each mechanism.
func (k *kernel) mishap() (*thread, []*plan.Plan) {
	t := k.threads[0]
	return t, append([]*plan.Plan{t.ways[0]}, t.planned()...)
}

// openEvenly opens for a small batch that has all mechanisms.
func openEvenly(points int, seed uint64) (*kernel, error) {
	k, err := open(points, seed)
	if err == nil {
		k.oneOfEach(k.threads[0])
	}
	return k, err
}

// fails has each allocation of each call fail, one after the other: the call says so, and
// nothing has changed, or it has gone another way and does what it should.
func fails(points int, seed uint64) error {
	if err := failLoads(); err != nil {
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
	return check.Left()
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
	for _, a := range k.attempts() {
		if err := k.walk(a, before); err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
	}
	return probeAside(false)
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

func (k *kernel) attempts() []attempt {
	t, plans := k.mishap()
	var live []*splice.Live
	var area *kdev.Area
	buf, cells := make([]byte, 64), t.splicer.Heap().Areas()[0]
	make1 := func() (err error) { live, err = t.splicer.Apply(plans); return err }
	undo := func() error {
		err := t.splicer.Undo(live)
		if err == nil {
			live = nil
		}
		return err
	}
	return []attempt{
		{"area", nil, func() (err error) {
			area, err = k.dev.AllocArea(k.info.AreaLo, k.info.AreaHi, 16<<10)
			return err
		}, func() error { return k.dev.FreeArea(area) }, 3},
		{"read", nil, func() error { return k.dev.Read(k.info.TextStart, buf) }, nil, 1},
		{"read without probes", nil, func() error { return k.dev.ReadUnprobed(k.info.TextStart, buf) }, nil, 1},
		{"batch", nil, make1, undo, len(plans)},
		{"undo", func() error {
			if live != nil {
				return nil
			}
			return make1()
		}, undo, nil, 4}, // two lists of splices, and of kprobes, when there is one
		{"moment", nil, func() error {
			_, err := k.dev.Moment(nil, nil, kdev.Clocks{})
			return err
		}, nil, 3},
		{"moment of lists", nil, func() error {
			_, err := k.dev.Moment([]kdev.Cells{{Addr: cells.Cell(cells.Addr), Words: 1}}, []kdev.Range{{Start: k.info.TextStart, End: k.info.TextStart + 16}}, kdev.Clocks{})
			return err
		}, nil, 5},
		{"wait", nil, func() error { return k.dev.Wait(nil, time.Millisecond, time.Millisecond) }, nil, 1},
		{"rings", nil, func() error { _, err := k.dev.AllocRings(ringLen, k.info.CPUs); return err }, nil, 3},
	}
}

const ringLen = 1 << 16

// walk has the n-th allocation of a call fail, for each n that it has.
func (k *kernel) walk(a attempt, before *check.Text) error {
	failed, other := 0, 0
	for n := 1; ; n++ {
		if a.ready != nil {
			if err := a.ready(); err != nil {
				return fmt.Errorf("before allocation %d is to fail: %w", n, err)
			}
		}
		was, err := k.dev.Stats()
		if err != nil {
			return err
		}
		if err := arm(failNth, n); err != nil {
			return err
		}
		callErr := a.call()
		rest, err := left(failNth)
		if err := errors.Join(err, arm(failNth, 0)); err != nil {
			return err
		}
		if callErr != nil {
			failed++
			if rest > 0 {
				return fmt.Errorf("none of %d allocations failed, and yet: %w", n, callErr)
			}
			if !errors.Is(callErr, unix.ENOMEM) && !errors.Is(callErr, unix.ENOSPC) {
				check.Report("fails: "+a.name+", what it says", n, false, "allocation %d of it failed: %v", n, callErr)
			}
			now, err := k.dev.Stats()
			if err != nil {
				return err
			}
			if now.Areas != was.Areas || now.Splices != was.Splices {
				check.Report("fails: "+a.name+", what it leaves", n, false, "%+v, and before %+v", now, was)
			}
			continue
		}
		if rest == 0 {
			other++
		}
		if a.back != nil {
			if err := a.back(); err != nil {
				return fmt.Errorf("take it back: %w", err)
			}
		}
		if rest > 0 {
			break
		}
	}
	differ, first, err := before.Differing(k.dev)
	if err != nil {
		return err
	}
	s, err := k.dev.Stats()
	check.Report("fails: "+a.name, failed+other, err == nil && failed+other >= a.least && differ == 0 && s.Splices == 0 && s.Spliced == s.Unspliced && s.Quarantined == 0,
		"%d allocations failed, %d of them without harm; %d bytes differ, the first at %v; %+v, %v", failed+other, other, differ, first, s, err)
	return nil
}

// failLoads loads the module with each of its allocations failing: it is not loaded then, or goes
// another way.
func failLoads() error {
	if err := kdev.Unload(kdev.ModuleName); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	ko, err := os.ReadFile(kdev.ModuleFile)
	if err != nil {
		return err
	}
	kallsyms, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		return err
	}
	for n, other := 1, 0; ; n++ {
		err := kdev.LoadFrom(ko, "fail_nth="+strconv.Itoa(n), bytes.NewReader(kallsyms))
		if err == nil {
			rest, err := left(failNth)
			if err == nil && rest == 0 { // where there was no room for a page there is another place, or no traps
				other++
				if err = kdev.Unload(kdev.ModuleName); err == nil {
					continue
				}
			}
			check.Report("fails: load", n-1, err == nil && n-1 > other, "loaded when allocation %d was to fail, of which %d were left, and %d times although one failed; %v", n, rest, other, err)
			return errors.Join(arm(failNth, 0), err)
		}
		pieces, countErr := check.Pieces()
		if !errors.Is(err, unix.ENOMEM) || countErr != nil || pieces != 0 {
			check.Report("fails: load, what it says and leaves", n, false, "%v; %d pieces, %v", err, pieces, countErr)
			return nil
		}
	}
}

// failRelease closes the device with a batch live, with each allocation that its end makes
// failing: what could not be undone then is when it is looked at again.
func (k *kernel) failRelease(before *check.Text, points int, seed uint64) error {
	t, plans := k.mishap()
	bad := 0
	n := 1
	for ; ; n++ {
		if _, err := t.splicer.Apply(plans); err != nil {
			return err
		}
		if err := arm(failNth, n); err != nil {
			return err
		}
		if err := k.dev.Close(); err != nil {
			return err
		}
		rest, err := left(failNth)
		if err := errors.Join(err, arm(failNth, 0)); err != nil {
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
// taken back and made: what is left when it has died is nothing. stride: only each so manyth.
func kills(points, stride int, seed uint64) error {
	k, err := openEvenly(points, seed)
	if err != nil {
		return err
	}
	_, plans := k.mishap()
	for m, n := range k.mechanisms(plans) {
		check.Report("points of the batch by "+m, n, n > 0, "")
	}
	before, err := check.Snapshot(k.dev, k.info, k.text)
	if err := errors.Join(err, k.dev.Close()); err != nil {
		return err
	}
	own := func(n int) (*exec.Cmd, error) { // which begins to count its steps when it has planned
		return exec.Command("/proc/self/exe", "-points", strconv.Itoa(points), "-seed", strconv.FormatUint(seed, 10), "victim", strconv.Itoa(n)), nil
	}
	u, first := untouched{before}, 1+int(seed)%stride
	if err := u.killEach("steps", first, stride, own); err != nil {
		return err
	}
	if err := u.killEach("steps of the daemon", first, daemonStride*stride, daemon); err != nil {
		return err
	}
	return check.Left()
}

// untouched is what has to be there when a caller is gone.
type untouched struct{ *check.Text }

// killEach kills a program at each so manyth step, from one on, until it comes to its end; the last has made splices.
func (u untouched) killEach(what string, from, stride int, program func(n int) (*exec.Cmd, error)) error {
	times := 0
	for n := from; ; n += stride {
		made, err := u.made()
		if err != nil {
			return err
		}
		c, err := program(n)
		if err != nil {
			return err
		}
		ended, err := killed(c)
		if err != nil {
			return fmt.Errorf("%s: %d: %w", what, n, err)
		}
		now, err := u.left(what, n)
		if err != nil {
			return err
		}
		if ended {
			check.Report("splices made by who was not killed: "+what, int(now-made), now > made, "")
			break
		}
		times++
	}
	check.Report("kills: "+what, times, times > 0, "")
	return nil
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
	k, err := openEvenly(points, seed)
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
