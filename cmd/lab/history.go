package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"kerninst/lab/history"
	"kerninst/lab/report"
	"kerninst/lab/runs"
	"kerninst/lab/status"
)

// historyFile is the page, in the folder that was named.
const historyFile = "history.html"

// historyFlags are those of `lab history`.
type historyFlags struct {
	metrics []string
	html    string
	all     bool
	json    bool
}

func historyCommand() *cobra.Command {
	var f historyFlags
	c := &cobra.Command{
		Use:   "history DIR",
		Short: "show how figures went over all runs below a folder",
		Long: "Show how figures went over all runs below a folder, in order of time.\n\n" +
			"Without --metric there is a line for each figure that has ever changed, with a small\n" +
			"plot; with it, one for each run. A page with a plot of each figure is written to\n" +
			"DIR/history.html; a line there is where the kernel, QEMU or the lab's sources\n" +
			"changed.\n\n" +
			"Exit status: 0, 2 if there is no run or no such figure, or if a run could not be\n" +
			"read: then it is said which, and the others are shown.",
		Example: "  lab history out\n  lab history out --metric 'arm64/cost/splice.*'",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("html") && f.html == "" {
				return usage(errors.New("--html: its value is empty"))
			}
			return f.history(args[0], c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	c.Flags().StringArrayVar(&f.metrics, "metric", nil, "`PATTERN` of figures: METRIC, SCENARIO/METRIC or ISA/SCENARIO/METRIC, with a shell's wildcards; may be repeated")
	c.Flags().StringVar(&f.html, "html", "", "write the page to this `FILE` (default: DIR/history.html; none with --json)")
	c.Flags().BoolVar(&f.all, "all", false, "list figures that never changed, too")
	c.Flags().BoolVar(&f.json, "json", false, "print one JSON document")
	return c
}

func (f *historyFlags) history(dir string, out, messages io.Writer) error {
	only, err := runs.ParsePatterns(f.metrics)
	if err != nil {
		return usage(fmt.Errorf("--metric: %w", err))
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return usage(fmt.Errorf("%s is no folder: want one with runs below it", dir))
	}
	all, errs := readBelow(dir)
	h := history.Of(all, only)
	switch {
	case len(h.Series) > 0:
	case len(errs) > 0:
		return usage(firstOf(errs))
	case len(only) > 0:
		return usage(fmt.Errorf("no figure of the runs below %s is one that --metric %s chooses: lab history %s --all lists them", dir, strings.Join(f.metrics, ", "), dir))
	default:
		return usage(fmt.Errorf("%s: the runs below have no figures: those of cost or count have some", dir))
	}
	for _, err := range errs {
		fmt.Fprintln(messages, "left out:", err)
	}
	if left := unfinished(all); len(left) > 0 {
		fmt.Fprintln(messages, "left out, as they ended before they had results:", strings.Join(left, ", "))
	}
	if err := f.print(h, out); err != nil {
		return err
	}
	if err := f.page(h, dir, messages); err != nil {
		return err
	}
	if len(errs) > 0 {
		return &exit{code: status.ExitUsage}
	}
	return nil
}

func (f *historyFlags) print(h *history.History, out io.Writer) error {
	switch {
	case f.json:
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(h)
	case len(f.metrics) > 0:
		return h.Lines(out)
	}
	return h.Overview(out, f.all)
}

// page writes the plots, if it is to.
func (f *historyFlags) page(h *history.History, dir string, messages io.Writer) error {
	name := f.html
	switch {
	case name == "" && f.json:
		return nil
	case name == "":
		name = filepath.Join(dir, historyFile)
	}
	var b bytes.Buffer
	err := h.Page(&b)
	if err == nil {
		err = report.ReplaceFile(name, b.Bytes())
	}
	if err != nil {
		return fmt.Errorf("%w; --html FILE writes the page elsewhere", err)
	}
	fmt.Fprintln(messages, "page:", name)
	return nil
}

// readBelow reads all runs below a folder that can be read, and says what of the others.
func readBelow(dir string) (all []*runs.Run, errs []error) {
	places, errs := runs.Find(dir)
	for _, p := range places {
		r, err := p.Read()
		switch {
		case err != nil:
			errs = append(errs, err)
		case r.Start.IsZero() && !r.Unfinished:
			errs = append(errs, fmt.Errorf("%s: nothing says when it was: want %s beside it, or a folder that is named by the time", r.File, report.TimingsFile))
		default:
			all = append(all, r)
		}
	}
	return all, errs
}

func unfinished(all []*runs.Run) (names []string) {
	for _, r := range all {
		if r.Unfinished {
			names = append(names, filepath.Join(r.Name, r.Results.Arch))
		}
	}
	return names
}
