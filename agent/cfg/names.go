package cfg

import (
	"strings"

	"kerninst/agent/isa"
)

// A pin says what control does at a symbol whose code does not show it: thunks
// that the kernel rewrites, or whose code is a trick played on the return
// predictor.
type pin struct {
	arch, name string // a final * stands for any rest
	kind       Kind
	why        string
}

var pins = []pin{
	{"amd64", "__x86_return_thunk", KindReturn, "returns; its body misleads the return predictor on purpose"},
	{"amd64", "srso_return_thunk", KindReturn, "likewise"},
	{"amd64", "srso_alias_return_thunk", KindReturn, "likewise"},
	{"amd64", "retbleed_return_thunk", KindReturn, "likewise"},
	{"amd64", "its_return_thunk", KindReturn, "likewise"},
	{"amd64", "call_depth_return_thunk", KindReturn, "likewise"},
	{"amd64", "__x86_indirect_thunk_*", KindTail, "jumps to what the register in its name holds"},
	{"amd64", "__x86_indirect_jump_thunk_*", KindTail, "likewise"},
	{"amd64", "__x86_indirect_call_thunk_*", KindTail, "likewise"},
	{"amd64", "__x86_indirect_its_thunk_*", KindTail, "likewise"},
	{"amd64", "__SCT__*", KindTail, "rewritten to jump to another function, or to return"},
}

// pinned is a pin found in a kernel.
type pinned struct {
	block Block
	reads isa.RegSet
}

// Reads is what a pinned block reads itself: the register in a thunk's name.
func (g *Graph) Reads(b Block) isa.RegSet {
	for _, p := range g.pins {
		if p.block == b {
			return p.reads
		}
	}
	return 0
}

func findPin(arch, name string) *pin {
	for k := range pins {
		p := &pins[k]
		stem, open := strings.CutSuffix(p.name, "*")
		if p.arch == arch && (name == p.name || open && strings.HasPrefix(name, stem)) {
			return p
		}
	}
	return nil
}

// Returns reports whether a symbol is what jumps lead to that return.
func Returns(arch, name string) bool {
	p := findPin(arch, name)
	return p != nil && p.kind == KindReturn
}

// JumpsOn reports whether a symbol is what jumps lead to that go on to where a register says.
func JumpsOn(arch, name string) bool {
	p := findPin(arch, name)
	return p != nil && p.kind == KindTail
}

// JumpsBy is the register by which what jumps lead to goes on, if its name says so.
func JumpsBy(a *isa.Arch, name string) (isa.Reg, bool) {
	if !JumpsOn(a.Name, name) {
		return 0, false
	}
	by := thunkReads(a, name).Regs()
	if len(by) != 1 {
		return 0, false
	}
	return by[0], true
}

// thunkReads is the register that a thunk's name ends in; everything, if the
// name ends in none.
func thunkReads(a *isa.Arch, name string) isa.RegSet {
	last := name[strings.LastIndexByte(name, '_')+1:]
	for r := isa.Reg(0); r < a.Flags; r++ {
		if a.All.Has(r) && a.RegName(r) == last {
			return isa.Set(r)
		}
	}
	return a.All
}

// paddingPrefixes begin the names of symbols that stand for padding in front of
// a function.
var paddingPrefixes = []string{"__pfx_", "__cfi_"}

// IsPaddingName reports whether a symbol stands for padding in front of a function.
func IsPaddingName(name string) bool {
	for _, p := range paddingPrefixes {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// A trap is an instruction of FlowTrap that does not end the path. Code is
// compared under mask as a little-endian word, behind amd64's prefixes.
type trap struct {
	arch       string
	mask, code uint32
	kind       Kind
	why        string
}

var traps = []trap{
	{"amd64", 0xffffffff, 0x65780b0f, KindGate, "ud2 and xen: Xen emulates the instruction that follows"},
	{"amd64", 0xff, 0xcf, KindExit, "iret"},
	{"amd64", 0xffff, 0x070f, KindExit, "sysret"},
	{"amd64", 0xffff, 0x350f, KindExit, "sysexit"},
	{"amd64", 0xffff, 0x050f, KindGate, "syscall"},
	{"amd64", 0xffff, 0x340f, KindGate, "sysenter"},
	{"amd64", 0xff, 0xcd, KindGate, "int"},
	{"amd64", 0xffffff, 0xc1010f, KindGate, "vmcall"},
	{"amd64", 0xffffff, 0xd9010f, KindGate, "vmmcall, vmgexit"},
	{"amd64", 0xffffff, 0xc2010f, KindGate, "vmlaunch"},
	{"amd64", 0xffffff, 0xc3010f, KindGate, "vmresume"},
	{"amd64", 0xffffff, 0xd8010f, KindGate, "vmrun"},
	{"amd64", 0xffffff, 0xcc010f, KindGate, "tdcall"},
	{"amd64", 0xffffff, 0xcf010f, KindGate, "seamcall"},
	{"amd64", 0xffff, 0xcccc, KindTrap, "int3 before another: padding"},
	{"amd64", 0xff, 0xcc, KindGate, "int3: a kprobe's, behind which the code goes on"},
	{"arm64", 0xffffffff, 0xd4200080, KindGate, "brk #4: a kprobe's"},
	{"arm64", 0xffffffff, 0xd42000c0, KindGate, "brk #6: behind a kprobe's copy"},
	{"arm64", 0xffffffdf, 0xd4208000, KindGate, "brk #0x400, #0x401: a debugger's"},
	{"arm64", 0xfffffbff, 0xd69f03e0, KindExit, "eret"},
	{"arm64", 0xffffffff, 0xd69f0bff, KindExit, "eretaa"},
	{"arm64", 0xffffffff, 0xd69f0fff, KindExit, "eretab"},
	{"arm64", 0xffe0001f, 0xd4000001, KindGate, "svc"},
	{"arm64", 0xffe0001f, 0xd4000002, KindGate, "hvc"},
	{"arm64", 0xffe0001f, 0xd4000003, KindGate, "smc"},
	{"riscv64", 0xffffffff, 0x00000073, KindGate, "ecall"},
	{"riscv64", 0xffffffff, 0x00100073, KindGate, "ebreak: a kprobe's, if no table lists it"},
	{"riscv64", 0xffff, 0x9002, KindGate, "c.ebreak: likewise"},
	{"riscv64", 0xffffffff, 0x10200073, KindExit, "sret"},
	{"riscv64", 0xffffffff, 0x30200073, KindExit, "mret"},
}

// trapKind is how control leaves at a trap that no table of the kernel lists.
func trapKind(arch string, code []byte) Kind {
	for arch == "amd64" && len(code) > 1 && (code[0]&0xf0 == 0x40 || code[0] == 0x66 || code[0] == 0xf2 || code[0] == 0xf3) {
		code = code[1:]
	}
	if arch == "amd64" && len(code) == 1 && code[0] == 0xcc { // at the end of a symbol, padding too
		return KindTrap
	}
	var w uint32
	for k := 0; k < 4 && k < len(code); k++ {
		w |= uint32(code[k]) << (8 * k)
	}
	for _, t := range traps {
		if t.arch == arch && w&t.mask == t.code {
			return t.kind
		}
	}
	return KindTrap
}

// IsPad reports whether an instruction is one that compilers and assemblers
// fill gaps with: a nop, a breakpoint, or zeros.
func IsPad(arch string, i isa.Insn, code []byte) bool {
	switch {
	case i.Flow == isa.FlowNone && i.Traits == 0 && i.Writes|i.Clobbers == 0:
		return true
	case arch == "amd64":
		return code[0] == 0xcc
	}
	for k := 0; k < i.Len && k < len(code); k++ { // udf #0, c.unimp
		if code[k] != 0 {
			return false
		}
	}
	return true
}
