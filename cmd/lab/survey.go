package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"kerninst/lab/analysis"
)

func surveyCommand() *cobra.Command {
	var f analyzeFlags
	c := &cobra.Command{
		Use:   "survey",
		Short: "how each instruction of a kernel can be spliced, or why not",
		Long: "Plan a counter at every instruction of a kernel's text, each alone, and print how\n" +
			"many each mechanism serves, and how many are refused for what reason.",
		Example: "  lab survey --arch amd64",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.check(c.Flags().Changed); err != nil {
				return usage(err)
			}
			return f.survey(c.Context())
		},
	}
	f.add(c.Flags())
	c.Flags().BoolVar(&f.json, "json", false, "print a document for machines, one for each ISA")
	c.Flags().StringVar(&f.dump, "dump", "", "survey this file, from lab image dump, instead of a guest's kernel")
	return c
}

func (f *analyzeFlags) survey(ctx context.Context) error {
	dumps, err := f.dumps(ctx)
	if err != nil {
		return err
	}
	for _, d := range dumps {
		k, err := analysis.Find(ctx, d, progress)
		if err != nil {
			return fmt.Errorf("%s: %w", d.Arch, err)
		}
		progress("%s: planning every instruction", d.Arch)
		s, err := analysis.NewSurvey(d, k.Index)
		if err != nil {
			return fmt.Errorf("%s: %w", d.Arch, err)
		}
		if !f.json {
			err = s.Print(os.Stdout)
		} else {
			e := json.NewEncoder(os.Stdout)
			e.SetIndent("", "  ")
			err = e.Encode(s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
