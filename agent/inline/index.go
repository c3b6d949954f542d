package inline

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"kerninst/agent/isa"
	"kerninst/agent/near"
)

// Index is what is known of one kernel. It is not changed once made; questions may be asked from
// several goroutines.
type Index struct {
	Arch    string
	BuildID []byte
	Text    isa.Off // bytes
	Stats   Stats
	Of      []string // of a part, as Only makes it, the functions that it has all of, in order; nil: all of the kernel's

	strings []string
	funcs   []function // in order of names, then files and lines
	bodies  []extent   // in order of entries
	starts  []start    // of all code of bodies, in order
	data    []byte     // bodies, as appendBody writes them
	lines   []byte     // all rows of lines, as appendLines does
	marks   []lineMark // where in lines it may be begun, in order
	marked  []markedFile
}

// function is one that there is a body or a copy of.
type function struct {
	name, file uint32 // of strings
	line       uint32
	uses       []uint32 // bodies of it or with copies of it, in order
}

// extent is where a body begins, and where in data it is.
type extent struct {
	entry isa.Off
	at    uint32
}

// start is where a stretch of code begins that is a body's.
type start struct {
	Range
	body uint32
}

// fn is a function as others see it.
func (x *Index) fn(k uint64) Func {
	f := &x.funcs[k]
	return Func{x.strings[f.name], x.strings[f.file], int(f.line)}
}

// Lookup lists the functions of a name: files may each have one.
func (x *Index) Lookup(name string) (out []Func) {
	for k, hi := x.named(name); k < hi; k++ {
		out = append(out, x.fn(uint64(k)))
	}
	return out
}

// named are the numbers of the functions of a name: from lo up to hi.
func (x *Index) named(name string) (lo, hi int) {
	lo = sort.Search(len(x.funcs), func(k int) bool { return x.strings[x.funcs[k].name] >= name })
	for hi = lo; hi < len(x.funcs) && x.strings[x.funcs[hi].name] == name; hi++ {
	}
	return lo, hi
}

// PartError says that a part of an index was asked for what it was not made for: it may have some of that, which
// would be taken for all.
type PartError struct {
	Of    []string // functions
	Asked string   // a function, or what else is not in parts
}

// mostOf is how many functions are named of those that a part is of.
const mostOf = 5

func (e *PartError) Error() string {
	of := strings.Join(e.Of[:min(len(e.Of), mostOf)], ", ")
	if more := len(e.Of) - mostOf; more > 0 {
		of += fmt.Sprintf(" and %d others", more)
	}
	return fmt.Sprintf("what is known was made for %s, not for %s%s (lab inline --save makes a file for others, or for all)", of, e.asked(), near.Hint(e.Asked, e.Of))
}

func (e *PartError) asked() string {
	if e.Asked == someLines {
		return e.Asked
	}
	return near.Quoted(e.Asked)
}

// someLines is what parts are asked for that answer for no line.
const someLines = "lines of the source"

// Has is a *PartError if an index is a part that was not made for a function. Of Lookup, Names and At it may have more.
func (x *Index) Has(name string) error {
	if _, has := slices.BinarySearch(x.Of, name); x.Of == nil || has {
		return nil
	}
	return &PartError{x.Of, name}
}

// Names lists the names of functions that begin with a prefix, in order, n at most.
func (x *Index) Names(prefix string, n int) (out []string) {
	k := sort.Search(len(x.funcs), func(k int) bool { return x.strings[x.funcs[k].name] >= prefix })
	for ; k < len(x.funcs) && len(out) < n; k++ {
		name := x.strings[x.funcs[k].name]
		if !strings.HasPrefix(name, prefix) {
			break
		}
		if len(out) == 0 || out[len(out)-1] != name {
			out = append(out, name)
		}
	}
	return out
}

// Entries lists where bodies are entered, in order.
func (x *Index) Entries() (out []isa.Off) {
	for _, e := range x.bodies {
		out = append(out, e.entry)
	}
	return out
}

// Found is a copy of a function, or a body of it, by itself: then Copy is Outermost.
type Found struct {
	Body *Body
	Copy int
}

// Ranges are the code of what was found, in order of places but for a body's, which begins with its entry.
func (f Found) Ranges() []Range {
	if f.Copy < 0 {
		return f.Body.Ranges
	}
	return f.Body.Copy(f.Copy).Ranges()
}

// Find lists the bodies and copies of all functions of a name, in order of the bodies that they
// are in. A damaged index is an error, and a *PartError one of other functions.
func (x *Index) Find(name string) (out []Found, err error) {
	if err := x.Has(name); err != nil {
		return nil, err
	}
	lo, hi := x.named(name)
	var list []uint32
	for k := lo; k < hi; k++ {
		list = append(list, x.funcs[k].uses...)
	}
	slices.Sort(list)
	list = slices.Compact(list)
	for _, k := range list {
		in := len(out)
		b, err := x.body(k, func(copy int, function uint64) {
			if function >= uint64(lo) && function < uint64(hi) {
				out = append(out, Found{Copy: copy})
			}
		})
		if err != nil {
			return nil, err
		}
		if b.Func.Name == name {
			out = slices.Insert(out, in, Found{Copy: Outermost})
		}
		for ; in < len(out); in++ {
			out[in].Body = b
		}
	}
	return out, nil
}

// At is the body that has the code at a place, and the innermost copy there; nil where there is
// none that the compiler made of C.
func (x *Index) At(o isa.Off) (Found, error) {
	k := sort.Search(len(x.starts), func(k int) bool { return x.starts[k].Lo > o }) - 1
	if k < 0 || !x.starts[k].Holds(o) {
		return Found{Copy: Outermost}, nil
	}
	b, err := x.body(x.starts[k].body, func(int, uint64) {})
	if err != nil {
		return Found{Copy: Outermost}, err
	}
	f := Found{b, Outermost}
	for c := range b.Len() { // the inner ones are behind those that they are in
		if slices.ContainsFunc(b.Copy(c).Ranges(), func(r Range) bool { return r.Holds(o) }) {
			f.Copy = c
		}
	}
	return f, nil
}

// assemble makes an index of what the units have.
func assemble(arch string, id []byte, text isa.Off, units []unit) (*Index, error) {
	x := &Index{Arch: arch, BuildID: id, Text: text}
	var bodies []Body
	for _, u := range units {
		bodies = append(bodies, u.bodies...)
		x.Stats.add(u.stats)
	}
	if len(bodies) == 0 {
		return nil, fmt.Errorf("it has no function with code")
	}
	slices.SortStableFunc(bodies, func(a, b Body) int { return a.Ranges[0].before(b.Ranges[0]) })
	lines := inOrder(units)
	x.Stats.Lines = len(lines)
	p := newPool(bodies, lines)
	x.strings, x.funcs = p.strings, p.funcs
	for k := range bodies {
		b := &bodies[k]
		x.bodies = append(x.bodies, extent{b.Ranges[0].Lo, uint32(len(x.data))})
		x.data = p.appendBody(x.data, b)
		for _, r := range b.Ranges {
			x.starts = append(x.starts, start{r, uint32(k)})
		}
	}
	slices.SortFunc(x.starts, func(a, b start) int { return a.before(b.Range) })
	x.use(bodies, p)
	x.lines, x.marks = p.appendLines(lines)
	x.marked = p.markFiles(lines)
	return x, nil
}

// use notes in which bodies functions are.
func (x *Index) use(bodies []Body, p *pool) {
	note := func(f Func, body int) {
		u := &x.funcs[p.funcAt[f]].uses
		if n := len(*u); n == 0 || (*u)[n-1] != uint32(body) {
			*u = append(*u, uint32(body))
		}
	}
	for k, b := range bodies {
		note(b.Func, k)
		for _, c := range b.copies {
			note(c.Func, k)
		}
	}
}

func (s *Stats) add(o Stats) {
	s.Units += o.Units
	s.Bodies += o.Bodies
	s.Copies += o.Copies
	s.Args += o.Args
	s.Outside += o.Outside
	s.Left += o.Left
	s.Empty += o.Empty
	s.Located += o.Located
	s.Covered += o.Covered
}

// Only is an index of those bodies alone that are of some functions, or have copies of them: a
// digest for tests, and for who has no network. Its Stats are of what it has. It answers for these functions alone.
func (x *Index) Only(names ...string) (*Index, error) {
	var uses []uint32
	for _, name := range names {
		if err := x.Has(name); err != nil {
			return nil, err
		}
		for k, hi := x.named(name); k < hi; k++ {
			uses = append(uses, x.funcs[k].uses...)
		}
	}
	slices.Sort(uses)
	var u unit
	for _, k := range slices.Compact(uses) { // several may begin at one place
		b, err := x.body(k, func(int, uint64) {})
		if err != nil {
			return nil, err
		}
		u.add(x, b)
	}
	only, err := assemble(x.Arch, x.BuildID, x.Text, []unit{u})
	if err == nil {
		only.Of = slices.Compact(slices.Sorted(slices.Values(names)))
	}
	return only, err
}

// add takes a body of another index with its lines.
func (u *unit) add(x *Index, b *Body) {
	taken := Body{Func: b.Func, Ranges: b.Ranges}
	for k := range b.Len() {
		c := b.Copy(k)
		c.ranges, c.args = c.Ranges(), c.Args()
		u.stats.Args += len(c.args)
		taken.copies = append(taken.copies, *c)
	}
	u.stats.Bodies++
	u.stats.Copies += b.Len()
	u.bodies = append(u.bodies, taken)
	for _, r := range b.Ranges {
		u.lines = append(u.lines, x.linesIn(r)...)
	}
}

// linesIn are the rows of some code, with the one that it begins in, and an end.
func (x *Index) linesIn(r Range) []Line {
	first := x.LineAt(r.Lo)
	first.Off = r.Lo
	out := []Line{first}
	for k := x.mark(r.Lo); k < len(x.marks) && x.marks[k].state.off < r.Hi; k++ {
		x.rows(k, func(l Line) {
			if l.Off > r.Lo && l.Off < r.Hi {
				out = append(out, l)
			}
		})
	}
	return append(out, Line{Off: r.Hi})
}
