package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"kerninst/images"
	"kerninst/lab/bisect"
	"kerninst/lab/inventory"
	"kerninst/lab/matrix"
	"kerninst/lab/report"
	"kerninst/lab/status"
	"kerninst/scenarios"
)

// bisectFlags are those of `lab bisect`.
type bisectFlags struct {
	runFlags // of each kernel
	kernels  []string
}

func bisectCommand() *cobra.Command {
	var f bisectFlags
	c := &cobra.Command{
		Use:   "bisect --kernel OLD --kernel NEW",
		Short: "find the kernel from which on a scenario comes out otherwise",
		Long: "Find the first kernel for which a scenario fails that passes for an older one, or passes\n" +
			"that failed, by asking about as few kernels as it takes.\n\n" +
			"Two versions stand for all of Debian's from one to the other that can be had, or are\n" +
			"cached; three kernels or more, or folders, for themselves, in the order in which they are\n" +
			"given. One of which it cannot be told, as it cannot be built or the lab failed, is passed by.\n\n" +
			"--out gets a folder for each kernel that was asked about, and what lab matrix writes.\n\n" +
			"Exit status: 0 found, 2 there is nothing to find: both ends come out alike, 3 it cannot\n" +
			"be told how an end comes out.",
		Example: "  lab bisect --arch riscv64 --kernel 6.12,7.2 --scenario every\n" +
			"  lab bisect --kernel build-1/,build-2/,build-3/ --scenario smoke --json",
		RunE: func(c *cobra.Command, _ []string) error { return f.bisect(c.Context()) },
	}
	s := c.Flags()
	s.StringVar(&f.arch, "arch", runtime.GOARCH, "ISA: "+strings.Join(images.Arches(), ", "))
	s.StringSliceVar(&f.kernels, "kernel", nil, "`VERSION|DIR`, as of lab run: two or more, the oldest first, with commas or repeated")
	s.StringVar(&f.scenario, "scenario", "smoke", "name or label of what is to come out otherwise")
	s.StringVar(&f.time, "time", "exact", "exact or host, for scenarios that run in either")
	s.Uint64Var(&f.seed, "seed", 1, "seed of the guests' randomness")
	s.StringVar(&f.mirror, "mirror", os.Getenv("MIRROR"), "Debian mirror (default: the host's own)")
	s.StringVar(&f.out, "out", "", "directory for results (default: out/TIME-bisect, with out/latest)")
	s.BoolVar(&f.force, "force", false, "write into an --out that is not empty, in place of the run that is there")
	s.IntVar(&f.jobs, "jobs", defaultJobs, "guests at a time")
	s.DurationVar(&f.timeout, "timeout", 0, "limit of each program in a guest, in guest time (default: none but the scenario's)")
	s.BoolVar(&f.json, "json", false, "print one JSON document")
	f.addOwn(s, 0)
	s.Lookup("dry-run").Usage = "print the kernels among which it would be looked, and do nothing"
	return c
}

func (f *bisectFlags) bisect(ctx context.Context) error {
	if err := f.check(); err != nil {
		return err
	}
	words, err := f.words(ctx)
	if err != nil {
		return err
	}
	if f.dryrun {
		for _, w := range words {
			fmt.Println(w)
		}
		return nil
	}
	out, release, err := matrixDir(f.out, "bisect", f.force, time.Now())
	if err != nil {
		return err
	}
	defer release()
	if out, err = filepath.Abs(out); err != nil {
		return err
	}
	s := f.search(words, out)
	if err := s.write(); err != nil {
		return err
	}
	found, err := bisect.Search(ctx, len(words), s.ask)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	s.doc.Finish()
	if e := s.writeAll(); e != nil {
		return e
	}
	progress("report: %s", filepath.Join(out, report.HTMLFile))
	if err != nil {
		return s.none(err)
	}
	return s.tell(found, os.Stdout)
}

// check refuses what needs no kernel to be wrong.
func (f *bisectFlags) check() error {
	isa, err := f.one("a search is on one ISA")
	if err != nil {
		return err
	}
	f.arch = isa
	if err := f.checkScenarios(); err != nil {
		return err
	}
	switch err := f.own.check(); {
	case err != nil:
		return usage(err)
	case !slices.Contains(scenarios.Words(), f.scenario):
		return usage(fmt.Errorf("--scenario %s: want one name or label", f.scenario))
	case len(f.kernels) < 2:
		return usage(errors.New("--kernel: want two or more, the oldest first"))
	case f.jobs < 1:
		return usage(fmt.Errorf("--jobs %d: want at least 1", f.jobs))
	}
	return usage(f.checkAdded())
}

// words are the kernels among which it is looked, in order.
func (f *bisectFlags) words(ctx context.Context) ([]string, error) {
	words, err := kernelWords(f.kernels)
	if err != nil {
		return nil, usage(err)
	}
	if len(words) > 2 || slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, "/") }) {
		return words, nil
	}
	root, err := repository()
	if err != nil {
		return nil, err
	}
	opts := images.Options{Arch: f.arch, Mirror: f.mirror, Root: root, Progress: progress}
	list, err := images.Between(ctx, opts, words[0], words[1])
	return list, kernelError(err)
}

// searched is a search that goes on.
type searched struct {
	matrixRun
	cells []matrix.Cell
	at    map[int]int // places in the document of kernels that were asked about
}

func (f *bisectFlags) search(words []string, out string) *searched {
	s := &searched{matrixRun: matrixRun{matrixFlags: &matrixFlags{runFlags: f.runFlags}, out: out}, at: map[int]int{}}
	s.doc = &matrix.Document{Time: f.time, Hosts: []matrix.HostRecord{{Name: inventory.Here, URI: inventory.Here, Status: matrix.Used, Arches: []string{f.arch}}}}
	for _, k := range matrix.Kernels(words) {
		s.cells = append(s.cells, matrix.Cell{Arch: f.arch, Kernel: k, Scenario: f.scenario, Seed: f.seed})
	}
	return s
}

// answers are what a scenario that came out so says of a kernel. Of the lab's own fault it says nothing.
var answers = map[status.Status]bisect.Answer{
	status.Passed: bisect.Yes,
	status.Failed: bisect.No, status.Crashed: bisect.No, status.BootFailed: bisect.No, status.Timeout: bisect.No,
}

// ask runs the scenario with one of the kernels.
func (s *searched) ask(ctx context.Context, i int) (bisect.Answer, error) {
	c := s.cells[i]
	progress("%s: kernel %d of %d …", c.Kernel.Name, i+1, len(s.cells))
	r := matrix.Record(c)
	r.Rerun = s.rerun(c)
	s.at[i] = len(s.doc.Cells)
	s.doc.Cells = append(s.doc.Cells, r)
	if err := s.write(); err != nil { // so that --force knows whose folders these are
		return bisect.Unknown, err
	}
	o := s.cell(ctx, c, matrix.Host{Name: inventory.Here, URI: inventory.Here})
	s.note(matrix.Event{Kind: matrix.Ended, Cell: s.at[i], Result: &matrix.Result{Cell: c, Outcome: o, Host: inventory.Here}})
	if ctx.Err() != nil {
		return bisect.Unknown, ctx.Err()
	}
	progress("%s: %s", c.Kernel.Name, strings.TrimSpace(string(o.Status)+" "+strings.Join(strings.Fields(report.Clean(o.Reason)), " ")))
	return answers[o.Status], nil
}

// none is the error of a search that has not found anything.
func (s *searched) none(err error) error {
	var ends *bisect.EndsError
	if !errors.As(err, &ends) {
		return err
	}
	if ends.Unknown >= 0 {
		c := s.doc.Cells[s.at[ends.Unknown]]
		return fmt.Errorf("kernel %s: it cannot be told how %s comes out: %s; see %s", c.Kernel, s.scenario, c.Reason, filepath.Join(s.out, c.Name))
	}
	how := map[bisect.Answer]string{bisect.Yes: "passes", bisect.No: "does not pass"}[ends.First]
	return usage(fmt.Errorf("%s %s with kernel %s and with %s: there is nothing to look for between them", s.scenario, how,
		s.cells[0].Kernel.Name, s.cells[len(s.cells)-1].Kernel.Name))
}

// bisectDocument is what --json prints.
type bisectDocument struct {
	Schema   int                 `json:"schema"`
	Arch     string              `json:"arch"`
	Scenario string              `json:"scenario"`
	Seed     uint64              `json:"seed"`
	Kernels  []string            `json:"kernels"` // among which it was looked
	Before   string              `json:"before"`  // the last that comes out as the first of them
	After    string              `json:"after"`   // the first that comes out otherwise
	Passes   string              `json:"passes"`  // before or after
	Between  []string            `json:"between"` // those of which it cannot be told, each of which may be it
	Asked    []matrix.CellRecord `json:"asked"`   // in order
}

// tell prints what was found.
func (s *searched) tell(f bisect.Found, to io.Writer) error {
	names := func(list ...int) (out []string) {
		for _, i := range list {
			out = append(out, s.cells[i].Kernel.Name)
		}
		return out
	}
	doc := bisectDocument{Schema: 1, Arch: s.arch, Scenario: s.scenario, Seed: s.seed, Before: names(f.Before)[0], After: names(f.After)[0],
		Passes: "before", Between: append([]string{}, names(f.Between...)...), Asked: s.doc.Cells}
	if f.First == bisect.No {
		doc.Passes = "after"
	}
	for i := range s.cells {
		doc.Kernels = append(doc.Kernels, names(i)...)
	}
	if s.json {
		enc := json.NewEncoder(to)
		enc.SetIndent("", "  ")
		return enc.Encode(doc)
	}
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', 0)
	for i, name := range doc.Kernels {
		came, why := "not asked about", ""
		if at, is := s.at[i]; is {
			c := s.doc.Cells[at]
			came, why = string(c.Status), strings.Join(strings.Fields(report.Clean(c.Reason)), " ")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", name, came, why)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	verbs := map[string][2]string{"before": {"passes", "does not pass"}, "after": {"does not pass", "passes"}}[doc.Passes]
	fmt.Fprintf(to, "%s: the last that %s is %s, the first that %s is %s\n", s.scenario, verbs[0], doc.Before, verbs[1], doc.After)
	if len(doc.Between) > 0 {
		fmt.Fprintf(to, "of %s, which lie between them, it cannot be told\n", strings.Join(doc.Between, ", "))
	}
	return nil
}
