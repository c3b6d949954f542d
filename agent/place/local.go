package place

import (
	"fmt"

	"kerninst/agent/isa"
)

// Locals are the words of per-CPU memory that a heap has for cells. One that is given
// back is dirty: a task may be asleep in front of the instruction that adds to it, and
// only when nobody is in any patch that was undone it is anybody's again.
type Locals struct {
	addr  isa.Addr
	words []state
	low   int // below which none is clean
}

// localWord is the size of a cell in bytes.
const localWord = 8

// AddLocals puts n bytes of per-CPU memory into the heap, which has none before. It
// panics if they are not aligned to words.
func (h *Heap) AddLocals(a isa.Addr, n int) {
	if a == 0 || a%localWord != 0 || n%localWord != 0 || h.locals.words != nil {
		panic(fmt.Sprintf("place: %d bytes of local cells at %v, which are not words, or there are some", n, a))
	}
	h.locals = Locals{addr: a, words: make([]state, n/localWord)}
}

// PeekLocals finds n words, the lowest that are free; false: there are not as many.
func (h *Heap) PeekLocals(n int) (out []isa.Addr, ok bool) {
	l := &h.locals
	for l.low < len(l.words) && l.words[l.low] != clean {
		l.low++
	}
	for k := l.low; k < len(l.words) && len(out) < n; k++ {
		if l.words[k] == clean {
			out = append(out, l.addr+isa.Addr(k*localWord))
		}
	}
	return out, len(out) == n
}

// Local is where a word lies in the heap's per-CPU memory, in bytes; false: it is not
// one of its words.
func (h *Heap) Local(a isa.Addr) (off int, ok bool) {
	l := &h.locals
	if a < l.addr || a%localWord != 0 || a-l.addr >= isa.Addr(len(l.words)*localWord) {
		return 0, false
	}
	return int(a - l.addr), true
}

// TakeLocal marks a word as used. It reports whether it was free.
func (h *Heap) TakeLocal(a isa.Addr) bool { return h.turnLocal(a, clean, used) }

// UsedLocals counts the words in use.
func (h *Heap) UsedLocals() (n int) {
	for _, w := range h.locals.words {
		if w == used {
			n++
		}
	}
	return n
}

// FreeLocal marks a word as given back. It reports whether it was used.
func (h *Heap) FreeLocal(a isa.Addr) bool { return h.turnLocal(a, used, dirty) }

func (h *Heap) turnLocal(a isa.Addr, from, to state) bool {
	off, ok := h.Local(a)
	if !ok || h.locals.words[off/localWord] != from {
		return false
	}
	h.locals.words[off/localWord] = to
	return true
}

// CleanLocals makes those that were given back free. Nobody is in a patch that was
// undone.
func (h *Heap) CleanLocals() {
	for k, s := range h.locals.words {
		if s == dirty {
			h.locals.words[k] = clean
			h.locals.low = min(h.locals.low, k)
		}
	}
}
