package daemon

import (
	"kerninst/agent/isa"
	"kerninst/agent/kdev"
	"kerninst/agent/ktext"
	"kerninst/agent/plan"
	"kerninst/agent/splice"
	"kerninst/agent/wire"
)

// moment reads the cells of every live splice. If any is of a function that is timed, that is
// at one moment, at which it is known who is inside.
func (d *Daemon) moment() (map[*splice.Live][]uint64, *wire.Moment, error) {
	timed := d.timed()
	if len(timed.names) == 0 {
		return d.countAll(), nil, nil
	}
	if err := d.clocks.room(); err != nil {
		return nil, nil, err
	}
	live := d.splicer.Live()
	var cells []kdev.Cells
	for _, l := range live {
		for _, p := range l.Places() {
			if last := len(cells) - 1; last >= 0 && !p.Local && !cells[last].Local &&
				cells[last].Addr+isa.Addr(8*cells[last].Words) == p.Addr && cells[last].Words < longestList {
				cells[last].Words++
				continue
			}
			cells = append(cells, kdev.Cells{Addr: p.Addr, Words: 1, Local: p.Local})
		}
	}
	m, err := d.dev.Moment(cells, d.within(timed, live), d.clocks.kept())
	if err != nil {
		return nil, nil, err
	}
	counts, at := map[*splice.Live][]uint64{}, 0
	for _, l := range live {
		n := l.Plan.Snippet.Words()
		counts[l] = l.Read(m.Words[at : at+n])
		at += n
	}
	return counts, timed.moment(m), nil
}

// longestList is how many words of cells are looked at as one.
const longestList = 1 << 12

// timed are the functions whose time is taken, each with all of its halves.
type timed struct {
	names []string
	of    map[isa.Addr]int // by where a half begins
	funcs []ktext.Func     // the halves
}

func (d *Daemon) timed() timed {
	t := timed{of: map[isa.Addr]int{}}
	for _, s := range d.sets {
		for i, l := range s.live {
			for _, a := range s.actions[i] {
				if a.timed != wire.Timed_UNTIMED {
					t.add(d.text, l)
				}
			}
		}
	}
	return t
}

func (t *timed) add(text *ktext.Text, l *splice.Live) {
	f, ok := text.Locate(l.Plan.At())
	if _, known := t.of[f.Addr]; known || !ok {
		return
	}
	n := len(t.names)
	t.names = append(t.names, timedFunction(text, l))
	for _, name := range plan.Halves(text, f.Module, f.Name) {
		if half, err := text.Function(f.Module, name); err == nil {
			t.of[half.Addr] = n
			t.funcs = append(t.funcs, half)
		}
	}
	if _, ok := t.of[f.Addr]; !ok { // which has another name
		t.of[f.Addr] = n
		t.funcs = append(t.funcs, f)
	}
}

// timedFunction is the name that the halves of a splice's function have together.
func timedFunction(text *ktext.Text, l *splice.Live) string {
	f, _ := text.Locate(l.Plan.At())
	name := f.Name
	if halves := plan.Halves(text, f.Module, f.Name); plan.Half(name) {
		name = halves[len(halves)-1]
	}
	return f.Module + ":" + name
}

// within is the code that is the functions': their own, and what runs instead of a part of
// it, which is where it is called to return to.
func (d *Daemon) within(t timed, live []*splice.Live) (out []kdev.Range) {
	add := func(a isa.Addr, n, of int) {
		if n > 0 {
			out = append(out, kdev.Range{Start: a, End: a + isa.Addr(n), Of: of})
		}
	}
	for _, f := range t.funcs {
		add(f.Addr, int(f.Size), t.of[f.Addr])
	}
	of := func(a isa.Addr) (int, bool) {
		f, ok := d.text.Locate(a)
		n, timed := t.of[f.Addr]
		return n, ok && timed
	}
	moved := map[isa.Addr]bool{}
	for _, l := range live {
		if n, ok := of(l.Plan.At()); ok {
			add(l.Plan.Patch, len(l.Plan.Code), n)
			if x := l.Plan.Annex; x != nil {
				add(x.Addr, len(x.Code), n)
			}
		}
		if e := l.Plan.Moves(); e != nil && !moved[e.Patch] {
			moved[e.Patch] = true
			if n, ok := of(e.Body); ok {
				add(e.Patch, len(e.Copy), n)
			}
		}
	}
	return out
}

func (t timed) moment(m kdev.Moment) *wire.Moment {
	out := &wire.Moment{Cycles: m.Cycles, Ns: m.NS, Cut: uint32(m.Cut)}
	for _, i := range m.Inside {
		out.Inside = append(out.Inside, &wire.Moment_Inside{
			Process: i.Process, Thread: i.Thread, Comm: i.Comm, Function: t.names[i.Of], Frames: uint32(i.Frames), Clock: i.Clock})
	}
	return out
}
