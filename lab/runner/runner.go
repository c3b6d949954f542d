// Package runner makes guests out of an image and a request, several at a
// time, and keeps what each of them left behind.
package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/protobuf/proto"

	"kerninst/agent/ktext"
	"kerninst/agent/wire"
	"kerninst/images"
	"kerninst/lab/card"
	"kerninst/lab/oracle"
	"kerninst/lab/postmortem"
	"kerninst/lab/qemu"
	"kerninst/lab/report"
	"kerninst/lab/session"
	"kerninst/lab/status"
	"kerninst/lab/untrusted"
	"kerninst/lab/vm"
)

// Limits of host time when a request names none. A guest that is well boots in
// a tenth of this on an idle machine; exact time is the slowest.
const (
	bootTimeout = 90 * time.Second
	runTimeout  = 180 * time.Second
)

// DefaultMemory, in MiB, fits the padded initramfs twice and a kernel, with room.
const DefaultMemory = 768

// Request is one guest that somebody wants.
type Request struct {
	Name   string // of its directory below the runner's
	CPUs   int
	CPU    string // model; empty: the usual one
	MemMiB int    // 0: the default
	Time   vm.Time
	Seed   uint64 // added to the runner's
	Append string
	Oracle bool
	// Executed asks the oracle for every instruction of the kernel with as many
	// arrivals, instead of for points.
	Executed uint64
	// Calls asks for the calls of a task, instead of arrivals.
	Calls bool
	Job   *wire.Job
	Files []images.File // added to the initramfs
	// FilesAgain says that guests with the same files will come again: it is worth
	// keeping the state of one that has booted with them.
	FilesAgain bool
	// Boots: it does not go on from another one's state. One that is unlike any other
	// boots sooner than it keeps a state and loads it.
	Boots bool
	// Keep leaves the machine where it stands when its guest has ended badly or
	// hangs, and KeepPassed when it has passed: then Guest.End or Runner.Hold has to
	// be called.
	Keep, KeepPassed bool
	// Plugin is called when the guest has passed, with the file that the runner's
	// plugin wrote: for plugins other than the one that counts arrivals.
	Plugin func(file string, o *session.Outcome) error
	// See is called with each record of the daemon's as it comes, from one goroutine.
	See func(*wire.Record)
	// Host time until hello, and from there to done; 0: the runner's.
	BootTimeout, RunTimeout time.Duration
}

// Guest is what became of a request.
type Guest struct {
	Request Request
	Outcome *session.Outcome // nil when Err is set
	Oracle  oracle.Report
	Calls   *oracle.Call
	Err     error // the lab's own, or the context's
	Took    time.Duration
	// RunningAfter is the host time from when its turn came to its job's first step; 0: it came to none.
	RunningAfter time.Duration
	Fetched      []*Fetched
	ByHand       string // a command that boots the same guest without the lab; empty: it was not kept

	left *qemu.RunDir // of a machine that was left; nil: it has ended
}

// Runner makes guests of one image. Its fields do not change once Start has
// been called.
type Runner struct {
	Image   *images.Image
	Backend vm.Backend
	Through string // program and version by which Backend starts QEMU; empty: none
	KVM     bool   // guests of host time run under KVM, but for those with an oracle
	Plugin  string // path of the plugin that guests may ask for; empty: none is wanted
	Calls   string // path of the one that follows calls, likewise
	Seed    uint64
	Dir     string // where guests' artefacts go; empty: nowhere
	Jobs    int    // guests at a time
	Own     Own
	// DumpMemory writes the memory of a guest that hangs or has reset to a file.
	DumpMemory bool
	// Lines tell lines of the source, on cards, of the kernel that there is a dump of; nil, or a
	// nil Source: nobody does. To ask for the dump may start a guest.
	Lines func(dump func() (*ktext.Dump, error)) (card.Source, error)
	// Progress is told what happens. It may be called from several goroutines.
	Progress func(format string, args ...any)

	slots   *semaphore.Weighted // who waits for all of them is not overtaken
	all     *sync.WaitGroup
	do      func(context.Context, *Guest) // run, but for tests
	symbols func() (*postmortem.Symbols, error)
	lines   func() (card.Source, error)
}

// New returns r ready to Start.
func New(r Runner) *Runner {
	r.Jobs = max(1, r.Jobs)
	r.slots, r.all = semaphore.NewWeighted(int64(r.Jobs)), &sync.WaitGroup{}
	r.do = r.run
	r.symbols = sync.OnceValues(r.readSymbols)
	r.lines = sync.OnceValues(r.readLines)
	return &r
}

// Pending is a guest that has been asked for.
type Pending struct {
	done  chan struct{}
	guest *Guest
}

// Wait returns when the guest has ended.
func (p *Pending) Wait() *Guest {
	<-p.done
	return p.guest
}

// Start asks for a guest; it runs as soon as one of the slots is free.
func (r *Runner) Start(ctx context.Context, q Request) *Pending {
	return r.start(ctx, 1, q)[0]
}

// StartInTurn asks for guests that run one after the other, in this order, with
// no other guest of the runner's beside them: what they measure is host time.
func (r *Runner) StartInTurn(ctx context.Context, list []Request) []*Pending {
	return r.start(ctx, r.Jobs, list...)
}

// ErrNotAsked is the error of a guest whose job was to come from one that had none
// to give.
var ErrNotAsked = errors.New("the guest that its job depends on did not pass")

// Without is a guest that does not run, for want of something.
func (r *Runner) Without(q Request, why error) *Pending {
	p := &Pending{done: make(chan struct{}), guest: &Guest{Request: q, Err: why}}
	close(p.done)
	return p
}

// StartAfter asks for a guest whose job is made of what another one said.
func (r *Runner) StartAfter(ctx context.Context, first *Pending, job func(*Guest) (*wire.Job, error), q Request) *Pending {
	p := &Pending{done: make(chan struct{}), guest: &Guest{Request: q}}
	r.all.Add(1)
	go func() {
		defer r.all.Done()
		defer close(p.done)
		g := first.Wait()
		if g.Err != nil || g.Outcome.Status != status.Passed {
			p.guest.Err = ErrNotAsked
			return
		}
		if q.Job, p.guest.Err = job(g); p.guest.Err == nil {
			p.guest = r.Start(ctx, q).Wait()
		}
	}()
	return p
}

// start runs a list of guests, each when the one before has ended, once that
// many slots are free.
func (r *Runner) start(ctx context.Context, slots int, list ...Request) []*Pending {
	var all []*Pending
	for _, q := range list {
		all = append(all, &Pending{done: make(chan struct{}), guest: &Guest{Request: r.Own.of(q)}})
	}
	r.all.Add(1)
	go func() {
		defer r.all.Done()
		err := r.slots.Acquire(ctx, int64(slots))
		if err == nil {
			defer r.slots.Release(int64(slots))
		}
		for _, p := range all {
			if err == nil {
				err = ctx.Err()
			}
			if p.guest.Err = err; err == nil {
				r.timed(ctx, p.guest)
			}
			close(p.done)
		}
	}()
	return all
}

func (r *Runner) timed(ctx context.Context, g *Guest) {
	start := time.Now()
	r.do(ctx, g)
	g.Took = time.Since(start)
	if o := g.Outcome; o != nil && !o.RunningAt.IsZero() {
		g.RunningAfter = o.RunningAt.Sub(start)
	}
	r.Progress("%s: %s after %.1f s", g.Request.Name, g.word(), g.Took.Seconds())
}

// Drain returns when every guest that was asked for has ended.
func (r *Runner) Drain() { r.all.Wait() }

func (g *Guest) word() string {
	if errors.Is(g.Err, context.Canceled) {
		return "interrupted"
	}
	if g.Err != nil {
		return "error: " + g.Err.Error()
	}
	if step := TimedOut(g.Outcome.Records); step != "" && g.Outcome.Status == status.Passed {
		return step + " timed out"
	}
	if step := allRefused(g.Outcome.Records); step != "" && g.Outcome.Status == status.Passed {
		return "every point of " + step + " was refused"
	}
	return string(g.Outcome.Status)
}

// consoleKept is how much of a console is kept, in bytes: more than the session
// takes before it stops a guest.
const consoleKept = 32 << 20

// oracleFile is the plugin's report, in the run directory.
const oracleFile = "oracle"

// domainFile is there when the machine was described to libvirt.
const domainFile = "domain.xml"

// run does a request in a run directory of its own, which is gone afterwards.
func (r *Runner) run(ctx context.Context, g *Guest) {
	if g.Err = g.Request.followable(); g.Err != nil {
		return
	}
	dir, err := qemu.NewRunDir()
	if err == nil && r.Dir != "" {
		err = os.MkdirAll(filepath.Join(r.Dir, g.Request.Name), 0o755)
	}
	if err != nil {
		g.Err = err
		return
	}
	defer func() { g.Err = errors.Join(g.Err, g.leave(dir)) }()
	start := r.cold
	if r.fromGolden(g.Request) {
		if start = r.restored; g.Request.Time == vm.Host {
			start = r.restoredOrCold
		}
	}
	if g.Outcome, g.Err = start(ctx, g.Request, dir.Path); g.Err != nil {
		g.Err = fmt.Errorf("%s: %w", g.Request.Name, g.Err)
		return
	}
	if g.Request.Oracle && g.Outcome.Status == status.Passed {
		g.Oracle, g.Err = readPlugins(filepath.Join(dir.Path, oracleFile), oracle.ReadReport)
	}
	if g.Request.Calls && g.Outcome.Status == status.Passed {
		g.Calls, g.Err = readPlugins(filepath.Join(dir.Path, oracleFile), oracle.ReadCalls)
	}
	if g.Request.Plugin != nil && g.Outcome.Status == status.Passed {
		g.Err = g.Request.Plugin(filepath.Join(dir.Path, oracleFile), g.Outcome)
	}
	r.fetched(g)
	err = r.keep(g, dir.Path)
	switch {
	case err == nil || g.Err != nil:
	case g.Outcome.Status == status.Passed:
		g.Err = err
	default: // how it failed matters more
		r.Progress("%s: not all of it could be kept: %v", g.Request.Name, err)
	}
}

// leave removes a guest's run directory, and ends its machine if it was left for
// nobody.
func (g *Guest) leave(dir *qemu.RunDir) error {
	o := g.Outcome
	if o == nil || o.Kept == 0 {
		dir.Close()
		return nil
	}
	if g.left = dir; g.Err == nil && (o.Status != status.Passed || g.Request.KeepPassed) {
		return nil
	}
	return g.End()
}

// cold boots a guest with its job in the initramfs.
func (r *Runner) cold(ctx context.Context, q Request, dir string) (*session.Outcome, error) {
	job, err := marshal(q.Job)
	if err != nil {
		return nil, err
	}
	spec := r.spec(q, dir)
	if spec.Initrd, err = r.initrd(dir, job, q.Files...); err != nil {
		return nil, err
	}
	return session.Do(ctx, r.session(q, spec))
}

func (r *Runner) session(q Request, spec vm.Spec) session.Config {
	return session.Config{
		Backend: r.Backend, Spec: spec,
		BootTimeout: orDefault(q.BootTimeout, bootTimeout),
		RunTimeout:  orDefault(q.RunTimeout, runTimeout),
		Memory:      r.memory(q),
		Keep:        q.Keep,
		OnRecord:    q.See,
		Heeds:       q.Job.GetHeeds(),
	}
}

// memory is where the memory of a guest that hangs or dies is written, or empty.
func (r *Runner) memory(q Request) string {
	if !r.DumpMemory || r.Dir == "" {
		return ""
	}
	return filepath.Join(r.Dir, q.Name, memoryFile)
}

func marshal(job *wire.Job) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(job)
}

func orDefault(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}

// initrd writes the initramfs of one boot.
func (r *Runner) initrd(dir string, job []byte, files ...images.File) (string, error) {
	initrd := filepath.Join(dir, "initrd")
	return initrd, r.Image.WriteInitrd(initrd, job, files...)
}

// spec says how to start a guest, but for its initramfs.
func (r *Runner) spec(q Request, dir string) vm.Spec {
	s := vm.Spec{
		Arch: r.Image.Arch, Kernel: r.Image.Kernel, Firmware: r.Image.Firmware, Append: q.Append,
		CPUs: q.CPUs, CPU: q.CPU, MemMiB: q.MemMiB, Time: q.Time, Seed: r.Seed + q.Seed, Dir: dir,
	}
	s.Sums = map[string]string{}
	for _, f := range r.Image.Manifest.Files {
		if f.Name == "kernel" {
			s.Sums[s.Kernel] = f.SHA256
		}
	}
	if s.MemMiB == 0 {
		s.MemMiB = DefaultMemory
	}
	s.KVM = r.underKVM(q)
	if q.Oracle || q.Plugin != nil {
		s.Plugins = []vm.Plugin{{Object: r.Plugin, Out: oracleFile, End: oracle.End}}
		if q.Executed > 0 {
			s.Plugins[0].Option = fmt.Sprintf("all=%d", q.Executed)
		}
	}
	if q.Calls {
		s.Plugins = []vm.Plugin{{Object: r.Calls, Out: oracleFile, End: oracle.End}}
	}
	return s
}

func (r *Runner) underKVM(q Request) bool {
	return r.KVM && q.Time == vm.Host && q.CPU == "" && !q.Oracle && !q.Calls && q.Plugin == nil
}

// followable says whether a guest is one whose calls can be followed.
func (q Request) followable() error {
	if q.Calls && (q.CPUs != 1 || q.Time != vm.Exact || q.Oracle) {
		return fmt.Errorf("%s: calls are followed on one CPU, in exact time, without arrivals", q.Name)
	}
	return nil
}

// readPlugins reads what a plugin wrote.
func readPlugins[T any](file string, read func(io.Reader) (T, error)) (none T, err error) {
	f, err := untrusted.Open(file)
	if err != nil {
		return none, fmt.Errorf("oracle: %w", err)
	}
	defer f.Close()
	return read(f)
}

// keep copies what a person may want to see from the run directory.
func (r *Runner) keep(g *Guest, dir string) error {
	if r.Dir == "" {
		return nil
	}
	to := filepath.Join(r.Dir, g.Request.Name)
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	console, err := untrusted.Read(filepath.Join(dir, consoleFile), consoleKept)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	if g.ByHand, err = r.byHand(g, to); err != nil {
		return err
	}
	files := map[string][]byte{
		consoleFile: []byte(report.CleanText(string(console))),
		argvFile:    []byte(g.ByHand + "\n"),
		"agent.log": agentLog(g.Outcome.Records),
	}
	if xml, err := untrusted.Read(filepath.Join(dir, domainFile), consoleKept); err == nil {
		files[domainFile] = xml
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(to, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// agentLog is what the daemon said for people.
func agentLog(records []*wire.Record) []byte {
	var b bytes.Buffer
	for _, rec := range records {
		if l := rec.GetLog(); l != nil {
			fmt.Fprintf(&b, "[%12.6f] %s\n", float64(rec.Vns)/1e9, report.Clean(l.Text))
		}
	}
	return b.Bytes()
}

// Join concatenates one file of the named guests, kept below dir, into the
// directory to, so that there is one to look at.
func Join(to, dir string, guests []string, file string) error {
	sort.Strings(guests)
	var b bytes.Buffer
	for _, name := range guests {
		content, err := os.ReadFile(filepath.Join(dir, name, file))
		if os.IsNotExist(err) {
			continue
		} else if err != nil {
			return err
		}
		fmt.Fprintf(&b, "==== %s ====\n", name)
		b.Write(content)
	}
	return os.WriteFile(filepath.Join(to, file), b.Bytes(), 0o644)
}
