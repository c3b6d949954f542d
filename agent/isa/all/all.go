// Package all is the one table from a name to an instruction set.
package all

import (
	"fmt"

	"kerninst/agent/isa"
	"kerninst/agent/isa/amd64"
	"kerninst/agent/isa/arm64"
	"kerninst/agent/isa/riscv64"
)

var arches = []*isa.Arch{amd64.Arch, arm64.Arch, riscv64.Arch}

// Arches lists every instruction set, in a fixed order.
func Arches() []*isa.Arch { return append([]*isa.Arch(nil), arches...) }

// Lookup finds an instruction set by its name, as Debian and Go write it.
func Lookup(name string) (*isa.Arch, error) {
	for _, a := range arches {
		if a.Name == name {
			return a, nil
		}
	}
	return nil, fmt.Errorf("unknown architecture %q (amd64, arm64, riscv64)", name)
}
