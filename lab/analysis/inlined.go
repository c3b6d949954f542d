package analysis

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"kerninst/agent/gen"
	"kerninst/agent/inline"
	"kerninst/agent/inlined"
	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/ktext"
	"kerninst/agent/near"
	"kerninst/images"
)

// Copies is what is known of the inlined copies of a kernel's functions.
func Copies(ctx context.Context, opt images.Options) (*inline.Index, error) {
	arch, err := all.Lookup(opt.Arch)
	if err != nil {
		return nil, err
	}
	b, err := images.FromVmlinux(ctx, opt, fmt.Sprintf("inline-%d", inline.Version), func(vmlinux io.ReaderAt) ([]byte, error) {
		x, err := inline.Make(vmlinux, arch, reading(ctx, opt))
		if err != nil {
			return nil, err
		}
		return x.Bytes()
	})
	if err != nil {
		return nil, err
	}
	return inline.Open(b)
}

// reading is how debugging information is read, which is told every few seconds, until nobody wants it any more.
func reading(ctx context.Context, opt images.Options) inline.Options {
	said := time.Now()
	return inline.Options{Workers: runtime.GOMAXPROCS(0), Stopped: ctx.Err, Progress: func(done, of int) {
		if opt.Progress != nil && time.Since(said) > 5*time.Second {
			opt.Progress("%s: source files read: %d of %d", opt.Arch, done, of)
			said = time.Now()
		}
	}}
}

// ModuleCopies is what is known of the inlined copies in modules of a kernel, in order of their names.
func ModuleCopies(ctx context.Context, opt images.Options, names []string) (out []*inline.Module, err error) {
	arch, err := all.Lookup(opt.Arch)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("inline-module-%d-%d", inline.ModuleVersion, inline.Version)
	made, err := images.FromModules(ctx, opt, name, names, func(file io.ReaderAt) ([]byte, error) {
		m, err := inline.MakeModule(file, arch, reading(ctx, opt))
		if err != nil {
			return nil, err
		}
		return m.Bytes()
	})
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(made)) {
		m, err := inline.OpenModule(made[name])
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// Inlined is where a function is in a kernel: by itself, and in others.
type Inlined struct {
	Schema   int           `json:"schema"`
	Arch     string        `json:"arch"`
	Module   string        `json:"module,omitempty"`
	BuildID  string        `json:"build_id"` // of the kernel, or the module, that the debugging information is of
	Function string        `json:"function"`
	Source   []string      `json:"source"`             // FILE:LINE of each of that name
	Copies   []InlinedCopy `json:"copies"`             // those by itself have no call
	Unplaced int           `json:"unplaced,omitempty"` // copies in sections of a module of which no function tells where they are
}

// InlinedCopy is one copy, or a body of its own.
type InlinedCopy struct {
	Caller  string     `json:"caller"`       // the symbol that the copy is in
	In      []string   `json:"in,omitempty"` // the functions in between, from inside to outside
	Call    string     `json:"call,omitempty"`
	Bytes   isa.Off    `json:"bytes"`
	Ranges  []string   `json:"ranges"` // PLACE-PLACE
	Entry   WayInOut   `json:"entry"`
	Returns []WayInOut `json:"returns"`
	Args    []string   `json:"args,omitempty"` // NAME WHERE, at the entry
}

// WayInOut is where a copy is entered or left, and how a counter gets there.
type WayInOut struct {
	Place     string   `json:"place"`
	Address   isa.Addr `json:"address"`
	Line      string   `json:"line,omitempty"`
	Mechanism string   `json:"mechanism,omitempty"`
	Refusal   string   `json:"refusal,omitempty"`
}

// CopiesIn looks the copies in the kernel of a dump up, and in its modules; x may be nil.
func CopiesIn(d *ktext.Dump, x *inline.Index, modules ...*inline.Module) (*inlined.All, error) {
	text, err := TextOf(d)
	if err != nil {
		return nil, err
	}
	return inlined.Join(text, x, modules...)
}

// HasModule is an *inlined.NotLoadedError if a module was not loaded in the kernel of a dump.
func HasModule(d *ktext.Dump, name string) error {
	text, err := TextOf(d)
	if err != nil {
		return err
	}
	return inlined.Loaded(text, name)
}

// TextOf is the text of a dump.
func TextOf(d *ktext.Dump) (*ktext.Text, error) {
	arch, err := all.Lookup(d.Arch)
	if err != nil {
		return nil, err
	}
	return d.Text(arch)
}

// inlines says of copies of one kernel what people ask.
type inlines struct {
	x      *inline.Index
	text   *ktext.Text
	module string // "" for the kernel itself
	copies *inlined.Copies
	plan   *Planner
}

// NotInlinedError says that no function of that name is known, and which may be meant.
type NotInlinedError struct{ Module, Name, Hint string }

func (e *NotInlinedError) Error() string {
	where := "the kernel's own text"
	if e.Module != "" {
		where = "module " + e.Module
	}
	return fmt.Sprintf("no C function is called %s, in %s%s", near.Quoted(e.Name), where, e.Hint)
}

// HintInlined is the function that was meant, if one is near.
func HintInlined(x *inline.Index, name string) string {
	return near.Hint(name, x.Names(name[:min(2, len(name))], 100000))
}

// KnownInlined is a *NotInlinedError for the first of some names that no function has of which x knows, which is a
// module's if that is not "", and an *inline.PartError for one that x was not made for.
func KnownInlined(x *inline.Index, module string, names []string) error {
	for _, name := range names {
		if err := x.Has(name); err != nil {
			return err
		}
		if len(x.Lookup(name)) == 0 {
			return &NotInlinedError{module, name, HintInlined(x, name)}
		}
	}
	return nil
}

// FindInlined says where functions are in the kernel of a dump, or if m is not nil, in that module of it. Its errors
// are KnownInlined's, too.
func FindInlined(d *ktext.Dump, k *Stored, x *inline.Index, m *inline.Module, names []string) (all []*Inlined, err error) {
	text, err := TextOf(d)
	if err != nil {
		return nil, err
	}
	at := inlines{x: x, text: text}
	if m == nil {
		at.copies, err = inlined.In(text, x)
	} else {
		at.x, at.module = m.Index, m.Name
		at.copies, err = inlined.InModule(text, m)
	}
	if err != nil {
		return nil, err
	}
	if err := KnownInlined(at.x, at.module, names); err != nil {
		return nil, err
	}
	if at.plan, err = NewPlanner(text, k.Index, gen.Features{LSE: true}); err != nil {
		return nil, err
	}
	for _, name := range names {
		f, err := at.function(name)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// function is what is to be said of all functions of a name.
func (n *inlines) function(name string) (*Inlined, error) {
	found, more, err := n.copies.Find(name)
	if err != nil {
		return nil, err
	}
	out := &Inlined{Schema: 1, Arch: n.text.Arch.Name, Module: n.module, BuildID: fmt.Sprintf("%x", n.x.BuildID), Function: name, Unplaced: more}
	for _, f := range n.x.Lookup(name) {
		out.Source = append(out.Source, fmt.Sprintf("%s:%d", f.File, f.Line))
	}
	for _, f := range found {
		c, err := n.copy(f)
		if err != nil {
			return nil, err
		}
		out.Copies = append(out.Copies, *c)
	}
	return out, nil
}

// copy is what is to be said of one.
func (n *inlines) copy(f inline.Found) (*InlinedCopy, error) {
	ranges := f.Ranges()
	c := &InlinedCopy{}
	for _, r := range ranges {
		c.Bytes += r.Hi - r.Lo
		c.Ranges = append(c.Ranges, n.place(n.at(r.Lo))+"-"+n.place(n.at(r.Hi-1)))
	}
	entry := ranges[0].Lo
	if f.Copy >= 0 {
		this := f.Body.Copy(f.Copy)
		entry = this.Entry
		c.Call = fmt.Sprintf("%s:%d", this.File, this.Line)
		for k := this.In; k >= 0; k = f.Body.Copy(k).In {
			c.In = append(c.In, f.Body.Copy(k).Func.Name)
		}
		c.Args = n.args(this)
	}
	begin := n.at(f.Body.Ranges[0].Lo)
	owner, ok := n.text.Locate(begin)
	if !ok {
		return nil, fmt.Errorf("there is no symbol at %v", begin)
	}
	c.Caller = owner.Name
	var err error
	if _, named := n.copies.Begins(begin); f.Copy >= 0 {
		c.Entry, err = n.way(n.at(entry))
	} else if named {
		c.Entry, err = n.enter(owner, ranges[0].Lo)
	} else {
		c.Entry = n.told(begin)
		c.Entry.Refusal = "the kernel has no symbol where it begins"
	}
	if err != nil {
		return nil, err
	}
	exits, err := n.copies.Exits(f)
	if err != nil {
		return nil, err
	}
	for _, e := range exits {
		w, err := n.way(e.At)
		if err != nil {
			return nil, err
		}
		if e.Why != "" {
			w.Mechanism, w.Refusal = "", e.Why
		}
		c.Returns = append(c.Returns, w)
	}
	return c, nil
}

// way is a place with what the planner says of a counter there.
func (n *inlines) way(a isa.Addr) (WayInOut, error) {
	w := n.told(a)
	f, ok := n.text.Locate(a)
	switch {
	case !ok && n.cut(f):
		w.Refusal = "it is beyond the page in which " + f.Name + " begins, and where longer functions of modules end, their symbols do not say"
		return w, nil
	case !ok:
		w.Refusal = "it is in no function"
		return w, nil
	}
	return w, n.plan.Each(f, []isa.Addr{a}, w.is)
}

// enter is the begin of a function, which need not be counted at its first instruction. On riscv64 the code that
// lines are known of begins behind what is kept free for ftrace.
func (n *inlines) enter(f ktext.Func, code isa.Off) (WayInOut, error) {
	w := n.told(f.Addr)
	w.Line = n.told(n.at(code)).Line
	v, err := n.plan.Entry(f)
	if err == nil {
		w.is(v)
	}
	return w, err
}

// told is a place with the line that it is of.
func (n *inlines) told(a isa.Addr) WayInOut {
	w := WayInOut{Place: n.place(a), Address: a}
	o, ok := n.copies.Off(a)
	if l := n.x.LineAt(o); ok && l.File != "" {
		w.Line = fmt.Sprintf("%s:%d", l.File, l.Line)
	}
	return w
}

func (w *WayInOut) is(v Verdict) {
	if v.Plan != nil {
		w.Mechanism = v.Plan.Mechanism.String()
	} else {
		w.Refusal = v.Refusal.Detail
	}
}

// at is where the kernel has a place of what has been found, which it has.
func (n *inlines) at(o isa.Off) isa.Addr {
	a, _ := n.copies.Addr(o)
	return a
}

// cut says whether what is behind a function may be its own: of one of a module that seems to be longer, ktext takes
// what is in the page in which it begins.
func (n *inlines) cut(f ktext.Func) bool { return n.module != "" && f.Module == n.module }

func (n *inlines) place(a isa.Addr) string {
	if f, ok := n.text.Locate(a); ok || n.cut(f) {
		return fmt.Sprintf("%s+%#x", f.Name, uint64(a-f.Addr))
	}
	return a.String()
}

// args is where the arguments of a copy are when it is entered.
func (n *inlines) args(c *inline.Copy) (out []string) {
	for _, a := range c.Args() {
		where := "not known"
		for _, p := range a.Where {
			if p.Holds(c.Entry) {
				where = p.In(n.text.Arch)
			}
		}
		out = append(out, a.Name+": "+where)
	}
	return out
}

// Print writes it for people.
func (i *Inlined) Print(w io.Writer) error {
	copies := 0
	for _, c := range i.Copies {
		if c.Call != "" {
			copies++
		}
	}
	fmt.Fprintf(w, "%s (%s): %d inlined, %d by itself\n", i.Function, strings.Join(i.Source, ", "), copies, len(i.Copies)-copies)
	if i.Unplaced > 0 {
		fmt.Fprintf(w, "%d more are in sections of %s of which no function tells where they are\n", i.Unplaced, i.Module)
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, c := range i.Copies {
		in := c.Caller
		if len(c.In) > 0 {
			in = strings.Join(c.In, " < ") + " < " + in
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d bytes\t%s\n", c.Entry.Place, c.Entry.how(), cmp.Or(c.Call, "by itself"), c.Bytes, in)
		for _, r := range c.Returns {
			fmt.Fprintf(t, "  return %s\t%s\t%s\n", r.Place, r.how(), r.Line)
		}
	}
	return t.Flush()
}

func (w WayInOut) how() string {
	if w.Refusal != "" {
		return "refused: " + w.Refusal
	}
	return w.Mechanism
}
