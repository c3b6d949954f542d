// Package runs finds the results of runs in folders that a user names, and reads of each
// what it takes to set several beside one another: results, when it was, and what it was
// made with that its results do not say.
//
// What lies there may be anybody's. Nothing is followed that leads elsewhere, and nothing
// is looked for in the folder of an ISA, where files of guests' lie.
package runs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"kerninst/lab/report"
	"kerninst/lab/status"
)

// Run is what one run left of one ISA.
type Run struct {
	Name    string // of the run's folder, within what was named, "." if that is it; or what was named
	File    string // of the results
	Results report.Results
	// Unfinished runs ended before they had results: Results has only the ISA.
	Unfinished bool
	Start      time.Time // zero: nothing says when it was
	// Made is what a user had the run made with, in words, by what it is about.
	Made map[string]string
	// Host is what guests of host time ran on, in words; "" if there were none.
	Host string
	// Commit is that of the lab's sources; "" is not known.
	Commit string
	// Loose are the scenarios that had a guest in host time, in a run of exact time:
	// figures of theirs may be others each time.
	Loose map[string]bool
	// Bare: no manifest or no timings lie beside the results, so Made or Loose is not known.
	Bare bool
}

// Place is where results of one ISA lie, or where those of a run lie that ended before it
// had any.
type Place struct {
	Name  string // see Run
	Dir   string // of the ISA
	File  string // in Dir
	Arch  string // that the folder is named for; "": for none
	Named bool   // the file itself was named, so links are followed
}

// Read reads what lies at a place.
func (p Place) Read() (*Run, error) {
	r := &Run{Name: p.Name, File: filepath.Join(p.Dir, p.File)}
	var err error
	if p.Named {
		r.Results, err = report.ReadResultsFile(r.File)
	} else {
		r.Results, err = report.ReadResults(p.Dir)
	}
	switch {
	case p.Arch != "" && errors.Is(err, fs.ErrNotExist):
		r.Unfinished, r.Results = true, report.Results{Schema: report.Schema, Arch: p.Arch, Status: status.LabFailed}
	case err != nil:
		return nil, fmt.Errorf("%w: no whole results of a run that this lab can read: run it again with this lab, or leave it out", err)
	case p.Arch != "" && r.Results.Arch != p.Arch:
		return nil, fmt.Errorf("%s: results of %s in the folder of %s: put them where they belong", r.File, r.Results.Arch, p.Arch)
	}
	r.Name = oneLine(r.Name)
	for _, text := range []*string{&r.Results.Kernel, &r.Results.QEMU} {
		*text = oneLine(*text)
	}
	if p.File != report.ResultsFile {
		r.Bare = true // what lies beside a file of another name need not be of the same run
		return r, nil
	}
	if err := r.readBeside(p.Dir); err != nil {
		return nil, fmt.Errorf("%w: what lies beside %s is of no run: remove it, or leave the run out", err, report.ResultsFile)
	}
	return r, nil
}

// readBeside reads what a run wrote beside its results, which may be missing.
func (r *Run) readBeside(dir string) error {
	timings, err := report.ReadTimings(dir)
	if r.Bare = errors.Is(err, fs.ErrNotExist); err != nil && !r.Bare {
		return err
	}
	r.Start, r.Commit = begun(timings, dir), oneLine(timings.Host["commit"])
	text, err := report.ReadManifest(dir)
	if errors.Is(err, fs.ErrNotExist) {
		r.Bare = true
		return nil
	} else if err != nil {
		return err
	}
	// Only these: manifests of older labs and newer ones have other keys besides.
	var m struct {
		Exact []string `json:"exact"`
		Own   made     `json:"own"`
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(dir, report.ManifestFile), err)
	}
	r.Made = m.Own.words()
	if r.Loose = loose(r.Results, timings, m.Exact); r.Results.Time == "host" || len(r.Loose) > 0 {
		r.Host = hostWords(timings)
	}
	return nil
}

// folderTime is how the folders of runs begin that were not named by anybody.
const folderTime = "20060102T150405Z"

// begun is when a run began, as it noted itself, or as its folder is called.
func begun(t report.Timings, dir string) time.Time {
	if at, err := time.Parse(time.RFC3339, t.Host["start"]); err == nil {
		return at
	}
	base := filepath.Base(filepath.Dir(dir))
	at, _ := time.Parse(folderTime, base[:min(len(base), len(folderTime))])
	return at
}

// made is what a user had in the guests, of what tells on figures.
type made struct {
	CPUs    int      `json:"cpus"`
	MemMiB  int      `json:"mem_mib"`
	Modules []string `json:"modprobe"`
	With    []string `json:"with"`
}

func (m made) words() map[string]string {
	out := map[string]string{}
	for what, v := range map[string]int{"CPUs of guests": m.CPUs, "memory of guests in MiB": m.MemMiB} {
		if v != 0 {
			out[what] = strconv.Itoa(v)
		}
	}
	for what, list := range map[string][]string{"modules loaded": m.Modules, "software": m.With} {
		if len(list) > 0 {
			out[what] = oneLine(strings.Join(list, ","))
		}
	}
	return out
}

// loose are the scenarios of a run of exact time that had guests beside those that its
// manifest calls exact. A guest is named by its scenario and a name behind it.
func loose(r report.Results, t report.Timings, exact []string) map[string]bool {
	out := map[string]bool{}
	for phase := range t.Seconds {
		guest, is := strings.CutPrefix(phase, "guest/")
		if !is || r.Time != "exact" || slices.Contains(exact, guest) {
			continue
		}
		for _, s := range r.Scenarios {
			if strings.HasPrefix(guest, s.Name+".") {
				out[s.Name] = true
			}
		}
	}
	return out
}

// hostWords says what guests of host time ran on. Why there was no KVM differs by the
// words of an error message, and tells nothing.
func hostWords(t report.Timings) string {
	accel, _, _ := strings.Cut(t.Host["accel"], ":")
	var words []string
	if cpus := t.Host["cpus"]; cpus != "" {
		words = append(words, "CPUs "+cpus)
	}
	if accel != "" {
		words = append(words, accel)
	}
	return oneLine(strings.Join(words, ", "))
}

// oneLine is text as it can stand in a table: what is read may be anybody's.
func oneLine(s string) string { return strings.Join(strings.Fields(report.Clean(s)), " ") }

// Inexact says whether figures of a scenario may be others each time.
func (r *Run) Inexact(scenario string) bool { return r.Results.Time != "exact" || r.Loose[scenario] }

// Words about what a run was made with, in order.
func (r *Run) Words() []string { return slices.Sorted(maps.Keys(r.Made)) }
