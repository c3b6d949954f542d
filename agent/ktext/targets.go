package ktext

import (
	"fmt"

	"kerninst/agent/isa"
)

// scanPiece is how much text is read at a time while targets are collected.
const scanPiece = 1 << 20

// maxCode bounds the code of which targets are collected, in bytes.
const maxCode = 1 << 28

// Targets returns every address in a module's code, or with "" in the kernel's text,
// that direct control flow anywhere in it could reach, that a static key could make
// reachable, or where the kernel resumes after a fault. It is a superset: bytes are
// read as instructions at every alignment. Each text is scanned once. Others reach a
// module's code only through symbols and pointers.
func (t *Text) Targets(module string) (*isa.Marks, error) {
	if module == "" {
		return t.own.targets.get(t.scan)
	}
	m := t.mods[module]
	if m == nil {
		return nil, fmt.Errorf("module %s: its sections are not known", module)
	}
	return m.targets.get(func() (*isa.Marks, error) { return t.scanModule(m) })
}

func (t *Text) scan() (*isa.Marks, error) {
	x, err := t.own.tables.get(t.loadTables)
	if err != nil {
		return nil, err
	}
	return t.mark(x, []Section{{Addr: t.lo, Size: isa.Off(t.hi - t.lo)}})
}

func (t *Text) scanModule(m *module) (*isa.Marks, error) {
	x, err := m.tables.get(func() (*tables, error) { return t.moduleTables(m) })
	if err != nil {
		return nil, err
	}
	var code []Section
	for _, s := range t.codes {
		if t.mods[s.Module] == m {
			code = append(code, s)
		}
	}
	if code == nil {
		return nil, fmt.Errorf("module %s has no code", m.sections[0].Module)
	}
	return t.mark(x, code)
}

// mark scans code, sections in order of address, of which x are the tables.
func (t *Text) mark(x *tables, code []Section) (*isa.Marks, error) {
	if t.Arch.Scan == nil {
		return nil, fmt.Errorf("%s: targets are not collected", t.Arch.Name)
	}
	lo, hi := code[0].Addr, code[len(code)-1].End()
	if hi-lo > maxCode {
		return nil, fmt.Errorf("code from %v to %v: more than %d bytes", lo, hi, maxCode)
	}
	m := isa.NewMarks(lo, hi, t.Arch.MinLen)
	for _, a := range x.targets {
		m.Add(a)
	}
	for _, s := range code {
		if err := t.markSection(s.Addr, s.End(), m); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (t *Text) markSection(lo, hi isa.Addr, m *isa.Marks) error {
	tail := t.Arch.ScanTail
	b := make([]byte, min(scanPiece, int(hi-lo))+tail)
	for a := lo; a < hi; a += scanPiece {
		n := min(scanPiece, int(hi-a))
		clear(b[n:])
		if err := t.Read(a, b[:min(n+tail, int(hi-a))]); err != nil {
			return err
		}
		t.Arch.Scan(b[:n+tail], a, m)
	}
	return nil
}
