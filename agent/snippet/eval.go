package snippet

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

// Env is what a snippet sees of the kernel when its point is reached. What it
// does not use may be nil.
type Env struct {
	Arg    func(n int) uint64
	Reg    func(name string) (uint64, bool)
	Ret    func() uint64
	Cycles func() uint64
	// Append puts a record into a cell's ring.
	Append func(cell int, fields []uint64)
	Load   func(addr uint64, bytes int) (uint64, bool) // without a sign; false: it cannot be read
	Stack  func() []uint64                             // the point's address first; nil: it cannot be looked at
	// Current is the address of the task that runs; Task are so many bytes of it, without a sign.
	Current func() uint64
	Task    func(off, bytes int) uint64
	// Clocks are the words of a cell's.
	Clocks func(cell int) []uint64
}

// Eval does what the snippet does, on the words of its cells. It is what
// generated code is compared with.
func (s Snippet) Eval(env Env, cells []uint64) error {
	if err := s.Check(); err != nil {
		return err
	}
	if len(cells) != s.Words() {
		return fmt.Errorf("snippet: %d words of cells, not %d", len(cells), s.Words())
	}
	m := machine{s: s, env: env, cells: cells, values: make([]uint64, s.Values()), types: make([]Type, s.Values())}
	for k := 0; k < len(s.Code); {
		next, err := m.step(k, s.Code[k])
		if err != nil {
			return fmt.Errorf("snippet: instruction %d: %w", k, err)
		}
		k = next
	}
	return nil
}

type machine struct {
	s      Snippet
	env    Env
	cells  []uint64
	values []uint64
	types  []Type
}

func (m *machine) get(o Operand) uint64 {
	if o.IsConst {
		return o.Imm
	}
	return m.values[o.Value]
}

// step does one instruction; next is the index of the one to go on with.
func (m *machine) step(k int, i Insn) (next int, err error) {
	if i.Op.Sets() {
		v, err := m.value(i)
		m.values[i.Dst], m.types[i.Dst] = v, i.Type
		return k + 1, err
	}
	switch i.Op {
	case Goto:
		return i.To, nil
	case If:
		if holds(i.Cond, m.types[i.A.Value], m.get(i.A), m.get(i.B)) {
			return i.To, nil
		}
	case Poison: // of registers that nobody reads
	default:
		m.change(i)
	}
	return k + 1, nil
}

// arithmetic is what the ops with two operands compute.
var arithmetic = map[Op]func(a, b uint64) uint64{
	Add: func(a, b uint64) uint64 { return a + b },
	Sub: func(a, b uint64) uint64 { return a - b },
	And: func(a, b uint64) uint64 { return a & b },
	Or:  func(a, b uint64) uint64 { return a | b },
	Xor: func(a, b uint64) uint64 { return a ^ b },
	Shl: func(a, b uint64) uint64 { return a << b },
}

func (m *machine) value(i Insn) (uint64, error) {
	switch i.Op {
	case Const:
		if i.Name != "" {
			return 0, fmt.Errorf("where %s is is not known", i.Name)
		}
		return i.A.Imm, nil
	case Arg:
		return m.env.Arg(i.N), nil
	case Reg:
		v, ok := m.env.Reg(i.Name)
		if !ok {
			return 0, fmt.Errorf("there is no register %q", i.Name)
		}
		return v, nil
	case Ret:
		return m.env.Ret(), nil
	case Cycles:
		return m.env.Cycles(), nil
	case Load:
		v, ok := m.env.Load(m.get(i.A)+uint64(int64(i.Off)), i.N)
		if !ok {
			m.cells[m.s.Word(i.Cell)]++
			return 0, nil
		}
		return extend(v, i.N, i.Type), nil
	case Bits:
		return uint64(bits.Len64(m.get(i.A))), nil
	case Div:
		return m.get(i.A) / i.B.Imm, nil
	case Current:
		return m.env.Current(), nil
	case Task:
		return extend(m.env.Task(int(i.Off), i.N), i.N, i.Type), nil
	case Slot:
		return m.slot(i), nil
	case Index:
		return m.get(i.B) + uint64(i.Off) + min(m.get(i.A), uint64(i.N)), nil
	case Clock:
		return m.env.Cycles() - *m.clock(i.Cell, m.env.Task(int(i.Off), 4)), nil
	case Extend:
		return extend(m.get(i.A), i.N, i.Type), nil
	case Shr:
		return shiftRight(m.get(i.A), i.B.Imm, i.Type), nil
	}
	if f := arithmetic[i.Op]; f != nil {
		return f(m.get(i.A), m.get(i.B)), nil
	}
	return 0, errors.New("sets nothing")
}

func shiftRight(x, by uint64, t Type) uint64 {
	if t == S64 {
		return uint64(int64(x) >> by)
	}
	return x >> by
}

// extend makes 64 bits of the low n bytes.
func extend(x uint64, n int, t Type) uint64 {
	by := uint64(64 - 8*n)
	return shiftRight(x<<by, by, t)
}

func holds(c Cond, t Type, a, b uint64) bool {
	less := a < b
	if t == S64 {
		less = int64(a) < int64(b)
	}
	switch c {
	case EQ:
		return a == b
	case NE:
		return a != b
	case LT:
		return less
	case LE:
		return less || a == b
	case GT:
		return !less && a != b
	}
	return !less
}

// change does what an instruction does to its cell.
func (m *machine) change(i Insn) {
	cell, at := m.s.Cells[i.Cell], m.cells[m.s.Word(i.Cell):]
	switch i.Op {
	case Count:
		at[0] += m.get(i.A)
	case Lower:
		if v := m.get(i.A); holds(LT, cell.Type, v, at[0]) {
			at[0] = v
		}
	case Raise:
		if v := m.get(i.A); holds(GT, cell.Type, v, at[0]) {
			at[0] = v
		}
	case Tally:
		at[m.get(i.B)+uint64(i.Off)] += m.get(i.A)
	case Top:
		w := &at[m.get(i.B)+uint64(i.Off)]
		*w = max(*w, m.get(i.A))
	case Switch:
		m.switched(i)
	case Append:
		var fields []uint64
		for _, o := range i.Fields {
			fields = append(fields, m.get(o))
		}
		m.env.Append(i.Cell, fields)
	case Stack:
		if rec, walked := reserve(cell, at), m.env.Stack(); rec != nil && len(walked) > 0 {
			copy(rec[1:1+cell.Fields], walked)
			rec[0] = at[0]
		}
	}
}

// clock is the word of a task's number.
func (m *machine) clock(cell int, number uint64) *uint64 {
	return &m.env.Clocks(cell)[number&uint64(m.s.Cells[cell].Records-1)]
}

// switched stops one clock and starts another.
func (m *machine) switched(i Insn) {
	now, none := m.env.Cycles(), m.clock(i.Cell, 0)
	if w := m.clock(i.Cell, m.get(i.A)); w != none {
		*w -= now
	}
	if w := m.clock(i.Cell, m.env.Task(int(i.Off), 4)); w != none {
		*w += now
	}
}

// reserve is the next record of a cell; nil: it is full.
func reserve(c Cell, at []uint64) []uint64 {
	n := at[0]
	at[0]++
	if n >= uint64(c.Records) {
		return nil
	}
	return at[1+int(n)*c.Stride():]
}

// slot finds the record of keys, or makes it.
func (m *machine) slot(i Insn) uint64 {
	cell, at := m.s.Cells[i.Cell], m.cells[m.s.Word(i.Cell):]
	keys := make([]uint64, len(i.Fields))
	for k, o := range i.Fields {
		keys[k] = m.get(o)
	}
	for k := range cell.Probes() {
		word := (cell.place(keys) + k) % cell.Records * cell.Stride()
		rec := at[word:]
		if rec[0] == 0 {
			rec[0] = Known
			copy(rec[1:MapHead], keys)
		}
		if rec[0] == Known && slices.Equal(rec[1:1+len(keys)], keys) {
			return uint64(word + MapHead)
		}
	}
	return 0
}
