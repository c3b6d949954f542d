package ktext

import (
	"bytes"
	"slices"

	"kerninst/agent/isa"
)

// ftraceSpan is the size of the site on arm64 and riscv64, and of what arm64
// keeps before the entry.
const ftraceSpan = 8

// FtraceSite returns the bytes of the function at a that begins with code, from its start, that ftrace owns or may
// come to own; 0 if it has no site. The kernel frees its list of sites after
// boot, so the site is told by its bytes: whatever could be one counts.
func (t *Text) FtraceSite(a isa.Addr, code []byte) int {
	switch t.Arch.Name {
	case "amd64":
		return t.ftraceAmd64(a, code)
	case "arm64":
		return ftraceArm64(code)
	}
	return ftraceRiscv64(code)
}

// callers are what ftrace has sites call (arch/*/kernel/*ftrace*.S, entry-ftrace.S, mcount-dyn.S), besides what it makes at run time,
// which is no function of the kernel's.
var callers = []string{"__fentry__", "ftrace_caller", "ftrace_regs_caller"}

// Compiled reports whether code, the first bytes of what is at a, begins with an ftrace site that a compiler has made, so that
// all of it is compiled code. FtraceSite takes for one what may be one: two nops, which assembly and functions that are not
// traced begin with as well (arm64: once ftrace has started the first is mov x9, x30), and calls of any other function.
func (t *Text) Compiled(a isa.Addr, code []byte) bool {
	n := t.FtraceSite(a, code)
	if n > 0 && t.Arch.Name == "arm64" && isa.ByteOrder.Uint32(code) == nopArm64 {
		return false
	}
	for k := 0; k < n; {
		i := t.Arch.Decode(code[k:], a+isa.Addr(k))
		if i.Flow == isa.FlowCall {
			f, known := t.Locate(i.Target)
			return !known || f.Generated() || slices.Contains(callers, f.Name)
		}
		k += i.Len
	}
	return n > 0
}

// MostFtrace is the most bytes from a function's start that FtraceSite and Traced look
// at.
const MostFtrace = 9

// Sealed is how many bytes in front of a function's ftrace site, from its start, are what
// boot has left of a landing pad that nothing needs (amd64, apply_seal_endbr()): a nop for who comes
// by, by which the kernel tells where the function goes on behind its site (is_endbr()): a trampoline of BPF's that
// calls it (arch/x86/net/bpf_jit_comp.c) calls into the middle of the site where it finds anything else.
func (t *Text) Sealed(a isa.Addr, code []byte) int {
	if t.Arch.Name == "amd64" && isSealed(code) && t.FtraceSite(a, code) > len(endbr64) {
		return len(endbr64)
	}
	return 0
}

// Traced reports whether the site in code, the first bytes of the function at a as they are now,
// calls somebody. One that does not is a nop, or ends in one.
func (t *Text) Traced(a isa.Addr, code []byte) bool {
	n := t.FtraceSite(a, code)
	if n == 0 {
		return false
	}
	site := code[:n]
	switch t.Arch.Name {
	case "amd64":
		return !bytes.HasSuffix(site, nop5)
	case "arm64":
		return isa.ByteOrder.Uint32(site[4:]) != nopArm64
	}
	return !isNopRiscv64(isa.ByteOrder.Uint32(site[4:]))
}

// kernelHigh are the upper halves of what a kernel's pointers point to: on riscv64 with
// 57 bits of address, the direct map is far below the image.
var kernelHigh = map[string][]uint64{"arm64": {0xffff}, "riscv64": {0xffff, 0xff60}}

// FrontWord reports whether the eight bytes in front of an ftrace site are the pointer to
// the struct ftrace_ops of whoever traces the function (DYNAMIC_FTRACE_WITH_CALL_OPS: arm64,
// and since Linux 6.16 riscv64). Where the kernel keeps none, instructions stand there,
// whose high halves are no address.
func (t *Text) FrontWord(b []byte) bool {
	v := isa.ByteOrder.Uint64(b)
	return slices.Contains(kernelHigh[t.Arch.Name], v>>48) && v%8 == 0
}

var (
	endbr64 = []byte{0xf3, 0x0f, 0x1e, 0xfa}
	nop5    = []byte{0x0f, 0x1f, 0x44, 0x00, 0x00}
	// What boot leaves of an unneeded landing pad: gen_endbr_poison(), and since Linux 6.16
	// that with a trap in it for who comes past a check.
	endbrOff = [][]byte{{0x66, 0x0f, 0x1f, 0x00}, {0x0f, 0x1f, 0x40, 0xd6}}
)

func isSealed(code []byte) bool {
	return slices.ContainsFunc(endbrOff, func(nop []byte) bool { return bytes.HasPrefix(code, nop) })
}

// jmp5 is the opcode of a jump with a displacement of four bytes.
const jmp5 = 0xe9

// ftraceAmd64: five bytes, nop or call, at the start or behind the landing pad. Since Linux 7.0 (DYNAMIC_FTRACE_WITH_JMP) a jump as well,
// to a trampoline of BPF's that calls the function itself, and returns to who called that (kernel/bpf/trampoline.c, bpf_trampoline_use_jmp()).
// Functions without a site begin with jumps too, but with such as were linked.
func (t *Text) ftraceAmd64(a isa.Addr, code []byte) int {
	n := 0
	if bytes.HasPrefix(code, endbr64) || isSealed(code) {
		n = 4
	}
	if len(code) < n+5 {
		return 0
	}
	if c := code[n:]; bytes.HasPrefix(c, nop5) || c[0] == 0xe8 || c[0] == jmp5 && t.made(a, t.Arch.Decode(c, a+isa.Addr(n)).Target) {
		return n + 5
	}
	return 0
}

// generators are what /proc/kallsyms has in place of a module for code that the kernel itself makes while it runs (kernel/kallsyms.c, s_show()).
var generators = []string{"bpf", "__builtin__ftrace", "__builtin__kprobes"}

// Generated reports whether the kernel has made f while it runs, such as a trampoline: it is in no image and no module's, and
// may be gone.
func (f Func) Generated() bool { return slices.Contains(generators, f.Module) }

// made reports whether a jump at from leads to what the kernel has made while it runs. From the kernel's own text nothing else is
// outside of that, but where it rewrites static calls; from a module's all other modules are.
func (t *Text) made(from, to isa.Addr) bool {
	end, ok := t.sym.markers["_end"]
	if !ok {
		end = t.hi
	}
	switch in := (span{t.lo, end}); {
	case in.holds(to) || t.calls().holds(from):
		return false
	case in.holds(from):
		return true
	}
	f, known := t.Locate(to)
	_, m := t.code(to)
	return (!known || f.Generated()) && m == nil
}

// calls are the trampolines of the kernel's static calls.
func (t *Text) calls() span {
	return span{t.sym.markers["__static_call_text_start"], t.sym.markers["__static_call_text_end"]}
}

const nopArm64 = 0xd503201f

// ftraceArm64: two words. The first is mov x9, x30 once ftrace has started, the
// second nop or bl; in a function that ftrace skips both stay nops.
func ftraceArm64(code []byte) int {
	const (
		movX9  = 0xaa1e03e9
		blMask = 0xfc000000
		bl     = 0x94000000
	)
	if len(code) < ftraceSpan {
		return 0
	}
	first, second := isa.ByteOrder.Uint32(code), isa.ByteOrder.Uint32(code[4:])
	if (first == nopArm64 || first == movX9) && (second == nopArm64 || second&blMask == bl) {
		return ftraceSpan
	}
	return 0
}

// isNopRiscv64: one nop of four bytes or two of two.
func isNopRiscv64(w uint32) bool { return w == 0x00000013 || w == 0x00010001 }

// ftraceRiscv64: eight bytes, nops of either size, or auipc t0 and a jalr or
// nop behind it.
func ftraceRiscv64(code []byte) int {
	const (
		auipcT0   = 0x00000297
		jalrT0T0  = 0x000282e7
		opRdMask  = 0x00000fff
		jalrFixed = 0x000fffff
	)
	if len(code) < ftraceSpan {
		return 0
	}
	first, second := isa.ByteOrder.Uint32(code), isa.ByteOrder.Uint32(code[4:])
	switch {
	case isNopRiscv64(first) && isNopRiscv64(second):
		return ftraceSpan
	case first&opRdMask == auipcT0 && (isNopRiscv64(second) || second&jalrFixed == jalrT0T0):
		return ftraceSpan
	}
	return 0
}
