package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"kerninst/agent/plan"
	"kerninst/images"
	"kerninst/lab/vm"
	"kerninst/scenarios"
)

// flagValues are the flags whose values the shell can complete, in whatever
// command they are.
var flagValues = map[string]struct {
	list   bool // several values, separated by commas
	values func() []string
}{
	"arch":      {true, func() []string { return append(images.Arches(), "all") }},
	"scenario":  {true, scenarios.Words},
	"time":      {false, func() []string { return []string{string(vm.Exact), string(vm.Host)} }},
	"do":        {false, func() []string { return []string{"count"} }},
	"mechanism": {false, plan.MechanismNames},
	"kernel":    {false, cachedKernels},
}

// cachedKernels are the kernels that need no network.
func cachedKernels() []string {
	root, err := repository()
	if err != nil {
		return nil
	}
	var all []string
	for _, arch := range images.Arches() {
		kernels, _ := images.Kernels(images.Options{Root: root, Arch: arch})
		all = append(all, kernels...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// completions gives a command's flags, and those of all below it, what the shell
// can complete.
func completions(c *cobra.Command) {
	for name, f := range flagValues {
		if c.Flags().Lookup(name) == nil {
			continue
		}
		// It fails for a flag that is not there or is registered already.
		if err := c.RegisterFlagCompletionFunc(name, complete(f.list, f.values)); err != nil {
			panic(err)
		}
	}
	for _, sub := range c.Commands() {
		completions(sub)
	}
}

// complete offers values, in a list those that are not in it yet.
func complete(list bool, values func() []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		before, have := "", []string(nil)
		if cut := strings.LastIndex(typed, ","); list && cut >= 0 {
			before, have = typed[:cut+1], strings.Split(typed[:cut], ",")
		}
		var out []string
		for _, v := range values() {
			if !slices.Contains(have, v) && strings.HasPrefix(before+v, typed) {
				out = append(out, before+v)
			}
		}
		if list {
			return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}
