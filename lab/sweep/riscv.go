package sweep

import (
	"strings"

	"kerninst/agent/isa"
)

var bookOfRiscv = &book{regs: riscvRegs(), effect: riscvEffect}

func riscvRegs() map[string]isa.Reg {
	out := map[string]isa.Reg{}
	for n, name := range strings.Fields("ra sp gp tp t0 t1 t2 s0 s1 a0 a1 a2 a3 a4 a5 a6 a7 s2 s3 s4 s5 s6 s7 s8 s9 s10 s11 t3 t4 t5 t6") {
		out[name] = isa.Reg(n + 1)
	}
	return out
}

const riscvRA = isa.RegSet(1) << 1

// riscvNoDest are mnemonics whose first operand is no destination in a general
// register.
var riscvNoDest = words(`sb sh sw sd fsd fsw fence fence.i csrw csrs csrc csrwi csrsi csrci sfence.vma sinval.vma
	sfence.w.inval sfence.inval.ir hfence.gvma hfence.vvma hinval.vvma hinval.gvma cbo.zero cbo.clean cbo.flush cbo.inval wfi
	wrs.nto wrs.sto pause nop ebreak ecall unimp sret mret fld flw fmv.d.x fmv.w.x fscsr fsrm fsflags
	hsv.b hsv.h hsv.w hsv.d`)

// riscvLoads and riscvStores access memory; so do the atomics.
var (
	riscvLoads  = words("lb lbu lh lhu lw lwu ld flw fld")
	riscvStores = words("sb sh sw sd fsw fsd")
	riscvDirect = map[string]isa.Flow{"j": isa.FlowJump, "jal": isa.FlowCall}
	riscvCond   = words("beq bne blt bge bltu bgeu beqz bnez blez bgez bltz bgtz bgt ble bgtu bleu")
	riscvTraps  = words("ebreak ecall unimp sret mret")
	riscvPlain  = words(`addi mv li auipc lui slli srli srai add sub and or xor andi ori xori sll srl sra slt sltu slti sltiu
		addiw addw subw sext.w slliw srliw sraiw sllw srlw sraw negw neg not seqz snez sgtz sltz zext.b zext.h zext.w sext.b sext.h
		mul mulh mulhu mulhsu mulw div divu divw divuw rem remu remw remuw csrr csrrc csrrs csrrw csrrci csrrsi csrrwi
		rdtime rdcycle rdinstret frcsr frrm frflags fmv.x.w fmv.x.d clz ctz cpop clzw ctzw cpopw rev8 orc.b rol ror rori rolw rorw roriw
		min max minu maxu andn orn xnor sh1add sh2add sh3add add.uw sh1add.uw sh2add.uw sh3add.uw slli.uw
		bset bseti bclr bclri binv binvi bext bexti czero.eqz czero.nez clmul clmulh clmulr brev8 pack packh packw
		hlv.b hlv.bu hlv.h hlv.hu hlv.w hlv.wu hlv.d hlvx.hu hlvx.wu`)
)

func riscvEffect(b *book, l *Line) (e effect, ok bool) {
	m, ops := l.Mnemonic, operands(l.Operands)
	e.reads = b.named(l.Operands)
	atomic := strings.HasPrefix(m, "amo") || strings.HasPrefix(m, "lr.") || strings.HasPrefix(m, "sc.")
	switch {
	case riscvCond[m]:
		e.flow, e.target = isa.FlowCond, address(ops)
		return e, true
	case riscvDirect[m] != 0:
		e.flow, e.target = riscvDirect[m], address(ops)
		e.reads = 0
		if m == "jal" {
			e.writes = riscvRA
			if len(ops) == 2 {
				e.writes = b.named(ops[0])
			}
		}
		return e, true
	case m == "ret":
		e.flow, e.reads = isa.FlowReturn, riscvRA
		return e, true
	case m == "jr":
		e.flow = isa.FlowIndirectJump
		return e, true
	case m == "jalr":
		e.flow, e.writes = isa.FlowIndirectCall, riscvRA
		if len(ops) == 2 {
			e.writes, e.reads = b.named(ops[0]), b.named(ops[1])
		}
		return e, true
	case riscvTraps[m]:
		e.flow = isa.FlowTrap
		return e, true
	case riscvLoads[m]:
		e.mem = isa.Load
	case riscvStores[m]:
		e.mem = isa.Store
	case strings.HasPrefix(m, "lr."):
		e.mem = isa.Load
	case strings.HasPrefix(m, "sc."):
		e.mem = isa.Store
	case atomic:
		e.mem = isa.Mem
	case strings.HasPrefix(m, "hlv"):
		e.mem = isa.Load
	case strings.HasPrefix(m, "hsv"):
		e.mem = isa.Store
	case strings.HasPrefix(m, "cbo."):
		e.mem = isa.Store
	case strings.HasPrefix(m, "v"):
		return riscvVector(b, l, ops)
	case strings.HasPrefix(m, "f") && strings.Contains(m, ".") && !riscvNoDest[m] && !riscvPlain[m]: // floating point
		e.flow, e.writes, e.reads = isa.FlowNone, b.named(ops[0]), b.named(strings.Join(ops[1:], " "))
		return e, len(ops) > 1
	case !riscvNoDest[m] && !riscvPlain[m]:
		return e, false
	}
	e.flow = isa.FlowNone
	if !riscvNoDest[m] && len(ops) > 0 {
		e.writes = b.named(ops[0])
		e.reads = b.named(strings.Join(ops[1:], " "))
	}
	if strings.HasPrefix(m, "amocas") {
		e.reads |= e.writes
	}
	return e, true
}

// riscvVector: loads, stores, and operations on vector registers, whose general
// registers are sources, but for vsetvli and what moves a scalar out.
func riscvVector(b *book, l *Line, ops []string) (e effect, ok bool) {
	m := l.Mnemonic
	e.flow, e.reads = isa.FlowNone, b.named(l.Operands)
	switch {
	case strings.HasPrefix(m, "vset"), m == "vmv.x.s", m == "vcpop.m", m == "vfirst.m":
		e.writes, e.reads = b.named(ops[0]), b.named(strings.Join(ops[1:], " "))
	case strings.Contains(l.Operands, "(") && m[1] == 'l':
		e.mem = isa.Load
	case strings.Contains(l.Operands, "("):
		e.mem = isa.Store
	}
	return e, true
}

// words is the set of the words of a text.
func words(text string) map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.Fields(text) {
		out[w] = true
	}
	return out
}
