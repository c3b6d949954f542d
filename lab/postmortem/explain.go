package postmortem

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"kerninst/agent/isa"
	"kerninst/lab/card"
)

// Explain describes the CPUs. v may be nil: then nothing has a name.
func Explain(e *Evidence, v *View) []card.CPU {
	var out []card.CPU
	for n := range e.CPUs {
		c := &e.CPUs[n]
		out = append(out, card.CPU{
			Number: n, Mode: string(c.Mode), Interrupts: c.Interrupts,
			PC: hex(c.PC), Symbol: standsAt(e.Arch, c, v), Registers: c.Registers,
			Backtrace: backtrace(layouts[e.Arch], c, v),
		})
	}
	return out
}

func hex(a isa.Addr) string { return fmt.Sprintf("%#x", uint64(a)) }

// standsAt names what a CPU stands at.
func standsAt(arch string, c *CPU, v *View) string {
	switch {
	case c.Mode == Firmware && arch == "riscv64":
		return "(OpenSBI, the firmware)" // it has no symbols; the frame below it called it
	case v == nil:
		return ""
	}
	return v.Name(c.PC)
}

func callerIn(v *View, a isa.Addr) string {
	if v == nil {
		return ""
	}
	return v.Caller(a)
}

// maxGuesses bounds a backtrace that was searched for, in frames.
const maxGuesses = 32

// backtrace lists return addresses: those of frame pointers, and as guesses the
// link register of a function that may have no frame, and on a stack without
// frame pointers every word behind a call.
func backtrace(l layout, c *CPU, v *View) []card.Frame {
	var out []card.Frame
	if a := isa.Addr(c.regs["mepc"]); c.Mode == Firmware && v != nil && v.Code(a) { // riscv64: whence the firmware was called
		return []card.Frame{{Address: hex(a), Symbol: v.Name(a), Guess: true}}
	}
	lr := isa.Addr(c.regs[l.lr])
	if l.signs {
		lr = unsigned(lr)
	}
	if c.Mode == Kernel && l.lr != "" && kernelHalf(lr) && !slices.Contains(c.Frames, lr) && v != nil && v.Code(lr) {
		out = append(out, card.Frame{Address: hex(lr), Symbol: v.Caller(lr), Guess: true})
	}
	for _, a := range c.Frames {
		out = append(out, card.Frame{Address: hex(a), Symbol: callerIn(v, a)})
	}
	for _, w := range c.Stack {
		if a := isa.Addr(w); v != nil && len(out) < maxGuesses && v.returns(a) {
			out = append(out, card.Frame{Address: hex(a), Symbol: v.Caller(a), Guess: true})
		}
	}
	return out
}

// state is what one CPU did when it was looked at.
type state struct {
	idle, halted bool
	words        string // "in the kernel, interrupts off, in f"
}

// Classify says what the CPUs of a guest do that hangs. job says whether the
// guest had a job to do. Without symbols nothing is idle for certain, so there
// is no answer.
func Classify(e *Evidence, v *View, job bool) *card.Hang {
	if v == nil || len(e.CPUs) == 0 {
		return nil
	}
	seen := e.Earlier
	if len(seen) < looks { // else it was waited for
		seen = append(slices.Clip(seen), e.CPUs)
	}
	slept, ran := len(seen), map[int][]string{} // slept: looks at the CPU that slept least
	halted := true                              // every CPU, whenever it was looked at
	for n := range e.CPUs {
		idle, where := 0, []string(nil)
		for _, look := range seen {
			if n >= len(look) {
				continue
			}
			s := stateOf(e.Arch, &look[n], v)
			halted = halted && s.halted
			switch {
			case s.idle:
				idle++
			case !slices.Contains(where, s.words):
				where = append(where, s.words)
			}
		}
		if slept = min(slept, idle); idle == 0 {
			ran[n] = where
		}
	}
	times := fmt.Sprintf("in %d of %d looks", slept, len(seen))
	switch {
	case halted:
		return &card.Hang{Class: card.Halted, Detail: "the guest's kernel has stopped every CPU for good, as halt -f does: " + listed(ran)}
	case len(ran) > 0:
		return &card.Hang{Class: card.Spinning, Detail: spinning(ran, len(seen))}
	case 3*slept < 2*len(seen): // a tick of the timer may fall on a look
		return &card.Hang{Class: card.Busy, Detail: "every CPU sleeps and runs, asleep " + times + ": the guest lives, and is slow or goes round in circles"}
	case job:
		return &card.Hang{Class: card.Waiting, Detail: "every CPU slept " + times + " while the job was under way: its programs wait for something that does not come"}
	}
	return &card.Hang{Class: card.Idle, Detail: "every CPU slept " + times + ": there is nothing left that the guest wants to do"}
}

// spinning names the CPUs that never slept and what they were at.
func spinning(ran map[int][]string, looks int) string {
	return listed(ran, fmt.Sprintf(" never slept in %d looks", looks))
}

// listed is what CPUs were at, in their order, each with some more words.
func listed(at map[int][]string, more ...string) string {
	var parts []string
	for _, n := range slices.Sorted(maps.Keys(at)) {
		parts = append(parts, fmt.Sprintf("CPU %d%s: %s", n, strings.Join(more, ""), strings.Join(at[n], "; ")))
	}
	return strings.Join(parts, "; ")
}

// stateOf a CPU. QEMU likes to stop one just as it takes an interrupt: it was at
// what was interrupted.
func stateOf(arch string, c *CPU, v *View) state {
	pc, mode, irqs := c.PC, c.Mode, c.Interrupts
	switch from := interrupted(arch, c, v); {
	case from == User:
		mode = User
	case from == Kernel && arch == "riscv64":
		pc, irqs = isa.Addr(c.regs["sepc"]), "on"
	case from == Kernel:
		return state{words: "in the kernel, taking an interrupt"}
	}
	switch mode {
	case User:
		return state{words: "in a program"}
	case Firmware:
		return state{words: "in the firmware, or before it had page tables"}
	}
	f := v.function(pc)
	if f == "" {
		f = hex(pc)
	}
	return state{idle: v.Idles(pc), halted: irqs == "off" && v.Halts(pc), words: fmt.Sprintf("in the kernel, interrupts %s, in %s", irqs, f)}
}

// interrupted says what a CPU was running that stands at the first instruction of
// its interrupt handler; empty if it does not.
func interrupted(arch string, c *CPU, v *View) Mode {
	if c.Mode != Kernel {
		return ""
	}
	switch arch {
	case "riscv64": // sepc is what sret would return to
		if c.PC != isa.Addr(c.regs["stvec"])&^3 {
			return ""
		}
		if kernelHalf(isa.Addr(c.regs["sepc"])) {
			return Kernel
		}
		return User
	case "arm64": // the table of vectors, Arm ARM D1.3.1: four of 0x80 bytes for each origin
		f, ok := v.text.Locate(c.PC - v.Slide)
		if !ok || f.Name != "vectors" {
			return ""
		}
		if off := c.PC - v.Slide - f.Addr; off >= 0x400 {
			return User
		}
		return Kernel
	}
	return ""
}
