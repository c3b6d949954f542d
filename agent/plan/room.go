package plan

import (
	"kerninst/agent/ktext"
	"kerninst/agent/pad"
	"kerninst/agent/place"
)

// Evicts reports whether an ISA's functions are moved away to make room for springboards.
func Evicts(arch string) bool {
	_, ok := behindFtrace[arch]
	return ok
}

// Idle is where springboards go near the kernel's own code ("") or that of a module
// before any function is moved away: what nothing runs, behind the text, or in the
// function that a module is left by. On ISAs that do not evict there is none.
func Idle(text *ktext.Text, module string) ([]place.Window, error) {
	if !Evicts(text.Arch.Name) {
		return nil, nil
	}
	return (&function{Func: ktext.Func{Module: module}, text: text}).idle()
}

// LeafRoom is what a function leaves for springboards when it is moved away: all behind
// the jump to its copy.
func LeafRoom(l pad.Leaf) place.Window {
	return place.Window{Lo: l.Body + riscv64JumpLen, Hi: l.End()}
}
