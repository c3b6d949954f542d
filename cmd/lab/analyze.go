package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"kerninst/agent/ktext"
	"kerninst/lab/analysis"
	"kerninst/lab/plain"
)

// analyzeFlags are those of `lab analyze`.
type analyzeFlags struct {
	common
	json, dot      bool
	archGiven      bool // or it is the default
	function, dump string
	modules        []string // to be loaded in a guest whose kernel is dumped
}

func analyzeCommand() *cobra.Command {
	var f analyzeFlags
	c := &cobra.Command{
		Use:   "analyze",
		Short: "control flow and live registers of a whole kernel, or of one function",
		Long: "Find the basic blocks of a kernel and the registers that are live in them, from\n" +
			"its text as it is in memory, and print the totals. With --function, print one\n" +
			"function: blocks, edges, live and free registers, and what must not be replaced.",
		Example: "  lab analyze --arch all\n" +
			"  lab analyze --arch riscv64 --function vfs_read\n" +
			"  lab analyze --function vfs_read --dot | dot -Tsvg >vfs_read.svg",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.check(c.Flags().Changed); err != nil {
				return usage(err)
			}
			return f.run(c.Context())
		},
	}
	f.add(c.Flags())
	c.Flags().BoolVar(&f.json, "json", false, "print a document for machines, one for each ISA")
	c.Flags().StringVar(&f.function, "function", "", "print one function, NAME or MODULE:NAME; NAME#2 is the second by address of those that share a name")
	c.Flags().BoolVar(&f.dot, "dot", false, "with --function: print its graph for graphviz")
	c.Flags().StringVar(&f.dump, "dump", "", "analyse this file, from lab image dump, instead of a guest's kernel")
	return c
}

// check says which flags, of those that were given, do not go together.
func (f *analyzeFlags) check(given func(flag string) bool) error {
	for name, value := range map[string]string{"function": f.function, "dump": f.dump} {
		if given(name) && value == "" { // a script's variable that is not set
			return fmt.Errorf("--%s: its value is empty", name)
		}
	}
	for _, name := range []string{"kernel", "mirror"} {
		if given("dump") && given(name) {
			return fmt.Errorf("--%s: the kernel is what --dump names", name)
		}
	}
	if f.function == "" && f.dot || f.json && f.function != "" {
		return errors.New("--dot goes with --function, --json without")
	}
	isas, err := arches(f.arch)
	if err == nil && f.function != "" && len(isas) != 1 {
		err = fmt.Errorf("--arch %s: --function is of one ISA", f.arch)
	}
	f.archGiven = given("arch")
	return err
}

func (f *analyzeFlags) run(ctx context.Context) error {
	dumps, err := f.dumps(ctx)
	if err != nil {
		return err
	}
	if f.function != "" {
		k, err := analysis.Analyse(dumps[0])
		if err != nil {
			return fmt.Errorf("%s: %w", dumps[0].Arch, err)
		}
		return f.show(k)
	}
	var totals []analysis.Totals
	for _, d := range dumps {
		k, err := analysis.Find(ctx, d, progress)
		if err != nil {
			return fmt.Errorf("%s: %w", d.Arch, err)
		}
		totals = append(totals, k.Totals)
	}
	if !f.json {
		return analysis.Table(os.Stdout, totals)
	}
	for _, t := range totals {
		b, err := json.MarshalIndent(t, "", "  ")
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", b)
	}
	return nil
}

// dumps reads the file that is named, or takes dumps of all ISAs asked for.
func (f *analyzeFlags) dumps(ctx context.Context) ([]*ktext.Dump, error) {
	if f.dump != "" {
		file, err := plain.Open(f.dump)
		if err != nil {
			return nil, usage(err)
		}
		defer file.Close()
		d, err := ktext.LoadDump(file)
		if err != nil {
			return nil, usage(fmt.Errorf("%s: %w", f.dump, err))
		}
		if f.archGiven && f.arch != d.Arch {
			return nil, usage(fmt.Errorf("--arch %s: %s is of %s", f.arch, f.dump, d.Arch))
		}
		return []*ktext.Dump{d}, nil
	}
	isas, err := arches(f.arch)
	if err != nil {
		return nil, err
	}
	var out []*ktext.Dump
	for _, a := range isas {
		d, err := f.common.dump(ctx, a, "", f.modules)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

// show prints one function.
func (f *analyzeFlags) show(k *analysis.Kernel) error {
	fn, err := k.Function(f.function)
	if err != nil {
		return usage(err)
	}
	if f.dot {
		return k.Dot(os.Stdout, fn)
	}
	return k.Listing(os.Stdout, fn)
}
