package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"kerninst/images"
	"kerninst/lab/qemu"
	"kerninst/lab/runner"
	"kerninst/lab/vm"
)

func shellCommand() *cobra.Command {
	var f shellFlags
	c := &cobra.Command{
		Use:     "shell",
		Short:   "a shell in a guest, with kinst on the PATH",
		Example: "  lab shell --arch riscv64",
		RunE:    func(c *cobra.Command, _ []string) error { return f.shell(c.Context()) },
	}
	f.common.add(c.Flags())
	c.Flags().StringVar(&f.time, "time", string(vm.Host), "exact (a nanosecond is an instruction) or host")
	f.addOwn(c.Flags(), 1)
	c.Flags().BoolVar(&f.inline, "inline", false, "take what is known of inlined copies along, for kinst --inline (see lab inline)")
	f.known.add(c.Flags())
	f.known.addModules(c.Flags(), "modules of the kernel, `NAME[,NAME...]`, whose copies --inline takes along, too")
	return c
}

// shellFlags are those of `lab shell`.
type shellFlags struct {
	common
	own
	known
	time   string
	inline bool
}

// shellMode makes the guest's init give the console to a person.
const shellMode = "lab.mode=shell"

// shell joins the terminal to a guest's console until it powers off.
func (f *shellFlags) shell(ctx context.Context) error {
	isa, err := f.one("a shell is in one guest")
	if err == nil {
		err = usage(f.check())
	}
	if err != nil {
		return err
	}
	mode, err := parseTime(f.time)
	if err != nil {
		return err
	}
	if f.dryrun {
		return f.dryOne(ctx, isa, &f.own, runner.Request{Name: "shell", Append: shellMode, Time: mode})
	}
	if !isTerminal(os.Stdin) {
		return usage(fmt.Errorf("a shell needs a terminal; lab probe runs a command without one"))
	}
	if err := qemu.Sweep(); err != nil {
		return err
	}
	dir, err := qemu.NewRunDir()
	if err != nil {
		return err
	}
	defer dir.Close()
	var copies []images.File
	if f.inline {
		if copies, err = f.takeCopies(ctx, &f.common, isa, dir.Path); err != nil {
			return err
		}
	}
	spec, err := forOne(ctx, &f.common, &f.own, isa, dir.Path, nil, copies...)
	if err != nil {
		return err
	}
	spec.Append, spec.Interactive, spec.Time = shellMode+" "+spec.Append, true, mode
	progress("leave with exit, or Ctrl-A X to kill the guest")
	m, err := qemu.Backend{}.Start(ctx, spec)
	if err != nil {
		return err
	}
	defer m.Kill()
	_, err = m.Wait(ctx)
	return err
}

// check looks at the flags that need no guest to be wrong.
func (f *shellFlags) check() error {
	switch {
	case len(f.named) > 0 && !f.inline:
		return errors.New("--module: it says of which modules --inline knows copies, which is not given")
	case len(f.copies) > 0 && !f.inline:
		return errors.New("--copies: it says where --inline finds copies, which is not given")
	case f.inline && f.dryrun:
		return errors.New("--inline with --dry-run: what is known of copies would have to be made")
	}
	return f.own.check()
}

// forOne is the specification of a guest of host time that one person looks into, with more files than
// that person wants. Its initramfs is made in the run directory.
func forOne(ctx context.Context, c *common, o *own, arch, dir string, job []byte, more ...images.File) (vm.Spec, error) {
	img, opts, err := c.image(ctx, arch)
	if err != nil {
		return vm.Spec{}, err
	}
	files, err := o.files(ctx, img, opts)
	if err != nil {
		return vm.Spec{}, err
	}
	files = append(files, more...)
	wishes, err := o.wishes(img, files)
	if err != nil {
		return vm.Spec{}, err
	}
	initrd := filepath.Join(dir, "initrd")
	return vm.Spec{
		Arch: arch, Kernel: img.Kernel, Firmware: img.Firmware, Initrd: initrd, CPUs: max(1, wishes.CPUs), Append: wishes.Append,
		MemMiB: cmp.Or(wishes.MemMiB, runner.DefaultMemory), Time: vm.Host, Seed: 1, Dir: dir,
	}, img.WriteInitrd(initrd, job, files...)
}
