package ask

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kerninst/agent/ktypes"
	"kerninst/agent/ktypes/ktypestest"
	"kerninst/agent/probe"
	"kerninst/agent/snippet"
	"kerninst/agent/wire"
)

// TestNotes: an index that is not used is told of; of a copy that nobody has asked for it is said why it is there, and who is not counted; of one that somebody
// has, nothing.
func TestNotes(t *testing.T) {
	r := &Request{}
	a := r.Answer([]*wire.Record{{Body: &wire.Record_Result{Result: &wire.Result{Step: stepSplice, IndexError: "it is another's", Clones: []*wire.Clone{
		{Entry: "vfs_read", Mechanism: "jump", Bytes: 1200, Points: 14, Inside: 2}, {Entry: "vfs_write", Mechanism: "jump", Bytes: 900}}}}}})
	notes := r.Notes(a)
	if len(a.Clones) != 1 || len(notes) != 3 || !strings.HasSuffix(notes[0], "it is another's") || !strings.Contains(notes[1], "the 14 points of vfs_read") || !strings.Contains(notes[2], "2 tasks sleep in vfs_read") {
		t.Errorf("%+v: %q", a.Clones, notes)
	}
}

// A workload whose output is cut says so; one whose is whole has no such key.
func TestTruncated(t *testing.T) {
	for _, cut := range []bool{false, true} {
		r := &Request{}
		a := r.Answer([]*wire.Record{
			{Body: &wire.Record_Result{Result: &wire.Result{Step: "workload", Runs: []*wire.RunResult{{Stdout: []byte("x"), Truncated: cut}}}}},
		})
		if said := strings.Contains(strings.Join(r.Notes(a), "\n"), "is cut"); said != cut {
			t.Errorf("cut %v, said %v", cut, said)
		}
		text, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(text), `"truncated":true`); got != cut || strings.Contains(string(text), "truncated") != cut {
			t.Errorf("cut %v: %s", cut, text)
		}
	}
}

// What actions found comes as numbers with their sign; the smallest of nothing is none.
func TestActions(t *testing.T) {
	r := &Request{Timeout: time.Second, Do: []string{"min(int32(arg0))", "max(arg0)", "trace(arg1)", "sum(load8(arg0))", "sum(int64(arg0))"}, Specs: []string{"kinst::p:8"}, Shell: "true"}
	if _, err := r.Job(probe.At{}); err != nil {
		t.Fatal(err)
	}
	values := []*wire.Value{
		{Spec: "p", Action: r.Do[0], Count: 2, Bounded: true, Bound: 1<<64 - 5, Signed: true},
		{Spec: "p", Action: r.Do[1]},
		{Spec: "p", Action: r.Do[2]},
		{Spec: "p", Action: r.Do[3], Count: 7, Faults: 3},
		{Spec: "p", Action: r.Do[4], Count: 1<<64 - 2},
	}
	a := r.Answer([]*wire.Record{
		{Body: &wire.Record_Result{Result: &wire.Result{Step: "splice", Points: []*wire.PointResult{{Spec: "p"}}}}},
		{Body: &wire.Record_Result{Result: &wire.Result{Step: "read", Values: values}}},
	})
	text, err := json.Marshal(a.Points[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"value":-5,`, `{"action":"min(int32(arg0))","value":-5,"hits":2}`, `{"action":"max(arg0)","hits":0}`,
		`{"action":"sum(load8(arg0))","value":7,"hits":7,"faults":3}`, `{"action":"sum(int64(arg0))","value":-2,`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s\nhas no %s", text, want)
		}
	}
}

// TestTrace: what comes from several rings is in order of time, as far as it can be; what was
// lost is said; and what is written as it comes is not kept.
func TestTrace(t *testing.T) {
	const began, tick = 1 << 40, 1000 // cycles, and of them in 2 microseconds
	record := func(tag, after, field uint64) (out []byte) {
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, began+after+tag<<48), field)
	}
	trace := func(cpu uint32, ticks, lost, unfinished uint64, records ...[]byte) *wire.Record {
		x := &wire.Trace{Cpu: cpu, Fields: 1, Records: slices.Concat(records...), Cycles: began + ticks*tick, Ns: 7e9 + ticks*2000, Lost: lost, Unfinished: unfinished}
		return &wire.Record{Body: &wire.Record_Trace{Trace: x}}
	}
	said := []*wire.Record{
		{Body: &wire.Record_Hello{Hello: &wire.Hello{Arch: "amd64"}}},
		{Body: &wire.Record_Result{Result: &wire.Result{Step: "splice", Points: []*wire.PointResult{
			{Spec: "p", Actions: []string{"trace(int32(arg1))", "count"}, Tags: []uint32{7, 0}}, {Spec: "q", Actions: []string{"trace(int32(arg1))"}, Tags: []uint32{8}}}}}},
		{Body: &wire.Record_Trace{Trace: &wire.Trace{Cycles: began, Ns: 7e9}}},
		trace(0, 1, 0, 0, record(7, 100, 1), record(8, 900, 1<<64-1), record(9, 950, 5)), // nobody has tag 9
		trace(1, 1, 0, 0, record(7, 500, 2), record(7, 1100, 3)),                         // the second came while the daemon looked
		trace(0, 2, 2, 0, record(8, 1050, 4)),
		trace(1, 2, 1, 3),
	}
	for _, file := range []string{"", filepath.Join(t.TempDir(), "trace")} {
		r := &Request{Timeout: time.Second, Do: []string{"trace(int32(arg1))", "count"}, Specs: []string{"kinst::p:8", "kinst::q:8"}, Shell: "true", TraceTo: file}
		if _, err := r.Job(probe.At{}); err != nil {
			t.Fatal(err)
		}
		f, err := r.Follow(nil, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range said {
			f.See(rec)
		}
		read := &wire.Record{Body: &wire.Record_Result{Result: &wire.Result{Step: "read", Values: []*wire.Value{{Spec: "p", Action: r.Do[0]}, {Spec: "p", Action: "count", Count: 3}, {Spec: "q", Action: r.Do[0]}}}}}
		a := r.Answer(append([]*wire.Record{said[1]}, read))
		if a.Wrong != "" || a.Trace == nil || a.Trace.Traced != (probe.Traced{Records: 5, Lost: 3, Unfinished: 3}) {
			t.Fatalf("%+v, %q", a.Trace, a.Wrong)
		}
		events := a.Trace.Events
		if file != "" {
			text, err := os.ReadFile(file)
			if err != nil || len(events) > 0 {
				t.Fatalf("%v, %d records are kept", err, len(events))
			}
			for line := range strings.Lines(string(text)) {
				var e probe.Event
				if err := json.Unmarshal([]byte(line), &e); err != nil {
					t.Fatal(err)
				}
				events = append(events, e)
			}
		}
		var got []string
		for _, e := range events {
			got = append(got, fmt.Sprintf("%d %d %s %s", e.NS, e.CPU, e.Spec, e.Text()))
		}
		if want := []string{"200 0 p 1", "1000 1 p 2", "1800 0 q -1", "2100 0 q 4", "2200 1 p 3"}; !slices.Equal(got, want) {
			t.Errorf("%q\nwant %q", got, want)
		}
		if a.Points[0].Actions[0].Hits != 3 || a.Points[1].Actions[0].Hits != 2 {
			t.Errorf("%+v", a.Points)
		}
		if notes := strings.Join(r.Notes(a), "\n"); !strings.Contains(notes, "3 records were lost") || !strings.Contains(notes, "3 records were not written") {
			t.Errorf("%q", notes)
		}
	}
}

// TestUntimed: records that have no time are in order on each CPU, are told without one, and those
// that were lost are known.
func TestUntimed(t *testing.T) {
	const action = "trace()"
	words := func(tags ...uint16) (out []byte) {
		for _, tag := range tags {
			out = binary.LittleEndian.AppendUint64(out, snippet.Ring{Tag: tag}.Word())
		}
		return out
	}
	trace := func(x *wire.Trace) *wire.Record { return &wire.Record{Body: &wire.Record_Trace{Trace: x}} }
	said := []*wire.Record{
		{Body: &wire.Record_Hello{Hello: &wire.Hello{Arch: "riscv64"}}},
		{Body: &wire.Record_Result{Result: &wire.Result{Step: "splice", Points: []*wire.PointResult{
			{Spec: "p", Actions: []string{action}, Tags: []uint32{7}}, {Spec: "q", Actions: []string{action}, Tags: []uint32{0xfffe}}}}}},
		trace(&wire.Trace{Cycles: 5, Ns: 7}),
		trace(&wire.Trace{Cpu: 1, Records: words(7, 7), Cycles: 6, Ns: 8, Came: 2}),
		trace(&wire.Trace{Cpu: 0, Records: words(0xfffe, 7, 9), Cycles: 6, Ns: 8, Came: 3}), // nobody has tag 9
		trace(&wire.Trace{Cpu: 1, Records: words(0xfffe), Cycles: 9, Ns: 11, Came: 8, Lost: 4, Unfinished: 1}),
	}
	r := &Request{Timeout: time.Second, Do: []string{action}, Specs: []string{"kinst::p:8", "kinst::q:8"}, Shell: "true"}
	if _, err := r.Job(probe.At{}); err != nil {
		t.Fatal(err)
	}
	read := &wire.Record{Body: &wire.Record_Result{Result: &wire.Result{Step: "read", Values: []*wire.Value{{Spec: "p", Action: action}, {Spec: "q", Action: action}}}}}
	a := r.Answer(append(said, read))
	if a.Wrong != "" || a.Trace == nil || a.Trace.Traced != (probe.Traced{Records: 5, Lost: 4, Unfinished: 1}) {
		t.Fatalf("%+v, %q", a.Trace, a.Wrong)
	}
	if a.Points[0].Actions[0].Hits != 3 || a.Points[1].Actions[0].Hits != 2 {
		t.Errorf("%+v", a.Points)
	}
	var text bytes.Buffer
	a.Trace.print(&text, nil)
	if want := "no time  CPU 0  q\nno time  CPU 0  p\nno time  CPU 1  p\nno time  CPU 1  p\nno time  CPU 1  q\n"; text.String() != want {
		t.Errorf("%swant\n%s", &text, want)
	}
	line, err := json.Marshal(a.Trace.Events[0])
	if want := `{"cpu":1,"spec":"p","action":"trace()","fields":[]}`; err != nil || string(line) != want {
		t.Errorf("%s, %v; want %s", line, err, want)
	}
	if line, err := json.Marshal(probe.Event{}); err != nil || !strings.HasPrefix(string(line), `{"ns":0,`) {
		t.Errorf("%s, %v: a record at the begin has a time", line, err)
	}
	r = &Request{Timeout: time.Second, Do: []string{"count", action}, Specs: []string{"kinst::p:8"}, Shell: "true", Sampled: true, Interval: time.Second}
	if _, err := r.Job(probe.At{}); err == nil || !strings.Contains(err.Error(), "has no time") {
		t.Errorf("%v, want that records without a time have no series", err)
	}
}

// TestOwn: a specification has its own predicate and action, or those that are given for
// all.
func TestOwn(t *testing.T) {
	r := &Request{Timeout: time.Second, Do: []string{"count", "max(arg1)"}, Predicate: "arg0 > 1", Shell: "true",
		Specs: []string{"kinst::a:8", "kinst::b:8 sum(arg2)", "kinst::c:8 /arg3 > 1/", "kinst::d:8 /arg3 > 1/ sum(arg2)"}}
	job, err := r.Job(probe.At{})
	if err != nil {
		t.Fatal(err)
	}
	compiled := func(predicate string, do ...string) (out []string) {
		for _, a := range do {
			s, err := probe.Compile(predicate, a)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, s.String())
		}
		return out
	}
	for k, want := range [][]string{
		compiled("arg0 > 1", "count", "max(arg1)"), compiled("arg0 > 1", "sum(arg2)"), compiled("arg3 > 1", "count", "max(arg1)"), compiled("arg3 > 1", "sum(arg2)"),
	} {
		var got []string
		for _, a := range job.Steps[0].GetSplice().Points[k].Actions {
			got = append(got, a.Snippet)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", r.Specs[k], got, want)
		}
	}
	for _, bad := range []string{"kinst::a:8 sum(argh)", "kinst::a:8 /argh/"} {
		if _, err := (&Request{Timeout: time.Second, Do: []string{"count"}, Shell: "true", Specs: []string{bad}}).Job(probe.At{}); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}

// TestCheck: what cannot be meant is refused before anything is done.
func TestCheck(t *testing.T) {
	good := Request{Specs: []string{"kinst::p:8"}, Shell: "true", Timeout: time.Second}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*Request){
		"is no mechanism":          func(r *Request) { r.Mechanism = "jmup" },
		"there are jump":           func(r *Request) { r.Without = []string{"jmup"} },
		"no point could be":        func(r *Request) { r.Mechanism, r.Without = "jump", []string{"jump"} },
		"more than 0":              func(r *Request) { r.Timeout = 0 },
		"no probe given":           func(r *Request) { r.Specs = nil },
		"choose one":               func(r *Request) { r.Argv = []string{"true"} },
		"leave the workload out":   func(r *Request) { r.List = true },
		"no workload: give --run ": func(r *Request) { r.Shell = "" },
		"and --trace-to out":       func(r *Request) { r.List, r.Shell, r.TraceTo = true, "", "kept" },
	} {
		r := good
		spoil(&r)
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestNothingTraced: no file is made for records that nobody has asked for.
func TestNothingTraced(t *testing.T) {
	for action, ok := range map[string]bool{"count": false, "trace(arg0)": true} {
		r := &Request{Timeout: time.Second, Do: []string{action}, Specs: []string{"kinst::f:8"}, Shell: "true", TraceTo: "kept"}
		if _, err := r.Job(probe.At{}); ok != (err == nil) || !ok && !strings.Contains(err.Error(), "nothing is traced") {
			t.Errorf("%s: %v", action, err)
		}
	}
}

// TestPrint: a refused point is in the table and in the listing, with its reason; a listing
// says where a point that runs as often is.
func TestPrint(t *testing.T) {
	a := Answer{Points: []Point{
		{Spec: "kinst::p:8", Address: "0x8", Instruction: "call 0x77", LeadsTo: "f", Mechanism: "jump", RunsAt: "0x9", Passed: []Refusal{{"too small", "jump: 1 byte"}}},
		{Spec: "kinst::p:9", Address: "0x9", Instruction: "ret", Refusal: &Refusal{"reserved", "entry code"}},
	}}
	for _, c := range []struct {
		r    Request
		want string
	}{
		{Request{List: true}, "kinst::p:8  0x8  call 0x77 <f>  jump, at 0x9\nkinst::p:9  0x9  ret            refused: reserved: entry code\n"},
		{Request{}, "kinst::p:8  jump     not counted\nkinst::p:9  refused  reserved: entry code\n"},
		{Request{Why: true}, "kinst::p:8  jump     not counted\nkinst::p:9  refused  reserved: entry code\nkinst::p:8 is not reached by jump: 1 byte (too small)\n"},
	} {
		var b strings.Builder
		c.r.Print(&b, a)
		if b.String() != c.want {
			t.Errorf("%+v:\n%swant\n%s", c.r, b.String(), c.want)
		}
	}
}

// TestListClocks: what virtual time needs besides is in the listing, behind the points.
func TestListClocks(t *testing.T) {
	r := &Request{List: true}
	res := &wire.Result{Step: stepSplice, Points: []*wire.PointResult{{Spec: "kinst::p:8", Address: 8, Instruction: "call 0x77", LeadsTo: "f", Mechanism: "jump"}},
		Planned: &wire.Planned{Clocks: &wire.PointResult{Spec: "kinst::switch:4", Address: 12, Instruction: "ret", Mechanism: "trap"}}}
	var b strings.Builder
	r.Print(&b, r.Answer([]*wire.Record{{Body: &wire.Record_Result{Result: res}}}))
	const want = "kinst::p:8       0x8  call 0x77 <f>  jump\nkinst::switch:4  0xc  ret            trap\n(kinst::switch:4 is spliced besides, to keep the clocks of vtime: each switch of tasks comes by)\n"
	if b.String() != want {
		t.Errorf("%swant\n%s", b.String(), want)
	}
}

// TestBeside: what several specifications say of one place is done at one point, each under
// its own predicate; what is the same altogether is refused.
func TestBeside(t *testing.T) {
	r := &Request{Timeout: time.Second, Do: []string{"count"}, Shell: "true",
		Specs: []string{"kinst::a:16 /arg0 > 1/", "kinst::b:8", "kinst::a:0x10 /arg0 > 2/", "kinst::a:16 max(arg1)"}}
	job, err := r.Job(probe.At{})
	if err != nil {
		t.Fatal(err)
	}
	points := job.Steps[0].GetSplice().Points
	var names, snippets []string
	for _, a := range points[0].Actions {
		names, snippets = append(names, a.Name), append(snippets, a.Snippet)
	}
	if want := []string{"/arg0 > 1/ count", "/arg0 > 2/ count", "max(arg1)"}; len(points) != 2 || !slices.Equal(names, want) || snippets[0] == snippets[1] {
		t.Errorf("%d points, with %q at the first, want 2, with %q", len(points), names, want)
	}
	for _, twice := range []string{"kinst::a:16", "kinst::a:16 /arg0 > 1/"} {
		r := &Request{Timeout: time.Second, Do: []string{"count"}, Shell: "true", Specs: []string{twice, twice, twice}}
		if _, err := r.Job(probe.At{}); err == nil || !strings.Contains(err.Error(), "count is given twice there") {
			t.Errorf("%s: %v", twice, err)
		}
	}
}

// Two functions are timed, one of them for one command only: who else is inside when counting
// begins and ends is in the other's time alone, whichever is asked for first.
func TestTimedApart(t *testing.T) {
	specs := []string{`kinst::f:entry /comm == "a"/ time`, `kinst::g:entry time`}
	for range 2 {
		r := &Request{Timeout: time.Second, Specs: specs, Shell: "true"}
		job, err := r.Job(probe.At{Types: func() (*ktypes.Types, error) { return ktypestest.Kernel(t), nil }})
		if err != nil {
			t.Fatal(err)
		}
		read := &wire.Result{Step: stepRead}
		for _, p := range job.Steps[0].GetSplice().Points {
			for _, a := range p.Actions { // nobody came
				read.Values = append(read.Values, &wire.Value{Action: a.Name, Timed: a.Timed, Function: ":" + p.Function, Rows: []*wire.Row{{Values: []uint64{0, 0}}}})
			}
		}
		inside := []*wire.Moment_Inside{{Comm: "b", Function: ":f", Frames: 1}, {Comm: "b", Function: ":g", Frames: 1}}
		read.Moments = []*wire.Moment{{Cycles: 1000, Ns: 1000, Inside: inside}, {Cycles: 3000, Ns: 3000, Inside: inside}}
		a := r.Answer([]*wire.Record{{Body: &wire.Record_Result{Result: read}}})
		want := map[string]float64{":f": 0, ":g": 2000}
		for _, x := range a.Times {
			if x.Rows[0].NS != want[x.Function] {
				t.Errorf("%q: in %s %v ns, want %v", specs, x.Function, x.Rows[0].NS, want[x.Function])
			}
			delete(want, x.Function)
		}
		if len(want) > 0 {
			t.Errorf("%q: no times of %v in %+v", specs, want, a.Times)
		}
		slices.Reverse(specs)
	}
}

// TestShownAsWritten: of functions that return other types, what is found is shown under the words
// that were asked for, and read by each one's own type.
func TestShownAsWritten(t *testing.T) {
	r := &Request{Timeout: time.Second, Specs: []string{"kinst::three:return", "kinst::unknown:return"}, Do: []string{"sum(ret)"}, Shell: "true"}
	job, err := r.Job(probe.At{Types: func() (*ktypes.Types, error) { return ktypestest.Kernel(t), nil }})
	if err != nil {
		t.Fatal(err)
	}
	spliced, read := &wire.Result{Step: stepSplice}, &wire.Result{Step: stepRead}
	for _, p := range job.Steps[0].GetSplice().Points {
		spliced.Points = append(spliced.Points, &wire.PointResult{Spec: p.Function})
		read.Values = append(read.Values, &wire.Value{Spec: p.Function, Action: p.Actions[0].Name, Count: 1<<64 - 2})
	}
	a := r.Answer([]*wire.Record{{Body: &wire.Record_Result{Result: spliced}}, {Body: &wire.Record_Result{Result: read}}})
	for k, want := range []string{"-2", "18446744073709551614"} {
		if found := a.Points[k].Actions; len(found) != 1 || found[0].Action != "sum(ret)" || found[0].Value.String() != want {
			t.Errorf("%s: %+v, want sum(ret) to be %s", a.Points[k].Spec, found, want)
		}
	}
}

// TestNothingProbed: where refused points may be left out and all are, that is no success; a
// listing of them is, but of functions that there are not.
func TestNothingProbed(t *testing.T) {
	bad, nowhere := &wire.PointResult{Refusal: &wire.Refusal{Reason: "reserved text"}}, &wire.PointResult{Refusal: &wire.Refusal{Reason: "no such function"}}
	for _, c := range []struct {
		list   bool
		points []*wire.PointResult
		wrong  bool
	}{{false, []*wire.PointResult{bad, bad}, true}, {false, []*wire.PointResult{bad, {}}, false}, {true, []*wire.PointResult{bad}, false}, {true, []*wire.PointResult{bad, nowhere}, true}, {false, nil, false}} {
		r := &Request{SkipRefused: true, List: c.list}
		a := r.Answer([]*wire.Record{{Body: &wire.Record_Result{Result: &wire.Result{Step: stepSplice, Points: c.points}}}})
		if (a.Wrong != "") != c.wrong {
			t.Errorf("%+v: %q", c, a.Wrong)
		}
	}
}

// TestStdin: the workload is given a file, if it is not too long and there is a workload.
func TestStdin(t *testing.T) {
	name := filepath.Join(t.TempDir(), "in")
	for size, says := range map[int]string{3: "", mostStdin: "", mostStdin + 1: "more than 512 KiB"} {
		if err := os.WriteFile(name, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		r := &Request{Timeout: time.Second, Do: []string{"count"}, Specs: []string{"kinst::f:8"}, Shell: "true", Stdin: name}
		job, err := r.Job(probe.At{})
		if says != "" && (err == nil || !strings.Contains(err.Error(), says)) || says == "" && (err != nil || len(job.Steps[1].GetRun().Stdin) != size) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	for says, r := range map[string]Request{"no such file": {Shell: "true", Stdin: name + "-"}, "no workload that": {Endless: true, Stdin: name}} {
		r.Timeout, r.Specs = time.Second, []string{"kinst::f:8"}
		if _, err := r.Job(probe.At{}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

// TestHalfLine: what is found begins a line, whatever the workload wrote last.
func TestHalfLine(t *testing.T) {
	for wrote, want := range map[string]string{"x": "\np  jump  7\n", "x\n": "p  jump  7\n", "": "p  jump  7\n"} {
		var b strings.Builder
		var seven probe.Number
		if err := json.Unmarshal([]byte("7"), &seven); err != nil {
			t.Fatal(err)
		}
		(&Request{}).Print(&b, Answer{Points: []Point{{Spec: "p", Mechanism: "jump", Value: &seven}}, Workload: &Workload{Stdout: wrote}})
		if b.String() != want {
			t.Errorf("behind %q: %q, want %q", wrote, b.String(), want)
		}
	}
}

// TestCheckFor: what an ISA has not is said before any guest starts.
func TestCheckFor(t *testing.T) {
	for _, c := range []struct {
		arch string
		r    Request
		want string
	}{
		{"amd64", Request{Mechanism: "pun"}, ""},
		{"arm64", Request{Mechanism: "pun"}, "arm64 has jump"},
		{"arm64", Request{Without: []string{"jump"}}, ""},
		{"arm64", Request{Without: []string{"trap", "jump"}}, "no other"},
		{"riscv64", Request{Mechanism: "clone"}, ""},
	} {
		if err := c.r.CheckFor(c.arch); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
