package matrix

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"kerninst/lab/report"
	"kerninst/lab/status"
)

// Board is what is shown while a matrix runs. Its methods are for one goroutine at a time.
type Board struct {
	cells []Cell
	grid  grid
	start time.Time
	state []cellState
	lost  []string // hosts
}

// cellState is a cell that waits (zero), runs (a host) or is done (a status).
type cellState struct {
	host   string
	begun  time.Time
	status status.Status
}

// NewBoard shows cells of which none has begun.
func NewBoard(cells []Cell, now time.Time) *Board {
	g := gridOf(len(cells), func(k int) (string, string, string) { return cells[k].Arch, cells[k].Kernel.Name, cells[k].Scenario })
	return &Board{cells: cells, grid: g, start: now, state: make([]cellState, len(cells))}
}

// See takes an event, and returns a line about it for those who see lines alone.
func (b *Board) See(e Event, now time.Time) string {
	switch e.Kind {
	case Begun:
		b.state[e.Cell] = cellState{host: e.Host, begun: now}
		return fmt.Sprintf("%s: begun on %s", b.cells[e.Cell].Name(), e.Host)
	case Lost:
		b.lost = append(b.lost, e.Host)
		for k, s := range b.state { // its cells wait, until they begin elsewhere
			if s.host == e.Host && s.status == "" {
				b.state[k] = cellState{}
			}
		}
		return fmt.Sprintf("host %s is lost: %s; its cells are done elsewhere", e.Host, oneLine(e.Reason))
	}
	b.state[e.Cell] = cellState{status: e.Result.Status}
	_, words, _ := report.Look(e.Result.Status)
	line := fmt.Sprintf("%s: %s", b.cells[e.Cell].Name(), words)
	if e.Result.Host != "" {
		line += fmt.Sprintf(" on %s after %.1f s", e.Result.Host, e.Result.Seconds)
	}
	if e.Result.Reason != "" {
		line += ": " + oneLine(e.Result.Reason)
	}
	done, _, _ := b.count()
	return fmt.Sprintf("[%d/%d] %s", done, len(b.cells), line)
}

func (b *Board) count() (done, bad, running int) {
	for _, s := range b.state {
		switch {
		case s.status != "":
			done++
			if status.ExitCode(s.status) != status.ExitPassed {
				bad++
			}
		case s.host != "":
			running++
		}
	}
	return done, bad, running
}

// Marks of cells that are not done; the others have their status's glyph.
const (
	waits = "·"
	runs  = "▸"
)

func (s cellState) mark() string {
	switch {
	case s.status != "":
		glyph, _, _ := report.Look(s.status)
		return glyph
	case s.host != "":
		return runs
	}
	return waits
}

// mostMarks is up to how many cells of one kind are a mark each; of more, each mark has a number.
const mostMarks = 12

// marks of some cells, a mark for each or a number for each mark.
func (b *Board) marks(cells []int) string {
	var each strings.Builder
	var order []string
	n := map[string]int{}
	for _, k := range cells {
		m := b.state[k].mark()
		each.WriteString(m)
		if n[m]++; n[m] == 1 {
			order = append(order, m)
		}
	}
	if len(cells) <= mostMarks {
		return each.String()
	}
	var words []string
	for _, m := range order {
		words = append(words, fmt.Sprint(n[m], m))
	}
	return strings.Join(words, " ")
}

// Lines draws the board into a terminal of that size.
func (b *Board) Lines(width, height int, now time.Time) []string {
	table := b.table()
	running := b.running(now)
	tail := []string{b.sum(now)}
	if len(b.lost) > 0 {
		tail = append([]string{"lost: " + join(b.lost)}, tail...)
	}
	room := max(1, height-1-len(tail)) // the cursor has a line of its own
	// What runs is told in a third of the room at the most.
	running = atMost(running, max(1, room/3), "more running")
	table = atMost(table, max(1, room-len(running)), "more lines")
	all := slices.Concat(table, running, tail)
	for i := range all {
		all[i] = cut(all[i], width)
	}
	return all
}

// table has a line for each kernel and scenario; those of which all cells are done come last, and
// are the first to be left out.
func (b *Board) table() []string {
	rows := [][]string{append([]string{"kernel", "scenario"}, b.grid.Arches...)}
	var done [][]string
	for _, line := range b.grid.Lines {
		row, whole := []string{line.Kernel, line.Scenario}, true
		for _, cells := range line.Cells {
			row = append(row, b.marks(cells))
			for _, k := range cells {
				whole = whole && b.state[k].status != ""
			}
		}
		if whole {
			done = append(done, row)
		} else {
			rows = append(rows, row)
		}
	}
	return columns(append(rows, done...))
}

// columns are rows in which cells of one column begin at one place. Every rune is one place wide.
func columns(rows [][]string) (lines []string) {
	width := map[int]int{}
	for _, r := range rows {
		for i, c := range r {
			width[i] = max(width[i], len([]rune(c)))
		}
	}
	for _, r := range rows {
		var b strings.Builder
		for i, c := range r {
			b.WriteString(c)
			if i < len(r)-1 {
				b.WriteString(strings.Repeat(" ", width[i]-len([]rune(c))+2))
			}
		}
		lines = append(lines, b.String())
	}
	return lines
}

// running are the cells that run, those first that have run longest.
func (b *Board) running(now time.Time) (lines []string) {
	var cells []int
	for k, s := range b.state {
		if s.status == "" && s.host != "" {
			cells = append(cells, k)
		}
	}
	slices.SortStableFunc(cells, func(a, c int) int { return b.state[a].begun.Compare(b.state[c].begun) })
	for _, k := range cells {
		lines = append(lines, fmt.Sprintf("%s %s on %s, %.0f s", runs, b.cells[k].Name(), b.state[k].host, now.Sub(b.state[k].begun).Seconds()))
	}
	return lines
}

func (b *Board) sum(now time.Time) string {
	done, bad, running := b.count()
	return fmt.Sprintf("%d of %d done, %d of them not passed, %d running; %.0f s", done, len(b.cells), bad, running, now.Sub(b.start).Seconds())
}

// atMost leaves lines out at the end, and says how many.
func atMost(lines []string, n int, what string) []string {
	if len(lines) <= n {
		return lines
	}
	return append(lines[:n-1:n-1], fmt.Sprintf("… %d %s", len(lines)-n+1, what))
}

// cut is a line as there is room for it.
func cut(line string, width int) string {
	r := []rune(line)
	if width < 1 || len(r) <= width {
		return line
	}
	return string(r[:width-1]) + "…"
}
