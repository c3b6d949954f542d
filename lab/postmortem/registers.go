package postmortem

import (
	"regexp"
	"strconv"
	"strings"

	"kerninst/agent/isa"
)

// layout says how QEMU prints the registers of an ISA (its *_cpu_dump_state),
// and what they mean.
type layout struct {
	each           *regexp.Regexp // one register: name, hexadecimal value
	pc, sp, fp, lr string
	// last is how the first line begins that is of no use to people here:
	// floating point and vectors follow.
	last string
	// frame says where a frame's return address and the caller's frame pointer
	// lie, in bytes from the frame pointer; nil: the kernel keeps none.
	frame *frame
	signs bool // return addresses on the stack may be signed
	mode  func(r map[string]uint64, text string) Mode
	// interrupts says whether they are enabled; called in kernel mode.
	interrupts func(r map[string]uint64) bool
	// code are registers that point to code of the kernel, whatever the CPU does.
	code []string
}

type frame struct{ ret, next int64 }

// stackSize is that of every kernel stack, interrupt stacks included, on all
// three ISAs; stacks are aligned to it or to twice that (THREAD_SIZE).
const stackSize = 16 << 10

var layouts = map[string]layout{
	"amd64": {
		each: regexp.MustCompile(`([A-Z][A-Z0-9]*) *= *([0-9a-f]+)`),
		pc:   "RIP", sp: "RSP", last: "FCW=",
		mode: func(r map[string]uint64, _ string) Mode {
			switch {
			case r["CPL"] == 3:
				return User
			case kernelHalf(isa.Addr(r["RIP"])):
				return Kernel
			}
			return Firmware
		},
		interrupts: func(r map[string]uint64) bool { return r["RFL"]&(1<<9) != 0 }, // SDM 1 §3.4.3 IF
	},
	"arm64": {
		each: regexp.MustCompile(`([A-Z][A-Z0-9]*) *= *([0-9a-f]+)`),
		pc:   "PC", sp: "SP", fp: "X29", lr: "X30", last: "Q00=",
		frame: &frame{ret: 8, next: 0}, // AAPCS64 §6.4.6
		signs: true,
		mode: func(r map[string]uint64, text string) Mode {
			switch {
			case strings.Contains(text, " EL0t"):
				return User
			case kernelHalf(isa.Addr(r["PC"])):
				return Kernel
			}
			return Firmware
		},
		interrupts: func(r map[string]uint64) bool { return r["PSTATE"]&(1<<7) == 0 }, // Arm ARM C5.2.2 DAIF.I
	},
	"riscv64": {
		each: regexp.MustCompile(`([a-z0-9/]+) +([0-9a-f]{16})`),
		pc:   "pc", sp: "sp", fp: "s0", lr: "ra", last: " f0/",
		frame: &frame{ret: -8, next: -16}, // psABI, "Frame Pointer Convention"
		mode: func(r map[string]uint64, _ string) Mode {
			switch pc := isa.Addr(r["pc"]); {
			case kernelHalf(pc):
				return Kernel
			case pc >= firmwareFrom && pc < firmwareTo:
				return Firmware
			}
			return User
		},
		interrupts: func(r map[string]uint64) bool { return r["mstatus"]&(1<<1) != 0 }, // privileged ISA §3.1.6.1 SIE
		code:       []string{"stvec", "mepc", "sepc"},
	},
}

// OpenSBI is loaded at the start of the virt machine's memory and the kernel
// 2 MiB above it.
const firmwareFrom, firmwareTo = 0x80000000, 0x80200000

// kernelHalf says whether an address is one of the kernel's: on all three ISAs
// those are the upper half.
func kernelHalf(a isa.Addr) bool { return a>>63 == 1 }

// parse reads the registers of all CPUs.
func (l layout) parse(text string) []CPU {
	var cpus []CPU
	for _, part := range strings.Split(text, "CPU#")[1:] {
		number, rest, _ := strings.Cut(part, "\n")
		n, err := strconv.Atoi(strings.TrimSpace(number))
		if err != nil || n != len(cpus) {
			continue // QEMU counts from 0 without gaps
		}
		cpus = append(cpus, l.cpu(rest))
	}
	return cpus
}

func (l layout) cpu(text string) CPU {
	c := CPU{regs: map[string]uint64{}}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, l.last) {
			break
		}
		if line = printable(line); line != "" {
			c.Registers = append(c.Registers, line)
		}
		for _, m := range l.each.FindAllStringSubmatch(line, -1) {
			name := m[1]
			if _, after, ok := strings.Cut(name, "/"); ok {
				name = after // "x1/ra"
			}
			if v, err := strconv.ParseUint(m[2], 16, 64); err == nil {
				c.regs[name] = v
			}
		}
	}
	c.PC, c.SP = isa.Addr(c.regs[l.pc]), isa.Addr(c.regs[l.sp])
	c.Mode = l.mode(c.regs, strings.Join(c.Registers, "\n"))
	if c.Mode == Kernel {
		c.Interrupts = "off"
		if l.interrupts(c.regs) {
			c.Interrupts = "on"
		}
	}
	return c
}

// printable is a line without what a terminal obeys: a guest may have taken over
// who wrote it.
func printable(line string) string {
	return strings.TrimRight(strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, line), " ")
}
