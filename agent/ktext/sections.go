package ktext

import (
	"cmp"
	"slices"
	"strings"

	"kerninst/agent/isa"
)

// TextSection is a part of the kernel's own text that the linker keeps together.
type TextSection struct {
	Name   string // as in the kernel's linker script
	Lo, Hi isa.Addr
}

// scriptNames are sections whose symbols are not named as they are
// (include/asm-generic/vmlinux.lds.h).
var scriptNames = map[string]string{"lock": "spinlock", "hyp_idmap": "hyp.idmap"}

// TextSections are those that symbols bound, __NAME_text_start and __NAME_text_end, and
// that lie in the text: initialisation code is gone. One may lie inside another. What is
// in none of them is .text.
func (t *Text) TextSections() (out []TextSection) {
	for symbol, lo := range t.sym.markers {
		name, ok := strings.CutSuffix(symbol, "_text_start")
		hi := t.sym.markers[name+"_text_end"]
		short, plain := strings.CutPrefix(name, "__")
		if !ok || !plain || strings.HasPrefix(short, "kvm_nvhe_") || lo < t.lo || hi > t.hi || lo >= hi { // arm64's names for a section's other name
			continue
		}
		if script := scriptNames[short]; script != "" {
			short = script
		}
		out = append(out, TextSection{"." + short + ".text", lo, hi})
	}
	slices.SortFunc(out, func(a, b TextSection) int {
		return cmp.Or(cmp.Compare(a.Lo, b.Lo), cmp.Compare(b.Hi, a.Hi), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// mainSection is what no symbols bound.
const mainSection = ".text"

// SectionOf names the section that an address of the kernel's text is in: of those that
// lie in each other the innermost.
func SectionOf(sections []TextSection, a isa.Addr) string {
	name, size := mainSection, ^isa.Addr(0)
	for _, s := range sections {
		if a >= s.Lo && a < s.Hi && s.Hi-s.Lo < size {
			name, size = s.Name, s.Hi-s.Lo
		}
	}
	return name
}
