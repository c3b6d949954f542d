package runs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kerninst/lab/report"
)

// Bounds on what is looked through: somebody may name a folder that has his disk below it.
const (
	deepest = 6      // folders below the one that was named
	most    = 20_000 // folders in all
)

// guestsDir is what a run begins with in the folder of an ISA.
const guestsDir = "guests"

// want is what can be named.
const want = "want the folder of a run, one with several below it, or a file " + report.ResultsFile

// Find says where results lie in what a user has named: the folder of a run, one with
// several of them below it, that of an ISA, or a file of results. Places are in order of
// their names. Folders that cannot be read are errors beside what was found.
func Find(named string) ([]Place, []error) {
	info, err := os.Stat(named)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%s: no such file or folder: %s", named, want)
	}
	if err != nil {
		return nil, []error{err}
	}
	if !info.IsDir() {
		dir, file := filepath.Split(named)
		return []Place{{Name: named, Dir: filepath.Clean(dir), File: file, Named: true}}, nil
	}
	// out/latest leads elsewhere, and then everything below it does not.
	dir, err := filepath.EvalSymlinks(named)
	if err != nil {
		return nil, []error{err}
	}
	if has(dir, report.ResultsFile) {
		return []Place{{Name: named, Dir: dir, File: report.ResultsFile, Arch: isa(dir)}}, nil
	}
	s := search{root: dir}
	s.folder(dir, 0)
	if len(s.found) == 0 && len(s.errs) == 0 {
		s.errs = []error{fmt.Errorf("%s: no run is here, nor below: %s", named, want)}
	}
	return s.found, s.errs
}

func has(dir, name string) bool {
	_, err := os.Lstat(filepath.Join(dir, name))
	return err == nil
}

// isa is what a folder is named for.
func isa(dir string) string {
	if base := filepath.Base(dir); slices.Contains(report.Arches, base) {
		return base
	}
	return ""
}

// search goes through folders, in order of names.
type search struct {
	root  string
	seen  int
	found []Place
	errs  []error
}

func (s *search) folder(dir string, depth int) {
	if s.seen++; s.seen == most {
		s.errs = append(s.errs, fmt.Errorf("%s: more than %d folders are below: name one that is nearer to the runs", s.root, most))
	}
	if s.seen >= most {
		return
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		s.errs = append(s.errs, err)
		return
	}
	if s.run(dir, entries) || depth == deepest {
		return // in the folder of a run is no other
	}
	for _, e := range entries {
		if e.IsDir() && isa(e.Name()) == "" && !strings.HasPrefix(e.Name(), ".") {
			s.folder(filepath.Join(dir, e.Name()), depth+1)
		}
	}
}

// run takes what lies in the folder of a run, if it is one. A folder may be called as an
// ISA for other reasons: one without results is a run's if a run left something there.
func (s *search) run(dir string, entries []fs.DirEntry) (is bool) {
	for _, e := range entries {
		at := filepath.Join(dir, e.Name())
		if !e.IsDir() || isa(at) == "" || !has(at, report.ResultsFile) && !has(at, guestsDir) && !has(dir, report.HTMLFile) {
			continue
		}
		is = true
		name, err := filepath.Rel(s.root, dir)
		if err != nil {
			name = dir
		}
		s.found = append(s.found, Place{Name: name, Dir: at, File: report.ResultsFile, Arch: isa(at)})
	}
	return is
}
