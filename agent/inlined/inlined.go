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

// Copies looks copies up in the text of one kernel, or in one of its modules.
type Copies struct {
	x      *inline.Index
	text   *ktext.Text
	module string // "" for the kernel itself
	parts  []part
	also   map[isa.Addr][]isa.Addr // inline.Code.Also
}

// part is where the kernel has a stretch of the text that an index is of: of its own all is one, of a module each
// section is.
type part struct {
	inline.Range
	at isa.Addr
}

// In joins what is known of copies with the text of the same kernel; of another, it is an *OtherBuildError.
func In(text *ktext.Text, x *inline.Index) (*Copies, error) {
	lo, hi := text.Bounds()
	c := &Copies{x: x, text: text, parts: []part{{inline.Range{Hi: isa.Off(hi - lo)}, lo}}}
	return c, c.join()
}

// InModule is In for a module: a *NotLoadedError if the kernel does not have it.
func InModule(text *ktext.Text, m *inline.Module) (*Copies, error) {
	c := &Copies{x: m.Index, text: text, module: m.Name}
	if err := c.find(m.Sections); err != nil {
		return nil, err
	}
	return c, c.join()
}

// join checks whether the index is of this text, and reads what else there is to know.
func (c *Copies) join() (err error) {
	if err := c.same(); err != nil {
		return err
	}
	c.also, err = c.alsoLead()
	return err
}

// Addr is where the kernel has a place; false: nobody knows.
func (c *Copies) Addr(o isa.Off) (isa.Addr, bool) {
	for _, p := range c.parts {
		if p.Holds(o) {
			return p.at + isa.Addr(o-p.Lo), true
		}
	}
	return 0, false
}

// Off is the inverse of Addr.
func (c *Copies) Off(a isa.Addr) (isa.Off, bool) {
	for _, p := range c.parts {
		if a >= p.at && a < p.end() {
			return p.Lo + isa.Off(a-p.at), true
		}
	}
	return 0, false
}

func (p part) end() isa.Addr { return p.at + isa.Addr(p.Hi-p.Lo) }

// Find lists the copies and bodies of the functions of a name, as far as it is known where the kernel has
// them; and how many more there are.
func (c *Copies) Find(name string) (found []inline.Found, more int, err error) {
	all, err := c.x.Find(name)
	for _, f := range all {
		if slices.ContainsFunc(f.Body.Ranges, func(r inline.Range) bool { _, ok := c.Addr(r.Lo); return !ok }) {
			more++
			continue
		}
		found = append(found, f)
	}
	return found, more, err
}

// alsoLead is where control goes from instructions of the kernel but as they say at the moment: the other
// side of a static key, and the fixup of a fault.
func (c *Copies) alsoLead() (map[isa.Addr][]isa.Addr, error) {
	links, err := c.text.Links(c.module)
	if err != nil {
		return nil, err
	}
	out := map[isa.Addr][]isa.Addr{}
	for _, k := range links.Keys {
		in := slices.IndexFunc(c.parts, func(p part) bool { return k.Site >= p.at && k.Site < p.end() })
		if in < 0 { // what has run at boot, or when the module came
			continue
		}
		arch := c.text.Arch
		code := make([]byte, min(isa.Addr(arch.MaxLen), c.parts[in].end()-k.Site))
		if err := c.text.Read(k.Site, code); err != nil {
			return nil, err
		}
		other := k.Target
		if i := arch.Decode(code, k.Site); i.Flow == isa.FlowJump {
			other = i.End()
		}
		out[k.Site] = append(out[k.Site], other)
	}
	for _, f := range links.Faults {
		out[f.Site] = append(out[f.Site], f.Fixup)
	}
	return out, nil
}

// leastSame is the part of functions that have to begin where the kernel has a symbol (Copies.Begins).
const leastSame = 0.99

// OtherBuildError says that what is known of copies is of another kernel, or of a module of another.
type OtherBuildError struct {
	Module string // "" for the kernel itself
	Same   float64
}

func (e *OtherBuildError) Error() string {
	if e.Module != "" {
		return fmt.Sprintf("the debugging information of module %s is of another build: %.0f %% of its functions begin where the kernel has them; lab inline --module %[1]s --save makes a file of that of a kernel", e.Module, 100*e.Same)
	}
	return fmt.Sprintf("the debugging information is of another build: %.0f %% of its functions begin where this kernel has one; lab inline --save makes a file of that of a kernel", 100*e.Same)
}

// Begins is the function of the kernel that begins where compiled code does, or as much in front as is kept free for ftrace.
func (c *Copies) Begins(a isa.Addr) (ktext.Func, bool) {
	f, ok := c.text.Locate(a)
	return f, ok && f.Module == c.module && a-f.Addr <= inline.MostFree
}

// same says whether the index is of this kernel: where functions begin differs from build to build.
func (c *Copies) same() error {
	entries, same := 0, 0
	for _, e := range c.x.Entries() {
		a, ok := c.Addr(e)
		if !ok && c.module != "" { // its section has not been found
			continue
		}
		entries++
		if _, begins := c.Begins(a); ok && begins {
			same++
		}
	}
	if share := float64(same) / float64(max(entries, 1)); share < leastSame {
		return &OtherBuildError{c.module, share}
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
	if f.Copy >= 0 && inside(f.Body.Copy(f.Copy).Entry) { // the compiler may mean a place in front
		entry = f.Body.Copy(f.Copy).Entry
	}
	code := inline.Code{Insns: insns, Also: c.also}
	at, _ := c.Addr(entry)
	return code.Exits(at, func(a isa.Addr) bool { o, ok := c.Off(a); return ok && inside(o) }), err
}

// insns are a body's instructions, in order of places.
func (c *Copies) insns(b *inline.Body) (out []isa.Insn, err error) {
	ranges := slices.Clone(b.Ranges)
	slices.SortFunc(ranges, func(a, b inline.Range) int { return cmp.Compare(a.Lo, b.Lo) })
	for _, r := range ranges {
		code := make([]byte, r.Hi-r.Lo)
		a, _ := c.Addr(r.Lo)
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
