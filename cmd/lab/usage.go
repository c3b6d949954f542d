package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"kerninst/agent/near"
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

// wrapArgs marks wrong arguments as the caller's error, of a command and of all
// below it: cobra knows no difference between those and a failed command. It calls a
// word too many an unknown command, and does not run what only has verbs.
func wrapArgs(c *cobra.Command) {
	check := c.Args
	switch {
	case c.Name() == "help":
		check = topic
		c.RunE = func(c *cobra.Command, args []string) error {
			about, _, err := c.Root().Find(args)
			if err != nil {
				return usage(err)
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		}
	case c.HasSubCommands():
		check = noVerb
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	case check == nil, c.HasParent() && c.Parent().Name() == "completion":
		check = noWord
	}
	c.Args = func(c *cobra.Command, args []string) error {
		err := check(c, args)
		if err != nil && !c.HasSubCommands() {
			err = fmt.Errorf("%w; want %s", err, c.UseLine())
		}
		if err != nil {
			return usage(fmt.Errorf("%w; see %s --help", err, c.CommandPath()))
		}
		return nil
	}
	for _, sub := range c.Commands() {
		wrapArgs(sub)
	}
}

// noWord is cobra.NoArgs for a command without verbs.
func noWord(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q", args[0])
	}
	return nil
}

// noVerb is what a command that only has verbs answers to another word.
func noVerb(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var verbs []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() || sub.Name() == "help" {
			verbs = append(verbs, sub.Name())
		}
	}
	return fmt.Errorf("unknown command %q for %q%s", args[0], c.CommandPath(), near.Hint(args[0], verbs))
}

// topic refuses words that help has nothing about.
func topic(c *cobra.Command, args []string) error {
	about, rest, err := c.Root().Find(args)
	switch {
	case err != nil || len(rest) == 0:
		return err
	case about.HasSubCommands():
		return noVerb(about, rest)
	}
	return noWord(about, rest)
}
