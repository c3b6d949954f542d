package wire

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
)

// long is a result with lists of each kind, and what is none.
func long() *Result {
	res := &Result{Step: "s", Error: "late", KprobeHits: 3, PatchMemory: &PatchMemory{Used: 7}}
	for k := range 1000 {
		res.Points = append(res.Points, &PointResult{Spec: strings.Repeat("p", k%50), Address: uint64(k)})
		res.Addresses, res.Counts = append(res.Addresses, uint64(k)<<40), append(res.Counts, uint64(k))
	}
	return res
}

// TestParts: what is put together is what was taken apart, in parts of bounded length.
func TestParts(t *testing.T) {
	for _, most := range []int{1, 100, 5000, 20000, 1 << 20} {
		want, whole := long(), (*Record)(nil)
		parts := Parts(long(), most)
		if one := most > proto.Size(want); one != (len(parts) == 1) {
			t.Errorf("%d parts of at most %d bytes", len(parts), most)
		}
		var p Parted
		for k, part := range parts {
			if n := proto.Size(part); most >= 100 && n > most {
				t.Errorf("a part of %d bytes, of at most %d", n, most)
			}
			b, err := proto.Marshal(&Record{Seq: uint32(k), Body: &Record_Result{Result: part}})
			if err != nil {
				t.Fatal(err)
			}
			rec := &Record{}
			if err := proto.Unmarshal(b, rec); err != nil {
				t.Fatal(err)
			}
			if whole, err = p.Add(rec); err != nil || (whole != nil) != (k == len(parts)-1) {
				t.Fatalf("part %d of %d: %v, %v", k, len(parts), whole, err)
			}
		}
		if !proto.Equal(whole.GetResult(), want) {
			t.Errorf("at most %d bytes: put together it is another", most)
		}
	}
}

// TestPartsBroken: nothing comes between the parts of a result.
func TestPartsBroken(t *testing.T) {
	result := func(step string, more bool) *Record {
		return &Record{Body: &Record_Result{Result: &Result{Step: step, More: more}}}
	}
	for name, next := range map[string]*Record{
		"a log":          {Body: &Record_Log{Log: &Log{}}},
		"done":           {Body: &Record_Done{Done: &Done{}}},
		"another's":      result("b", false),
		"another's part": result("b", true),
	} {
		var p Parted
		if rec, err := p.Add(result("a", true)); rec != nil || err != nil {
			t.Fatal(rec, err)
		}
		if _, err := p.Add(next); err == nil || !strings.Contains(err.Error(), `"a"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var p Parted
	if rec, err := p.Add(result("a", false)); rec == nil || err != nil {
		t.Errorf("one that is whole: %v, %v", rec, err)
	}
}
