package gen

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/isa/arm64"
	"kerninst/agent/snippet"
)

// parted is an access to a user's memory, ldtr x2, [x1], with its second part 2 GiB away.
func parted(t *testing.T, before, behind isa.RegSet) Input {
	t.Helper()
	in := input(t, arm64.Arch, before)
	in.Bytes = []byte{0x22, 0x08, 0x40, 0xf8}
	in.Displaced = []isa.Insn{arm64.Decode(in.Bytes, in.Displaced[0].Addr)}
	in.Free = []isa.RegSet{before, behind}
	in.Annex = in.Patch - 1<<31 + 0x9040
	return in
}

// TestGoldenAnnex shows both parts whole.
func TestGoldenAnnex(t *testing.T) {
	var b strings.Builder
	for _, c := range []struct {
		what           string
		before, behind isa.RegSet
		change         func(*Input)
	}{
		{"free before and behind", arm64.Arch.All, isa.Set(3), func(*Input) {}},
		{"free before", arm64.Arch.All, 0, func(*Input) {}},
		{"free behind", 0, isa.Set(3), func(*Input) {}},
		{"nothing free", 0, 0, func(*Input) {}},
		{"nothing free, a CPU without LSE", 0, 0, func(in *Input) { in.Features.LSE = false }},
		{"at the beginning of a page", 0, isa.Set(3), func(in *Input) { in.Annex = in.Annex &^ 0xfff }},
	} {
		in := parted(t, c.before, c.behind)
		c.change(&in)
		out, err := Patch(arm64.Arch, in)
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		fmt.Fprintf(&b, "# %s: %d added, %d saved, %d and %d bytes, may fault at %d\n", c.what, out.Added, out.Spilled, len(out.Code), len(out.Annex.Code), out.Annex.Fault)
		for _, part := range []struct {
			at     isa.Addr
			code   []byte
			states []State
		}{{in.Patch, out.Code, out.States}, {in.Annex, out.Annex.Code, out.Annex.States}} {
			fmt.Fprintf(&b, "- %v\n  %s\n", part.at, strings.ReplaceAll(listing(arm64.Arch, part.code, part.at), "; ", "\n  "))
			for _, s := range part.states {
				fmt.Fprintln(&b, stateText(arm64.Arch, s))
			}
		}
	}
	isGolden(t, "arm64-annex.txt", b.String())
}

// TestAnnexLeaps: whatever is free, no leap takes anything else without a push, no part
// is longer than its room, and what is read back is what was written.
func TestAnnexLeaps(t *testing.T) {
	for r := isa.Reg(0); r <= arm64.Flags; r++ {
		for _, s := range []snippet.Snippet{snippet.Counter(), snippet.Poisoned()} {
			in := parted(t, isa.Set(r), isa.Set(r))
			in.Snippet = s
			out, err := Patch(arm64.Arch, in)
			if err != nil {
				t.Fatal(err)
			}
			usable := !arm64.Arch.NeverUse.Has(r) && r != arm64.Flags
			there, ok := ReadLeap(arm64.Arch, out.Code[out.Start:], in.Patch+isa.Addr(out.Start))
			if !ok || there.To != in.Annex || there.Saved == usable || usable && there.Reg != r {
				t.Errorf("x%d: the way there is %+v", r, there)
			}
			from := out.Annex.Fault + 4
			home, ok := ReadLeap(arm64.Arch, out.Annex.Code[from:], in.Annex+isa.Addr(from))
			to := in.Back
			if !usable {
				to = in.Patch + isa.Addr(out.Start+there.Len)
			}
			if !ok || home.To != to || home.Saved == usable || from+home.Len != len(out.Annex.Code) {
				t.Errorf("x%d: the way back is %+v", r, home)
			}
			if len(out.Annex.Code) > AnnexRoom {
				t.Errorf("%d bytes in the annex", len(out.Annex.Code))
			}
		}
	}
}

// TestAnnexErrors: what cannot be in two parts.
func TestAnnexErrors(t *testing.T) {
	in := parted(t, 0, 0)
	in.Annex = in.Patch + 1<<33
	if _, err := Patch(arm64.Arch, in); !errors.Is(err, ErrReach) {
		t.Errorf("an annex out of reach: %v", err)
	}
	in = parted(t, 0, 0)
	in.Bytes = []byte{0, 0, 0, 0x14}
	in.Displaced[0] = arm64.Decode(in.Bytes, in.Displaced[0].Addr)
	if _, err := Patch(arm64.Arch, in); !errors.Is(err, ErrReach) {
		t.Errorf("a jump: %v", err)
	}
	for _, a := range all.Arches() {
		in := input(t, a, a.All)
		in.Annex = in.Patch + 1<<20
		if _, err := Patch(a, in); a.Name != "arm64" && !errors.Is(err, ErrReach) {
			t.Errorf("%s: %v", a.Name, err)
		}
		if _, ok := ReadLeap(a, make([]byte, 64), in.Patch); ok {
			t.Errorf("%s: zeros are a leap", a.Name)
		}
	}
}
