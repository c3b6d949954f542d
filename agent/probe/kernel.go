package probe

import (
	"cmp"
	"encoding/binary"
	"go/ast"
	"go/token"
	"strconv"

	"kerninst/agent/ktypes"
	"kerninst/agent/snippet"
)

// At is what is known of the points at which an action is done.
type At struct {
	// Function is whose arguments and what it returns are meant; "": of several, so nothing is
	// known of these but their 64 bits.
	Function string
	// Module is the one that the function is in, of which the kernel's types say nothing.
	Module string
	// Types reads the kernel's types, when something asks for them; nil: they are not known.
	Types func() (*ktypes.Types, error)
	// Registers are the names of those that there are; nil: they are not known.
	Registers []string
}

// place is where something is in the kernel's memory: so many bytes from the task that runs,
// or from an address; or it is a number that is there, as arguments are.
type place struct {
	task bool
	held bool // base is the number
	base number
	off  int
	is   ktypes.Type
	// of a bit field: see ktypes.Field
	bits, from int
}

// taskWords are the words that stand for fields of the task that runs.
var taskWords = map[string][]string{
	"pid": {"tgid"}, "tid": {"pid"}, "cpu": {"thread_info", "cpu"}, "task": nil,
}

// types are the kernel's; e is who asks.
func (c *compiler) types(e ast.Expr) (*ktypes.Types, error) {
	if c.at.Types == nil {
		return nil, at(e, "%s: the kernel's types are not known here", show(e))
	}
	t, err := c.at.Types()
	if err != nil {
		return nil, at(e, "%s: %v", show(e), err)
	}
	return t, nil
}

// task is a field of the task that runs.
func (c *compiler) task(e ast.Expr, path ...string) (place, error) {
	p := place{task: true}
	t, err := c.types(e)
	if err != nil {
		return p, err
	}
	if p.is, err = t.Struct("task_struct"); err != nil {
		return p, at(e, "%v", err)
	}
	for _, name := range path {
		if p, err = c.field(e, p, name); err != nil {
			return p, err
		}
	}
	return p, nil
}

func (c *compiler) taskWord(x *ast.Ident, path []string) (number, error) {
	if path == nil {
		return c.set(snippet.Insn{Op: snippet.Current}, snippet.U64), nil
	}
	p, err := c.task(x, path...)
	if err != nil {
		return number{}, err
	}
	n, err := c.read(x, p)
	if err != nil || n.t == snippet.U64 {
		return n, err
	}
	// Numbers of tasks and CPUs have no sign, whatever C says.
	return c.set(snippet.Insn{Op: snippet.Extend, A: n.Operand, N: 8}, snippet.U64), nil
}

// place finds what an expression of fields, elements and structs by name leads to.
func (c *compiler) place(e ast.Expr) (place, error) {
	switch x := e.(type) {
	case *ast.ParenExpr:
		return c.place(x.X)
	case *ast.SelectorExpr:
		in, err := c.place(x.X)
		if err != nil {
			return place{}, err
		}
		return c.field(x, in, x.Sel.Name)
	case *ast.IndexExpr:
		return c.element(x)
	case *ast.CallExpr:
		if p, ok, err := c.cast(x); ok || err != nil {
			return p, err
		}
	case *ast.Ident:
		if x.Name == "task" {
			return c.task(x)
		}
	}
	n, err := c.number(e)
	if err != nil {
		return place{}, err
	}
	p := place{base: n, is: n.is, held: true}
	if p.is.Known() {
		return p, nil
	}
	t, err := c.types(e)
	switch {
	case err != nil:
		return place{}, err
	case n.param == 0 && !n.ret:
		return place{}, at(e, "%s: of which struct it is the address is not known: say it, as in inode(%s).i_size", show(e), show(e))
	case c.at.Function == "":
		return place{}, at(e, "%s is another thing in each function: name one, or the struct, as in inode(%s).i_size", show(e), show(e))
	case n.ret:
		p.is, err = t.Return(c.at.Function)
	default:
		p.is, err = t.Param(c.at.Function, n.param-1)
	}
	if err != nil {
		return place{}, at(e, "%v", err)
	}
	if !p.is.Pointer() {
		return place{}, at(e, "%s is a %v: it has no fields", show(e), p.is)
	}
	return p, nil
}

// cast is an address that is said to be of a struct, as in inode(arg0).
func (c *compiler) cast(x *ast.CallExpr) (p place, ok bool, err error) {
	name := callee(x)
	_, converts := conversions[name]
	_, loads := loaded[name]
	if name == "reg" || name == "arg" || converts || loads {
		return place{}, false, nil
	}
	t, err := c.types(x)
	if err != nil {
		return place{}, false, err
	}
	s, err := t.Struct(name)
	if err != nil {
		return place{}, false, at(x, "%s is not known: there are reg(\"NAME\"), %s, conversions, as int32(arg0), and %v", name, loadNames, err)
	}
	if len(x.Args) != 1 {
		return place{}, false, at(x, "%s: %s takes one address", show(x), name)
	}
	n, err := c.number(x.Args[0])
	return place{base: n, is: s}, true, err
}

// field is one of what a place has, or of what the pointer there points to.
func (c *compiler) field(e ast.Expr, in place, name string) (place, error) {
	if in.is.Pointer() {
		var err error
		if in, err = c.follow(e, in); err != nil {
			return place{}, err
		}
	}
	f, err := in.is.Field(name)
	if s, ok := e.(*ast.SelectorExpr); ok && err != nil {
		e = s.Sel
	}
	if err != nil {
		return place{}, at(e, "%v", err)
	}
	in.off, in.is, in.bits, in.from = in.off+f.Off, f.Type, f.Bits, f.BitOff
	return in, nil
}

// follow goes where a pointer points to. An argument is a pointer by itself, and not the
// place of one.
func (c *compiler) follow(e ast.Expr, p place) (place, error) {
	to, _ := p.is.Elem()
	if p.held {
		return place{base: p.base, is: to}, nil
	}
	n, err := c.read(e, p)
	return place{base: n, is: to}, err
}

// element is one of an array, of which the number is a constant.
func (c *compiler) element(x *ast.IndexExpr) (place, error) {
	p, err := c.place(x.X)
	if err != nil {
		return place{}, err
	}
	lit, ok := x.Index.(*ast.BasicLit)
	if !ok || lit.Kind != token.INT {
		return place{}, at(x.Index, "%s: elements are numbered by constants", show(x.Index))
	}
	k, err := strconv.ParseUint(lit.Value, 0, 31)
	if err != nil {
		return place{}, at(x.Index, "%v", err)
	}
	if n := p.is.Len(); n > 0 && int(k) >= n {
		return place{}, at(x.Index, "%s has %d elements", show(x.X), n)
	}
	if p.is.Pointer() {
		if p, err = c.follow(x, p); err != nil {
			return place{}, err
		}
	} else if e, ok := p.is.Elem(); ok {
		p.is = e
	} else {
		return place{}, at(x, "%s is a %v, not an array", show(x.X), p.is)
	}
	p.off += int(k) * p.is.Size()
	return p, nil
}

// read is the number that is at a place.
func (c *compiler) read(e ast.Expr, p place) (number, error) {
	size := p.is.Size()
	if p.is.Composite() || p.is.Len() > 0 || size != 1 && size != 2 && size != 4 && size != 8 {
		return number{}, at(e, "%s is a %v: that is no number; one of its fields or elements may be", show(e), p.is)
	}
	t := snippet.U64
	if p.is.Signed() {
		t = snippet.S64
	}
	var n number
	switch {
	case p.held:
		return p.base, nil
	case p.task && p.off <= snippet.MaxTask:
		n = c.set(snippet.Insn{Op: snippet.Task, N: size, Off: int32(p.off)}, t)
	case p.task:
		n = c.set(snippet.Insn{Op: snippet.Current}, snippet.U64)
		n = c.set(snippet.Insn{Op: snippet.Load, A: n.Operand, N: size, Off: int32(p.off)}, t)
	default:
		n = c.set(snippet.Insn{Op: snippet.Load, A: p.base.Operand, N: size, Off: int32(p.off)}, t)
	}
	if p.bits > 0 { // to the top, and down again: with the sign, if it has one
		up := 64 - p.from - p.bits
		n = c.set(snippet.Insn{Op: snippet.Shl, A: n.Operand, B: snippet.C(uint64(up))}, t)
		n = c.set(snippet.Insn{Op: snippet.Shr, A: n.Operand, B: snippet.C(uint64(64 - p.bits))}, t)
	}
	n.is = p.is
	return n.of(cmp.Or(p.bits, size*8)), nil
}

// returned is what the function returns: as wide as the kernel's types say, and with their sign.
// Where they say nothing, as of several functions, it is the whole register.
func (c *compiler) returned(x *ast.Ident) (number, error) {
	n := c.set(snippet.Insn{Op: snippet.Ret}, snippet.U64)
	n.ret = true
	t := c.described()
	if t == nil {
		return n, nil
	}
	is, err := t.Return(c.at.Function)
	if err != nil {
		return number{}, at(x, "ret: %v", err)
	}
	size := is.Size()
	if is.Pointer() || is.Composite() || size != 1 && size != 2 && size != 4 && size != 8 || size == 8 && !is.Signed() {
		return n, nil
	}
	to := snippet.U64
	if is.Signed() {
		to = snippet.S64
	}
	n = c.set(snippet.Insn{Op: snippet.Extend, A: n.Operand, N: size}, to).of(size * 8)
	n.ret = true
	return n, nil
}

// address reports whether the kernel's types say that a number is a pointer.
func (c *compiler) address(n number) bool {
	is := n.is
	if t := c.described(); t != nil && !is.Known() {
		switch {
		case n.param > 0:
			is, _ = t.Param(c.at.Function, n.param-1)
		case n.ret:
			is, _ = t.Return(c.at.Function)
		}
	}
	return is.Known() && is.Pointer()
}

// takes is an error if the kernel's types say that the function has no such argument, from 0.
func (c *compiler) takes(n int) error {
	t := c.described()
	if t == nil {
		return nil
	}
	_, err := t.Param(c.at.Function, n)
	if err != nil && t.Variadic(c.at.Function) {
		return nil
	}
	return err
}

// described are the kernel's types, if they say something of the one function that is meant.
func (c *compiler) described() *ktypes.Types {
	if c.at.Types == nil || c.at.Function == "" || c.at.Module != "" {
		return nil
	}
	if t, err := c.at.Types(); err == nil && t.HasFunction(c.at.Function) {
		return t
	}
	return nil
}

// commLen is TASK_COMM_LEN, in bytes.
const commLen = 16

func isComm(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "comm"
}

// comm is the name of the task that runs, which fills two words: the kernel pads it with
// zeros (strscpy_pad in __set_task_comm, fs/exec.c).
func (c *compiler) comm(e ast.Expr) (out [2]number, err error) {
	p, err := c.task(e, "comm")
	if err != nil {
		return out, err
	}
	for k := range out {
		out[k] = c.set(snippet.Insn{Op: snippet.Task, N: 8, Off: int32(p.off + 8*k)}, snippet.U64)
	}
	return out, nil
}

// compareComm compares the name of the task that runs with a text, for whether they are
// the same.
func (c *compiler) compareComm(x *ast.BinaryExpr, cond snippet.Cond, when bool, to *label) error {
	other := x.Y
	if isComm(x.Y) {
		other = x.X
	}
	lit, ok := other.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING || cond != snippet.EQ && cond != snippet.NE {
		return at(x, "%s: comm is compared with a text, by == or !=, as in comm == \"squid\"", show(x))
	}
	text, err := strconv.Unquote(lit.Value)
	if err != nil || len(text) >= commLen {
		return at(other, "%s: a command's name has up to %d bytes: the kernel cuts off the rest", lit.Value, commLen-1)
	}
	words, err := c.comm(x)
	if err != nil {
		return err
	}
	var b [commLen]byte
	copy(b[:], text)
	// Both halves have to be equal: the label is gone to from either if they are not to be.
	var past label
	differ := &past
	if when != (cond == snippet.EQ) {
		differ = to
	}
	c.branch(words[0].Operand, snippet.NE, snippet.C(binary.LittleEndian.Uint64(b[:])), differ)
	last := snippet.NE
	if differ == &past {
		last = snippet.EQ
	}
	c.branch(words[1].Operand, last, snippet.C(binary.LittleEndian.Uint64(b[8:])), to)
	c.here(&past)
	return nil
}
