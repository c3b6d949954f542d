package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"kerninst/agent/plan"
	"kerninst/agent/probe"
	"kerninst/images"
	"kerninst/lab/qemu"
	"kerninst/lab/vm"
	"kerninst/scenarios"
)

// flagValue is what the shell can complete the value of a flag to.
type flagValue struct {
	list   bool // several values, separated by commas
	file   bool // or a file or folder
	open   bool // more is typed behind it
	values func() []string
	of     func(*cobra.Command) []string // instead, if it depends on other flags
}

// flagValues are the flags, in whatever command they are.
var flagValues = map[string]flagValue{
	"arch":      {list: true, values: func() []string { return append(images.Arches(), "all") }},
	"scenario":  {list: true, values: scenarios.Words},
	"time":      {values: func() []string { return []string{string(vm.Exact), string(vm.Host)} }},
	"do":        {values: probe.ActionWords, open: true},
	"mechanism": {values: plan.MechanismNames},

	"no-mechanism": {list: true, values: plan.MechanismNames},
	"kernel":       {file: true, of: kernelWordsOf},
	"with":         {list: true, values: images.Softwares},
	"end":          {values: keptGuests},
	"on":           {list: true, of: inventoryWords},
}

// asked are the words of a command line, with one more for a shell that asks what
// begins with nothing: to cobra, no word is an error, and one that it does not tell
// from a failed command.
func asked(words []string) []string {
	if len(words) == 1 && (words[0] == cobra.ShellCompRequestCmd || words[0] == cobra.ShellCompNoDescRequestCmd) {
		return append(words, "")
	}
	return words
}

// keptGuests are the folders of the guests that are kept, and the word for all.
func keptGuests() []string {
	out := []string{"all"}
	kept, _ := qemu.AllKept() // what cannot be listed is not offered
	for _, k := range kept {
		out = append(out, k.Dir)
	}
	return out
}

// kernelWordsOf are the words for kernels that a command knows, and that need no network.
func kernelWordsOf(c *cobra.Command) []string {
	if c.Name() == "matrix" {
		return append(cachedKernels(), lockedKernel)
	}
	return cachedKernels()
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
		flag := c.Flags().Lookup(name)
		if flag == nil {
			continue
		}
		f.list = f.list || flag.Value.Type() == "stringSlice" // one value of one command is several of another
		// It fails for a flag that is not there or is registered already.
		if err := c.RegisterFlagCompletionFunc(name, f.complete); err != nil {
			panic(err)
		}
	}
	for _, sub := range c.Commands() {
		completions(sub)
	}
}

// complete offers values, in a list those that are not in it yet. A shell offers
// files by itself where it is given nothing else.
func (f flagValue) complete(c *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	before, have := "", []string(nil)
	if cut := strings.LastIndex(typed, ","); f.list && cut >= 0 {
		before, have = typed[:cut+1], strings.Split(typed[:cut], ",")
	}
	if f.of != nil {
		f.values = func() []string { return f.of(c) }
	}
	var out []string
	for _, v := range f.values() {
		if !slices.Contains(have, v) && strings.HasPrefix(before+v, typed) {
			out = append(out, before+v)
		}
	}
	switch {
	case f.list && f.file:
		return out, cobra.ShellCompDirectiveNoSpace
	case f.list, f.open:
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	case f.file:
		return out, cobra.ShellCompDirectiveDefault
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// complete offers specifications, with the names of the functions of the kernel that is
// meant, should it be there already.
func (f *probeFlags) complete(c *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	out := probe.Complete(typed, func() []string {
		isa, err := f.one("")
		if err != nil {
			return nil
		}
		f.look = true
		img, _, err := f.image(c.Context(), isa)
		if err != nil {
			return nil
		}
		types, err := typesOf(img)
		if err != nil {
			return nil
		}
		return types.Functions()
	})
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
