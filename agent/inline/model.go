package inline

import (
	"cmp"
	"fmt"

	"kerninst/agent/isa"
)

// Range is code: [Lo, Hi), in bytes from the begin of the text.
type Range struct{ Lo, Hi isa.Off }

// Holds reports whether a place is in the range.
func (r Range) Holds(o isa.Off) bool { return o >= r.Lo && o < r.Hi }

// before orders ranges by where they begin.
func (r Range) before(o Range) int { return cmp.Compare(r.Lo, o.Lo) }

// Func is a function as the source has it. Files may have functions of the same name.
type Func struct {
	Name, File string
	Line       int
}

// Body is compiled code of one function, with the copies of others that are in it, each behind the one
// that it is in.
type Body struct {
	Func   Func
	Ranges []Range // the first is where it is entered

	copies []Copy   // while an index is made
	rest   reader   // in one that is: its copies,
	at     []uint32 // and where in that each is
}

// Copy is an inlined copy of a function.
type Copy struct {
	Func  Func
	In    int    // the copy that it is in, by its number in Copies; or else Outermost
	File  string // where it is called
	Line  int
	Entry isa.Off

	ranges []Range // while an index is made
	args   []Arg
	rest   reader // in one that is: both
}

// Outermost copies are in no other.
const Outermost = -1

// Arg is an argument of a copy.
type Arg struct {
	Name  string
	Where []Place // in order of places
}

// Place is where an argument is while control is in Range.
type Place struct {
	Range
	Kind Kind
	Reg  isa.Reg // of Register, Memory and Sum
	Off  int64   // what is added to it; or the Constant; or the address of a Symbol, from the begin of the text
}

// Kind is how a value is found.
type Kind uint8

const (
	Lost     Kind = iota // it is computed, in parts, or known to callers only
	Register             // in Reg
	Memory               // in memory at Reg+Off
	Sum                  // Reg+Off itself
	Frame                // in memory at the call frame's address (DW_OP_call_frame_cfa) plus Off
	Constant             // Off
	Symbol               // an address of the kernel's
	kinds
)

var kindNames = [kinds]string{"lost", "register", "memory", "sum", "frame", "constant", "symbol"}

func (k Kind) String() string {
	if k >= kinds {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return kindNames[k]
}

// In says in words where the value is.
func (p Place) In(arch *isa.Arch) string {
	switch p.Kind {
	case Register:
		return arch.RegName(p.Reg)
	case Memory:
		return fmt.Sprintf("memory at %s%+d", arch.RegName(p.Reg), p.Off)
	case Sum:
		return fmt.Sprintf("%s%+d", arch.RegName(p.Reg), p.Off)
	case Frame:
		return fmt.Sprintf("memory at the frame%+d", p.Off)
	case Constant:
		return fmt.Sprint(p.Off)
	case Symbol:
		return fmt.Sprintf("_stext%+#x", p.Off)
	}
	return "not known"
}

// Line is a row of the line table: what is at Off, and up to the next row, is of a line.
type Line struct {
	Off  isa.Off
	File string // "" where no line is said: behind the end of a sequence
	Line int
	// Begins says that a statement begins here (is_stmt).
	Begins bool
}

// Stats counts what Make found, and what it left out.
type Stats struct {
	Units, Bodies, Copies, Args int
	Outside                     int // bodies outside the text: what runs at boot, and goes then
	Left                        int // bodies that the linker has left without a name
	Empty                       int // copies of which nothing is left
	Lines                       int
	Located                     int // bytes of code of copies for which an argument has a place
	Covered                     int // bytes of code of copies, once for each argument
}
