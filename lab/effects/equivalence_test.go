package effects

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/plan"
	"kerninst/lab/sweep"
)

// variants are what each sample is spliced with: nothing free, all registers and
// flags that it does not use and all of them overwritten, and some.
var variants = []Variant{{NoLSE: true, Lead: true}, {Share: 4, Poisoned: true}, {Share: 2}}

// trapped has a breakpoint lead to the patch.
var trapped = []Variant{{Share: 2, Trapped: true}}

// prepareEquivalence draws instructions of the stock kernels, to be run bare and spliced.
func prepareEquivalence(t *testing.T, arch *isa.Arch, m machine, functions []sweep.Piece) (inputs [][]byte, check func(*testing.T, [][]byte)) {
	per := 1
	if *full {
		per = 4
	}
	return prepareSplices("equivalence", arch, m, functions, per)
}

// prepareVariant is the same for a guest that is not the usual one, with one
// instruction of each form: more of them are the usual guest's matter.
func prepareVariant(t *testing.T, arch *isa.Arch, m machine, functions []sweep.Piece) (inputs [][]byte, check func(*testing.T, [][]byte)) {
	return prepareSplices("equivalence-variants", arch, m, functions, 1)
}

// prepareSplices draws per instructions of each form.
func prepareSplices(name string, arch *isa.Arch, m machine, functions []sweep.Piece, per int) (inputs [][]byte, check func(*testing.T, [][]byte)) {
	p := NewPopulation(arch)
	for _, f := range functions {
		p.Add(f.Name, f.Code, f.Addr)
	}
	with, by := slices.Clone(variants), slices.Clone(trapped)
	for _, list := range [][]Variant{with, by} {
		for k := range list {
			list[k].NoLSE = list[k].NoLSE || m.noLSE
		}
	}
	sites, none := p.Sites(*drawn, per, with)
	more, _ := p.Sites(*drawn+1, 1, by)
	sites = append(sites, more...)
	batches := slices.Collect(slices.Chunk(sites, batch))
	for _, part := range batches {
		var data []byte
		for _, s := range part {
			data = append(data, s.Encode()...)
		}
		inputs = append(inputs, data)
	}
	return inputs, func(t *testing.T, outputs [][]byte) {
		var all []Outcome
		for k, b := range outputs {
			out, err := Outcomes(bytes.NewReader(b), batches[k])
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, out...)
		}
		equivalent(t, name, m, p, sites, all, none)
	}
}

// formSeen is what the sites of one form showed.
type formSeen struct{ landed, fell, led bool }

func equivalent(t *testing.T, name string, m machine, p *Population, sites []*Site, seen []Outcome, none map[string]error) {
	t.Helper()
	forms, done, differ, edges, whole, traps := map[string]*formSeen{}, 0, 0, 0, 0, 0
	for k, s := range sites {
		o := seen[k]
		done += 2 * o.Runs
		if o.Differs != "" {
			if differ++; differ <= 10 {
				t.Errorf("%s:%s\n%s", s, o.Differs, s.Listing())
			}
			continue
		}
		f := forms[s.Form]
		if f == nil {
			f = &formSeen{}
			forms[s.Form] = f
		}
		f.landed = f.landed || o.Landed > 0
		f.fell, f.led = f.fell || o.Fell, f.led || o.Led
		if s.Edge {
			edges++
		}
		if s.Whole() {
			whole++
		}
		if s.Trapped() {
			traps++
		}
	}
	if differ > 10 {
		t.Errorf("%d sites more differ", differ-10)
	}
	ran := 0
	for _, f := range forms {
		if f.landed {
			ran++
		}
	}
	t.Logf("proof %s %s %d of %d forms, %d instances, %d of them with the least or greatest displacement, %d in a copy of the patch in padding, %d by a breakpoint, %d runs",
		name, p.arch.Name, ran, len(p.Forms()), len(sites), edges, whole, traps, done)
	if traps == 0 {
		t.Error("no breakpoint led to a patch")
	}
	if p.arch.Name == "amd64" && whole == 0 {
		t.Error("no springboard held a copy of a patch")
	}
	if ran*10 < len(forms)*9 || ran == 0 {
		t.Errorf("%d of the %d forms that are spliced were run without a fault", ran, len(forms))
	}
	report(t, m, p, forms, none)
}

// faulty lists forms that are not privileged to the decoders, may be displaced, and
// always fault where they are run here, by how they begin, and why. Of each, faults are
// compared. With -full, a function of the kernel that has it is named.
var faulty = map[string][]struct{ form, why string }{
	"amd64": {
		{"bt", "the bit is further away than the memory that there is"},
		{"div", "the quotient has more bits than its register"},
		{"cmpxchg16b", "the guests' CPU has none"},
		{"vp", "the guests' CPU has no AVX-512"},
		{"fxrstor", "what it restores has a format"},
		{"xrstor", "what it restores has a format"},
	},
	"arm64": {
		{"mrs ", "a system register that programs may not read"},
	},
	"riscv64": {
		{"v", "the guest's CPU has no vectors"},
		{"jalr ", "half of a far call: what it jumps to is not aligned without the other"},
	},
}

// cannotRun is why a form always faults.
func cannotRun(arch, cpu, form string) string {
	for _, x := range faulty[arch] {
		if strings.HasPrefix(form, x.form) {
			return x.why
		}
	}
	if cpu != "" {
		return "the " + cpu + " has none, or for what it was drawn with"
	}
	return "for what it was drawn with"
}

// report lists what was not run, and why.
func report(t *testing.T, m machine, p *Population, forms map[string]*formSeen, none map[string]error) {
	t.Helper()
	why := map[string][]string{}
	for _, name := range p.Forms() {
		f := forms[name]
		switch {
		case f == nil && none[name] != nil:
			reason := none[name].Error()
			var r *plan.Refusal
			if errors.As(none[name], &r) {
				reason = r.Reason.String()
			}
			why["not planned, "+reason] = append(why["not planned, "+reason], name)
		case f == nil:
		case !f.landed:
			reason := "always faults, " + cannotRun(p.arch.Name, m.cpu, name)
			why[reason] = append(why[reason], name+" in "+p.Example(name))
		case strings.Contains(name, "(cond,") && !(f.fell && f.led):
			t.Errorf("%s, as in %s, was seen to go one way only", name, p.Example(name))
		}
	}
	for reason, list := range why {
		if !*full {
			list = []string{fmt.Sprint(len(list))}
		}
		t.Logf("%s: %s", reason, strings.Join(list, "; "))
	}
	for reason, list := range p.Barred {
		t.Logf("never displaced, %s: %d forms", reason, len(list))
	}
}

// TestEdges has an instruction with a displacement of each kind: the decoder finds
// where the least and the greatest lead.
func TestEdges(t *testing.T) {
	for _, c := range []struct {
		arch, code  string
		least, most int64 // from the instruction's start
	}{
		{"amd64", "7410", -126, 129},
		{"amd64", "e900010000", 5 - 1<<31, 4 + 1<<31},
		{"amd64", "0f8f00010000", 6 - 1<<31, 5 + 1<<31},
		{"arm64", "40000094", -1 << 27, 1<<27 - 4},
		{"arm64", "40020054", -1 << 20, 1<<20 - 4},
		{"arm64", "430200b4", -1 << 20, 1<<20 - 4},
		{"arm64", "43021036", -1 << 15, 1<<15 - 4},
		{"riscv64", "63845700", -1 << 12, 1<<12 - 2},
		{"riscv64", "6f000010", -1 << 20, 1<<20 - 2},
		{"riscv64", "01a0", -1 << 11, 1<<11 - 2},
		{"riscv64", "99c3", -1 << 8, 1<<8 - 2},
		{"riscv64", "99e3", -1 << 8, 1<<8 - 2},
	} {
		arch, err := all.Lookup(c.arch)
		if err != nil {
			t.Fatal(err)
		}
		code, err := hex.DecodeString(c.code)
		if err != nil {
			t.Fatal(err)
		}
		const at = isa.Addr(0x1000000000)
		got := edges(arch, code)
		if len(got) != 2 {
			t.Errorf("%s %s: %d edges", c.arch, c.code, len(got))
			continue
		}
		for k, want := range []int64{c.least, c.most} {
			i, before := arch.Decode(got[k], at), arch.Decode(code, at)
			if int64(i.Target-at) != want || i.Flow != before.Flow || i.Reads != before.Reads {
				t.Errorf("%s %s: %x leads to %+d, not %+d", c.arch, c.code, got[k], int64(i.Target-at), want)
			}
		}
	}
	arch, _ := all.Lookup("arm64")
	if got := edges(arch, []byte{0x1f, 0x20, 0x03, 0xd5}); got != nil {
		t.Errorf("a nop has edges: %x", got)
	}
}

func TestOutcomes(t *testing.T) {
	s := &Site{Falls: 8, Leads: 16, pads: []isa.Addr{1, 2, 8, 16}}
	out, err := Outcomes(strings.NewReader("0 8 7 4\n1 8 0 8 place differ in run 1\n"), []*Site{s, s})
	if err != nil || !out[0].Fell || out[0].Led || out[0].Differs != "" || out[1].Fell || !out[1].Led || out[1].Differs != "place differ in run 1" {
		t.Errorf("%+v, %v", out, err)
	}
	for _, bad := range []string{"", "0 8 7\n", "1 8 7 0\n", "0 8 9 0\n", "0 8 7 x\n", "0 8 7 0\n1 8 7 0\n"} {
		if _, err := Outcomes(strings.NewReader(bad), []*Site{s}); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}
