// Package inlined joins what is known of the copies that the compiler has inlined (agent/inline) with the
// text of a running kernel: what specifications mean there, where copies are entered and left, by what their
// arguments are found, and which line of the source a place is of.
package inlined

import (
	"cmp"
	"fmt"
	"slices"

	"kerninst/agent/inline"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
)

// Copies looks copies of one kernel up.
type Copies struct {
	x    *inline.Index
	text *ktext.Text
	lo   isa.Addr
	also map[isa.Addr][]isa.Addr // inline.Code.Also
}

// In joins what is known of copies with the text of the same kernel; of another, it is an *OtherBuildError.
func In(text *ktext.Text, x *inline.Index) (*Copies, error) {
	lo, _ := text.Bounds()
	c := &Copies{x: x, text: text, lo: lo}
	if err := c.same(); err != nil {
		return nil, err
	}
	var err error
	c.also, err = alsoLead(text)
	return c, err
}

// alsoLead is where control goes from instructions of the kernel but as they say at the moment: the other
// side of a static key, and the fixup of a fault.
func alsoLead(text *ktext.Text) (map[isa.Addr][]isa.Addr, error) {
	links, err := text.Links("")
	if err != nil {
		return nil, err
	}
	out := map[isa.Addr][]isa.Addr{}
	lo, hi := text.Bounds()
	for _, k := range links.Keys {
		if k.Site < lo || k.Site >= hi { // what has run at boot
			continue
		}
		code := make([]byte, min(isa.Addr(text.Arch.MaxLen), hi-k.Site))
		if err := text.Read(k.Site, code); err != nil {
			return nil, err
		}
		other := k.Target
		if i := text.Arch.Decode(code, k.Site); i.Flow == isa.FlowJump {
			other = i.End()
		}
		out[k.Site] = append(out[k.Site], other)
	}
	for _, f := range links.Faults {
		out[f.Site] = append(out[f.Site], f.Fixup)
	}
	return out, nil
}

// leastSame is the part of functions that have to begin where the kernel has a symbol, or behind
// what is kept free for ftrace there, where debugging information has them begin on riscv64.
const leastSame, mostFree = 0.99, 8

// OtherBuildError says that what is known of copies is of another kernel.
type OtherBuildError struct{ Same float64 }

func (e *OtherBuildError) Error() string {
	return fmt.Sprintf("the debugging information is of another build: %.0f %% of its functions begin where this kernel has one", 100*e.Same)
}

// same says whether the index is of this kernel: where functions begin differs from build to build.
func (c *Copies) same() error {
	entries, same := c.x.Entries(), 0
	for _, e := range entries {
		if f, ok := c.text.Locate(c.lo + isa.Addr(e)); ok && c.lo+isa.Addr(e)-f.Addr <= mostFree {
			same++
		}
	}
	if part := float64(same) / float64(len(entries)); part < leastSame {
		return &OtherBuildError{part}
	}
	return nil
}

// Exits are where control leaves a copy.
func (c *Copies) Exits(f inline.Found) ([]inline.Exit, error) {
	insns, err := c.insns(f.Body)
	ranges := f.Ranges()
	inside := func(o isa.Off) bool {
		return slices.ContainsFunc(ranges, func(r inline.Range) bool { return r.Holds(o) })
	}
	entry := ranges[0].Lo
	if f.Copy >= 0 && inside(f.Body.Copies[f.Copy].Entry) { // the compiler may mean a place in front
		entry = f.Body.Copies[f.Copy].Entry
	}
	code := inline.Code{Insns: insns, Also: c.also}
	return code.Exits(c.lo+isa.Addr(entry), func(a isa.Addr) bool { return inside(isa.Off(a - c.lo)) }), err
}

// insns are a body's instructions, in order of places.
func (c *Copies) insns(b *inline.Body) (out []isa.Insn, err error) {
	ranges := slices.Clone(b.Ranges)
	slices.SortFunc(ranges, func(a, b inline.Range) int { return cmp.Compare(a.Lo, b.Lo) })
	for _, r := range ranges {
		code := make([]byte, r.Hi-r.Lo)
		a := c.lo + isa.Addr(r.Lo)
		if err := c.text.Read(a, code); err != nil {
			return nil, err
		}
		for len(code) > 0 {
			i := c.text.Arch.Decode(code, a)
			out = append(out, i)
			code, a = code[min(i.Len, len(code)):], i.End()
		}
	}
	return out, nil
}
