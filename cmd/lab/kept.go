package main

import (
	"errors"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"kerninst/lab/qemu"
)

func keptCommand() *cobra.Command {
	var end string
	c := &cobra.Command{
		Use:   "kept",
		Short: "list the guests that lab run --keep has left, or end them",
		Long: "List the guests that lab run --keep and lab gdb --print have left, or end them.\n\n" +
			"They take memory until they are ended. Nothing else ends them but a reboot.",
		Example: "  lab kept\n  lab kept --end all",
		RunE:    func(*cobra.Command, []string) error { return kept(end) },
	}
	c.Flags().StringVar(&end, "end", "", "end the guest in this directory of the list, or all")
	return c
}

func kept(end string) error {
	if end != "" && end != "all" {
		k, err := qemu.FindKept(end)
		if err != nil {
			return usage(err)
		}
		return k.End()
	}
	all, err := qemu.AllKept()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	var errs []error
	for _, k := range all {
		if end == "all" {
			errs = append(errs, k.End())
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\tprocess %d\n", k.Dir, k.Arch, k.Guest, k.State, k.Pid)
	}
	return errors.Join(append(errs, w.Flush())...)
}
