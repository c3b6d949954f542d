package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"kerninst/lab/qemu"
)

func keptCommand() *cobra.Command {
	var f keptFlags
	c := &cobra.Command{
		Use:   "kept",
		Short: "list the guests that were kept, or end them",
		Long: "List the guests that --keep and lab gdb --print have left, or end them.\n\n" +
			"They take memory until they are ended. Nothing else ends them but a reboot.",
		Example: "  lab kept\n  lab kept --end out/latest\n  lab kept --end all",
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("end") && f.end == "" { // a script's variable that is not set
				return usage(errors.New("--end: its value is empty; want a directory, or all"))
			}
			return f.kept()
		},
	}
	c.Flags().StringVar(&f.end, "end", "", "end the guest in this directory of the list, or those that this run has kept, or all")
	c.Flags().BoolVar(&f.json, "json", false, "print one JSON document")
	return c
}

// keptFlags are those of `lab kept`.
type keptFlags struct {
	end  string
	json bool
}

// keptDocument is what --json prints.
type keptDocument struct {
	Schema int        `json:"schema"`
	Kept   []keptLine `json:"kept"`
}

type keptLine struct {
	Dir     string `json:"dir"`
	Arch    string `json:"arch"`
	Guest   string `json:"guest"`
	State   string `json:"state"` // in which it was left, for people
	Pid     int    `json:"pid"`
	GDB     string `json:"gdb"`               // socket of gdb's server
	Symbols string `json:"symbols,omitempty"` // ELF file of the kernel
}

func (f *keptFlags) kept() error {
	all, err := qemu.AllKept()
	if err == nil && f.end != "" && f.end != "all" {
		all, err = keptOf(f.end)
	}
	if err != nil {
		return usage(err)
	}
	if f.end != "" {
		var errs []error
		for _, k := range all {
			errs = append(errs, k.End())
		}
		return errors.Join(errs...)
	}
	doc := keptDocument{Schema: 1, Kept: []keptLine{}}
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	for _, k := range all {
		doc.Kept = append(doc.Kept, keptLine{k.Dir, k.Arch, k.Guest, k.State, k.Pid, k.GDB(), k.Symbols()})
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\tprocess %d\n", k.Dir, k.Arch, k.Guest, k.State, k.Pid)
	}
	if f.json {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(doc)
	}
	return w.Flush()
}
