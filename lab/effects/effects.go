// Package effects checks what the decoders say that instructions read and write
// by running instructions: each from random registers, and again with one
// register changed at a time (guest/bench/effects.c).
//
// What an instruction changes must be among what it writes or clobbers. What goes
// in and makes a difference must be among what it reads, and what it overwrites
// must not depend on what was there. More may be listed than is seen: that costs a
// spill, not a crash.
//
// It checks in the same way what the splicer makes of instructions: each is laid out
// with what it refers to, the planner splices it as it would in a kernel, and it has
// to do the same with the splice as without (guest/bench/equiv.c).
package effects

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"sort"
	"strconv"
	"strings"

	"kerninst/agent/isa"
)

// Case is one instruction that is run.
type Case struct {
	Form string // what it is an instance of
	Insn isa.Insn
	Code []byte
}

// barred are traits of instructions that cannot be run outside of a kernel, or
// not away from where they are.
const barred = isa.PCRel | isa.Privileged | isa.Exclusive | isa.Landing | isa.Shadow | isa.Lost

// kept are registers that the program needs for itself: the stack pointer, which
// points to the state, and riscv64's gp and tp.
var kept = map[string]isa.RegSet{
	"amd64": isa.Set(4), "arm64": isa.Set(31), "riscv64": isa.Set(2, 3, 4),
}

// Runnable says whether the program can run an instruction.
func Runnable(arch *isa.Arch, i isa.Insn, code []byte) bool {
	if i.Flow != isa.FlowNone || i.Traits&barred != 0 || (i.Reads|i.Writes|i.Clobbers)&kept[arch.Name] != 0 {
		return false
	}
	if arch.Name != "amd64" {
		return true
	}
	for _, u := range unrepeatable {
		if bytes.Contains(code[:i.Len], u) {
			return false
		}
	}
	return !bytes.ContainsAny(code[:min(i.Len, 2)], "\x64\x65") // segments have another base in a program
}

// unrepeatable are parts of instructions of amd64 that give another result each
// time: rdtsc, rdtscp, rdrand and rdseed of any register.
var unrepeatable = [][]byte{{0x0f, 0x31}, {0x0f, 0x01, 0xf9}, {0x0f, 0xc7}}

// Form is an instruction's text without what varies between its instances:
// constants, and the numbers of registers.
func Form(arch *isa.Arch, text string) string {
	var b strings.Builder
	before := ""
	for _, word := range split(text) {
		register := before == "%" // on amd64; a mnemonic may begin like one
		before = word
		switch {
		case word[0] >= '0' && word[0] <= '9', word[0] == '-':
			word = "n"
		case register && strings.HasPrefix(word, "r"):
			word = "r64"
		case register && strings.HasPrefix(word, "e") && len(word) == 3:
			word = "r32"
		default:
			word = strings.TrimRight(word, "0123456789")
		}
		b.WriteString(word)
	}
	return b.String()
}

// split cuts a text into words of letters and digits, and what lies between.
func split(text string) (out []string) {
	isWord := func(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' }
	for k := 0; k < len(text); {
		n := k + 1
		for isWord(text[k]) && n < len(text) && isWord(text[n]) {
			n++
		}
		out = append(out, text[k:n])
		k = n
	}
	return out
}

// Choose takes up to per instances of each form, at random. Candidates that are
// equal to the byte count once.
func Choose(seed uint64, per int, all []Case) (chosen []Case, forms int) {
	r := rand.New(rand.NewPCG(seed, 0))
	byForm := map[string][]Case{}
	for _, c := range all {
		byForm[c.Form] = append(byForm[c.Form], c)
	}
	names := make([]string, 0, len(byForm))
	for f := range byForm {
		names = append(names, f)
	}
	sort.Strings(names)
	for _, f := range names {
		list := byForm[f]
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		chosen = append(chosen, list[:min(per, len(list))]...)
	}
	return chosen, len(names)
}

// recordSize is what the program reads per instruction, in bytes: a length, with
// bit 7 for one that accesses memory, and the instruction.
const recordSize = 16

// Encode writes the cases as the program reads them.
func Encode(cases []Case) []byte {
	out := make([]byte, 0, recordSize*len(cases))
	for _, c := range cases {
		rec := [recordSize]byte{0: byte(c.Insn.Len)}
		if c.Insn.Traits&isa.Mem != 0 {
			rec[0] |= 0x80
		}
		copy(rec[1:], c.Code[:c.Insn.Len])
		out = append(out, rec[:]...)
	}
	return out
}

// memory is the number that the program gives to memory.
const memory isa.Reg = 40

// Seen is what running one instruction showed.
type Seen struct {
	Runs, Faults int
	Changed      isa.RegSet             // what differs afterwards
	Outputs      map[isa.Reg]isa.RegSet // what depends on a register
}

// Read parses what the program printed, a line for each of n instructions.
func Read(r io.Reader, n int) ([]Seen, error) {
	var out []Seen
	in := bufio.NewScanner(r)
	for in.Scan() {
		f := strings.Fields(in.Text())
		s := Seen{Outputs: map[isa.Reg]isa.RegSet{}}
		bad := fmt.Errorf("effects: line %d: %q", len(out)+1, in.Text())
		if len(f) < 4 || f[0] != strconv.Itoa(len(out)) {
			return nil, bad
		}
		var err1, err2, err3 error
		var mask uint64
		s.Runs, err1 = strconv.Atoi(f[1])
		s.Faults, err2 = strconv.Atoi(f[2])
		mask, err3 = strconv.ParseUint(f[3], 16, 64)
		s.Changed = isa.RegSet(mask)
		if err1 != nil || err2 != nil || err3 != nil {
			return nil, bad
		}
		for _, word := range f[4:] {
			reg, set, _ := strings.Cut(word, ":")
			n, err1 := strconv.ParseUint(reg, 10, 6)
			mask, err2 := strconv.ParseUint(set, 16, 64)
			if err1 != nil || err2 != nil {
				return nil, bad
			}
			s.Outputs[isa.Reg(n)] = isa.RegSet(mask)
		}
		out = append(out, s)
	}
	if len(out) != n && in.Err() == nil {
		return nil, fmt.Errorf("effects: %d lines for %d instructions", len(out), n)
	}
	return out, in.Err()
}

// Ran says whether the instruction was seen to the end at least once.
func (s Seen) Ran() bool { return s.Runs > s.Faults }

// Contradictions says in words where what was seen is not what was decoded.
func (s Seen) Contradictions(arch *isa.Arch, i isa.Insn) (out []string) {
	name := func(x isa.RegSet) string {
		if x.Has(memory) {
			return strings.TrimPrefix(arch.Names(x&^isa.Set(memory))+",memory", ",")
		}
		return arch.Names(x)
	}
	may := i.Writes | i.Clobbers
	if i.Traits&isa.Store != 0 {
		may |= isa.Set(memory)
	}
	if x := s.Changed &^ may; x != 0 {
		out = append(out, "changes "+name(x))
	}
	if i.Traits&isa.Vector != 0 {
		// What comes out may come from a vector register, and the program uses
		// those itself between two runs.
		return out
	}
	for r, outputs := range s.Outputs {
		own := isa.Set(r)
		switch {
		case i.Reads.Has(r):
		case i.Writes.Has(r) && outputs != 0:
			out = append(out, fmt.Sprintf("%s makes a difference to %s", arch.RegName(r), name(outputs)))
		case outputs&^own != 0:
			out = append(out, fmt.Sprintf("%s makes a difference to %s", arch.RegName(r), name(outputs&^own)))
		}
	}
	sort.Strings(out)
	return out
}
