package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"kerninst/agent/inline"
	"kerninst/images"
	"kerninst/lab/analysis"
)

func inlineCommand() *cobra.Command {
	var f analyzeFlags
	c := &cobra.Command{
		Use:   "inline FUNCTION",
		Short: "copies of a function that the compiler has inlined, and how each can be spliced",
		Long: "Print where a function of the kernel's source is in its code: each copy that was\n" +
			"inlined, in which function, by which others, called from which line, where it is\n" +
			"entered and left, and by which mechanism a counter gets there. What is known of\n" +
			"copies is made of the kernel's debug package, a gigabyte, when it is first asked for;\n" +
			"some megabytes are kept.",
		Example: "  lab inline fdget_pos --arch arm64\n" +
			"  lab inline get_current --json",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			err := f.check(c.Flags().Changed)
			if isas, failed := arches(f.arch); err == nil && failed == nil && len(isas) != 1 {
				err = fmt.Errorf("--arch %s: a function is looked for in one kernel", f.arch)
			}
			if err != nil {
				return usage(err)
			}
			return f.inline(c.Context(), args[0])
		},
	}
	f.add(c.Flags())
	c.Flags().BoolVar(&f.json, "json", false, "print a document for machines")
	c.Flags().StringVar(&f.dump, "dump", "", "look in this file, from lab image dump, instead of in a guest's kernel; it is of the locked kernel")
	return c
}

func (f *analyzeFlags) inline(ctx context.Context, name string) error {
	dumps, err := f.dumps(ctx)
	if err != nil {
		return err
	}
	d := dumps[0]
	x, err := f.copies(ctx, d.Arch)
	if err != nil {
		return err
	}
	k, err := analysis.Find(ctx, d, progress)
	if err != nil {
		return fmt.Errorf("%s: %w", d.Arch, err)
	}
	found, err := analysis.FindInlined(d, k, x, name)
	var none *analysis.NotInlinedError
	if errors.As(err, &none) {
		return usage(err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", d.Arch, err)
	}
	if !f.json {
		return found.Print(os.Stdout)
	}
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(found)
}

// copies is what is known of the inlined copies of the kernel that the flags name.
func (c *common) copies(ctx context.Context, arch string) (*inline.Index, error) {
	root, err := repository()
	if err != nil {
		return nil, err
	}
	x, err := analysis.Copies(ctx, images.Options{Arch: arch, Kernel: images.KernelWord(c.kernel), Mirror: c.mirror, Root: root, Progress: progress})
	return x, kernelError(err)
}
