// Package snippet is the program that is inserted at a point, free of any ISA.
//
// A snippet runs in process, softirq, irq and NMI context and on several CPUs
// at once; it takes no locks and calls nothing.
package snippet

import "fmt"

// Op is what a snippet does.
type Op uint8

const (
	Invalid Op = iota
	// AddOne adds one to the patch's cell, a 64-bit number that all CPUs
	// share, by one atomic instruction: exact on any number of CPUs and in
	// NMI context.
	AddOne
)

var opNames = [...]string{"invalid", "count"}

func (o Op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return fmt.Sprintf("op(%d)", uint8(o))
}

// Snippet is one program.
type Snippet struct {
	Op Op `json:"op"`
}

// Count is the snippet that counts how often its point is reached.
func Count() Snippet { return Snippet{Op: AddOne} }
