package daemon

import (
	"strings"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
)

// leads is where control goes from an instruction that calls, or jumps out of its function: to a
// function, or by what a register holds. Both are empty of all others.
func (d *Daemon) leads(a isa.Addr) (to, by string) {
	code := make([]byte, longest)
	f, ok := d.text.Locate(a)
	if !ok || d.text.Read(a, code) != nil {
		return "", ""
	}
	i := d.arch.Decode(code, a)
	switch i.Flow {
	case isa.FlowCall, isa.FlowJump:
		return d.destination(f, i.Target)
	case isa.FlowIndirectCall, isa.FlowIndirectJump:
		if target, ok := d.joined(a, code); ok {
			return d.destination(f, target)
		}
		if held := i.Reads &^ d.arch.NeverUse; i.Traits&isa.Load == 0 && len(held.Regs()) == 1 {
			return "", d.arch.Names(held)
		}
	}
	return "", ""
}

// destination names what is at an address that is not inside f. A thunk's name ends in the
// register that it jumps by (amd64: arch/x86/lib/retpoline.S).
func (d *Daemon) destination(f ktext.Func, a isa.Addr) (to, by string) {
	at, ok := d.text.Locate(a)
	switch {
	case !ok || at.Addr == f.Addr && a != f.Addr:
		return "", ""
	case strings.HasPrefix(at.Name, "__x86_indirect_"):
		return "", at.Name[strings.LastIndexByte(at.Name, '_')+1:]
	case a != at.Addr:
		return "", "" // into the middle of something
	}
	return at.String(), ""
}

// joined is where an indirect jump goes that one instruction makes together with the one before
// it: riscv64's auipc and jalr (Unprivileged ISA, 2.5).
func (d *Daemon) joined(a isa.Addr, code []byte) (isa.Addr, bool) {
	const size = 4 // of auipc, which has no shorter form
	before := make([]byte, size)
	if d.arch.Name != "riscv64" || d.text.Read(a-size, before) != nil {
		return 0, false
	}
	return cfg.JoinedTarget(d.arch.Op(code, a), d.arch.Op(before, a-size))
}
