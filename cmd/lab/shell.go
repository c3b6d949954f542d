package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

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
	f.add(c.Flags())
	c.Flags().StringVar(&f.time, "time", string(vm.Host), "exact (a nanosecond is an instruction) or host")
	f.addOwn(c.Flags(), 1)
	return c
}

// shellFlags are those of `lab shell`.
type shellFlags struct {
	common
	own
	time string
}

// shellMode makes the guest's init give the console to a person.
const shellMode = "lab.mode=shell"

// shell joins the terminal to a guest's console until it powers off.
func (f *shellFlags) shell(ctx context.Context) error {
	isa, err := f.one("a shell is in one guest")
	if err == nil {
		err = usage(f.own.check())
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
	spec, err := forOne(ctx, &f.common, &f.own, isa, dir.Path, nil)
	if err != nil {
		return err
	}
	spec.Append, spec.Interactive, spec.Time = shellMode, true, mode
	progress("leave with exit, or Ctrl-A X to kill the guest")
	m, err := qemu.Backend{}.Start(ctx, spec)
	if err != nil {
		return err
	}
	defer m.Kill()
	_, err = m.Wait(ctx)
	return err
}

// forOne is the specification of a guest of host time that one person looks into.
// Its initramfs is made in the run directory.
func forOne(ctx context.Context, c *common, o *own, arch, dir string, job []byte) (vm.Spec, error) {
	img, opts, err := c.image(ctx, arch)
	if err != nil {
		return vm.Spec{}, err
	}
	files, err := o.files(ctx, img, opts)
	if err != nil {
		return vm.Spec{}, err
	}
	wishes, err := o.wishes(img, files)
	if err != nil {
		return vm.Spec{}, err
	}
	initrd := filepath.Join(dir, "initrd")
	return vm.Spec{
		Arch: arch, Kernel: img.Kernel, Firmware: img.Firmware, Initrd: initrd, CPUs: max(1, wishes.CPUs),
		MemMiB: cmp.Or(wishes.MemMiB, runner.DefaultMemory), Time: vm.Host, Seed: 1, Dir: dir,
	}, img.WriteInitrd(initrd, job, files...)
}
