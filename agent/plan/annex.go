package plan

import (
	"bytes"
	"errors"
	"fmt"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/place"
)

// A patch in two parts (arm64). What may fault, with a fixup, has to be displaced into
// the module's text, the annex, and with KASLR that is not in reach of a b from the
// kernel. Then the patch proper lies in an area in reach, like any other, and holds the
// snippet; from its end an adrp, an add and a br lead to the annex, where the displaced
// instruction is, and such three from there back into the kernel.
//
// They take a register. Where none is free, x16 is pushed before and popped where the
// br leads, so that the displaced instruction runs, and faults, with the stack pointer
// and the registers of the point: its fixup is the kernel's own and knows of no patch.
// Behind it the way back is then by the patch proper, which pops x16 and branches on.
//
// Written are both parts, then the exception table, then the point; undone is the
// point alone, and both parts stay until nobody is in either. The kernel's side keeps
// them as one patch of two ranges: who is found in one of them holds both. What
// whoever is there meets:
//
//   - Another CPU at the point while it changes: it waits in stop_machine. Before and
//     after, the point is one whole instruction.
//   - An interrupt or an NMI anywhere in the patch: it returns there. The stack pointer
//     is lowered before anything is written below it, so what is pushed is safe. No
//     part is overwritten meanwhile: a CPU that was interrupted in it passes no
//     quiescence before it has left, whichever part it is in.
//   - A task that is preempted (kernels that do): its stack holds the address, and the
//     quiescence waits until it has run on, as for any patch.
//   - A page fault of the displaced instruction: its address is the module's text, for
//     which the table has had an entry, with the original's fixup, since before the
//     point led here. What is handled by bringing the page comes back to the
//     instruction; who sleeps meanwhile has its address on his stack, in the registers
//     that the fault saved, and so holds both parts, of which he will run the rest. What
//     is handled by the fixup goes to the kernel, with the registers of the point.
//   - A page fault elsewhere in the patch: none. The stack and the cells are mapped.
//   - A backtrace: the frame pointer and the link register are the kernel's in both
//     parts; only the address itself is the patch's.
//   - Landing pads: none. A br wants one only in pages that ask for it, which kernels
//     without CONFIG_ARM64_BTI_KERNEL have none of. GCC cannot make such kernels,
//     Debian's is without, and the module refuses second parts on one that is with.
//   - The kernel's own writers: no part is text that they know of, and probes are barred
//     from the annex by its section.

// Annex is the second part of a patch, with the displaced instruction.
type Annex struct {
	Addr   isa.Addr    `json:"addr"`
	Code   []byte      `json:"code"`
	States []gen.State `json:"states"` // as in Plan, of Code
}

// annexed finds a slot for the second part of a patch that reaches no slot in the annex.
func (fn *function) annexed(req Request, w window) (isa.Addr, *Refusal) {
	// Memory and indirect branches may end an exclusive sequence: the way to a second part has both.
	if fn.insns[w.first].Traits&isa.Exclusive != 0 {
		return 0, refuse(ExclusiveSequence, "%s begins an exclusive sequence and has an exception-table entry, and no free slot in reach is in the module's own text", fn.name(w.first))
	}
	lo, hi := fn.insns[w.first].Addr, fn.insns[w.first+w.count-1].End()
	a, _, ok := req.Heap.Peek(gen.AnnexRoom, place.FarReach(fn.text.Arch, lo, hi), true)
	if !ok || w.count > 1 {
		return 0, refuse(MayFault, "%s has an exception-table entry, and no free slot in reach is in the module's own text", fn.name(w.first))
	}
	return a, nil
}

func annexOf(in gen.Input, out gen.Output) *Annex {
	if in.Annex == 0 {
		return nil
	}
	return &Annex{Addr: in.Annex, Code: out.Annex.Code, States: out.Annex.States}
}

// checkAnnex decodes what is behind the snippet of a patch in two parts: a leap to the
// second, which is the displaced instruction, unchanged, and a leap back, or to the end
// of the first, which jumps back.
func (p *Plan) checkAnnex(arch *isa.Arch, b body) error {
	if err := p.checkAnnexShape(); err != nil {
		return err
	}
	a := p.Annex
	there, err := readLeap(arch, b.code[b.start:], b.at+isa.Addr(b.start), p.Free[0])
	if err != nil {
		return err
	}
	first := arch.Decode(p.Original, p.Point)
	land, err := gen.Landing(arch, there)
	switch {
	case err != nil:
		return err
	case there.To != a.Addr:
		return fmt.Errorf("the patch leads to %v, not to its part at %v", there.To, a.Addr)
	case !there.Saved && first.Reads.Has(there.Reg):
		return fmt.Errorf("the way to the annex takes %s, which the instruction from %v reads", arch.RegName(there.Reg), p.Point)
	case !bytes.HasPrefix(a.Code, land) || p.Fault != a.Addr+isa.Addr(len(land)):
		return fmt.Errorf("%v in the annex is not where the registers of the point are back", p.Fault)
	}
	k := len(land)
	n, falls, err := p.checkDisplaced(arch, body{code: a.Code, at: a.Addr}, 0, 1, k)
	switch {
	case err != nil:
		return err
	case !falls || !bytes.HasPrefix(a.Code[k:], p.Original):
		return fmt.Errorf("what may fault at %v is not the instruction from %v", p.Fault, p.Point)
	}
	home, err := readLeap(arch, a.Code[k+n:], a.Addr+isa.Addr(k+n), p.Free[1])
	if err != nil {
		return err
	}
	if k+n+home.Len != len(a.Code) {
		return errors.New("bytes behind the end of the annex's part")
	}
	return p.checkHome(arch, b, b.start+there.Len, home)
}

func (p *Plan) checkAnnexShape() error {
	switch {
	case p.Fault == 0 || p.Lead != 0 || len(p.Displaced) != 1 || p.Board != nil:
		return errors.New("only one instruction that may fault, and what is reached by one jump, has a part in the annex")
	case uint64(p.Annex.Addr)%place.Line != 0:
		return fmt.Errorf("the part at %v is not aligned", p.Annex.Addr)
	case p.Annex.Addr < p.Patch+isa.Addr(p.Slot) && p.Patch < p.Annex.Addr+isa.Addr(len(p.Annex.Code)):
		return fmt.Errorf("the part at %v is on the other one", p.Annex.Addr)
	}
	return nil
}

// checkHome holds the leap from the annex to lead behind the point; by the patch's end,
// which begins at an offset, if a register has to be popped there.
func (p *Plan) checkHome(arch *isa.Arch, b body, k int, home gen.Leap) error {
	if !home.Saved {
		if k != len(b.code) || home.To != p.Back {
			return fmt.Errorf("the annex leads to %v, not back to %v", home.To, p.Back)
		}
		return nil
	}
	land, err := gen.Landing(arch, home)
	if err != nil {
		return err
	}
	if home.To != b.at+isa.Addr(k) || !bytes.HasPrefix(b.code[k:], land) {
		return fmt.Errorf("the annex leads to %v, and not to where its register is popped", home.To)
	}
	k += len(land)
	return leadsTo(arch, b.code[k:], b.at+isa.Addr(k), p.Back, 0)
}

// readLeap decodes a leap that takes no register but one of those that are free.
func readLeap(arch *isa.Arch, b []byte, a isa.Addr, free isa.RegSet) (gen.Leap, error) {
	l, ok := gen.ReadLeap(arch, b, a)
	switch {
	case !ok:
		return l, fmt.Errorf("the bytes at %v do not lead from one part of the patch to another", a)
	case !l.Saved && !(free &^ arch.NeverUse).Has(l.Reg):
		return l, fmt.Errorf("the way from %v takes %s, which is not free", a, arch.RegName(l.Reg))
	}
	return l, nil
}
