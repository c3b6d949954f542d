package snippet

import (
	"fmt"
	"strconv"
	"strings"
)

// The textual form has one line for each cell, then one for each instruction,
// with a line "N:" before what others go on at:
//
//	c0 sum
//	c1 min s64
//	c2 ring 64 2
//	c3 faults
//	c4 stacks 32 8
//	c5 map 64 1
//	c6 array 65
//	c7 clocks 32768
//	v0 u64 = arg 0
//	if v0 ne 3 goto 4
//	count c0 1
//	append c2 v0 7
//	v1 s64 = load 4 v0 -16 c3
//	stack c4
//	v2 u64 = task 4 2464
//	v3 u64 = slot c5 v2
//	tally c5 v3 0 1
//	v4 u64 = bits v2
//	v5 u64 = index c6 0 0 64 v4
//	v6 u64 = const &jiffies
//	v7 u64 = clock c7 2464
//	switch c7 v2 2464
//	4:
//
// Constants are decimal or 0x; negative ones stand for their 64 bits.

func (o Operand) String() string {
	if !o.IsConst {
		return fmt.Sprintf("v%d", o.Value)
	}
	if o.Imm>>12 == 0 {
		return strconv.FormatUint(o.Imm, 10)
	}
	return fmt.Sprintf("%#x", o.Imm)
}

func (c Cell) String() string {
	switch c.Kind {
	case Min, Max:
		return fmt.Sprintf("%v %v", c.Kind, c.Type)
	case Array, Clocks:
		return fmt.Sprintf("%v %d", c.Kind, c.Records)
	case InRing, Stacks, Map:
		return fmt.Sprintf("%v %d %d", c.Kind, c.Records, c.Fields)
	}
	return c.Kind.String()
}

// String is the instruction's line.
func (i Insn) String() string {
	var words []string
	if i.Op.Sets() {
		words = append(words, fmt.Sprintf("v%d", i.Dst), i.Type.String(), "=")
	}
	words = append(words, i.Op.String())
	switch i.Op {
	case Arg:
		words = append(words, strconv.Itoa(i.N))
	case Reg:
		words = append(words, i.Name)
	case Const:
		if i.Name != "" {
			words = append(words, "&"+i.Name)
		} else {
			words = append(words, i.A.String())
		}
	case Load:
		words = append(words, strconv.Itoa(i.N), i.A.String(), strconv.Itoa(int(i.Off)), fmt.Sprintf("c%d", i.Cell))
	case Extend:
		words = append(words, strconv.Itoa(i.N), i.A.String())
	case Task:
		words = append(words, strconv.Itoa(i.N), strconv.Itoa(int(i.Off)))
	case Index:
		words = append(words, fmt.Sprintf("c%d", i.Cell), i.B.String(), strconv.Itoa(int(i.Off)), strconv.Itoa(i.N), i.A.String())
	case Tally, Top:
		words = append(words, fmt.Sprintf("c%d", i.Cell), i.B.String(), strconv.Itoa(int(i.Off)), i.A.String())
	case Clock:
		words = append(words, fmt.Sprintf("c%d", i.Cell), strconv.Itoa(int(i.Off)))
	case Switch:
		words = append(words, fmt.Sprintf("c%d", i.Cell), i.A.String(), strconv.Itoa(int(i.Off)))
	case If:
		words = append(words, i.A.String(), i.Cond.String(), i.B.String(), "goto", strconv.Itoa(i.To))
	case Goto:
		words = append(words, strconv.Itoa(i.To))
	case Count, Lower, Raise, Append, Stack, Slot:
		words = append(words, fmt.Sprintf("c%d", i.Cell))
		fallthrough
	default:
		for _, o := range i.uses() {
			words = append(words, o.String())
		}
	}
	return strings.Join(words, " ")
}

// String is the textual form, which Parse reads.
func (s Snippet) String() string {
	var b strings.Builder
	for k, c := range s.Cells {
		fmt.Fprintf(&b, "c%d %v\n", k, c)
	}
	targets := map[int]bool{}
	for _, i := range s.Code {
		if i.Op == If || i.Op == Goto {
			targets[i.To] = true
		}
	}
	for k := 0; k <= len(s.Code); k++ {
		if targets[k] {
			fmt.Fprintf(&b, "%d:\n", k)
		}
		if k < len(s.Code) {
			fmt.Fprintln(&b, s.Code[k])
		}
	}
	return b.String()
}

// MarshalText is String.
func (s Snippet) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is Parse.
func (s *Snippet) UnmarshalText(b []byte) (err error) {
	*s, err = Parse(string(b))
	return err
}

// Parse reads the textual form and checks what it says.
func Parse(text string) (Snippet, error) {
	p := parser{labels: map[string]int{}}
	for n, line := range strings.Split(text, "\n") {
		if p.words = strings.Fields(line); len(p.words) == 0 {
			continue
		}
		if p.line(); p.err != nil || len(p.words) > 0 {
			if p.err == nil {
				p.err = fmt.Errorf("%q is too much", strings.Join(p.words, " "))
			}
			return Snippet{}, fmt.Errorf("snippet: line %d, %q: %w", n+1, line, p.err)
		}
	}
	for _, j := range p.jumps {
		to, ok := p.labels[j.label]
		if !ok {
			return Snippet{}, fmt.Errorf("snippet: instruction %d: there is no line %s:", j.at, j.label)
		}
		p.s.Code[j.at].To = to
	}
	return p.s, p.s.Check()
}

type jump struct {
	at    int
	label string
}

// parser takes words off the front of a line; the first error stays.
type parser struct {
	s      Snippet
	words  []string
	labels map[string]int
	jumps  []jump
	err    error
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

func (p *parser) next() string {
	if len(p.words) == 0 {
		p.fail("more was expected")
		return ""
	}
	w := p.words[0]
	p.words = p.words[1:]
	return w
}

// numbered reads a letter and a number.
func (p *parser) numbered(letter string) int {
	w := p.next()
	n, err := strconv.ParseUint(strings.TrimPrefix(w, letter), 10, 16)
	if err != nil || !strings.HasPrefix(w, letter) {
		p.fail("%q is not %s and a number", w, letter)
	}
	return int(n)
}

func (p *parser) number() int {
	w := p.next()
	n, err := strconv.ParseInt(w, 0, 32)
	if err != nil {
		p.fail("%q is not a number", w)
	}
	return int(n)
}

func (p *parser) choice(names []string) int {
	w := p.next()
	for k, n := range names {
		if k > 0 && n == w {
			return k
		}
	}
	p.fail("%q is not one of %s", w, strings.Join(names[1:], ", "))
	return 0
}

func (p *parser) operand() Operand {
	if len(p.words) > 0 && strings.HasPrefix(p.words[0], "v") {
		return V(p.numbered("v"))
	}
	w := p.next()
	if n, err := strconv.ParseUint(w, 0, 64); err == nil {
		return C(n)
	}
	n, err := strconv.ParseInt(w, 0, 64)
	if err != nil {
		p.fail("%q is neither a value nor a constant", w)
	}
	return C(uint64(n))
}

func (p *parser) line() {
	first := p.words[0]
	_, cell := numberOf(first, "c")
	switch {
	case strings.HasSuffix(first, ":") && len(p.words) == 1:
		p.labels[strings.TrimSuffix(p.next(), ":")] = len(p.s.Code)
	case cell && len(p.words) > 1:
		p.cell()
	default:
		p.insn()
	}
}

func numberOf(w, letter string) (int, bool) {
	n, err := strconv.Atoi(strings.TrimPrefix(w, letter))
	return n, err == nil && strings.HasPrefix(w, letter)
}

func (p *parser) cell() {
	if n := p.numbered("c"); n != len(p.s.Cells) {
		p.fail("c%d was expected", len(p.s.Cells))
	}
	c := Cell{Kind: Kind(p.choice(kindNames[:]))}
	switch c.Kind {
	case Min, Max:
		c.Type = Type(p.choice(typeNames[:]))
	case Array, Clocks:
		c.Records = p.number()
	case InRing, Stacks, Map:
		c.Records, c.Fields = p.number(), p.number()
	}
	p.s.Cells = append(p.s.Cells, c)
}

func (p *parser) insn() {
	var i Insn
	_, sets := numberOf(p.words[0], "v")
	if sets {
		i.Dst, i.Type = p.numbered("v"), Type(p.choice(typeNames[:]))
		if w := p.next(); w != "=" {
			p.fail("%q is where = was expected", w)
		}
	}
	i.Op = Op(p.choice(opNames[:]))
	if sets != i.Op.Sets() && p.err == nil {
		p.fail("%v sets a value, or sets none", i.Op)
	}
	p.operands(&i)
	p.s.Code = append(p.s.Code, i)
}

func (p *parser) operands(i *Insn) {
	switch i.Op {
	case Arg:
		i.N = p.number()
	case Reg:
		i.Name = p.next()
	case Load:
		i.N, i.A, i.Off, i.Cell = p.number(), p.operand(), int32(p.number()), p.numbered("c")
	case Extend:
		i.N, i.A = p.number(), p.operand()
	case Task:
		i.N, i.Off = p.number(), int32(p.number())
	case Index:
		i.Cell, i.B, i.Off, i.N, i.A = p.numbered("c"), p.operand(), int32(p.number()), p.number(), p.operand()
	case Tally, Top:
		i.Cell, i.B, i.Off, i.A = p.numbered("c"), p.operand(), int32(p.number()), p.operand()
	case Clock:
		i.Cell, i.Off = p.numbered("c"), int32(p.number())
	case Switch:
		i.Cell, i.A, i.Off = p.numbered("c"), p.operand(), int32(p.number())
	case Const:
		if len(p.words) > 0 && len(p.words[0]) > 1 && p.words[0][0] == '&' {
			i.Name, i.A = p.next()[1:], C(0)
			return
		}
		i.A = p.operand()
	case Bits:
		i.A = p.operand()
	case If:
		i.A, i.Cond, i.B = p.operand(), Cond(p.choice(condNames[:])), p.operand()
		if w := p.next(); w != "goto" {
			p.fail("%q is where goto was expected", w)
		}
		fallthrough
	case Goto:
		p.jumps = append(p.jumps, jump{len(p.s.Code), p.next()})
	case Count, Lower, Raise:
		i.Cell, i.A = p.numbered("c"), p.operand()
	case Stack:
		i.Cell = p.numbered("c")
	case Append, Slot:
		i.Cell = p.numbered("c")
		for len(p.words) > 0 && p.err == nil {
			i.Fields = append(i.Fields, p.operand())
		}
	case Add, Sub, And, Or, Xor, Shl, Shr, Div:
		i.A, i.B = p.operand(), p.operand()
	}
}

// Resolve puts the addresses of the symbols that are named into a snippet.
func (s Snippet) Resolve(address func(name string) (uint64, error)) error {
	for k := range s.Code {
		i := &s.Code[k]
		if i.Op != Const || i.Name == "" {
			continue
		}
		a, err := address(i.Name)
		if err != nil {
			return err
		}
		i.A, i.Name = C(a), ""
	}
	return nil
}
