package ktext

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"

	"kerninst/agent/isa"
)

// symbols holds the text symbols of /proc/kallsyms in order of address. Names
// lie end to end in one slice: a kernel has some hundred thousand, and the
// guest's memory is small.
type symbols struct {
	names   []byte
	list    []symbol
	modules []string            // module 0 is the kernel, ""
	markers map[string]isa.Addr // section bounds and the like, text or not
	index   []int32             // hash table by name: position in list plus one
}

type symbol struct {
	addr   isa.Addr
	name   uint32 // offset in names
	hash   uint32
	length uint16
	module uint16
}

func (s *symbols) name(k int) string {
	y := s.list[k]
	return string(s.names[y.name : y.name+uint32(y.length)])
}

// TaintedMask is where the kernel notes what has gone wrong with it, one bit for
// each kind (kernel/panic.c).
const TaintedMask = "tainted_mask"

// taskSymbols are where amd64 has the address of the task that runs, in per-CPU memory:
// the first member of what kernels from 6.2 on keep hot (arch/x86/include/asm/current.h),
// or a variable of its own.
var taskSymbols = []string{"pcpu_hot", "current_task"}

// CurrentTask is where in per-CPU memory the address of the task that runs is; 0: that is
// not known, or a register has it.
func (t *Text) CurrentTask() isa.Addr {
	for _, name := range taskSymbols {
		if a, ok := t.sym.markers[name]; ok && t.Arch.Name == "amd64" {
			return a
		}
	}
	return 0
}

// isMarker tells the symbols that bound sections and tables, and the few others that are
// asked for by name.
func isMarker(name []byte) bool {
	if len(name) == 0 || name[0] != '_' {
		return string(name) == TaintedMask || slices.Contains(taskSymbols, string(name))
	}
	for _, p := range markerPrefixes {
		if bytes.HasPrefix(name, p) {
			return true
		}
	}
	return bytes.HasSuffix(name, []byte("_text_start")) || bytes.HasSuffix(name, []byte("_text_end"))
}

// isLabel tells the labels of assemblers and the marks between code and data
// (is_mapping_symbol in the kernel's include/linux/module_symbol.h) from
// functions. A module for riscv64 has tens of thousands of them, all of few names.
func isLabel(name []byte) bool {
	return bytes.HasPrefix(name, []byte(".L")) || bytes.HasPrefix(name, []byte("L0")) || len(name) > 0 && name[0] == '$'
}

var markerPrefixes = [][]byte{
	[]byte("__start_"), []byte("__stop_"), []byte("__init_"), []byte("_sinittext"), []byte("_einittext"),
	[]byte(callKey), []byte("_text"), []byte("_stext"), []byte("_etext"), []byte("_end"), []byte("__end_rodata"), []byte("__exittext_"),
}

// parseSymbols reads lines of the form "address type name [module]".
func parseSymbols(r io.Reader) (*symbols, error) {
	s := &symbols{modules: []string{""}, markers: map[string]isa.Addr{}}
	if text, ok := r.(interface{ Len() int }); ok { // a kernel's come to a little less: growing copies, in slow guests
		s.list, s.names = make([]symbol, 0, text.Len()/60), make([]byte, 0, text.Len()/5*2)
	}
	in := bufio.NewReaderSize(r, 1<<16)
	var module uint16
	sorted := true
	for n := 1; ; n++ {
		line, err := in.ReadSlice('\n')
		if err == io.EOF && len(line) == 0 {
			break
		}
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("kallsyms line %d: %w", n, err)
		}
		a, kind, name, mod, ok := parseLine(line)
		if !ok {
			return nil, fmt.Errorf("kallsyms line %d: %q is not an address, a type and a name", n, line)
		}
		if isMarker(name) && len(mod) == 0 {
			s.markers[string(name)] = a
		}
		if kind|0x20 != 't' && kind|0x20 != 'w' || isLabel(name) {
			continue
		}
		if string(mod) != s.modules[module] {
			module = s.moduleNumber(string(mod))
		}
		if k := len(s.list); k > 0 && a < s.list[k-1].addr {
			sorted = false
		}
		s.list = append(s.list, symbol{addr: a, name: uint32(len(s.names)), hash: hash(name),
			length: uint16(len(name)), module: module})
		s.names = append(s.names, name...)
	}
	if !sorted {
		sort.SliceStable(s.list, func(i, j int) bool { return s.list[i].addr < s.list[j].addr })
	}
	return s, s.check()
}

func (s *symbols) moduleNumber(name string) uint16 {
	for k, m := range s.modules {
		if m == name {
			return uint16(k)
		}
	}
	s.modules = append(s.modules, name)
	return uint16(len(s.modules) - 1)
}

// check tells a kallsyms whose addresses are hidden from a usable one.
func (s *symbols) check() error {
	if len(s.list) == 0 {
		return fmt.Errorf("kallsyms has no text symbols")
	}
	if s.list[len(s.list)-1].addr == 0 {
		return fmt.Errorf("kallsyms shows no addresses: read it as root with kernel.kptr_restrict at most 1")
	}
	return nil
}

// parseLine splits without allocating; the slices point into line.
func parseLine(line []byte) (a isa.Addr, kind byte, name, module []byte, ok bool) {
	k := 0
	for ; k < len(line); k++ {
		c := line[k]
		switch {
		case c >= '0' && c <= '9':
			a = a<<4 | isa.Addr(c-'0')
		case c >= 'a' && c <= 'f':
			a = a<<4 | isa.Addr(c-'a'+10)
		default:
			goto kind
		}
	}
kind:
	if k == 0 || k > 16 || k+3 >= len(line) || line[k] != ' ' || line[k+2] != ' ' {
		return 0, 0, nil, nil, false
	}
	kind = line[k+1]
	name = bytes.TrimRight(line[k+3:], "\n")
	if t := bytes.IndexByte(name, '\t'); t >= 0 {
		module = bytes.Trim(name[t+1:], "[]")
		name = name[:t]
	}
	return a, kind, name, module, len(name) > 0 && len(name) < 1<<16
}

// hash is FNV-1a.
func hash(b []byte) uint32 {
	h := uint32(2166136261)
	for _, c := range b {
		h = (h ^ uint32(c)) * 16777619
	}
	return h
}

// find lists the positions of the symbols with this name, in order of address.
func (s *symbols) find(name string) []int {
	mask := uint32(len(s.index) - 1)
	want := hash([]byte(name))
	var out []int
	for h := want & mask; s.index[h] != 0; h = (h + 1) & mask {
		k := int(s.index[h] - 1)
		y := &s.list[k]
		if y.hash == want && string(s.names[y.name:y.name+uint32(y.length)]) == name {
			out = append(out, k)
		}
	}
	sort.Ints(out)
	return out
}

// buildIndex makes the hash table; it is half full at most.
func (s *symbols) buildIndex() {
	n := 1
	for n < 2*len(s.list)+1 {
		n <<= 1
	}
	s.index = make([]int32, n)
	mask := uint32(n - 1)
	for k := range s.list {
		h := s.list[k].hash & mask
		for s.index[h] != 0 {
			h = (h + 1) & mask
		}
		s.index[h] = int32(k + 1)
	}
}

// at is the position of the last symbol at or below a, or -1.
func (s *symbols) at(a isa.Addr) int {
	return sort.Search(len(s.list), func(k int) bool { return s.list[k].addr > a }) - 1
}

// maxSuggestions is how many near names an error offers.
const maxSuggestions = 3

// suggest lists names near a wrong one: the compiler's clones of it first, then
// those that share the longest beginning. All are of one module.
func (s *symbols) suggest(module, name string) []string {
	type near struct {
		name   string
		shared int
	}
	var list []near
	for k := range s.list {
		if s.modules[s.list[k].module] != module {
			continue
		}
		n := s.names[s.list[k].name:][:s.list[k].length]
		shared := 0
		for shared < len(n) && shared < len(name) && n[shared] == name[shared] {
			shared++
		}
		if shared == len(name) && shared < len(n) && n[shared] == '.' {
			shared += 1 << 16
		}
		if shared > len(name)/2 || strings.Contains(string(n), name) {
			list = append(list, near{string(n), shared})
		}
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].shared > list[j].shared })
	var out []string
	for _, n := range list {
		if len(out) == maxSuggestions {
			break
		}
		if len(out) == 0 || out[len(out)-1] != n.name {
			out = append(out, n.name)
		}
	}
	return out
}
