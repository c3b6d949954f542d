package daemon

import (
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/splice"
)

// Each cell is found again among the words that are listed: those that are near are of one list,
// cells of per-CPU memory, which are sums, only where they are of one page.
func TestAsLists(t *testing.T) {
	at := func(a isa.Addr, local bool) cellOf { return cellOf{place: splice.Place{Addr: a, Local: local}} }
	all := []cellOf{at(0x100, true), at(0x108, true), at(0x2ff8, true), at(0x3000, true), at(0x1000, false), at(0x1000, false), at(0x1040, false),
		at(0x1040+8*nearCells, false), at(0x1048+16*nearCells, false), at(0x100000, false), at(0x100000+8*longestList, false)}
	lists, where := asLists(all)
	var words []splice.Place
	for _, l := range lists {
		for k := range l.Words {
			words = append(words, splice.Place{Addr: l.Addr + isa.Addr(8*k), Local: l.Local})
		}
		if end := l.Addr + isa.Addr(8*l.Words-8); l.Local && l.Addr/localPage != end/localPage || l.Words > longestList {
			t.Errorf("a list of %d words at %v", l.Words, l.Addr)
		}
	}
	for k, c := range all {
		if words[where[k]] != c.place {
			t.Errorf("cell %d is said to be at %v, not at %v", k, words[where[k]], c.place)
		}
	}
	if len(lists) != 7 {
		t.Errorf("%d lists, not 7", len(lists))
	}
}
