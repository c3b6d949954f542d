package sweep

import (
	"context"
	"fmt"
	"io"
	"sort"
	"strings"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/images"
)

// FlowReport compares a graph with what objdump prints of the same text.
type FlowReport struct {
	Instructions int
	Targets      int                // of direct branches and calls, in the text
	Ends         map[string]int     // confirmed ends of blocks, by kind
	Listed       map[string]int     // what agrees only for a reason, by that reason
	Sites        map[string]int     // addresses in the kernel's tables where an instruction begins, by table
	Wrong        []string           // what does not agree; maxWrong at most are kept
	Jumps        []IndirectJump     // each, in order
	Seen         map[cfg.Block]bool // blocks whose end was printed
}

// IndirectJump is one that objdump prints, and what stands before it.
type IndirectJump struct {
	Addr   isa.Addr
	Kind   cfg.Kind
	Before []Listed // up to window instructions, in order

	reg    string             // that it takes
	bounds map[isa.Addr]bound // of the whole text
	made   *made              // of its function
}

// Listed is an instruction as objdump prints it, at its place in the kernel.
type Listed struct {
	Line
	Flow   isa.Flow // by the book of mnemonics
	Target isa.Addr // of direct flow, in the kernel
	// Shift is what was added to the piece's addresses in the file that objdump
	// read: addresses among the operands are off by as much.
	Shift isa.Addr
}

// window is how many instructions before an indirect jump are kept.
const window = 16

// maxWrong bounds how many contradictions are kept.
const maxWrong = 100

// Flow has objdump disassemble the pieces, and holds the graph of their kernel
// against what it prints: instructions begin where the graph has them, what ends
// a block does so in both, and branches lead to where blocks begin.
func Flow(ctx context.Context, root *images.Root, g *cfg.Graph, t *ktext.Text, pieces []Piece) (*FlowReport, error) {
	links, err := t.Links("")
	if err != nil {
		return nil, err
	}
	f := newFlow(g, t, links)
	if err := visit(ctx, root, g.Arch, pieces, f.line); err != nil {
		return nil, err
	}
	f.missed(pieces)
	return f.r, nil
}

func newFlow(g *cfg.Graph, t *ktext.Text, links *ktext.Links) *flow {
	f := &flow{g: g, t: t, r: &FlowReport{Ends: map[string]int{}, Listed: map[string]int{}, Sites: map[string]int{}, Seen: map[cfg.Block]bool{}},
		keys: map[isa.Addr]isa.Addr{}, sites: map[isa.Addr]string{}, tables: map[isa.Addr][]string{}, bounds: map[isa.Addr]bound{}, made: map[string]*made{}}
	in := func(table string, a isa.Addr) { f.tables[a] = append(f.tables[a], table) }
	for _, k := range links.Keys {
		f.keys[k.Site] = k.Target
		in("static keys", k.Site)
	}
	for _, a := range links.Calls {
		f.sites[a] = "static call"
		in("static calls", a)
	}
	for _, x := range links.Faults {
		in("exception table", x.Site)
		in("fixups", x.Fixup)
	}
	for _, b := range links.Bugs {
		if b.Warning {
			f.sites[b.Site] = "warning"
		}
		in("bug table", b.Site)
	}
	return f
}

// missed complains of what the kernel's tables name in the pieces where objdump
// printed no instruction's beginning.
func (f *flow) missed(pieces []Piece) {
	for _, p := range pieces {
		for k := range p.Code {
			a := p.Addr + isa.Addr(k)
			for _, table := range f.tables[a] {
				f.wrong("%v: in the %s, and objdump prints no instruction that begins there", a, table)
			}
		}
	}
}

// visit has objdump disassemble the pieces, and calls each for every instruction.
func visit(ctx context.Context, root *images.Root, arch *isa.Arch, pieces []Piece, each func(*Listed)) error {
	l := lay(arch, pieces)
	file := elfFile(arch.Name, l.base, l.code, l.starts)
	book := books[arch.Name]
	err := root.Stream(ctx, "code", file, append([]string{tools[arch.Name]}, append(arguments, "code")...), func(out io.Reader) error {
		return read(out, func(line *Line) error {
			k := sort.Search(len(l.starts), func(k int) bool { return l.starts[k] > line.Addr }) - 1
			if k < 0 {
				return fmt.Errorf("objdump: an instruction at %v, before the code", line.Addr)
			}
			x := Listed{Line: *line, Shift: l.starts[k] - l.pieces[k].Addr}
			if e, ok := book.effect(book, line); ok && !line.bad() {
				if x.Flow = e.flow; e.target != 0 {
					x.Target = e.target - x.Shift
				}
			}
			x.Addr -= x.Shift
			if x.Address != 0 {
				x.Address -= x.Shift
			}
			each(&x)
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("listing of %s: %w", arch.Name, err)
	}
	return nil
}

type flow struct {
	g      *cfg.Graph
	t      *ktext.Text
	r      *FlowReport
	keys   map[isa.Addr]isa.Addr
	sites  map[isa.Addr]string
	tables map[isa.Addr][]string // that name an address which was not printed yet
	before []Listed
	bounds map[isa.Addr]bound
	home   ktext.Func
	made   map[string]*made // by family
}

// misleading are functions whose bytes read otherwise than they run.
var misleading = map[string]string{
	"srso_untrain_ret":     "ends inside an instruction that hides a return from who runs it straight on",
	"retbleed_untrain_ret": "likewise",
}

func (f *flow) bad(l *Listed, format string, args ...any) {
	if x, ok := f.t.Locate(l.Addr); ok && misleading[x.Name] != "" {
		f.r.Listed[x.Name]++
		return
	}
	f.wrong("%v %s %s: %s", l.Addr, l.Mnemonic, l.Operands, fmt.Sprintf(format, args...))
}

func (f *flow) wrong(format string, args ...any) {
	if len(f.r.Wrong) < maxWrong {
		f.r.Wrong = append(f.r.Wrong, fmt.Sprintf(format, args...))
	}
}

// line judges one instruction.
func (f *flow) line(l *Listed) {
	f.r.Instructions++
	for _, table := range f.tables[l.Addr] {
		f.r.Sites[table]++
	}
	delete(f.tables, l.Addr)
	b, ok := f.g.AtAddr(l.Addr)
	if !ok {
		f.bad(l, "is not in the graph")
		return
	}
	if f.g.Kind(b) == cfg.KindPad {
		f.r.Listed["padding"]++
		return
	}
	if l.zeros() && f.g.Kind(b) == cfg.KindTrap {
		f.r.Listed["zeros"]++
		if l.Addr+isa.Addr(l.Len) == f.g.End(b) {
			f.r.Seen[b] = true
		}
		return
	}
	if !f.g.Boundary(l.Addr) {
		f.bad(l, "no instruction of the graph begins here")
		return
	}
	f.target(l)
	f.site(l, b)
	end := l.Addr + isa.Addr(l.Len)
	switch last := f.g.End(b); {
	case end == last:
		f.r.Seen[b] = true
		f.end(l, b)
	case end > last:
		f.bad(l, "runs over the end of its block")
	case l.bad() && f.g.Marks(b)&cfg.Unknown != 0:
		f.r.Listed["unknown to both"]++
	case l.Flow != isa.FlowNone && f.sites[l.Addr] != "warning":
		f.bad(l, "%v, inside a block", l.Flow)
	}
	f.remember(l, f.g.Kind(b))
}

// remember keeps what reading a jump table takes.
func (f *flow) remember(l *Listed, kind cfg.Kind) {
	if l.Addr < f.home.Addr || l.Addr >= f.home.End() {
		f.home, _ = f.t.Locate(l.Addr)
	}
	name := family(f.home.Name)
	m := f.made[name]
	if m == nil {
		m = newMade()
		f.made[name] = m
	}
	switch l.Flow {
	case isa.FlowIndirectJump:
		f.r.Jumps = append(f.r.Jumps, IndirectJump{l.Addr, kind, append([]Listed(nil), f.before...), l.Operands, f.bounds, m})
	case isa.FlowCond:
		if at, b, ok := compared(f.before, l, m); ok {
			f.bounds[at] = b
		}
	}
	m.note(l)
	if len(f.before) == window {
		f.before = f.before[1:]
	}
	f.before = append(f.before, *l)
}

// target: where a direct branch leads, a block begins.
func (f *flow) target(l *Listed) {
	if l.Target == 0 {
		return
	}
	to, ok := f.g.Begins(l.Target)
	switch _, in := f.g.Pos(l.Target); {
	case !in:
		f.r.Listed["branch to code that is gone"]++
	case !ok:
		f.bad(l, "no block begins at its target")
	case f.g.Kind(to) == cfg.KindPad:
		f.bad(l, "leads to padding")
	default:
		f.r.Targets++
	}
}

// site: what the kernel's tables say of an instruction, b knows.
func (f *flow) site(l *Listed, b cfg.Block) {
	kind := f.g.Kind(b)
	if key, ok := f.keys[l.Addr]; ok && (kind != cfg.KindCond || f.g.Start(f.g.Target(b)) != key) {
		f.bad(l, "the graph has %v at a static key that leads to %v", kind, key)
	}
	if f.sites[l.Addr] == "warning" && kind == cfg.KindTrap && l.Addr+isa.Addr(l.Len) == f.g.End(b) {
		f.bad(l, "a warning ends the path")
	}
}

// end: the last instruction of b.
func (f *flow) end(l *Listed, b cfg.Block) {
	kind := f.g.Kind(b)
	t := isa.Addr(0)
	if f.g.Target(b) != cfg.NoBlock {
		t = f.g.Start(f.g.Target(b))
	}
	if why, ok := f.reason(l, b, kind, t); ok {
		if f.r.Listed[why]++; strings.HasPrefix(why, "far ") {
			f.r.Targets++
		}
		return
	}
	want, ok := agrees[l.Flow]
	if !ok || want>>kind&1 == 0 || l.Target != t {
		f.bad(l, "the graph has %v to %v; objdump %v to %v", kind, t, l.Flow, l.Target)
		return
	}
	f.r.Ends[kind.String()]++
}

// agrees are the kinds of block that an instruction may end.
var agrees = map[isa.Flow]uint{
	isa.FlowNone:         1 << cfg.KindFall,
	isa.FlowJump:         1 << cfg.KindJump,
	isa.FlowCond:         1 << cfg.KindCond,
	isa.FlowCall:         1<<cfg.KindCall | 1<<cfg.KindCallNoReturn | 1<<cfg.KindCallLocal,
	isa.FlowReturn:       1 << cfg.KindReturn,
	isa.FlowIndirectJump: 1<<cfg.KindTable | 1<<cfg.KindIndirectJump,
	isa.FlowIndirectCall: 1 << cfg.KindIndirectCall,
	isa.FlowTrap:         1<<cfg.KindTrap | 1<<cfg.KindGate | 1<<cfg.KindExit,
}

// reason says why an end is right although its instruction alone does not say so.
func (f *flow) reason(l *Listed, b cfg.Block, kind cfg.Kind, t isa.Addr) (string, bool) {
	to := l.Target
	if l.Flow == isa.FlowIndirectCall || l.Flow == isa.FlowIndirectJump {
		to = l.Address
	}
	_, in := f.g.Pos(to)
	key, isKey := f.keys[l.Addr]
	switch {
	case f.g.Marks(b)&cfg.Pinned != 0:
		return "thunk by name", true
	case isKey && kind == cfg.KindCond && t == key:
		return "static key", true
	case f.sites[l.Addr] == "static call" && (kind == cfg.KindStaticCall || kind == cfg.KindTail):
		return "static call", true
	case to != 0 && !in && (kind == cfg.KindCall || kind == cfg.KindCond || kind == cfg.KindIndirectJump) && t == 0:
		return "end at code that is gone", true
	case f.sites[l.Addr] == "warning" && kind == cfg.KindFall:
		return "warning", true
	case l.Flow == isa.FlowIndirectCall && agrees[isa.FlowCall]>>kind&1 != 0 && to != 0 && to == t,
		l.Flow == isa.FlowIndirectJump && kind == cfg.KindJump && to != 0 && to == t:
		return "far " + kind.String(), true
	}
	return "", false
}

// Unseen lists the blocks of the kernel whose ends objdump did not print: none, if
// the pieces are the whole kernel. Data that dead code runs into is not code.
func (r *FlowReport) Unseen(g *cfg.Graph, t *ktext.Text) (out []string) {
	lo, hi := t.Bounds()
	for b := range cfg.Block(g.Blocks()) {
		a := g.Start(b)
		if g.Kind(b) == cfg.KindPad || r.Seen[b] || g.Marks(b)&cfg.Data != 0 || a < lo || a >= hi {
			continue
		}
		if x, ok := t.Locate(a); ok && misleading[x.Name] != "" {
			continue
		}
		out = append(out, fmt.Sprintf("%v (%v)", a, g.Kind(b)))
	}
	return out
}
