package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"kerninst/lab/compare"
	"kerninst/lab/plain"
	"kerninst/lab/runs"
	"kerninst/lab/status"
)

// compareFlags are those of `lab compare`.
type compareFlags struct {
	threshold  string
	thresholds string
	metrics    []string
	confidence float64
	kernels    bool
	all        bool
	json       bool
	markdown   bool
}

func compareCommand() *cobra.Command {
	var f compareFlags
	c := &cobra.Command{
		Use:   "compare A B",
		Short: "say in what two runs differ, or two folders with several of each",
		Long: "Say in what runs differ: figures, how scenarios came out, what they were made with.\n\n" +
			"A and B are each the folder of a run, one with several runs below it, or a file\n" +
			"results.json. What is exact is compared with the run of the same seed: each\n" +
			"difference is a change. What is measured in host time is samples, of all runs of a\n" +
			"side: the change is the median of all differences, with its interval; ~ stands where\n" +
			"Mann and Whitney's test does not tell the samples apart. Four of each can differ\n" +
			"by more than chance, fewer cannot.\n\n" +
			"It is a failure if a figure gets worse by more than its threshold, or changes so\n" +
			"much where nobody says what is worse, or if a scenario comes out worse.\n\n" +
			compare.LimitsForm + "\n" +
			"Exit status: 0 nothing is worse than it may be, 1 something is, or what was to be\n" +
			"compared is not alike (another kernel, exact time and host time, another unit),\n" +
			"2 there is nothing to compare, or a folder, a file or a threshold is wrong.",
		Example: "  lab compare out/before out/after\n  lab compare --threshold 2% --metric 'cost/*' baseline/results.json out/latest\n" +
			"  lab compare --markdown --thresholds limits.txt baseline out/latest >>\"$GITHUB_STEP_SUMMARY\"",
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			return f.compare(args[0], args[1], c.Flags().Changed, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	c.Flags().StringVar(&f.threshold, "threshold", "0%", "`LIMIT`: how much worse figures may be, of what they were; - for any")
	c.Flags().StringVar(&f.thresholds, "thresholds", "", "`FILE` with thresholds of single figures; --threshold is that of the others")
	c.Flags().StringArrayVar(&f.metrics, "metric", nil, "`PATTERN` of the figures to compare, as in a file of thresholds; may be repeated")
	c.Flags().Float64Var(&f.confidence, "confidence", 0.95, "of what is said of samples")
	c.Flags().BoolVar(&f.kernels, "across-kernels", false, "another kernel is no failure by itself")
	c.Flags().BoolVar(&f.all, "all", false, "show figures that are the same, too")
	c.Flags().BoolVar(&f.json, "json", false, "print one JSON document")
	c.Flags().BoolVar(&f.markdown, "markdown", false, "print Markdown, for the summary of a job")
	return c
}

func (f *compareFlags) compare(a, b string, given func(flag string) bool, out, messages io.Writer) error {
	o, err := f.options(given)
	if err != nil {
		return usage(err)
	}
	sides := [2]compare.Side{{Name: a}, {Name: b}}
	at := map[string]bool{}
	for i := range sides {
		if sides[i].Runs, err = readSide(sides[i].Name, at); err != nil {
			return usage(err)
		}
	}
	c, err := compare.Compare(sides[0], sides[1], o)
	if err != nil {
		return usage(err)
	}
	for _, m := range c.Messages() {
		fmt.Fprintln(messages, m)
	}
	switch {
	case f.json:
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		err = enc.Encode(c)
	case f.markdown:
		err = c.Markdown(out, f.all)
	default:
		err = c.Table(out, f.all)
	}
	if err == nil && c.Status != status.Passed {
		err = &exit{code: status.ExitFailed}
	}
	return err
}

// options reads what was asked for.
func (f *compareFlags) options(given func(flag string) bool) (o compare.Options, err error) {
	switch {
	case f.json && f.markdown:
		return o, errors.New("--json --markdown: both would be on stdout: choose one")
	case !(f.confidence >= 0.5 && f.confidence <= 0.9999):
		return o, fmt.Errorf("--confidence %g: want 0.5 to 0.9999", f.confidence)
	case given("thresholds") && f.thresholds == "":
		return o, errors.New("--thresholds: its value is empty")
	}
	o.Confidence, o.AcrossKernels = f.confidence, f.kernels
	if o.Limit, err = compare.ParseLimit(f.threshold); err != nil {
		return o, fmt.Errorf("--threshold: %w", err)
	}
	if !o.Limit.Percent && !o.Limit.Any && o.Limit.By != 0 {
		return o, fmt.Errorf("--threshold %s: figures have many units: want a part, as %s%%; a file of --thresholds may have numbers", f.threshold, f.threshold)
	}
	if o.Only, err = runs.ParsePatterns(f.metrics); err != nil {
		return o, fmt.Errorf("--metric: %w", err)
	}
	if f.thresholds != "" {
		var text []byte
		if text, err = plain.Read(f.thresholds, compare.MaxLimits); err == nil {
			o.Rules, err = compare.ParseRules(f.thresholds, text)
		}
	}
	return o, err
}

// readSide reads all runs of a side. at are the files that were read before: what stands on
// both sides is no comparison.
func readSide(named string, at map[string]bool) (all []*runs.Run, err error) {
	places, errs := runs.Find(named)
	if len(errs) > 0 {
		return nil, firstOf(errs)
	}
	for _, p := range places {
		file, err := filepath.EvalSymlinks(p.Dir)
		if file = filepath.Join(file, p.File); err != nil {
			return nil, err
		}
		if at[file] {
			return nil, fmt.Errorf("%s is in A and in B: name two runs that are not the same", file)
		}
		at[file] = true
		r, err := p.Read()
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// firstOf is one line for several errors.
func firstOf(errs []error) error {
	first := strings.ReplaceAll(errs[0].Error(), "\n", "; ")
	if len(errs) > 1 {
		return fmt.Errorf("%s; and %d more of the kind", first, len(errs)-1)
	}
	return errors.New(first)
}
