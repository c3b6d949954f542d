package ask

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"kerninst/agent/probe"
	"kerninst/agent/wire"
)

// Follower hears what the daemon says while it works: what is traced, and what is shown of
// what is counted.
type Follower struct {
	live   *Live // nil: nothing is shown
	tracer probe.Tracer
	events []probe.Event

	file *os.File // that records are written to; nil: they are kept
	buf  *bufio.Writer
	to   *json.Encoder
	err  error // of writing
}

// Follow makes what is to hear all that the daemon says, and opens the file for what is
// traced. Tables are shown on a terminal, or what is none.
func (r *Request) Follow(show io.Writer, terminal bool) (*Follower, error) {
	f := &Follower{tracer: probe.Tracer{All: r.compiled}}
	f.tracer.Got = f.got
	if r.Live {
		f.live = r.liveOn(show, terminal)
	}
	var err error
	switch r.TraceTo {
	case "":
	case "-":
		f.file = os.Stdout
	default:
		if f.file, err = os.Create(r.TraceTo); err != nil {
			return nil, fmt.Errorf("--trace-to: %w", err)
		}
	}
	if f.file != nil {
		f.buf = bufio.NewWriter(f.file)
		f.to = json.NewEncoder(f.buf)
	}
	r.followed = f
	return f, nil
}

func (f *Follower) got(e probe.Event) {
	switch {
	case f.to == nil:
		f.events = append(f.events, e)
	case f.err == nil:
		f.err = f.to.Encode(e)
	}
}

// end closes the file, and says how much there was.
func (f *Follower) end() (probe.Traced, error) {
	all := f.tracer.End()
	if f.file == nil {
		return all, nil
	}
	err := cmp.Or(f.err, f.buf.Flush())
	if f.file != os.Stdout {
		err = cmp.Or(err, f.file.Close())
	}
	return all, err
}

// See looks at what the daemon says.
func (f *Follower) See(rec *wire.Record) {
	f.tracer.See(rec)
	if f.live != nil {
		f.live.see(rec)
	}
}

// Trace is what was traced.
type Trace struct {
	probe.Traced
	// Events are the records in order of time, or where they have none, of each CPU in order; unless
	// they were written as they came.
	Events []probe.Event `json:"events,omitempty"`
}

// trace fills in what was traced.
func (a *Answer) trace(r *Request, records []*wire.Record) {
	f := r.followed
	if f == nil { // what was said was kept
		f = &Follower{tracer: probe.Tracer{All: r.compiled}}
		f.tracer.Got, r.followed = f.got, f
		for _, rec := range records {
			f.tracer.See(rec)
		}
	}
	all, err := f.end()
	if err != nil && a.Wrong == "" {
		a.Wrong = "writing what is traced: " + err.Error()
	}
	if !r.compiled.Traces() {
		return
	}
	a.Trace = &Trace{Traced: all, Events: f.events}
}

// print writes the records in that order, those without a time first, one CPU's behind the other's.
// sources are the lines of the points that are known.
func (t *Trace) print(to io.Writer, sources map[string]string) {
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', 0)
	several := slices.ContainsFunc(t.Events, func(e probe.Event) bool { return e.Action != t.Events[0].Action })
	events := slices.Clone(t.Events)
	slices.SortStableFunc(events, func(a, b probe.Event) int {
		if a.NS != probe.NoTime && b.NS != probe.NoTime {
			return 0
		}
		return cmp.Or(cmp.Compare(a.NS, b.NS), cmp.Compare(a.CPU, b.CPU))
	})
	for _, e := range events {
		when := "no time"
		if e.NS != probe.NoTime {
			when = fmt.Sprintf("%.9f s", float64(e.NS)/1e9)
		}
		columns := []string{when, fmt.Sprintf("CPU %d", e.CPU), e.Spec}
		if s := sources[e.Spec]; s != "" {
			columns = append(columns, s)
		}
		if several {
			columns = append(columns, e.Action)
		}
		fmt.Fprintln(w, strings.TrimRight(strings.Join(append(columns, e.Text()), "\t"), "\t"))
	}
	w.Flush()
}
