package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/formatter"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"kerninst/agent/ktypes"
	"kerninst/images"
	"kerninst/lab/oracle"
	"kerninst/lab/qemu"
	"kerninst/lab/report"
	"kerninst/lab/repro"
	"kerninst/lab/runner"
	"kerninst/lab/status"
	"kerninst/lab/vm"
	"kerninst/scenarios"
)

// runISACommand is one ISA's part of `lab run`.
func runISACommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:    "run-isa",
		Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			err := f.runISA(c.Context())
			if errors.Is(err, context.Canceled) && c.Context().Err() != nil {
				return &exit{status.ExitInterrupted, nil} // who started it says so
			}
			return err
		},
	}
	f.add(c.Flags())
	f.addRun(c)
	c.Flags().StringVar(&f.then, "then", "", "folder of a run whose added files are added again")
	c.Flags().BoolVar(&f.inherited, "way", false, "share the way to the host that was left open")
	return c
}

// suite is what ginkgo wants of a test: to be told that it failed.
type suite struct{ failed bool }

func (s *suite) Fail() { s.failed = true }

func (f *runFlags) runISA(ctx context.Context) error {
	if f.inherited {
		for _, fd := range inheritedWay { // before anything is started
			unix.CloseOnExec(fd)
		}
	}
	list, err := scenarios.Select(f.scenario)
	if err == nil && f.out == "" {
		err = errors.New("--out is missing: this is lab run's part for one ISA, which it starts itself")
	}
	if err != nil {
		return usage(err)
	}
	start := time.Now()
	f.commit = commit(ctx)
	if err := os.MkdirAll(f.out, 0o755); err != nil {
		return err
	}
	guests, cancel := context.WithCancel(ctx)
	defer cancel()
	env, results, manifest, err := f.environment(guests, list)
	if err != nil {
		return err
	}
	if wants(list, f.arch, func(g scenarios.Guest) bool { return g.Index }) {
		dir, err := qemu.NewRunDir()
		if err != nil {
			return err
		}
		defer dir.Close()
		if env.Index, err = f.takeIndex(ctx, f.arch, f.appended, dir.Path); err != nil {
			return err
		}
		if env.Known, err = readIndex(env.Index.Source); err != nil {
			return err
		}
	}
	if wants(list, f.arch, func(g scenarios.Guest) bool { return g.Executed > 0 || g.Text }) {
		if env.Text, err = f.takeText(ctx, f.arch, f.appended); err != nil {
			return err
		}
	}
	prepared := time.Since(start).Seconds()

	scenarios.Register(env, list)
	suiteConfig, reporter := suiteConfiguration()
	reporter.Succinct = true
	reporter.NoColor = os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" || !isTerminal(os.Stderr)
	reporter.JUnitReport = filepath.Join(f.out, junitFile)
	// Ginkgo draws while guests report, each into the other's lines: what it has
	// to say is kept until they have ended, and is only of use if no scenario
	// has said what went wrong.
	var said bytes.Buffer
	formatter.ColorableStdOut = &said
	outcome := suite{}
	ginkgo.RunSpecs(&outcome, "kerninst on "+f.arch, suiteConfig, reporter)
	// On an interrupt, ginkgo returns while guests still run: they have to be
	// gone, with their run directories, before this process is.
	cancel()
	env.Runner.Drain()
	env.Abandon()
	if err := ctx.Err(); err != nil {
		return err
	}
	if outcome.failed && !slices.ContainsFunc(env.Results, func(s report.Scenario) bool { return s.Failure != nil }) {
		fmt.Fprint(os.Stderr, said.String())
	}
	return f.finish(env, outcome.failed, results, manifest, start, prepared)
}

// suiteLimit is when ginkgo gives up: never, as each guest has limits of its own. Its own default,
// an hour, is less than some of these.
const suiteLimit = 365 * 24 * time.Hour

// suiteConfiguration is ginkgo's for one ISA: scenarios in their order, for as long as they take.
func suiteConfiguration() (types.SuiteConfig, types.ReporterConfig) {
	suite, reporter := ginkgo.GinkgoConfiguration()
	suite.RandomSeed, suite.RandomizeAllSpecs, suite.Timeout = 1, false, suiteLimit
	return suite, reporter
}

// environment makes everything that scenarios run in.
func (f *runFlags) environment(ctx context.Context, list []scenarios.Scenario) (*scenarios.Env, report.Results, report.Manifest, error) {
	var none report.Results
	if err := qemu.Sweep(); err != nil {
		return nil, none, nil, err
	}
	version, err := qemu.FindVersion(ctx, f.arch)
	if err != nil {
		return nil, none, nil, err
	}
	img, opts, err := f.image(ctx, f.arch)
	if err != nil {
		return nil, none, nil, err
	}
	backend, through, err := f.backend(ctx)
	if err != nil {
		return nil, none, nil, err
	}
	r := runner.Runner{
		Image: img, Backend: backend, Through: through, Seed: f.seed, Jobs: f.jobs,
		Dir: filepath.Join(f.out, repro.GuestsDir), Progress: progress, DumpMemory: f.memory, Lines: readBefore(opts),
	}
	if wants(list, f.arch, func(g scenarios.Guest) bool { return g.Oracle }) {
		if r.Plugin, err = plugin(ctx, opts, version, oracle.Plugin); err != nil {
			return nil, none, nil, err
		}
	}
	if wants(list, f.arch, func(g scenarios.Guest) bool { return g.Calls }) {
		if r.Calls, err = plugin(ctx, opts, version, oracle.CallsPlugin); err != nil {
			return nil, none, nil, err
		}
	}
	if through == "" && wantsHostTime(list, f) {
		if err := f.useKVM(ctx, &r); err != nil {
			return nil, none, nil, err
		}
	}
	programs, err := addedPrograms(ctx, opts, list)
	if err != nil {
		return nil, none, nil, err
	}
	missing := map[string]error{}
	software, taps := broughtSoftware(ctx, opts, list, missing), tapped(ctx, opts, list, missing)
	if err := ctx.Err(); err != nil {
		return nil, none, nil, err
	}
	modules, lacks, err := f.loadedBy(ctx, img, opts, list)
	if err != nil {
		return nil, none, nil, err
	}
	files, kept, err := f.kept(ctx, img, opts, f.out, f.then)
	if err != nil {
		return nil, none, nil, err
	}
	if r.Own, err = f.wishes(img, files); err != nil {
		return nil, none, nil, err
	}
	if r.Own.Fetch, err = f.wanted(func(string) string { return "" }); err != nil {
		return nil, none, nil, usage(err)
	}
	manifest, err := manifestOf(f, img, version, through, list, f.record(kept))
	same := "--arch " + f.arch
	if f.kernel != "" {
		same += " --kernel " + qemu.Quote([]string{f.kernel})
	}
	env := &scenarios.Env{
		Arch: f.arch, Release: img.Release, Ctx: ctx, Time: vm.Time(f.time), Runner: runner.New(r), Programs: programs, Software: software, Taps: taps, Modules: modules, Lacks: lacks, Missing: missing,
		Kernel: images.File{Path: scenarios.KernelPath, Mode: 0o444, Source: img.Kernel},
		Types:  sync.OnceValues(func() (*ktypes.Types, error) { return typesOf(img) }),
		Keep:   f.keep, Keeps: f.host == "",
		Same: same,
		Rerun: func(s string) string {
			cmd := fmt.Sprintf("bin/lab run %s --scenario %s --time %s --seed %d", same, s, f.time, f.seed)
			if f.host != "" {
				cmd += " --host " + qemu.Quote([]string{f.host})
			}
			if set := f.own.set(); len(set) > 0 {
				cmd += " " + qemu.Quote(set)
			}
			return cmd
		},
	}
	return env, report.Results{
		Schema: report.Schema, Arch: f.arch, Kernel: img.Release, QEMU: version.String(), Time: f.time, Seed: f.seed,
	}, manifest, err
}

// wantsHostTime says whether any guest runs in host time.
func wantsHostTime(list []scenarios.Scenario, f *runFlags) bool {
	return wants(list, f.arch, func(g scenarios.Guest) bool {
		return g.Time == vm.Host || g.Time == "" && f.time == string(vm.Host)
	})
}

// useKVM has guests of host time run under KVM if one has done so.
func (f *runFlags) useKVM(ctx context.Context, r *runner.Runner) error {
	k, err := findKVM(ctx, r.Image)
	if err != nil {
		return err
	}
	r.KVM, f.accel = k.Usable, "kvm"
	if !k.Usable {
		f.accel = "tcg: " + k.Why
		if f.arch == runtime.GOARCH {
			progress("%s: host time is emulated, KVM is not used: %s", f.arch, k.Why)
		}
	}
	return nil
}

// findKVM asks whether an image's kernel runs under this host's KVM.
func findKVM(ctx context.Context, img *images.Image) (qemu.KVM, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return qemu.KVM{}, err
	}
	return qemu.FindKVM(ctx, qemu.KVMDevice(), filepath.Join(cache, "kerninst"), vm.Spec{
		Arch: img.Arch, Kernel: img.Kernel, Firmware: img.Firmware, Initrd: img.Base, CPUs: 1, MemMiB: 768, Seed: 1,
	})
}

// wants says whether one of the scenarios' guests asks for something.
func wants(list []scenarios.Scenario, arch string, something func(scenarios.Guest) bool) bool {
	return slices.ContainsFunc(list, func(s scenarios.Scenario) bool {
		return slices.ContainsFunc(s.Guests(arch), something)
	})
}

// addedPrograms builds what guests bring along beside the image.
func addedPrograms(ctx context.Context, opts images.Options, list []scenarios.Scenario) (map[string]images.File, error) {
	out := map[string]images.File{}
	for _, s := range list {
		for _, g := range s.Guests(opts.Arch) {
			for _, p := range g.Programs {
				var err error
				if out[p], err = images.Program(ctx, opts, p, scenarios.ProgramPath(p)); err != nil {
					return nil, err
				}
			}
		}
	}
	return out, nil
}

// broughtSoftware is what guests bring along of Debian's; what cannot be had is missing.
func broughtSoftware(ctx context.Context, opts images.Options, list []scenarios.Scenario, missing map[string]error) map[string][]images.File {
	out := map[string][]images.File{}
	for _, s := range list {
		for _, g := range s.Guests(opts.Arch) {
			for _, name := range g.Software {
				if _, done := out[name]; done {
					continue
				}
				var err error
				if out[name], err = images.Software(ctx, opts, name); err != nil {
					missing[name] = fmt.Errorf("%s cannot be had: %w", name, err)
				}
			}
		}
	}
	return out
}

// tapped are the modules that SystemTap makes of guests' scripts; likewise.
func tapped(ctx context.Context, opts images.Options, list []scenarios.Scenario, missing map[string]error) map[string][]images.File {
	out := map[string][]images.File{}
	for _, s := range list {
		for _, g := range s.Guests(opts.Arch) {
			key := scenarios.TapsKey(g.Taps)
			if _, done := out[key]; done || key == "" {
				continue
			}
			var err error
			if out[key], err = images.SystemTap(ctx, opts, g.Taps); err != nil {
				missing[key] = fmt.Errorf("SystemTap's modules cannot be had: %w", err)
			}
		}
	}
	return out
}

// loadedBy are the files with which guests load the modules that they ask for, and
// what the user wants loaded; and of which modules the kernel has none.
func (o *own) loadedBy(ctx context.Context, img *images.Image, opts images.Options, list []scenarios.Scenario) (map[string][]images.File, map[string]error, error) {
	out, lacks := map[string][]images.File{}, map[string]error{}
	for _, s := range list {
		for _, g := range s.Guests(opts.Arch) {
			key := scenarios.ModulesKey(g.Modules)
			if _, done := out[key]; done || key == "" {
				continue
			}
			files, err := loadAny(g.Modules, func(names []string) ([]images.File, error) {
				both := *o
				both.modules = slices.Concat(o.modules, names)
				return both.load(ctx, img, opts)
			})
			out[key] = files
			var none *images.NoModuleError
			switch {
			case errors.As(err, &none) && slices.Contains(g.Modules, none.Name):
				lacks[key] = none
			case err != nil:
				return nil, nil, err
			}
		}
	}
	return out, lacks, nil
}

// loadAny is what a guest's modules come to, of which a kernel need not have those with scenarios.IfAny.
func loadAny(modules []string, load func(names []string) ([]images.File, error)) ([]images.File, error) {
	files, err := load(scenarios.ModuleNames(modules))
	var none *images.NoModuleError
	if errors.As(err, &none) {
		fewer := slices.DeleteFunc(slices.Clone(modules), func(m string) bool { return m == none.Name+scenarios.IfAny })
		if len(fewer) < len(modules) {
			return loadAny(fewer, load)
		}
	}
	return files, err
}

// manifestOf says what the run is made of.
func manifestOf(f *runFlags, img *images.Image, v qemu.Version, through string, list []scenarios.Scenario, own *repro.Own) (report.Manifest, error) {
	m := repro.Manifest{
		Arch: f.arch, Scenario: f.scenario, Time: f.time, Seed: f.seed, Kernel: f.kernel,
		QEMU: v.String(), Through: through, Go: runtime.Version(), Image: img.Manifest, Own: own,
	}
	for _, s := range list {
		for _, g := range s.Guests(f.arch) {
			if g.Time == vm.Exact || g.Time == "" && f.time == string(vm.Exact) {
				m.Exact = append(m.Exact, scenarios.GuestName(s, g))
			}
		}
	}
	return m.Encode()
}

// finish writes the results and turns them into an exit status; failed is what ginkgo says.
func (f *runFlags) finish(env *scenarios.Env, failed bool, results report.Results, manifest report.Manifest, start time.Time, prepared float64) error {
	results.Scenarios = env.Results
	var all []status.Status
	for _, s := range env.Results {
		all = append(all, s.Status)
	}
	if failed && status.ExitCode(all...) == 0 { // a scenario has told nothing of itself
		all = append(all, status.LabFailed)
	}
	results.Status = status.Worst(all...)
	if err := report.WriteArch(f.out, results, manifest, f.timings(env, start, prepared)); err != nil {
		return err
	}
	if err := report.WriteFiles(f.out, env.Files); err != nil {
		return err
	}
	if err := report.WriteCards(f.out, env.Cards); err != nil {
		return err
	}
	for i := range env.Cards {
		fmt.Fprint(os.Stderr, "\n", env.Cards[i].Brief())
	}
	for _, file := range []string{repro.ConsoleFile, argvFile, agentFile} {
		if err := runner.Join(f.out, filepath.Join(f.out, repro.GuestsDir), env.Guests, file); err != nil {
			return err
		}
	}
	if code := status.ExitCode(all...); code != 0 {
		return &exit{code: code}
	}
	return nil
}

// timings are what a run took, and where: what two equal runs do not share.
func (f *runFlags) timings(env *scenarios.Env, start time.Time, prepared float64) report.Timings {
	t := report.Timings{
		Seconds: map[string]float64{"prepare": prepared, "total": time.Since(start).Seconds()},
		Host:    map[string]string{"cpus": fmt.Sprint(runtime.NumCPU()), "start": start.UTC().Format(time.RFC3339)},
	}
	for what, v := range map[string]string{"accel": f.accel, "commit": f.commit} {
		if v != "" {
			t.Host[what] = v
		}
	}
	for name, s := range env.Took {
		t.Seconds["guest/"+name] = s
	}
	for name, s := range env.HelloAfter {
		t.Seconds["hello/"+name] = s
	}
	for name, s := range env.RunningAfter {
		t.Seconds["running/"+name] = s
	}
	return t
}

// isTerminal says whether a person may be at the other end of a file: /dev/null
// is a character device too.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
