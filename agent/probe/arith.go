package probe

import (
	"go/ast"
	"go/token"
	"math/bits"

	"kerninst/agent/snippet"
)

// simple are the operations that are one of a snippet's.
var simple = map[token.Token]snippet.Op{
	token.ADD: snippet.Add, token.SUB: snippet.Sub, token.AND: snippet.And, token.OR: snippet.Or, token.XOR: snippet.Xor,
}

// operations are what may stand between two numbers of one type.
var operations = map[token.Token]func(c *compiler, x *ast.BinaryExpr, a, b number, t snippet.Type) (number, error){
	token.ADD: (*compiler).simple, token.SUB: (*compiler).simple, token.AND: (*compiler).simple, token.OR: (*compiler).simple, token.XOR: (*compiler).simple,
	token.AND_NOT: (*compiler).without, token.MUL: (*compiler).times, token.QUO: (*compiler).divided, token.REM: (*compiler).rest,
	token.SHL: (*compiler).shifted, token.SHR: (*compiler).shifted,
}

const operators = "+ - * / % & | ^ &^ << >>"

func (c *compiler) operation(x *ast.BinaryExpr) (number, error) {
	a, b, t, err := c.pair(x)
	if err != nil {
		return number{}, err
	}
	if a.IsConst && b.IsConst {
		return folded(x, a, b)
	}
	return operations[x.Op](c, x, a, b, t)
}

// folded is what two constants come to. The result of one below 0 is taken for below 0, too.
func folded(x *ast.BinaryExpr, a, b number) (number, error) {
	u, v := a.Imm, b.Imm
	if x.Op == token.QUO || x.Op == token.REM {
		if v == 0 || a.minus || b.minus {
			return number{}, at(x, "%s: constants are divided that are not below 0, by one that is not 0", show(x))
		}
	} else if (x.Op == token.SHL || x.Op == token.SHR) && v > 63 {
		return number{}, at(x, "%s: shifts are by a constant from 0 to 63", show(x))
	}
	var n uint64
	switch x.Op {
	case token.ADD:
		n = u + v
	case token.SUB:
		n = u - v
	case token.AND:
		n = u & v
	case token.OR:
		n = u | v
	case token.XOR:
		n = u ^ v
	case token.AND_NOT:
		n = u &^ v
	case token.MUL:
		n = u * v
	case token.QUO:
		n = u / v
	case token.REM:
		n = u % v
	case token.SHL:
		n = u << v
	case token.SHR:
		n = u >> v
		if a.minus {
			n = uint64(int64(u) >> v)
		}
	}
	below := int64(n) < 0 && (a.minus || b.minus || x.Op == token.SUB && u < v)
	return number{Operand: snippet.C(n), minus: below}, nil
}

func (c *compiler) simple(x *ast.BinaryExpr, a, b number, t snippet.Type) (number, error) {
	return c.set(snippet.Insn{Op: simple[x.Op], A: a.Operand, B: b.Operand}, t), nil
}

func (c *compiler) without(x *ast.BinaryExpr, a, b number, t snippet.Type) (number, error) {
	if b.IsConst {
		return c.set(snippet.Insn{Op: snippet.And, A: a.Operand, B: snippet.C(^b.Imm)}, t), nil
	}
	not := c.set(snippet.Insn{Op: snippet.Xor, A: b.Operand, B: snippet.C(^uint64(0))}, t)
	return c.set(snippet.Insn{Op: snippet.And, A: a.Operand, B: not.Operand}, t), nil
}

func (c *compiler) shifted(x *ast.BinaryExpr, a, b number, _ snippet.Type) (number, error) {
	if !b.IsConst || b.Imm > 63 {
		return number{}, at(x.Y, "%s: shifts are by a constant from 0 to 63", show(x))
	}
	op := snippet.Shl
	if x.Op == token.SHR {
		op = snippet.Shr
	}
	return c.set(snippet.Insn{Op: op, A: a.Operand, B: b.Operand}, max(a.t, snippet.U64)), nil
}

// mostFactors is how many bits of a factor are 1: each takes two instructions.
const mostFactors = 8

// times is a product with a constant: a sum of what is shifted by each of its bits.
func (c *compiler) times(x *ast.BinaryExpr, a, b number, t snippet.Type) (number, error) {
	if a.IsConst {
		a, b = b, a
	}
	if b.minus {
		product, err := c.times(x, a, number{Operand: snippet.C(-b.Imm)}, t)
		return c.negated(product, t), err
	}
	if !b.IsConst || bits.OnesCount64(b.Imm) > mostFactors {
		return number{}, at(x, "%s: products are with a constant, of which at most %d bits are 1", show(x), mostFactors)
	}
	out := number{Operand: snippet.C(0)}
	for rest := b.Imm; rest != 0; rest &= rest - 1 {
		part := a
		if k := bits.TrailingZeros64(rest); k > 0 {
			part = c.set(snippet.Insn{Op: snippet.Shl, A: a.Operand, B: snippet.C(uint64(k))}, t)
		}
		if out.IsConst {
			out = part
			continue
		}
		out = c.set(snippet.Insn{Op: snippet.Add, A: out.Operand, B: part.Operand}, t)
	}
	return out, nil
}

func (c *compiler) divides(x *ast.BinaryExpr, b number, t snippet.Type) error {
	if !b.IsConst || b.Imm == 0 || b.minus || t != snippet.U64 {
		return at(x, "%s: numbers without a sign are divided, by a constant above 0", show(x))
	}
	return nil
}

func (c *compiler) divided(x *ast.BinaryExpr, a, b number, t snippet.Type) (number, error) {
	if err := c.divides(x, b, t); err != nil {
		return number{}, err
	}
	if bits.OnesCount64(b.Imm) == 1 {
		return c.set(snippet.Insn{Op: snippet.Shr, A: a.Operand, B: snippet.C(uint64(bits.TrailingZeros64(b.Imm)))}, t), nil
	}
	return c.set(snippet.Insn{Op: snippet.Div, A: a.Operand, B: b.Operand}, t), nil
}

// rest is what a division leaves.
func (c *compiler) rest(x *ast.BinaryExpr, a, b number, t snippet.Type) (number, error) {
	if err := c.divides(x, b, t); err != nil {
		return number{}, err
	}
	if bits.OnesCount64(b.Imm) == 1 {
		return c.set(snippet.Insn{Op: snippet.And, A: a.Operand, B: snippet.C(b.Imm - 1)}, t), nil
	}
	whole := c.set(snippet.Insn{Op: snippet.Div, A: a.Operand, B: b.Operand}, t)
	product, err := c.times(x, whole, b, t)
	if err != nil {
		return number{}, err
	}
	return c.set(snippet.Insn{Op: snippet.Sub, A: a.Operand, B: product.Operand}, t), nil
}

// unary is -X and ^X.
func (c *compiler) unary(x *ast.UnaryExpr) (number, error) {
	if lit, ok := x.X.(*ast.BasicLit); ok && x.Op == token.SUB {
		return literal(lit, true)
	}
	if x.Op != token.SUB && x.Op != token.XOR && x.Op != token.ADD {
		return number{}, at(x, "%s is no number: before one may stand - and ^", show(x))
	}
	n, err := c.number(x.X)
	if err != nil || x.Op == token.ADD {
		return n, err
	}
	t := max(n.t, snippet.U64)
	switch {
	case x.Op == token.SUB && n.IsConst:
		return number{Operand: snippet.C(-n.Imm), minus: !n.minus && n.Imm > 0}, nil
	case x.Op == token.SUB:
		return c.negated(n, t), nil
	case n.IsConst:
		return number{Operand: snippet.C(^n.Imm), minus: int64(^n.Imm) < 0}, nil
	}
	return c.set(snippet.Insn{Op: snippet.Xor, A: n.Operand, B: snippet.C(^uint64(0))}, t), nil
}

func (c *compiler) negated(n number, t snippet.Type) number {
	return c.set(snippet.Insn{Op: snippet.Sub, A: snippet.C(0), B: n.Operand}, t)
}
