package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"kerninst/agent/ktypes"
	"kerninst/agent/probe"
	"kerninst/agent/wire"
	"kerninst/lab/cost"
	"kerninst/lab/qemu"
	"kerninst/lab/runner"
	"kerninst/lab/status"
	"kerninst/lab/vm"
)

type costFlags struct {
	common
	json bool
}

func costCommand() *cobra.Command {
	var f costFlags
	c := &cobra.Command{
		Use:   "cost",
		Short: "instructions that one hit of a probe adds, by action and mechanism, beside the kernel's own probes",
		Long: "Put a counter, a predicated counter, a timer pair and a trace record into a kernel\n" +
			"function, one after the other and by each mechanism, each other action by the first of\n" +
			"these, then the kernel's own probes, and print how many instructions a hit of each adds. All in one guest of exact time,\n" +
			"where a figure is the same each time.",
		Example: "  lab cost --arch arm64",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			isas, err := arches(f.arch)
			if err != nil {
				return err
			}
			for _, isa := range isas {
				if err := f.run(c.Context(), isa); err != nil {
					return err
				}
			}
			return nil
		},
	}
	f.add(c.Flags())
	c.Flags().BoolVar(&f.json, "json", false, "print a document for machines, one for each ISA")
	return c
}

func (f *costFlags) run(ctx context.Context, isa string) error {
	if err := qemu.Sweep(); err != nil {
		return err
	}
	img, opts, err := f.image(ctx, isa)
	if err != nil {
		return err
	}
	in := probe.At{Types: sync.OnceValues(func() (*ktypes.Types, error) { return typesOf(img) })}
	job, err := cost.Job(isa, in)
	if err != nil {
		return err
	}
	r := runner.New(runner.Runner{Image: img, Backend: qemu.Backend{}, Seed: 1, Jobs: 1, Progress: progress, Lines: readBefore(opts)})
	g := r.Start(ctx, runner.Request{Name: "cost", CPUs: 1, Time: vm.Exact, Job: job}).Wait()
	if g.Err != nil {
		return g.Err
	}
	if st := g.Outcome.Status; st != status.Passed {
		progress("\n%s", r.Card(g, "cost").Brief())
		return &exit{status.ExitCode(st), fmt.Errorf("%s", g.Outcome.Summary)}
	}
	probe.Gather(g.Outcome.Records)
	var results []*wire.Result
	for _, rec := range g.Outcome.Records {
		if res := rec.GetResult(); res != nil {
			results = append(results, res)
		}
	}
	t, err := cost.NewTable(g.Outcome.Hello, results, in)
	if err != nil {
		return &exit{status.ExitFailed, err}
	}
	if f.json {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(t)
	}
	printCost(os.Stdout, t)
	return g.End()
}

// where says of a row that it is of a function's first byte, where the others are not.
func where(r cost.Row) string {
	if strings.HasSuffix(r.Point, ":0") {
		return " at the start"
	}
	return ""
}

// printCost prints for people: what cannot be had comes last.
func printCost(out io.Writer, table *cost.Table) {
	fmt.Fprintf(out, "%s, Linux %s: instructions that one hit adds\n", table.Arch, table.Kernel)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "action\tmechanism\tinstructions\tbytes\thits\t")
	var refused []string
	for _, r := range table.Rows {
		if r.Refusal != nil {
			refused = append(refused, fmt.Sprintf("%s, %s%s: %s: %s", r.Action, r.Mechanism, where(r), r.Refusal.Reason, r.Refusal.Detail))
			continue
		}
		bytes := "-"
		if r.Bytes > 0 {
			bytes = fmt.Sprint(r.Bytes)
		}
		fmt.Fprintf(w, "%s\t%s%s\t%v\t%s\t%d\t\n", r.Action, r.Mechanism, where(r), r.Added, bytes, r.N)
	}
	w.Flush()
	fmt.Fprintln(out, "\none insertion, instructions of the guest")
	w = tabwriter.NewWriter(out, 0, 8, 2, ' ', tabwriter.AlignRight)
	for _, p := range table.Insertion {
		fmt.Fprintf(w, "%s\t%v\t\n", p.Name, p.Insns)
	}
	w.Flush()
	for _, r := range refused {
		fmt.Fprintln(out, "none:", r)
	}
}
