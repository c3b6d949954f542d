package plugins

import (
	"fmt"
	"strings"

	"kerninst/agent/clone/plugin"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/plan"
	"kerninst/agent/wire"
)

// Describe says what is in clones. source, unless it is nil, tells lines of the source. Functions
// of modules, and those whose blocks are not known, are left out: they are run, and nothing can be inserted.
func Describe(text *ktext.Text, clones []*wire.Clone, source func(function string, offset uint64) string) (*plugin.Input, error) {
	d := describer{text: text, source: source, known: &plan.Functions{}}
	in := &plugin.Input{Arch: text.Arch.Name}
	for _, c := range clones {
		s := &plugin.Syscall{Name: c.Entry}
		for _, name := range c.Functions {
			routines, err := d.routines(name)
			if err != nil {
				return nil, err
			}
			s.Routines = append(s.Routines, routines...)
		}
		if len(s.Routines) == 0 {
			return nil, fmt.Errorf("nothing is known of %s here", c.Entry)
		}
		in.Syscalls = append(in.Syscalls, s)
	}
	return in, nil
}

type describer struct {
	text   *ktext.Text
	source func(function string, offset uint64) string
	known  *plan.Functions
}

// routines are a function, and the part of it that the compiler has put elsewhere.
func (d *describer) routines(name string) (out []*plugin.Routine, err error) {
	if strings.Contains(name, ":") {
		return nil, nil
	}
	whole, err := d.text.Function("", name)
	if err != nil {
		return nil, err
	}
	for _, half := range plan.HalvesOf(d.text, whole, d.known) {
		f, err := d.text.Function("", half)
		if err != nil {
			return nil, err
		}
		r := &plugin.Routine{Name: half, Part: half != name, Source: d.line(half, 0)}
		if r.Blocks, err = d.blocks(f, half); err != nil {
			return nil, err
		}
		if len(r.Blocks) > 0 {
			out = append(out, r)
		}
	}
	return out, nil
}

func (d *describer) blocks(f ktext.Func, name string) (out []*plugin.Block, err error) {
	offsets, r := plan.OffsetsAt(d.text, f, plan.Request{Known: d.known}, plan.EachBlock)
	if r != nil {
		return nil, nil
	}
	code, err := d.text.Code(f)
	if err != nil {
		return nil, err
	}
	for k, off := range offsets {
		end := isa.Off(len(code))
		if k+1 < len(offsets) {
			end = offsets[k+1]
		}
		b := &plugin.Block{}
		for at := off; at < end; {
			i := d.text.Arch.Decode(code[at:], f.Addr+isa.Addr(at))
			if at+isa.Off(i.Len) > end || len(b.Insns) > 0 && ends(b.Insns[len(b.Insns)-1]) {
				break
			}
			b.Insns = append(b.Insns, d.insn(f, name, i, code[at:]))
			at += isa.Off(i.Len)
		}
		if len(b.Insns) > 0 {
			out = append(out, b)
		}
	}
	return out, nil
}

// ends reports whether control does not go on behind an instruction in its block.
func ends(i *plugin.Insn) bool {
	switch i.Kind {
	case plugin.Plain, plugin.Call, plugin.IndirectCall:
		return false
	}
	return true
}

func (d *describer) insn(f ktext.Func, name string, i isa.Insn, code []byte) *plugin.Insn {
	off := uint64(i.Addr - f.Addr)
	out := &plugin.Insn{Offset: off, Text: d.text.Arch.Text(code, i.Addr), Kind: plugin.Kind(i.Flow.String()), Source: d.line(name, off)}
	out.Locked = d.locked(out.Text, i, code)
	if i.Flow != isa.FlowJump && i.Flow != isa.FlowCond && i.Flow != isa.FlowCall {
		return out
	}
	if i.Target >= f.Addr && i.Target < f.End() {
		out.Target, out.Inside = uint64(i.Target-f.Addr), true
		return out
	}
	if to, ok := d.text.Locate(i.Target); ok {
		out.To = d.text.Known(to).Known()
		if i.Target != to.Addr {
			out.To = fmt.Sprintf("%s+%#x", out.To, uint64(i.Target-to.Addr))
		}
	}
	return out
}

// onOneCPU is what lock prefixes are on a kernel that runs on one CPU (arch/x86/kernel/alternative.c,
// alternatives_smp_unlock).
const onOneCPU = 0x3e

// locked reports whether an instruction is one access, or is where there are several CPUs.
func (d *describer) locked(text string, i isa.Insn, code []byte) bool {
	if d.text.Arch.Name != "amd64" {
		return i.Traits&isa.Exclusive != 0 || i.Traits&isa.Mem == isa.Mem
	}
	return strings.HasPrefix(text, "lock ") || i.Traits&isa.Mem == isa.Mem && code[0] == onOneCPU || strings.HasPrefix(text, "xchg ") && i.Traits&isa.Store != 0
}

// line is of the innermost place alone.
func (d *describer) line(function string, off uint64) string {
	if d.source == nil {
		return ""
	}
	at, _, _ := strings.Cut(d.source(function, off), " ")
	return at
}
