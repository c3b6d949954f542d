package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"kerninst/lab/inventory"
	"kerninst/lab/libvirt"
	"kerninst/lab/matrix"
	"kerninst/lab/report"
	"kerninst/lab/session"
	"kerninst/lab/status"
)

// matrixRun is a matrix that runs.
type matrixRun struct {
	*matrixFlags
	out   string // absolute
	doc   *matrix.Document
	sizes []matrix.Size              // of the machines that hosts are on, as each of them says
	ways  map[string]libvirt.Backend // to hosts, by their URIs
}

// queue is all cells, and the hosts that are of use.
func (m *matrixRun) queue(cells []matrix.Cell) matrix.Queue {
	q := matrix.Queue{Cells: cells, Do: m.cell}
	sizes := map[string]matrix.Size{}
	for i, h := range m.doc.Hosts {
		if h.Status != matrix.Used {
			continue
		}
		sizes[h.Name] = m.sizes[i]
		q.Hosts = append(q.Hosts, matrix.Host{Name: h.Name, URI: h.URI, Machine: h.Machine, CPUs: h.CPUs, MemMiB: h.MemMiB, Arches: h.Arches, Lacks: h.Lacks})
	}
	q.Machines = matrix.Machines(q.Hosts, func(h matrix.Host) matrix.Size { return sizes[h.Name] })
	return q
}

// run runs the cells and writes what came of them, as far as they came.
func (m *matrixRun) run(ctx context.Context, cells []matrix.Cell) error {
	if err := m.write(); err != nil { // so that --force knows whose folder it is, whatever happens
		return err
	}
	q := m.queue(cells)
	q.Known = m.images(ctx, q)
	screen := newScreen(os.Stderr, cells)
	q.See = func(e matrix.Event) {
		screen.see(e)
		m.note(e)
		if e.Kind == matrix.Ended || e.Kind == matrix.Lost {
			_ = m.write() // for who looks on the way; that it cannot be written is said at the end
		}
	}
	q.Run(ctx)
	screen.close()
	for _, h := range m.doc.Hosts {
		if h.Status == matrix.LostMidway && screen.alive { // else it was said when it was seen
			progress("host %s was lost: %s", h.Name, h.Reason)
		}
	}
	m.doc.Finish()
	if err := m.writeAll(); err != nil {
		return err
	}
	if err := m.print(); err != nil {
		return err
	}
	progress("report: %s", filepath.Join(m.out, report.HTMLFile))
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case m.doc.Exit != 0:
		return &exit{code: m.doc.Exit}
	}
	return nil
}

// note writes an event into the document.
func (m *matrixRun) note(e matrix.Event) {
	switch e.Kind {
	case matrix.Ended:
		m.doc.Cells[e.Cell].Take(*e.Result)
		m.doc.Cells[e.Cell].Page = m.page(e.Result.Cell)
	case matrix.Lost:
		for i := range m.doc.Hosts {
			if h := &m.doc.Hosts[i]; h.Name == e.Host {
				h.Status, h.Reason = matrix.LostMidway, e.Reason
			}
		}
	}
}

// images makes the image of each ISA and kernel that somebody runs, one after the other: cells would
// wait for each other's, each with CPUs and memory of a host. How those come out whose image cannot
// be made is known then.
func (m *matrixRun) images(ctx context.Context, q matrix.Queue) map[int]matrix.Outcome {
	type image struct{ arch, kernel string }
	known, made := map[int]matrix.Outcome{}, map[image]error{}
	for i, c := range q.Cells {
		key := image{c.Arch, c.Kernel.Word}
		err, done := made[key]
		if !done && (ctx.Err() != nil || q.Impossible(i) != "") {
			continue
		}
		if !done {
			of := m.common
			of.kernel = c.Kernel.Word
			if _, _, err = of.image(ctx, c.Arch); ctx.Err() != nil {
				err = nil
			}
			made[key] = err
		}
		if err != nil {
			o := matrix.Outcome{Status: status.LabFailed, Exit: status.ExitLabFailed, Reason: err.Error()}
			if e := (*exit)(nil); errors.As(err, &e) {
				o.Exit = e.code
			}
			known[i] = o
		}
	}
	return known
}

// Names in the folder of a cell.
const (
	logFile    = "lab.log" // what the cell's process said
	lostPrefix = "lost-"   // of what a cell left on a host that was lost
)

// cell runs one cell on one host, in a process and a folder of its own.
func (m *matrixRun) cell(ctx context.Context, c matrix.Cell, h matrix.Host) matrix.Outcome {
	start := time.Now()
	o, err := m.attempt(ctx, c, h)
	switch {
	case ctx.Err() != nil:
		o = matrix.Outcome{Status: status.Skipped, Exit: status.ExitInterrupted, Reason: "interrupted"}
	case err != nil:
		o = matrix.Outcome{Status: status.LabFailed, Exit: status.ExitLabFailed, Reason: err.Error()}
	}
	o.Seconds = time.Since(start).Seconds()
	return o
}

func (m *matrixRun) attempt(ctx context.Context, c matrix.Cell, h matrix.Host) (o matrix.Outcome, err error) {
	dir := filepath.Join(m.out, c.Name())
	sub := filepath.Join(dir, c.Arch)
	if err := os.MkdirAll(sub, 0o755); err != nil {
		return o, err
	}
	f := m.runFlags
	f.arch, f.kernel, f.scenario, f.seed = c.Arch, c.Kernel.Word, c.Scenario, c.Seed
	if f.host = h.URI; h.URI == inventory.Here {
		f.host = ""
	} else {
		f.way = m.ways[h.URI].Share()
	}
	code, said, err := f.logged(ctx, c.Arch, sub, filepath.Join(dir, logFile))
	if err != nil || ctx.Err() != nil {
		return o, err
	}
	o, lost, err := outcome(sub, code, said)
	if err != nil {
		return o, err
	}
	if code == status.ExitLabFailed && f.host != "" {
		if o.Lost = m.gone(ctx, f.host, lost); o.Lost != "" {
			return o, os.Rename(sub, filepath.Join(dir, lostPrefix+h.Name))
		}
	}
	if _, err := os.Stat(filepath.Join(sub, report.ResultsFile)); err == nil {
		return o, report.WriteReport(dir)
	}
	return o, nil
}

// logged runs a cell's process, with what it says going to a file, and returns the end of that.
func (f *runFlags) logged(ctx context.Context, isa, dir, log string) (code int, said string, err error) {
	cmd, err := f.process(ctx, isa, dir)
	if err != nil {
		return 0, "", err
	}
	file, err := os.OpenFile(log, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return 0, "", err
	}
	defer file.Close()
	before, err := file.Seek(0, 2)
	if err != nil {
		return 0, "", err
	}
	cmd.Stdout, cmd.Stderr = file, file
	// The process is to end with us (process), which is when the thread ends that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	var e *exec.ExitError
	if errors.As(err, &e) {
		code, err = status.ExitLabFailed, nil
		if e.Exited() {
			code = e.ExitCode()
		} else {
			said = "the cell's process was ended: " + e.String()
		}
	}
	if said == "" {
		said = lastWords(file, before)
	}
	return code, said, err
}

// mostSaid is how much of what a process said is looked through for its last words, in bytes.
const mostSaid = 64 << 10

// lastWords is the error that a lab's process ended with, of what a file has from a place on.
func lastWords(file *os.File, from int64) string {
	info, err := file.Stat()
	if err != nil {
		return ""
	}
	from = max(from, info.Size()-mostSaid)
	text := make([]byte, info.Size()-from)
	n, _ := file.ReadAt(text, from) // of a shorter file, what there is
	said := "\n" + string(text[:n])
	at := strings.LastIndex(said, "\nlab: ")
	if at < 0 {
		return ""
	}
	return strings.TrimSpace(said[at+len("\nlab: "):])
}

// outcome reads how a cell came out from what it has written, and from its exit status and last
// words if that is nothing. lost says that its host went away, if that is what it says.
func outcome(dir string, code int, said string) (o matrix.Outcome, lost string, err error) {
	o.Exit = code
	r, err := report.ReadResults(dir)
	if errors.Is(err, fs.ErrNotExist) && code == status.ExitInterrupted { // of an interrupt from the keyboard it may know before we do
		o.Status, o.Reason = status.Skipped, "interrupted"
		return o, "", nil
	} else if errors.Is(err, fs.ErrNotExist) {
		o.Status, o.Reason = status.LabFailed, said
		if o.Reason == "" {
			o.Reason = fmt.Sprintf("it ended with exit status %d before it had results, and did not say why", code)
		}
		if code == 0 {
			o.Exit = status.ExitLabFailed
		}
		return o, "", nil
	} else if err != nil {
		return o, "", err
	}
	o.Status, o.Reason, o.Release, o.Figures = r.Status, r.Reason, r.Kernel, report.Figures(&r)
	for _, s := range r.Scenarios {
		if s.Failure == nil {
			continue
		}
		if o.Reason == "" {
			o.Reason = s.Failure.Kind + ": " + s.Failure.Summary
		}
		if s.Failure.Kind == string(session.HostLost) {
			lost = s.Failure.Summary
		}
	}
	if want := status.ExitCode(r.Status); code != want { // it failed behind its results
		o.Status, o.Reason = status.LabFailed, fmt.Sprintf("its results say %s, but it ended with exit status %d: %s", r.Status, code, said)
	}
	return o, lost, nil
}

// gone says why a host is lost on which the lab failed: a cell says so, or it does not answer.
func (m *matrixRun) gone(ctx context.Context, uri, lost string) string {
	if lost != "" {
		return lost
	}
	b, err := libvirt.Parse(uri)
	if err == nil {
		_, err = b.Check(ctx)
	}
	if err == nil || ctx.Err() != nil {
		return ""
	}
	return err.Error()
}

// page is what there is to look at of a cell, below the matrix's folder.
func (m *matrixRun) page(c matrix.Cell) string {
	for _, name := range []string{report.HTMLFile, logFile} {
		page := filepath.Join(c.Name(), name)
		if _, err := os.Stat(filepath.Join(m.out, page)); err == nil {
			return page
		}
	}
	return ""
}

// cellName is what the folder of a cell may be called.
var cellName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+_-]*$`)

// matrixIn are the names of all that a matrix has written into a folder. A folder of a cell's that
// holds anything else is an error.
func matrixIn(dir string) (names []string, err error) {
	doc, err := readMatrix(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	for _, c := range doc.Cells {
		sub := filepath.Join(dir, c.Name)
		if !cellName.MatchString(c.Name) {
			return nil, fmt.Errorf("%s: %q is no cell's name", filepath.Join(dir, matrix.File), c.Name)
		}
		entries, err := os.ReadDir(sub)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		for _, e := range entries {
			known := slices.Contains([]string{logFile, report.HTMLFile, report.SummaryFile}, e.Name())
			if !known && e.Name() != c.Arch && !strings.HasPrefix(e.Name(), lostPrefix) {
				return nil, fmt.Errorf("--force removes the matrix that is in %s, and %s is of none: give another --out", dir, filepath.Join(sub, e.Name()))
			}
			if _, err := onlyWritten(dir, filepath.Join(sub, e.Name()), written); err != nil && !known {
				return nil, err
			}
		}
		names = append(names, sub)
	}
	for _, name := range []string{matrix.File, junitFile, report.BenchFile} {
		names = append(names, filepath.Join(dir, name))
	}
	return names, nil
}
