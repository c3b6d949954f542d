package ktext

import (
	"bytes"

	"kerninst/agent/isa"
)

// decoded is what was decoded last, and from which bytes. To decode a function takes
// longest of all that is done with it, and who plans in it and who tells what is live there
// come one after the other.
type decoded struct {
	at    isa.Addr
	code  []byte
	insns []isa.Insn
}

// KeepDecoded takes note of what code, which lies at a, decodes to from its begin on. Both
// must stay as they are.
func (t *Text) KeepDecoded(a isa.Addr, code []byte, insns []isa.Insn) {
	t.last.Store(&decoded{a, code, insns})
}

// Decoded is what was kept of code at a, if it was the same bytes then; nil: decode it. It
// must stay as it is.
func (t *Text) Decoded(a isa.Addr, code []byte) []isa.Insn {
	d := t.last.Load()
	if d == nil || d.at != a || !bytes.Equal(d.code, code) {
		return nil
	}
	return d.insns
}
