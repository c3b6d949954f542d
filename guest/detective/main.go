// Detective follows the time that a process spends in the kernel, from its system calls down to
// the function that takes it, while the process runs on; as KernInst's authors did by hand with
// Squid (OSDI '99, section 4.2). It runs in a guest and puts its questions to kerninstd by kinst,
// as anybody can:
//
//	detective -pid N [-from FUNCTION] [-by elapsed|virtual] [-window TIME] [-rest N] [-json]
//
// At each level it measures, for one window, the function that it is at, and all that this one
// calls: how often, how many threads are inside in the mean (concurrency, which of a process with
// one thread is the share of elapsed time), and the part of that in which they have a CPU. Then it
// goes on at what has most of the time.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"

	"kerninst/agent/ktext"
)

func main() {
	o := options{}
	flag.IntVar(&o.pid, "pid", 0, "the process that is followed")
	flag.StringVar(&o.from, "from", "", "the function to begin at; empty: the process's system calls")
	flag.StringVar(&o.by, "by", "elapsed", "the time that is followed: elapsed, or virtual, in which there was a CPU")
	flag.DurationVar(&o.window, "window", 500*time.Millisecond, "how long is looked at a time; each level takes two")
	flag.IntVar(&o.deep, "deep", 24, "levels at the most")
	flag.Float64Var(&o.rest, "rest", 0, "how many times as long as a question took it waits before the next: what it takes of CPUs is spread")
	asJSON := flag.Bool("json", false, "print the levels as JSON")
	flag.Parse()
	if err := investigate(o, *asJSON); err != nil {
		fmt.Fprintln(os.Stderr, "detective:", err)
		os.Exit(1)
	}
}

func investigate(o options, asJSON bool) error {
	if _, ok := measures[o.by]; !ok {
		return fmt.Errorf("-by %s: want elapsed or virtual", o.by)
	}
	if o.pid <= 0 || o.window <= 0 || o.deep <= 0 || o.rest < 0 || flag.NArg() > 0 {
		return fmt.Errorf("want -pid, the number of a process, a window and levels above 0, and a rest that is not below")
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", o.pid)); err != nil {
		return fmt.Errorf("no process %d: %w", o.pid, err)
	}
	stop, err := serve()
	if err != nil {
		return err
	}
	defer stop()
	c, err := newClient()
	if err != nil {
		return err
	}
	defer c.close()
	d := detective{options: o, ask: c.ask, prefix: ktext.Syscall(runtime.GOARCH, ""), dispatch: dispatchers[runtime.GOARCH]}
	if !asJSON {
		d.found = func(l Level) { l.print(os.Stdout) }
	}
	all, err := newWorkers(c.cmd.Process.Pid)
	if err != nil {
		return err
	}
	levels, err := d.follow()
	err = errors.Join(err, all.tell())
	if asJSON {
		out := json.NewEncoder(os.Stdout)
		out.SetIndent("", " ")
		err = errors.Join(err, out.Encode(levels))
	}
	return err
}
