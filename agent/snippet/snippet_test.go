package snippet_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kerninst/agent/snippet"
	"kerninst/agent/snippet/snippettest"
)

func parse(t *testing.T, text string) snippet.Snippet {
	t.Helper()
	s, err := snippet.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// args is an environment in which argument n is the n-th of these.
func args(all ...uint64) snippet.Env {
	return snippet.Env{
		Arg:    func(n int) uint64 { return all[n] },
		Reg:    func(name string) (uint64, bool) { return 77, name == "sp" },
		Cycles: func() uint64 { return 1000 },
		Append: func(int, []uint64) {},
		Ret:    func() uint64 { return 9 },
		Stack:  func() []uint64 { return all },
		Task:   func(off, n int) uint64 { return uint64(off) },

		Current: func() uint64 { return 0x2000 },
		Load:    func(a uint64, n int) (uint64, bool) { return a * 0x0101010101010101, a < 0x100 },
	}
}

func TestEval(t *testing.T) {
	const minus1 = 1<<64 - 1
	for _, c := range []struct {
		name, text string
		args       []uint64
		want       []uint64
	}{
		{"count", "c0 sum\ncount c0 1", nil, []uint64{1}},
		{"taken", "c0 sum\nv0 u64 = arg 0\nif v0 ne 3 goto 3\ncount c0 2\n3:", []uint64{3}, []uint64{2}},
		{"not taken", "c0 sum\nv0 u64 = arg 0\nif v0 ne 3 goto 3\ncount c0 2\n3:", []uint64{4}, []uint64{0}},
		{"unsigned", "c0 sum\nv0 u64 = arg 0\nif v0 lt 3 goto 3\ncount c0 1\n3:", []uint64{minus1}, []uint64{1}},
		{"signed", "c0 sum\nv0 s64 = arg 0\nif v0 lt 3 goto 3\ncount c0 1\n3:", []uint64{minus1}, []uint64{0}},
		{"smallest and largest", "c0 min u64\nc1 max u64\nc2 min s64\nc3 max s64\n" +
			"v0 u64 = arg 0\nv1 s64 = extend 8 v0\nlower c0 v0\nraise c1 v0\nlower c2 v1\nraise c3 v1",
			[]uint64{minus1}, []uint64{minus1, minus1, minus1, minus1}},
		{"sign of four bytes", "c0 max s64\nv0 u64 = arg 0\nv1 s64 = extend 4 v0\nraise c0 v1", []uint64{0x1fffffffe}, []uint64{minus1 - 1}},
		{"shifts", "c0 sum\nv0 s64 = const -16\nv1 s64 = shr v0 2\nv2 u64 = extend 1 v1\nv3 u64 = shl v2 4\ncount c0 v3", nil, []uint64{0xfc0}},
		{"logic", "c0 sum\nv0 u64 = const 12\nv1 u64 = and v0 10\nv2 u64 = or v1 3\nv3 u64 = xor v2 1\nv4 u64 = sub v3 11\ncount c0 v4", nil, []uint64{minus1}},
		{"load", "c0 sum\nc1 faults\nv0 u64 = load 2 8 1 c1\nv1 u64 = load 8 0x100 0 c1\nv2 u64 = add v0 v1\ncount c0 v2", nil, []uint64{0x0909, 1}},
		{"time and a register", "c0 sum\nv0 u64 = cycles\nv1 u64 = reg sp\nv2 u64 = add v0 v1\ncount c0 v2", nil, []uint64{1077}},
		{"record", "c0 ring 2 2\nv0 u64 = arg 0\nappend c0 v0 7", []uint64{5}, []uint64{5, 7}},
		{"stacks", "c0 stacks 2 3\nstack c0\nstack c0\nstack c0", []uint64{5, 6}, []uint64{3, 1, 5, 6, 0, 2, 5, 6, 0}},
		{"no stack", "c0 stacks 2 3\nstack c0", nil, []uint64{1, 0, 0, 0, 0, 0, 0, 0, 0}},
	} {
		s := parse(t, c.text)
		cells, env := s.Starts(), args(c.args...)
		env.Append = func(_ int, fields []uint64) { cells = fields } // what is in a ring is in no cell
		if err := s.Eval(env, cells); err != nil || !slices.Equal(cells, c.want) {
			t.Errorf("%s: %x, %v; want %x", c.name, cells, err, c.want)
		}
	}
	s := parse(t, "c0 sum\nv0 u64 = reg nosuch\ncount c0 v0")
	if err := s.Eval(args(), s.Starts()); err == nil || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("a register that is not there: %v", err)
	}
	if err := s.Eval(args(), nil); err == nil {
		t.Error("no cells: no error")
	}
}

// TestClocks: who runs has a clock that goes, another's stands still, and idle tasks' always goes.
func TestClocks(t *testing.T) {
	const text = "c0 clocks 4\nc1 sum\nv0 u64 = arg 0\nswitch c0 v0 %d\nv1 u64 = clock c0 %d\ncount c1 v1\n"
	words := []uint64{0, 10, 20, 30}
	for _, step := range []struct {
		from, to, now uint64
		shows         int64
		want          [4]int64
	}{
		{1, 2, 100, -20, [4]int64{0, -90, 120, 30}}, // from where it stood
		{2, 5, 150, 90, [4]int64{0, 60, -30, 30}},   // of 1, which has the same word
		{5, 0, 170, 170, [4]int64{0, -110, -30, 30}},
		{0, 2, 200, 30, [4]int64{0, -110, 170, 30}},
	} {
		s := parse(t, strings.ReplaceAll(text, "%d", strconv.FormatUint(step.to, 10)))
		if again := parse(t, s.String()); again.String() != s.String() || !reflect.DeepEqual(again, s) {
			t.Errorf("%v\ncomes back as\n%v", s, again)
		}
		env, cells := args(step.from), s.Starts()
		env.Cycles = func() uint64 { return step.now }
		env.Clocks = func(int) []uint64 { return words }
		if err := s.Eval(env, cells); err != nil {
			t.Fatal(err)
		}
		var got [4]int64
		for k, w := range words {
			got[k] = int64(w)
		}
		if got != step.want || int64(cells[1]) != step.shows {
			t.Errorf("from %d to %d at %d: %d, and the clock shows %d, want %d, %d", step.from, step.to, step.now, got, int64(cells[1]), step.want, step.shows)
		}
	}
	c := snippet.Snippet{Cells: []snippet.Cell{{Kind: snippet.Clocks, Records: 4, Ring: snippet.Ring{At: 77}}}}
	if got := c.Starts(); !slices.Equal(got, []uint64{77}) {
		t.Errorf("%d lead to the clocks, want 77", got)
	}
}

func TestRecords(t *testing.T) {
	c := snippet.Cell{Kind: snippet.Stacks, Records: 2, Fields: 1}
	got, holes, dropped := c.Read([]uint64{5, 0, 10, 2, 20})
	if want := []snippet.Record{{1, []uint64{20}}}; !reflect.DeepEqual(got, want) || holes != 1 || dropped != 3 {
		t.Errorf("%v, %d holes, %d dropped", got, holes, dropped)
	}
	c = snippet.Cell{Kind: snippet.Stacks, Records: 2, Fields: 3}
	if got, _, _ := c.Read([]uint64{1, 1, 8, 9, 0, 0, 0, 0, 0}); !reflect.DeepEqual(got, []snippet.Record{{0, []uint64{8, 9}}}) {
		t.Errorf("a stack of two: %v", got)
	}
	c = snippet.Cell{Kind: snippet.Stacks, Records: 2, Fields: 1}
	if got, _, _ := c.Read([]uint64{1, 1, 10, 2, 20}); len(got) != 1 {
		t.Errorf("what was not asked for is read: %v", got)
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "no instructions"},
		{"c0 sum\nv0 u64 = arg 0\nif v0 eq 1 goto 0\n0:\ncount c0 1", ""},
		{"c0 sum\n0:\nv0 u64 = arg 0\nif v0 eq 1 goto 0\ncount c0 1", "instruction 1, if: goes on at 0: only 2 to 3 lie ahead"},
		{"0:\ngoto 0", "goes on at 0"},
		{"goto 1", "there is no line 1"},
		{"c0 sum\ngoto 1\ncount c0 1\n1:", "instruction 1, count: no way leads here"},
		{"c0 sum\ncount c0 v0", "instruction 0, count: v0 is not set"},
		{"c0 sum\nv0 u64 = arg 0\nif v0 eq 1 goto 3\nv1 u64 = arg 1\n3:\ncount c0 v1", "instruction 3, count: v1 is not set on every way"},
		{"v0 u64 = arg 0\nv0 u64 = arg 1", "a second time"},
		{"v0 u64 = arg 0\nv1 s64 = add v0 1", "v0 is u64 where s64 is wanted"},
		{"v0 u64 = arg 0\nv1 s64 = arg 1\nif v0 eq v1 goto 4\n4:", "v1 is s64"},
		{"c0 sum\nv0 s64 = arg 0\ncount c0 v0", "v0 is s64"},
		{"c0 min s64\nv0 u64 = arg 0\nlower c0 v0", "v0 is u64"},
		{"c0 min u64\nraise c0 1", "c0 is a min, not a max"},
		{"count c0 1", "c0 is not there"},
		{"c0 ring 4 2\nappend c0 1", "1 fields for records of 2"},
		{"c0 ring 3 2\nappend c0 1 2", "cell c0: 3 records"},
		{"c0 ring 4 8\nappend c0 1", "8 fields"},
		{"c0 stacks 4 16\nstack c0", "records of 16 fields, not of 1 to 15"},
		{"c0 ring 4 2\nstack c0", "c0 is a ring, not a stacks"},
		{"c0 stacks 4 2\nappend c0 1 2", "c0 is a stacks, not a ring"},
		{"c0 stacks 1024 7\nc1 stacks 1024 7\nstack c0", "16386 words, the most"},
		{"v0 u64 = arg 6", "argument 6"},
		{"c0 faults\nv0 u64 = load 3 0 0 c0", "3 bytes"},
		{"c0 sum\nv0 u64 = load 4 0 0 c0", "c0 is a sum, not a faults"},
		{"v0 u64 = load 4 0 0 c0", "c0 is not there"},
		{"c0 faults\nv0 u64 = load 4 v1 0 c0", "v1 is not set"},
		{"c0 faults\ncount c0 1", "c0 is a faults, not a sum"},
		{"v0 u64 = load 4 0 0", "more was expected"},
		{"v0 u64 = shl 1 64", "0 to 63"},
		{"v0 u64 = arg 0\nv1 u64 = shl 1 v0", "a constant"},
		{"if 1 eq 1 goto 1\n1:", "not a constant"},
		{"v0 u64 = task 3 0", "3 bytes"},
		{"v0 u64 = task 4 -4", "-4 bytes into the task"},
		{"v0 u64 = bits 7", "takes a value"},
		{"v0 u64 = arg 0\nv1 u64 = div v0 0", "not 0"},
		{"v0 s64 = arg 0\nv1 s64 = div v0 3", "divides a u64"},
		{"c0 map 3 1\nv0 u64 = arg 0\nv1 u64 = slot c0 v0", "3 records"},
		{"c0 map 4 73\nv0 u64 = arg 0\nv1 u64 = slot c0 v0", "73 values"},
		{"c0 map 4 1\nv1 u64 = slot c0", "one or two keys"},
		{"c0 map 4 1\nv1 u64 = slot c0 7", "a key is a value"},
		{"c0 sum\nv0 u64 = arg 0\nv1 u64 = slot c0 v0", "c0 is a sum"},
		{"c0 map 4 2\nv0 u64 = arg 0\nv1 u64 = slot c0 v0\ntally c0 v1 1 1", ""},
		{"c0 map 4 2\nv0 u64 = arg 0\nv1 u64 = slot c0 v0\ntally c0 v1 2 1", "no such word for sure: 2 of them follow"},
		{"c0 map 4 2\nv0 u64 = arg 0\nv1 u64 = slot c0 v0\ntally c0 v0 0 1", "no such word for sure"},
		{"c0 map 4 2\nv0 u64 = arg 0\nv1 u64 = slot c0 v0\nv2 u64 = index c0 v1 0 1 v0\ntop c0 v2 0 v0", ""},
		{"c0 map 4 2\nv0 u64 = arg 0\nv1 u64 = slot c0 v0\nv2 u64 = index c0 v1 0 2 v0", "no such word for sure"},
		{"c0 map 4 2\nv0 u64 = arg 0\nv1 u64 = slot c0 v0\nv2 u64 = index c0 v1 0 1 v0\ntop c0 v2 1 v0", "no such word for sure"},
		{"c0 array 4\nc1 array 4\nv0 u64 = arg 0\nv1 u64 = index c0 0 0 3 v0\ntally c1 v1 0 1", "no such word for sure"},
		{"c0 array 4\nv0 u64 = arg 0\nv1 u64 = index c0 0 1 3 v0", "no such word for sure"},
		{"c0 array 4\ntally c0 0 0 1", "no such word for sure"},
		{"c0 array 1025\ncount c0 1", "1025 words"},
		{"c0 clocks 3\nv0 u64 = clock c0 8", "3 records"},
		{"c0 clocks 2097152\nv0 u64 = clock c0 8", "2097152 records"},
		{"c0 clocks 4\nv0 s64 = clock c0 8", "is a u64"},
		{"c0 clocks 4\nv0 u64 = clock c0 -4", "-4 bytes into the task"},
		{"c0 sum\nv0 u64 = clock c0 8", "c0 is a sum, not a clocks"},
		{"c0 clocks 4\nswitch c0 7 8", "takes a value"},
		{"c0 clocks 4\nv0 s64 = arg 0\nswitch c0 v0 8", "v0 is s64"},
		{"v0 u64 = dance", "not one of"},
		{"v0 u128 = arg 0", "not one of"},
		{"count c0 1 2", "too much"},
		{"c1 sum", "c0 was expected"},
		{"u64 = arg 0", "not one of"},
		{"v0 u64 = count c0 1", "sets"},
		{"arg 0", "sets"},
		{"v99 u64 = arg 0", "v99 is not"},
		{"v0 u64 = const v1", "not set"},
		{strings.Repeat("c0 sum\n", 1) + strings.Repeat("count c0 1\n", 65), "65 instructions"},
	} {
		s, err := snippet.Parse(c.text)
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%q: %v; want %q", c.text, err, c.want)
		case err == nil && s.Check() != nil:
			t.Errorf("%q: parsed, but %v", c.text, s.Check())
		}
	}
}

var registers = []string{"r0", "r1"}

// addresses are what random snippets load near to.
var addresses = []uint64{0x1000}

// TestRandom: what is made at random is right, comes back from its text, and does
// what it does whether it is alone or one of two.
func TestRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	env := args(5, 1<<63, 3, 1<<32, 1<<64-1, 0)
	env.Reg = func(string) (uint64, bool) { return 9, true }
	var records [][]uint64
	env.Append = func(_ int, fields []uint64) { records = append(records, fields) }
	var clocks [][]uint64 // of the cells that are clocks, in their order
	clocked := func(env *snippet.Env, s snippet.Snippet) snippet.Env {
		clocks = nil
		of := map[int][]uint64{}
		for k, c := range s.Cells {
			if c.Kind == snippet.Clocks {
				of[k] = make([]uint64, c.Records)
				for n := range of[k] {
					of[k][n] = uint64(n)
				}
				clocks = append(clocks, of[k])
			}
		}
		env.Clocks = func(cell int) []uint64 { return of[cell] }
		return *env
	}
	came, switched := 0, 0
	for range 2000 {
		a, b := snippettest.Random(r, registers, addresses), snippettest.Random(r, registers, addresses)
		for _, s := range []snippet.Snippet{a, b} {
			if again, err := snippet.Parse(s.String()); err != nil || again.String() != s.String() {
				t.Fatalf("%v\n%v\n%v", err, s, again)
			}
		}
		both, first := snippet.Join(a, b)
		wa, wb, wboth := a.Starts(), b.Starts(), both.Starts()
		records = nil
		alone := []error{a.Eval(clocked(&env, a), wa)}
		ofOne := clocks
		alone = append(alone, b.Eval(clocked(&env, b), wb))
		each, ofEach := records, append(ofOne, clocks...)
		records = nil
		for _, e := range append(alone, both.Eval(clocked(&env, both), wboth)) {
			if e != nil && !strings.Contains(e.Error(), "the most is") {
				t.Fatalf("%v\n%v", e, both)
			}
		}
		if both.Check() == nil && (!slices.Equal(append(wa, wb...), wboth) || first[1] != len(a.Cells)) {
			t.Fatalf("%v\nalone %v, as one of two %v", both, wa, wboth)
		}
		if both.Check() == nil && !reflect.DeepEqual(each, records) {
			t.Fatalf("%v\nrecords alone %v, as one of two %v", both, each, records)
		}
		if both.Check() == nil && !reflect.DeepEqual(ofEach, clocks) {
			t.Fatalf("%v\nclocks alone %v, as one of two %v", both, ofEach, clocks)
		}
		came += len(records)
		if slices.ContainsFunc(clocks, func(w []uint64) bool { return slices.ContainsFunc(w, func(v uint64) bool { return v > 100 }) }) {
			switched++
		}
	}
	if came == 0 || switched == 0 {
		t.Errorf("%d records came, and %d times one task was left for another", came, switched)
	}
}

func TestCounter(t *testing.T) {
	if s := snippet.Counter(); !s.IsCounter() || s.Check() != nil || s.Words() != 1 {
		t.Errorf("%v: %v", s, s.Check())
	}
	if s := parse(t, "c0 sum\ncount c0 2"); s.IsCounter() {
		t.Errorf("%v is no counter", s)
	}
}

// FuzzParse: a text is refused, or it is a snippet that runs to its end and whose
// own text says the same.
func FuzzParse(f *testing.F) {
	r := rand.New(rand.NewPCG(2, 0))
	for range 20 {
		f.Add(snippettest.Random(r, registers, addresses).String())
	}
	env := args(1, 2, 3, 4, 5, 6)
	env.Reg = func(string) (uint64, bool) { return 9, true }
	f.Fuzz(func(t *testing.T, text string) {
		s, err := snippet.Parse(text)
		if err != nil {
			return
		}
		again, err := snippet.Parse(s.String())
		if err != nil || again.String() != s.String() {
			t.Fatalf("%v\n%v\n%v", err, s, again)
		}
		env.Clocks = func(cell int) []uint64 { return make([]uint64, s.Cells[cell].Records) }
		if err := s.Eval(env, s.Starts()); err != nil {
			t.Fatalf("%v\n%v", err, s)
		}
	})
}
