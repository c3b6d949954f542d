package sweep

import (
	"bufio"
	"fmt"
	"io"
	"path"
	"strings"
)

// Allowed is a list of differences that are known and have a reason. It is for
// one kernel.
type Allowed struct {
	Kernel  string // uname -r
	entries []allowance
}

type allowance struct {
	pieces string // a pattern of piece names
	what   string // of differences; "unknown": what neither decodes
	reason string
	used   int
}

// ReadAllowed reads a list: a line "kernel RELEASE", then lines of pieces, what
// and reason, separated by bars. Empty lines and lines with # are for people.
func ReadAllowed(r io.Reader) (*Allowed, error) {
	a := &Allowed{}
	in := bufio.NewScanner(r)
	for n := 1; in.Scan(); n++ {
		line := strings.TrimSpace(in.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		if release, ok := strings.CutPrefix(line, "kernel "); ok && a.Kernel == "" {
			a.Kernel = release
			continue
		}
		f := strings.Split(line, "|")
		for k := range f {
			f[k] = strings.TrimSpace(f[k])
		}
		if len(f) != 3 || f[0] == "" || f[1] == "" || f[2] == "" || a.Kernel == "" {
			return nil, fmt.Errorf("allowed differences, line %d: %q", n, line)
		}
		if _, err := path.Match(f[0], ""); err != nil {
			return nil, fmt.Errorf("allowed differences, line %d: %w", n, err)
		}
		a.entries = append(a.entries, allowance{pieces: f[0], what: f[1], reason: f[2]})
	}
	return a, in.Err()
}

// Unexplained is what of a report the list does not name.
func (a *Allowed) Unexplained(r *Report) (out []Difference) {
	for _, list := range [][]Difference{r.Differences, r.Unknown} {
		for _, d := range list {
			if !a.explains(d) {
				out = append(out, d)
			}
		}
	}
	return out
}

func (a *Allowed) explains(d Difference) bool {
	for k := range a.entries {
		e := &a.entries[k]
		if ok, _ := path.Match(e.pieces, d.Piece); ok && e.what == d.What {
			e.used++
			return true
		}
	}
	return false
}

// Unused lists entries that explained nothing: they have to go.
func (a *Allowed) Unused() (out []string) {
	for _, e := range a.entries {
		if e.used == 0 {
			out = append(out, e.pieces+" | "+e.what)
		}
	}
	return out
}
