// Package session does one run: it starts a machine, follows its console and
// its records, and says how the run came out and whose fault that is.
//
// Nothing is polled for with a time-out. A guest that panics resets, and QEMU
// says so at once; when a daemon dies, init powers the guest off, and there is no
// Done; the console only names what happened: any program can write to it what
// looks like a death. Time-outs are for guests that hang, and a guest that hangs
// leaves its registers behind.
//
// Three goroutines work on a run: one follows the console, one the records, one
// waits for the machine. They report to the one that called Do, which alone
// decides. All have ended when Do returns, and so has the machine.
package session

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"kerninst/agent/wire"
	"kerninst/lab/console"
	"kerninst/lab/postmortem"
	"kerninst/lab/status"
	"kerninst/lab/tail"
	"kerninst/lab/vm"
)

const (
	// inspectLimit bounds the look into a guest that hangs.
	inspectLimit = 15 * time.Second
	// lockups is how many reports of a lockup without a record between them make
	// a hang, if the kernel has noted one: the first may be due to a busy host.
	lockups = 2
	// tellLimit is the host time in which a guest that was told ends: what runs in it has a second of
	// its own, and then what was found is told and all is undone.
	tellLimit = time.Minute
	// decisiveLines is how many console lines an outcome shows.
	decisiveLines = 20
)

// consoleLimit is how much console text is taken, in bytes. A guest that writes
// more is out of control. Only tests change it.
var consoleLimit = 16 << 20

// Config is what a run is made from.
type Config struct {
	Backend vm.Backend
	Spec    vm.Spec
	// BootTimeout is host time from the start to hello, RunTimeout from hello to
	// the guest's power-off; time for which this host kept the machine waiting for a
	// CPU does not count. 0 sets no limit.
	BootTimeout, RunTimeout time.Duration
	// Keep leaves the machine where it stands when the guest has ended or hangs,
	// if it can be left (vm.Spec.Keep).
	Keep bool
	// Memory, if set, is a file to which the memory of a guest that died or hangs
	// is written, as an ELF core.
	Memory string
	// Heeds: when the context ends, a guest that has said hello is told that it is enough, if it can
	// be (vm.Teller); how it comes out then is the outcome, unless that takes too long.
	Heeds bool
	// OnRecord, if set, is called for each record in order, from one goroutine. What is
	// traced is then not kept with the other records.
	OnRecord func(*wire.Record)
	// OnStart, if set, is called once the machine runs. Tests use it to do to a
	// machine what the outside world does.
	OnStart func(vm.Machine)
	// Progress, if set, is told what happens.
	Progress func(format string, args ...any)
}

// Outcome is how a run came out.
type Outcome struct {
	Status  status.Status
	Kind    Kind
	Summary string // one sentence: what happened, and what to do

	Hello    *wire.Hello // nil when the guest never said it
	Done     *wire.Done  // likewise
	Records  []*wire.Record
	Findings []console.Finding
	// ConsoleTail are the decisive lines of the console, clean.
	ConsoleTail []string
	// Evidence of a guest that hangs or has reset; nil if there is none.
	Evidence *postmortem.Evidence
	// Kept is the process of the machine if it was left where it stands, else 0.
	Kept       int
	Ending     vm.Ending
	HelloAfter time.Duration // host time; 0 without hello
	// RunningAt is when the job's first step was begun, as its record came; zero without.
	RunningAt time.Time
	Argv      []string
	Err       error // why the machine did not start
}

// Do does one run. The error is the context's when it ended first, and nil
// otherwise: the lab's own faults are outcomes too.
func Do(ctx context.Context, cfg Config) (*Outcome, error) {
	if cfg.Progress == nil {
		cfg.Progress = func(string, ...any) {}
	}
	cfg.Spec.Linger, cfg.Spec.Keep = true, cfg.Keep
	m, err := cfg.Backend.Start(ctx, cfg.Spec)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return notStarted(err), nil
	}
	r := &run{cfg: cfg, machine: m, ended: make(chan struct{}), signals: make(chan signal, 16)}
	r.begin()
	if cfg.OnStart != nil {
		cfg.OnStart(m)
	}
	cfg.Progress("%s: started", cfg.Spec.Arch)
	err = r.watch(ctx)
	if err != nil || !r.leave() {
		m.Kill()
	}
	<-r.ended
	r.drain()
	if err != nil {
		return nil, err
	}
	return r.outcome(), nil
}

// notStarted is the outcome of a machine that never ran.
func notStarted(err error) *Outcome {
	o := &Outcome{Status: status.LabFailed, Kind: QEMUStart, Summary: err.Error(), Err: err}
	var failed interface {
		Command() []string
		End() vm.Ending
	}
	if errors.As(err, &failed) {
		o.Argv, o.Ending = failed.Command(), failed.End()
		if o.Ending.Kind == vm.HostLost {
			o.Kind = HostLost
		}
	}
	return o
}

// run is a run that is under way. The goroutine that called Do owns hello, cause,
// evidence, kept and helloAfter; the console's goroutine owns classifier and the
// records' goroutine owns stream and runningAt until they have ended.
type run struct {
	cfg     Config
	machine vm.Machine
	working sync.WaitGroup
	signals chan signal

	ended  chan struct{} // closed when ending is valid
	ending vm.Ending

	classifier *console.Classifier
	stream     stream

	hello      *wire.Hello
	cause      cause
	evidence   *postmortem.Evidence
	kept       int
	helloAfter time.Duration
	runningAt  time.Time // the records' goroutine's
}

// signal is what a goroutine reports.
type signal struct {
	what    what
	finding console.Finding
	hello   *wire.Hello
}

type what int

const (
	gotHello what = iota
	gotRecord
	gotDone
	badStream
	died // fatal finding
	lockedUp
	flooded
)

// begin starts the goroutines.
func (r *run) begin() {
	go func() {
		r.ending, _ = r.machine.Wait(context.Background())
		close(r.ended)
	}()
	r.classifier = console.New()
	r.classifier.OnFinding = func(f console.Finding) {
		switch {
		case f.Fatal:
			r.signals <- signal{what: died, finding: f}
		case f.Class == console.SoftLockup || f.Class == console.HardLockup:
			r.signals <- signal{what: lockedUp, finding: f}
		}
	}
	r.working.Go(r.readConsole)
	r.working.Go(r.readRecords)
}

// readConsole follows the console to its end.
func (r *run) readConsole() {
	text := tail.Follow(r.machine.Console(), r.ended)
	defer text.Close()
	defer r.classifier.Flush()
	buf := make([]byte, 64<<10)
	for total := 0; total < consoleLimit; {
		n, err := text.Read(buf)
		r.classifier.Write(buf[:n])
		if total += n; err != nil {
			return
		}
	}
	r.signals <- signal{what: flooded}
}

// readRecords follows the record stream to its end or first fault.
func (r *run) readRecords() {
	r.stream.follow = r.cfg.OnRecord != nil
	r.stream.read(r.machine.Results(), func(rec *wire.Record) {
		if r.cfg.OnRecord != nil {
			r.cfg.OnRecord(rec)
		}
		if l := rec.GetLog(); l != nil && r.runningAt.IsZero() && strings.HasPrefix(l.Text, wire.StepBegun) {
			r.runningAt = time.Now()
		}
		switch rec.Body.(type) {
		case *wire.Record_Hello:
			r.signals <- signal{what: gotHello, hello: rec.GetHello()}
		case *wire.Record_Done:
			r.signals <- signal{what: gotDone}
		default:
			r.signals <- signal{what: gotRecord}
		}
	})
	if r.stream.fault != nil {
		r.signals <- signal{what: badStream}
	}
}

// watch returns when the machine has ended, or has to be killed; cause then says
// why. The error is the context's.
func (r *run) watch(ctx context.Context) error {
	kept := func() time.Duration { return keptWaiting(r.machine) }
	boot := newDeadline(r.cfg.BootTimeout, kept)
	job := newDeadline(0, kept)
	stuck, enough := 0, lockups
	var halted <-chan struct{}
	if l, ok := r.machine.(vm.Lingerer); ok {
		halted = l.Halted()
	}
	told := newDeadline(0, kept)
	interrupted, gaveUp := ctx.Done(), error(nil)
	defer func() { boot.stop(); job.stop(); told.stop() }()
	for {
		select {
		case <-interrupted:
			if !r.tell(ctx) {
				return ctx.Err()
			}
			told, interrupted, gaveUp = newDeadline(tellLimit, kept), nil, ctx.Err()
			ctx = context.WithoutCancel(ctx)
		case <-told.c:
			if told.over() {
				return gaveUp
			}
		case <-r.ended:
			return nil
		case <-halted:
			return r.look(ctx, postmortem.Take)
		case <-boot.c:
			if boot.over() {
				return r.hang(ctx, bootTimeout)
			}
		case <-job.c:
			if job.over() {
				return r.hang(ctx, runTimeout)
			}
		case s := <-r.signals:
			switch s.what {
			case gotHello:
				r.hello = s.hello
				r.helloAfter = time.Since(r.machine.Started())
				r.cfg.Progress("%s: hello after %.1f s", r.cfg.Spec.Arch, r.helloAfter.Seconds())
				boot.stop()
				job = newDeadline(r.cfg.RunTimeout, kept)
			case gotDone:
				r.cfg.Progress("%s: done", r.cfg.Spec.Arch)
			case badStream:
				r.cause = badRecords
				return nil
			case flooded:
				r.cause = consoleFlood
				return nil
			case lockedUp:
				if stuck++; stuck < enough {
					break
				}
				if r.notedLockup(ctx) {
					return r.hang(ctx, lockup)
				}
				r.cfg.Progress("%s: says its console, but its kernel has noted no lockup: %s", r.cfg.Spec.Arch, s.finding.Line)
				stuck, enough = 0, 2*enough // who forges many is not asked about each
			case died: // or a program says so: the machine will tell
				r.cfg.Progress("%s: %s", r.cfg.Spec.Arch, s.finding.Line)
			}
			if s.what <= gotDone {
				stuck = 0
			}
		}
	}
}

// tell says to a guest that heeds that it is enough, and whether that has been said.
func (r *run) tell(ctx context.Context) bool {
	m, ok := r.machine.(vm.Teller)
	if !ok || !r.cfg.Heeds || r.hello == nil {
		return false
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), inspectLimit)
	defer cancel()
	if err := m.Tell(limited); err != nil {
		r.cfg.Progress("%s: %v", r.cfg.Spec.Arch, err)
		return false
	}
	return true
}

// taintSoftLockup is the kernel's bit for a lockup that it has reported: TAINT_SOFTLOCKUP
// in include/linux/panic.h. Hard ones have none; a CPU that waits for one locks up softly.
const taintSoftLockup = 1 << 14

// notedLockup says whether the guest's kernel itself has noted a lockup. Before
// hello no program of the user's runs that could forge the report.
func (r *run) notedLockup(ctx context.Context) bool {
	hello := r.hello
	if hello == nil {
		return true
	}
	in, ok := r.machine.(vm.Inspector)
	if !ok || hello.Tainted == 0 {
		return false
	}
	limited, cancel := context.WithTimeout(ctx, inspectLimit)
	defer cancel()
	inside, err := in.Inspect(limited)
	if err != nil {
		return false
	}
	defer inside.Close()
	for cpu := range max(1, r.cfg.Spec.CPUs) { // one in a program need not see the kernel
		b, err := inside.Read(limited, cpu, hello.Tainted, 8)
		if err == nil && len(b) == 8 {
			return binary.LittleEndian.Uint64(b)&taintSoftLockup != 0
		}
	}
	return false
}

// hang looks into a guest that has to be killed.
func (r *run) hang(ctx context.Context, c cause) error {
	r.cause = c
	return r.look(ctx, postmortem.TakeHung)
}

// look takes evidence of the machine. The error is the context's.
func (r *run) look(ctx context.Context, take func(context.Context, string, vm.Inside) *postmortem.Evidence) error {
	in, ok := r.machine.(vm.Inspector)
	if !ok {
		return ctx.Err()
	}
	limited, cancel := context.WithTimeout(ctx, inspectLimit)
	defer cancel()
	inside, err := in.Inspect(limited)
	if err != nil {
		r.evidence = &postmortem.Evidence{Arch: r.cfg.Spec.Arch, Notes: []string{fmt.Sprintf("the machine cannot be looked into: %v", err)}}
		return ctx.Err()
	}
	defer inside.Close()
	r.evidence = take(limited, r.cfg.Spec.Arch, inside)
	if r.cfg.Memory != "" {
		if err := inside.Dump(ctx, r.cfg.Memory); err != nil {
			r.evidence.Notes = append(r.evidence.Notes, fmt.Sprintf("memory dump: %v", err))
		} else {
			r.evidence.Memory = true
		}
	}
	return ctx.Err()
}

// leave lets go of a machine that is to be kept and still there, and says whether
// it did.
func (r *run) leave() bool {
	l, ok := r.machine.(vm.Lingerer)
	if !ok || !r.cfg.Spec.Keep || r.cause == badRecords || r.cause == consoleFlood {
		return false
	}
	select {
	case <-r.ended:
		return false
	default:
	}
	if p, ok := r.machine.(vm.Process); ok && l.Leave() == nil {
		r.kept = p.Pid()
	}
	return r.kept != 0
}

// drain waits for the goroutines, taking what they still report.
func (r *run) drain() {
	finished := make(chan struct{})
	go func() {
		r.working.Wait()
		close(finished)
	}()
	for {
		select {
		case s := <-r.signals:
			if s.what == gotHello {
				r.helloAfter = time.Since(r.machine.Started())
			}
		case <-finished:
			return
		}
	}
}

// outcome puts together what is known once everything has ended.
func (r *run) outcome() *Outcome {
	f := facts{
		cause: r.cause, ending: r.ending, hello: r.stream.hello, done: r.stream.done,
		fault: r.stream.fault, findings: r.classifier.Findings(), full: noRoom(r.cfg.Spec.Dir), cfg: r.cfg,
	}
	o := &Outcome{
		Hello: r.stream.hello, Done: r.stream.done, Records: r.stream.records,
		Findings: f.findings, ConsoleTail: r.classifier.Decisive(decisiveLines),
		Evidence: r.evidence, Kept: r.kept, Ending: r.ending, HelloAfter: r.helloAfter, RunningAt: r.runningAt, Argv: r.machine.Argv(),
	}
	o.Status, o.Kind, o.Summary = f.decide()
	return o
}

// room is what has to be free on a disk that is not full, in bytes.
const room = 64 << 10

// noRoom says why a folder takes no more. What is free for root alone is not for QEMU.
func noRoom(dir string) error {
	var disk unix.Statfs_t
	if unix.Statfs(dir, &disk) == nil && disk.Blocks > 0 && disk.Bavail*uint64(disk.Bsize) < room {
		return unix.ENOSPC
	}
	f, err := os.CreateTemp(dir, "room-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(make([]byte, room))
	return errors.Join(err, f.Close())
}
