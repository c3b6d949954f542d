// Package postmortem looks into guests that died or hang.
//
// It works in two steps, because a machine has to be let go before there is time
// to think. Take gathers evidence from a machine that stands still: registers,
// the frames and stacks that they lead to, and pieces of code. Explain turns
// evidence into words, with the symbols of the same kernel: from its dump, moved
// to where the evidence says that this guest's kernel lay.
package postmortem

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"kerninst/agent/isa"
	"kerninst/lab/vm"
)

// Mode is what a CPU was running.
type Mode string

const (
	Kernel   Mode = "kernel"
	User     Mode = "user"
	Firmware Mode = "firmware" // or a kernel that has not turned on its page tables
)

// Evidence is what was seen of one guest.
type Evidence struct {
	Arch string
	CPUs []CPU
	// Earlier are the CPUs of a guest that hangs when it was stopped before and let
	// run again, by look and CPU.
	Earlier [][]CPU
	Code    []Excerpt
	// Notes say what could not be had.
	Notes []string
	// Memory says that the guest's memory was written to a file.
	Memory bool
}

// CPU is one virtual CPU.
type CPU struct {
	Registers  []string // as QEMU prints them, without floating point and vectors
	PC, SP     isa.Addr
	Mode       Mode
	Interrupts string // on, off; empty: not known
	// Frames are return addresses by frame pointers, the innermost first.
	Frames []isa.Addr
	// Stack is what lies from SP to the end of the stack, in words.
	Stack []uint64

	regs map[string]uint64
}

// Excerpt is a piece of memory that should hold code.
type Excerpt struct {
	Addr isa.Addr
	Data []byte
}

const (
	excerptSize = 64 // bytes
	maxFrames   = 48
	looks       = 6 // at a guest that hangs
)

// lookEvery is the host time that a guest runs between two looks: longer than a
// tick of its timer, so that looks do not all fall on what it does at a tick. Only
// tests change it.
var lookEvery = 70 * time.Millisecond

// Take gathers evidence of a machine that stands still. ctx bounds it; what was
// had until then is evidence, too, and its notes say so.
func Take(ctx context.Context, arch string, in vm.Inside) *Evidence {
	e := &Evidence{Arch: arch}
	l, ok := layouts[arch]
	if !ok {
		e.note("registers of %s are not known here", arch)
		return e
	}
	text, err := in.Registers(ctx)
	if err != nil {
		e.note("registers: %v", err)
		return e
	}
	e.take(ctx, l, text, in)
	return e
}

// take gathers what the registers, as QEMU shows them, lead to.
func (e *Evidence) take(ctx context.Context, l layout, text string, in vm.Inside) {
	e.CPUs = l.parse(text)
	if len(e.CPUs) == 0 {
		e.note("QEMU shows no registers")
	}
	for n := range e.CPUs {
		e.follow(ctx, l, n, in)
	}
}

// TakeHung gathers evidence of a machine that runs and does not get on. It is
// stopped and let run several times. Then it stands still, as it is described: where
// it mostly is, if it is mostly in one place and is found there soon.
func TakeHung(ctx context.Context, arch string, in vm.Inside) *Evidence {
	l, ok := layouts[arch]
	if !ok {
		return Take(ctx, arch, in)
	}
	e := &Evidence{Arch: arch}
	err := e.looksAt(ctx, l, in)
	if err == nil {
		var text string
		if text, err = e.awaitUsual(ctx, l, in); err == nil {
			e.take(ctx, l, text, in)
			return e
		}
	}
	if e := in.Stop(ctx); e != nil {
		err = errors.Join(err, e)
	}
	last := Take(ctx, arch, in)
	last.Earlier = e.Earlier
	last.note("looked at %d times instead of %d: %v", min(len(e.Earlier)+1, looks), looks, err)
	return last
}

// looksAt stops the machine several times, looks at it, and lets it run. It leaves
// half of the time for the evidence.
func (e *Evidence) looksAt(ctx context.Context, l layout, in vm.Inside) error {
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
	}
	for range looks - 1 {
		text, err := look(ctx, in)
		if err != nil {
			return err
		}
		e.Earlier = append(e.Earlier, l.parse(text))
		if err := goOn(ctx, in); err != nil {
			return err
		}
	}
	return nil
}

// awaitUsual stops the machine once more, and if that is not where most of the earlier
// looks found it, again and again, as often as it was looked at. Only the first of
// these looks counts.
func (e *Evidence) awaitUsual(ctx context.Context, l layout, in vm.Inside) (text string, err error) {
	places := usual(e.Earlier)
	for try := 1; ; try++ {
		if text, err = look(ctx, in); err != nil {
			return "", err
		}
		now := l.parse(text)
		if isAt(now, places) || try > looks {
			return text, nil
		}
		if try == 1 {
			e.Earlier = append(e.Earlier, now)
		}
		if err := goOn(ctx, in); err != nil {
			return "", err
		}
	}
}

// look stops the machine and has its CPUs' registers shown.
func look(ctx context.Context, in vm.Inside) (string, error) {
	if err := in.Stop(ctx); err != nil {
		return "", err
	}
	return in.Registers(ctx)
}

// goOn lets the machine run for a while.
func goOn(ctx context.Context, in vm.Inside) error {
	if err := in.Continue(ctx); err != nil {
		return err
	}
	select {
	case <-time.After(lookEvery):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// usual is where each CPU was in more than half of the looks, by its number; what was
// at no place so often is not in it.
func usual(seen [][]CPU) map[int]isa.Addr {
	times, out := map[int]map[isa.Addr]int{}, map[int]isa.Addr{}
	for _, cpus := range seen {
		for n, c := range cpus {
			if times[n] == nil {
				times[n] = map[isa.Addr]int{}
			}
			if times[n][c.PC]++; 2*times[n][c.PC] > len(seen) {
				out[n] = c.PC
			}
		}
	}
	return out
}

func isAt(cpus []CPU, places map[int]isa.Addr) bool {
	for n, c := range cpus {
		if at, ok := places[n]; ok && c.PC != at {
			return false
		}
	}
	return true
}

func (e *Evidence) note(format string, args ...any) {
	e.Notes = append(e.Notes, fmt.Sprintf(format, args...))
}

// follow reads what a CPU's registers lead to.
func (e *Evidence) follow(ctx context.Context, l layout, n int, in vm.Inside) {
	c := &e.CPUs[n]
	read := func(a isa.Addr, size int) []byte {
		if !kernelHalf(a) || c.Mode == Firmware {
			return nil // seen from there, memory is not where the kernel sees it
		}
		b, err := in.Read(ctx, n, uint64(a), size)
		if err != nil && (a == c.PC || a == c.SP) { // what others point to may be anything
			e.note("CPU %d: memory at %v cannot be read: %v", n, a, err)
		}
		return b
	}
	if c.Mode == Kernel {
		if l.frame != nil {
			c.Frames = l.walk(c, read)
		} else {
			c.Stack = words(stacks(c.SP, read))
		}
	}
	if a, ok := caller(e.Arch, c); ok {
		e.Code = append(e.Code, Excerpt{a, ecall})
	}
	code := append([]isa.Addr{c.PC}, c.Frames...)
	for _, name := range l.code {
		code = append(code, isa.Addr(c.regs[name]))
	}
	if a, ok := handler(e.Arch, c, read); ok {
		code = append(code, a)
	}
	for _, a := range code {
		if b := read(a, excerptSize); b != nil {
			e.Code = append(e.Code, Excerpt{a, b})
		}
	}
}

// stacks reads amd64's stack from a on, and that of whom an interrupt has stopped:
// its stack pointer is the last word of the interrupt's stack (asm/irq_stack.h).
func stacks(a isa.Addr, read func(isa.Addr, int) []byte) []byte {
	out := upTo(a, read)
	if n := len(out); n >= 8 {
		if last := isa.Addr(binary.LittleEndian.Uint64(out[n-8:])); kernelHalf(last) && last%8 == 0 && last-a >= isa.Addr(n) {
			out = append(out, upTo(last, read)...)
		}
	}
	return out
}

// upTo reads a stack from a on, page by page: amd64's interrupt stacks are mapped
// without regard to their alignment, and end where nothing is mapped.
func upTo(a isa.Addr, read func(isa.Addr, int) []byte) (out []byte) {
	const page = 4 << 10
	for end := a - a%stackSize + stackSize; a < end; {
		b := read(a, int(page-a%page))
		if b == nil {
			break
		}
		out, a = append(out, b...), a+isa.Addr(len(b))
	}
	return out
}

// walk follows the frame pointers.
func (l layout) walk(c *CPU, read func(isa.Addr, int) []byte) []isa.Addr {
	var out []isa.Addr
	fp := isa.Addr(c.regs[l.fp])
	for seen := map[isa.Addr]bool{}; len(out) < maxFrames && !seen[fp] && fp%8 == 0; {
		seen[fp] = true
		ret, next := read(fp+isa.Addr(l.frame.ret), 8), read(fp+isa.Addr(l.frame.next), 8)
		if ret == nil || next == nil {
			break
		}
		a := isa.Addr(binary.LittleEndian.Uint64(ret))
		if l.signs {
			a = unsigned(a)
		}
		if !kernelHalf(a) {
			break
		}
		out = append(out, a)
		fp = isa.Addr(binary.LittleEndian.Uint64(next))
	}
	return out
}

// unsigned is a return address without its authentication code, which is
// in the upper bits, of which bit 55 says which half it is (Arm ARM D8.10).
func unsigned(a isa.Addr) isa.Addr {
	if a>>55&1 == 1 {
		return a | 0xff<<56 | 0x7f<<48
	}
	return a
}

func words(b []byte) []uint64 {
	out := make([]uint64, len(b)/8)
	for i := range out {
		out[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return out
}

// ecall is riscv64's call of the next deeper mode (unprivileged ISA §2.8).
var ecall = []byte{0x73, 0, 0, 0}

// caller is where the kernel called the firmware in which a CPU of riscv64 is. The
// memory there cannot be read from the firmware, and is known to be an ecall
// (privileged ISA §3.1.15, cause 9).
func caller(arch string, c *CPU) (isa.Addr, bool) {
	a := isa.Addr(c.regs["mepc"])
	return a, arch == "riscv64" && c.Mode == Firmware && c.regs["mcause"] == 9 && kernelHalf(a)
}

// handler is the kernel's page fault handler, by amd64's table of gates: a way to
// the kernel's code also from a CPU that runs a program (SDM 3 §6.14.1).
func handler(arch string, c *CPU, read func(isa.Addr, int) []byte) (isa.Addr, bool) {
	const pageFault, gate = 14, 16
	if arch != "amd64" {
		return 0, false
	}
	b := read(isa.Addr(c.regs["IDT"])+pageFault*gate, gate)
	if b == nil {
		return 0, false
	}
	lo, mid, hi := binary.LittleEndian.Uint16(b), binary.LittleEndian.Uint16(b[6:]), binary.LittleEndian.Uint32(b[8:])
	return isa.Addr(lo) | isa.Addr(mid)<<16 | isa.Addr(hi)<<32, true
}
