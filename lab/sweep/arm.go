package sweep

import (
	"fmt"
	"strings"

	"kerninst/agent/isa"
)

var bookOfArm = &book{regs: armRegs(), effect: armEffect}

func armRegs() map[string]isa.Reg {
	out := map[string]isa.Reg{"sp": 31, "wsp": 31, "nzcv": 32}
	for n := range 31 {
		out[fmt.Sprintf("x%d", n)] = isa.Reg(n)
		out[fmt.Sprintf("w%d", n)] = isa.Reg(n)
	}
	return out
}

const (
	armLR    = isa.RegSet(1) << 30
	armSP    = isa.RegSet(1) << 31
	armFlags = isa.RegSet(1) << 32
	armX16   = isa.RegSet(1) << 16
	armX17   = isa.RegSet(1) << 17
)

// armFixed are mnemonics whose operands say nothing about registers.
var armFixed = map[string]effect{
	"nop": {}, "yield": {}, "wfe": {}, "wfi": {}, "sev": {}, "sevl": {}, "esb": {}, "csdb": {}, "bti": {}, "clrbhb": {},
	"psb": {}, "tsb": {}, "hint": {}, "isb": {}, "sb": {}, "clrex": {}, "wrffr": {}, "rdffr": {}, "pfalse": {}, "gcsb": {}, "dgh": {},
	"dsb": {}, "dmb": {}, "ssbb": {}, "pssbb": {},
	"xpaclri": {reads: armLR, writes: armLR}, "autiasp": {reads: armLR | armSP, writes: armLR},
	"paciasp": {reads: armLR | armSP, writes: armLR}, "autibsp": {reads: armLR | armSP, writes: armLR},
	"pacibsp": {reads: armLR | armSP, writes: armLR}, "paciaz": {reads: armLR, writes: armLR}, "autiaz": {reads: armLR, writes: armLR},
	"pacia1716": {reads: armX16 | armX17, writes: armX17}, "autia1716": {reads: armX16 | armX17, writes: armX17},
	"pacib1716": {reads: armX16 | armX17, writes: armX17}, "autib1716": {reads: armX16 | armX17, writes: armX17},
}

var (
	armTraps = words("brk svc hvc smc hlt udf eret eretaa eretab dcps1 dcps2 dcps3")
	// armNoDest only read the general registers that they name.
	armNoDest = words("cmp cmn tst ccmp ccmn fcmp fcmpe fccmp fccmpe prfm prfum msr dc ic tlbi at sys wfet wfit cfp cpp dvp cosp")
	// armPlain write their first operand and read the others.
	armPlain = words(`mov movz movn mvn add sub adds subs and ands orr orn eor eon bic bics neg negs lsl lsr asr ror
		adr adrp ubfx sbfx ubfiz sbfiz sxtw sxth sxtb uxth uxtb uxtw ubfm sbfm extr mul mneg madd msub umull umaddl umsubl smull smaddl smsubl
		umnegl smnegl umulh smulh udiv sdiv clz cls rbit rev rev16 rev32 csel csinc csinv csneg cset csetm cinc cinv cneg adc adcs sbc sbcs ngc ngcs
		mrs crc32b crc32h crc32w crc32x crc32cb crc32ch crc32cw crc32cx pacga rdvl addvl addpl irg addg subg gmi subp xpacd xpaci
		cntb cnth cntw cntd rdsvl umov smov`)
	// armBoth read and write their first operand.
	armBoth = words(`movk bfi bfxil bfm bfc pacia pacib pacda pacdb autia autib autda autdb paciza autiza pacizb autizb pacdza autdza
		incb inch incw incd decb dech decw decd`)
	armReadsFlags = words("csel csinc csinv csneg cset csetm cinc cinv cneg adc adcs sbc sbcs ngc ngcs ccmp ccmn fcsel fccmp fccmpe")
	armSetsFlags  = words("cmp cmn tst ccmp ccmn adds subs ands bics negs adcs sbcs ngcs fcmp fcmpe fccmp fccmpe")
)

// armAtomics are the operations of ld<op> and st<op>, and what may follow.
var armAtomics = words("add clr eor set smax smin umax umin")

func armEffect(b *book, l *Line) (e effect, ok bool) {
	m, ops := l.Mnemonic, operands(l.Operands)
	e.flow, e.reads = isa.FlowNone, b.named(l.Operands)
	if f, ok := armFixed[m]; ok {
		f.flow = isa.FlowNone
		if m == "dmb" || m == "dsb" {
			f.memUnknown = true
		}
		return f, true
	}
	if f, ok := armBranch(b, l, ops); ok {
		return f, true
	}
	switch {
	case armTraps[m]:
		return effect{flow: isa.FlowTrap}, true
	case armNoDest[m]:
	case armPlain[m], armBoth[m]:
		e.writes = b.named(ops[0])
		e.reads = b.named(strings.Join(ops[1:], " "))
		if armBoth[m] {
			e.reads |= e.writes
		}
	case strings.HasPrefix(m, "ld"), strings.HasPrefix(m, "st"), strings.HasPrefix(m, "cas"), strings.HasPrefix(m, "swp"):
		return armMemory(b, l, ops)
	case armVector(ops):
		return armSIMD(b, l, ops)
	default:
		return e, false
	}
	if m == "msr" && strings.HasPrefix(ops[0], "nzcv") {
		e.writes, e.reads = armFlags, b.named(ops[1])
	} else if m == "msr" { // PSTATE fields and system registers
		e.reads = b.named(ops[1])
	}
	e.memUnknown = m == "dc" || m == "ic" || m == "at" || m == "tlbi" || m == "sys" || m == "cfp" || m == "cpp" || m == "dvp" || m == "cosp"
	if armReadsFlags[m] {
		e.reads |= armFlags
	}
	number := m == "mrs" && strings.HasPrefix(ops[1], "rndr") // the flags say whether there was one
	if armSetsFlags[m] || number {
		e.writes |= armFlags
	}
	return e, true
}

func armBranch(b *book, l *Line, ops []string) (e effect, ok bool) {
	m := l.Mnemonic
	e.reads = b.named(l.Operands)
	switch {
	case m == "b":
		e.flow = isa.FlowJump
	case m == "bl":
		e.flow, e.writes = isa.FlowCall, armLR
	case strings.HasPrefix(m, "b."):
		e.flow, e.reads = isa.FlowCond, armFlags
	case m == "cbz", m == "cbnz", m == "tbz", m == "tbnz":
		e.flow = isa.FlowCond
	case m == "ret" && len(ops) == 0:
		return effect{flow: isa.FlowReturn, reads: armLR}, true
	case m == "retaa", m == "retab":
		return effect{flow: isa.FlowReturn, reads: armLR | armSP}, true
	case m == "ret", m == "br", m == "braa", m == "brab", m == "braaz", m == "brabz":
		e.flow = isa.FlowIndirectJump
		return e, true
	case m == "blr", m == "blraa", m == "blrab", m == "blraaz", m == "blrabz":
		e.flow, e.writes = isa.FlowIndirectCall, armLR
		return e, true
	default:
		return e, false
	}
	e.target = address(ops)
	return e, true
}

// armMemory: loads, stores, exclusives, atomics.
func armMemory(b *book, l *Line, ops []string) (e effect, ok bool) {
	m := l.Mnemonic
	k := len(ops) - 1
	for k >= 0 && !strings.HasPrefix(ops[k], "[") {
		k--
	}
	e.flow = isa.FlowNone
	if k < 0 { // a literal
		e.mem = isa.Load
		e.writes = b.named(ops[0])
		return e, strings.HasPrefix(m, "ld")
	}
	regs, at := ops[:k], ops[k]
	e.reads = b.named(at)
	if k < len(ops)-1 || strings.HasSuffix(at, "!") { // write-back
		e.writes = b.named(strings.Split(at, ",")[0]) & b.named(at)
		if k < len(ops)-1 {
			e.reads |= b.named(ops[k+1])
		}
	}
	data := b.named(strings.Join(regs, " "))
	body := strings.TrimPrefix(strings.TrimPrefix(m, "ld"), "st")
	exclusive := strings.Contains(body, "x") && (strings.HasPrefix(body, "x") || strings.HasPrefix(body, "ax") || strings.HasPrefix(body, "lx"))
	switch {
	case strings.HasPrefix(m, "cas"):
		e.mem = isa.Mem
		e.reads |= data
		e.writes |= b.named(ops[0])
		if strings.HasPrefix(m, "casp") {
			e.writes = b.named(ops[0]) | b.named(ops[1])
		}
	case strings.HasPrefix(m, "swp"), len(body) >= 3 && m[:2] == "ld" && isAtomic(body):
		e.mem = isa.Mem
		e.reads |= b.named(ops[0])
		e.writes |= b.named(ops[1])
	case len(body) >= 3 && isAtomic(body): // stadd and kin
		e.mem = isa.Mem
		e.reads |= data
	case m == "stg", m == "st2g", m == "stzg", m == "stz2g", m == "stgm", m == "stzgm":
		e.mem = isa.Store
		e.reads |= data
	case m == "ldg":
		e.mem = isa.Load
		e.reads |= data
		e.writes |= data
	case m[:2] == "st":
		e.mem = isa.Store
		e.reads |= data
		if exclusive { // the status
			e.writes |= b.named(ops[0])
			e.reads = b.named(strings.Join(ops[1:], " "))
		}
	default:
		e.mem = isa.Load
		e.writes |= data
	}
	return e, true
}

// isAtomic tells add, addal, setlh… from other endings.
func isAtomic(body string) bool {
	for op := range armAtomics {
		if rest, ok := strings.CutPrefix(body, op); ok && strings.Trim(rest, "albh") == "" {
			return true
		}
	}
	return false
}

// armVector says whether an operand is a vector or floating-point register.
func armVector(ops []string) bool {
	for _, o := range ops {
		o = strings.TrimLeft(o, "{ ")
		if len(o) > 1 && strings.ContainsRune("vqdshbzp", rune(o[0])) && o[1] >= '0' && o[1] <= '9' {
			return true
		}
	}
	return false
}

// armSIMD: a general register in front is written, any other is read.
func armSIMD(b *book, l *Line, ops []string) (e effect, ok bool) {
	e.flow = isa.FlowNone
	e.writes = b.named(ops[0])
	e.reads = b.named(strings.Join(ops[1:], " "))
	if armReadsFlags[l.Mnemonic] {
		e.reads |= armFlags
	}
	if armSetsFlags[l.Mnemonic] {
		e.writes |= armFlags
	}
	return e, true
}
