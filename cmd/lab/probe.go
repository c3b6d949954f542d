package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"kerninst/agent/ask"
	"kerninst/agent/inlined"
	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/ktypes"
	"kerninst/agent/probe"
	"kerninst/agent/wire"
	"kerninst/images"
	"kerninst/lab/analysis"
	"kerninst/lab/card"
	"kerninst/lab/kernelbtf"
	"kerninst/lab/qemu"
	"kerninst/lab/report"
	"kerninst/lab/runner"
	"kerninst/lab/status"
)

type probeFlags struct {
	common
	own
	ask.Request
	time  string
	seed  uint64
	index bool
	known
	copied *inlined.All // with inline
	keep   bool
	plot   string
}

func probeCommand() *cobra.Command {
	var f probeFlags
	c := &cobra.Command{
		Use:   "probe SPEC... [-l | --run STRING | -- CMD ARG...]",
		Short: "count, bound or trace what a workload brings to given instructions",
		Long: "Boot a guest, splice the actions at each given instruction, run a workload in\n" +
			"the guest, print what they found. Ctrl-C ends the workload, and what was found until\n" +
			"then is printed; once more, and nothing is. " + ask.Help(),
		Example: "  lab probe --arch amd64 -l kinst::vfs_read:\n" +
			"  lab probe --arch amd64 'kinst::vfs_*:entry' --skip-refused --run 'ls -l /'\n" +
			"  lab probe --arch arm64 kinst::vfs_read:16 --run 'cat /proc/version'\n" +
			"  lab probe --arch arm64 kinst::vfs_read:8 --if 'arg2 > 4096' --do count --do 'max(arg2)' --run 'cat /proc/kallsyms > /dev/null'\n" +
			"  lab probe --arch amd64 'kinst::vfs_read:entry /comm == \"wc\"/ hist(arg2)' --run 'wc -c /proc/version'\n" +
			"  lab probe --arch arm64 kinst::vfs_read:return --do 'sum(ret) by comm' --run 'cat /proc/version'\n" +
			"  lab probe --arch riscv64 --json kinst::__riscv_sys_getppid:8 -- /lib/kerninst/bench/bench null",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			f.Specs = args
			if n := c.ArgsLenAtDash(); n >= 0 {
				f.Specs, f.Argv = args[:n], args[n:]
			}
			return f.run(c.Context())
		},
	}
	c.ValidArgsFunction = f.complete
	f.common.add(c.Flags())
	f.known.add(c.Flags())
	f.known.addModules(c.Flags(), "modules of the kernel, `NAME[,NAME...]`, in which --inline looks for lines of the source, beside those that SPECs name")
	c.Flags().StringVar(&f.time, "time", "exact", "exact or host")
	c.Flags().Uint64Var(&f.seed, "seed", 1, "seed of the guest's randomness")
	f.Flags(c.Flags())
	c.Flags().BoolVar(&f.index, "index", false, "take what is known of the whole kernel along: fewer registers are saved")
	c.Flags().StringVar(&f.plot, "plot", "", "draw how what is counted went while the workload ran, into `FILE`.svg")
	c.Flags().BoolVar(&f.keep, "keep", false, "leave a guest that crashes or hangs as it is (see lab gdb, lab kept)")
	f.addOwn(c.Flags(), 1)
	c.Flags().StringArrayVar(&f.fetches, "fetch", nil, "`GUEST[:DST]`, file or folder to take from the guest at the end, and its place here (default: its name); may be repeated")
	return c
}

// check looks at the flags that need no guest to be wrong.
func (f *probeFlags) check() error {
	if len(f.named) > 0 && !f.Inline {
		return errors.New("--module: it says in which modules --inline looks, which is not given")
	}
	if len(f.copies) > 0 && !f.Inline {
		return errors.New("--copies: it says where --inline finds copies, which is not given")
	}
	if f.Inline && f.dryrun {
		return errors.New("--inline with --dry-run: the kernel would have to be looked into")
	}
	if f.index && f.dryrun {
		return errors.New("--index with --dry-run: the index would have to be made")
	}
	if err := f.checkPlot(); err != nil {
		return err
	}
	return f.own.check()
}

// prepared is the image that is booted.
type prepared struct {
	image   *images.Image
	options images.Options
}

func (f *probeFlags) prepare(ctx context.Context, isa string) (p prepared, err error) {
	p.image, p.options, err = f.image(ctx, isa)
	return p, err
}

// types is what the kernel's image says of its types, should an action ask for that.
func (f *probeFlags) types(arch *isa.Arch, prepare func() (prepared, error)) probe.At {
	return probe.At{Registers: arch.Registers(), Types: sync.OnceValues(func() (*ktypes.Types, error) {
		if f.dryrun {
			return nil, errors.New("with --dry-run no kernel is looked into")
		}
		p, err := prepare()
		if err != nil {
			return nil, err
		}
		return typesOf(p.image)
	})}
}

func typesOf(img *images.Image) (*ktypes.Types, error) {
	raw, err := kernelbtf.Read(img.Kernel)
	if err != nil {
		return nil, err
	}
	return ktypes.Read(raw)
}

func (f *probeFlags) run(ctx context.Context) error {
	name, err := f.one("a probe runs on one ISA")
	if err != nil {
		return err
	}
	arch, err := all.Lookup(name)
	if err != nil {
		return err
	}
	f.Sampled = f.Sampled || f.plot != ""
	prepare := sync.OnceValues(func() (prepared, error) { return f.prepare(ctx, name) })
	if err := errors.Join(f.check(), f.CheckFor(name)); err != nil { // before Job: it knows of no plot
		return usage(err)
	}
	if f.Inline {
		if err := f.expand(ctx, name); err != nil {
			return err
		}
	}
	job, err := f.Job(f.types(arch, prepare))
	if err != nil {
		return usage(err)
	}
	if f.Expanded {
		return f.PrintSpecs(os.Stdout)
	}
	mode, err := parseTime(f.time)
	if err != nil {
		return err
	}
	fetch, err := f.wanted(path.Base)
	if err != nil {
		return usage(err)
	}
	job.Heeds = !f.List
	if f.Stdin == "" && unread(os.Stdin) {
		progress("probe: what comes by stdin is not the workload's: with --stdin - it is")
	}
	request := runner.Request{Name: "probe", CPUs: 1, Time: mode, Job: job, Keep: f.keep}
	if f.dryrun {
		a, err := f.dry(ctx, name, &f.own, runner.Runner{Seed: f.seed, Jobs: 1},
			func(*runner.Runner) []runner.Request { return []runner.Request{request} })
		if err != nil {
			return err
		}
		return dryDocument{Schema: 1, DryRun: true, Arches: []dryArch{a}}.print(f.JSON)
	}
	if err := qemu.Sweep(); err != nil {
		return err
	}
	p, err := prepare()
	if err != nil {
		return err
	}
	img := p.image
	files, err := f.files(ctx, img, p.options)
	if err != nil {
		return err
	}
	if f.index {
		dir, err := qemu.NewRunDir()
		if err != nil {
			return err
		}
		defer dir.Close()
		file, err := f.takeIndex(ctx, name, f.appended, dir.Path)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	wishes, err := f.wishes(img, files)
	if err != nil {
		return err
	}
	wishes.Fetch, wishes.FilesAgain = fetch, f.index && len(files) == 1
	follow, err := f.Follow(os.Stderr, isTerminal(os.Stderr))
	if err != nil {
		return usage(err)
	}
	request.See = follow.See
	r := runner.New(runner.Runner{Image: img, Backend: qemu.Backend{}, Seed: f.seed, Jobs: 1, Own: wishes, Progress: progress, Lines: readBefore(p.options)})
	if _, err := r.Plan(ctx, request, dryRunDir); err != nil {
		return usage(err)
	}
	g := r.Start(ctx, request).Wait()
	if g.Err != nil {
		return g.Err
	}
	if g.Outcome.Status == status.Failed && ctx.Err() != nil { // before anything was looked at
		return ctx.Err()
	}
	d := f.document(g)
	if d.Failure != nil {
		d.Card = f.card(r, g)
	}
	switch {
	case f.plot == "":
	case len(d.Series) > 0:
		err = f.draw(d.Series)
	default:
		progress("plot: nothing was followed that could be drawn")
	}
	return errors.Join(f.print(d), err, g.End())
}

// expand puts inlined copies in place of the functions that they are of.
func (f *probeFlags) expand(ctx context.Context, arch string) error {
	modules, load := f.inModules(len(f.copies) == 0), []string(nil)
	if len(modules) > 0 {
		load = f.own.modules
	}
	d, err := f.dump(ctx, arch, f.appended, load)
	if err != nil {
		return err
	}
	for _, m := range modules {
		if err := analysis.HasModule(d, m); err != nil {
			return usage(err)
		}
	}
	about, err := f.known.about(ctx, &f.common, arch, true, modules)
	if err != nil {
		return err
	}
	var other *inlined.OtherBuildError
	err = f.Expand(func(specs []string) (all []*wire.Meant, err error) {
		f.copied, all, err = analysis.Meant(d, specs, about.kernel, about.modules...)
		return all, err
	}, func(s string) { progress("probe: %s", s) })
	if errors.As(err, &other) {
		return askedWrong(fmt.Errorf("%s: %w", arch, err))
	}
	var untold *ask.UntoldError
	if errors.As(err, &untold) {
		return &exit{code: status.ExitFailed, err: err}
	}
	return usage(err)
}

// inModules are the modules that flags and specifications name: all of these, for the lines of their places, or those
// alone that mean copies.
func (f *probeFlags) inModules(all bool) (out []string) {
	for _, name := range f.named {
		out = append(out, images.ModuleName(name))
	}
	for _, spec := range f.Specs {
		s, err := probe.Parse(spec)
		if err == nil && s.Module != "" && (all || s.Name == "entry" || s.Name == "return") { // what is wrong with it is said later
			out = append(out, s.Module)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// unread reports whether there is something in a file or pipe that nobody has read.
func unread(f *os.File) bool {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO && st.Mode&unix.S_IFMT != unix.S_IFREG {
		return false
	}
	n, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCINQ)
	return err == nil && n > 0
}

// card describes a guest that did not end well. If it is to be kept, it is from
// here on.
func (f *probeFlags) card(r *runner.Runner, g *runner.Guest) *card.Card {
	c := r.Card(g, "probe")
	held, err := r.Hold(g)
	if err != nil {
		c.Notes = append(c.Notes, "it could not be kept: "+err.Error())
	}
	again := "bin/lab " + qemu.Quote(os.Args[1:])
	c.Commands = append(append([]card.Command{{To: "run it again", Line: again}}, held...), c.Commands...)
	return c
}

// probeDocument is what --json prints.
type probeDocument struct {
	Schema int           `json:"schema"`
	Arch   string        `json:"arch"`
	Status status.Status `json:"status"`
	Reason string        `json:"reason,omitempty"`
	ask.Answer
	Failure *report.Failure `json:"failure,omitempty"`
	Card    *card.Card      `json:"card,omitempty"`
	Fetched []probeFetched  `json:"fetched,omitempty"`
}

type probeFetched struct {
	Guest string `json:"guest"`
	To    string `json:"to"`
	Files int    `json:"files"`
	Bytes int64  `json:"bytes"`
	Error string `json:"error,omitempty"`
}

// document puts together what the guest answered.
func (f *probeFlags) document(g *runner.Guest) *probeDocument {
	d := &probeDocument{Schema: 1, Arch: f.arch, Status: g.Outcome.Status, Answer: f.Answer(g.Outcome.Records)}
	if st := g.Outcome.Status; st != status.Passed && st != status.Failed {
		d.Failure = &report.Failure{Kind: string(g.Outcome.Kind), Summary: g.Outcome.Summary, Console: g.Outcome.ConsoleTail}
	}
	if d.Wrong != "" {
		d.Reason, d.Status = d.Wrong, status.Worst(status.Failed, d.Status)
	}
	if d.Workload != nil && d.Workload.TimedOut {
		d.Status, d.Reason = status.Timeout, fmt.Sprintf("the workload did not end within %v of guest time: raise --timeout", f.Timeout)
	}
	if f.copied != nil {
		d.Tell(f.copied.Source)
	}
	for _, f := range g.Fetched {
		out := probeFetched{Guest: f.Guest, To: f.To, Files: f.Files, Bytes: f.Bytes}
		if f.Err != nil {
			out.Error = f.Err.Error()
			if d.Reason == "" && d.Failure == nil {
				d.Status, d.Reason = status.Worst(status.Failed, d.Status), "not all came that was to be fetched"
			}
		}
		d.Fetched = append(d.Fetched, out)
	}
	return d
}

func (f *probeFlags) print(d *probeDocument) error {
	if f.JSON {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		if err := enc.Encode(d); err != nil {
			return err
		}
	} else {
		f.table(d)
	}
	for _, note := range f.Notes(d.Answer) {
		progress("%s", note)
	}
	code := status.ExitCode(d.Status)
	if code == 0 && f.ExitWithWorkload && d.Workload != nil {
		code = int(d.Workload.Exit)
	}
	if code == 0 {
		return nil
	}
	if d.Card != nil && !f.JSON {
		progress("\n%s", d.Card.Brief())
	}
	e := &exit{code: code}
	if d.Reason != "" && !f.JSON {
		e.err = fmt.Errorf("%s", d.Reason)
	} else if d.Failure != nil {
		e.err = fmt.Errorf("%s", d.Failure.Summary)
	}
	return e
}

// table prints for people: the workload's own output, then what was found.
func (f *probeFlags) table(d *probeDocument) {
	if w := d.Workload; w != nil {
		fmt.Fprint(os.Stdout, report.CleanText(w.Stdout))
		fmt.Fprint(os.Stderr, report.CleanText(w.Stderr))
	}
	f.Print(os.Stdout, d.Answer)
	if n := d.Saved(); n > 0 && !f.index && !f.List {
		progress("probe: registers are saved, %d at the point that saves most; --index, which knows the whole kernel, may do with fewer", n)
	}
}
