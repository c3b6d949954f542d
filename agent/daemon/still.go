package daemon

import (
	"cmp"
	"slices"

	"kerninst/agent/kdev"
	"kerninst/agent/splice"
)

// Counters of all of a subsystem's blocks are compared with each other: what comes to one block
// goes to the next. To read a hundred thousand of them takes so long that the kernel, which the
// reader keeps busy itself, is elsewhere at the end. So they are copied by the module while every
// CPU stands still, as at the moments of functions that are timed.

// nearCells is how far cells are apart, in words, that are copied as one list: what is between
// costs less than a list of its own.
const nearCells = 64

// localPage is the least that cells of per-CPU memory are made of, in bytes.
const localPage = 4096

// cellOf is one word of a splice's cells.
type cellOf struct {
	place splice.Place
	of    int // which live splice
	word  int
}

// countStill reads the cells of every live splice at one moment.
func (d *Daemon) countStill() (map[*splice.Live][]uint64, error) {
	live := d.splicer.Live()
	var all []cellOf
	raw := make([][]uint64, len(live))
	for k, l := range live {
		raw[k] = make([]uint64, l.Plan.Snippet.Words())
		for w, p := range l.Places() {
			all = append(all, cellOf{p, k, w})
		}
	}
	slices.SortFunc(all, func(a, b cellOf) int {
		return cmp.Or(cmp.Compare(b2i(a.place.Local), b2i(b.place.Local)), cmp.Compare(a.place.Addr, b.place.Addr))
	})
	lists, at := asLists(all)
	m, err := d.dev.Moment(lists, nil, kdev.Clocks{})
	if err != nil {
		return nil, err
	}
	counts := make(map[*splice.Live][]uint64, len(live))
	for k, c := range all {
		raw[c.of][c.word] = m.Words[at[k]]
	}
	for k, l := range live {
		counts[l] = l.Read(raw[k])
	}
	return counts, nil
}

// asLists lists cells, which are in order, and tells which of the listed words each is.
func asLists(all []cellOf) (lists []kdev.Cells, at []int) {
	words := 0
	for _, c := range all {
		last := len(lists) - 1
		if last >= 0 && oneList(lists[last], c.place) {
			off := int(c.place.Addr-lists[last].Addr) / 8
			if more := off + 1 - lists[last].Words; more <= nearCells && off < longestList {
				lists[last].Words += max(more, 0)
				words += max(more, 0)
				at = append(at, words-lists[last].Words+off)
				continue
			}
		}
		lists = append(lists, kdev.Cells{Addr: c.place.Addr, Words: 1, Local: c.place.Local})
		at = append(at, words)
		words++
	}
	return lists, at
}

// oneList tells whether a list may go on up to a cell: cells of per-CPU memory are listed by the
// page, as they were made.
func oneList(l kdev.Cells, p splice.Place) bool {
	return l.Local == p.Local && (!p.Local || l.Addr/localPage == p.Addr/localPage)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
