// Package pad finds the bytes in front of functions that nothing runs and nobody
// uses, and functions that can be moved away: where springboards may lie.
//
// Method, for the former (for the latter see Leaf). Compilers put padding in front of every function and a symbol on it, for
// mitigations that write code there. Where the bytes are still nops, none does. They
// are dead if
//
//   - nothing falls into them: what is before them in memory ends in an instruction
//     behind which control never goes on;
//   - nothing jumps there: no bytes anywhere in the kernel's text, or for a module's
//     padding in its code, can be read as a jump, call or address of theirs with a
//     distance of four bytes (ktext.Targets), and no instruction within 128 bytes has
//     them as its target;
//   - the kernel neither rewrites them nor bars them to probes.
//
// Whatever is not known for certain is not padding.
package pad

import (
	"sync"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
)

// Gap is a run of dead bytes, [Lo, Hi).
type Gap struct{ Lo, Hi isa.Addr }

// Fill is a byte that compilers fill padding with, by ISA. On the others functions
// have none in front.
var fills = map[string]byte{"amd64": 0x90}

// short is how far jumps reach that ktext.Targets does not know, in bytes.
const short = 128

// Finder looks for padding in one kernel. It remembers what it found out of code;
// the padding itself is read each time. It is safe for use by several goroutines.
type Finder struct {
	text *ktext.Text

	mu     sync.Mutex
	known  map[isa.Addr]bool // by the padding's start: whether it is dead
	leaves map[stretchKey][]Leaf
}

// New returns a Finder that knows nothing yet.
func New(t *ktext.Text) *Finder {
	return &Finder{text: t, known: map[isa.Addr]bool{}, leaves: map[stretchKey][]Leaf{}}
}

// Near lists the gaps that overlap [lo, hi) in the code that at is in, of the kernel or
// of a module, in order, each whole. The error is that of text that cannot be read.
func (f *Finder) Near(at, lo, hi isa.Addr) ([]Gap, error) {
	r, ok := f.text.RunOf(at)
	if _, fill := fills[f.text.Arch.Name]; !fill || !ok {
		return nil, nil
	}
	var out []Gap
	_, err := f.each(r, lo, hi, func(p ktext.Func) error {
		if !cfg.IsPaddingName(p.Name) {
			return nil
		}
		ok, err := f.usable(r, p)
		if ok {
			out = append(out, Gap{p.Addr, p.End()})
		}
		return err
	})
	return out, err
}

// each visits the functions that overlap [lo, hi) in a run of code. all is false if
// some of that is of no symbol; what lies behind is not visited.
func (f *Finder) each(r ktext.Run, lo, hi isa.Addr, visit func(ktext.Func) error) (all bool, err error) {
	lo, hi = max(lo, r.Lo), min(hi, r.Hi)
	for a := lo; a < hi; {
		fn, ok := f.text.Locate(a)
		if !ok || fn.Module != r.Module {
			return false, nil
		}
		if err := visit(fn); err != nil {
			return false, err
		}
		a = fn.End()
	}
	return true, nil
}

// usable reports whether a padding symbol is dead, and all of it still filled.
func (f *Finder) usable(r ktext.Run, p ktext.Func) (bool, error) {
	b := make([]byte, p.Size)
	if err := f.text.Read(p.Addr, b); err != nil {
		return false, err
	}
	for _, c := range b {
		if c != fills[f.text.Arch.Name] {
			return false, nil
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	dead, ok := f.known[p.Addr]
	if ok {
		return dead, nil
	}
	dead, err := f.dead(r, p)
	if err == nil {
		f.known[p.Addr] = dead
	}
	return dead, err
}

// dead reports whether nothing runs or uses padding, of a run of code.
func (f *Finder) dead(r ktext.Run, p ktext.Func) (bool, error) {
	owner, ok := f.text.Locate(p.End())
	if !ok || p.Addr <= r.Lo || p.End() >= r.Hi {
		return false, nil
	}
	if _, reserved, err := f.text.Reserved(owner, p.Addr, p.End()); err != nil || reserved {
		return false, err
	}
	m, err := f.text.Targets(r.Module)
	if err != nil {
		return false, err
	}
	if _, ok := m.First(p.Addr, p.End()); ok {
		return false, nil
	}
	dead := true
	all, err := f.each(r, max(p.Addr-short, r.Lo), p.End()+short, func(n ktext.Func) error {
		if dead && n.Addr != p.Addr {
			leads, err := f.leads(n, p)
			dead = dead && !leads
			return err
		}
		return nil
	})
	return dead && all, err
}

// leads reports whether code of n jumps or falls into padding, or may do so: all
// of n must be understood for it not to.
func (f *Finder) leads(n, p ktext.Func) (bool, error) {
	code, err := f.text.Code(n)
	if err != nil {
		return false, err
	}
	arch, falls := f.text.Arch, true
	for k := 0; k < len(code); {
		i := arch.Decode(code[k:], n.Addr+isa.Addr(k))
		hit := i.Target >= p.Addr && i.Target < p.End()
		switch {
		case i.Traits&isa.Lost != 0 || k+i.Len > len(code):
			return true, nil
		case hit && (i.Flow == isa.FlowJump || i.Flow == isa.FlowCond || i.Flow == isa.FlowCall):
			return true, nil
		case falls || !cfg.IsPad(arch.Name, i, code[k:]):
			falls = !f.stops(i, code[k:])
		}
		k += i.Len
	}
	return falls && n.End() == p.Addr, nil
}

// neverReturns is what functions end in a call of that no other instruction follows.
// Who else does not return is not known here.
const neverReturns = "__stack_chk_fail"

// stops reports whether control never goes on behind an instruction. It may do so
// behind a call, and behind a trap that WARN made; not behind a breakpoint.
func (f *Finder) stops(i isa.Insn, code []byte) bool {
	switch i.Flow {
	case isa.FlowJump, isa.FlowIndirectJump, isa.FlowReturn:
		return true
	case isa.FlowCall:
		callee, ok := f.text.Locate(i.Target)
		return ok && callee.Name == neverReturns && callee.Addr == i.Target
	case isa.FlowTrap:
		return code[0] == 0xcc
	}
	return false
}
