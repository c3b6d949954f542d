package sweep

import (
	"fmt"
	"strings"

	"kerninst/agent/isa"
)

// A book says what the mnemonics of one ISA do, by the manuals, in objdump's
// spelling. It knows no encodings: that is what makes it a second opinion.
type book struct {
	// regs are the names of registers in operands; those without a number (the
	// zero registers) are missing.
	regs map[string]isa.Reg
	// effect says what an instruction does. It is false for mnemonics that it
	// does not know.
	effect func(b *book, l *Line) (effect, bool)
}

// effect is what objdump's text says an instruction does.
type effect struct {
	flow                    isa.Flow
	target                  isa.Addr
	reads, writes, clobbers isa.RegSet
	// loads and stores; unknown: the text does not tell.
	mem        isa.Traits
	memUnknown bool
}

// finding is one thing on which the two disagree.
type finding struct{ what, ours string }

// judge compares the decoder's word with objdump's.
func (b *book) judge(arch *isa.Arch, l *Line, i isa.Insn) []finding {
	if l.bad() || i.Flow == isa.FlowUnknown {
		return []finding{{"known to one alone", i.Flow.String()}}
	}
	if i.Len != l.Len {
		return []finding{{"length", fmt.Sprint(i.Len)}}
	}
	e, ok := b.effect(b, l)
	if !ok {
		return []finding{{"mnemonic not in the book", i.Flow.String()}}
	}
	var out []finding
	if e.flow != i.Flow {
		out = append(out, finding{"flow", fmt.Sprintf("%v, not %v", i.Flow, e.flow)})
	}
	if e.target != i.Target {
		out = append(out, finding{"target", fmt.Sprintf("%v, not %v", i.Target, e.target)})
	}
	for _, s := range []struct {
		what       string
		ours, want isa.RegSet
	}{{"reads", i.Reads, e.reads}, {"writes", i.Writes, e.writes}, {"clobbers", i.Clobbers &^ i.Writes, e.clobbers &^ e.writes}} {
		if s.ours != s.want {
			out = append(out, finding{s.what, fmt.Sprintf("%q, not %q", arch.Names(s.ours), arch.Names(s.want))})
		}
	}
	if ours := i.Traits & isa.Mem; !e.memUnknown && ours != e.mem {
		out = append(out, finding{"memory", fmt.Sprintf("%q, not %q", ours, e.mem)})
	}
	return out
}

// named is the set of registers that a text names.
func (b *book) named(text string) (set isa.RegSet) {
	for _, w := range strings.FieldsFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' || r == '.')
	}) {
		if n, ok := b.regs[w]; ok {
			set |= 1 << n
		}
	}
	return set
}

// operands divides a list at its commas, not at those in brackets.
func operands(text string) (out []string) {
	depth, from := 0, 0
	for k, c := range text {
		switch c {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		case ',':
			if depth == 0 {
				out = append(out, strings.TrimSpace(text[from:k]))
				from = k + 1
			}
		}
	}
	if rest := strings.TrimSpace(text[from:]); rest != "" {
		out = append(out, rest)
	}
	return out
}

// address reads a branch target, the last operand.
func address(ops []string) isa.Addr {
	if len(ops) == 0 {
		return 0
	}
	v, _ := hex([]byte(strings.TrimPrefix(ops[len(ops)-1], "0x")))
	return isa.Addr(v)
}

var books = map[string]*book{"amd64": bookOfX86, "arm64": bookOfArm, "riscv64": bookOfRiscv}
