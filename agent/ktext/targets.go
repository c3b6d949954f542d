package ktext

import (
	"fmt"

	"kerninst/agent/isa"
)

// scanPiece is how much text is read at a time while targets are collected.
const scanPiece = 1 << 20

// Targets returns every address in the kernel's text that direct control flow
// anywhere in it could reach, that a static key could make reachable, or where
// the kernel resumes after a fault. It is a superset: bytes are read as
// instructions at every alignment. The text is scanned once.
func (t *Text) Targets() (*isa.Marks, error) { return t.targets.get(t.scan) }

func (t *Text) scan() (*isa.Marks, error) {
	if t.Arch.Scan == nil {
		return nil, fmt.Errorf("%s: targets are not collected", t.Arch.Name)
	}
	x, err := t.tables.get(t.loadTables)
	if err != nil {
		return nil, err
	}
	m := isa.NewMarks(t.lo, t.hi, t.Arch.MinLen)
	for _, a := range x.targets {
		m.Add(a)
	}
	tail := t.Arch.ScanTail
	b := make([]byte, scanPiece+tail)
	for a := t.lo; a < t.hi; a += scanPiece {
		n := min(scanPiece, int(t.hi-a))
		clear(b[n:])
		if err := t.Read(a, b[:min(n+tail, int(t.hi-a))]); err != nil {
			return nil, err
		}
		t.Arch.Scan(b[:n+tail], a, m)
	}
	return m, nil
}
