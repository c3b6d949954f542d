package probe

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"

	"kerninst/agent/snippet"
)

// Actions are the words that Compile knows, as people write them.
const Actions = "count, sum(X), min(X), max(X), trace(X, ...), stack(N)"

// traced is how many records a trace keeps: the first that come.
const traced = 128

// Compile makes the snippet that does an action where a predicate holds; the empty
// predicate always does. Both are Go expressions. Numbers are uint64 unless
// converted: arg0 to arg5 (the registers that arguments are passed in, whole, so an
// int is int32(arg0)), reg("rdi"), cycles, constants, + - & | ^ << >>, conversions,
// and load8(X) to load64(X), the so many bits of kernel memory at an address, 0 where
// none can be loaded; predicates compare them, and join that by && || !. What is
// wrong is named with its column, from 1.
//
// The cells of count and sum are one sum; of min and max what they say and, behind
// it, the sum of how many came; of trace a buffer; of stack(N) stacks of N addresses,
// the point's and those that its function and each other returns to, and of stack of as
// many as there may be. Behind them, if anything is loaded, is how many loads came to
// nothing.
func Compile(predicate, action string) (snippet.Snippet, error) {
	c := &compiler{}
	var end label
	if strings.TrimSpace(predicate) != "" {
		e, err := parser.ParseExpr(predicate)
		if err == nil {
			err = c.jump(e, false, &end)
		}
		if err != nil {
			return snippet.Snippet{}, fmt.Errorf("predicate %q: %w", predicate, err)
		}
	}
	e, err := parser.ParseExpr(action)
	if err == nil {
		err = c.action(e)
	}
	if err == nil {
		c.here(&end)
		c.faults()
		err = c.s.Check()
	}
	if err != nil {
		return snippet.Snippet{}, fmt.Errorf("action %q: %w", action, err)
	}
	return c.s, nil
}

// faults adds the cell of the loads. Those of the predicate were there before any cell.
func (c *compiler) faults() {
	if !c.s.Loads() {
		return
	}
	for k := range c.s.Code {
		if i := &c.s.Code[k]; i.Op == snippet.Load {
			i.Cell = len(c.s.Cells)
		}
	}
	c.s.Cells = append(c.s.Cells, snippet.Cell{Kind: snippet.Faults})
}

type compiler struct {
	s snippet.Snippet
	n int // values
}

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
	t snippet.Type
}

func (c *compiler) emit(i snippet.Insn) { c.s.Code = append(c.s.Code, i) }

// set emits an instruction that sets a value of a type.
func (c *compiler) set(i snippet.Insn, t snippet.Type) number {
	i.Dst, i.Type = c.n, t
	c.n++
	c.emit(i)
	return number{snippet.V(i.Dst), t}
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
	if !when {
		cond = cond.Not()
	}
	*to = append(*to, len(c.s.Code))
	c.emit(snippet.Insn{Op: snippet.If, A: a.Operand, B: b.Operand, Cond: cond, To: len(c.s.Code) + 1})
	return nil
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

var operations = map[token.Token]snippet.Op{
	token.ADD: snippet.Add, token.SUB: snippet.Sub, token.AND: snippet.And,
	token.OR: snippet.Or, token.XOR: snippet.Xor, token.SHL: snippet.Shl, token.SHR: snippet.Shr,
}

// number emits what computes an expression.
func (c *compiler) number(e ast.Expr) (number, error) {
	switch x := e.(type) {
	case *ast.ParenExpr:
		return c.number(x.X)
	case *ast.BasicLit:
		return literal(x, false)
	case *ast.UnaryExpr:
		if lit, ok := x.X.(*ast.BasicLit); ok && x.Op == token.SUB {
			return literal(lit, true)
		}
	case *ast.Ident:
		return c.named(x)
	case *ast.CallExpr:
		return c.call(x)
	case *ast.StarExpr:
		return number{}, at(e, "%s does not say how much: there are %s, as in load64(arg0 + 16)", show(e), loadNames)
	case *ast.BinaryExpr:
		if op, ok := operations[x.Op]; ok {
			return c.operation(x, op)
		}
	}
	return number{}, at(e, "%s is no number that can be had here", show(e))
}

func (c *compiler) operation(x *ast.BinaryExpr, op snippet.Op) (number, error) {
	a, b, t, err := c.pair(x)
	if err != nil {
		return number{}, err
	}
	if op == snippet.Shl || op == snippet.Shr {
		t = max(a.t, snippet.U64)
	}
	return c.set(snippet.Insn{Op: op, A: a.Operand, B: b.Operand}, t), nil
}

func literal(x *ast.BasicLit, negative bool) (number, error) {
	text := x.Value
	if x.Kind != token.INT && x.Kind != token.CHAR {
		return number{}, fmt.Errorf("%s is not a whole number", text)
	}
	if x.Kind == token.CHAR {
		r, _, _, err := strconv.UnquoteChar(strings.Trim(text, "'"), '\'')
		return number{Operand: snippet.C(uint64(r))}, err
	}
	v, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		return number{}, fmt.Errorf("%s is not a number of 64 bits", text)
	}
	if negative {
		v = -v
	}
	return number{Operand: snippet.C(v)}, nil
}

func (c *compiler) named(x *ast.Ident) (number, error) {
	name := x.Name
	if name == "cycles" {
		return c.set(snippet.Insn{Op: snippet.Cycles}, snippet.U64), nil
	}
	if n, err := strconv.Atoi(strings.TrimPrefix(name, "arg")); err == nil && strings.HasPrefix(name, "arg") {
		if n < 0 || n >= snippet.MaxArgs {
			return number{}, at(x, "%s: arguments are arg0 to arg%d", name, snippet.MaxArgs-1)
		}
		return c.set(snippet.Insn{Op: snippet.Arg, N: n}, snippet.U64), nil
	}
	return number{}, at(x, "%s is not known: there are arg0 to arg%d, reg(\"NAME\") and cycles", name, snippet.MaxArgs-1)
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

const loadNames = "load8(X), load16(X), load32(X) and load64(X)"

func (c *compiler) call(x *ast.CallExpr) (number, error) {
	name := callee(x)
	if len(x.Args) != 1 {
		return number{}, at(x, "%s: %s takes one operand", show(x), name)
	}
	if name == "reg" {
		lit, ok := x.Args[0].(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return number{}, at(x, "%s: the register's name is quoted, as in reg(\"sp\")", show(x))
		}
		reg, err := strconv.Unquote(lit.Value)
		return c.set(snippet.Insn{Op: snippet.Reg, Name: reg}, snippet.U64), err
	}
	to, converts := conversions[name]
	bytes, loads := loaded[name]
	if !converts && !loads {
		return number{}, at(x, "%s is not known: there are reg(\"NAME\"), %s, and conversions, as int32(arg0)", name, loadNames)
	}
	a, err := c.number(x.Args[0])
	if err != nil {
		return number{}, err
	}
	if loads {
		return c.set(snippet.Insn{Op: snippet.Load, A: a.Operand, N: bytes}, snippet.U64), nil
	}
	return c.set(snippet.Insn{Op: snippet.Extend, A: a.Operand, N: to.bytes}, to.t), nil
}

func callee(x *ast.CallExpr) string {
	if id, ok := x.Fun.(*ast.Ident); ok {
		return id.Name
	}
	return show(x.Fun)
}

// action emits what is done, with its cells.
func (c *compiler) action(e ast.Expr) error {
	if id, ok := e.(*ast.Ident); ok && id.Name == "stack" {
		return c.stack([]number{{Operand: snippet.C(snippet.MaxDepth)}})
	}
	if id, ok := e.(*ast.Ident); ok && id.Name == "count" {
		c.s.Cells = []snippet.Cell{{Kind: snippet.Sum}}
		c.emit(snippet.Insn{Op: snippet.Count, A: snippet.C(1)})
		return nil
	}
	x, ok := e.(*ast.CallExpr)
	if !ok {
		return fmt.Errorf("%s is no action: there are %s", show(e), Actions)
	}
	var all []number
	do, ok := map[string]func(all []number) error{"sum": c.sum, "min": c.min, "max": c.max, "trace": c.trace, "stack": c.stack}[callee(x)]
	if !ok {
		return fmt.Errorf("%s is no action: there are %s", callee(x), Actions)
	}
	for _, a := range x.Args {
		n, err := c.number(a)
		if err != nil {
			return err
		}
		all = append(all, n)
	}
	return do(all)
}

var errOne = errors.New("takes one operand")

func (c *compiler) sum(all []number) error {
	if len(all) != 1 {
		return errOne
	}
	n := all[0]
	if n.t == snippet.S64 { // the same bits
		n = c.set(snippet.Insn{Op: snippet.Extend, A: n.Operand, N: 8}, snippet.U64)
	}
	c.s.Cells = []snippet.Cell{{Kind: snippet.Sum}}
	c.emit(snippet.Insn{Op: snippet.Count, A: n.Operand})
	return nil
}

func (c *compiler) min(all []number) error { return c.bound(all, snippet.Lower, snippet.Min) }
func (c *compiler) max(all []number) error { return c.bound(all, snippet.Raise, snippet.Max) }

func (c *compiler) bound(all []number, op snippet.Op, kind snippet.Kind) error {
	if len(all) != 1 {
		return errOne
	}
	c.s.Cells = []snippet.Cell{{Kind: kind, Type: max(all[0].t, snippet.U64)}, {Kind: snippet.Sum}}
	c.emit(snippet.Insn{Op: op, A: all[0].Operand})
	c.emit(snippet.Insn{Op: snippet.Count, Cell: 1, A: snippet.C(1)})
	return nil
}

func (c *compiler) trace(all []number) error {
	c.s.Cells = []snippet.Cell{{Kind: snippet.Buffer, Records: traced, Fields: len(all)}}
	i := snippet.Insn{Op: snippet.Append}
	for _, n := range all {
		i.Fields = append(i.Fields, n.Operand)
	}
	c.emit(i)
	return nil
}

func (c *compiler) stack(all []number) error {
	if len(all) != 1 || !all[0].IsConst || all[0].Imm < 1 || all[0].Imm > snippet.MaxDepth {
		return fmt.Errorf("stack takes one constant, from 1 to %d: how many addresses are kept", snippet.MaxDepth)
	}
	c.s.Cells = []snippet.Cell{{Kind: snippet.Stacks, Records: traced, Fields: int(all[0].Imm)}}
	c.emit(snippet.Insn{Op: snippet.Stack})
	return nil
}

// at is what is wrong with an expression, and in which column that begins.
func at(e ast.Expr, format string, args ...any) error {
	return fmt.Errorf("column %d: "+format, append([]any{int(e.Pos())}, args...)...) // of one line: from 1
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
	}
	return "what is written there"
}
