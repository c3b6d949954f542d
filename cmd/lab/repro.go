package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"kerninst/images"
	"kerninst/lab/qemu"
	"kerninst/lab/report"
	"kerninst/lab/repro"
	"kerninst/lab/status"
	"kerninst/scenarios"
)

func reproCommand() *cobra.Command {
	var mirror, out string
	c := &cobra.Command{
		Use:   "repro DIR",
		Short: "do a run again from its manifest, and say whether the same comes out",
		Long: "Do a run again from the manifests in its directory and compare: results.json,\n" +
			"and the consoles of guests in exact time, bit for bit.\n\n" +
			"Exit status: 0 reproduced, 1 something differs (the first is named), 2 no\n" +
			"manifest, or one that was changed since the run.",
		Example: "  lab repro out/latest",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return reproduce(c.Context(), args[0], mirror, out)
		},
	}
	c.Flags().StringVar(&mirror, "mirror", os.Getenv("MIRROR"), "Debian mirror (default: the host's own)")
	c.Flags().StringVar(&out, "out", "", "empty or new directory for the run now (default: kept only if something differs)")
	return c
}

// recorded reads the manifests of a run's directory, one per ISA.
func recorded(dir string) (map[string]*repro.Manifest, error) {
	found := map[string]*repro.Manifest{}
	for _, arch := range images.Arches() {
		sub := filepath.Join(dir, arch)
		m, err := repro.ReadManifest(sub)
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		if m.Arch != arch {
			return nil, fmt.Errorf("%s: the manifest of a run on %s", sub, m.Arch)
		}
		if err := usable(m, sub); err != nil {
			return nil, fmt.Errorf("%s: %w", sub, err)
		}
		found[arch] = m
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s: no manifest of a run: want the directory that lab run wrote to", dir)
	}
	return found, nil
}

// usable says whether what a manifest asks for can be asked for, and whether there
// is something to compare with: before a guest is started for it.
func usable(m *repro.Manifest, dir string) error {
	if err := repeatable(m.Scenario); err != nil {
		return err
	}
	if _, err := parseTime(m.Time); err != nil {
		return err
	}
	if _, err := report.ReadResults(dir); err != nil {
		return fmt.Errorf("the run has no results to compare with: %w", err)
	}
	o := ownOf(m.Own)
	_, err := o.wanted(func(string) string { return "" })
	if err = errors.Join(o.check(), err); err != nil {
		return err
	}
	_, err = addedThen(dir)
	return err
}

// repeatable says whether scenarios are known and come out the same again.
func repeatable(list string) error {
	selected, err := scenarios.Select(list)
	for _, s := range selected {
		if s.Timed {
			return fmt.Errorf("the scenario %s measures host time, which is never the same: compare its intervals", s.Name)
		}
	}
	return err
}

func reproduce(ctx context.Context, dir, mirror, out string) error {
	then, err := recorded(dir)
	if err != nil {
		return usage(err)
	}
	temporary := out == ""
	if temporary {
		if out, err = os.MkdirTemp("", "kerninst-repro-"); err != nil {
			return err
		}
		defer func() {
			if temporary {
				os.RemoveAll(out)
			}
		}()
	} else {
		_, release, err := outDir(out, 0, false, time.Now())
		if err != nil {
			return err
		}
		defer release()
	}
	same := true
	for _, arch := range images.Arches() {
		m := then[arch]
		if m == nil {
			continue
		}
		diff, err := again(ctx, m, filepath.Join(dir, arch), mirror, out)
		if err != nil {
			return err
		}
		if diff != "" {
			same = false
			fmt.Printf("%s\tDIFFERS\t%s\n", arch, report.CleanText(diff))
			continue
		}
		fmt.Printf("%s\tREPRODUCED\tresults.json and the consoles of %d guests of exact time, bit for bit\n", arch, len(m.Exact))
	}
	if same {
		return nil
	}
	temporary = false
	progress("the run now is in %s", out)
	return &exit{code: status.ExitFailed}
}

// again does the run of one ISA again and compares.
func again(ctx context.Context, m *repro.Manifest, dir, mirror, out string) (diff string, err error) {
	f := runFlags{
		common:   common{arch: m.Arch, mirror: mirror, kernel: m.Kernel},
		scenario: m.Scenario, time: m.Time, seed: m.Seed, jobs: defaultJobs, own: ownOf(m.Own),
	}
	if m.Own != nil && len(m.Own.Added) > 0 {
		if f.then, err = filepath.Abs(dir); err != nil {
			return "", err
		}
	}
	version, err := qemu.FindVersion(ctx, m.Arch)
	if err != nil {
		return "", err
	}
	img, _, err := f.image(ctx, m.Arch)
	if err != nil {
		return "", err
	}
	for _, what := range repro.Changed(m, version.String(), img.Manifest) {
		fmt.Printf("%s\tother\t%s\n", m.Arch, what)
	}
	code, err := f.isa(ctx, m.Arch, out)
	if err != nil {
		return "", err
	}
	now := filepath.Join(out, m.Arch)
	if _, err := os.Stat(filepath.Join(now, report.ResultsFile)); err != nil && code != 0 {
		return "", &exit{code, fmt.Errorf("%s: the run now came to no results", m.Arch)}
	}
	return repro.Compare(dir, now, m.Exact)
}
