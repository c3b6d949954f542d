package analysis

import (
	"fmt"
	"io"
	"strings"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
)

// Function finds a function by its name, or as MODULE:NAME.
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

// blocks of a function, padding left out.
func (k *Kernel) blocks(f ktext.Func, visit func(cfg.Block)) {
	p, _ := k.Graph.Pos(f.Addr)
	lo, hi := k.Graph.FuncBlocks(k.Graph.FuncAt(p))
	for b := lo; b < hi; b++ {
		if k.Graph.Kind(b) != cfg.KindPad {
			visit(b)
		}
	}
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
	_, err := fmt.Fprintf(w, "%v at %v, %d bytes\n  a call may read       %s\n  always overwrites     %s\n",
		f, f.Addr, f.Size, a.Names(reads), a.Names(overwrites))
	k.blocks(f, func(b cfg.Block) {
		if err == nil {
			err = k.listBlock(w, f, b)
		}
	})
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
