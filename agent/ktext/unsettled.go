package ktext

import (
	"slices"
	"strings"

	"kerninst/agent/isa"
)

// keyNops are what the kernel has at the site of a static key that does not jump, by ISA
// (arch/*/include/asm/jump_label.h; x86_nops of two and five bytes).
var keyNops = map[string][]string{
	"amd64":   {"\x66\x90", "\x0f\x1f\x44\x00\x00"},
	"arm64":   {"\x1f\x20\x03\xd5"},
	"riscv64": {"\x13\x00\x00\x00"},
}

// settling is how often is looked: who turns a key, or a static call, sets its word before its sites, or behind them.
const settling = 5

// Unsettled are the sites in the kernel's own text at which there is not what the kernel's own state demands: a static
// key's that does not lead where the key says (kernel/jump_label.c: jump_label_type), or a static call's that calls
// another function than its key has (arch/x86/kernel/static_call.c: __static_call_transform). Somebody may turn one
// meanwhile: wait is for a moment until it is looked again. Errors are of what cannot be read.
func (t *Text) Unsettled(wait func()) (wrong []isa.Addr, err error) {
	sites, err := t.demands()
	if err != nil {
		return nil, err
	}
	for look := 0; ; look++ {
		var left []demand
		wrong = nil
		for _, s := range sites {
			ok, err := s.holds(t)
			if err != nil {
				return nil, err
			}
			if !ok {
				left, wrong = append(left, s), append(wrong, s.at())
			}
		}
		if sites = left; len(sites) == 0 || look == settling {
			return wrong, nil
		}
		wait()
	}
}

// demand is what the kernel's own state demands of a site.
type demand interface {
	at() isa.Addr
	holds(t *Text) (bool, error)
}

// demands are those of all sites in the kernel's own text.
func (t *Text) demands() (out []demand, err error) {
	links, err := t.Links("")
	if err != nil {
		return nil, err
	}
	for _, k := range links.Keys {
		out = append(out, k)
	}
	lo, hi, err := t.kernelTable(staticCalls)
	if err == nil && lo != 0 {
		err = t.eachEntry(staticCalls, lo, hi, func(at isa.Addr, b []byte) {
			key := rel(at, b, 4)
			out = append(out, calledBy{rel(at, b, 0), key &^ callFlags, key&callTail != 0})
		})
	}
	return slices.DeleteFunc(out, func(d demand) bool { return d.at() < t.lo || d.at() >= t.hi }), err
}

func (k Key) at() isa.Addr { return k.Site }

func (k Key) holds(t *Text) (bool, error) {
	on, err := t.word(k.Enabled, 4)
	if err != nil {
		return false, err
	}
	in, code, err := t.rewritten(k.Site)
	if (on != 0) != k.Off {
		return in.Flow == isa.FlowJump && in.Target == k.Target, err
	}
	return slices.Contains(keyNops[t.Arch.Name], code), err
}

// calledBy is a site of a static call, its key, which has the function, and whether the site does not come back.
type calledBy struct {
	site, key isa.Addr
	tail      bool
}

func (c calledBy) at() isa.Addr { return c.site }

// callsNothing is what is at a site of a static call that comes back, where it calls nothing; and calledAs what is there
// instead of a call of some functions: a register is cleared, as written until 6.1 and since; or there is a trap that warns, since 6.19.
const callsNothing = "\x0f\x1f\x44\x00\x00"

var calledAs = map[string][]string{
	"__static_call_return0": {"\x66\x66\x48\x31\xc0", "\x2e\x2e\x2e\x31\xc0"},
	"__WARN_trap":           {"\x67\x48\x0f\xb9\x3a"},
}

func (c calledBy) holds(t *Text) (bool, error) {
	word, err := t.word(c.key, 8)
	if err != nil {
		return false, err
	}
	f := isa.Addr(word)
	in, code, err := t.rewritten(c.site)
	leaves := in.Flow == isa.FlowJump || in.Flow == isa.FlowCond
	switch {
	case f != 0 && in.Target == f && (leaves && c.tail || in.Flow == isa.FlowCall && !c.tail):
		return true, err
	case f != 0:
		to, _ := t.Locate(f)
		return !c.tail && to.Addr == f && slices.Contains(calledAs[to.Name], code), err
	case !c.tail:
		return code == callsNothing, err
	case leaves: // to what returns
		to, _ := t.Locate(in.Target)
		return strings.HasSuffix(to.Name, "return_thunk") || to.Name == "__static_call_return", err
	}
	return in.Flow == isa.FlowReturn, err
}

// rewritten is the instruction at a site that the kernel rewrites, and its bytes.
func (t *Text) rewritten(at isa.Addr) (isa.Insn, string, error) {
	var b [longestRewritten]byte
	err := t.Read(at, b[:])
	in := t.Arch.Decode(b[:], at)
	return in, string(b[:in.Len]), err
}

// word is one of so many bytes in memory.
func (t *Text) word(at isa.Addr, size int) (v uint64, err error) {
	var b [8]byte
	err = t.Read(at, b[:size])
	return isa.ByteOrder.Uint64(b[:]), err
}
