package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kerninst/images"
	"kerninst/lab/inventory"
	"kerninst/lab/matrix"
	"kerninst/lab/qemu"
	"kerninst/lab/status"
	"kerninst/lab/vm"
	"kerninst/scenarios"
)

// matrixFlags are those of `lab matrix`.
type matrixFlags struct {
	runFlags // of each cell, but for what the lists below say
	arches, kernels,
	names, seeds []string
	hosts, on []string
	inventory string
	local     bool
	markdown  bool
}

// mostCells bounds a matrix: a report with a mark for each has to be read.
const mostCells = 20_000

func matrixCommand() *cobra.Command {
	var f matrixFlags
	c := &cobra.Command{
		Use:   "matrix",
		Short: "run ISAs × kernels × scenarios × seeds over this machine and libvirt hosts",
		Long: "Run every combination of ISAs, kernels, scenarios and seeds, over one or more hosts.\n\n" +
			"Each combination is a cell, which runs in a process and a folder of its own; a label\n" +
			"stands for all of its scenarios. As many run at a time as the hosts have CPUs and\n" +
			"memory for. Hosts that are one machine share what it has.\n\n" +
			"Hosts are libvirtds (--host, --inventory), or this machine itself: if none is named,\n" +
			"or with --local. A host that does not answer, is too old or has no emulator is said\n" +
			"and left out; cells of one that is lost are done on others. A cell that is refused or\n" +
			"fails does not keep the others from running.\n\n" +
			inventory.Form + "\n" +
			"--out gets a folder for each cell, as lab run makes them, and of all together\n" +
			"report.html, summary.md, matrix.json, junit.xml and bench.txt.\n\n" +
			"Exit status: the first of 3, 4, 6, 5, 1 that a cell came to, as of lab run; 3 also if a\n" +
			"host could not be used, or was lost, even if every cell has passed.",
		Example: "  lab matrix --arch all --scenario smoke --seed 1-3\n" +
			"  lab matrix --arch all --scenario boot,count --kernel locked,7.2 --inventory hosts --on fast\n" +
			"  lab matrix --arch riscv64 --scenario cost --host qemu:///system --local --dry-run",
		RunE: func(c *cobra.Command, _ []string) error {
			if !c.Flags().Changed("local") {
				f.local = len(f.hosts) == 0 && f.inventory == ""
			}
			if c.Flags().Changed("inventory") && f.inventory == "" {
				return usage(errors.New("--inventory: its value is empty"))
			}
			return f.matrix(c.Context())
		},
	}
	f.addMatrix(c)
	return c
}

func (f *matrixFlags) addMatrix(c *cobra.Command) {
	s := c.Flags()
	s.StringSliceVar(&f.arches, "arch", []string{runtime.GOARCH}, "ISAs: some of "+strings.Join(images.Arches(), ", ")+", or all")
	s.StringSliceVar(&f.kernels, "kernel", []string{lockedKernel}, "`VERSION|DIR`, as of lab run, or "+lockedKernel+"; several, with commas or repeated")
	s.StringSliceVar(&f.names, "scenario", []string{"smoke"}, "names or labels of scenarios")
	s.StringSliceVar(&f.seeds, "seed", []string{"1"}, "seeds, `N` or N-M")
	s.StringArrayVar(&f.hosts, "host", nil, "libvirt `URI` of a libvirtd on this machine; may be repeated")
	s.StringVar(&f.inventory, "inventory", "", "`FILE` with hosts")
	s.StringSliceVar(&f.on, "on", nil, "labels or names: which hosts of the inventory to use (default: all)")
	s.BoolVar(&f.local, "local", false, "use this machine without libvirt, too (default: if no host is named)")
	s.StringVar(&f.time, "time", "exact", "exact or host, for scenarios that run in either")
	s.StringVar(&f.mirror, "mirror", os.Getenv("MIRROR"), "Debian mirror (default: the host's own)")
	s.StringVar(&f.out, "out", "", "directory for results (default: out/TIME-matrix, with out/latest)")
	s.BoolVar(&f.force, "force", false, "write into an --out that is not empty, in place of the run or matrix that is there")
	s.IntVar(&f.jobs, "jobs", 1, "guests at a time in one cell")
	s.BoolVar(&f.memory, "dump-memory", false, "write the memory of a guest that hangs or crashes to memory.core")
	s.DurationVar(&f.timeout, "timeout", 0, "limit of each program in a guest, in guest time (default: none but the scenario's)")
	s.BoolVar(&f.json, "json", false, "print matrix.json")
	s.BoolVar(&f.markdown, "markdown", false, "print summary.md, for the summary of a job")
	f.addOwn(s, 0)
	s.Lookup("dry-run").Usage = "print cells and hosts, and do nothing"
}

// lockedKernel is the word for the kernel that is used if none is asked for.
const lockedKernel = "locked"

func (f *matrixFlags) matrix(ctx context.Context) error {
	cells, err := f.cells()
	if err != nil {
		return err
	}
	named, err := f.named()
	if err != nil {
		return usage(err)
	}
	if _, err := os.UserCacheDir(); err != nil { // nothing can begin: there is nothing to report on
		return fmt.Errorf("no folder for the cache: %w; set HOME or XDG_CACHE_HOME", err)
	}
	doc := &matrix.Document{Time: f.time}
	m := &matrixRun{matrixFlags: f, doc: doc}
	for _, c := range cells {
		r := matrix.Record(c)
		r.Rerun = f.rerun(c)
		doc.Cells = append(doc.Cells, r)
	}
	m.survey(ctx, named)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if f.dryrun {
		return m.plan(cells)
	}
	if err := f.checkAdded(); err != nil {
		return usage(err)
	}
	out, release, err := matrixDir(f.out, "matrix", f.force, time.Now())
	if err != nil {
		return err
	}
	defer release()
	if m.out, err = filepath.Abs(out); err != nil {
		return err
	}
	return m.run(ctx, cells)
}

// matrixDir makes the folder for results, as outDir does.
func matrixDir(dir, of string, force bool, now time.Time) (_ string, release func(), err error) {
	if dir == "" {
		return defaultDir("out", now.UTC().Format("20060102T150405Z")+"-"+of)
	}
	release, err = givenDir(dir, force)
	return dir, release, err
}

// cells are all combinations of what was asked for.
func (f *matrixFlags) cells() ([]matrix.Cell, error) {
	isas, err := arches(strings.Join(f.arches, ","))
	if err != nil {
		return nil, err
	}
	f.scenario = strings.Join(f.names, ",")
	list, err := scenarios.Select(f.scenario)
	if err != nil {
		return nil, usage(err)
	}
	if err := f.checkScenarios(); err != nil {
		return nil, err
	}
	kernels, err := kernelWords(f.kernels)
	if err != nil {
		return nil, usage(err)
	}
	seeds, err := parseSeeds(f.seeds)
	if err != nil {
		return nil, usage(err)
	}
	if n := len(isas) * len(list) * len(kernels) * len(seeds); n > mostCells {
		return nil, usage(fmt.Errorf("%d cells: want %d at the most", n, mostCells))
	}
	switch err := f.own.check(); {
	case err != nil:
		return nil, usage(err)
	case f.jobs < 1:
		return nil, usage(fmt.Errorf("--jobs %d: want at least 1", f.jobs))
	case f.json && f.markdown:
		return nil, usage(errors.New("--json --markdown: both would be on stdout: choose one"))
	}
	names, byName := []string{}, map[string]scenarios.Scenario{}
	for _, s := range list {
		names, byName[s.Name] = append(names, s.Name), s
	}
	return matrix.Cells(matrix.Kernels(kernels), names, seeds, isas, func(scenario, arch string) matrix.Needs {
		return matrix.Needs(byName[scenario].Needs(arch, vm.Time(f.time), f.jobs, f.own.cpus, f.own.memory()))
	}), nil
}

// kernelWords are kernels as lab run takes them, each once.
func kernelWords(given []string) (words []string, err error) {
	for _, k := range given {
		w := images.KernelWord(k)
		if k == lockedKernel {
			w = ""
		}
		if slices.Contains(words, w) {
			return nil, fmt.Errorf("--kernel %s: %s is given twice", strings.Join(given, ","), k)
		}
		words = append(words, w)
	}
	return words, nil
}

// parseSeeds reads N and N-M, each seed once.
func parseSeeds(given []string) (seeds []uint64, err error) {
	for _, g := range given {
		from, to, is := strings.Cut(g, "-")
		if !is {
			to = from
		}
		a, errA := strconv.ParseUint(from, 10, 64)
		b, errB := strconv.ParseUint(to, 10, 64)
		switch {
		case errA != nil || errB != nil || b < a:
			return nil, fmt.Errorf("--seed %s: want numbers, or N-M from a smaller to a larger one", g)
		case b-a >= mostCells:
			return nil, fmt.Errorf("--seed %s: %d seeds at the most", g, mostCells)
		}
		for n := a; ; n++ {
			seeds = append(seeds, n)
			if n == b {
				break
			}
		}
	}
	sorted := slices.Sorted(slices.Values(seeds))
	if len(slices.Compact(sorted)) < len(seeds) {
		return nil, fmt.Errorf("--seed %s: a seed is given twice", strings.Join(given, ","))
	}
	return seeds, nil
}

// rerun is the command that does one cell by itself; on which host makes no difference.
func (f *matrixFlags) rerun(c matrix.Cell) string {
	args := []string{"bin/lab", "run", "--arch", c.Arch}
	if c.Kernel.Word != "" {
		args = append(args, "--kernel", c.Kernel.Word)
	}
	args = append(args, "--scenario", c.Scenario, "--time", f.time, "--seed", strconv.FormatUint(c.Seed, 10))
	return qemu.Quote(append(args, f.own.set()...))
}

// plan prints what would run.
func (m *matrixRun) plan(cells []matrix.Cell) error {
	for i := range cells {
		if why := m.queue(cells).Impossible(i); why != "" {
			m.doc.Cells[i].Status, m.doc.Cells[i].Exit, m.doc.Cells[i].Reason = status.LabFailed, status.ExitLabFailed, why
		}
	}
	m.doc.Finish()
	var err error
	if m.json {
		var text []byte
		if text, err = m.doc.Encode(); err == nil {
			_, err = os.Stdout.Write(text)
		}
	} else {
		err = m.doc.Plan(os.Stdout)
	}
	if err == nil && m.doc.Exit != 0 {
		err = &exit{code: m.doc.Exit}
	}
	return err
}
