package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"kerninst/lab/matrix"
	"kerninst/lab/plain"
	"kerninst/lab/report"
)

// write writes the document alone.
func (m *matrixRun) write() error {
	text, err := m.doc.Encode()
	if err != nil {
		return err
	}
	return report.ReplaceFile(filepath.Join(m.out, matrix.File), text)
}

// writeAll writes the document, its renderings, and what cells have written joined.
func (m *matrixRun) writeAll() error {
	if err := m.write(); err != nil {
		return err
	}
	junit, err := m.doc.JUnit(func(c *matrix.CellRecord) []byte {
		text, err := plain.ReadHere(filepath.Join(m.out, c.Name, c.Arch, junitFile), report.MaxDocument)
		if err != nil || c.Release == "" { // it ended before it had results: what it wrote is not all
			return nil
		}
		return text
	})
	if err != nil {
		return err
	}
	bench, err := m.bench()
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{junitFile: junit, report.BenchFile: bench} {
		if err := report.ReplaceFile(filepath.Join(m.out, name), text); err != nil {
			return err
		}
	}
	return renderMatrix(m.out, m.doc)
}

// renderMatrix makes the page and the summary.
func renderMatrix(dir string, doc *matrix.Document) error {
	page, err := doc.Page()
	if err != nil {
		return fmt.Errorf("%s: %w", report.HTMLFile, err)
	}
	if err := report.ReplaceFile(filepath.Join(dir, report.SummaryFile), doc.Markdown()); err != nil {
		return err
	}
	return report.ReplaceFile(filepath.Join(dir, report.HTMLFile), page)
}

// bench joins the figures of all cells that have some.
func (m *matrixRun) bench() ([]byte, error) {
	var all []*report.Results
	for _, c := range m.doc.Cells {
		r, err := report.ReadResults(filepath.Join(m.out, c.Name, c.Arch))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		all = append(all, &r)
	}
	return report.Bench(all...), nil
}

// print writes what came out to stdout.
func (m *matrixRun) print() error {
	switch {
	case m.json:
		text, err := m.doc.Encode()
		if err == nil {
			_, err = os.Stdout.Write(text)
		}
		return err
	case m.markdown:
		_, err := os.Stdout.Write(m.doc.Markdown())
		return err
	}
	return m.doc.Table(os.Stdout)
}

// readMatrix reads what a matrix has left in a folder.
func readMatrix(dir string) (*matrix.Document, error) {
	name := filepath.Join(dir, matrix.File)
	text, err := plain.ReadHere(name, report.MaxDocument)
	if err != nil {
		return nil, err
	}
	doc, err := matrix.Decode(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return doc, nil
}

// screen shows a matrix while it runs: a board that is drawn again and again on a terminal, and
// else a line for each thing that happens.
type screen struct {
	to    *os.File
	alive bool // a terminal
	stop  chan struct{}
	ended sync.WaitGroup

	mu    sync.Mutex
	board *matrix.Board
	drawn int // lines that are on the terminal
}

// redraw is how often times on a board are brought up to date.
const redraw = time.Second

func newScreen(to *os.File, cells []matrix.Cell) *screen {
	s := &screen{to: to, alive: animated(to), stop: make(chan struct{}), board: matrix.NewBoard(cells, time.Now())}
	if !s.alive {
		return s
	}
	s.ended.Go(func() {
		for tick := time.NewTicker(redraw); ; {
			s.mu.Lock()
			s.draw()
			s.mu.Unlock()
			select {
			case <-tick.C:
			case <-s.stop:
				tick.Stop()
				return
			}
		}
	})
	return s
}

// animated says whether to draw over what was drawn: a person looks, and has not asked for lines.
func animated(f *os.File) bool {
	return isTerminal(f) && os.Getenv("CI") == "" && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

func (s *screen) see(e matrix.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := s.board.See(e, time.Now())
	if s.alive {
		s.draw()
		return
	}
	fmt.Fprintln(s.to, line)
}

// draw draws over what it has drawn before. Its caller holds mu.
func (s *screen) draw() {
	width, height := 80, 24
	if size, err := unix.IoctlGetWinsize(int(s.to.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 && size.Row > 0 {
		width, height = int(size.Col), int(size.Row)
	}
	lines := s.board.Lines(width, height, time.Now())
	var b strings.Builder
	if s.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", s.drawn)
	}
	b.WriteString("\r\x1b[J")
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
	s.drawn = len(lines)
	fmt.Fprint(s.to, b.String())
}

func (s *screen) close() {
	if s.alive {
		close(s.stop)
		s.ended.Wait()
	}
}
