package peers

import (
	"strings"
	"testing"
)

func number(n uint64) Answer { return Answer{Number: &n} }

// What bpftrace 0.23 and a kernel 6.12 have written, and what it says.
const (
	bpfCount = `{"type": "attached_probes", "data": {"probes": 1}}` + "\n" + `{"type": "map", "data": {"@": 8064}}` + "\n"
	bpfKeyed = `{"type": "map", "data": {"@": {"other": 768, "bench": 8064}}}` + "\n"
	bpfHist  = `{"type": "hist", "data": {"@": [{"max": -1, "count": 0}, {"min": 0, "max": 0, "count": 3}, {"min": 1, "max": 1, "count": 126}, {"min": 2, "max": 3, "count": 0}, {"min": 4, "max": 7, "count": 5}]}}` + "\n"
	bpfTimes = `{"type": "map", "data": {"@began": {"127": 5}}}` + "\n\n" + `{"type": "map", "data": {"@": 77}}` + "\n"
	bpfLines = `{"type": "printf", "data": "4849736 1\n"}` + "\n" + `{"type": "printf", "data": "0x4a0048 2\n4849736 3\n"}` + "\n"

	profileText = "  b                                                       3000               0\n  e                                                         12               0\n"
	histText    = `# event histogram
#
# trigger info: hist:keys=len:vals=hitcount,len:sort=hitcount:size=2048 [active]
#

{ len:         16 } hitcount:       3000  len:      48000
{ len:         17 } hitcount:         10  len:        170

Totals:
    Hits: 3010
    Entries: 2
    Dropped: 0
`
	commText = `{ common_pid: bench           [       127] } hitcount:       3000
{ common_pid: a b             [       128] } hitcount:          5
{ common_pid: bench           [       129] } hitcount:          7

Totals:
    Hits: 3012
    Entries: 3
    Dropped: 0
`
	traceText = `# tracer: nop
#
# entries-in-buffer/entries-written: 4/4   #P:1
#
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
           bench-127     [000] d....     4.258108: b: (load_msg+0x0/0x210) src=0x4a0048 len=16
           bench-127     [000] d....     4.258110: e: (do_msgsnd+0x84/0x5a0 <- load_msg)
           a b-c-127     [000] ...1.    14.999999: b: (load_msg+0x0/0x210)
           bench-127     [000] .....    15.000004: e: ([unknown/kretprobe'd] <- load_msg)
`
)

func lines(t *testing.T, text string) []Line {
	t.Helper()
	all, err := Trace([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAnswers(t *testing.T) {
	hist := func(text string) []Entry {
		all, err := Histogram([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	for name, tt := range map[string]struct {
		read func() (Answer, error)
		want Answer
	}{
		"bpftrace: count":     {func() (Answer, error) { return Bpftrace([]byte(bpfCount)) }, number(8064)},
		"bpftrace: by key":    {func() (Answer, error) { return Bpftrace([]byte(bpfKeyed)) }, Answer{Keyed: map[string]uint64{"bench": 8064, "other": 768}}},
		"bpftrace: histogram": {func() (Answer, error) { return Bpftrace([]byte(bpfHist)) }, Answer{Buckets: map[uint64]uint64{0: 3, 1: 126, 4: 5}}},
		"bpftrace: other map": {func() (Answer, error) { return Bpftrace([]byte(bpfTimes)) }, number(77)},
		"bpftrace: records":   {func() (Answer, error) { return Bpftrace([]byte(bpfLines)) }, Answer{Records: [][]uint64{{4849736, 1}, {4849736, 2}, {4849736, 3}}}},
		"profile":             {func() (Answer, error) { return Profile([]byte(profileText), "e") }, number(12)},
		"by bucket":           {func() (Answer, error) { return ByBucket(hist(histText)) }, Answer{Buckets: map[uint64]uint64{16: 3010}}},
		"summed":              {func() (Answer, error) { return Summed(hist(histText), "len") }, number(48170)},
		"by command":          {func() (Answer, error) { return ByKey(hist(commText)), nil }, Answer{Keyed: map[string]uint64{"bench": 3007, "a b": 5}}},
		"trace":               {func() (Answer, error) { return Fields(lines(t, traceText)[:1]), nil }, Answer{Records: [][]uint64{{0x4a0048, 16}}}},
		"between": {func() (Answer, error) {
			micros, pairs, err := Between(lines(t, traceText), "b", "e")
			return Answer{Keyed: map[string]uint64{"micros": micros, "pairs": pairs}}, err
		}, Answer{Keyed: map[string]uint64{"micros": 7, "pairs": 2}}},
	} {
		got, err := tt.read()
		if err != nil || !got.Equal(tt.want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, tt.want)
		}
	}
}

// What differs in anything is not the same answer, and both are told apart in words.
func TestEqual(t *testing.T) {
	all := []Answer{
		{}, number(0), number(1), {Buckets: map[uint64]uint64{1: 1}}, {Buckets: map[uint64]uint64{1: 2}}, {Keyed: map[string]uint64{"a": 1}},
		{Records: [][]uint64{{1, 2}}}, {Records: [][]uint64{{1, 3}}}, {Records: [][]uint64{{1, 2}, {1, 2}}},
	}
	for i, a := range all {
		for k, b := range all {
			if a.Equal(b) != (i == k) || (a.String() == b.String()) != (i == k) {
				t.Errorf("%d (%v) and %d (%v): equal is %v", i, a, k, b, a.Equal(b))
			}
		}
	}
}

func TestBucket(t *testing.T) {
	for n, want := range map[uint64]uint64{0: 0, 1: 1, 2: 2, 3: 2, 4: 4, 63: 32, 64: 64, 1<<63 + 1: 1 << 63} {
		if got := Bucket(n); got != want {
			t.Errorf("Bucket(%d) = %d, want %d", n, got, want)
		}
	}
}

// Each text with one thing in it changed is no answer.
func TestRefuses(t *testing.T) {
	bpf := func(text string) error { _, err := Bpftrace([]byte(text)); return err }
	profile := func(text string) error { _, err := Profile([]byte(text), "e"); return err }
	hist := func(text string) error {
		all, err := Histogram([]byte(text))
		if err == nil {
			_, err = ByBucket(all)
		}
		if err == nil {
			_, err = Summed(all, "len")
		}
		return err
	}
	trace := func(text string) error { _, err := Trace([]byte(text)); return err }
	pairs := func(text string) error {
		all, err := Trace([]byte(text))
		if err == nil {
			_, _, err = Between(all, "b", "e")
		}
		return err
	}
	for _, tt := range []struct {
		read           func(string) error
		text, old, new string
	}{
		{bpf, bpfCount, `"map"`, `"stats"`},
		{bpf, bpfCount, `8064}}`, `8064`},
		{bpf, bpfCount, `8064`, `"many"`},
		{bpf, bpfCount, `8064`, `-1`},
		{bpf, bpfCount, `{"type": "attached_probes", "data": {"probes": 1}}`, `{"type": "lost_events", "data": {"events": 3}}`},
		{bpf, bpfHist, `"min": 4`, `"min": 5`},
		{bpf, bpfHist, `"max": -1, "count": 0`, `"max": -1, "count": 1`},
		{bpf, bpfLines, `4849736 1`, `4849736 one`},
		{profile, profileText, `e   `, `f   `},
		{profile, profileText, `12               0`, `12               1`},
		{profile, profileText, `12               0`, `12`},
		{hist, histText, `Hits: 3010`, `Hits: 3011`},
		{hist, histText, `Entries: 2`, `Entries: 3`},
		{hist, histText, `Dropped: 0`, `Dropped: 1`},
		{hist, histText, "Totals:\n    Hits: 3010\n", ``},
		{hist, histText, `hitcount:         10`, `hits: 10`},
		{hist, histText, `len:         17`, `len:         ab`},
		{hist, histText, `  len:        170`, ``},
		{trace, traceText, `4/4`, `4/5`},
		{trace, traceText, `src=0x4a0048`, `src`},
		{trace, traceText, `len=16`, `len=ab`},
		{trace, traceText, `4.258108`, `4.2`},
		{pairs, traceText, `4.258110: e`, `4.258107: e`},
		{pairs, traceText, `4.258110: e`, `4.258110: b`},
		{pairs, traceText, `15.000004: e`, `15.000004: f`},
	} {
		text := strings.Replace(tt.text, tt.old, tt.new, 1)
		if text == tt.text {
			t.Fatalf("%q is not in the text", tt.old)
		}
		if err := tt.read(text); err == nil {
			t.Errorf("with %q for %q there was an answer", tt.new, tt.old)
		}
		if err := tt.read(tt.text); err != nil {
			t.Errorf("unchanged: %v", err)
		}
	}
}
