// Detective follows the time that a process spends in the kernel, from its system calls down to
// the function that takes it, while the process runs on; as KernInst's authors did by hand with
// Squid (OSDI '99, section 4.2). It runs in a guest and puts its questions to kerninstd by kinst,
// as anybody can:
//
//	detective -pid N [-from FUNCTION] [-by elapsed|virtual] [-window TIME] [-json]
//	detective COMMAND...
//
// With a command it only becomes that, as one that stands back for whoever wants a CPU.
//
// At each level it measures, for one window, the function that it is at, and all that this one
// calls: how often, how many threads are inside in the mean (concurrency, which of a process with
// one thread is the share of elapsed time), and the part of that in which they have a CPU. Then it
// goes on at what has most of the time.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"kerninst/agent/ktext"
)

func main() {
	o := options{}
	flag.IntVar(&o.pid, "pid", 0, "the process that is followed")
	flag.StringVar(&o.from, "from", "", "the function to begin at; empty: the process's system calls")
	flag.StringVar(&o.by, "by", "elapsed", "the time that is followed: elapsed, or virtual, in which there was a CPU")
	flag.DurationVar(&o.window, "window", 500*time.Millisecond, "how long is looked at a time; each level takes two")
	flag.IntVar(&o.deep, "deep", 24, "levels at the most")
	idle := flag.Bool("idle", true, "it and the daemon run only while nobody else wants the CPU")
	asJSON := flag.Bool("json", false, "print the levels as JSON")
	flag.Parse()
	var err error
	if *idle {
		err = standBack()
	}
	switch {
	case err == nil && flag.NArg() > 0:
		err = unix.Exec(flag.Arg(0), flag.Args(), os.Environ())
	case err == nil:
		err = investigate(o, *asJSON)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "detective:", err)
		os.Exit(1)
	}
}

// standBack has all threads that there are, and so those that come, give way to whoever is ready: who
// is only nice keeps a CPU that was idle until his slice ends, some milliseconds of each.
func standBack() error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range threads {
		n, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetAttr(n, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0); err != nil && err != unix.ESRCH {
			return fmt.Errorf("stand back for others (sched_setattr): %w", err)
		}
	}
	return nil
}

func investigate(o options, asJSON bool) error {
	if _, ok := measures[o.by]; !ok {
		return fmt.Errorf("-by %s: want elapsed or virtual", o.by)
	}
	if o.pid <= 0 || o.window <= 0 || o.deep <= 0 || flag.NArg() > 0 {
		return fmt.Errorf("want -pid, the number of a process, and a window and levels above 0")
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", o.pid)); err != nil {
		return fmt.Errorf("no process %d: %w", o.pid, err)
	}
	stop, err := serve()
	if err != nil {
		return err
	}
	defer stop()
	names, err := readNames()
	if err != nil {
		return err
	}
	c, err := newClient()
	if err != nil {
		return err
	}
	defer c.close()
	d := detective{options: o, ask: c.ask, names: names, prefix: ktext.Syscall(runtime.GOARCH, ""), dispatch: dispatchers[runtime.GOARCH]}
	if !asJSON {
		d.found = func(l Level) { l.print(os.Stdout) }
	}
	levels, err := d.follow()
	if asJSON {
		out := json.NewEncoder(os.Stdout)
		out.SetIndent("", " ")
		if e := out.Encode(levels); err == nil {
			err = e
		}
	}
	return err
}
