// Package card is what a person gets to see of a run that did not pass: what
// happened, where every CPU was, and the commands to go on with. It is data with
// one rendering as text; it knows no machine and reads nothing.
package card

import (
	"fmt"
	"slices"
	"strings"

	"kerninst/lab/status"
)

// Schema is the version of the document.
const Schema = 1

// Names of the files of one ISA.
const (
	TextFile = "card.txt"   // also beside the files of each guest
	JSONFile = "cards.json" // of all guests
)

// Cards is the document.
type Cards struct {
	Schema int    `json:"schema"`
	Cards  []Card `json:"cards"`
}

// Card is one guest that did not pass, or one scenario whose assertions did not
// hold.
type Card struct {
	Arch     string        `json:"arch"`
	Scenario string        `json:"scenario"`
	Guest    string        `json:"guest,omitempty"` // empty: of all guests together
	Status   status.Status `json:"status"`
	Kind     string        `json:"kind"`
	Summary  string        `json:"summary"`
	Step     string        `json:"step,omitempty"` // of the job, the last that was begun
	Console  []string      `json:"console,omitempty"`
	Hang     *Hang         `json:"hang,omitempty"`
	CPUs     []CPU         `json:"cpus,omitempty"`
	// Notes say what is missing above, and why.
	Notes    []string  `json:"notes,omitempty"`
	Commands []Command `json:"commands"`
	Files    []string  `json:"files,omitempty"`
}

// Class is what the CPUs of a guest do that hangs.
type Class string

const (
	Idle     Class = "idle"     // every CPU sleeps, and no job is under way
	Waiting  Class = "waiting"  // every CPU sleeps, while a job is under way
	Spinning Class = "spinning" // some CPU ran whenever it was looked at
	Busy     Class = "busy"     // CPUs run now and then
	Halted   Class = "halted"   // the kernel has stopped every CPU for good
)

// Hang classifies a guest that hangs.
type Hang struct {
	Class  Class  `json:"class"`
	Detail string `json:"detail"`
}

// CPU is one virtual CPU.
type CPU struct {
	Number     int    `json:"number"`
	Mode       string `json:"mode"`                 // kernel, user, firmware
	Interrupts string `json:"interrupts,omitempty"` // on, off; empty: not known
	PC         string `json:"pc"`                   // "0x…"
	Symbol     string `json:"symbol,omitempty"`
	Source     string `json:"source,omitempty"` // FILE:LINE and the inlined copies that it is in; see Tell
	// Backtrace begins with the caller of what stands at PC.
	Backtrace []Frame  `json:"backtrace,omitempty"`
	Registers []string `json:"registers"`
}

// Frame is one return address.
type Frame struct {
	Address string `json:"address"` // "0x…"
	Symbol  string `json:"symbol,omitempty"`
	Source  string `json:"source,omitempty"` // of the call
	Guess   bool   `json:"guess,omitempty"`  // found on the stack, or in a register; it may be stale
}

// Command is something to do next.
type Command struct {
	To   string `json:"to"`
	Line string `json:"line"` // for a shell
}

// Name of what the card is about.
func (c *Card) Name() string {
	if c.Guest != "" {
		return c.Guest
	}
	return c.Scenario
}

// maxFrames bounds a backtrace on a card for the terminal.
const maxFrames = 12

// Text is the whole card.
func (c *Card) Text() string { return c.render(false) }

// Brief is the card for a terminal: no registers, short backtraces.
func (c *Card) Brief() string { return c.render(true) }

func (c *Card) render(brief bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: %s", c.Arch, c.Name(), c.Status)
	if c.Kind != "" {
		fmt.Fprintf(&b, " (%s)", c.Kind)
	}
	fmt.Fprintf(&b, "\n  %s\n", c.Summary)
	if c.Hang != nil {
		fmt.Fprintf(&b, "  %s: %s\n", c.Hang.Class, c.Hang.Detail)
	}
	if c.Step != "" {
		fmt.Fprintf(&b, "  last step begun: %s\n", c.Step)
	}
	for _, cpu := range c.CPUs {
		cpu.render(&b, brief)
	}
	section(&b, "console", c.Console)
	section(&b, "notes", c.Notes)
	for _, cmd := range c.Commands {
		if brief && len(cmd.Line) > maxLine {
			fmt.Fprintf(&b, "  to %s: see %s\n", cmd.To, TextFile)
			continue
		}
		fmt.Fprintf(&b, "  to %s:\n    %s\n", cmd.To, cmd.Line)
	}
	if len(c.Files) > 0 {
		fmt.Fprintf(&b, "  files: %s\n", strings.Join(c.Files, " "))
	}
	return b.String()
}

// maxLine bounds a command on a terminal, in bytes: QEMU's has some thousand.
const maxLine = 400

func section(b *strings.Builder, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "  %s:\n", title)
	for _, l := range lines {
		fmt.Fprintf(b, "    %s\n", l)
	}
}

func (cpu *CPU) render(b *strings.Builder, brief bool) {
	fmt.Fprintf(b, "  CPU %d, %s", cpu.Number, cpu.Mode)
	if cpu.Interrupts != "" {
		fmt.Fprintf(b, ", interrupts %s", cpu.Interrupts)
	}
	fmt.Fprintf(b, ": %s\n", at(cpu.PC, cpu.Symbol, cpu.Source))
	for i, f := range cpu.Backtrace {
		if brief && i == maxFrames {
			fmt.Fprintf(b, "    … %d more\n", len(cpu.Backtrace)-i)
			break
		}
		mark := " "
		if f.Guess {
			mark = "?"
		}
		fmt.Fprintf(b, "   %s %s\n", mark, at(f.Address, f.Symbol, f.Source))
	}
	if !brief {
		for _, l := range cpu.Registers {
			fmt.Fprintf(b, "      %s\n", l)
		}
	}
}

// at is a place in words, as far as they are known.
func at(words ...string) string {
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
}
