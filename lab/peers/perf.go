package peers

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// PerfStat reads how often an event came, out of what perf stat writes with -x ',': fields of which
// the first is the count and the third the event. A part of the time would be no count.
func PerfStat(text []byte, event string) (a Answer, err error) {
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(line, ",")
		if len(f) < 5 || f[2] != event || a.Number != nil {
			return Answer{}, fmt.Errorf("perf stat: line %.80q: want one, of %s, with a count, a unit, the event, and for how much of the time it was counted", line, event)
		}
		n, err := strconv.ParseUint(f[0], 10, 64)
		if err != nil {
			return Answer{}, fmt.Errorf("perf stat: line %.80q: %w", line, err)
		}
		if f[4] != "100.00" {
			return Answer{}, fmt.Errorf("perf stat: line %.80q: it was counted for %s %% of the time", line, f[4])
		}
		a.Number = &n
	}
	if a.Number == nil {
		return Answer{}, fmt.Errorf("perf stat: says nothing of %s", event)
	}
	return a, nil
}

// scriptLine is a record of a kprobe event, as perf script shows it with -F trace.
var scriptLine = regexp.MustCompile(`^\s*\([0-9a-f]+\)((?: \w+=\S+)+)\s*$`)

// PerfScript reads the records of a kprobe event whose fields are numbers. Any other line, as
// perf's words that some were lost, is an error.
func PerfScript(text []byte) (a Answer, err error) {
	for line := range strings.Lines(string(text)) {
		m := scriptLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			return Answer{}, fmt.Errorf("perf script: line %.120q is no record", line)
		}
		var values []string
		for _, f := range strings.Fields(m[1]) {
			_, value, _ := strings.Cut(f, "=")
			values = append(values, value)
		}
		record, err := words(values)
		if err != nil {
			return Answer{}, fmt.Errorf("perf script: line %.120q: %w", line, err)
		}
		a.Records = append(a.Records, record)
	}
	return a, nil
}
