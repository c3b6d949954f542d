package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"kerninst/lab/report"
)

func reportCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "report DIR",
		Short:   "make report.html and summary.md of a run's directory again",
		Example: "  lab report out/latest",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if _, err := os.Stat(args[0]); err != nil {
				return usage(err)
			}
			if doc, err := readMatrix(args[0]); err == nil {
				if err := renderMatrix(args[0], doc); err != nil {
					return err
				}
				fmt.Println(filepath.Join(args[0], report.HTMLFile))
				return nil
			} else if !errors.Is(err, fs.ErrNotExist) {
				return usage(err)
			}
			var bad *report.InputError
			if err := report.WriteReport(args[0]); errors.As(err, &bad) {
				return usage(fmt.Errorf("%w: run it again, or lab report another folder", err))
			} else if err != nil {
				return err
			}
			fmt.Println(filepath.Join(args[0], report.HTMLFile))
			return nil
		},
	}
}
