package probe

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"kerninst/agent/ktypes"
	"kerninst/agent/near"
	"kerninst/agent/snippet"
)

// label is a place in the code that is not known yet: the branches that go there.
type label []int

func (c *compiler) here(l *label) {
	for _, k := range *l {
		c.s.Code[k].To = len(c.s.Code)
	}
}

// number is what an expression computes; a constant has no type yet.
type number struct {
	snippet.Operand
	t     snippet.Type
	is    ktypes.Type // what the kernel's types say of it, if they were asked
	minus bool        // it is a constant below 0
	bits  int         // it has so many, and the sign is one of them; 0: 64
	param int         // from 1: the argument that it is
	ret   bool        // it is what the function returns
}

func (c *compiler) emit(i snippet.Insn) { c.s.Code = append(c.s.Code, i) }

// set emits an instruction that sets a value of a type.
func (c *compiler) set(i snippet.Insn, t snippet.Type) number {
	i.Dst, i.Type = c.n, t
	c.n++
	c.emit(i)
	return number{Operand: snippet.V(i.Dst), t: t}
}

// of is a number of so many bits.
func (n number) of(bits int) number {
	if n.bits = bits; bits == 64 {
		n.bits = 0
	}
	return n
}

var comparisons = map[token.Token]snippet.Cond{
	token.EQL: snippet.EQ, token.NEQ: snippet.NE, token.LSS: snippet.LT,
	token.LEQ: snippet.LE, token.GTR: snippet.GT, token.GEQ: snippet.GE,
}

// mirrored is the comparison with its sides exchanged.
var mirrored = map[snippet.Cond]snippet.Cond{
	snippet.EQ: snippet.EQ, snippet.NE: snippet.NE, snippet.LT: snippet.GT,
	snippet.GT: snippet.LT, snippet.LE: snippet.GE, snippet.GE: snippet.LE,
}

// jump emits code that goes to a label when an expression is as wanted, and on
// behind itself otherwise.
func (c *compiler) jump(e ast.Expr, when bool, to *label) error {
	switch x := e.(type) {
	case *ast.ParenExpr:
		return c.jump(x.X, when, to)
	case *ast.UnaryExpr:
		if x.Op == token.NOT {
			return c.jump(x.X, !when, to)
		}
	case *ast.BinaryExpr:
		if x.Op == token.LAND || x.Op == token.LOR {
			return c.both(x, when, to)
		}
		if cond, ok := comparisons[x.Op]; ok {
			return c.compare(x, cond, when, to)
		}
	}
	return at(e, "%s is no condition: compare it with something, as in arg0 == 3", show(e))
}

// both is && and ||: the first half decides if it is false or true.
func (c *compiler) both(x *ast.BinaryExpr, when bool, to *label) error {
	decides := x.Op == token.LOR
	var past label
	first := &past
	if when == decides {
		first = to
	}
	if err := c.jump(x.X, decides, first); err != nil {
		return err
	}
	if err := c.jump(x.Y, when, to); err != nil {
		return err
	}
	c.here(&past)
	return nil
}

func (c *compiler) compare(x *ast.BinaryExpr, cond snippet.Cond, when bool, to *label) error {
	if isComm(x.X) || isComm(x.Y) {
		return c.compareComm(x, cond, when, to)
	}
	a, b, _, err := c.pair(x)
	if err != nil {
		return err
	}
	if a.IsConst {
		a, b, cond = b, a, mirrored[cond]
	}
	if a.IsConst {
		return at(x, "%s compares two constants", show(x))
	}
	if always, decided := decided(a, cond, b); decided {
		why := "this number has no sign; say that it has one, as in int64(arg0) or int32(arg0)"
		if a.bits > 0 || a.t == snippet.S64 {
			least, most := a.bounds()
			why = fmt.Sprintf("of %s, this number is from %v to %v", inBits(cmp.Or(a.bits, 64)), least, most)
		}
		return at(x, "%s is %v whatever comes: %s", show(x), always, why)
	}
	if !when {
		cond = cond.Not()
	}
	c.branch(a.Operand, cond, b.Operand, to)
	return nil
}

func inBits(n int) string {
	if n == 1 {
		return "1 bit"
	}
	return fmt.Sprintf("%d bits", n)
}

// bounds are the least and the largest that a number can be.
func (n number) bounds() (least, most *big.Int) {
	bits, one := cmp.Or(n.bits, 64), big.NewInt(1)
	if n.t != snippet.S64 {
		most = new(big.Int).Lsh(one, uint(bits))
		return new(big.Int), most.Sub(most, one)
	}
	half := new(big.Int).Lsh(one, uint(bits-1))
	return new(big.Int).Neg(half), new(big.Int).Sub(half, one)
}

// constant is one as people mean it: below 0 only if they wrote it so.
func (n number) constant() *big.Int {
	if n.minus {
		return big.NewInt(int64(n.Imm))
	}
	return new(big.Int).SetUint64(n.Imm)
}

// decided reports what a comparison of a number with a constant comes to, if that is the same for
// all that the number can be: people mean another thing by it. All 64 bits may be meant as such,
// as in arg0 == -1.
func decided(a number, cond snippet.Cond, b number) (holds, decided bool) {
	whole := cmp.Or(a.bits, 64) == 64
	if !b.IsConst || whole && (cond == snippet.EQ || cond == snippet.NE) {
		return false, false
	}
	v := b.constant()
	least, most := a.bounds()
	below, notAbove := v.Cmp(least) < 0, v.Cmp(least) <= 0
	above, notBelow := v.Cmp(most) > 0, v.Cmp(most) >= 0
	switch cond {
	case snippet.LT:
		return above, above || notAbove
	case snippet.GE:
		return notAbove, above || notAbove
	case snippet.LE:
		return notBelow, below || notBelow
	case snippet.GT:
		return below, below || notBelow
	}
	return cond == snippet.NE, below || above
}

// branch goes to a label if a comparison holds.
func (c *compiler) branch(a snippet.Operand, cond snippet.Cond, b snippet.Operand, to *label) {
	*to = append(*to, len(c.s.Code))
	c.emit(snippet.Insn{Op: snippet.If, A: a, B: b, Cond: cond, To: len(c.s.Code) + 1})
}

// leave goes to a label.
func (c *compiler) leave(to *label) {
	*to = append(*to, len(c.s.Code))
	c.emit(snippet.Insn{Op: snippet.Goto, To: len(c.s.Code) + 1})
}

// pair is both sides of an operation, and their type.
func (c *compiler) pair(x *ast.BinaryExpr) (a, b number, t snippet.Type, err error) {
	if a, err = c.number(x.X); err != nil {
		return
	}
	if b, err = c.number(x.Y); err != nil {
		return
	}
	t = max(a.t, b.t, snippet.U64)
	if a.t != snippet.NoType && b.t != snippet.NoType && a.t != b.t {
		err = at(x, "%s: one side has a sign and the other has none: convert one, as in int64(arg0)", show(x))
	}
	return
}

// number emits what computes an expression.
func (c *compiler) number(e ast.Expr) (number, error) {
	switch x := e.(type) {
	case *ast.ParenExpr:
		return c.number(x.X)
	case *ast.BasicLit:
		return literal(x, false)
	case *ast.UnaryExpr:
		return c.unary(x)
	case *ast.Ident:
		return c.named(x)
	case *ast.CallExpr:
		return c.call(x)
	case *ast.SelectorExpr, *ast.IndexExpr:
		p, err := c.place(e)
		if err != nil {
			return number{}, err
		}
		return c.read(e, p)
	case *ast.StarExpr:
		return number{}, at(e, "%s does not say how much: there are %s, as in load64(arg0 + 16)", show(e), loadNames)
	case *ast.BinaryExpr:
		if operations[x.Op] == nil {
			return number{}, at(e, "%s is no number: between two may stand %s", show(e), operators)
		}
		return c.operation(x)
	}
	return number{}, at(e, "%s is no number that can be had here", show(e))
}

func literal(x *ast.BasicLit, negative bool) (number, error) {
	text := x.Value
	if x.Kind != token.INT && x.Kind != token.CHAR {
		return number{}, at(x, "%s is not a whole number", text)
	}
	if x.Kind == token.CHAR {
		r, _, _, err := strconv.UnquoteChar(text[1:len(text)-1], '\'')
		return number{Operand: snippet.C(uint64(r))}, err
	}
	v, err := strconv.ParseUint(text, 0, 64)
	if err != nil || negative && v > 1<<63 {
		return number{}, at(x, "%s is not a number of 64 bits", text)
	}
	if negative {
		return number{Operand: snippet.C(-v), minus: v > 0}, nil
	}
	return number{Operand: snippet.C(v)}, nil
}

func (c *compiler) named(x *ast.Ident) (number, error) {
	name := x.Name
	switch name {
	case "cycles":
		return c.set(snippet.Insn{Op: snippet.Cycles}, snippet.U64), nil
	case "ret":
		return c.returned(x)
	case "comm":
		return number{}, at(x, "comm is a text: it can be compared with one, as in comm == \"squid\", traced, and be a key")
	}
	if slices.Contains(hardware, name) {
		return number{}, at(x, "%s: hardware counters are not read: emulated machines have none, and of guests under KVM nobody has asked for any; cycles is the time", name)
	}
	if field, ok := taskWords[name]; ok {
		return c.taskWord(x, field)
	}
	if n, err := strconv.Atoi(strings.TrimPrefix(name, "arg")); err == nil && strings.HasPrefix(name, "arg") {
		return c.argument(x, n)
	}
	return number{}, at(x, "%s is not known: there are %s%s", name, words, near.Hint(name, strings.Fields(words)))
}

// argument is that of a number, from 0.
func (c *compiler) argument(x ast.Expr, n int) (number, error) {
	if n < 0 || n >= snippet.MaxArgs {
		return number{}, at(x, "%s: arguments are arg0 to arg%d", show(x), snippet.MaxArgs-1)
	}
	if err := c.takes(n); err != nil {
		return number{}, at(x, "%v", err)
	}
	v := c.set(snippet.Insn{Op: snippet.Arg, N: n}, snippet.U64)
	v.param = n + 1
	return v, nil
}

// argumentNamed is the one that the kernel's types have a name for. They say nothing of modules' functions.
func (c *compiler) argumentNamed(x *ast.CallExpr) (number, error) {
	lit, ok := x.Args[0].(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return number{}, at(x, "%s: the argument's name is quoted, as in arg(\"file\")", show(x))
	}
	name, err := strconv.Unquote(lit.Value)
	if err != nil {
		return number{}, at(x, "%s: %v", show(x), err)
	}
	switch {
	case c.at.Module != "":
		return number{}, at(x, "%s: of functions of modules nobody tells what their arguments are called: take arg0, arg1 and so on", show(x))
	case c.at.Function == "":
		return number{}, at(x, "%s is another in each function: name one", show(x))
	}
	t, err := c.types(x)
	if err != nil {
		return number{}, err
	}
	n, err := t.ParamNamed(c.at.Function, name)
	if err != nil {
		return number{}, at(x, "%v", err)
	}
	return c.argument(x, n)
}

// conversions to types of so many bytes.
var conversions = map[string]struct {
	t     snippet.Type
	bytes int
}{
	"uint8": {snippet.U64, 1}, "uint16": {snippet.U64, 2}, "uint32": {snippet.U64, 4}, "uint64": {snippet.U64, 8},
	"int8": {snippet.S64, 1}, "int16": {snippet.S64, 2}, "int32": {snippet.S64, 4}, "int64": {snippet.S64, 8},
}

// loaded is what loads so many bytes.
var loaded = map[string]int{"load8": 1, "load16": 2, "load32": 4, "load64": 8}

// hardware are counters that machines may have, by their usual names.
var hardware = []string{"instructions", "insns", "cache_misses", "cache_references", "branches", "branch_misses", "llc_misses", "tlb_misses"}

// words are what stands for a number by itself.
const words = "arg0 to arg5, arg(\"NAME\"), ret, reg(\"NAME\"), sym(\"NAME\"), pid, tid, cpu, task, comm and cycles"

const loadNames = "load8(X), load16(X), load32(X) and load64(X)"

func (c *compiler) call(x *ast.CallExpr) (number, error) {
	name := callee(x)
	if len(x.Args) != 1 {
		return number{}, at(x, "%s: %s takes one operand", show(x), name)
	}
	if name == codeKey {
		return number{}, at(x, "%s is a name, not a number: it can be a key, as in count by ksym(arg0); its operand may be compared and traced", show(x))
	}
	if name == "reg" {
		lit, ok := x.Args[0].(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return number{}, at(x, "%s: the register's name is quoted, as in reg(\"sp\")", show(x))
		}
		reg, err := strconv.Unquote(lit.Value)
		if known := c.at.Registers; err == nil && known != nil && !slices.Contains(known, reg) {
			return number{}, at(x, "%s: there is no register of that name%s", show(x), near.Hint(reg, known))
		}
		return c.set(snippet.Insn{Op: snippet.Reg, Name: reg}, snippet.U64), err
	}
	if name == "arg" {
		return c.argumentNamed(x)
	}
	if name == "sym" {
		lit, ok := x.Args[0].(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return number{}, at(x, "%s: the symbol's name is quoted, as in sym(\"jiffies\")", show(x))
		}
		symbol, err := strconv.Unquote(lit.Value)
		return c.set(snippet.Insn{Op: snippet.Const, Name: symbol, A: snippet.C(0)}, snippet.U64), err
	}
	to, converts := conversions[name]
	bytes, loads := loaded[name]
	if !converts && !loads && c.at.Types != nil {
		p, err := c.place(x)
		if err != nil {
			return number{}, err
		}
		return c.read(x, p)
	}
	if !converts && !loads {
		return number{}, at(x, "%s is not known: there are reg(\"NAME\"), sym(\"NAME\"), %s, and conversions, as int32(arg0)", name, loadNames)
	}
	a, err := c.number(x.Args[0])
	if err != nil {
		return number{}, err
	}
	if loads {
		return c.set(snippet.Insn{Op: snippet.Load, A: a.Operand, N: bytes}, snippet.U64).of(bytes * 8), nil
	}
	return c.set(snippet.Insn{Op: snippet.Extend, A: a.Operand, N: to.bytes}, to.t).of(to.bytes * 8), nil
}

func callee(x *ast.CallExpr) string {
	if id, ok := x.Fun.(*ast.Ident); ok {
		return id.Name
	}
	return show(x.Fun)
}

// at is what is wrong with an expression, and in which column that begins.
func at(e ast.Expr, format string, args ...any) error {
	return &misplaced{int(e.Pos()), fmt.Errorf(format, args...)} // of one line: from 1
}

// misplaced is what is wrong at a byte of a text, from 1.
type misplaced struct {
	byte int
	what error
}

func (m *misplaced) Error() string { return fmt.Sprintf("column %d: %v", m.byte, m.what) }
func (m *misplaced) Unwrap() error { return m.what }

// inColumns is the same error with the column that people see: they count letters, not bytes.
func inColumns(err error, text string) error {
	var m *misplaced
	if !errors.As(err, &m) || m.byte < 1 || m.byte-1 > len(text) {
		return err
	}
	return &misplaced{utf8.RuneCountInString(text[:m.byte-1]) + 1, m.what}
}

// show is an expression as somebody may have written it.
func show(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.BasicLit:
		return x.Value
	case *ast.ParenExpr:
		return "(" + show(x.X) + ")"
	case *ast.UnaryExpr:
		return x.Op.String() + show(x.X)
	case *ast.StarExpr:
		return "*" + show(x.X)
	case *ast.BinaryExpr:
		return show(x.X) + " " + x.Op.String() + " " + show(x.Y)
	case *ast.CallExpr:
		var all []string
		for _, a := range x.Args {
			all = append(all, show(a))
		}
		return show(x.Fun) + "(" + strings.Join(all, ", ") + ")"
	case *ast.SelectorExpr:
		return show(x.X) + "." + x.Sel.Name
	case *ast.IndexExpr:
		return show(x.X) + "[" + show(x.Index) + "]"
	}
	return "what is written there"
}
