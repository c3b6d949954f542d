package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"kerninst/agent/inline"
	"kerninst/agent/inlined"
	"kerninst/agent/near"
	"kerninst/images"
	"kerninst/lab/analysis"
)

// inlineFlags are those of `lab inline`.
type inlineFlags struct {
	analyzeFlags
	known
	save string
}

func inlineCommand() *cobra.Command {
	var f inlineFlags
	c := &cobra.Command{
		Use:   "inline FUNCTION... | --save FILE [FUNCTION...]",
		Short: "copies of a function that the compiler has inlined, and how each can be spliced",
		Long: "Print where a function of the kernel's source is in its code: each copy that was\n" +
			"inlined, in which function, by which others, called from which line, where it is\n" +
			"entered and left, and by which mechanism a counter gets there. What is known of\n" +
			"copies is made of the kernel's debug package, a gigabyte, when it is first asked for;\n" +
			"some megabytes are kept. With --module it is of that module's debug file, in the same\n" +
			"package, and the guest that is looked into loads the module.\n" +
			"A file of --save FILE answers --copies FILE for the functions that it was made for, and\n" +
			"of others says so; made for none, it has all, 11 to 14 MB for a kernel.",
		Example: "  lab inline fdget_pos --arch arm64\n" +
			"  lab inline get_current --json\n" +
			"  lab inline --module ext4 ext4_get_group_no_and_offset\n" +
			"  lab inline --save some.copies fdget fdput\n" +
			"  lab inline --save all.copies",
		Args: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("save") {
				return nil
			}
			return cobra.MinimumNArgs(1)(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			f.named = once(f.named)
			if err := f.check(c.Flags().Changed); err != nil {
				return usage(err)
			}
			return f.inline(c.Context(), once(args))
		},
	}
	f.analyzeFlags.add(c.Flags())
	f.known.add(c.Flags())
	f.known.addModules(c.Flags(), "look in this module of the kernel, `NAME`, and not in the kernel's own text")
	c.Flags().StringVar(&f.save, "save", "", "write what is known of these functions, or without one of all, to `FILE`, for --copies, and do not look into a kernel")
	c.Flags().BoolVar(&f.json, "json", false, "print a document for machines, for each function")
	c.Flags().StringVar(&f.dump, "dump", "", "look in this file, from lab image dump, instead of in a guest's kernel; it is of the locked kernel")
	return c
}

// check looks at the flags that need no guest to be wrong.
func (f *inlineFlags) check(given func(flag string) bool) error {
	isas, err := arches(f.arch)
	switch {
	case given("save") && f.save == "":
		return errors.New("--save: no file is named")
	case f.save != "" && (f.json || f.dump != ""):
		return errors.New("--save: nothing is printed, and no kernel is looked into: without --json and --dump")
	case err == nil && len(isas) != 1:
		return fmt.Errorf("--arch %s: a function is looked for in one kernel", f.arch)
	case len(f.named) > 1:
		return errors.New("--module: a function is looked for in one module")
	}
	return f.analyzeFlags.check(given)
}

func (f *inlineFlags) inline(ctx context.Context, names []string) error {
	if f.save != "" {
		return f.write(ctx, names)
	}
	if len(f.copies) > 0 && f.dump == "" { // which is looked at before a guest boots
		if _, err := f.knownOf(ctx, f.arch, names); err != nil {
			return err
		}
	}
	f.modules = f.named
	dumps, err := f.dumps(ctx)
	if err != nil {
		return ofModuleFlag(err)
	}
	d := dumps[0]
	for _, m := range f.named { // before a gigabyte is fetched for what cannot be looked into
		if err := analysis.HasModule(d, images.ModuleName(m)); err != nil && f.dump != "" {
			return usage(fmt.Errorf("--dump %s: the kernel had not loaded module %s", f.dump, images.ModuleName(m)))
		} else if err != nil {
			return usage(fmt.Errorf("--module: %w", err))
		}
	}
	about, err := f.ofOne(ctx, d.Arch)
	if err != nil {
		return err
	}
	k, err := analysis.Find(ctx, d, progress)
	if err != nil {
		return fmt.Errorf("%s: %w", d.Arch, err)
	}
	found, err := analysis.FindInlined(d, k, about.kernel, about.module(), names)
	if err != nil {
		return askedWrong(fmt.Errorf("%s: %w", d.Arch, err))
	}
	for _, one := range found {
		if err := f.print(one); err != nil {
			return err
		}
	}
	return nil
}

// ofOne is what is known of the kernel's own text, or of the module's that is named.
func (f *inlineFlags) ofOne(ctx context.Context, arch string) (*knowledge, error) {
	about, err := f.about(ctx, &f.common, arch, len(f.named) == 0, f.named)
	if err == nil && about.kernel != nil && len(about.modules) > 0 {
		err = usage(fmt.Errorf("--copies %s: a file of module %s, of which nothing is asked: --module %[2]s", strings.Join(f.copies, ", "), about.modules[0].Name))
	}
	return about, err
}

// knownOf is ofOne, which has to know some functions.
func (f *inlineFlags) knownOf(ctx context.Context, arch string, names []string) (*knowledge, error) {
	about, err := f.ofOne(ctx, arch)
	if err != nil {
		return nil, err
	}
	x, module := about.index()
	if err := analysis.KnownInlined(x, module, names); err != nil {
		return nil, askedWrong(fmt.Errorf("%s: %w", arch, err))
	}
	return about, nil
}

// once are the words without those that were there before.
func once(words []string) (out []string) {
	for _, w := range words {
		if !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out
}

// askedWrong tells from other errors that somebody gave what is known of another kernel, or of other functions, or asks for a function that is none.
func askedWrong(err error) error {
	var other *inlined.OtherBuildError
	var part *inline.PartError
	var none *analysis.NotInlinedError
	if errors.As(err, &other) || errors.As(err, &part) || errors.As(err, &none) {
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
	about, err := f.knownOf(ctx, arch, names)
	if err != nil {
		return err
	}
	x, _ := about.index()
	of := "all that is known"
	var b []byte
	switch {
	case len(names) > 0:
		of = strings.Join(names, ", ")
		b, err = about.only(names)
	case x.Of != nil: // all of a part
		of = strings.Join(x.Of, ", ")
		fallthrough
	default:
		b, err = about.whole()
	}
	if err != nil {
		return err
	}
	if err := os.WriteFile(f.save, b, 0o644); err != nil {
		return usage(fmt.Errorf("--save: %w", err))
	}
	progress("inline: %s has %s, of %d bytes", near.Quoted(f.save), of, len(b))
	return nil
}
