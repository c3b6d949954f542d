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
	f.addOwn(c.Flags(), 1)
	return c
}

// shellFlags are those of `lab shell`.
type shellFlags struct {
	common
	own
}

// shellMode makes the guest's init give the console to a person.
const shellMode = "lab.mode=shell"

// shell joins the terminal to a guest's console until it powers off.
func (f *shellFlags) shell(ctx context.Context) error {
	isas, err := arches(f.arch)
	if err != nil {
		return err
	}
	if len(isas) != 1 {
		return usage(fmt.Errorf("--arch %s: a shell is in one guest", f.arch))
	}
	if err := f.own.check(); err != nil {
		return usage(err)
	}
	if f.dryrun {
		a, err := f.dry(ctx, isas[0], &f.own, runner.Runner{Seed: 1}, func(*runner.Runner) []runner.Request {
			return []runner.Request{{Name: "shell", CPUs: 1, Time: vm.Host, Append: shellMode}}
		})
		if err != nil {
			return err
		}
		return dryDocument{Schema: 1, DryRun: true, Arches: []dryArch{a}}.print(false)
	}
	if !isTerminal(os.Stdin) {
		return usage(fmt.Errorf("a shell needs a terminal; lab probe runs a command without one"))
	}
	if err := qemu.Sweep(); err != nil {
		return err
	}
	img, opts, err := f.image(ctx, isas[0])
	if err != nil {
		return err
	}
	files, err := f.files(ctx, img, opts)
	if err != nil {
		return err
	}
	wishes, err := f.wishes(img, files, vm.Host)
	if err != nil {
		return err
	}
	dir, err := qemu.NewRunDir()
	if err != nil {
		return err
	}
	defer dir.Close()
	initrd := filepath.Join(dir.Path, "initrd")
	if err := img.WriteInitrd(initrd, nil, files...); err != nil {
		return err
	}
	progress("leave with exit, or Ctrl-A X to kill the guest")
	m, err := qemu.Backend{}.Start(ctx, vm.Spec{
		Arch: isas[0], Kernel: img.Kernel, Initrd: initrd, Append: shellMode,
		CPUs: max(1, wishes.CPUs), MemMiB: cmp.Or(wishes.MemMiB, runner.DefaultMemory), Time: vm.Host, Seed: 1, Interactive: true, Dir: dir.Path,
	})
	if err != nil {
		return err
	}
	defer m.Kill()
	_, err = m.Wait(ctx)
	return err
}
