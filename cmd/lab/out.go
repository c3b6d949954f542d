package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"kerninst/images"
	"kerninst/lab/card"
	"kerninst/lab/report"
	"kerninst/lab/repro"
)

// Names of files of one ISA that no package of their own writes.
const (
	junitFile = "junit.xml"
	argvFile  = "qemu.argv"
	agentFile = "agent.log"
)

// outDir makes the directory for the results of a run that starts now, and
// out/latest where it is ours: no --out was given. It is this process's alone
// until release is called.
func outDir(dir string, seed uint64, force bool, now time.Time) (_ string, release func(), err error) {
	if dir == "" {
		return defaultDir("out", now.UTC().Format("20060102T150405Z")+"-"+strconv.FormatUint(seed, 10))
	}
	release, err = givenDir(dir, force)
	return dir, release, err
}

// defaultDir makes a new folder in top. Runs of one seed that start in the same
// second are told apart by a number.
func defaultDir(top, stem string) (_ string, release func(), err error) {
	if err := os.MkdirAll(top, 0o755); err != nil {
		return "", nil, err
	}
	name := stem
	for n := 2; ; n++ {
		err := os.Mkdir(filepath.Join(top, name), 0o755)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", nil, err
		}
		name = fmt.Sprintf("%s-%d", stem, n)
	}
	dir := filepath.Join(top, name)
	if release, err = hold(dir); err != nil {
		return "", nil, err
	}
	if err := link(name, filepath.Join(top, "latest")); err != nil {
		release()
		return "", nil, errors.Join(err, os.Remove(dir))
	}
	return dir, release, nil
}

// givenDir makes the folder that a person named, or takes it if it is empty or
// does not have to be.
func givenDir(dir string, force bool) (release func(), err error) {
	if st, err := os.Stat(dir); err == nil && !st.IsDir() {
		return nil, usage(fmt.Errorf("--out %s: not a folder", dir))
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, usage(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if release, err = hold(dir); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	switch {
	case err != nil || len(entries) == 0:
	case force:
		err = clear(dir)
	default:
		err = fmt.Errorf("%s is not empty: give another --out, or --force", dir)
	}
	if err != nil {
		release()
		return nil, usage(err)
	}
	return release, nil
}

// written are the names of all that a run writes into the folder of an ISA.
var written = []string{
	report.ResultsFile, report.ManifestFile, report.TimingsFile, report.BenchFile, report.FilesDir, junitFile,
	repro.ConsoleFile, argvFile, agentFile, card.TextFile, card.JSONFile, repro.GuestsDir, repro.AddedDir,
}

// clear removes an earlier run from a folder: what it left would be taken for the new
// run's. A folder that is called as an ISA and holds anything else is left as it is.
func clear(dir string) error {
	var old []string
	for _, arch := range images.Arches() {
		there, err := onlyWritten(dir, filepath.Join(dir, arch), written)
		if err != nil {
			return err
		}
		if there {
			old = append(old, filepath.Join(dir, arch))
		}
	}
	for _, name := range []string{report.HTMLFile, report.SummaryFile} {
		old = append(old, filepath.Join(dir, name))
	}
	cells, err := matrixIn(dir)
	if err != nil {
		return err
	}
	old = append(old, cells...)
	for _, name := range old {
		if err := os.RemoveAll(name); err != nil {
			return err
		}
	}
	return nil
}

// onlyWritten says whether a folder in the folder of a run is there, which must hold nothing but what
// a run writes.
func onlyWritten(run, sub string, names []string) (there bool, err error) {
	entries, err := os.ReadDir(sub)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	for _, e := range entries {
		if !slices.Contains(names, e.Name()) {
			return true, fmt.Errorf("--force removes the run that is in %s, and %s is of none: give another --out", run, filepath.Join(sub, e.Name()))
		}
	}
	return true, err
}

// hold locks a folder against other labs until release is called or the process
// ends. The lock is on the folder itself: no file tells of it.
func hold(dir string) (release func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, usage(err)
	}
	release = func() { f.Close() }
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		release()
		return nil, usage(fmt.Errorf("another lab is writing to %s: give another --out", dir))
	case errors.Is(err, unix.EBADF), errors.Is(err, unix.ENOLCK), errors.Is(err, unix.EOPNOTSUPP):
		// NFS and others lock no folders. flock(2).
	case err != nil:
		release()
		return nil, fmt.Errorf("%s: lock: %w", dir, err)
	}
	return release, nil
}

// link makes a symbolic link, in place of an older one at once: whoever reads it
// meanwhile finds one of both.
func link(to, name string) error {
	// The target is one run's alone, hence so is this.
	unfinished := filepath.Join(filepath.Dir(name), ".latest-"+to)
	if err := os.Symlink(to, unfinished); err != nil {
		return err
	}
	if err := os.Rename(unfinished, name); err != nil {
		return errors.Join(err, os.Remove(unfinished))
	}
	return nil
}
