package plan

import (
	"bytes"
	"errors"
	"fmt"

	"kerninst/agent/isa"
	"kerninst/agent/place"
)

// maxReplaced is KI_MAX_PATCH: the most bytes that a splice replaces.
const maxReplaced = 16

// Check verifies what must hold for every plan, from its bytes alone: whoever
// gets a plan from elsewhere asks it again before applying it.
func (p *Plan) Check(arch *isa.Arch) error {
	for _, c := range []func(*isa.Arch) error{p.checkShape, p.checkEntry, p.checkCode} {
		if err := c(arch); err != nil {
			return fmt.Errorf("plan for %v: %w", p.Point, err)
		}
	}
	return nil
}

func (p *Plan) checkShape(arch *isa.Arch) error {
	n := 0
	for _, i := range p.Displaced {
		if i.Addr != p.Point+isa.Addr(n) || !i.Movable() {
			return fmt.Errorf("displaced instruction at %v cannot be moved or not in its place", i.Addr)
		}
		n += i.Len
	}
	switch {
	case len(p.Old) != len(p.New) || len(p.New) == 0 || len(p.New) > maxReplaced:
		return fmt.Errorf("%d bytes replaced by %d", len(p.Old), len(p.New))
	case len(p.Displaced) == 0 || len(p.New) > n:
		return fmt.Errorf("%d bytes replaced, %d displaced", len(p.New), n)
	case p.Back != p.Point+isa.Addr(n):
		return fmt.Errorf("goes on at %v, not behind the %d displaced bytes", p.Back, n)
	case uint64(p.Patch)%place.Line != 0 || len(p.Code) == 0 || p.Cell%8 != 0:
		return fmt.Errorf("patch %v or cell %v is not aligned", p.Patch, p.Cell)
	case p.Window != (len(p.Displaced) > 1):
		return errors.New("window flag does not match the displaced instructions")
	case uint64(p.Point)%uint64(arch.MinLen) != 0:
		return errors.New("point is not aligned")
	}
	return nil
}

// checkEntry decodes New: it must lead to the patch and nowhere else.
func (p *Plan) checkEntry(arch *isa.Arch) error {
	to, n, ok := followJump(arch, p.New, p.Point)
	if !ok || n != len(p.New) || to != p.Patch {
		return fmt.Errorf("the bytes %x do not jump to the patch at %v", p.New, p.Patch)
	}
	return nil
}

// checkCode decodes the patch: only plain instructions before the way back, the
// displaced bytes unchanged in front of it, and the way back at the very end.
func (p *Plan) checkCode(arch *isa.Arch) error {
	var displaced []byte
	for k := 0; k < len(p.Code); {
		at := p.Patch + isa.Addr(k)
		if to, n, ok := followJump(arch, p.Code[k:], at); ok {
			if k+n != len(p.Code) || to != p.Back {
				return fmt.Errorf("jump at %v leads to %v, not back to %v at the patch's end", at, to, p.Back)
			}
			displaced = p.Code[:k]
			break
		}
		i := arch.Decode(p.Code[k:], at)
		if i.Flow != isa.FlowNone {
			return fmt.Errorf("instruction at %v of the patch is %v", at, i.Flow)
		}
		k += i.Len
	}
	if displaced == nil {
		return errors.New("the patch does not jump back")
	}
	return p.checkDisplaced(arch, displaced)
}

// checkDisplaced compares the displaced instructions in the patch, moved back
// to where they came from, with the bytes expected there.
// code is the patch without its way back.
func (p *Plan) checkDisplaced(arch *isa.Arch, code []byte) error {
	n := int(p.Back - p.Point)
	if len(code) < n {
		return errors.New("the patch is shorter than what it displaces")
	}
	at, moved := p.Patch+isa.Addr(len(code)-n), code[len(code)-n:]
	var original []byte
	for _, i := range p.Displaced {
		j := arch.Decode(moved[len(original):], at+isa.Addr(len(original)))
		if j.Len != i.Len || j.Rel32 != i.Rel32 || j.Operand != i.Operand {
			return fmt.Errorf("the patch has another instruction for that at %v", i.Addr)
		}
		back, err := j.Move(moved[len(original):], i.Addr)
		if err != nil {
			return err
		}
		original = append(original, back...)
	}
	if !bytes.HasPrefix(original, p.Old) {
		return errors.New("the patch does not end in the displaced bytes")
	}
	return nil
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
