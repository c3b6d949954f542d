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
	callFlags      = 3 // lowest bits of the distance to the key
)

// StaticCalls is, for each site of a static call of a module whose sections are known ("": of the
// kernel), the trampoline that leads where the site does. A site is missing whose key has no symbol.
func (t *Text) StaticCalls(module string) (map[isa.Addr]isa.Addr, error) {
	l := staticCalls
	if module != "" {
		l = moduleStaticCalls
	}
	lo, hi, err := t.tableBounds(module, l)
	if err != nil || lo == 0 {
		return nil, err
	}
	by := t.callTrampolines()
	out := map[isa.Addr]isa.Addr{}
	err = t.eachEntry(l, lo, hi, func(at isa.Addr, b []byte) {
		if to, ok := by[rel(at, b, 4)&^callFlags]; ok {
			out[rel(at, b, 0)] = to
		}
	})
	return out, err
}

// callTrampolines are those of the kernel's own static calls, by the addresses of the keys.
func (t *Text) callTrampolines() map[isa.Addr]isa.Addr {
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
