package scenarios

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/wire"
	"kerninst/lab/measure"
	"kerninst/lab/peers"
)

// asked is what all tools might say to a question: the truth, at what each costs.
func asked(q question) map[string]peersRow {
	answer := q.wants()
	for k := range answer.Records {
		answer.Records[k] = append([]uint64{0x4a0048}, answer.Records[k]...)
	}
	rows := map[string]peersRow{}
	for k, tool := range tools {
		r := peersRow{answer: answer, added: []float64{4, 700, 900, 750, 200, 1100}[k]}
		if q.timed {
			bench, _ := q.load.calls()
			ns := bench * uint64(q.load.rounds) * []uint64{600, 1000, 1100, 1200, 750, 1300}[k]
			r.answer = peers.Answer{Number: &ns}
		}
		rows[tool] = r
	}
	return rows
}

// judgement is what is said of answers to a question; nothing if all is well.
func judgement(q question, rows map[string]peersRow) (message string) {
	type failed struct{}
	defer func() {
		if p := recover(); p != nil {
			if _, ours := p.(failed); !ours {
				panic(p)
			}
		}
	}()
	t := NewT("arm64", "6.12", map[string]*Answer{}, func(m string) { message = m; panic(failed{}) })
	t.insns("peers.bare", 2800)
	t.judge(q, rows)
	return ""
}

func TestJudge(t *testing.T) {
	for _, q := range questions {
		if m := judgement(q, asked(q)); m != "" {
			t.Errorf("%s: the truth: %s", q.name, m)
		}
		for _, tool := range tools {
			for name, change := range wrongs(q, tool) {
				rows := asked(q)
				r := rows[tool]
				change(&r)
				rows[tool] = r
				if m := judgement(q, rows); !strings.Contains(m, q.step(tool)) {
					t.Errorf("%s: %s: judged %q", q.step(tool), name, m)
				}
			}
		}
	}
}

// wrongs are ways in which an answer may be wrong.
func wrongs(q question, tool string) map[string]func(*peersRow) {
	number := func(by int64) func(*peersRow) {
		return func(r *peersRow) {
			n := uint64(int64(*r.answer.Number) + by)
			r.answer.Number = &n
		}
	}
	out := map[string]func(*peersRow){}
	if tool != toolSplice {
		out["it adds no more than a splice"] = func(r *peersRow) { r.added = 4 }
	}
	a := q.wants()
	switch calls := int64(3072); {
	case q.timed && tool == toolSplice:
		out["no time"], out["more than there is"] = number(-550*calls), number(3000*calls)
	case q.timed:
		out["less than inside"], out["more than it can see"] = number(-950*calls), number(2000*calls)
	case a.Number != nil:
		out["one less"], out["one more"] = number(-1), number(1)
	case a.Buckets != nil:
		out["one less in a bucket"] = func(r *peersRow) { r.answer.Buckets = maps.Clone(r.answer.Buckets); r.answer.Buckets[4]-- }
		out["a bucket more"] = func(r *peersRow) { r.answer.Buckets = maps.Clone(r.answer.Buckets); r.answer.Buckets[128] = 1 }
	case a.Keyed != nil:
		out["another's"] = func(r *peersRow) { r.answer.Keyed = map[string]uint64{"bench": 8064, "sh": 768} }
	case a.Records != nil:
		out["one less"] = func(r *peersRow) { r.answer.Records = r.answer.Records[1:] }
		out["another order"] = func(r *peersRow) {
			r.answer.Records = slices.Clone(r.answer.Records)
			r.answer.Records[5], r.answer.Records[6] = r.answer.Records[6], r.answer.Records[5]
		}
		if tool != toolSplice {
			out["another address"] = func(r *peersRow) {
				r.answer.Records = slices.Clone(r.answer.Records)
				r.answer.Records[7] = []uint64{1, r.answer.Records[7][1]}
			}
		}
	}
	return out
}

// A tool has an answer, or the reason that is known; another reason is none.
func TestSilences(t *testing.T) {
	for _, tt := range []struct {
		arch, tool, question string
		installed            bool
		said                 string
		fine                 bool
	}{
		{"arm64", toolKprobes, "count of entries", true, "", true},
		{"arm64", toolKprobes, "count of entries", true, "ERROR: something", false},
		{"arm64", toolFentry, "count in the middle", true, "ERROR: No BTF found for load_msg+224", true},
		{"arm64", toolFentry, "count in the middle", true, "", false},
		{"arm64", toolFentry, "count in the middle", true, "ERROR: something", false},
		{"riscv64", toolKprobes, "time inside", true, "cannot attach kprobe, Invalid argument", true},
		{"riscv64", toolEvents, "time inside", true, "trace_kprobe: error: Failed to register probe event", true},
		{"riscv64", toolEvents, "count in the middle", true, "", true},
		{"riscv64", toolFentry, "time inside", true, "", true},
		{"riscv64", toolEvents, "time inside", false, "trace_kprobe: error: Failed to register probe event", true},
		{"arm64", toolFentry, "time inside", false, "bpftrace is not installed in this guest", true},
		{"arm64", toolEvents, "time inside", false, "", true},
		{"arm64", toolPerf, "count of entries", true, "", true},
		{"arm64", toolPerf, "count of entries", false, "perf is not installed in this guest", true},
		{"arm64", toolPerf, "count of entries", true, "perf is not installed in this guest", false},
		{"arm64", toolPerf, "time inside", true, notAsked, true},
		{"arm64", toolPerf, "time inside", false, notAsked, true},
		{"riscv64", toolPerf, "time inside", true, notAsked, true},
		{"riscv64", toolPerf, "count of entries", true, "perf is not installed in this guest", true},
		{"riscv64", toolPerf, "count of entries", true, "", false},
		{"arm64", toolFentry, "time inside", true, "bpftrace is not installed in this guest", false},
		{"arm64", toolTap, "time inside", true, "", true},
		{"arm64", toolTap, "time inside", true, "semantic error: no match", false},
		{"arm64", toolTap, "time inside", false, "systemtap is not installed in this guest", true},
		{"arm64", toolTap, "count in the middle", true, "semantic error: no match", true},
		{"arm64", toolTap, "count in the middle", true, "", false},
		{"riscv64", toolTap, "time inside", true, "WARNING: probe kprobe.function(\"load_msg\") registration error (rc -22)", true},
		{"riscv64", toolTap, "time inside", true, "", false},
	} {
		c := NewT(tt.arch, "6.12", nil, func(m string) { t.Error(m) })
		k := slices.IndexFunc(questions, func(q question) bool { return q.name == tt.question })
		cell, surprise := c.peersCell(questions[k], tt.tool, peersRow{why: tt.said, bench: &measure.Bench{}}, silenceOf(tt.arch, tt.tool, tt.question, tt.installed))
		if (cell.Value == nil) != (tt.said != "") || (cell.Why == "") != (tt.said == "") {
			t.Errorf("%+v: cell %+v", tt, cell)
		}
		if (surprise == "") != tt.fine {
			t.Errorf("%+v: surprise %q", tt, surprise)
		}
	}
}

// The middle is an instruction by which each call comes once, and that serves as it is.
func TestMiddle(t *testing.T) {
	count := uint64(2 * sentLengths)
	guest := func(change func(off uint64, p *wire.PointResult, v *wire.Value)) *Answer {
		s, c := &wire.Result{}, &wire.Result{}
		for off := uint64(0); off <= 80; off += 4 {
			p, v := &wire.PointResult{Offset: off, Mechanism: "jump"}, &wire.Value{Offset: off, Count: count}
			change(off, p, v)
			s.Points, c.Values = append(s.Points, p), append(c.Values, v)
		}
		return &Answer{Results: map[string]*wire.Result{"splice": s, "count": c}}
	}
	for want, change := range map[uint64]func(uint64, *wire.PointResult, *wire.Value){
		40: func(uint64, *wire.PointResult, *wire.Value) {},
		44: func(off uint64, p *wire.PointResult, v *wire.Value) {
			switch off {
			case 40:
				p.Mechanism = "trap"
			case 36:
				p.RunsAt = 1
			}
		},
		8: func(off uint64, _ *wire.PointResult, v *wire.Value) {
			if off > 8 {
				v.Count = count - 1
			}
		},
		0: func(off uint64, _ *wire.PointResult, v *wire.Value) {
			v.Count = count + 1
		},
	} {
		got, err := middleOf(guest(change))
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%d, %v, want %d", got, err, want)
		}
	}
}

// What is put to tools names no placeholder that is left over, on any ISA.
func TestQuestionWords(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64", "riscv64"} {
		for _, q := range questions {
			for _, text := range []string{q.kprobe, q.fentry, q.events.events, q.perf, q.tap.script} {
				if got := q.words(arch, 224).Replace(text); strings.Contains(strings.ReplaceAll(got, "$retval", ""), "$") {
					t.Errorf("%s: %s", arch, got)
				}
			}
			if q.wants().Equal(peers.Answer{}) == !q.timed {
				t.Errorf("%s: nothing is known of the answer", q.name)
			}
		}
	}
	if s := fmt.Sprint(Words()); !strings.Contains(s, "peers-without") {
		t.Error("no scenario peers-without")
	}
}
