package report

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
)

// line is one line of a listing.
type line struct {
	Offset string // from the first line
	Bytes  string
	Text   string // disassembly, "" where there is none
}

// splice is the readable form of one spliced point.
type splice struct {
	Before, After, Patch []line
}

// listing of a point that was spliced. The bytes come from a results file, so
// whatever they are, the listing covers all of them.
func listing(arch string, p *Point) splice {
	d := disassembler{arch: arch, point: p}
	return splice{
		Before: named(d.lines(p.begin(), p.Old, false), p.Displaced),
		After:  d.after(),
		Patch:  append(d.lines(p.PatchAddress, p.Patch, false), d.lines(p.AnnexAddress, p.Annex, false)...),
	}
}

// begin is where the bytes of a point are.
func (p *Point) begin() string {
	if p.WrittenAt != "" {
		return p.WrittenAt
	}
	return p.Address
}

// disassembler lists the code of one point.
type disassembler struct {
	arch  string
	point *Point
}

// after is what stands at the point now. A pun is a jump of which the point
// holds the first bytes only: it cannot be decoded without its successor.
func (d *disassembler) after() []line {
	b, err := hex.DecodeString(d.point.New)
	if err == nil && d.point.Mechanism == "pun" {
		return []line{{"+00", show(d.arch, b), "jmp patch (tail shared)"}}
	}
	return d.lines(d.point.begin(), d.point.New, true)
}

// maxLines of one listing: a patch is some ten instructions, a clone more than
// anyone reads.
const maxLines = 64

// lines of the code at address. With stop, what follows a jump is not decoded:
// it is the rest of an instruction that was longer than the jump.
func (d *disassembler) lines(address, code string, stop bool) []line {
	b, err := hex.DecodeString(code)
	if err != nil {
		return nil // cannot be: Validate
	}
	at := number64(address)
	start := at
	var out []line
	for len(b) > 0 {
		if len(out) == maxLines {
			return append(out, line{Bytes: fmt.Sprintf("%d more bytes", len(b))})
		}
		n, text, left := d.step(b, at)
		out = append(out, line{fmt.Sprintf("+%02x", at-start), show(d.arch, b[:n]), text})
		b, at = b[n:], at+uint64(n)
		if stop && left && len(b) > 0 {
			return append(out, line{fmt.Sprintf("+%02x", at-start), fmt.Sprintf("% x", b), "(never reached)"})
		}
	}
	return out
}

// step is the length of the instruction that b begins with, its text, and
// whether control leaves there. Bytes that do not decode have a length only.
func (d *disassembler) step(b []byte, at uint64) (n int, text string, leaves bool) {
	if a, err := all.Lookup(d.arch); err == nil {
		i := a.Decode(b, isa.Addr(at))
		if i.Flow != isa.FlowUnknown && i.Len <= len(b) {
			leaves = i.Flow == isa.FlowJump || i.Flow == isa.FlowIndirectJump
			return i.Len, d.targets(a.Text(b[:i.Len], i.Addr), i), leaves
		}
	}
	n = 1
	switch {
	case d.arch == "arm64":
		n = 4
	case d.arch == "riscv64" && b[0]&3 == 3: // unprivileged manual, 1.5: 32 bits or more
		n = 4
	case d.arch == "riscv64":
		n = 2
	}
	return min(n, len(b)), "", false
}

// targets names the two places that a splice jumps between.
func (d *disassembler) targets(text string, i isa.Insn) string {
	if i.Target == 0 {
		return text
	}
	point, patch := number64(d.point.begin()), number64(d.point.PatchAddress)
	near := uint64(i.Target) - point // wraps around below the point
	switch {
	case uint64(i.Target) == patch:
		return strings.Replace(text, i.Target.String(), "patch", 1)
	case near < 32:
		return strings.Replace(text, i.Target.String(), fmt.Sprintf("point+%#x", near), 1)
	}
	return text
}

// named gives the displaced instructions the planner's text where they have
// none.
func named(lines []line, known []string) []line {
	for i := range lines {
		if len(known) == len(lines) {
			lines[i].Text = cmp.Or(lines[i].Text, known[i])
		}
	}
	return lines
}

// number64 reads an address; the empty one is 0.
func number64(s string) uint64 {
	n, _ := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 64)
	return n
}

// show prints the bytes of an instruction as objdump does: in memory order
// where lengths vary by the byte, else as one little-endian word.
func show(arch string, b []byte) string {
	switch {
	case arch != "amd64" && len(b) == 4:
		return fmt.Sprintf("%08x", binary.LittleEndian.Uint32(b))
	case arch != "amd64" && len(b) == 2:
		return fmt.Sprintf("%04x", binary.LittleEndian.Uint16(b))
	}
	return fmt.Sprintf("% x", b)
}
