package gen

import (
	"math/bits"

	"kerninst/agent/isa"
	"kerninst/agent/snippet"
)

// Unit is what a hit adds to the word of a cell at an address: 1, but for a counter
// whose patch has the address in a register anyway and no constant. There it adds the
// address, which saves the instruction that loads 1: as n different hits leave n
// different sums, Hits finds the number again.
//
// Additions wrap at 2^64. An address with z zeros at its end is an odd number times
// 2^z, so the sum of n of them tells n modulo 2^(64-z): an address with more zeros than
// keep is not added.
func Unit(arch *isa.Arch, s snippet.Snippet, cell isa.Addr) uint64 {
	if !CountsAddresses(arch) || !s.IsCounter() || bits.TrailingZeros64(uint64(cell)) > 64-hitBits {
		return 1
	}
	return uint64(cell)
}

// CountsAddresses reports whether there are counters of the ISA that add addresses.
func CountsAddresses(arch *isa.Arch) bool { return generators[arch.Name].addresses }

// hitBits is how many bits of a counter are certain at least, those of the first slot of
// an area of 64 KiB; most cells have ten more. A word that CPUs add to in turn takes some
// 50 million additions a second: these bits last for two months.
const hitBits = 48

// Hits is how often a unit was added to a word that began with 0.
func Hits(word, unit uint64) uint64 { return snippet.Times(word, unit) }
