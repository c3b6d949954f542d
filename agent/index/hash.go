package index

import (
	"kerninst/agent/isa"
)

// hasher sums up the text of functions, so that two kernels have the same hash
// of a function exactly when it does the same in both. Left out is what differs
// without meaning anything: where the kernel has put itself, what it rewrites
// while it runs, and what depends on the number of CPUs.
type hasher struct {
	arch   *isa.Arch
	lo, hi isa.Addr // of the kernel's image: addresses in it move with it
	boot   bootPrefix
}

func newHasher(arch *isa.Arch, lo, hi isa.Addr) hasher {
	return hasher{arch, lo, hi, bootPrefixes[arch.Name]}
}

// FNV-1a of 64 bits: a changed byte always changes it.
const (
	fnvStart = 14695981039346656037
	fnvPrime = 1099511628211
)

// bootPrefixes are bytes that begin an instruction in place of another when the
// kernel has one CPU: amd64's lock prefix becomes a segment's (alternatives of
// smp_locks).
type bootPrefix struct{ now, then byte }

var bootPrefixes = map[string]bootPrefix{
	"amd64": {0x3e, 0xf0},
}

// block adds a block's instructions to h. code is the block's, list what it decodes to; what
// lies below skip is left out, and the last instruction, if the kernel rewrites it.
func (s *hasher) block(h uint64, b Info, code []byte, list []isa.Insn, skip isa.Addr) uint64 {
	if b.Odd {
		return add(h, code)
	}
	for k := range list {
		i := &list[k]
		n := min(i.Len, len(code))
		if i.Addr >= skip && !(b.Site && n == len(code)) {
			h = s.insn(h, code[:n], i)
		}
		code = code[n:]
	}
	return h
}

// shortestSettled is the length of the shortest instruction that has an address, in bytes:
// of four bytes, behind an opcode.
const shortestSettled = 5

func (s *hasher) insn(h uint64, code []byte, i *isa.Insn) uint64 {
	if s.arch.Absolute == nil || len(code) < i.Len {
		return add(h, code)
	}
	var b [16]byte
	settled := append(b[:0], code...)
	s.settle(settled, i)
	return add(h, settled)
}

func add(h uint64, code []byte) uint64 {
	for _, c := range code {
		h = (h ^ uint64(c)) * fnvPrime
	}
	return h
}

// settle makes an instruction what it were in a kernel whose text begins at 0.
// Distances to what does not move with the kernel become addresses.
func (s *hasher) settle(code []byte, i *isa.Insn) {
	if code[0] == s.boot.now { // others than amd64 do not come here
		code[0] = s.boot.then
	}
	if len(code) < shortestSettled {
		return
	}
	if s.mayHold(code) {
		s.settleAbsolute(code)
	}
	if i.Rel32 > 0 && (i.Operand < s.lo || i.Operand >= s.hi) {
		order.PutUint32(code[i.Rel32:], uint32(i.Operand))
	}
}

func (s *hasher) settleAbsolute(code []byte) {
	for _, f := range s.arch.Absolute(code) {
		if f.Size == 8 {
			if v := isa.Addr(order.Uint64(code[f.Off:])); v >= s.lo && v < s.hi {
				order.PutUint64(code[f.Off:], uint64(v-s.lo))
			}
		} else if v := isa.Addr(int64(int32(order.Uint32(code[f.Off:])))); v >= s.lo && v < s.hi {
			order.PutUint32(code[f.Off:], uint32(v-s.lo))
		}
	}
}

// mayHold reports whether some bytes of an instruction look like an address in the image:
// most do not, and then it matters not which of them could be one.
func (s *hasher) mayHold(code []byte) bool {
	for k := 1; k+4 <= len(code); k++ {
		if v := isa.Addr(int64(int32(order.Uint32(code[k:])))); v >= s.lo && v < s.hi {
			return true
		}
		if k+8 > len(code) {
			continue
		}
		if v := isa.Addr(order.Uint64(code[k:])); v >= s.lo && v < s.hi {
			return true
		}
	}
	return false
}
