package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"kerninst/agent/ktext"
	"kerninst/lab/analysis"
)

// surveyFlags are those of `lab survey`.
type surveyFlags struct {
	analyzeFlags
	each, svg string
}

func surveyCommand() *cobra.Command {
	var f surveyFlags
	c := &cobra.Command{
		Use:   "survey",
		Short: "how each instruction of a kernel can be spliced, or why not",
		Long: "Plan a counter at every instruction of a kernel's text and of its modules, each\n" +
			"alone, and print how many each mechanism serves, and how many are refused for what\n" +
			"reason: of all, of each section, and of each module. Then where springboards have\n" +
			"room, and which jumps the ISA has. With --each, write a line for every instruction.",
		Example: "  lab survey --arch amd64\n" +
			"  lab survey --arch riscv64 --modprobe null_blk,binfmt_misc --each riscv64.tsv",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.checkSurvey(c.Flags().Changed); err != nil {
				return usage(err)
			}
			return f.survey(c.Context())
		},
	}
	f.add(c.Flags())
	c.Flags().BoolVar(&f.json, "json", false, "print a document for machines, one for each ISA")
	c.Flags().StringVar(&f.dump, "dump", "", "survey this file, from lab image dump, instead of a guest's kernel")
	c.Flags().StringSliceVar(&f.modules, "modprobe", nil, "modules of the kernel to load before, and to survey as well, `NAME[,NAME...]`")
	c.Flags().StringVar(&f.each, "each", "", "write a line for each instruction to this `FILE`, - for stdout, which then has nothing else: address, place, mechanism or refusal, reason, details, with tabs between them")
	c.Flags().StringVar(&f.svg, "svg", "", "draw a bar for each section into this `FILE`")
	return c
}

// checkSurvey says which flags, of those that were given, do not go together.
func (f *surveyFlags) checkSurvey(given func(flag string) bool) error {
	if err := f.check(given); err != nil {
		return err
	}
	isas, err := arches(f.arch)
	if err != nil {
		return err
	}
	for name, value := range map[string]string{"each": f.each, "svg": f.svg} {
		switch {
		case given(name) && value == "":
			return fmt.Errorf("--%s: its value is empty", name)
		case value != "" && len(isas) != 1 && f.dump == "":
			return fmt.Errorf("--arch %s: --%s is of one ISA", f.arch, name)
		}
	}
	if f.dump != "" && len(f.modules) > 0 {
		return errors.New("--modprobe: --dump has the modules that were loaded when it was made: lab image dump --modprobe makes one with others")
	}
	if f.json && f.each == "-" {
		return errors.New("--json --each -: both would be on stdout: give --each a file")
	}
	return nil
}

func (f *surveyFlags) survey(ctx context.Context) error {
	dumps, err := f.dumps(ctx)
	if err != nil {
		return err
	}
	for _, d := range dumps {
		if err := f.surveyOne(ctx, d); err != nil {
			return fmt.Errorf("%s: %w", d.Arch, err)
		}
	}
	return nil
}

func (f *surveyFlags) surveyOne(ctx context.Context, d *ktext.Dump) (err error) {
	k, err := analysis.Find(ctx, d, progress)
	if err != nil {
		return err
	}
	each, finish, err := f.lines()
	if err != nil {
		return err
	}
	draw, err := f.drawing()
	if err != nil {
		return errors.Join(err, finish())
	}
	progress("%s: planning every instruction", d.Arch)
	start, said := time.Now(), time.Now()
	s, err := analysis.NewSurvey(ctx, d, k.Index, each, func(done, of int) {
		if time.Since(said) > sayEvery {
			progress("%s: functions planned: %d of %d", d.Arch, done, of)
			said = time.Now()
		}
	})
	if err = errors.Join(err, finish()); err != nil {
		return err
	}
	progress("%s: planned %d instructions in %.1f s", d.Arch, s.Instructions+s.Modules.Instructions, time.Since(start).Seconds())
	return errors.Join(f.print(s), draw(s))
}

// sayEvery is how often it is said how far planning is.
const sayEvery = 5 * time.Second

// drawing makes the file for --svg, before anything takes long, and says what draws into it.
func (f *surveyFlags) drawing() (func(*analysis.Survey) error, error) {
	if f.svg == "" {
		return func(*analysis.Survey) error { return nil }, nil
	}
	to, err := os.Create(f.svg)
	if err != nil {
		return nil, usage(fmt.Errorf("--svg: %w", err))
	}
	return func(s *analysis.Survey) error {
		_, err := to.Write(s.SVG())
		if err = errors.Join(err, to.Close()); err != nil {
			return fmt.Errorf("--svg: %w", err)
		}
		return nil
	}, nil
}

func (f *surveyFlags) print(s *analysis.Survey) error {
	switch {
	case f.each == "-":
		return nil
	case !f.json:
		return s.Print(os.Stdout)
	}
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(s)
}

// lines is where --each wants its lines, nil for nowhere, and what is to be done when all
// are written.
func (f *surveyFlags) lines() (io.Writer, func() error, error) {
	if f.each == "" {
		return nil, func() error { return nil }, nil
	}
	to := os.Stdout
	if f.each != "-" {
		var err error
		if to, err = os.Create(f.each); err != nil {
			return nil, nil, usage(fmt.Errorf("--each: %w", err))
		}
	}
	w := bufio.NewWriterSize(to, 1<<20)
	return w, func() error {
		if to == os.Stdout {
			return w.Flush()
		}
		return errors.Join(w.Flush(), to.Close())
	}, nil
}
