package peers

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// TapNumber reads a number, which is all that a script of SystemTap's has printed.
func TapNumber(text []byte) (Answer, error) {
	n, err := words(strings.Fields(string(text)))
	if err != nil {
		return Answer{}, fmt.Errorf("systemtap: %w", err)
	}
	if len(n) != 1 {
		return Answer{}, fmt.Errorf("systemtap: %.80q is not one number", text)
	}
	return Answer{Number: &n[0]}, nil
}

// tapKey is a name, which may have spaces in it, and a number.
var tapKey = regexp.MustCompile(`^(.+) (\d+)$`)

// TapKeyed reads a number for each name, one a line.
func TapKeyed(text []byte) (Answer, error) {
	a := Answer{Keyed: map[string]uint64{}}
	for line := range strings.Lines(string(text)) {
		m := tapKey.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			return Answer{}, fmt.Errorf("systemtap: line %.80q: want a name and a number", line)
		}
		n, err := strconv.ParseUint(m[2], 10, 64)
		if _, twice := a.Keyed[m[1]]; twice || err != nil {
			return Answer{}, fmt.Errorf("systemtap: line %.80q: it is no number, or the second of its name", line)
		}
		a.Keyed[m[1]] = n
	}
	return a, nil
}

// TapRecords reads a record of numbers from each line.
func TapRecords(text []byte) (a Answer, err error) {
	for line := range strings.Lines(string(text)) {
		record, err := words(strings.Fields(line))
		if err != nil || len(record) == 0 {
			return Answer{}, fmt.Errorf("systemtap: line %.80q is no record: %w", line, err)
		}
		a.Records = append(a.Records, record)
	}
	return a, nil
}

var (
	// tapBar is one bucket of @hist_log, its smallest value in front.
	tapBar = regexp.MustCompile(`^ *(\d+) \|@* *(\d+)$`)
	// tapHead is above the bars; where there would be many without anything in them is a tilde.
	tapHead = regexp.MustCompile(`^ *(value \|-+ count|~)$`)
)

// TapHistogram reads what @hist_log prints.
func TapHistogram(text []byte) (a Answer, err error) {
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if line == "" || tapHead.MatchString(line) {
			continue
		}
		m := tapBar.FindStringSubmatch(line)
		if m == nil {
			return Answer{}, fmt.Errorf("systemtap: line %.80q is no bucket of a histogram", line)
		}
		n, err := decimals(m[1:]...)
		if err != nil || n[0] != Bucket(n[0]) {
			return Answer{}, fmt.Errorf("systemtap: line %.80q: a bucket of a power of two begins at one, or at 0", line)
		}
		if n[1] > 0 {
			a.add(n[0], n[1])
		}
	}
	return a, nil
}
