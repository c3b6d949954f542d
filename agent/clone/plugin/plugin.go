// Package plugin is what plugins of clones are written with, after JIFL's (its paper's sections 3.2
// and 5): Go programs that say what is inserted in an instrumented copy of the kernel's code.
//
// A plugin is a package main whose function main calls Main. It runs on the host, twice. First,
// its functions are called for each system call (or other function) that is cloned, and for each
// routine, block and instruction of the clone, and say what is inserted; only that reaches the guest. When the
// workload has run, they are called again, for the same, and then Report with what was found.
//
//	func main() {
//		var blocks []*plugin.Point
//		plugin.Main(plugin.Plugin{
//			Block:  func(b *plugin.Block) { blocks = append(blocks, b.Insert("count")) },
//			Report: func(w io.Writer) { ... blocks[0].Value() ... },
//		})
//	}
//
// What is inserted is an action as lab probe has it, with a predicate in slashes in front if it has
// one: "count", "trace(42)", "/arg2 > 4096/ hist(arg2)". What the plugin knows is best a constant in it.
package plugin

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Plugin is what is called. Nil functions are not.
type Plugin struct {
	// Syscall is called for each function that is cloned with what it leads to; then Routine, Block and
	// Insn for all that is in its clone, from outside to inside, in order of address. Routine is not called for
	// parts of one that lie elsewhere; the others are.
	Syscall func(*Syscall)
	Routine func(*Routine)
	Block   func(*Block)
	Insn    func(*Insn)
	// Report writes what was found.
	Report func(w io.Writer)
}

// Syscall is a function that is cloned with what was seen to be executed on its behalf.
type Syscall struct {
	Name     string     `json:"name"`
	Routines []*Routine `json:"routines"` // the first is the function itself
}

// Routine is a function of the kernel, as it is in one clone.
type Routine struct {
	Name    string   `json:"name"`
	Module  string   `json:"module,omitempty"`
	Part    bool     `json:"part,omitempty"`   // of the one before, which the compiler has put elsewhere: nobody calls it
	Source  string   `json:"source,omitempty"` // FILE:LINE, where debugging information was asked for
	Blocks  []*Block `json:"blocks"`
	Syscall *Syscall `json:"-"`

	parts []*Routine // of it that lie elsewhere
}

// Block is a basic block: who runs its first instruction runs all of them. Calls end none.
type Block struct {
	Insns   []*Insn  `json:"insns"`
	Routine *Routine `json:"-"`
}

// Kind is what an instruction does to the flow of control.
type Kind string

const (
	Plain        Kind = "none"
	Jump         Kind = "jump"
	Conditional  Kind = "cond"
	Call         Kind = "call"
	Return       Kind = "return"
	IndirectJump Kind = "indirect-jump"
	IndirectCall Kind = "indirect-call"
	Trap         Kind = "trap"
)

// Insn is an instruction.
type Insn struct {
	Offset uint64 `json:"offset"` // in its routine, in bytes
	Text   string `json:"text"`   // disassembly
	Kind   Kind   `json:"kind"`
	Source string `json:"source,omitempty"` // FILE:LINE
	// To is the function that it calls or jumps to, if it is known and another one; Target the offset in
	// its own routine that it jumps to, if Inside.
	To     string `json:"to,omitempty"`
	Target uint64 `json:"target,omitempty"`
	Inside bool   `json:"inside,omitempty"`
	Locked bool   `json:"locked,omitempty"` // one access to memory that no other CPU comes between
	Block  *Block `json:"-"`
}

// Where is where at an instruction something is inserted.
type Where int

const (
	before Where = iota
	behind
	taken
)

// Point is something that is inserted, and what it found.
type Point struct {
	Function string `json:"function"`
	Module   string `json:"module,omitempty"`
	Within   string `json:"within"`
	Offset   uint64 `json:"offset"`
	Entry    bool   `json:"entry,omitempty"`
	Where    Where  `json:"where,omitempty"`
	Action   string `json:"action"`

	found Found
}

// Found is what a point has found.
type Found struct {
	Value   uint64   `json:"value"`             // of what counts or sums
	Rows    []Row    `json:"rows,omitempty"`    // of what is kept by keys, or is more than one number
	Refused string   `json:"refused,omitempty"` // why it is not inserted
	Records []Record `json:"records,omitempty"` // of what traces, in the order in which they were made
}

// Row is what was found of one key or, of a histogram, in one interval.
type Row struct {
	Keys   []uint64 `json:"keys,omitempty"`
	Values []uint64 `json:"values"`
}

// Record is what one hit has left. Number is its place among all records of the run, of all points.
type Record struct {
	Number uint64   `json:"number"`
	CPU    uint32   `json:"cpu"`
	Fields []uint64 `json:"fields,omitempty"`
}

// Value is what a point that counts or sums has found.
func (p *Point) Value() uint64 { return p.found.Value }

// Found is all that a point has found.
func (p *Point) Found() Found { return p.found }

// inserted are all points, in the order in which they were asked for.
var inserted []*Point

func insert(r *Routine, offset uint64, entry bool, w Where, action string) *Point {
	p := &Point{Function: r.Name, Module: r.Module, Within: r.Syscall.Name, Offset: offset, Entry: entry, Where: w, Action: action}
	inserted = append(inserted, p)
	return p
}

// Insert does an action where the function is entered.
func (s *Syscall) Insert(action string) *Point { return s.Routines[0].Insert(action) }

// Insert does an action where the routine is entered.
func (r *Routine) Insert(action string) *Point { return insert(r, 0, true, before, action) }

// Returns does an action on each of the routine's ways out, those of its parts that lie elsewhere too: before what returns,
// or jumps to another routine, and where a conditional jump to another routine is taken.
func (r *Routine) Returns(action string) (all []*Point) {
	halves := append([]*Routine{r}, r.parts...)
	for _, half := range halves {
		for _, b := range half.Blocks {
			for _, i := range b.Insns {
				switch i.Kind {
				case Return, IndirectJump:
					all = append(all, i.Insert(action))
				case Jump:
					if i.leaves(halves) {
						all = append(all, i.Insert(action))
					}
				case Conditional:
					if i.leaves(halves) {
						all = append(all, i.Taken(action))
					}
				}
			}
		}
	}
	return all
}

// leaves reports whether a jump leads to none of a routine's halves.
func (i *Insn) leaves(halves []*Routine) bool {
	to, _, _ := strings.Cut(i.To, "+")
	return !i.Inside && !slices.ContainsFunc(halves, func(r *Routine) bool { return r.Name == to })
}

// Insert does an action once for each time that the block is run.
func (b *Block) Insert(action string) *Point { return b.Insns[0].Insert(action) }

// Insert does an action before the instruction.
func (i *Insn) Insert(action string) *Point {
	return insert(i.Block.Routine, i.Offset, false, before, action)
}

// Behind does an action when control goes on behind the instruction: when a jump is not taken, or a call
// has come back.
func (i *Insn) Behind(action string) *Point {
	return insert(i.Block.Routine, i.Offset, false, behind, action)
}

// Taken does an action when a conditional jump is taken.
func (i *Insn) Taken(action string) *Point {
	return insert(i.Block.Routine, i.Offset, false, taken, action)
}

// Input is what a plugin is given: what is cloned and, when the workload has run, what each point found.
type Input struct {
	Arch     string     `json:"arch"`
	Syscalls []*Syscall `json:"syscalls"`
	Found    []Found    `json:"found,omitempty"`
	Ran      bool       `json:"ran,omitempty"`
}

// Output is what it answers: what is to be inserted.
type Output struct {
	Points []*Point `json:"points"`
}

// Arch is the ISA that is asked about: amd64, arm64 or riscv64.
var Arch string

// Main calls a plugin's functions, and ends the program.
func Main(p Plugin) {
	if err := run(p, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "plugin:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(p Plugin, r io.Reader, w io.Writer) error {
	var in Input
	if err := json.NewDecoder(r).Decode(&in); err != nil {
		return fmt.Errorf("this is run by lab plugin run, which gives it what there is: %w", err)
	}
	Arch, inserted = in.Arch, nil
	for _, s := range in.Syscalls {
		p.visit(s)
	}
	if !in.Ran {
		return json.NewEncoder(w).Encode(Output{inserted})
	}
	if len(in.Found) != len(inserted) {
		return fmt.Errorf("it asked for %d points before the workload ran, and now for %d: what it asks for must not depend on anything else", len(in.Found), len(inserted))
	}
	for k, f := range in.Found {
		inserted[k].found = f
	}
	if p.Report != nil {
		p.Report(w)
	}
	return nil
}

func (p Plugin) visit(s *Syscall) {
	var whole *Routine
	for _, r := range s.Routines {
		r.Syscall = s
		if !r.Part {
			whole, r.parts = r, nil
		} else if whole != nil {
			whole.parts = append(whole.parts, r)
		}
		for _, b := range r.Blocks {
			b.Routine = r
			for _, i := range b.Insns {
				i.Block = b
			}
		}
	}
	called(p.Syscall, s)
	for _, r := range s.Routines {
		if !r.Part {
			called(p.Routine, r)
		}
		for _, b := range r.Blocks {
			called(p.Block, b)
			for _, i := range b.Insns {
				called(p.Insn, i)
			}
		}
	}
}

func called[T any](f func(*T), x *T) {
	if f != nil {
		f(x)
	}
}
