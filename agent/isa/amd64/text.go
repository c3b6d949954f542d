package amd64

import (
	"fmt"
	"strings"

	"golang.org/x/arch/x86/x86asm"

	"kerninst/agent/isa"
)

// corrections lists encodings that x86asm v0.30.0 gets wrong or does not know,
// as far as kernel text holds them.
var corrections = []struct {
	bytes, text, why string
}{
	{"\xf3\x0f\x1e\xfa", "endbr64", "decoded as a lone rep"},
	{"\x0f\x01\xca", "clac", "unknown"},
	{"\x0f\x01\xcb", "stac", "unknown"},
	{"\x0f\x01\xf8", "swapgs", "operands differ by mode"},
}

// Text disassembles one instruction in AT&T syntax. What Decode does not understand,
// or x86asm takes to have another length, is printed as bytes.
func Text(b []byte, a isa.Addr) string {
	i := Decode(b, a)
	n := min(i.Len, len(b))
	if i.Flow == isa.FlowUnknown {
		return rawBytes(b[:n])
	}
	for _, c := range corrections {
		if string(b[:n]) == c.bytes {
			return c.text
		}
	}
	x, err := x86asm.Decode(b[:n], 64)
	if err != nil || x.Len != n || x.Op == 0 {
		return rawBytes(b[:n])
	}
	if s := branchText(x, i); s != "" {
		return s
	}
	// An index register that is absent is printed as riz.
	return strings.ReplaceAll(x86asm.GNUSyntax(x, uint64(a), nil), ",%riz)", ")")
}

// branchText prints direct branches with the target's address.
func branchText(x x86asm.Inst, i isa.Insn) string {
	switch i.Flow {
	case isa.FlowJump, isa.FlowCond, isa.FlowCall:
		return fmt.Sprintf("%s %v", strings.ToLower(x.Op.String()), i.Target)
	}
	return ""
}

func rawBytes(b []byte) string {
	var s strings.Builder
	s.WriteString(".byte ")
	for k, c := range b {
		if k > 0 {
			s.WriteString(",")
		}
		fmt.Fprintf(&s, "%#02x", c)
	}
	return s.String()
}
