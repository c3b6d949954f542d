package peers

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Profile reads how often a kprobe event was hit out of kprobe_profile: lines of a name,
// hits, and misses, of which there have to be none.
func Profile(text []byte, event string) (Answer, error) {
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != event {
			continue
		}
		n, err := words(f[1:])
		if err != nil || len(n) != 2 {
			return Answer{}, fmt.Errorf("kprobe_profile: line %.80q: want a name, hits and misses", line)
		}
		if n[1] != 0 {
			return Answer{}, fmt.Errorf("kprobe_profile: %s was missed %d times", event, n[1])
		}
		return Answer{Number: &n[0]}, nil
	}
	return Answer{}, fmt.Errorf("kprobe_profile: has no event %s", event)
}

// histLine is one entry of a histogram: its key, which may be a command's name with its
// process, how often, and sums.
var histLine = regexp.MustCompile(`^\{ (\w[\w.]*): +(.*?) +\} hitcount: +(\d+)((?:  \w+: +\d+)*)$`)

// command is a key's value where it is one of common_pid.execname.
var command = regexp.MustCompile(`^(.*?) +\[ *\d+\]$`)

// Entry is a line of a histogram of the kernel's.
type Entry struct {
	Key  string
	Hits uint64
	Sums map[string]uint64 // by field
}

// Histogram reads what the kernel shows of a trigger hist with one key. It must have lost
// nothing, and add up.
func Histogram(text []byte) (out []Entry, err error) {
	total := map[string]uint64{}
	var hits uint64
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if m := histLine.FindStringSubmatch(line); m != nil {
			e, err := entryOf(m)
			if err != nil {
				return nil, fmt.Errorf("histogram: line %.80q: %w", line, err)
			}
			out, hits = append(out, e), hits+e.Hits
		} else if strings.HasPrefix(line, "{") {
			return nil, fmt.Errorf("histogram: line %.80q is no entry", line)
		} else if name, n, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && !strings.HasPrefix(line, "#") {
			if total[name], err = strconv.ParseUint(strings.TrimSpace(n), 10, 64); err != nil {
				return nil, fmt.Errorf("histogram: line %.80q: %w", line, err)
			}
		}
	}
	for name, want := range map[string]uint64{"Hits": hits, "Entries": uint64(len(out)), "Dropped": 0} {
		if got, ok := total[name]; !ok || got != want {
			return nil, fmt.Errorf("histogram: %s are %d, of entries that make %d", name, got, want)
		}
	}
	return out, nil
}

func entryOf(m []string) (e Entry, err error) {
	e = Entry{Key: m[2], Sums: map[string]uint64{}}
	if c := command.FindStringSubmatch(m[2]); c != nil {
		e.Key = c[1]
	}
	if e.Hits, err = strconv.ParseUint(m[3], 10, 64); err != nil {
		return e, err
	}
	f := strings.Fields(m[4])
	for i := 0; i+1 < len(f); i += 2 {
		if e.Sums[strings.TrimSuffix(f[i], ":")], err = strconv.ParseUint(f[i+1], 10, 64); err != nil {
			return e, err
		}
	}
	return e, nil
}

// ByBucket is a histogram of numbers in powers of two.
func ByBucket(all []Entry) (a Answer, err error) {
	for _, e := range all {
		n, err := strconv.ParseUint(e.Key, 0, 64)
		if err != nil {
			return a, fmt.Errorf("histogram: key %q is no number: %w", e.Key, err)
		}
		a.add(Bucket(n), e.Hits)
	}
	return a, nil
}

// ByKey is a histogram of names. Processes of one name are one.
func ByKey(all []Entry) Answer {
	a := Answer{Keyed: map[string]uint64{}}
	for _, e := range all {
		a.Keyed[e.Key] += e.Hits
	}
	return a
}

// Summed adds up a field of all entries.
func Summed(all []Entry, field string) (Answer, error) {
	var sum uint64
	for _, e := range all {
		n, ok := e.Sums[field]
		if !ok {
			return Answer{}, fmt.Errorf("histogram: entry %s has no sum of %s", e.Key, field)
		}
		sum += n
	}
	return Answer{Number: &sum}, nil
}

// traceLine is a record of a kprobe event, fields and all; or of a kretprobe's.
var traceLine = regexp.MustCompile(`^ *.{1,16}-\d+ +\[\d+\] +\S+ +(\d+)\.(\d{6}): (\w+): \([^()]*\)(.*)$`)

// Line is a record of a trace.
type Line struct {
	Event  string
	Micros uint64
	Fields map[string]uint64
	order  []uint64
}

// Trace reads a trace of kprobe events, whose fields are numbers. The kernel says in front
// of it how many records it has of how many that were written.
func Trace(text []byte) (out []Line, err error) {
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "#") {
			if err := whole(line); err != nil {
				return nil, err
			}
			continue
		}
		m := traceLine.FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("trace: line %.120q is no record", line)
		}
		l, err := lineOf(m)
		if err != nil {
			return nil, fmt.Errorf("trace: line %.120q: %w", line, err)
		}
		out = append(out, l)
	}
	return out, nil
}

var written = regexp.MustCompile(`entries-in-buffer/entries-written: (\d+)/(\d+)`)

// whole holds a trace's heading against records that are gone.
func whole(heading string) error {
	if m := written.FindStringSubmatch(heading); m != nil && m[1] != m[2] {
		return fmt.Errorf("trace: has %s records of %s", m[1], m[2])
	}
	return nil
}

func lineOf(m []string) (l Line, err error) {
	n, err := decimals(m[1], m[2])
	if err != nil {
		return l, err
	}
	l = Line{Event: m[3], Micros: n[0]*1e6 + n[1], Fields: map[string]uint64{}}
	for _, f := range strings.Fields(m[4]) {
		name, value, ok := strings.Cut(f, "=")
		if !ok {
			return l, fmt.Errorf("%q is no field", f)
		}
		n, err := words([]string{value})
		if err != nil {
			return l, err
		}
		l.Fields[name], l.order = n[0], append(l.order, n[0])
	}
	return l, nil
}

// decimals are numbers without a prefix, whatever zeros they begin with.
func decimals(fields ...string) (out []uint64, err error) {
	for _, f := range fields {
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

// Fields are a trace's records, each the numbers of its fields, as they are written.
func Fields(all []Line) (a Answer) {
	for _, l := range all {
		a.Records = append(a.Records, l.order)
	}
	return a
}

// Between adds up the microseconds from each record of one event to the next of another,
// and says of how many pairs. Nothing may nest.
func Between(all []Line, enters, leaves string) (micros, pairs uint64, err error) {
	var began *uint64
	for i := range all {
		switch l := &all[i]; {
		case l.Event == enters && began == nil:
			began = &l.Micros
		case l.Event == leaves && began != nil && l.Micros >= *began:
			micros, pairs, began = micros+l.Micros-*began, pairs+1, nil
		default:
			return 0, 0, fmt.Errorf("trace: record %d, of %s, has none that it goes with", i, l.Event)
		}
	}
	if began != nil {
		return 0, 0, fmt.Errorf("trace: an %s at the end has no %s", enters, leaves)
	}
	return micros, pairs, nil
}
