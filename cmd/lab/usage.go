package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"kerninst/lab/near"
)

// oneOf refuses a value that is none of the known ones, and names the nearest.
func oneOf(flag, value string, known []string) error {
	for _, k := range known {
		if value == k {
			return nil
		}
	}
	return usage(fmt.Errorf("--%s %s: want one of %s%s", flag, value, strings.Join(known, ", "), near.Hint(value, known)))
}

// flagError says which flag was meant.
func flagError(c *cobra.Command, err error) error {
	hint := ""
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if n := near.Word(unknown.GetSpecifiedName(), names); n != "" {
			hint = "; did you mean --" + n + "?"
		}
	}
	return usage(fmt.Errorf("%w%s; see %s --help", err, hint, c.CommandPath()))
}

// noVerb is what a command that only has verbs answers to another word.
func noVerb(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var verbs []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			verbs = append(verbs, sub.Name())
		}
	}
	return fmt.Errorf("unknown command %q for %q%s", args[0], c.CommandPath(), near.Hint(args[0], verbs))
}
