// Package daemon does jobs in a running kernel: it loads the module, plans and
// makes splices, runs workloads, reads counters, and takes everything back.
//
// A daemon has the device alone. What it did is undone when a job ends, when
// the daemon closes, and, by the module itself, when the daemon is killed.
package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/kdev"
	"kerninst/agent/kpoke"
	"kerninst/agent/ktext"
	"kerninst/agent/pad"
	"kerninst/agent/place"
	"kerninst/agent/plan"
	"kerninst/agent/splice"
	"kerninst/agent/wire"
)

// Where an image has the daemon's companions.
const (
	peerFile  = "/lib/kerninst/peer.ko"
	markFile  = "/lib/kerninst/bench/mark"
	meterFile = "/lib/kerninst/bench/meter"
	indexFile = "/lib/kerninst/kernel.index"
)

// Version of the daemon, as hello reports it.
const Version = "1"

// Daemon holds one opened device and what hangs on it.
type Daemon struct {
	arch    *isa.Arch
	dev     *kdev.Device
	info    kdev.Info
	text    *ktext.Text
	padding *pad.Finder
	known   *plan.Functions      // of the step's points
	learnt  *plan.Functions      // of those of an earlier step
	asked   *asked               // what a step asks for
	chosen  map[isa.Addr]*chosen // of that, what is to be in copies of functions; by where these begin
	proc    string               // "": /proc
	dry     bool                 // the step only plans
	trial   *place.Heap          // a copy of patch memory, while what would fit is tried
	still   bool                 // cells are read while all CPUs stand still: a brief step asked for it
	// redirected are the functions that somebody redirected when the step first asked; nil:
	// it has not.
	redirected map[string]bool
	splicer    *splice.Splicer
	probed     func(lo, hi isa.Addr) bool // the splicer's; nil where there is no kernel to ask
	poker      *kpoke.Poker
	sets       map[string]*set   // live splices by step
	looking    sync.Mutex        // held by who looks at those, or takes some back, while a program runs
	resolved   map[string][]addr // addresses of points by step, also undone ones
	snapshots  map[string][]stretch
	base       map[*splice.Live][]uint64 // cells when the last splice was in
	counts     map[*splice.Live][]uint64 // at the end of the last program, or nil
	began      *wire.Moment              // when base was read, if anything is timed
	ended      *wire.Moment              // when counts were, likewise
	peers      *peers                    // many kprobes that are there, or nil
	covered    []*wire.Value             // of points that were taken away since counting began
	rings      rings                     // what is traced is in
	clocks     clocks                    // of tasks, once virtual time was taken
	kallsyms   []byte
	symbolsOf  map[string]loading // the loads of modules whose symbols are in it
	// moduleFunctions are the lines for Hello. They are found before the job, which may
	// be measured.
	moduleFunctions []byte
	bases           map[string]loading // of the modules whose sections are known
	prototypes      prototypes
	index           indexed
	copied          copied
	stages          stages          // of the step
	enough          <-chan struct{} // closed: what is planned is not to be, and what runs is to end; nil: nobody can say so
	phases          []string        // of the start, with the time at which each ended
}

// phase notes that a part of the start has ended.
func (d *Daemon) phase(what string) {
	d.phases = append(d.phases, fmt.Sprintf("ready after %.3f s: %s", time.Since(boot).Seconds(), what))
}

type (
	addr   = isa.Addr
	regSet = isa.RegSet
)

// Open loads the module if it is not there, opens the device, and reads the
// kernel's symbols. It fails with a kdev.Error that says what to do when
// another daemon has the device.
func Open(arch string) (*Daemon, error) {
	a, err := all.Lookup(arch)
	if err != nil {
		return nil, err
	}
	d := &Daemon{arch: a, sets: map[string]*set{}, resolved: map[string][]addr{}, snapshots: map[string][]stretch{}}
	_, absent := os.Stat("/sys/module/" + kdev.ModuleName)
	if absent == nil { // before all that is slow: another daemon may have the device
		if d.dev, err = kdev.Open(); err != nil {
			return nil, err
		}
	}
	if err = d.readSymbols(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.moduleFunctions = ktext.ModuleFunctions(d.kallsyms)
	d.phase("symbols read")
	if errors.Is(absent, os.ErrNotExist) {
		if err := d.loadModule(); err != nil {
			return nil, err
		}
	}
	d.phase("module loaded")
	if err := d.open(); err != nil {
		return nil, err
	}
	d.phase("symbols understood")
	return d, nil
}

// open takes the device, if that has not been done, and looks at the kernel anew: a
// kernel's text is read live, so nothing about it outlives the device.
func (d *Daemon) open() (err error) {
	d.bases, d.rings, d.clocks = nil, rings{}, clocks{}
	if d.dev == nil {
		if d.dev, err = kdev.Open(); err != nil {
			return err
		}
	}
	if d.info, err = d.dev.Info(); err == nil {
		if err = d.prepare(); err == nil {
			err = d.see(nil, true)
		}
	}
	if err != nil {
		err = errors.Join(err, d.dev.Close())
		d.dev = nil
	}
	return err
}

// see makes the view of the kernel, with the given sections of modules, and of what
// hangs on it; anew: nothing that was found before holds.
func (d *Daemon) see(modules []ktext.Section, anew bool) error {
	opt := ktext.Options{Modules: bytes.NewReader(ktext.FormatModules(modules)), OneCPU: d.info.CPUs == 1}
	if b, err := os.ReadFile(blacklistFile); err == nil {
		opt.Blacklist = bytes.NewReader(withoutOurs(b, func(a isa.Addr) bool { return d.splicer.Taken(a, a+1) || d.splicer.Copied(a) != nil }))
	}
	var text *ktext.Text
	var err error
	if anew { // through the splicer: code is decoded as it is without our own splices
		text, err = ktext.New(d.arch, bytes.NewReader(d.kallsyms), d.splicer.Read, opt)
	} else {
		text, err = d.text.With(opt)
	}
	if err != nil {
		return err
	}
	d.text, d.padding = text, pad.New(text)
	d.openIndex(indexFile)
	return nil
}

// Close takes everything back and lets go of the device.
func (d *Daemon) Close() error {
	if d.dev == nil {
		return nil
	}
	err := d.undoAll()
	err = errors.Join(err, d.dev.Close())
	d.dev = nil
	return err
}

func (d *Daemon) loadModule() error {
	ko, err := os.ReadFile(kdev.ModuleFile)
	if err != nil {
		return err
	}
	return kdev.LoadFrom(ko, "", bytes.NewReader(d.kallsyms))
}

// module unloads or loads the module; the device is closed meanwhile.
func (d *Daemon) module(m *wire.Module) error {
	switch m.Op {
	case wire.Module_UNLOAD:
		if err := d.Close(); err != nil {
			return err
		}
		return kdev.UnloadWhenFree(kdev.ModuleName, unloadLimit)
	case wire.Module_LOAD:
		if err := d.loadModule(); err != nil {
			return err
		}
		return d.open()
	}
	return fmt.Errorf("module: operation %v is not known", m.Op)
}

// unloadLimit is how long tasks may take to leave patches, and the module to see it.
const unloadLimit = 10 * time.Second

// kprobe places the kernel's own probe where an earlier splice was, or takes
// it away again and says how often it was hit.
func (d *Daemon) kprobe(k *wire.Kprobe, res *wire.Result) error {
	if k.All && k.Remove {
		return d.unkprobes(res)
	}
	if k.All {
		return d.kprobes(k, res)
	}
	if k.Remove {
		hits, err := os.ReadFile("/sys/module/peer/parameters/hits")
		if err != nil {
			return fmt.Errorf("kprobe: %w", err)
		}
		if res.KprobeHits, err = strconv.ParseUint(strings.TrimSpace(string(hits)), 10, 64); err != nil {
			return fmt.Errorf("kprobe: hits: %w", err)
		}
		return kdev.Unload("peer")
	}
	points := d.resolved[k.Splice]
	if int(k.Index) >= len(points) {
		return fmt.Errorf("kprobe: step %q resolved %d points, not %d", k.Splice, len(points), k.Index+1)
	}
	at := points[k.Index]
	f, ok := d.text.Locate(at)
	if !ok {
		return fmt.Errorf("kprobe: no function at %v", at)
	}
	if k.Start {
		at = f.Addr
	}
	ko, err := os.ReadFile(peerFile)
	if err != nil {
		return err
	}
	kind := k.Kind
	if kind == "" {
		kind = "kprobe"
	}
	return kdev.Load(ko, fmt.Sprintf("kind=%s addr=%#x function=%s", kind, uint64(at), f.Name))
}

// Serve does one job and reports on w. It returns an error when w is broken;
// what goes wrong with the job itself is in the records.
// When ctx ends, so does the program that runs, and the job with it.
func (d *Daemon) Serve(ctx context.Context, job *wire.Job, w io.Writer) error {
	s := newStream(w)
	noted, _ := taints() // 0 is stricter
	if err := s.send(&wire.Record{Body: &wire.Record_Hello{Hello: d.hello()}}); err != nil {
		return err
	}
	for _, p := range d.phases {
		s.log(p)
	}
	done := &wire.Done{}
	for _, step := range job.Steps {
		s.log(wire.StepBegun + step.Name)
		res := &wire.Result{Step: step.Name}
		err := d.step(ctx, step, s, res)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			res.Error = err.Error()
		}
		if err := s.result(res); err != nil {
			return errors.Join(err, d.undoAll())
		}
		if res.Error != "" && !step.MayFail {
			done.Failed, done.Error = true, step.Name+": "+res.Error
			break
		}
	}
	if len(job.Fetch) > 0 {
		if err := d.fetch(ctx, job.Fetch, s); err != nil {
			return errors.Join(err, d.undoAll())
		}
	}
	if err := d.undoAll(); err != nil {
		done.Failed, done.Error = true, "undo: "+err.Error()
	}
	done.Complaints = complaints(noted)
	return s.send(&wire.Record{Body: &wire.Record_Done{Done: done}})
}

// step does one step; what it found is in res, also when it fails.
func (d *Daemon) step(ctx context.Context, step *wire.Step, s *stream, res *wire.Result) error {
	if d.dev == nil && step.GetModule() == nil && step.GetRun() == nil {
		return errors.New("the module is unloaded: only a module step or a program can come now")
	}
	d.stages, d.redirected = stages{}, nil
	defer func() { d.stages.enter(""); res.Stages = d.stages.all }()
	switch do := step.Do.(type) {
	case *wire.Step_Splice:
		splice := d.splice
		if do.Splice.OnlyPlan {
			splice = d.onlyPlan
		}
		err := splice(ctx, step.Name, do.Splice, res)
		if d.index.err != nil {
			res.IndexError = d.index.err.Error()
			s.log("no index: " + res.IndexError)
		}
		return err
	case *wire.Step_Unsplice:
		if do.Unsplice.Action != "" {
			return d.remove(do.Unsplice.Splice, do.Unsplice.Action)
		}
		d.stages.enter(stageUndo)
		if err := d.unsplice(do.Unsplice.Splice); err != nil {
			return err
		}
		return d.kept(res)
	case *wire.Step_Run:
		return d.run(ctx, do.Run, s, res)
	case *wire.Step_Read:
		return d.read(do.Read, res)
	case *wire.Step_Snapshot:
		return d.snapshot(step.Name, do.Snapshot, res)
	case *wire.Step_Module:
		return d.module(do.Module)
	case *wire.Step_Kprobe:
		return d.kprobe(do.Kprobe, res)
	case *wire.Step_Dump:
		return d.dump(ctx, s)
	case *wire.Step_Grow:
		return d.grow(ctx, do.Grow, s, res)
	case *wire.Step_Copies:
		return d.copies(do.Copies, res)
	case *wire.Step_Look:
		return d.look(ctx, do.Look, res)
	}
	return fmt.Errorf("step %q asks for nothing that this daemon knows", step.Name)
}

func (d *Daemon) hello() *wire.Hello {
	var u unix.Utsname
	_ = unix.Uname(&u) // cannot fail with a valid pointer
	lo, hi := d.text.Bounds()
	tainted, _ := d.text.Symbol(ktext.TaintedMask)
	return &wire.Hello{
		Schema: 1, Arch: d.arch.Name, Daemon: Version,
		Kernel: unix.ByteSliceToString(u.Release[:]), Version: unix.ByteSliceToString(u.Version[:]),
		Cpus: uint32(d.info.CPUs), TextStart: uint64(lo), TextEnd: uint64(hi),
		Tainted: uint64(tainted), ModuleFunctions: d.moduleFunctions,
	}
}

// readSymbols reads all symbols, and notes of which loads of modules they are.
func (d *Daemon) readSymbols() error {
	before, err := loadings(others)
	if err != nil {
		return err
	}
	kallsyms, err := readKallsyms()
	if err != nil {
		return err
	}
	after, err := loadings(others)
	maps.DeleteFunc(before, func(name string, l loading) bool { return after[name] != l })
	d.kallsyms, d.symbolsOf = kallsyms, before
	return err
}

// readKallsyms is os.ReadFile, which copies a file without a size several times.
func readKallsyms() ([]byte, error) {
	f, err := os.Open(kallsymsFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, 0, 12<<20) // 5 to 8 MB are usual
	for {
		n, err := f.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			return b, nil
		} else if err != nil {
			return nil, err
		}
		if len(b) == cap(b) {
			b = slices.Grow(b, 1<<20)
		}
	}
}
