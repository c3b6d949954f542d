package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"kerninst/agent/ktypes"
	"kerninst/agent/plan"
	"kerninst/agent/probe"
	"kerninst/agent/wire"
	"kerninst/images"
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
	time        string
	seed        uint64
	do          []string
	predicate   string
	mechanism   string
	without     []string
	why         bool
	skipRefused bool
	exitWith    bool
	index       bool
	json        bool
	keep        bool
	list        bool
	yes         bool
	runString   string
	specs, argv []string

	compiled probe.Compiled
	at       probe.At // what actions can be told of the kernel
}

func probeCommand() *cobra.Command {
	var f probeFlags
	c := &cobra.Command{
		Use:   "probe SPEC... [-l | --run STRING | -- CMD ARG...]",
		Short: "count, bound or trace what a workload brings to given instructions",
		Long: "Boot a guest, splice the actions at each given instruction, run a workload in\n" +
			"the guest, print what they found. A SPEC is kinst:[module]:function:name. function\n" +
			"may have * ? [...]; name is a byte offset, " + strings.Join(probe.Names(), ", ") + ", or nothing, which is\n" +
			"every instruction.\n" +
			"Actions and predicates are Go expressions on uint64: arg0 to arg5, reg(\"NAME\"),\n" +
			"cycles, constants, + - & | ^ << >>, conversions as in int32(arg0), pid, tid, cpu,\n" +
			"comm, ret at a return, and what the kernel's types say: arg0.f_inode.i_size,\n" +
			"task.mm, inode(arg1).i_mode. What is found can be kept by keys: count by comm.",
		Example: "  lab probe --arch amd64 -l kinst::vfs_read:\n" +
			"  lab probe --arch amd64 'kinst::vfs_*:entry' --skip-refused --run 'ls -l /'\n" +
			"  lab probe --arch arm64 kinst::vfs_read:16 --run 'cat /proc/version'\n" +
			"  lab probe --arch arm64 kinst::vfs_read:8 --if 'arg2 > 4096' --do count --do 'max(arg2)' --run 'cat /proc/kallsyms > /dev/null'\n" +
			"  lab probe --arch amd64 'kinst::vfs_read:entry /comm == \"cat\"/ hist(arg2)' --run 'cat /proc/version'\n" +
			"  lab probe --arch arm64 kinst::vfs_read:return --do 'sum(ret) by comm' --run 'cat /proc/version'\n" +
			"  lab probe --arch riscv64 --json kinst::__riscv_sys_getppid:8 -- /lib/kerninst/bench/bench null",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			f.specs = args
			if n := c.ArgsLenAtDash(); n >= 0 {
				f.specs, f.argv = args[:n], args[n:]
			}
			return f.run(c.Context())
		},
	}
	f.add(c.Flags())
	c.Flags().StringVar(&f.time, "time", "exact", "exact or host")
	c.Flags().Uint64Var(&f.seed, "seed", 1, "seed of the guest's randomness")
	c.Flags().StringArrayVar(&f.do, "do", []string{"count"}, "action: "+probe.Actions+"; may be repeated")
	c.Flags().StringVar(&f.predicate, "if", "", "do it only where this `EXPR` holds, as int32(arg0) < 0 && load64(arg1 + 8) != 0")
	c.Flags().StringVar(&f.mechanism, "mechanism", "", "force a mechanism, or refuse")
	c.Flags().StringSliceVar(&f.without, "no-mechanism", nil, "mechanisms not to use, `NAME[,NAME...]`: "+strings.Join(plan.MechanismNames(), ", "))
	c.Flags().BoolVar(&f.why, "why", false, "say which mechanisms were tried before the one that a point has, and why they are not it")
	c.Flags().BoolVar(&f.skipRefused, "skip-refused", false, "probe the points that are not refused")
	c.Flags().BoolVar(&f.exitWith, "exit-with-workload", false, "exit with the workload's status")
	c.Flags().BoolVar(&f.index, "index", false, "take what is known of the whole kernel along: fewer registers are saved")
	c.Flags().BoolVarP(&f.list, "list", "l", false, "list the points that match: what is there, and by which mechanism or why not; run nothing")
	c.Flags().BoolVar(&f.yes, "yes", false, fmt.Sprintf("more than %d points are meant", mostPoints))
	c.Flags().BoolVar(&f.json, "json", false, "print one JSON document")
	c.Flags().BoolVar(&f.keep, "keep", false, "leave a guest that crashes or hangs as it is (see lab gdb, lab kept)")
	c.Flags().StringVar(&f.runString, "run", "", "workload, for the guest's /bin/sh -c")
	f.addOwn(c.Flags(), 1)
	c.Flags().StringArrayVar(&f.fetches, "fetch", nil, "`GUEST[:DST]`, file or folder to take from the guest at the end, and its place here (default: its name); may be repeated")
	c.Flags().DurationVar(&f.timeout, "timeout", 60*time.Second, "limit of the workload, in guest time")
	return c
}

// check looks at the flags that need no guest to be wrong.
func (f *probeFlags) check() error {
	if f.mechanism != "" {
		if err := oneOf("mechanism", f.mechanism, plan.MechanismNames()); err != nil {
			return err
		}
	}
	for _, m := range f.without {
		if err := oneOf("no-mechanism", m, plan.MechanismNames()); err != nil {
			return err
		}
		if m == f.mechanism {
			return fmt.Errorf("--mechanism %s with --no-mechanism %s: no point could be spliced", m, m)
		}
	}
	if f.timeout <= 0 {
		return fmt.Errorf("--timeout %v: want more than 0", f.timeout)
	}
	if f.index && f.dryrun {
		return errors.New("--index with --dry-run: the index would have to be made")
	}
	return f.own.check()
}

// mostPoints is how many points a probe has unless so many are said to be meant.
const mostPoints = 10_000

// job is what the guest does: splice, run, read, undo; or only say what could be.
func (f *probeFlags) job() (*wire.Job, error) {
	f.compiled = probe.Compiled{}
	specs, err := probe.ParseAll(f.specs)
	switch {
	case err != nil:
		return nil, err
	case len(specs) == 0:
		return nil, fmt.Errorf("no probe given, as in kinst::vfs_read:16")
	case f.runString != "" && len(f.argv) > 0:
		return nil, fmt.Errorf("--run and -- both give a workload: choose one")
	case f.list && (f.runString != "" || len(f.argv) > 0):
		return nil, fmt.Errorf("--list runs nothing: leave the workload out")
	case !f.list && f.runString == "" && len(f.argv) == 0:
		return nil, fmt.Errorf("no workload: give --run STRING, or -- CMD ARG; or --list")
	}
	sp := &wire.Splice{SkipRefused: f.skipRefused || f.list, OnlyPlan: f.list}
	if !f.yes {
		sp.Limit = mostPoints
	}
	for _, s := range specs {
		p := s.Point()
		p.Mechanism, p.Without = f.mechanism, f.without
		if p.Actions, err = f.compiled.Add(s, f.predicate, f.do, f.at); err != nil {
			return nil, err
		}
		sp.Points = append(sp.Points, p)
	}
	splice := &wire.Step{Name: "splice", Do: &wire.Step_Splice{Splice: sp}}
	if f.list {
		return &wire.Job{Schema: 1, Steps: []*wire.Step{splice}}, nil
	}
	argv := f.argv
	if f.runString != "" {
		argv = []string{"/bin/sh", "-c", f.runString}
	}
	return &wire.Job{Schema: 1, Steps: []*wire.Step{
		splice,
		{Name: "workload", Do: &wire.Step_Run{Run: &wire.Run{Argv: argv, TimeoutNs: uint64(f.timeout)}}},
		{Name: "read", Do: &wire.Step_Read{Read: &wire.Read{}}},
		{Name: "undo", Do: &wire.Step_Unsplice{Unsplice: &wire.Unsplice{Splice: "splice"}}},
	}}, nil
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
func (f *probeFlags) types(prepare func() (prepared, error)) probe.At {
	return probe.At{Types: sync.OnceValues(func() (*ktypes.Types, error) {
		if f.dryrun {
			return nil, errors.New("with --dry-run no kernel is looked into")
		}
		p, err := prepare()
		if err != nil {
			return nil, err
		}
		raw, err := kernelbtf.Read(p.image.Kernel)
		if err != nil {
			return nil, err
		}
		return ktypes.Read(raw)
	})}
}

func (f *probeFlags) run(ctx context.Context) error {
	isa, err := f.one("a probe runs on one ISA")
	if err != nil {
		return err
	}
	prepare := sync.OnceValues(func() (prepared, error) { return f.prepare(ctx, isa) })
	f.at = f.types(prepare)
	job, err := f.job()
	if err == nil {
		err = f.check()
	}
	if err != nil {
		return usage(err)
	}
	mode, err := parseTime(f.time)
	if err != nil {
		return err
	}
	fetch, err := f.wanted(path.Base)
	if err != nil {
		return usage(err)
	}
	request := runner.Request{Name: "probe", CPUs: 1, Time: mode, Job: job, Keep: f.keep}
	if f.dryrun {
		a, err := f.dry(ctx, isa, &f.own, runner.Runner{Seed: f.seed, Jobs: 1},
			func(*runner.Runner) []runner.Request { return []runner.Request{request} })
		if err != nil {
			return err
		}
		return dryDocument{Schema: 1, DryRun: true, Arches: []dryArch{a}}.print(f.json)
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
		file, err := f.takeIndex(ctx, isa, dir.Path)
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
	r := runner.New(runner.Runner{Image: img, Backend: qemu.Backend{}, Seed: f.seed, Jobs: 1, Own: wishes, Progress: progress})
	if _, err := r.Plan(ctx, request, dryRunDir); err != nil {
		return usage(err)
	}
	g := r.Start(ctx, request).Wait()
	if g.Err != nil {
		return g.Err
	}
	d := f.document(g)
	if d.Failure != nil {
		d.Card = f.card(r, g)
	}
	return errors.Join(f.print(d), g.End())
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
	Schema   int             `json:"schema"`
	Arch     string          `json:"arch"`
	Status   status.Status   `json:"status"`
	Reason   string          `json:"reason,omitempty"`
	Points   []probePoint    `json:"points"`
	Workload *probeWorkload  `json:"workload,omitempty"`
	Failure  *report.Failure `json:"failure,omitempty"`
	Card     *card.Card      `json:"card,omitempty"`
	Fetched  []probeFetched  `json:"fetched,omitempty"`
}

type probeFetched struct {
	Guest string `json:"guest"`
	To    string `json:"to"`
	Files int    `json:"files"`
	Bytes int64  `json:"bytes"`
	Error string `json:"error,omitempty"`
}

type probePoint struct {
	Spec    string `json:"spec"`
	Symbol  string `json:"symbol"`
	Offset  uint64 `json:"offset"`
	Address string `json:"address"`
	// Instruction is what is there, if points are listed.
	Instruction string          `json:"instruction,omitempty"`
	Mechanism   string          `json:"mechanism,omitempty"`
	Liveness    string          `json:"liveness,omitempty"`
	RunsAt      string          `json:"runs_at,omitempty"` // what is counted, if it is not what is at the address: runs as often
	Moved       string          `json:"moved,omitempty"`   // the function that runs elsewhere, to make room for the springboard
	Added       int             `json:"added,omitempty"`   // instructions a hit
	Spilled     int             `json:"spilled,omitempty"` // registers and flag words saved
	Refusal     *report.Refusal `json:"refusal,omitempty"`
	// Passed are the mechanisms that were tried before this one, and why they are not it.
	Passed []report.Refusal `json:"passed,omitempty"`
	// Value is of the first action, if it has a number: none has been the smallest or
	// largest of nothing, nor has a trace.
	Value   *probe.Number   `json:"value,omitempty"`
	Actions []probe.Finding `json:"actions,omitempty"` // unless the one there is counts, and no load came to nothing
}

// found fills in what the actions at a point found.
func (p *probePoint) found(values []*wire.Value, compiled probe.Compiled) {
	for _, v := range values {
		if v.Spec != p.Spec {
			continue
		}
		a := compiled[v.Action].Found(v)
		a.Action = v.Action
		p.Actions = append(p.Actions, a)
	}
	if len(p.Actions) > 0 {
		p.Value = p.Actions[0].Value
	}
	if len(p.Actions) == 1 && p.Actions[0].OnlyCounts() {
		p.Actions = nil
	}
}

type probeWorkload struct {
	Exit   int32  `json:"exit"`
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	// Truncated: it wrote more to stdout or stderr than is kept of either.
	Truncated bool `json:"truncated,omitempty"`
}

// document puts together what the guest answered.
func (f *probeFlags) document(g *runner.Guest) *probeDocument {
	d := &probeDocument{Schema: 1, Arch: f.arch, Status: g.Outcome.Status, Points: []probePoint{}}
	if st := g.Outcome.Status; st != status.Passed && st != status.Failed {
		d.Failure = &report.Failure{Kind: string(g.Outcome.Kind), Summary: g.Outcome.Summary, Console: g.Outcome.ConsoleTail}
	}
	results := map[string]*wire.Result{}
	for _, rec := range g.Outcome.Records {
		if r := rec.GetResult(); r != nil {
			results[r.Step] = r
			if r.Error != "" && d.Reason == "" {
				d.Reason, d.Status = r.Error, status.Worst(status.Failed, d.Status)
			}
		}
	}
	for _, p := range results["splice"].GetPoints() {
		out := probePoint{Spec: p.Spec, Symbol: p.Symbol, Offset: p.Offset, Address: fmt.Sprintf("%#x", p.Address), Mechanism: p.Mechanism, Liveness: p.Liveness, Moved: p.Moved,
			Instruction: p.Instruction,
			Added:       int(p.Added), Spilled: int(p.Spilled)}
		if p.RunsAt != 0 {
			out.RunsAt = fmt.Sprintf("%#x", p.RunsAt)
		}
		for _, r := range p.Passed {
			out.Passed = append(out.Passed, report.Refusal{Reason: r.Reason, Detail: r.Detail})
		}
		if r := p.Refusal; r != nil {
			out.Refusal = &report.Refusal{Reason: r.Reason, Detail: r.Detail}
		}
		if p.Refusal == nil {
			out.found(results["read"].GetValues(), f.compiled)
		}
		d.Points = append(d.Points, out)
	}
	for _, w := range results["workload"].GetRuns() {
		d.Workload = &probeWorkload{Exit: w.Exit, Stdout: string(w.Stdout), Stderr: string(w.Stderr), Truncated: w.Truncated}
		if w.TimedOut {
			d.Status, d.Reason = status.Timeout, fmt.Sprintf("the workload did not end within %v of guest time: raise --timeout", f.timeout)
		}
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
	if w := d.Workload; w != nil && w.Truncated {
		defer progress("workload: its output is cut: the first MiB of stdout and of stderr is kept; --fetch takes whole files")
	}
	if f.json {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		if err := enc.Encode(d); err != nil {
			return err
		}
	} else if f.list {
		d.listing(os.Stdout)
	} else {
		f.table(d)
	}
	code := status.ExitCode(d.Status)
	if code == 0 && f.exitWith && d.Workload != nil {
		code = int(d.Workload.Exit)
	}
	if code == 0 {
		return nil
	}
	if d.Card != nil && !f.json {
		progress("\n%s", d.Card.Brief())
	}
	e := &exit{code: code}
	if d.Reason != "" && !f.json {
		e.err = fmt.Errorf("%s", d.Reason)
	} else if d.Failure != nil {
		e.err = fmt.Errorf("%s", d.Failure.Summary)
	}
	return e
}

// table prints for people: the workload's own output, then the counts.
func (f *probeFlags) table(d *probeDocument) {
	if w := d.Workload; w != nil {
		fmt.Fprint(os.Stdout, report.CleanText(w.Stdout))
		fmt.Fprint(os.Stderr, report.CleanText(w.Stderr))
		if w.Exit != 0 {
			progress("workload: exit status %d", w.Exit)
		}
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	for _, p := range d.Points {
		switch {
		case p.Refusal != nil:
			fmt.Fprintf(t, "%s\trefused\t%s: %s\n", p.Spec, p.Refusal.Reason, p.Refusal.Detail)
		case len(p.Actions) > 0:
			for _, a := range p.Actions {
				a.Print(t, p.Spec, p.Mechanism)
			}
		case p.Value != nil:
			fmt.Fprintf(t, "%s\t%s\t%s\n", p.Spec, p.Mechanism, *p.Value)
		default:
			fmt.Fprintf(t, "%s\t%s\tnot counted\n", p.Spec, p.Mechanism)
		}
	}
	t.Flush()
	for _, p := range d.Points {
		for _, r := range p.Passed {
			if f.why {
				fmt.Printf("%s is not reached by %s (%s)\n", p.Spec, r.Detail, r.Reason)
			}
		}
		if p.RunsAt != "" {
			progress("probe: %s cannot be spliced itself: counted at %s, which runs exactly as often", p.Spec, p.RunsAt)
		}
	}
	if n := d.saved(); n > 0 && !f.index {
		progress("probe: registers are saved, %d at the point that saves most; --index, which knows the whole kernel, may do with fewer", n)
	}
}

// listing prints what points there are: those that can be had, and why others cannot.
func (d *probeDocument) listing(to io.Writer) {
	t := tabwriter.NewWriter(to, 0, 8, 2, ' ', 0)
	for _, p := range d.Points {
		how := p.Mechanism
		switch {
		case p.Refusal != nil:
			how = "refused: " + p.Refusal.Reason + ": " + p.Refusal.Detail
		case p.RunsAt != "":
			how += ", at " + p.RunsAt
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", p.Spec, p.Address, p.Instruction, how)
	}
	t.Flush()
}

// saved is the most registers and flag words that a point saves.
func (d *probeDocument) saved() (n int) {
	for _, p := range d.Points {
		n = max(n, p.Spilled)
	}
	return n
}
