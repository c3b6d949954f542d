package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protodelim"

	"kerninst/agent/ask"
	"kerninst/agent/daemon"
	"kerninst/agent/isa/all"
	"kerninst/agent/ktypes"
	"kerninst/agent/probe"
	"kerninst/agent/wire"
)

// kernelTypes is where a kernel shows its BTF (Documentation/bpf/btf.rst).
const kernelTypes = "/sys/kernel/btf/vmlinux"

// The ways in which kinst ends, those of the lab's commands.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitBroken      = 3 // there is no daemon, or it died
	exitTimeout     = 5
	exitInterrupted = 130
)

var errInterrupted = errors.New("interrupted")

// kinst asks the daemon for what lab probe asks of a guest of its own, and says the same. It
// answers with the status to exit with.
func kinst(args []string) int {
	types := sync.OnceValues(readTypes)
	if slices.Equal(args, []string{"--batch"}) {
		return batch(os.Stdin, types)
	}
	code, _ := question(args, types)
	return code
}

// batch asks one question after the other, each an array of words in JSON, as they would be kinst's
// own: who asks often reads the kernel's types once. Each answer is shown as the question wants it.
// One that cannot be asked ends it.
func batch(from io.Reader, types func() (*ktypes.Types, error)) int {
	for in := json.NewDecoder(from); ; {
		var words []string
		if err := in.Decode(&words); errors.Is(err, io.EOF) {
			return 0
		} else if err != nil {
			fmt.Fprintln(os.Stderr, "kinst: a question is an array of strings in JSON:", err)
			return exitUsage
		}
		if code, answered := question(words, types); !answered {
			return code
		}
	}
}

// question is one, and whether there was an answer to show.
func question(args []string, types func() (*ktypes.Types, error)) (code int, answered bool) {
	var r ask.Request
	f := pflag.NewFlagSet("kinst", pflag.ContinueOnError)
	f.SetOutput(io.Discard)
	r.Flags(f)
	err := f.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		fmt.Printf("kinst SPEC... [-l | --run STRING | -- CMD ARG...]\nkinst --batch: each question a JSON array of such words, on standard input\n\nWithout a workload it goes on until Ctrl-C, which ends a workload, too.\n%s\n\n%s", ask.Help(), f.FlagUsages())
		return 0, true
	}
	r.Specs = f.Args()
	if n := f.ArgsLenAtDash(); n >= 0 {
		r.Specs, r.Argv = f.Args()[:n], f.Args()[n:]
	}
	if r.Endless = r.Shell == "" && len(r.Argv) == 0; r.Endless && !f.Changed("timeout") {
		r.Timeout = math.MaxInt64
	}
	var job *wire.Job
	if err == nil {
		err = r.CheckFor(runtime.GOARCH)
	}
	if err == nil && r.Inline {
		var code int
		if code, err = expand(&r); code != 0 {
			fmt.Fprintln(os.Stderr, "kinst:", err)
			return code, false
		}
	}
	if err == nil {
		job, err = r.Job(probe.At{Types: types, Registers: registers()})
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "kinst: %v\nkinst --help says more\n", err)
		return exitUsage, false
	}
	if r.Expanded {
		if err := r.PrintSpecs(os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "kinst:", err)
			return exitBroken, false
		}
		return 0, true
	}
	follow, err := r.Follow(os.Stderr, isTerminal(os.Stderr))
	if err != nil {
		fmt.Fprintln(os.Stderr, "kinst:", err)
		return exitUsage, false
	}
	if r.Endless && !r.List {
		fmt.Fprintln(os.Stderr, "kinst: until Ctrl-C")
	}
	records, err := do(job, follow.See)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kinst:", err)
	}
	switch {
	case errors.Is(err, errInterrupted):
		return exitInterrupted, false
	case err != nil:
		return exitBroken, false
	}
	a := r.Answer(records)
	if r.Inline {
		tell(&a)
	}
	return show(&r, a), true
}

func readTypes() (*ktypes.Types, error) {
	raw, err := os.ReadFile(kernelTypes)
	if err != nil {
		return nil, err
	}
	return ktypes.Read(raw)
}

// patience is how long a daemon that has just been started may take to listen: it reads the
// kernel's symbols before, which takes seconds on an emulated machine.
const patience = 30 * time.Second

// dial waits for a daemon that does not listen yet, and says that it does.
func dial() (conn net.Conn, err error) {
	// Nothing tells when somebody begins to listen at a socket that need not be there yet.
	for begun, said := time.Now(), false; ; time.Sleep(100 * time.Millisecond) {
		conn, err = net.Dial("unix", daemon.Socket)
		starting := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED)
		if !starting || time.Since(begun) > patience {
			return conn, err
		}
		if !said {
			fmt.Fprintln(os.Stderr, "kinst: waiting for kerninstd to listen")
			said = true
		}
	}
}

// isTerminal reports whether somebody looks at a file as it is written.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// do has the daemon do a job, and hears what it says, as see does at once.
func do(job *wire.Job, see func(*wire.Record)) (records []*wire.Record, err error) {
	conn, err := dial()
	if err != nil {
		return nil, fmt.Errorf("%w: is kerninstd -serve running?", err)
	}
	defer conn.Close()
	if _, err := protodelim.MarshalTo(conn, job); err != nil {
		return nil, err
	}
	var begun, told, ended atomic.Bool
	var parted wire.Parted
	done := make(chan struct{})
	defer close(done)
	go heed(conn, done, &begun, &told, &ended)
	for in := bufio.NewReader(conn); ; {
		rec := &wire.Record{}
		if err := protodelim.UnmarshalFrom(in, rec); err != nil && ended.Load() {
			return nil, errInterrupted
		} else if errors.Is(err, io.EOF) {
			return nil, errors.New("the daemon died")
		} else if err != nil {
			return nil, err
		}
		begun.Store(true)
		if rec, err = parted.Add(rec); err != nil {
			return nil, fmt.Errorf("the daemon's answer: a record %w", err)
		} else if rec == nil {
			continue
		}
		see(rec)
		if rec.GetTrace() == nil { // which see keeps as it likes
			records = append(records, rec)
		}
		if done := rec.GetDone(); done != nil && done.Failed && told.Load() {
			return nil, fmt.Errorf("%w: %s", errInterrupted, done.Error)
		} else if done != nil {
			return records, nil
		}
	}
}

// busy is how long a daemon may say nothing before it is thought to do somebody else's job: it does
// one after the other.
const busy = time.Second

// heed says when the job has to wait for another's, and does what Ctrl-C asks for: what runs is to
// end and what was found to be told, or, a second time or before it has begun, nothing more.
func heed(conn net.Conn, done <-chan struct{}, begun, told, ended *atomic.Bool) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, unix.SIGTERM)
	defer signal.Stop(signals)
	late := time.After(busy)
	for {
		select {
		case <-done:
			return
		case <-late:
			if !begun.Load() {
				fmt.Fprintln(os.Stderr, "kinst: waiting for kerninstd, which does another job")
			}
			continue
		case <-signals:
		}
		if !begun.Load() || told.Swap(true) {
			break
		}
		_, _ = conn.Write([]byte{0})
	}
	ended.Store(true)
	conn.Close() // the daemon ends the job
}

// ended is how it came out: for the shell, and in the lab's words. What was wrong is in the answer.
func ended(r *ask.Request, a *ask.Answer) (code int, status string) {
	w := a.Workload
	switch {
	case w != nil && w.TimedOut:
		a.Wrong = fmt.Sprintf("the workload did not end within %v: raise --timeout", r.Timeout)
		return exitTimeout, "timeout"
	case a.Wrong != "":
		return exitFailed, "failed"
	case w != nil && r.ExitWithWorkload:
		return int(w.Exit), "passed"
	}
	return 0, "passed"
}

// show prints an answer as lab probe does.
func show(r *ask.Request, a ask.Answer) int {
	code, status := ended(r, &a)
	if r.JSON {
		out := json.NewEncoder(os.Stdout)
		out.SetIndent("", "  ")
		if err := out.Encode(answered{Schema: 1, Arch: runtime.GOARCH, Status: status, Reason: a.Wrong, Answer: a}); err != nil {
			fmt.Fprintln(os.Stderr, "kinst:", err)
			return exitFailed
		}
	} else {
		if w := a.Workload; w != nil {
			fmt.Print(w.Stdout)
			fmt.Fprint(os.Stderr, w.Stderr)
		}
		r.Print(os.Stdout, a)
	}
	for _, note := range r.Notes(a) {
		fmt.Fprintln(os.Stderr, note)
	}
	if a.Wrong != "" && !r.JSON {
		fmt.Fprintln(os.Stderr, "kinst:", a.Wrong)
	}
	return code
}

// answered is what --json prints: lab probe's document, without what only a lab knows.
type answered struct {
	Schema int    `json:"schema"`
	Arch   string `json:"arch"`
	Status string `json:"status"`
	Reason string `json:"reason,omitempty"`
	ask.Answer
}

// registers are the names of the machine's.
func registers() []string {
	arch, err := all.Lookup(runtime.GOARCH)
	if err != nil {
		return nil
	}
	return arch.Registers()
}
