package ktypes

import (
	"fmt"
	"regexp"

	"github.com/cilium/ebpf/btf"
)

// passing is how many registers an ISA passes arguments in, of eight bytes each, and
// whether what takes more than two of them is put on the stack itself, or its address in a
// register (System V AMD64 psABI 3.2.3; AAPCS64 6.8.2; the RISC-V calling convention,
// integer registers).
type passing struct {
	registers int
	onStack   bool
}

var passings = map[string]passing{"amd64": {6, true}, "arm64": {8, false}, "riscv64": {8, false}}

// specialised is the end of names of functions that the compiler has made of others, with
// fewer arguments; what else it makes of them may have more.
var specialised = regexp.MustCompile(`\.constprop\.\d+$`)

// OnStack reports whether, on an ISA, arguments of a function may be passed on the stack,
// of any function of the name. What is not known is an error.
func (t *Types) OnStack(arch, function string) (bool, error) {
	p, ok := passings[arch]
	if !ok {
		return false, fmt.Errorf("how %s passes arguments is not known", arch)
	}
	name := specialised.ReplaceAllString(function, "")
	all, _ := t.spec.AnyTypesByName(name)
	known := false
	for _, one := range all {
		f, ok := one.(*btf.Func)
		if !ok || f.Name != name {
			continue
		}
		proto, ok := f.Type.(*btf.FuncProto)
		if !ok || p.spills(proto) {
			return true, nil
		}
		known = true
	}
	if !known {
		return false, fmt.Errorf("the kernel's types have no function %s", function)
	}
	return false, nil
}

// spills reports whether the arguments of a function may not all fit into registers.
func (p passing) spills(f *btf.FuncProto) bool {
	used := 0
	if n, _ := registersOf(f.Return); n > 2 { // where to put it is told in a register
		used++
	}
	for _, a := range f.Params {
		n, ok := registersOf(a.Type)
		switch {
		case !ok: // of no size, as behind the last argument of those that take any number
			return true
		case p.onStack && (n > 2 || !aligned(a.Type, 0, 0)):
			return true
		case n > 2:
			n = 1
		case n == 2 && !p.onStack: // begins with an even one, perhaps
			n = 3
		}
		used += n
	}
	return used > p.registers
}

// aligned reports whether all that a value is made of, so many bits from its begin, lies as
// it does by itself: a packed struct is passed as if it were too large.
func aligned(t btf.Type, at btf.Bits, depth int) bool {
	t = btf.UnderlyingType(t)
	if depth > deepest {
		return false
	}
	if a, ok := t.(*btf.Array); ok {
		return aligned(a.Type, at, depth+1)
	}
	all, ok := members(t)
	if !ok {
		size, err := btf.Sizeof(t)
		return err == nil && size > 0 && at%btf.Bits(8*size) == 0
	}
	for _, m := range all {
		if m.BitfieldSize == 0 && !aligned(m.Type, at+m.Offset, depth+1) {
			return false
		}
	}
	return true
}

// registersOf is how many registers a value takes.
func registersOf(t btf.Type) (n int, ok bool) {
	const register = 8
	if _, void := btf.UnderlyingType(t).(*btf.Void); void {
		return 0, false
	}
	size, err := btf.Sizeof(t)
	return (size + register - 1) / register, err == nil
}
