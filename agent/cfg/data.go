package cfg

import (
	"bytes"
	"cmp"
	"slices"
	"sort"
	"strings"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
)

// Text holds data too. What is data is told by who uses it, never by whether it
// decodes: half of all words decode as something.

// dataNames begin the names of symbols behind which, up to the next, lies no
// code.
var dataNames = []struct{ prefix, why string }{
	{"__kvm_nvhe___start___", "a table that the hypervisor keeps in its text"},
}

func isDataName(name string) bool {
	for _, d := range dataNames {
		if strings.HasPrefix(name, d.prefix) {
			return true
		}
	}
	return false
}

// frontWord is the size of the pointer that ftrace may keep in front of an
// entry (DYNAMIC_FTRACE_WITH_CALL_OPS): where struct ftrace_ops of whoever
// traces the function lies.
const frontWord = 8

// frontWords cuts those pointers off the spans before the entries. A kernel
// built without them has instructions there; their high halves are no address.
func (g *Graph) frontWords(t *ktext.Text, spans []span) {
	for k := range spans[:len(spans)-1] {
		s, next := &spans[k], &spans[k+1]
		if s.region != next.region || s.hi-s.lo < frontWord || t.FtraceSite(g.Addr(next.lo), g.Code(next.lo)) == 0 {
			continue
		}
		if t.FrontWord(g.Code(s.hi - frontWord)) {
			s.words = frontWord
		}
	}
}

// signature ends a static call's trampoline on amd64, behind its jump of five bytes: by
// it, and not to run it, __static_call_fixup() tells a trampoline from other code.
var signature = []byte{0x0f, 0xb9, 0xcc}

const trampolineJump = 5

// signatures cuts them off the spans of trampolines.
func (g *Graph) signatures(spans []span) {
	for k := range spans {
		s := &spans[k]
		if behind := s.lo + trampolineJump; s.called && behind < s.hi && bytes.HasPrefix(g.Code(behind), signature) {
			s.words = s.hi - behind
		}
	}
}

// isTrampoline reports whether a symbol is a static call's trampoline of amd64's layout.
func isTrampoline(arch, name string) bool {
	return arch == "amd64" && strings.HasPrefix(name, "__SCT__")
}

// pools are places that instructions load their constants from, in order.
type pools []pool

type pool struct {
	at   Pos
	size Pos
}

// at is the size of the constant at p; 0 if there is none.
func (x pools) at(p Pos) Pos {
	k := sort.Search(len(x), func(k int) bool { return x[k].at >= p })
	if k < len(x) && x[k].at == p {
		return x[k].size
	}
	return 0
}

// findPools looks for arm64's loads from a PC-relative address, at every word.
// Words that only look so do no harm: what they point at counts as data only
// where no code runs into it.
//
//	31 30 29 27 26 25 24 23     5 4  0
//	 opc | 011 | V| 00  | imm19  | Rt      C4.1.66.16, load register (literal)
func (g *Graph) findPools() (out pools) {
	if g.Arch.Name != "arm64" {
		return nil
	}
	for k := range g.Regions {
		r := &g.Regions[k]
		for n := 0; n+4 <= len(r.Code); n += 4 {
			w := isa.ByteOrder.Uint32(r.Code[n:])
			if w>>24&0x3b != 0x18 || w>>30 == 3 { // opc 3 is prfm
				continue
			}
			at := int64(n) + int64(int32(w<<8)>>13)<<2
			if at >= 0 && at < int64(len(r.Code)) {
				out = append(out, pool{r.base + Pos(at), literalSize(w)})
			}
		}
	}
	slices.SortFunc(out, func(a, b pool) int { // the largest of one place first
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.size, a.size))
	})
	return out
}

// literalSize is what a load of a literal reads, in bytes.
func literalSize(w uint32) Pos {
	opc, vector := w>>30, w>>26&1 != 0
	switch {
	case vector:
		return 4 << opc
	case opc == 1: // ldr of 64 bits; opc 0 and 2, ldrsw, read 32
		return 8
	}
	return 4
}
