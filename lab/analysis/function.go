package analysis

import (
	"fmt"
	"io"
	"strings"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
)

// Function finds a function by its name, or as MODULE:NAME; one of several that share a name as
// ktext.Text.Function does, of which NAME#N is the same one in every boot.
func (k *Kernel) Function(name string) (ktext.Func, error) {
	module, short, ok := strings.Cut(name, ":")
	if !ok {
		module, short = "", name
	}
	f, err := k.Text.Function(module, short)
	if err != nil {
		return f, err
	}
	if _, ok := k.Graph.AtAddr(f.Addr); !ok {
		return f, fmt.Errorf("%v at %v is not in the text that was analysed: it is gone after boot, or its module is not loaded", f, f.Addr)
	}
	return f, nil
}

// blocks of a function, in order: those that begin inside it, and what is no code,
// to its end. A symbol may begin in padding, as amd64's __pfx_ ones do.
func (k *Kernel) blocks(f ktext.Func, visit func(cfg.Block)) {
	b, _ := k.Graph.AtAddr(f.Addr)
	for ; int(b) < k.Graph.Blocks() && k.Graph.Start(b) < f.Addr+isa.Addr(f.Size); b++ {
		if k.Graph.Start(b) >= f.Addr || !k.isCode(b) {
			visit(b)
		}
	}
}

// isCode tells instructions from padding, and from data that code seems to run into.
func (k *Kernel) isCode(b cfg.Block) bool {
	return k.Graph.Kind(b) != cfg.KindPad && k.Graph.Marks(b)&cfg.Data == 0
}

// place names an address as symbol+offset.
func (k *Kernel) place(a isa.Addr) string {
	f, ok := k.Text.Locate(a)
	if !ok {
		return a.String()
	}
	if a == f.Addr {
		return f.String()
	}
	return fmt.Sprintf("%v+%#x", f, uint64(a-f.Addr))
}

// Listing prints a function: blocks, where they lead, and for each instruction
// what is live before it, what a snippet may overwrite there, and why it must
// not be replaced, if so.
func (k *Kernel) Listing(w io.Writer, f ktext.Func) error {
	p, _ := k.Graph.Pos(f.Addr)
	reads, overwrites := k.Live.Callee(k.Graph.At(p))
	a := k.Graph.Arch
	_, err := fmt.Fprintf(w, "%v at %v, %d bytes\n", f, f.Addr, f.Size)
	if b, ok := k.Graph.Begins(f.Addr); err == nil && ok && k.isCode(b) {
		_, err = fmt.Fprintf(w, "  a call may read       %s\n  always overwrites     %s\n", a.Names(reads), a.Names(overwrites))
	}
	k.blocks(f, func(b cfg.Block) {
		if err != nil {
			return
		}
		if k.isCode(b) {
			err = k.listBlock(w, f, b)
		} else {
			err = k.listRest(w, f, b)
		}
	})
	return err
}

// listRest says which bytes of f are in no block of code, so that none are hidden.
func (k *Kernel) listRest(w io.Writer, f ktext.Func, b cfg.Block) error {
	lo, hi := k.Graph.Bounds(b)
	start := k.Graph.Start(b)
	end := min(start+isa.Addr(hi-lo), f.Addr+isa.Addr(f.Size))
	start = max(start, f.Addr)
	what := "padding, nothing is seen to lead here"
	if k.Graph.Marks(b)&cfg.Data != 0 {
		what = "data"
	}
	_, err := fmt.Fprintf(w, "\n+%#x to +%#x: %s\n", uint64(start-f.Addr), uint64(end-f.Addr), what)
	return err
}

func (k *Kernel) listBlock(w io.Writer, f ktext.Func, b cfg.Block) error {
	g := k.Graph
	if _, err := fmt.Fprintf(w, "\nblock +%#x%s → %s\n", uint64(g.Start(b)-f.Addr), k.marks(b), k.leads(b)); err != nil {
		return err
	}
	var lines []string
	var failed error
	k.Live.Each(b, func(i isa.Insn, before, _ isa.RegSet) {
		p, _ := g.Pos(i.Addr)
		free := g.Arch.All &^ before &^ g.Arch.NeverUse
		line := fmt.Sprintf("  +%#-6x %-44s live %s | free %s", uint64(i.Addr-f.Addr), g.Arch.Text(g.Code(p), i.Addr),
			g.Arch.Names(before), orNone(g.Arch.Names(free)))
		if r, ok, err := k.Text.Reserved(f, i.Addr, i.End()); err != nil {
			failed = err
		} else if ok {
			line += fmt.Sprintf(" | %v: %s", r.Class, r.Why)
		}
		lines = append(lines, line)
	})
	for n := len(lines) - 1; n >= 0 && failed == nil; n-- {
		_, failed = fmt.Fprintln(w, lines[n])
	}
	return failed
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

var markNames = []struct {
	mark cfg.Mark
	name string
}{
	{cfg.Entry, "entry"}, {cfg.Taken, "address taken"}, {cfg.Orphan, "nothing is seen to lead here"},
	{cfg.Unknown, "holds what did not decode"}, {cfg.FaultSite, "may fault"}, {cfg.Pinned, "known by its name"},
}

func (k *Kernel) marks(b cfg.Block) string {
	var out []string
	for _, m := range markNames {
		if k.Graph.Marks(b)&m.mark != 0 {
			out = append(out, m.name)
		}
	}
	if len(out) == 0 {
		return ""
	}
	return " (" + strings.Join(out, ", ") + ")"
}

// leads says in words where control goes behind b.
func (k *Kernel) leads(b cfg.Block) string {
	g := k.Graph
	out := []string{g.Kind(b).String()}
	if t := g.Target(b); t != cfg.NoBlock {
		out = append(out, k.place(g.Start(t)))
	}
	if g.Kind(b).Falls() && int(b)+1 < g.Blocks() {
		out = append(out, "next "+k.place(g.Start(b+1)))
	}
	for _, e := range g.Extra(b) {
		what := ""
		if e.Fault {
			what = "fixup "
		}
		out = append(out, what+k.place(g.Start(e.To)))
	}
	return strings.Join(out, ", ")
}

// Dot prints a function's graph for graphviz.
func (k *Kernel) Dot(w io.Writer, f ktext.Func) error {
	g := k.Graph
	var s strings.Builder
	fmt.Fprintf(&s, "digraph %q {\n\tnode [shape=box, fontname=monospace];\n", f.String())
	node := func(b cfg.Block) string { return k.place(g.Start(b)) }
	k.blocks(f, func(b cfg.Block) {
		if !k.isCode(b) {
			return
		}
		var text strings.Builder
		g.Insns(b, func(i isa.Insn) {
			p, _ := g.Pos(i.Addr)
			fmt.Fprintf(&text, "+%#x %s\\l", uint64(i.Addr-f.Addr), strings.ReplaceAll(g.Arch.Text(g.Code(p), i.Addr), `"`, `'`))
		})
		fmt.Fprintf(&s, "\t%q [label=\"%s\"];\n", node(b), text.String())
		for _, t := range g.Succ(b, nil) {
			style := ""
			for _, e := range g.Extra(b) {
				if e.To == t && e.Fault {
					style = " [style=dotted, label=fault]"
				}
			}
			fmt.Fprintf(&s, "\t%q -> %q%s;\n", node(b), node(t), style)
		}
		if t := g.Target(b); t != cfg.NoBlock && (g.Kind(b) == cfg.KindCall || g.Kind(b) == cfg.KindCallNoReturn) {
			fmt.Fprintf(&s, "\t%q -> %q [style=dashed, label=call];\n", node(b), node(t))
		}
	})
	s.WriteString("}\n")
	_, err := io.WriteString(w, s.String())
	return err
}
