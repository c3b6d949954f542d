package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"kerninst/agent/inline"
	"kerninst/agent/inlined"
	"kerninst/agent/ktext"
	"kerninst/images"
	"kerninst/lab/analysis"
	"kerninst/lab/card"
	"kerninst/lab/plain"
)

// inlineFlags are those of `lab inline`.
type inlineFlags struct {
	analyzeFlags
	known
	save string
}

// known is where what is known of copies is from.
type known struct{ copies string }

func (k *known) add(f *pflag.FlagSet) {
	f.StringVar(&k.copies, "copies", "", "what is known of inlined copies, of this `FILE` (lab inline --save), and not of the debug package")
}

func inlineCommand() *cobra.Command {
	var f inlineFlags
	c := &cobra.Command{
		Use:   "inline FUNCTION...",
		Short: "copies of a function that the compiler has inlined, and how each can be spliced",
		Long: "Print where a function of the kernel's source is in its code: each copy that was\n" +
			"inlined, in which function, by which others, called from which line, where it is\n" +
			"entered and left, and by which mechanism a counter gets there. What is known of\n" +
			"copies is made of the kernel's debug package, a gigabyte, when it is first asked for;\n" +
			"some megabytes are kept.",
		Example: "  lab inline fdget_pos --arch arm64\n" +
			"  lab inline get_current --json\n" +
			"  lab inline --save some.copies fdget fdput",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			err := f.check(c.Flags().Changed)
			if isas, failed := arches(f.arch); err == nil && failed == nil && len(isas) != 1 {
				err = fmt.Errorf("--arch %s: a function is looked for in one kernel", f.arch)
			}
			if err != nil {
				return usage(err)
			}
			return f.inline(c.Context(), args)
		},
	}
	f.analyzeFlags.add(c.Flags())
	f.known.add(c.Flags())
	c.Flags().StringVar(&f.save, "save", "", "write what is known of these functions to `FILE`, for --copies, and print nothing")
	c.Flags().BoolVar(&f.json, "json", false, "print a document for machines")
	c.Flags().StringVar(&f.dump, "dump", "", "look in this file, from lab image dump, instead of in a guest's kernel; it is of the locked kernel")
	return c
}

func (f *inlineFlags) inline(ctx context.Context, names []string) error {
	if f.save != "" {
		return f.write(ctx, names)
	}
	dumps, err := f.dumps(ctx)
	if err != nil {
		return err
	}
	d := dumps[0]
	x, err := f.index(ctx, &f.common, d.Arch)
	if err != nil {
		return err
	}
	k, err := analysis.Find(ctx, d, progress)
	if err != nil {
		return fmt.Errorf("%s: %w", d.Arch, err)
	}
	for _, name := range names {
		found, err := analysis.FindInlined(d, k, x, name)
		var none *analysis.NotInlinedError
		if errors.As(err, &none) {
			return usage(err)
		}
		if err == nil {
			err = f.print(found)
		}
		if err != nil {
			return otherBuild(d.Arch, err)
		}
	}
	return nil
}

// otherBuild tells from other errors that somebody gave what is known of another kernel.
func otherBuild(arch string, err error) error {
	err = fmt.Errorf("%s: %w", arch, err)
	var other *inlined.OtherBuildError
	if errors.As(err, &other) {
		return usage(err)
	}
	return err
}

func (f *inlineFlags) print(found *analysis.Inlined) error {
	if !f.json {
		return found.Print(os.Stdout)
	}
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(found)
}

// write makes the file for --save.
func (f *inlineFlags) write(ctx context.Context, names []string) error {
	arch, err := f.one("a file of copies is of one kernel")
	if err != nil {
		return err
	}
	x, err := f.index(ctx, &f.common, arch)
	if err != nil {
		return err
	}
	for _, name := range names {
		if len(x.Lookup(name)) == 0 {
			return usage(&analysis.NotInlinedError{Name: name, Hint: analysis.HintInlined(x, name)})
		}
	}
	only, err := x.Only(names...)
	if err != nil {
		return err
	}
	b, err := only.Bytes()
	if err == nil {
		err = os.WriteFile(f.save, b, 0o644)
	}
	return err
}

// index is what is known of the inlined copies of the kernel that the flags name.
func (k *known) index(ctx context.Context, c *common, arch string) (*inline.Index, error) {
	if k.copies != "" {
		b, err := plain.Read(k.copies, mostCopies)
		if err != nil {
			return nil, usage(fmt.Errorf("--copies: %w", err))
		}
		x, err := inline.Open(b)
		if err != nil {
			return nil, usage(fmt.Errorf("--copies %s: %w", k.copies, err))
		}
		if x.Arch != arch {
			return nil, usage(fmt.Errorf("--copies %s: it is of %s, not of %s", k.copies, x.Arch, arch))
		}
		return x, nil
	}
	root, err := repository()
	if err != nil {
		return nil, err
	}
	x, err := analysis.Copies(ctx, images.Options{Arch: arch, Kernel: images.KernelWord(c.kernel), Mirror: c.mirror, Root: root, Progress: progress})
	return x, kernelError(err)
}

// takeCopies puts what is known of inlined copies into a folder, for the daemon.
func (k *known) takeCopies(ctx context.Context, c *common, arch, dir string) ([]images.File, error) {
	x, err := k.index(ctx, c, arch)
	if err != nil {
		return nil, err
	}
	b, err := x.Bytes()
	if err != nil {
		return nil, err
	}
	file := images.File{Path: daemonCopies, Mode: 0o444, Source: filepath.Join(dir, "kernel.copies")}
	return []images.File{file}, os.WriteFile(file.Source, b, 0o600)
}

// daemonCopies is where the daemon looks for them.
const daemonCopies = "/lib/kerninst/kernel.copies"

// readBefore tells lines of the source on cards, of kernels whose debugging information has been read
// before: nothing is fetched for a card. Whoever has built a kernel has it at hand.
func readBefore(opts images.Options) func(func() (*ktext.Dump, error)) (card.Source, error) {
	opts.Offline = true
	return func(dump func() (*ktext.Dump, error)) (card.Source, error) {
		x, err := analysis.Copies(context.Background(), opts)
		var none *images.NoDebugError
		if errors.Is(err, images.ErrNotCached) || errors.As(err, &none) {
			return nil, fmt.Errorf("the kernel's debugging information has not been read; bin/lab inline --arch %s fdget does so, once", opts.Arch)
		}
		if err != nil {
			return nil, err
		}
		d, err := dump()
		if err != nil {
			return nil, err
		}
		n, err := analysis.CopiesIn(d, x)
		if err != nil {
			return nil, err
		}
		return n.Source, nil
	}
}

// mostCopies bounds a file of copies, in bytes.
const mostCopies = 64 << 20
