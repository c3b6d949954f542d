package snippet

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"
)

// Bounds of a snippet, so that what it becomes fits a patch and takes no long.
const (
	MaxCode    = 64
	MaxValues  = 64
	MaxCells   = 32
	MaxFields  = 7  // of a record, behind its stamp
	MaxDepth   = 15 // addresses of a stack
	MaxRecords = 1024
	MaxRing    = 1 << 16 // records of a ring
	MaxWords   = 1 << 14 // in all cells
	MaxArgs    = 6       // those that are in registers on every ISA
	MaxValue   = 72      // values of a map's record
	MaxTask    = 1 << 14
	MaxClocks  = 1 << 20
)

// Check says what is wrong with a snippet, naming the instruction or the cell.
func (s Snippet) Check() error {
	switch {
	case len(s.Code) == 0:
		return errors.New("snippet: no instructions")
	case len(s.Code) > MaxCode:
		return fmt.Errorf("snippet: %d instructions, the most is %d", len(s.Code), MaxCode)
	case len(s.Cells) > MaxCells:
		return fmt.Errorf("snippet: %d cells, the most is %d", len(s.Cells), MaxCells)
	}
	for k, c := range s.Cells {
		if err := c.check(); err != nil {
			return fmt.Errorf("snippet: cell c%d: %w", k, err)
		}
	}
	if n := s.Words(); n > MaxWords {
		return fmt.Errorf("snippet: cells of %d words, the most is %d", n, MaxWords)
	}
	c := checker{s: s, types: map[int]Type{}, places: map[int]space{}, in: make([]uint64, len(s.Code)+1), reached: make([]bool, len(s.Code)+1)}
	c.reached[0] = true
	for k, i := range s.Code {
		if err := c.insn(k, i); err != nil {
			return fmt.Errorf("snippet: instruction %d, %v: %w", k, i.Op, err)
		}
	}
	return nil
}

func (c Cell) check() error {
	switch c.Kind {
	case Sum, Faults:
		return nil
	case Min, Max:
		return typed(c.Type)
	case Array:
		if c.Records < 1 || c.Records > MaxRecords {
			return fmt.Errorf("%d words, not 1 to %d", c.Records, MaxRecords)
		}
		return nil
	case Clocks:
		return powerOfTwo(c.Records, MaxClocks)
	case Map:
		if c.Fields < 1 || c.Fields > MaxValue {
			return fmt.Errorf("records of %d values, not of 1 to %d", c.Fields, MaxValue)
		}
		return powerOfTwo(c.Records, MaxRecords)
	case InRing, Stacks:
		least, most := 0, MaxFields
		if c.Kind == Stacks {
			least, most = 1, MaxDepth
		}
		if c.Fields < least || c.Fields > most {
			return fmt.Errorf("records of %d fields, not of %d to %d", c.Fields, least, most)
		}
		if c.Kind == InRing {
			return powerOfTwo(c.Records, MaxRing)
		}
		return powerOfTwo(c.Records, MaxRecords)
	}
	return fmt.Errorf("%v is no kind of cell", c.Kind)
}

func powerOfTwo(records, most int) error {
	if records < 2 || records > most || bits.OnesCount(uint(records)) != 1 {
		return fmt.Errorf("%d records, which is no power of two from 2 to %d", records, most)
	}
	return nil
}

func typed(t Type) error {
	if t != U64 && t != S64 {
		return fmt.Errorf("type %v is neither u64 nor s64", t)
	}
	return nil
}

// checker goes through the code once: as branches go forward, all ways to an
// instruction are known when it is reached.
type checker struct {
	s       Snippet
	types   map[int]Type
	in      []uint64 // values that are set on every way to an instruction
	reached []bool
	places  map[int]space // of the values that are words of cells
}

// space is what follows from a word of a cell on, in words.
type space struct{ cell, words int }

func (c *checker) insn(k int, i Insn) error {
	if !c.reached[k] {
		return errors.New("no way leads here")
	}
	if i.Op == Invalid || int(i.Op) >= len(opNames) {
		return errors.New("is not known")
	}
	for _, v := range i.Uses() {
		if v < 0 || v >= MaxValues || c.in[k]>>v&1 == 0 {
			return fmt.Errorf("v%d is not set on every way here", v)
		}
	}
	set := c.in[k]
	if i.Op.Sets() {
		if i.Dst < 0 || i.Dst >= MaxValues {
			return fmt.Errorf("v%d is not v0 to v%d", i.Dst, MaxValues-1)
		}
		if c.types[i.Dst] != NoType {
			return fmt.Errorf("v%d is set a second time", i.Dst)
		}
		if err := typed(i.Type); err != nil {
			return err
		}
		c.types[i.Dst] = i.Type
		set |= 1 << i.Dst
	}
	if err := c.form(k, i); err != nil {
		return err
	}
	if i.Op == Goto || i.Op == If {
		if i.To <= k || i.To > len(c.s.Code) {
			return fmt.Errorf("goes on at %d: only %d to %d lie ahead", i.To, k+1, len(c.s.Code))
		}
		c.flow(i.To, set)
	}
	if i.Op != Goto {
		c.flow(k+1, set)
	}
	return nil
}

// flow adds a way to an instruction, on which those values are set.
func (c *checker) flow(to int, set uint64) {
	if c.reached[to] {
		set &= c.in[to]
	}
	c.in[to], c.reached[to] = set, true
}

// form checks what an op asks of its operands.
func (c *checker) form(k int, i Insn) error {
	switch i.Op {
	case Const:
		if !i.A.IsConst {
			return errors.New("takes a constant")
		}
		if i.Name != "" && (i.Type != U64 || strings.ContainsAny(i.Name, " \t\n")) {
			return fmt.Errorf("%q is no symbol, or its address no u64", i.Name)
		}
	case Arg:
		if i.N < 0 || i.N >= MaxArgs {
			return fmt.Errorf("argument %d is not one of 0 to %d, which are in registers", i.N, MaxArgs-1)
		}
	case Reg:
		if i.Name == "" {
			return errors.New("names no register")
		}
	case Load:
		if err := width(i.N); err != nil {
			return err
		}
		return c.cell(i)
	case Extend:
		return width(i.N)
	case Task, Clock, Switch:
		if i.Off < 0 || i.Off > MaxTask {
			return fmt.Errorf("%d bytes into the task, not 0 to %d", i.Off, MaxTask)
		}
		if i.Op != Task {
			return c.clock(i)
		}
		return width(i.N)
	case Bits:
		if i.A.IsConst {
			return errors.New("takes a value, not a constant")
		}
	case Div:
		if !i.B.IsConst || i.B.Imm == 0 || i.Type != U64 {
			return errors.New("divides a u64 by a constant that is not 0")
		}
		return c.same(U64, i.A)
	case Slot, Index, Tally, Top:
		return c.place(i)
	case Add, Sub, And, Or, Xor:
		return c.same(i.Type, i.A, i.B)
	case Shl, Shr:
		if !i.B.IsConst || i.B.Imm > 63 {
			return errors.New("shifts by a constant from 0 to 63")
		}
		return c.same(i.Type, i.A)
	case If:
		return c.compare(i)
	case Count, Lower, Raise, Append, Stack:
		return c.cell(i)
	case Poison:
		if k != len(c.s.Code)-1 {
			return errors.New("comes last: values are lost")
		}
	}
	return nil
}

func width(n int) error {
	if n != 1 && n != 2 && n != 4 && n != 8 {
		return fmt.Errorf("%d bytes are not 1, 2, 4 or 8", n)
	}
	return nil
}

func (c *checker) compare(i Insn) error {
	if i.Cond < EQ || i.Cond > GE {
		return fmt.Errorf("%v is no comparison", i.Cond)
	}
	if i.A.IsConst {
		return errors.New("compares a value with something, not a constant")
	}
	return c.same(c.types[i.A.Value], i.B)
}

// same checks that all operands that are values have a type.
func (c *checker) same(t Type, all ...Operand) error {
	for _, o := range all {
		if !o.IsConst && c.types[o.Value] != t {
			return fmt.Errorf("v%d is %v where %v is wanted: extend it to that", o.Value, c.types[o.Value], t)
		}
	}
	return nil
}

func (c *checker) cell(i Insn) error {
	if i.Cell < 0 || i.Cell >= len(c.s.Cells) {
		return fmt.Errorf("c%d is not there", i.Cell)
	}
	cell := c.s.Cells[i.Cell]
	if want := map[Op]Kind{Count: Sum, Lower: Min, Raise: Max, Append: InRing, Stack: Stacks, Load: Faults, Clock: Clocks, Switch: Clocks}[i.Op]; cell.Kind != want {
		return fmt.Errorf("c%d is a %v, not a %v", i.Cell, cell.Kind, want)
	}
	switch i.Op {
	case Load, Stack, Clock, Switch: // an address is any number
		return nil
	case Count:
		return c.same(U64, i.A)
	case Append:
		if len(i.Fields) != cell.Fields {
			return fmt.Errorf("%d fields for records of %d", len(i.Fields), cell.Fields)
		}
		return nil
	}
	return c.same(cell.Type, i.A)
}

func (c *checker) clock(i Insn) error {
	if err := c.cell(i); err != nil {
		return err
	}
	if i.Op == Clock {
		if i.Type != U64 {
			return errors.New("is a u64")
		}
		return nil
	}
	if i.A.IsConst {
		return errors.New("takes a value, not a constant")
	}
	return c.same(U64, i.A)
}

// place checks what is about one word of a cell that has many: that it is in the cell
// whatever the numbers are.
func (c *checker) place(i Insn) error {
	if i.Cell < 0 || i.Cell >= len(c.s.Cells) {
		return fmt.Errorf("c%d is not there", i.Cell)
	}
	cell := c.s.Cells[i.Cell]
	if i.Op == Slot {
		if cell.Kind != Map || len(i.Fields) < 1 || len(i.Fields) > 2 || i.Type != U64 {
			return fmt.Errorf("c%d is a %v: one or two keys, and a u64, go with a map", i.Cell, cell.Kind)
		}
		for _, o := range i.Fields {
			if o.IsConst {
				return errors.New("a key is a value, not a constant")
			}
		}
		c.places[i.Dst] = space{i.Cell, cell.Fields}
		return nil
	}
	at := space{i.Cell, 0}
	switch {
	case !i.B.IsConst:
		at = c.places[i.B.Value]
	case i.Op == Index && cell.Kind == Array && i.B.Imm == 0:
		at.words = cell.Records
	}
	if at.cell != i.Cell || i.Off < 0 || i.N < 0 || int(i.Off)+i.N >= at.words {
		return fmt.Errorf("c%d has no such word for sure: %d of them follow, and words %d to %d are meant", i.Cell, at.words, i.Off, int(i.Off)+i.N)
	}
	if i.Op == Index {
		c.places[i.Dst] = space{i.Cell, 1}
	}
	return c.same(U64, i.A)
}
