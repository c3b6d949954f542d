package probe

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"strings"

	"kerninst/agent/snippet"
)

// Actions are the words that Compile knows, as people write them.
const Actions = "count, sum(X), min(X), max(X), avg(X), hist(X), lhist(X, LO, HI, STEP), trace(X, ...), trace(), stack(N), cover, each of the first seven with \"by X\" behind it, or \"by ksym(X)\"; of a function's entry, or of each block, time, vtime and concurrency, with or without \"by pid\", tid or comm"

// stacks is how many stacks are kept: the first that come.
const stacks = 128

// Action is what an action is compiled to, and how to read what it has found.
type Action struct {
	Text    string // as written, with its predicate where that tells it from others
	Snippet snippet.Snippet
	Shape   Shape
	who     timees
}

// Covers reports whether the action is done once, and taken away then.
func (a Action) Covers() bool { return a.Shape.Kind == Cover }

// Timed reports whether the action is done at the entry of a function and at all its exits.
func (a Action) Timed() bool {
	return a.Shape.Kind == Time || a.Shape.Kind == Concurrency || a.Virtual()
}

// Virtual reports whether times are those while tasks run.
func (a Action) Virtual() bool { return a.Shape.Kind == Virtual }

// Compile is At.Compile where nothing is known of the kernel's types.
func Compile(predicate, action string) (snippet.Snippet, error) {
	a, err := At{}.Compile(predicate, action)
	return a.Snippet, err
}

// Compile makes the snippet that does an action where a predicate holds; the empty
// predicate always does. Both are Go expressions. Numbers are uint64 unless
// converted: arg0 to arg5 (the registers that arguments are passed in, whole, so an
// int is int32(arg0)), ret (where a function returns), reg("rdi"), cycles, pid, tid, cpu,
// constants, + - * / % & | ^ &^ << >> (products, quotients and shifts with a constant), conversions, and load8(X) to load64(X), the so many bits of
// kernel memory at an address, 0 where none can be loaded; arg0.f_inode.i_size, task.mm,
// inode(arg1).i_mode are what the kernel's types say; predicates compare them, and comm
// with a text, and join that by && || !. What is wrong is named with its column, from 1.
//
// Behind "by" are keys, one or two words of them: what was found is kept for each by
// itself.
//
// The cells of count and sum are one sum, of avg two; of min and max what they say and,
// behind it, the sum of how many came; of a histogram an array; of trace what leads to a ring,
// of whose records those of trace() have no time; of
// stack(N) stacks of N addresses, the point's and those that its function and each other
// returns to, and of stack of as many as there may be. With keys it is a map, and behind it
// the sum of those that had no room. Those of time and concurrency are as of avg(cycles), and of
// vtime too, behind the clocks. Behind them, if anything is loaded, is how many loads
// came to nothing.
func (in At) Compile(predicate, action string) (Action, error) {
	c := &compiler{at: in}
	var end label
	if strings.TrimSpace(predicate) != "" {
		e, err := parse(predicate)
		if err == nil {
			err = c.jump(e, false, &end)
		}
		if err != nil {
			return Action{}, fmt.Errorf("predicate %q: %w", predicate, inColumns(err, predicate))
		}
	}
	what, by, keyed := cutBy(action)
	e, err := parse(what)
	if err == nil && keyed {
		err = c.keys(by, len(what)+len(" by "))
	}
	if err == nil {
		err = c.action(e)
	}
	if err == nil {
		c.here(&end)
		c.faults()
		err = c.s.Check()
	}
	if err != nil {
		return Action{}, fmt.Errorf("action %q: %w", action, inColumns(err, action))
	}
	a := Action{Text: action, Snippet: c.s, Shape: c.shape}
	if a.Timed() {
		a.who, err = who(predicate, by)
	}
	return a, err
}

// parse reads an expression. What is wrong with it is said as at says it.
func parse(text string) (ast.Expr, error) {
	e, err := parser.ParseExpr(text)
	var all scanner.ErrorList
	if errors.As(err, &all) && len(all) > 0 {
		return nil, &misplaced{all[0].Pos.Column, errors.New(strings.ReplaceAll(all[0].Msg, "'EOF'", "its end"))}
	}
	if err == nil {
		err = noDots(e)
	}
	return e, err
}

// noDots is an error where a call has ..., which Go's calls may have and nothing here means.
func noDots(e ast.Expr) (err error) {
	ast.Inspect(e, func(n ast.Node) bool {
		if x, ok := n.(*ast.CallExpr); ok && x.Ellipsis.IsValid() && err == nil {
			err = &misplaced{int(x.Ellipsis), errors.New("... is no part of an expression here")}
		}
		return err == nil
	})
	return err
}

// cutBy cuts an action where its keys begin: at the word "by", outside of quotes.
func cutBy(action string) (what, keys string, found bool) {
	quoted := false
	for k := range len(action) {
		switch {
		case action[k] == '"':
			quoted = !quoted
		case !quoted && strings.HasPrefix(action[k:], " by "):
			return action[:k], action[k+len(" by "):], true
		}
	}
	return action, "", false
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
	at    At
	s     snippet.Snippet
	n     int // values
	shape Shape
	by    []snippet.Operand // words of the keys
}

// keys computes what stands behind "by", so many bytes from the begin of the action, where what
// is wrong with a key is said to be.
func (c *compiler) keys(text string, from int) error {
	list, err := parse(strings.Repeat(" ", from-len("by(")) + "by(" + text + ")")
	if err != nil {
		return err
	}
	call, ok := list.(*ast.CallExpr)
	if !ok || callee(call) != "by" { // a bracket of the text's own has ended it
		return fmt.Errorf("by %s: keys are a list, as in by pid, cpu", text)
	}
	for _, e := range call.Args {
		all, form, err := c.key(e)
		if err != nil {
			return err
		}
		c.shape.Keys = append(c.shape.Keys, form)
		for _, n := range all {
			if n.IsConst {
				return at(e, "by %s: %s is always the same", text, show(e))
			}
			c.by = append(c.by, n.Operand)
		}
	}
	if len(c.by) < 1 || len(c.by) > mostKeys {
		return fmt.Errorf("by %s: keys are one number or two, or comm", text)
	}
	return nil
}

const mostKeys = 2

// key computes a key. ksym(X) is X, of which people read what is there, as bpftrace's.
func (c *compiler) key(e ast.Expr) ([]number, Form, error) {
	if x, ok := e.(*ast.CallExpr); ok && callee(x) == codeKey && len(x.Args) == 1 {
		n, err := c.number(x.Args[0])
		return []number{n}, Symbol, err
	}
	return c.shown(e)
}

// codeKey is what an address of code is put into to be read by the name of what is there.
const codeKey = "ksym"

// shown computes what is shown of an expression to people: the words, and how they are
// written.
func (c *compiler) shown(e ast.Expr) ([]number, Form, error) {
	if isComm(e) {
		words, err := c.comm(e)
		return words[:], Text, err
	}
	n, err := c.number(e)
	form := Unsigned
	switch {
	case n.t == snippet.S64:
		form = Signed
	case err == nil && c.address(n):
		form = Address
	}
	return []number{n}, form, err
}

// done is an action's word: how many operands it takes, and how it is done.
type done struct {
	kind        Kind
	least, most int
	keyed       bool
	do          func(*compiler, []number) error
}

var actions = map[string]done{
	"count": {Count, 0, 0, true, (*compiler).count},
	"sum":   {Sum, 1, 1, true, (*compiler).sum},
	"min":   {Min, 1, 1, true, (*compiler).bound},
	"max":   {Max, 1, 1, true, (*compiler).bound},
	"avg":   {Avg, 1, 1, true, (*compiler).average},
	"hist":  {Hist, 1, 1, true, (*compiler).histogram},
	"lhist": {Linear, 4, 4, true, (*compiler).linear},
	"cover": {Cover, 0, 0, false, (*compiler).count},
	"stack": {Stack, 0, 1, false, (*compiler).stack},

	"time":        {Time, 0, 0, true, (*compiler).timed},
	"vtime":       {Virtual, 0, 0, true, (*compiler).virtual},
	"concurrency": {Concurrency, 0, 0, true, (*compiler).timed},
}

// action emits what is done, with its cells.
func (c *compiler) action(e ast.Expr) error {
	name, args := show(e), []ast.Expr(nil)
	if x, ok := e.(*ast.CallExpr); ok {
		name, args = callee(x), x.Args
	}
	if name == "trace" {
		if args == nil && show(e) == name {
			return errors.New("trace takes what is to be kept, as in trace(arg0, comm), or nothing, as in trace()")
		}
		return c.trace(args)
	}
	a, ok := actions[name]
	switch {
	case !ok:
		return fmt.Errorf("%s is no action: there are %s", name, Actions)
	case len(c.by) > 0 && !a.keyed:
		return fmt.Errorf("%s has no keys", name)
	case len(args) < a.least || len(args) > a.most:
		return fmt.Errorf("takes %s", [...]string{"no operand", "one operand", 4: "four operands: what, from, to, step"}[a.most])
	}
	c.shape.Kind = a.kind
	var all []number
	for _, x := range args {
		n, err := c.number(x)
		if err != nil {
			return err
		}
		all = append(all, n)
	}
	if len(all) > 0 {
		c.shape.Signed = all[0].t == snippet.S64
	}
	return a.do(c, all)
}

// unsigned is the same 64 bits without a sign.
func (c *compiler) unsigned(n number) number {
	if n.t == snippet.S64 {
		return c.set(snippet.Insn{Op: snippet.Extend, A: n.Operand, N: 8}, snippet.U64)
	}
	return n
}

// cell adds one, and is its number.
func (c *compiler) cell(cell snippet.Cell) int {
	c.s.Cells = append(c.s.Cells, cell)
	return len(c.s.Cells) - 1
}

// add adds to a sum of its own, or, with keys, to one of the numbers of their record.
func (c *compiler) adds(all ...snippet.Operand) {
	if len(c.by) == 0 {
		for _, a := range all {
			c.emit(snippet.Insn{Op: snippet.Count, A: a, Cell: c.cell(snippet.Cell{Kind: snippet.Sum})})
		}
		return
	}
	c.inRecord(len(all), func(cell int, slot snippet.Operand) {
		for k, a := range all {
			c.emit(snippet.Insn{Op: snippet.Tally, Cell: cell, B: slot, Off: int32(k), A: a})
		}
	})
}

// mapWords is how much a map takes, in words: several are in what a point's cells may.
const mapWords = snippet.MaxWords / 4

// inRecord does something with the keys' record of so many numbers. Where there is no room
// for one, that is counted instead.
func (c *compiler) inRecord(numbers int, do func(cell int, slot snippet.Operand)) {
	m := snippet.Cell{Kind: snippet.Map, Records: 2, Fields: numbers}
	for 2*m.Words() <= mapWords && 2*m.Records <= snippet.MaxRecords {
		m.Records *= 2
	}
	cell, lost := c.cell(m), c.cell(snippet.Cell{Kind: snippet.Sum})
	slot := c.set(snippet.Insn{Op: snippet.Slot, Cell: cell, Fields: c.by}, snippet.U64)
	var full, end label
	c.branch(slot.Operand, snippet.EQ, snippet.C(0), &full)
	do(cell, slot.Operand)
	c.leave(&end)
	c.here(&full)
	c.emit(snippet.Insn{Op: snippet.Count, Cell: lost, A: snippet.C(1)})
	c.here(&end)
}

func (c *compiler) count([]number) error {
	c.adds(snippet.C(1))
	return nil
}

func (c *compiler) sum(all []number) error {
	c.adds(c.unsigned(all[0]).Operand)
	return nil
}

func (c *compiler) average(all []number) error {
	c.adds(c.unsigned(all[0]).Operand, snippet.C(1))
	return nil
}

// bound is min and max. In a map numbers start at 0, and only larger ones replace them: see
// Shape.turned.
func (c *compiler) bound(all []number) error {
	if len(c.by) > 0 {
		v := all[0]
		if turn := c.shape.turned(); turn != 0 {
			v = c.set(snippet.Insn{Op: snippet.Xor, A: v.Operand, B: snippet.C(turn)}, max(v.t, snippet.U64))
		}
		v = c.unsigned(v)
		c.inRecord(2, func(cell int, slot snippet.Operand) {
			c.emit(snippet.Insn{Op: snippet.Top, Cell: cell, B: slot, A: v.Operand})
			c.emit(snippet.Insn{Op: snippet.Tally, Cell: cell, B: slot, Off: 1, A: snippet.C(1)})
		})
		return nil
	}
	op, kind := snippet.Lower, snippet.Min
	if c.shape.Kind == Max {
		op, kind = snippet.Raise, snippet.Max
	}
	c.emit(snippet.Insn{Op: op, A: all[0].Operand, Cell: c.cell(snippet.Cell{Kind: kind, Type: max(all[0].t, snippet.U64)})})
	c.adds1()
	return nil
}

// adds1 counts how many came.
func (c *compiler) adds1() {
	c.emit(snippet.Insn{Op: snippet.Count, Cell: c.cell(snippet.Cell{Kind: snippet.Sum}), A: snippet.C(1)})
}

// histogram has a bucket for numbers below 0, and one for each number of bits.
func (c *compiler) histogram(all []number) error {
	x := all[0]
	if x.IsConst {
		return errors.New("a constant is in one bucket")
	}
	c.buckets(2+64, func(cell int, base snippet.Operand) {
		var below, end label
		if x.t == snippet.S64 {
			c.branch(x.Operand, snippet.LT, snippet.C(0), &below)
		}
		bits := c.set(snippet.Insn{Op: snippet.Bits, A: x.Operand}, snippet.U64)
		c.bucket(cell, base, 1, 64, bits.Operand)
		c.outside(&below, &end, cell, base)
	})
	return nil
}

// linear has a bucket for what is below, those that are asked for, and one for what is
// above.
func (c *compiler) linear(all []number) error {
	x, lo, hi, step := all[0], all[1], all[2], all[3]
	if x.IsConst || !lo.IsConst || !hi.IsConst || !step.IsConst {
		return errors.New("lhist takes something, and constants: from, to, step")
	}
	if lo.minus && x.t != snippet.S64 {
		return fmt.Errorf("lhist: from %d, but the number has no sign; say that it has one, as in int64(arg0) or int32(arg0)", int64(lo.Imm))
	}
	steps := int64(0)
	if int64(step.Imm) > 0 && int64(hi.Imm) > int64(lo.Imm) {
		steps = (int64(hi.Imm) - int64(lo.Imm)) / int64(step.Imm)
	}
	if steps < 1 || steps > mostSteps || lo.Imm+uint64(steps)*step.Imm != hi.Imm {
		return fmt.Errorf("lhist: from %d to %d by %d is not 1 to %d whole steps", int64(lo.Imm), int64(hi.Imm), int64(step.Imm), mostSteps)
	}
	c.shape.Lo, c.shape.Step, c.shape.Steps = lo.Imm, step.Imm, int(steps)
	c.buckets(2+int(steps), func(cell int, base snippet.Operand) {
		var below, end label
		c.branch(x.Operand, snippet.LT, lo.Operand, &below)
		from := c.set(snippet.Insn{Op: snippet.Sub, A: x.Operand, B: lo.Operand}, x.t)
		at := c.set(snippet.Insn{Op: snippet.Div, A: c.unsigned(from).Operand, B: step.Operand}, snippet.U64)
		c.bucket(cell, base, 1, int(steps), at.Operand)
		c.outside(&below, &end, cell, base)
	})
	return nil
}

// mostSteps is how many buckets a linear histogram may have: those of a record.
const mostSteps = snippet.MaxValue - 2

// buckets does something with an array, or with the keys' record.
func (c *compiler) buckets(n int, do func(cell int, base snippet.Operand)) {
	if len(c.by) > 0 {
		c.inRecord(n, do)
		return
	}
	do(c.cell(snippet.Cell{Kind: snippet.Array, Records: n}), snippet.C(0))
}

// bucket counts one in the bucket of a number, which begin at one of the array.
func (c *compiler) bucket(cell int, base snippet.Operand, first int32, most int, a snippet.Operand) {
	at := c.set(snippet.Insn{Op: snippet.Index, Cell: cell, B: base, Off: first, N: most, A: a}, snippet.U64)
	c.emit(snippet.Insn{Op: snippet.Tally, Cell: cell, B: at.Operand, A: snippet.C(1)})
}

// outside counts in the first bucket what went to a label, if anything can.
func (c *compiler) outside(below, end *label, cell int, base snippet.Operand) {
	if len(*below) == 0 {
		return
	}
	c.leave(end)
	c.here(below)
	c.bucket(cell, base, 0, 0, snippet.C(0))
	c.here(end)
}

func (c *compiler) trace(args []ast.Expr) error {
	if len(c.by) > 0 {
		return errors.New("a trace has no keys")
	}
	i := snippet.Insn{Op: snippet.Append}
	for _, e := range args {
		all, form, err := c.shown(e)
		if err != nil {
			return err
		}
		c.shape.Fields = append(c.shape.Fields, form)
		for _, n := range all {
			i.Fields = append(i.Fields, n.Operand)
		}
	}
	if len(i.Fields) > snippet.MaxFields {
		return fmt.Errorf("trace keeps up to %d words, of which comm is two, not %d", snippet.MaxFields, len(i.Fields))
	}
	c.shape.Kind = Trace
	// How many records there is room for is said where there are rings.
	i.Cell = c.cell(snippet.Cell{Kind: snippet.InRing, Records: 2, Fields: len(i.Fields)})
	c.emit(i)
	return nil
}

func (c *compiler) stack(all []number) error {
	depth := number{Operand: snippet.C(snippet.MaxDepth)}
	if len(all) > 0 {
		depth = all[0]
	}
	if !depth.IsConst || depth.Imm < 1 || depth.Imm > snippet.MaxDepth {
		return fmt.Errorf("stack takes one constant, from 1 to %d: how many addresses are kept", snippet.MaxDepth)
	}
	c.emit(snippet.Insn{Op: snippet.Stack, Cell: c.cell(snippet.Cell{Kind: snippet.Stacks, Records: stacks, Fields: int(depth.Imm)})})
	return nil
}
