package ktext

import (
	"strings"

	"kerninst/agent/isa"
)

// Static calls (amd64; include/linux/static_call_types.h). Code calls a function that may change
// while the kernel runs: at each site, which is rewritten then, and in a trampoline, which is, too.
// So what is no site can call the trampoline at any time. Key and trampoline share a name.
const (
	callKey        = "__SCK__"
	callTrampoline = "__SCT__"
	callFlags      = 3 // lowest bits of the key's address, of which the first says that the site does not come back
	callTail       = 1
)

// CallSite is what a site of one is: what calls the same, and whether it does not come back. What is there now
// need not say so: one that leads nowhere is a return.
type CallSite struct {
	Trampoline isa.Addr
	Tail       bool
}

// StaticCalls are, for each site of a static call of a module whose sections are known ("": of the
// kernel), what leads where the site does. A site is missing whose key has no symbol.
func (t *Text) StaticCalls(module string) (map[isa.Addr]CallSite, error) {
	l := staticCalls
	if module != "" {
		l = moduleStaticCalls
	}
	lo, hi, err := t.tableBounds(module, l)
	if err != nil || lo == 0 {
		return nil, err
	}
	by := t.callTrampolines()
	out := map[isa.Addr]CallSite{}
	err = t.eachEntry(l, lo, hi, func(at isa.Addr, b []byte) {
		key := rel(at, b, 4)
		if to, ok := by[key&^callFlags]; ok {
			out[rel(at, b, 0)] = CallSite{to, key&callTail != 0}
		}
	})
	return out, err
}

// callTrampolines are those of the kernel's own static calls, by the addresses of the keys.
func (t *Text) callTrampolines() map[isa.Addr]isa.Addr {
	t.own.indexed.Do(t.sym.buildIndex)
	out := map[isa.Addr]isa.Addr{}
	for name, key := range t.sym.markers {
		if of, ok := strings.CutPrefix(name, callKey); ok {
			if at := t.sym.find(callTrampoline + of); len(at) == 1 {
				out[key] = t.sym.list[at[0]].addr
			}
		}
	}
	return out
}
