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

// What the names of amd64's thunks begin with, and what comes behind that of all of them, which is
// one of the first one's (arch/x86/lib/retpoline.S). What comes behind those of one is its register.
const thunkPrefix, allThunks = "__x86_indirect_", "array"

// destination names what is at an address that is not inside f, or the register by which a thunk
// jumps that is there.
func (d *Daemon) destination(f ktext.Func, a isa.Addr) (to, by string) {
	at, ok := d.text.Locate(a)
	switch {
	case !ok || at.Addr == f.Addr && a != f.Addr:
		return "", ""
	case strings.HasPrefix(at.Name, thunkPrefix):
		for _, name := range d.text.Aliases(at) {
			if r := name[strings.LastIndexByte(name, '_')+1:]; strings.HasPrefix(name, thunkPrefix) && r != allThunks {
				by = r
			}
		}
		return "", by
	case a != at.Addr:
		return "", "" // into the middle of something
	}
	return d.text.Known(at).String(), ""
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
