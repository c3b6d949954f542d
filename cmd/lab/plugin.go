package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	plugged "kerninst/agent/clone/plugin"
	"kerninst/agent/ktext"
	"kerninst/agent/ktypes"
	"kerninst/agent/plan"
	"kerninst/agent/probe"
	"kerninst/agent/wire"
	"kerninst/images"
	"kerninst/lab/analysis"
	"kerninst/lab/plugins"
	"kerninst/lab/qemu"
	"kerninst/lab/report"
	"kerninst/lab/runner"
	"kerninst/lab/status"
	"kerninst/lab/vm"
)

// pluginFlags are those of `lab plugin run`.
type pluginFlags struct {
	common
	own
	known
	file      string
	syscalls  []string
	functions []string
	argv      []string
	shell     string
	seed      uint64
	time      string
	timeout   time.Duration
	rounds    uint32
	most      uint32
	ringKiB   uint32
	inline    bool
	json      bool
}

func pluginCommand() *cobra.Command {
	c := &cobra.Command{Use: "plugin", Short: "plugins of clones: Go that says what is inserted in instrumented copies of kernel code"}
	c.AddCommand(pluginRunCommand())
	return c
}

func pluginRunCommand() *cobra.Command {
	var f pluginFlags
	c := &cobra.Command{
		Use:   "run FILE.go --syscall NAME[,NAME...] --run STRING",
		Short: "run a plugin over all that system calls execute while a workload runs",
		Long: "Boot a guest, find what a workload has the kernel execute on behalf of given system\n" +
			"calls, have the plugin say what is inserted there, run the workload once more in a\n" +
			"guest that begins alike, with the system calls led to copies that have that in them,\n" +
			"and have the plugin report. The workload is run several times to find what it executes.\n" +
			"What a plugin is written with: agent/clone/plugin; four are in agent/clone/examples.",
		Example: "  lab plugin run agent/clone/examples/icount/main.go --arch amd64 --syscall read,write --run 'cat /proc/version'\n" +
			"  lab plugin run agent/clone/examples/branches/main.go --syscall newfstatat --inline --run 'ls /'",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			f.file = args[0]
			if n := c.ArgsLenAtDash(); n >= 0 {
				f.argv, args = args[n:], args[:n]
			}
			if len(args) != 1 {
				return usage(fmt.Errorf("one plugin is run at a time: %q", args))
			}
			return f.run(c.Context())
		},
	}
	f.common.add(c.Flags())
	f.known.add(c.Flags())
	c.Flags().StringSliceVar(&f.syscalls, "syscall", nil, "`NAME[,NAME...]` of system calls that are cloned, each with what it leads to")
	c.Flags().StringSliceVar(&f.functions, "function", nil, "`NAME[,NAME...]` of other functions of the kernel that are, likewise")
	c.Flags().StringVar(&f.shell, "run", "", "workload, for the guest's /bin/sh -c")
	c.Flags().Uint64Var(&f.seed, "seed", 1, "seed of the guest's randomness")
	c.Flags().DurationVar(&f.timeout, "timeout", 60*time.Second, "limit of the workload, in guest time")
	c.Flags().Uint32Var(&f.rounds, "rounds", 40, "how often at the most the workload is run to find what it executes")
	c.Flags().Uint32Var(&f.most, "cache", 256, "`KIB` of code that each clone may have: of what does not fit the original runs")
	c.Flags().Uint32Var(&f.ringKiB, "ring", 1024, "`KIB` of records of a trace that each CPU has room for until they are read: a power of two")
	c.Flags().BoolVar(&f.inline, "inline", false, "tell the plugin lines of the source, of the kernel's debugging information (see lab inline)")
	c.Flags().BoolVar(&f.json, "json", false, "print what each point has found, as a document for machines, and not the plugin's report")
	c.Flags().StringVar(&f.time, "time", string(vm.Exact), "exact, or host: with several --cpus these run beside each other then, and contend")
	f.addOwn(c.Flags(), 1)
	return c
}

func (f *pluginFlags) check() error {
	switch {
	case len(f.syscalls)+len(f.functions) == 0:
		return errors.New("what is cloned? give --syscall NAME, or --function NAME")
	case f.shell != "" && len(f.argv) > 0:
		return errors.New("--run and -- both give a workload: choose one")
	case f.shell == "" && len(f.argv) == 0:
		return errors.New("no workload: give --run STRING, or -- CMD ARG")
	case len(f.copies) > 0 && !f.inline:
		return errors.New("--copies: it says where --inline finds copies, which is not given")
	case f.most == 0 || f.most > 4096:
		return fmt.Errorf("--cache %d: want 1 to 4096", f.most)
	case f.rounds == 0:
		return errors.New("--rounds 0: the workload is to be run once at least")
	case f.dryrun:
		return errors.New("--dry-run: what the second guest does is known when the first has run; lab probe has it")
	}
	if _, err := os.Stat(f.file); err != nil {
		return err
	}
	return f.own.check()
}

// pluginRun is a plugin that runs.
type pluginRun struct {
	*pluginFlags
	arch    string
	mode    vm.Time
	program *plugins.Program
	image   *images.Image
	runner  *runner.Runner
	dump    *ktext.Dump
	text    *ktext.Text
	copied  *knowledge // with inline
}

func (f *pluginFlags) run(ctx context.Context) error {
	arch, err := f.one("a plugin runs on one ISA")
	if err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return usage(err)
	}
	mode, err := parseTime(f.time)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "lab-plugin-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r := &pluginRun{pluginFlags: f, arch: arch, mode: mode}
	if r.inline {
		if r.copied, err = r.known.about(ctx, &r.common, r.arch, true, nil); err != nil {
			return err
		}
		r.copied.sayPart("plugin")
	}
	var wrong *plugins.CompileError
	if r.program, err = plugins.Build(ctx, f.file, dir); errors.As(err, &wrong) {
		return usage(err)
	} else if err != nil {
		return err
	}
	if err := r.prepare(ctx, dir); err != nil {
		return err
	}
	clones, err := r.explore(ctx)
	if err != nil {
		return err
	}
	return r.measure(ctx, clones)
}

// prepare makes the image, and reads the kernel.
func (r *pluginRun) prepare(ctx context.Context, dir string) (err error) {
	if r.dump, err = r.common.dump(ctx, r.arch, r.appended, nil); err != nil {
		return err
	}
	if r.text, err = analysis.TextOf(r.dump); err != nil {
		return err
	}
	img, opts, err := r.common.image(ctx, r.arch)
	if err != nil {
		return err
	}
	files, err := r.own.files(ctx, img, opts)
	if err != nil {
		return err
	}
	index, err := r.takeIndex(ctx, r.arch, r.appended, dir)
	if err != nil {
		return err
	}
	files = append(files, index)
	wishes, err := r.wishes(img, files)
	if err != nil {
		return err
	}
	wishes.FilesAgain = len(files) == 1
	r.image = img
	r.runner = runner.New(runner.Runner{Image: img, Backend: qemu.Backend{}, Seed: r.seed, Jobs: 1, Own: wishes, Progress: progress, Lines: readBefore(opts)})
	return nil
}

// Steps of the jobs.
const (
	stepClone    = "clone"
	stepGrow     = "grow"
	stepWorkload = "workload"
	stepFound    = "found"
)

func (r *pluginRun) workload() *wire.Run {
	argv := r.argv
	if r.shell != "" {
		argv = []string{"/bin/sh", "-c", r.shell}
	}
	return &wire.Run{Argv: argv, TimeoutNs: uint64(r.timeout)}
}

func (r *pluginRun) entries() (out []string) {
	for _, s := range r.syscalls {
		out = append(out, ktext.Syscall(r.arch, s))
	}
	return append(out, r.functions...)
}

// explore finds what the workload has executed on behalf of the system calls.
func (r *pluginRun) explore(ctx context.Context) ([]*wire.Clone, error) {
	sp := &wire.Splice{}
	for _, e := range r.entries() {
		sp.Clones = append(sp.Clones, &wire.Cloning{Entry: e, Most: r.most << 10})
	}
	results, err := r.guest(ctx, "explored", nil,
		&wire.Step{Name: stepClone, Do: &wire.Step_Splice{Splice: sp}},
		&wire.Step{Name: stepGrow, Do: &wire.Step_Grow{Grow: &wire.Grow{Splice: stepClone, Run: r.workload(), Rounds: r.rounds}}})
	if err != nil {
		return nil, err
	}
	grown := results[stepGrow].GetClones()
	for _, c := range grown {
		progress("%s: %d functions, %d bytes, in %d rounds; %d are left to the original", c.Entry, len(c.Functions), c.Bytes, c.Rounds, len(c.Left))
		for _, l := range c.Left {
			progress("%s: not %s: %s: %s", c.Entry, l.Function, l.Refusal.GetReason(), l.Refusal.GetDetail())
		}
		if c.Full {
			progress("%s: no more than %d KiB: --cache: the %d functions that were entered least are left out", c.Entry, r.most, flushed(c))
		}
	}
	return grown, nil
}

// measure has the plugin insert, runs the workload, and has it report.
func (r *pluginRun) measure(ctx context.Context, clones []*wire.Clone) error {
	source, err := r.lines()
	if err != nil {
		return err
	}
	in, err := plugins.Describe(r.text, clones, source)
	if err != nil {
		return err
	}
	out, err := r.program.Ask(ctx, in)
	if err != nil {
		return &exit{code: status.ExitFailed, err: err}
	}
	at := probe.At{Registers: r.text.Arch.Registers(), Types: func() (*ktypes.Types, error) { return typesOf(r.image) }}
	points, compiled, err := plugins.Points(out, at)
	if err != nil {
		return usage(err)
	}
	sp := &wire.Splice{Points: points, SkipRefused: true, RingBytes: r.ringKiB << 10}
	for _, c := range clones {
		again := plugins.Again(c)
		again.Most = r.most << 10
		sp.Clones = append(sp.Clones, again)
	}
	tracer := probe.Tracer{All: compiled}
	var events []probe.Event
	tracer.Got = func(e probe.Event) { events = append(events, e) }
	results, err := r.guest(ctx, "instrumented", tracer.See,
		&wire.Step{Name: stepClone, Do: &wire.Step_Splice{Splice: sp}},
		&wire.Step{Name: stepWorkload, Do: &wire.Step_Run{Run: r.workload()}},
		&wire.Step{Name: stepFound, Do: &wire.Step_Read{Read: &wire.Read{}}},
		&wire.Step{Name: "undo", Do: &wire.Step_Unsplice{Unsplice: &wire.Unsplice{Splice: stepClone}}})
	if err != nil {
		return err
	}
	tracer.End()
	for _, c := range results[stepClone].GetClones() {
		if c.Refusal != nil { // the original has run
			return &exit{code: status.ExitFailed, err: fmt.Errorf("%s: %s: %s", c.Entry, c.Refusal.Reason, c.Refusal.Detail)}
		}
		if n := flushed(c); n > 0 {
			progress("%s: with what is inserted, no room for %d of its functions, of which the originals run: --cache", c.Entry, n)
		}
	}
	found := plugins.Found(len(points), results[stepClone].GetPoints(), results[stepFound].GetValues(), events)
	r.notes(results, found)
	if r.json {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(struct {
			Schema int              `json:"schema"`
			Arch   string           `json:"arch"`
			Points []*plugged.Point `json:"points"`
			Found  []plugged.Found  `json:"found"`
		}{1, r.arch, out.Points, found})
	}
	if err := r.program.Report(ctx, in, found, os.Stdout); err != nil {
		return &exit{code: status.ExitFailed, err: err}
	}
	return nil
}

// flushed is how many functions were left out of a clone for want of room.
func flushed(c *wire.Clone) (n int) {
	for _, l := range c.Left {
		if r := l.Refusal.GetReason(); r == plan.MemoryFull.String() || r == plan.SitesFull.String() {
			n++
		}
	}
	return n
}

// notes says what was not inserted, and where clones were left.
func (r *pluginRun) notes(results map[string]*wire.Result, found []plugged.Found) {
	for _, w := range results[stepWorkload].GetRuns() {
		fmt.Fprint(os.Stderr, report.CleanText(string(w.Stderr)))
		if w.Exit != 0 {
			progress("plugin: the workload's exit status is %d", w.Exit)
		}
	}
	refused := plugins.Refusals(found)
	for _, reason := range slices.Sorted(maps.Keys(refused)) {
		progress("plugin: %d points are not inserted: %s", refused[reason], reason)
	}
	for _, c := range results[stepFound].GetClones() {
		for _, o := range c.Out {
			progress("plugin: %s: the workload led out of the clone at %s+%#x, to %s", c.Entry, o.Function, o.Offset, strings.Join(o.To, ", "))
		}
	}
}

// lines tell where in the source an instruction is from; nil: nobody asked.
func (r *pluginRun) lines() (func(string, uint64) string, error) {
	if !r.inline {
		return nil, nil
	}
	n, err := analysis.CopiesIn(r.dump, r.copied.kernel)
	if err != nil {
		return nil, askedWrong(fmt.Errorf("%s: %w", r.arch, err))
	}
	return func(function string, offset uint64) string {
		return n.Source(fmt.Sprintf("%s+%#x", function, offset), false)
	}, nil
}

// pluginPatience is what a guest has in host time besides its workloads: what these execute is found by running them many times,
// and planned each time.
const pluginPatience = 20 * time.Minute

// guest does a job in a guest that begins as the others do; see, if it is not nil, gets each record as it comes.
func (r *pluginRun) guest(ctx context.Context, name string, see func(*wire.Record), steps ...*wire.Step) (map[string]*wire.Result, error) {
	q := runner.Request{Name: name, CPUs: 1, Time: r.mode, Job: &wire.Job{Schema: 1, Steps: steps}, See: see, RunTimeout: pluginPatience + time.Duration(r.rounds)*r.timeout}
	if _, err := r.runner.Plan(ctx, q, dryRunDir); err != nil {
		return nil, usage(err)
	}
	g := r.runner.Start(ctx, q).Wait()
	if g.Err != nil {
		return nil, g.Err
	}
	results := map[string]*wire.Result{}
	for _, rec := range g.Outcome.Records {
		if res := rec.GetResult(); res != nil {
			results[res.Step] = res
			if res.Error != "" {
				return nil, &exit{code: status.ExitFailed, err: errors.New(res.Error)}
			}
		}
	}
	if st := g.Outcome.Status; st != status.Passed {
		c := r.runner.Card(g, "plugin")
		progress("\n%s", c.Brief())
		return nil, &exit{code: status.ExitCode(st), err: errors.New(g.Outcome.Summary)}
	}
	return results, nil
}
