package plan

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/place"
)

// maxReplaced is KI_MAX_PATCH: the most bytes that a splice replaces. A window's last
// instruction begins in the jump's last byte at the latest.
const maxReplaced = 24

// longestCopy is the most bytes of a patch that is a springboard itself: it takes room
// that others need.
const longestCopy = 16

// Check verifies what must hold for every plan, from its bytes alone: whoever
// gets a plan from elsewhere asks it again before applying it.
func (p *Plan) Check(arch *isa.Arch) error {
	for _, c := range []func(*isa.Arch) error{p.checkShape, p.checkPun, p.checkBoard, p.checkEntry, p.checkPatch} {
		if err := c(arch); err != nil {
			return fmt.Errorf("plan for %v: %w", p.Point, err)
		}
	}
	return nil
}

func (p *Plan) checkShape(arch *isa.Arch) error {
	n := 0
	for _, i := range p.Displaced {
		if i.Addr != p.Point+isa.Addr(n) {
			return fmt.Errorf("displaced instruction at %v is not in its place", i.Addr)
		}
		n += i.Len
	}
	switch {
	case len(p.Old) != len(p.New) || len(p.New) == 0 || len(p.New) > maxReplaced:
		return fmt.Errorf("%d bytes replaced by %d", len(p.Old), len(p.New))
	case len(p.Displaced) == 0 || len(p.New) > n && !p.filled(arch, n):
		return fmt.Errorf("%d bytes replaced, %d displaced", len(p.New), n)
	case len(p.Original) != n || !bytes.HasPrefix(p.Original, p.Old[:min(n, len(p.Old))]):
		return fmt.Errorf("the %d displaced bytes do not begin with those that are replaced", len(p.Original))
	case len(p.Free) != len(p.Displaced)+1:
		return fmt.Errorf("%d sets of free registers for %d instructions", len(p.Free), len(p.Displaced))
	case p.Lead < 0 || p.Lead >= len(p.Displaced):
		return fmt.Errorf("%d of %d displaced instructions lead up to the snippet", p.Lead, len(p.Displaced))
	case p.Start < 0 || p.Start > len(p.Code):
		return fmt.Errorf("the displaced instructions begin at %d of %d bytes", p.Start, len(p.Code))
	case p.Back != p.Point+isa.Addr(n):
		return fmt.Errorf("goes on at %v, not behind the %d displaced bytes", p.Back, n)
	case uint64(p.Patch)%place.Line != 0 || len(p.Code) == 0 || p.Cell%8 != 0:
		return fmt.Errorf("patch %v or cell %v is not aligned", p.Patch, p.Cell)
	case p.Slot < len(p.Code) || p.Slot < 8*p.Snippet.Words():
		return fmt.Errorf("a slot of %d bytes for %d bytes of code and %d words of cells", p.Slot, len(p.Code), p.Snippet.Words())
	case p.Annex == nil && p.Fault != 0 && (p.Lead > 0 || p.Fault != p.Patch+isa.Addr(p.Start) || p.Board != nil && p.Board.Whole ||
		!bytes.HasPrefix(p.Code[p.Start:], p.Original[:p.Displaced[0].Len])):
		return fmt.Errorf("what may fault at %v is not the instruction from %v", p.Fault, p.Point)
	case p.Window != (len(p.Displaced) > 1) || p.Window != (p.Mechanism == Quiesced):
		return fmt.Errorf("%d instructions displaced, the mechanism is %v", len(p.Displaced), p.Mechanism)
	case uint64(p.Point)%uint64(arch.MinLen) != 0:
		return errors.New("point is not aligned")
	}
	return gen.CheckLocals(arch, p.Snippet, p.Locals)
}

// filled reports whether what is replaced behind the n displaced bytes is what follows a
// return and is never run.
func (p *Plan) filled(arch *isa.Arch, n int) bool {
	last := p.Displaced[len(p.Displaced)-1]
	if int(last.Addr-p.Point) >= len(p.Original) {
		return false
	}
	i := arch.Decode(p.Original[last.Addr-p.Point:], last.Addr)
	return i.Flow == isa.FlowReturn && len(p.Old) > n && traps(arch, p.Old[n:]) == len(p.Old)-n
}

// checkBoard holds the springboard, which is there exactly if the mechanism is one,
// to be a jump to the patch or to do the same, outside what is displaced.
func (p *Plan) checkBoard(arch *isa.Arch) error {
	b := p.Board
	switch {
	case (b != nil) != (p.Mechanism == Springboard):
		return fmt.Errorf("springboard or none, but the mechanism is %v", p.Mechanism)
	case b == nil:
		return nil
	case len(b.Old) != len(b.New) || len(b.New) == 0 || len(b.New) > maxReplaced:
		return fmt.Errorf("%d bytes of springboard on %d", len(b.New), len(b.Old))
	case b.End() < b.Addr || b.Addr < p.End() && p.Point < b.End():
		return fmt.Errorf("springboard at %v on the displaced bytes", b.Addr)
	}
	if e := b.In; e != nil {
		if p.Point < e.End() && e.Body < p.End() {
			return fmt.Errorf("%s is moved away, and the point is in it", e.Name())
		}
		if err := e.check(arch, p); err != nil {
			return err
		}
	}
	if b.Whole {
		return p.checkWhole(arch)
	}
	return leadsTo(arch, b.New, b.Addr, p.Patch, p.unused(arch))
}

// checkWhole holds a copy of the patch to be what the patch is when it is made
// there, besides what checkCode asks of both.
func (p *Plan) checkWhole(arch *isa.Arch) error {
	want, _, err := wholeAt(arch, gen.Input{
		Snippet: p.Snippet, Cell: p.Cell, Locals: p.Locals, Displaced: p.Displaced, Lead: p.Lead,
		Bytes: p.Original, Back: p.Back, Free: p.Free, Loads: p.Loads, Task: p.Task, Near: true,
		Features: gen.Features{Preempted: p.Preempt},
	}, p.Board.Addr)
	switch {
	case err != nil:
		return fmt.Errorf("copy of the patch at %v: %w", p.Board.Addr, err)
	case !bytes.Equal(want.New, p.Board.New) || want.Start != p.Board.Start:
		return fmt.Errorf("the bytes %x at %v are no copy of the patch, %x", p.Board.New, p.Board.Addr, want.New)
	}
	return p.checkCode(arch, body{p.Board.New, p.Board.Addr, p.Board.Start})
}

// checkEntry decodes New: it must lead to the patch or its springboard and nowhere
// else.
func (p *Plan) checkEntry(arch *isa.Arch) error {
	if p.Mechanism == Trap {
		return p.checkTrap(arch)
	}
	if p.Board != nil {
		return leadsTo(arch, unfilled(arch, p.New, p.Point), p.Point, p.Board.Addr, 0)
	}
	return leadsTo(arch, slices.Concat(unfilled(arch, p.New, p.Point), p.Tail), p.Point, p.Patch, p.unused(arch))
}

// unfilled is a jump that is written over a longer instruction, without what fills the rest.
func unfilled(arch *isa.Arch, b []byte, a isa.Addr) []byte {
	_, n, ok := followJump(arch, b, a)
	if !ok || n > len(b) || !bytes.Equal(b[n:], filling(arch, n, len(b))) {
		return b
	}
	return b[:n]
}

// unused is what a jump to the patch may go through: nobody reads it, nor does the
// snippet.
func (p *Plan) unused(arch *isa.Arch) isa.RegSet {
	reads, err := gen.Reads(arch, p.Snippet)
	if err != nil {
		return 0
	}
	return p.Free[0] &^ reads
}

// leadsTo holds bytes to be a jump, if through a register then through one of free.
func leadsTo(arch *isa.Arch, b []byte, a, want isa.Addr, free isa.RegSet) error {
	to, n, ok := followJump(arch, b, a)
	if !ok || n != len(b) || to != want {
		return fmt.Errorf("the bytes %x at %v do not jump to %v", b, a, want)
	}
	if r := arch.Decode(b, a).Writes &^ (free &^ arch.NeverUse); r != 0 {
		return fmt.Errorf("the jump at %v overwrites %s", a, arch.Names(r))
	}
	return nil
}

// checkPatch is checkCode of the patch itself.
func (p *Plan) checkPatch(arch *isa.Arch) error {
	if p.Clone != nil {
		return p.checkClone(arch)
	}
	return p.checkCode(arch, body{p.Code, p.Patch, p.Start})
}

// body is a patch or a copy of one, and where the displaced instructions begin in it.
type body struct {
	code  []byte
	at    isa.Addr
	start int
}

// checkCode decodes a patch: the displaced instructions that lead up to the
// snippet, what goes nowhere but to its end, the others as their ISA moves them,
// then, if they go on, the way back, at the very end.
func (p *Plan) checkCode(arch *isa.Arch, b body) error {
	begin, _, err := p.checkDisplaced(arch, b, 0, p.Lead, 0)
	if err != nil {
		return err
	}
	if p.Called {
		return p.checkCalled(arch, b, begin)
	}
	if err := p.checkSnippet(arch, b, begin); err != nil {
		return err
	}
	if p.Annex != nil {
		return p.checkAnnex(arch, b)
	}
	k := b.start
	n, falls, err := p.checkDisplaced(arch, b, p.Lead, len(p.Displaced), k)
	if err != nil {
		return err
	}
	k += n
	if !falls {
		if k != len(b.code) || p.Home {
			return fmt.Errorf("%d bytes behind the end of the patch", len(b.code)-k)
		}
		return nil
	}
	if p.Home {
		return p.checkEnd(arch, b.code[k:])
	}
	if err := leadsTo(arch, b.code[k:], b.at+isa.Addr(k), p.Back, p.Free[len(p.Free)-1]); err != nil {
		return fmt.Errorf("the patch does not end in a jump back to %v: %w", p.Back, err)
	}
	return nil
}

// checkEnd holds the end of a patch to be a breakpoint, and the point to be one that such a
// patch may have: nobody falls asleep in it, and it is in one piece.
func (p *Plan) checkEnd(arch *isa.Arch, end []byte) error {
	switch {
	case p.Mechanism != Trap || p.Fault != 0 || p.Called:
		return fmt.Errorf("the patch ends in a breakpoint, and the mechanism is %v, or somebody sleeps in it", p.Mechanism)
	case !bytes.Equal(end, arch.Break):
		return fmt.Errorf("the patch ends in %x, which is no breakpoint", end)
	}
	return nil
}

// checkSnippet decodes what begins at an offset and ends at Start: it may branch, but
// only to an instruction of its own or to its end, and call what the module loads and walks with.
func (p *Plan) checkSnippet(arch *isa.Arch, b body, k int) error {
	begins := map[isa.Addr]bool{b.at + isa.Addr(b.start): true}
	var branches []isa.Insn
	for k < b.start {
		i := arch.Decode(b.code[k:], b.at+isa.Addr(k))
		begins[i.Addr] = true
		if n := p.moduleCall(arch, b, k); n > 0 {
			k += n
			continue
		}
		switch i.Flow {
		case isa.FlowNone:
		case isa.FlowJump, isa.FlowCond:
			branches = append(branches, i)
		default:
			return fmt.Errorf("instruction at %v of the patch is %v", i.Addr, i.Flow)
		}
		k += i.Len
	}
	if k != b.start {
		return errors.New("the displaced instructions begin inside another")
	}
	for _, i := range branches {
		if !begins[i.Target] {
			return fmt.Errorf("the branch at %v of the patch leads to %v, where none of the snippet's instructions begins", i.Addr, i.Target)
		}
	}
	return nil
}

// moduleCall is the length of the call at an offset of a patch, if it is one of what
// the module loads or walks with, and the snippet asks for that.
func (p *Plan) moduleCall(arch *isa.Arch, b body, k int) int {
	if p.Loads == 0 {
		return 0
	}
	from, rest := b.at+isa.Addr(k), b.code[k:b.start]
	if p.Snippet.Walks() {
		if call, _, err := gen.WalkCall(arch, from, p.Loads); err == nil && bytes.HasPrefix(rest, call) {
			return len(call)
		}
	}
	if !p.Snippet.Loads() {
		return 0
	}
	for _, size := range gen.LoadSizes {
		if call, _, err := gen.LoadCall(arch, from, p.Loads, size); err == nil && bytes.HasPrefix(rest, call) {
			return len(call)
		}
	}
	return 0
}

// checkDisplaced moves the original bytes of some of the displaced instructions to an
// offset of the patch once more, and compares. It returns the length of what they
// became, and whether control goes on behind it.
func (p *Plan) checkDisplaced(arch *isa.Arch, b body, first, end, at int) (n int, falls bool, err error) {
	for k := first; k < end; k++ {
		d := p.Displaced[k]
		from := p.Original[d.Addr-p.Point:]
		i := arch.Decode(from, d.Addr)
		if i.Len != d.Len {
			return 0, false, fmt.Errorf("the bytes at %v are %d long, not %d", d.Addr, i.Len, d.Len)
		}
		m, err := arch.Move(i, from, b.at+isa.Addr(at+n), p.Free[k])
		switch {
		case err != nil:
			return 0, false, fmt.Errorf("%v: %w", d.Addr, err)
		case !bytes.HasPrefix(b.code[min(at+n, len(b.code)):], m.Code):
			return 0, false, fmt.Errorf("the patch does something else than the instruction at %v", d.Addr)
		case m.Ends && k < len(p.Displaced)-1:
			return 0, false, fmt.Errorf("control does not go on from %v to what is displaced behind it", d.Addr)
		case k < p.Lead && i.Flow != isa.FlowNone:
			return 0, false, fmt.Errorf("control may leave at %v, before the snippet", d.Addr)
		}
		n, falls = n+len(m.Code), !m.Ends
	}
	return n, falls, nil
}

// followJump decodes a direct jump, or auipc and jalr through one register.
func followJump(arch *isa.Arch, b []byte, a isa.Addr) (to isa.Addr, n int, ok bool) {
	i := arch.Decode(b, a)
	if i.Flow == isa.FlowJump {
		return i.Target, i.Len, true
	}
	if arch.Far == nil {
		return 0, 0, false
	}
	return arch.Far(b, a)
}
