package report

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"kerninst/lab/card"
	"kerninst/lab/plain"
	"kerninst/lab/status"
)

// run is one ISA's directory as the renderings see it.
type run struct {
	Arch
	Cards []card.Card
	Files []string // of fileNames, those that are there
}

// fileNames of one ISA that a reader may want, in this order.
var fileNames = []string{
	card.TextFile, "console.log", ManifestFile, ResultsFile, "junit.xml", "qemu.argv",
	"agent.log", BenchFile, TimingsFile,
}

// InputError is why the folder of a run cannot be read: what is in it is no run's,
// or not any more.
type InputError struct{ Err error }

func (e *InputError) Error() string { return e.Err.Error() }
func (e *InputError) Unwrap() error { return e.Err }

// load finds the directories of the ISAs under out. Its errors are *InputError.
func load(out string) ([]run, error) {
	runs, err := loadRuns(out)
	if err != nil {
		return nil, &InputError{err}
	}
	return runs, nil
}

func loadRuns(out string) ([]run, error) {
	var runs []run
	for _, arch := range Arches {
		dir := filepath.Join(out, arch)
		if st, err := os.Stat(dir); err != nil || !st.IsDir() {
			continue
		}
		r, err := loadRun(dir, arch)
		if err != nil {
			return nil, err
		}
		runs = append(runs, *r)
	}
	if len(runs) == 0 {
		return nil, fmt.Errorf("%s: no folder named %s: not the output of a run", out, strings.Join(Arches, ", "))
	}
	return runs, nil
}

func loadRun(dir, arch string) (*run, error) {
	var r run
	for _, name := range fileNames {
		if st, err := os.Stat(filepath.Join(dir, name)); err == nil && st.Mode().IsRegular() {
			r.Files = append(r.Files, name)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, ResultsFile)); errors.Is(err, fs.ErrNotExist) {
		r.Results = unfinished(dir, arch)
		return &r, nil
	}
	a, err := ReadArch(dir)
	if err != nil {
		return nil, err
	}
	if a.Results.Arch != arch {
		return nil, fmt.Errorf("%s: results of %s in the folder of %s", filepath.Join(dir, ResultsFile), a.Results.Arch, arch)
	}
	r.Arch = *a
	r.Cards, err = ReadCards(dir)
	return &r, err
}

// unfinished stands for a run that ended before it wrote its results.
func unfinished(dir, arch string) Results {
	return Results{
		Schema: Schema,
		Arch:   arch,
		Status: status.LabFailed,
		Failure: &Failure{
			Kind:    "no results",
			Summary: "the run ended before it wrote " + ResultsFile,
			Console: consoleTail(filepath.Join(dir, "console.log")),
		},
	}
}

// consoleTail is the end of a console log, as far as it can be read.
func consoleTail(path string) []string {
	const tailBytes, tailLines = 16 << 10, 40
	f, err := plain.OpenHere(path)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			return []string{"(console.log cannot be read)"}
		}
		return nil
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > tailBytes {
		f.Seek(-tailBytes, io.SeekEnd)
	}
	data, _ := io.ReadAll(io.LimitReader(f, tailBytes))
	text := strings.TrimSpace(CleanText(string(data)))
	if text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	return lines[max(0, len(lines)-tailLines):]
}
