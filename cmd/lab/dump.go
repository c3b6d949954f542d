package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"kerninst/agent/index"
	"kerninst/agent/isa/all"
	"kerninst/agent/ktext"
	"kerninst/images"
	"kerninst/lab/analysis"
	"kerninst/lab/qemu"
	"kerninst/lab/runner"
)

func imageDumpCommand() *cobra.Command {
	var f common
	var appendix string
	var modules []string
	c := &cobra.Command{
		Use:   "dump FILE",
		Short: "write the kernel's text, symbols and tables, as they are in a guest that has booted",
		Long: "Write the kernel's text, symbols and tables, as they are in a guest that has\n" +
			"booted, to a file. The first dump of a kernel starts a guest; later ones come\n" +
			"from the cache.",
		Example: "  lab image dump --arch arm64 arm64.dump",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			isas, err := arches(f.arch)
			if err != nil {
				return err
			}
			if len(isas) != 1 {
				return usage(fmt.Errorf("--arch %s: a dump is of one ISA", f.arch))
			}
			d, err := f.dump(c.Context(), isas[0], appendix, modules)
			if err != nil {
				return err
			}
			return writeDump(args[0], d)
		},
	}
	f.add(c.Flags())
	c.Flags().StringVar(&appendix, "append", "", "text to add to the kernel's command line")
	c.Flags().StringSliceVar(&modules, "modprobe", nil, "modules of the kernel to load before, and to dump with it, `NAME[,NAME...]`")
	return c
}

// dump takes a dump of a kernel, with modules that it loads, from the cache or from a
// guest.
func (c *common) dump(ctx context.Context, arch, appendix string, modules []string) (*ktext.Dump, error) {
	if err := qemu.Sweep(); err != nil {
		return nil, err
	}
	img, opts, err := c.image(ctx, arch)
	if err != nil {
		return nil, err
	}
	files, err := (&own{modules: modules}).load(ctx, img, opts)
	if err != nil {
		return nil, err
	}
	return runner.New(runner.Runner{Image: img, Backend: qemu.Backend{}, Seed: 1, Jobs: 1, Progress: progress}).DumpWith(ctx, appendix, modules, files)
}

// takeIndex puts the index of the kernel into a folder, as it is with appendix on its command line; it is made
// if there is none yet.
func (c *common) takeIndex(ctx context.Context, arch, appendix, dir string) (images.File, error) {
	file := images.File{Path: daemonIndex, Mode: 0o644, Source: filepath.Join(dir, "kernel.index")}
	d, err := c.dump(ctx, arch, appendix, nil)
	if err != nil {
		return file, err
	}
	s, err := analysis.Find(ctx, d, progress)
	if err != nil {
		return file, err
	}
	return file, os.WriteFile(file.Source, s.Bytes, 0o600)
}

// readIndex reads what takeIndex wrote.
func readIndex(file string) (*index.Index, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return index.Open(b)
}

// takeText reads the text of a kernel from its dump, with appendix as takeIndex has it.
func (c *common) takeText(ctx context.Context, arch, appendix string) (*ktext.Text, error) {
	d, err := c.dump(ctx, arch, appendix, nil)
	if err != nil {
		return nil, err
	}
	how, err := all.Lookup(arch)
	if err != nil {
		return nil, err
	}
	return d.Text(how)
}

// daemonIndex is where the daemon looks for the index.
const daemonIndex = "/lib/kerninst/kernel.index"

func writeDump(file string, d *ktext.Dump) error {
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return usage(err)
	}
	if err := errors.Join(d.Write(out, nil), out.Close()); err != nil {
		os.Remove(file)
		return err
	}
	for _, p := range d.Parts {
		fmt.Printf("%v\t%d\t%s\n", p.Addr, p.Size, p.Name)
	}
	return nil
}
