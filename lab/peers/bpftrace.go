package peers

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// said is one line of bpftrace's output with -f json.
type said struct {
	Type string          `json:"type"`
	Data json.RawMessage `json:"data"`
}

// bar is one bucket of bpftrace's histograms. The lowest has no min, the highest no max.
type bar struct {
	Min   *int64 `json:"min"`
	Count uint64 `json:"count"`
}

// Bpftrace reads what bpftrace has written with -f json: the map called @, and the lines
// that printf made, each of numbers. Maps of other names are the program's own affair.
func Bpftrace(out []byte) (a Answer, err error) {
	in := bufio.NewScanner(bytes.NewReader(out))
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		line := bytes.TrimSpace(in.Bytes())
		if len(line) == 0 {
			continue
		}
		var s said
		if err := json.Unmarshal(line, &s); err != nil {
			return a, fmt.Errorf("bpftrace: line %.80q: %w", line, err)
		}
		if read, ok := sayings[s.Type]; !ok {
			return a, fmt.Errorf("bpftrace: line %.80q: nothing is known of type %q", line, s.Type)
		} else if err := read(&a, s.Data); err != nil {
			return a, fmt.Errorf("bpftrace: line %.80q: %w", line, err)
		}
	}
	return a, in.Err()
}

// sayings are the types of lines, and what is read of each.
var sayings = map[string]func(*Answer, json.RawMessage) error{
	"attached_probes": func(*Answer, json.RawMessage) error { return nil },
	"lost_events": func(_ *Answer, data json.RawMessage) error {
		return fmt.Errorf("records were lost: %s", data)
	},
	"map":    (*Answer).number,
	"hist":   (*Answer).histogram,
	"printf": (*Answer).printed,
}

// answering is the map whose value is the answer.
const answering = "@"

// number is a map of one number, or of one for each key.
func (a *Answer) number(data json.RawMessage) error {
	var maps map[string]json.RawMessage
	if err := json.Unmarshal(data, &maps); err != nil {
		return err
	}
	value, ok := maps[answering]
	if !ok {
		return nil
	}
	if bytes.HasPrefix(value, []byte("{")) {
		return json.Unmarshal(value, &a.Keyed)
	}
	return json.Unmarshal(value, &a.Number)
}

func (a *Answer) histogram(data json.RawMessage) error {
	var maps map[string][]bar
	if err := json.Unmarshal(data, &maps); err != nil {
		return err
	}
	for _, b := range maps[answering] {
		if b.Count == 0 {
			continue
		}
		if b.Min == nil || *b.Min < 0 || uint64(*b.Min) != Bucket(uint64(*b.Min)) {
			return fmt.Errorf("a bucket of a power of two begins at one, or at 0")
		}
		a.add(uint64(*b.Min), b.Count)
	}
	return nil
}

// add adds to a bucket.
func (a *Answer) add(lo, n uint64) {
	if a.Buckets == nil {
		a.Buckets = map[uint64]uint64{}
	}
	a.Buckets[lo] += n
}

// printed is what printf wrote, which may be several lines.
func (a *Answer) printed(data json.RawMessage) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		record, err := words(strings.Fields(line))
		if err != nil {
			return err
		}
		a.Records = append(a.Records, record)
	}
	return nil
}

// words are numbers as programs write them, decimal or 0x.
func words(fields []string) (out []uint64, err error) {
	for _, f := range fields {
		n, err := strconv.ParseUint(f, 0, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is no number: %w", f, err)
		}
		out = append(out, n)
	}
	return out, nil
}
