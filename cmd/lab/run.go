package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"kerninst/images"
	"kerninst/lab/libvirt"
	"kerninst/lab/qemu"
	"kerninst/lab/report"
	"kerninst/lab/runner"
	"kerninst/lab/status"
	"kerninst/lab/vm"
	"kerninst/scenarios"
)

// runFlags are what `lab run` and the process it starts for each ISA share.
type runFlags struct {
	common
	own
	scenario string
	time     string
	seed     uint64
	host     string
	accel    string // what host time ran on, and why, for timings.json
	commit   string // of the sources, likewise
	out      string
	force    bool
	list     bool
	then     string // folder of a run of one ISA whose added files are to be used
	// A process for one ISA shares its starter's way to the host: there it is way, nil for none, and here
	// inherited.
	way       []*os.File
	inherited bool
	jobs      int
	json      bool
	keep      bool
	memory    bool
}

// defaultJobs is how many guests run at a time.
const defaultJobs = 2

func runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run",
		Short: "run scenarios in guests and report",
		Long: "Run scenarios in guests of one or more ISAs.\n\n" +
			"Results go to a directory (default out/<time>-<seed>, with out/latest);\n" +
			"a table of them to stdout.",
		Example: "  lab run --arch riscv64\n  lab run --arch all --scenario count,cost --seed 7",
		RunE:    func(c *cobra.Command, _ []string) error { return f.run(c.Context()) },
	}
	f.add(c.Flags())
	f.addRun(c)
	c.Flags().BoolVar(&f.force, "force", false, "write into an --out that is not empty, in place of the run that is there")
	c.Flags().BoolVar(&f.list, "list", false, "list the scenarios with labels and titles, run nothing (--json: as a document)")
	c.Flags().BoolVar(&f.json, "json", false, "print the results of all ISAs as one JSON array")
	return c
}

func (f *runFlags) addRun(c *cobra.Command) {
	c.Flags().StringVar(&f.scenario, "scenario", "smoke", "names or labels, separated by commas")
	c.Flags().StringVar(&f.time, "time", "exact", "exact or host, for scenarios that run in either")
	c.Flags().Uint64Var(&f.seed, "seed", 1, "seed of the guests' randomness")
	c.Flags().StringVar(&f.host, "host", "", "libvirt URI of a libvirtd, on this machine or by ssh or TLS on another (default: QEMU itself)")
	c.Flags().StringVar(&f.out, "out", "", "directory for results")
	c.Flags().IntVar(&f.jobs, "jobs", defaultJobs, "guests at a time")
	c.Flags().BoolVar(&f.keep, "keep", false, "leave the guests of a scenario that fails as they are (see lab gdb, lab kept)")
	c.Flags().BoolVar(&f.memory, "dump-memory", false, "write the memory of a guest that hangs or crashes to memory.core")
	f.addOwn(c.Flags(), 0)
	c.Flags().StringArrayVar(&f.fetches, "fetch", nil, "`GUEST`, file or folder to take from every guest when it has done its job, into --out; may be repeated")
	c.Flags().DurationVar(&f.timeout, "timeout", 0, "limit of each program in a guest, in guest time (default: none but the scenario's)")
}

func (f *runFlags) run(ctx context.Context) error {
	isas, err := arches(f.arch)
	if err != nil {
		return err
	}
	if f.list {
		return listScenarios(os.Stdout, f.json)
	}
	if err := f.checkScenarios(); err != nil {
		return err
	}
	if f.jobs < 1 {
		return usage(fmt.Errorf("--jobs %d: want at least 1", f.jobs))
	}
	if err := errors.Join(f.own.check(), f.checkFetch()); err != nil {
		return usage(err)
	}
	if f.keep && f.host != "" {
		return usage(fmt.Errorf("--keep --host: libvirtd ends its guests when the lab ends"))
	}
	if f.dryrun || len(f.own.set()) > 0 { // what no machine can be is found before any starts
		doc, err := f.planned(ctx, isas)
		if err != nil {
			return err
		}
		if f.dryrun {
			return doc.print(f.json)
		}
	}
	if f.kernel != "" { // what is no kernel is found before anything is written
		for _, isa := range isas {
			if _, _, err := f.image(ctx, isa); err != nil {
				return err
			}
		}
	}
	if _, through, err := f.backend(ctx); err != nil {
		return err
	} else if through != "" {
		progress("host: %s at %s", through, f.host)
	}
	if _, err := os.UserCacheDir(); err != nil { // nothing can begin: there is nothing to report on
		return fmt.Errorf("no folder for the cache: %w; set HOME or XDG_CACHE_HOME", err)
	}
	if err := f.checkAdded(); err != nil {
		return usage(err)
	}
	out, release, err := outDir(f.out, f.seed, f.force, time.Now())
	if err != nil {
		return err
	}
	defer release()
	var codes []int
	for _, isa := range isas {
		code, err := f.isa(ctx, isa, out)
		if err != nil {
			return err
		}
		codes = append(codes, code)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if err := report.WriteReport(out); err != nil {
		return err
	}
	if err := f.print(out, isas); err != nil {
		return err
	}
	progress("report: %s", filepath.Join(out, report.HTMLFile))
	if err := f.unfetched(out); err != nil {
		progress("%v", err)
		codes = append(codes, status.ExitFailed)
	}
	if code := status.WorstExit(codes...); code != 0 {
		return &exit{code: code}
	}
	return nil
}

// checkScenarios says whether there are such scenarios, for that time.
func (f *runFlags) checkScenarios() error {
	list, err := scenarios.Select(f.scenario)
	if err != nil {
		return usage(err)
	}
	t, err := parseTime(f.time)
	if err != nil {
		return err
	}
	return usage(scenarios.CheckTime(list, t))
}

// unfetched says what was to be fetched and has come from no guest. That some have it not is
// no failure: scenarios' guests are not alike.
func (f *runFlags) unfetched(out string) error {
	dir := os.DirFS(out)
	places, err := fs.Glob(dir, "*/guests/*/"+runner.FetchedDir)
	for _, guest := range f.fetches {
		has := func(place string) bool {
			_, err := fs.Lstat(dir, path.Join(place, guest))
			return err == nil
		}
		if !slices.ContainsFunc(places, has) {
			err = errors.Join(err, fmt.Errorf("--fetch %s: no guest had it when its job was done", guest))
		}
	}
	return err
}

// checkAdded refuses to add what --force is about to remove.
func (f *runFlags) checkAdded() error {
	if !f.force || f.out == "" {
		return nil
	}
	out, err := filepath.Abs(f.out)
	if resolved, e := filepath.EvalSymlinks(out); e == nil {
		out = resolved
	}
	files, e := images.Add(f.adds)
	if err = errors.Join(err, e); err != nil {
		return err
	}
	for _, file := range files {
		src, err := filepath.Abs(file.Source)
		if err != nil {
			return err
		}
		if file.Source != "" && strings.HasPrefix(src, out+"/") {
			return fmt.Errorf("--add %s is in --out %s, whose earlier run --force removes: copy it elsewhere", file.Source, f.out)
		}
	}
	return nil
}

// checkFetch refuses places for what is fetched: there are several guests, each
// with a folder of its own.
func (f *runFlags) checkFetch() error {
	all, err := f.wanted(func(string) string { return "" })
	for _, w := range all {
		if w.To != "" {
			return fmt.Errorf("--fetch %s:%s: want the guest's path alone; what comes of it is in the folder of each guest below --out", w.Guest, w.To)
		}
	}
	return err
}

// inheritedWay are the descriptors by which a process has its starter's way: os/exec's first two of
// ExtraFiles.
var inheritedWay = []int{3, 4}

// backend is what guests run on, and the program and version that stands between
// it and QEMU. One that cannot be reached is an error.
func (f *runFlags) backend(ctx context.Context) (vm.Backend, string, error) {
	if f.host == "" {
		return qemu.Backend{}, "", nil
	}
	b, err := libvirt.Parse(f.host)
	if err != nil {
		return nil, "", usage(err)
	}
	if f.inherited {
		var way []*os.File
		for _, fd := range inheritedWay {
			way = append(way, os.NewFile(uintptr(fd), "way"))
		}
		b.Through(way)
	}
	version, err := b.Check(ctx)
	return b, "libvirt " + version, err
}

// listed is a scenario as --list --json has it.
type listed struct {
	Name   string   `json:"name"`
	Title  string   `json:"title"`
	Labels []string `json:"labels"`
	Timed  bool     `json:"timed"` // it needs --time host
}

func listScenarios(w io.Writer, asJSON bool) error {
	doc := struct {
		Schema    int      `json:"schema"`
		Scenarios []listed `json:"scenarios"`
	}{Schema: 1}
	for _, s := range scenarios.All() {
		doc.Scenarios = append(doc.Scenarios, listed{s.Name, s.Title, append([]string{}, s.Labels...), s.Timed})
	}
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(doc)
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, l := range doc.Scenarios {
		fmt.Fprintf(t, "%s\t%s\t%s\n", l.Name, strings.Join(l.Labels, ","), l.Title)
	}
	return t.Flush()
}

// isa runs one ISA in a process of its own: ginkgo's suites run once per
// process. Its exit status is the result; what it prints is progress.
func (f *runFlags) isa(ctx context.Context, isa, out string) (int, error) {
	dir, err := filepath.Abs(filepath.Join(out, isa))
	if err != nil {
		return 0, err
	}
	// The report shows an ISA that failed before it had results, too.
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	cmd, err := f.process(ctx, isa, dir)
	if err != nil {
		return 0, err
	}
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	err = cmd.Run()
	var e *exec.ExitError
	switch {
	case ctx.Err() != nil:
		_ = os.Remove(dir) // only if it is empty
		return 0, ctx.Err()
	case err == nil:
		return 0, nil
	case errors.As(err, &e) && e.Exited():
		return e.ExitCode(), nil
	}
	return 0, fmt.Errorf("%s: %w", isa, err)
}

// process is the one for one ISA.
func (f *runFlags) process(ctx context.Context, isa, dir string) (*exec.Cmd, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, exe, append([]string{"run-isa", "--arch", isa, "--out", dir,
		"--scenario", f.scenario, "--time", f.time, "--seed", strconv.FormatUint(f.seed, 10),
		"--jobs", strconv.Itoa(f.jobs), "--mirror", f.mirror, "--kernel", f.kernel, "--host", f.host,
		"--then", f.then, fmt.Sprintf("--keep=%v", f.keep), fmt.Sprintf("--dump-memory=%v", f.memory)}, f.own.set()...)...)
	if f.way != nil {
		cmd.ExtraFiles = f.way
		cmd.Args = append(cmd.Args, "--way")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	// An interrupt from the keyboard reaches the child by itself; any other
	// end of the context must give it time to clean up.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	return cmd, nil
}

// print writes what came out to stdout: a table, or the documents themselves.
func (f *runFlags) print(out string, isas []string) error {
	var all []report.Results
	for _, isa := range isas {
		a, err := report.ReadArch(filepath.Join(out, isa))
		if errors.Is(err, os.ErrNotExist) {
			continue // it failed before it had results, and said so
		} else if err != nil {
			return err
		}
		all = append(all, a.Results)
	}
	if f.json {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(all)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	for _, r := range all {
		for _, s := range r.Scenarios {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.Arch, s.Name, s.Status, headline(s))
		}
	}
	return w.Flush()
}

// headlines are the metrics that a table has, of scenarios that have them.
var headlines = []string{
	"null-1cpu.counter", "null-2cpu.counter", "splice.insns_per_hit", "kprobe.insns_per_hit", "Null", "Ctx.2p.0K", "ForkExec",
	"splice.geomean", "kprobe-over-splice", "Null.splice.added", "squid.insns_per_request", "Squid.request.splice.ratio", "splice.counters",
	"safety.splices.points",
}

// headline is the one thing to say about a scenario in a table.
func headline(s report.Scenario) string {
	switch {
	case s.Failure != nil:
		return strings.Join(strings.Fields(s.Failure.Summary), " ")
	case s.Status == status.Skipped:
		return s.Reason
	}
	var parts []string
	for _, m := range headlines {
		if v, ok := s.Metrics[m]; ok {
			parts = append(parts, fmt.Sprintf("%s %.6g", m, v.Value))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Metrics)) {
		if v := s.Metrics[name]; v.Confidence > 0 {
			parts = append(parts, fmt.Sprintf("%s %.4g [%.4g, %.4g]", name, v.Value, *v.Lo, *v.Hi))
		}
	}
	return strings.Join(parts, ", ")
}
