package probe

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/wire"
)

// twoMoments are of one function with a task that was there when counting began, at 1000 cycles,
// and left at 1500; one that came at 1200 and is there still, at 3000, the end; and one
// that came at 1300 and left at 1400. A cycle is two nanoseconds.
func twoMoments() ([]*wire.Value, []*wire.Moment) {
	const f = ":f"
	value := func(timed wire.Timed, cycles, n uint64) *wire.Value {
		return &wire.Value{Timed: timed, Function: f, Rows: []*wire.Row{{Values: []uint64{cycles, n}}}}
	}
	moment := func(cycles uint64, in ...*wire.Moment_Inside) *wire.Moment {
		return &wire.Moment{Cycles: cycles, Ns: 2 * cycles, Inside: in}
	}
	return []*wire.Value{value(wire.Timed_ENTERS, 1200+1300, 2), value(wire.Timed_LEAVES, 1500, 1), value(wire.Timed_LEAVES, 1400, 1)},
		[]*wire.Moment{
			moment(1000, &wire.Moment_Inside{Process: 7, Thread: 8, Comm: "a", Function: f, Frames: 1}, &wire.Moment_Inside{Function: ":g", Frames: 5}),
			moment(3000, &wire.Moment_Inside{Process: 9, Thread: 9, Comm: "b", Function: f, Frames: 1}),
		}
}

func timedAction(t *testing.T, predicate, action string) Action {
	t.Helper()
	a, err := inside(t, "vfs_read").Compile(predicate, action)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestTimes(t *testing.T) {
	values, moments := twoMoments()
	got := timedAction(t, "", "time").Times(values, moments)
	if len(got) != 1 || len(got[0].Rows) != 1 {
		t.Fatalf("%+v", got)
	}
	// 500 + 1800 + 100 cycles of 2000.
	if r := got[0].Rows[0]; r.Calls != 2 || r.Begin != 1 || r.End != 1 || r.Missing != 0 || r.Inside != 1.2 || r.NS != 4800 {
		t.Errorf("%+v", r)
	}
	moments[1].Inside = nil // it has not returned, and is not there
	r := timedAction(t, "", "concurrency").Times(values, moments)[0]
	if r.Rows[0].Missing != 1 || r.Rows[0].Inside != 0 {
		t.Errorf("%+v", r.Rows[0])
	}
	var out bytes.Buffer
	PrintTimes(&out, []Times{r})
	if !strings.Contains(out.String(), "not known: 1 calls more began than ended") {
		t.Error(out.String())
	}
	out.Reset()
	PrintTimes(&out, []Times{{Rows: []Timed{{Missing: -2}}}})
	if !strings.Contains(out.String(), "not known: 2 calls more ended than began") {
		t.Error(out.String())
	}
}

// Blocks of a function are apart from each other and from the function, and in one table. Who
// came to each at 2000 is in the first at last, and nowhere in the second.
func TestTimesOfBlocks(t *testing.T) {
	values, moments := twoMoments()
	first, second := &wire.Block{Begin: 8, End: 40}, &wire.Block{Begin: 40, End: 60}
	for _, b := range []*wire.Block{second, first} {
		values = append(values, &wire.Value{Timed: wire.Timed_ENTERS, Function: ":f", Block: b, Rows: []*wire.Row{{Values: []uint64{2000, 1}}}})
	}
	moments[1].Inside = append(moments[1].Inside, &wire.Moment_Inside{Function: ":f", Frames: 1, Block: first})
	var out bytes.Buffer
	PrintTimes(&out, timedAction(t, "", "concurrency").Times(values, moments))
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	if want := []string{
		"kinst::f:entry concurrency", "calls there at first at last time of a call inside in the mean", "2 1 1 4.8000 µs - 1.200000",
		"kinst::f:block concurrency", "entries there at first at last time of an entry inside in the mean block",
		"1 0 1 2.0000 µs - 0.500000 8 to 40", "1 0 0 not known: 1 calls more began than ended 40 to 60",
	}; !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

// Of who is inside at a moment, virtual time asks his clock.
func TestVirtual(t *testing.T) {
	values, moments := twoMoments()
	moments[0].Inside[0].Clock, moments[1].Inside[0].Clock = 900, 1700
	a := timedAction(t, "", "vtime")
	if !a.Timed() || !strings.Contains(a.Snippet.String(), "clock c0 8") {
		t.Errorf("%v", a.Snippet)
	}
	// 1500 - 900, 1700 - 1200 and 1400 - 1300 cycles of 2000.
	if r := a.Times(values, moments)[0].Rows[0]; r.Missing != 0 || r.Inside != 0.6 || r.NS != 2400 {
		t.Errorf("%+v", r)
	}
	if _, err := (At{}).Compile("", "vtime"); err == nil || !strings.Contains(err.Error(), "the kernel's types are not known here") {
		t.Error(err)
	}
}

// Whom a predicate is about is told of those who are inside, too.
func TestTimesOfSome(t *testing.T) {
	_, moments := twoMoments()
	for predicate, want := range map[string][2]int64{
		`pid == 7`:                    {1, 0},
		`7 == pid && tid != 7`:        {1, 0},
		`comm == "b"`:                 {0, 1},
		`!(comm == "b")`:              {1, 0},
		`comm == "b" || (pid == 0x7)`: {1, 1},
		`pid != 7 && pid != 9`:        {0, 0},
	} {
		values := []*wire.Value{{Timed: wire.Timed_ENTERS, Function: ":f"}}
		r := timedAction(t, predicate, "time").Times(values, moments)[0].Rows[0]
		if got := [2]int64{r.Begin, r.End}; got != want {
			t.Errorf("%s: %v inside at first and at last, want %v", predicate, got, want)
		}
	}
}

func TestTimedByKeys(t *testing.T) {
	_, moments := twoMoments()
	text := func(s string) uint64 { return uint64(s[0]) }
	values := []*wire.Value{
		{Timed: wire.Timed_LEAVES, Function: ":f", Rows: []*wire.Row{{Keys: []uint64{text("a"), 0}, Values: []uint64{1500, 1}}}},
		{Timed: wire.Timed_ENTERS, Function: ":f", Rows: []*wire.Row{{Keys: []uint64{text("b"), 0}, Values: []uint64{2000, 1}}}},
	}
	rows := timedAction(t, "", "time by comm").Times(values, moments)[0].Rows
	if len(rows) != 2 || rows[0].Keys[0] != "a" || rows[0].Inside != 0.25 || rows[1].Keys[0] != "b" || rows[1].Inside != 0.5 {
		t.Errorf("%+v", rows)
	}
}

func TestTimedErrors(t *testing.T) {
	for _, tt := range [][3]string{
		{"arg0 == 1", "time", "who is inside when counting begins is known by pid, tid and comm"},
		{"pid < 3", "time", "compare them by == and !="},
		{"cpu == 3", "concurrency", "column 1"},
		{"", "time by arg0", "by arg0: who is inside"},
		{"", "time(3)", "takes no operand"},
	} {
		if _, err := inside(t, "vfs_read").Compile(tt[0], tt[1]); err == nil || !strings.Contains(err.Error(), tt[2]) {
			t.Errorf("/%s/ %s: %v, want %q", tt[0], tt[1], err, tt[2])
		}
	}
	s, err := Parse("kinst::f:8 time")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (Compiled{}).Add(s, "", nil, nil, At{}, nil); err == nil || !strings.Contains(err.Error(), "time is of a whole function, kinst::f:entry, or of each of its blocks, kinst::f:block") {
		t.Error(err)
	}
}

func TestDuration(t *testing.T) {
	for ns, want := range map[float64]string{0: "0 ns", 999: "999 ns", 1500: "1.5000 µs", 2e6: "2.0000 ms", 61e9: "61.0000 s"} {
		if got := duration(ns); got != want {
			t.Errorf("%v: %s, want %s", ns, got, want)
		}
	}
}
