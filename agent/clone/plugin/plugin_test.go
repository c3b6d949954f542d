package plugin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

// split is a routine in two halves, which jump to each other, and both leave: as
//
//	f:      0 jcc f.cold; 2 jcc g; 4 jmp 8; 8 ret
//	f.cold: 0 jmp f+0x8;  2 jmp g+0x10; 4 jmp *reg
func split() *Syscall {
	block := func(all ...*Insn) *Block {
		for k, i := range all {
			i.Offset = uint64(2 * k)
		}
		return &Block{Insns: all}
	}
	return &Syscall{Name: "f", Routines: []*Routine{
		{Name: "f", Blocks: []*Block{block(&Insn{Kind: Conditional, To: "f.cold"}, &Insn{Kind: Conditional, To: "g"}, &Insn{Kind: Jump, Inside: true, Target: 8}, &Insn{Kind: Plain}, &Insn{Kind: Return})}},
		{Name: "f.cold", Part: true, Blocks: []*Block{block(&Insn{Kind: Jump, To: "f+0x8"}, &Insn{Kind: Jump, To: "g+0x10"}, &Insn{Kind: IndirectJump})}},
		{Name: "g", Blocks: []*Block{block(&Insn{Kind: Return})}},
	}}
}

// TestReturns: a routine is left by what leads out of both of its halves, and by nothing that leads from one to the other.
func TestReturns(t *testing.T) {
	inserted = nil
	var got []string
	Plugin{Routine: func(r *Routine) {
		for _, p := range r.Returns("count") {
			got = append(got, fmt.Sprintf("%s: %s+%d/%d", r.Name, p.Function, p.Offset, p.Where))
		}
	}}.visit(split())
	want := []string{"f: f+2/2", "f: f+8/0", "f: f.cold+2/0", "f: f.cold+4/0", "g: g+0/0"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestTwice: what was found is given to the points that were asked for, of which there must be as many.
func TestTwice(t *testing.T) {
	var points []*Point
	asked := 3
	p := Plugin{
		Insn: func(i *Insn) {
			if len(points) < asked {
				points = append(points, i.Insert("count"))
			}
		},
		Report: func(w io.Writer) {
			for _, p := range points {
				fmt.Fprintln(w, p.Function, p.Offset, p.Value())
			}
		},
	}
	told := func(in Input) (string, error) {
		points = nil
		text, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err = run(p, bytes.NewReader(text), &out)
		return out.String(), err
	}
	in := Input{Arch: "arm64", Syscalls: []*Syscall{split()}}
	said, err := told(in)
	if err != nil || strings.Count(said, `"action"`) != 3 || Arch != "arm64" {
		t.Errorf("asked: %s, %v", said, err)
	}
	in.Ran, in.Found = true, []Found{{Value: 7}, {Value: 8}, {Value: 9}}
	if said, err = told(in); err != nil || said != "f 0 7\nf 2 8\nf 4 9\n" {
		t.Errorf("reported: %q, %v", said, err)
	}
	asked = 2
	if _, err = told(in); err == nil || !strings.Contains(err.Error(), "asked for 3 points before the workload ran, and now for 2") {
		t.Errorf("two of three: %v", err)
	}
}
