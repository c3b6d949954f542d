package probe

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"kerninst/agent/gen"
	"kerninst/agent/snippet"
	"kerninst/agent/wire"
)

// Event is one record of a trace.
type Event struct {
	NS     Moment   `json:"ns,omitzero"` // unless it has none, as those of trace()
	CPU    uint32   `json:"cpu"`
	Spec   string   `json:"spec"`
	Action string   `json:"action"`
	Fields []uint64 `json:"fields"`          // words: a command's name is two
	Shown  []string `json:"shown,omitempty"` // what is traced, as it is written, if not as it is
}

// Moment is a guest time since the workload began, in ns, or NoTime.
type Moment int64

// NoTime is that of what is only known to be behind what came before it on its CPU.
const NoTime Moment = math.MinInt64

// IsZero is what omitzero leaves out: not the begin, which is a time.
func (m Moment) IsZero() bool { return m == NoTime }

// Text is what is traced, for people.
func (e Event) Text() string {
	if e.Shown != nil {
		return strings.Join(e.Shown, " ")
	}
	return strings.Trim(fmt.Sprint(e.Fields), "[]")
}

// Traces reports whether any of the actions makes records.
func (all Compiled) Traces() bool {
	for _, a := range all {
		if a.Traces() {
			return true
		}
	}
	return false
}

// Untimed reports whether any of the actions makes records that have no time.
func (all Compiled) Untimed() bool {
	for _, a := range all {
		if a.Untimed() {
			return true
		}
	}
	return false
}

// Traced is how much came.
type Traced struct {
	Records    uint64 `json:"records"`
	Lost       uint64 `json:"lost"`       // that came when there was no room
	Unfinished uint64 `json:"unfinished"` // that are not written to their end, or behind one that is not
}

// Tracer puts what comes from the rings of several CPUs in order of time. What has no time it gives
// away at once: that of each CPU is in order. See has to be called with all that the daemon says,
// and End behind the last.
type Tracer struct {
	All Compiled    // the actions, by their names
	Got func(Event) // is called with each record

	over    bool // of stamps: see snippet.Stamp
	of      map[uint16]*origin
	rings   map[ring]Traced
	began   *wire.Trace
	now     *wire.Trace // the last
	waiting []stamped
}

// origin is what makes records with some tag.
type origin struct {
	spec, action string
	came         uint64
}

type ring struct{ cpu, fields uint32 }

// stamped is a record that others may still come before.
type stamped struct {
	cycles uint64
	cpu    uint32
	of     *origin
	fields []uint64
}

// See looks at what the daemon says.
func (t *Tracer) See(rec *wire.Record) {
	switch {
	case rec.GetHello() != nil:
		t.over = gen.StampsOver(rec.GetHello().Arch)
	case rec.GetResult() != nil:
		for _, p := range rec.GetResult().Points {
			for k, tag := range p.Tags {
				if tag != 0 && k < len(p.Actions) {
					t.tag(uint16(tag), &origin{spec: p.Spec, action: p.Actions[k]})
				}
			}
		}
	case rec.GetTrace() != nil:
		t.trace(rec.GetTrace())
	}
}

func (t *Tracer) tag(tag uint16, of *origin) {
	if t.of == nil {
		t.of = map[uint16]*origin{}
	}
	t.of[tag] = of
}

// trace adds the records of one ring. When the daemon has looked anew, all that was stamped
// before it had begun to look the last time is there.
func (t *Tracer) trace(x *wire.Trace) {
	switch {
	case t.began == nil:
		t.began = x
	case t.now != nil && t.now.Cycles != x.Cycles:
		t.flush(t.now.Cycles)
	}
	t.now = x
	r := ring{x.Cpu, x.Fields}
	if _, known := t.rings[r]; x.Fields == 0 && x.Came == 0 && !known { // of no ring: it says the time
		return
	}
	if t.rings == nil {
		t.rings = map[ring]Traced{}
	}
	t.rings[r] = Traced{Records: t.rings[r].Records, Lost: x.Lost, Unfinished: x.Unfinished}
	for rec := range slices.Chunk(x.Records, 8*int(1+x.Fields)) {
		if len(rec) < 8*int(1+x.Fields) {
			break
		}
		t.add(r, rec)
	}
}

func (t *Tracer) add(r ring, rec []byte) {
	s := stamped{cpu: r.cpu, fields: make([]uint64, r.fields)}
	first, tag := binary.LittleEndian.Uint64(rec), uint16(0)
	if r.fields == 0 {
		tag = snippet.Tag(first)
	} else {
		tag, s.cycles = snippet.Stamp(first, t.now.Cycles, t.over)
	}
	if s.of = t.of[tag]; s.of == nil { // of a step that is over: nobody asked
		return
	}
	for k := range s.fields {
		s.fields[k] = binary.LittleEndian.Uint64(rec[8+8*k:])
	}
	if r.fields == 0 {
		t.give(s, NoTime)
	} else {
		t.waiting = append(t.waiting, s)
	}
	s.of.came++
	n := t.rings[r]
	n.Records++
	t.rings[r] = n
}

// Came is how many records have come of an action at a point.
func (t *Tracer) Came(spec, action string) (n uint64) {
	for _, of := range t.of {
		if of.spec == spec && of.action == action {
			n += of.came
		}
	}
	return n
}

// flush gives away what was stamped before some time.
func (t *Tracer) flush(before uint64) {
	slices.SortStableFunc(t.waiting, func(a, b stamped) int { return cmp.Compare(a.cycles, b.cycles) })
	n, _ := slices.BinarySearchFunc(t.waiting, before, func(s stamped, before uint64) int { return cmp.Compare(s.cycles, before) })
	for _, s := range t.waiting[:n] {
		t.give(s, t.ns(s.cycles))
	}
	t.waiting = append(t.waiting[:0], t.waiting[n:]...)
}

func (t *Tracer) give(s stamped, at Moment) {
	e := Event{NS: at, CPU: s.cpu, Spec: s.of.spec, Action: s.of.action, Fields: s.fields}
	if forms := t.All[s.of.action].Shape.Fields; slices.ContainsFunc(forms, func(f Form) bool { return f != Unsigned }) {
		e.Shown = Write(forms, s.fields)
	}
	t.Got(e)
}

// ns is a time since the workload began, by what the clock showed then and at the last look.
func (t *Tracer) ns(cycles uint64) Moment {
	since, sign := cycles-t.began.Cycles, Moment(1)
	if int64(since) < 0 {
		since, sign = -since, -1
	}
	hi, lo := bits.Mul64(since, t.now.Ns-t.began.Ns)
	whole := t.now.Cycles - t.began.Cycles
	if hi >= whole {
		return 0 // before the clock has gone on
	}
	ns, _ := bits.Div64(hi, lo, whole)
	return sign * Moment(ns)
}

// End gives away what is left, and says how much there was.
func (t *Tracer) End() (all Traced) {
	t.flush(1<<64 - 1)
	for _, r := range t.rings {
		all.Records += r.Records
		all.Lost += r.Lost
		all.Unfinished += r.Unfinished
	}
	return all
}

// Gather puts what was traced into the values that were read afterwards, for who has all that
// the daemon said.
func Gather(records []*wire.Record) {
	found := map[origin][]*wire.TraceRecord{}
	t := Tracer{Got: func(e Event) {
		of := origin{spec: e.Spec, action: e.Action}
		found[of] = append(found[of], &wire.TraceRecord{Number: uint64(len(found[of])), Fields: e.Fields})
	}}
	for _, rec := range records {
		t.See(rec)
		for _, p := range rec.GetResult().GetPoints() {
			for k, tag := range p.Tags {
				if tag != 0 && k < len(p.Actions) {
					found[origin{spec: p.Spec, action: p.Actions[k]}] = nil
				}
			}
		}
		if len(rec.GetResult().GetValues()) == 0 {
			continue
		}
		all := t.End()
		for _, v := range rec.GetResult().Values {
			if records, ok := found[origin{spec: v.Spec, action: v.Action}]; ok {
				v.Records, v.Count, v.Dropped, v.Holes = records, uint64(len(records))+all.Lost, all.Lost, all.Unfinished
			}
		}
	}
}
