// Package ktypes knows the kernel's types: what BTF (Documentation/bpf/btf.rst in the
// kernel's source) says of one kernel.
package ktypes

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"

	"kerninst/agent/near"
)

// Types are those of one kernel.
type Types struct{ spec *btf.Spec }

// Read understands a blob of BTF.
func Read(raw []byte) (*Types, error) {
	spec, err := btf.LoadSpecFromReader(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("the kernel's types: %w", err)
	}
	return &Types{spec}, nil
}

// Of is what a blob of BTF says of a module, which refers to the kernel's types.
func (t *Types) Of(raw []byte) (*Types, error) {
	spec, err := btf.LoadSplitSpecFromReader(bytes.NewReader(raw), t.spec)
	if err != nil {
		return nil, fmt.Errorf("a module's types: %w", err)
	}
	return &Types{spec}, nil
}

// prototype is a function's. Of functions of one name, which are in several files, it is
// that of the first.
func (t *Types) prototype(function string) (*btf.FuncProto, error) {
	all, err := t.spec.AnyTypesByName(function)
	if err != nil && !errors.Is(err, btf.ErrNotFound) {
		return nil, err
	}
	for _, one := range all {
		if f, ok := one.(*btf.Func); ok {
			if p, ok := f.Type.(*btf.FuncProto); ok {
				return p, nil
			}
		}
	}
	return nil, fmt.Errorf("the kernel's types have no function %s%s", function, near.Hint(function, t.Functions()))
}

// HasFunction reports whether the types say what a function takes and returns.
func (t *Types) HasFunction(name string) bool {
	all, err := t.spec.AnyTypesByName(name)
	return err == nil && slices.ContainsFunc(all, func(one btf.Type) bool {
		f, ok := one.(*btf.Func)
		if ok {
			_, ok = f.Type.(*btf.FuncProto)
		}
		return ok
	})
}

// Variadic reports whether a function takes more arguments than its types name: the last of those
// is none then.
func (t *Types) Variadic(function string) bool {
	p, err := t.prototype(function)
	if err != nil || len(p.Params) == 0 {
		return false
	}
	_, more := p.Params[len(p.Params)-1].Type.(*btf.Void)
	return more
}

// Functions lists all functions, in the order of the kernel's types.
func (t *Types) Functions() (out []string) {
	for one, err := range t.spec.All() {
		if f, ok := one.(*btf.Func); ok && err == nil {
			out = append(out, f.Name)
		}
	}
	return out
}

// Param is the type of a function's parameter, from 0. The error lists those that it has.
func (t *Types) Param(function string, n int) (Type, error) {
	p, err := t.prototype(function)
	if err != nil {
		return Type{}, err
	}
	if n >= len(p.Params) {
		var all []string
		for k, one := range p.Params {
			all = append(all, fmt.Sprintf("arg%d is %v %s", k, newType(one.Type), one.Name))
		}
		if len(all) == 0 {
			return Type{}, fmt.Errorf("%s has no arg%d: it has no arguments", function, n)
		}
		return Type{}, fmt.Errorf("%s has no arg%d: it has %d arguments, %s", function, n, len(all), strings.Join(all, ", "))
	}
	return newType(p.Params[n].Type), nil
}

// ParamNamed is the number of a function's parameter of a name, from 0. The error lists those that it has.
func (t *Types) ParamNamed(function, name string) (int, error) {
	p, err := t.prototype(function)
	if err != nil {
		return 0, err
	}
	var all []string
	for n, one := range p.Params {
		if one.Name == name && name != "" {
			return n, nil
		}
		all = append(all, orAnonymous(one.Name))
	}
	if len(all) == 0 {
		return 0, fmt.Errorf("%s has no arguments", function)
	}
	return 0, fmt.Errorf("%s has no argument %s: it has %s%s", function, name, strings.Join(all, ", "), near.Hint(name, all))
}

// Return is the type of what a function returns; an error if that is nothing.
func (t *Types) Return(function string) (Type, error) {
	p, err := t.prototype(function)
	if err != nil {
		return Type{}, err
	}
	if _, void := p.Return.(*btf.Void); void {
		return Type{}, fmt.Errorf("%s returns nothing", function)
	}
	return newType(p.Return), nil
}

// Struct is a struct or a union.
func (t *Types) Struct(name string) (Type, error) {
	all, err := t.spec.AnyTypesByName(name)
	if err != nil && !errors.Is(err, btf.ErrNotFound) {
		return Type{}, err
	}
	for _, one := range all {
		if _, ok := members(one); ok {
			return newType(one), nil
		}
	}
	return Type{}, fmt.Errorf("the kernel has no struct %s%s", name, near.Hint(name, t.structs()))
}

func (t *Types) structs() (out []string) {
	for one, err := range t.spec.All() {
		if _, ok := members(one); ok && err == nil {
			out = append(out, one.TypeName())
		}
	}
	return out
}

// members are those of a struct or a union.
func members(t btf.Type) ([]btf.Member, bool) {
	switch t := t.(type) {
	case *btf.Struct:
		return t.Members, true
	case *btf.Union:
		return t.Members, true
	}
	return nil, false
}

// Type is one of them: a number, a pointer, a struct or union, an array. The zero Type is
// none.
type Type struct{ of btf.Type }

func newType(t btf.Type) Type { return Type{btf.UnderlyingType(t)} }

// Known reports whether t is a type at all.
func (t Type) Known() bool { return t.of != nil }

// Pointer reports whether it is one.
func (t Type) Pointer() bool {
	_, ok := t.of.(*btf.Pointer)
	return ok
}

// Composite reports whether it is a struct or a union.
func (t Type) Composite() bool {
	_, ok := members(t.of)
	return ok
}

// Elem is what a pointer points to, or an array is of.
func (t Type) Elem() (Type, bool) {
	switch of := t.of.(type) {
	case *btf.Pointer:
		return newType(of.Target), true
	case *btf.Array:
		return newType(of.Type), true
	}
	return Type{}, false
}

// Len is how many elements an array has; 0: it is none.
func (t Type) Len() int {
	if a, ok := t.of.(*btf.Array); ok {
		return int(a.Nelems)
	}
	return 0
}

// Size is in bytes; 0: it has none, or none that is known.
func (t Type) Size() int {
	n, err := btf.Sizeof(t.of)
	if err != nil {
		return 0
	}
	return n
}

// Signed reports whether it is a number with a sign.
func (t Type) Signed() bool {
	switch of := t.of.(type) {
	case *btf.Int:
		return of.Encoding&btf.Signed != 0
	case *btf.Enum:
		return of.Signed
	}
	return false
}

// String is what C calls it.
func (t Type) String() string {
	switch of := t.of.(type) {
	case nil:
		return "nothing"
	case *btf.Void:
		return "void"
	case *btf.Pointer:
		return newType(of.Target).String() + " *"
	case *btf.Array:
		return fmt.Sprintf("%v[%d]", newType(of.Type), of.Nelems)
	case *btf.Struct:
		return "struct " + orAnonymous(of.Name)
	case *btf.Union:
		return "union " + orAnonymous(of.Name)
	case *btf.Fwd:
		return "struct " + of.Name
	case *btf.Enum:
		return "enum " + orAnonymous(of.Name)
	case *btf.FuncProto:
		return "function"
	}
	return t.of.TypeName()
}

func orAnonymous(name string) string {
	if name == "" {
		return "without a name"
	}
	return name
}

// Field is a member of a struct or union.
type Field struct {
	Type Type
	Off  int // bytes from the start
	// Of a bit field, how many bits it has, and from which bit on, from the lowest, of the
	// Type.Size() bytes at Off; 0: it is none.
	Bits, BitOff int
}

// Field finds a member of a struct or union, or of what a pointer points to. Members
// without a name are looked through, as C does.
func (t Type) Field(name string) (Field, error) {
	in := t
	if elem, ok := t.Elem(); ok && t.Pointer() {
		in = elem
	}
	if _, ok := members(in.of); !ok {
		return Field{}, fmt.Errorf("%v has no fields", t)
	}
	if f, ok := find(in.of, name, 0, 0); ok {
		return f, nil
	}
	return Field{}, fmt.Errorf("%v has no field %s%s", in, name, near.Hint(name, names(in.of, 0)))
}

// deepest bounds how far members without a name are looked through: the types are data.
const deepest = 8

func find(in btf.Type, name string, at btf.Bits, depth int) (Field, bool) {
	all, _ := members(in)
	for _, m := range all {
		if m.Name == name {
			return field(m, at+m.Offset), true
		}
		if m.Name == "" && depth < deepest {
			if f, ok := find(btf.UnderlyingType(m.Type), name, at+m.Offset, depth+1); ok {
				return f, true
			}
		}
	}
	return Field{}, false
}

// field places a member. Of a bit field, the load that C would do: of its type, aligned.
func field(m btf.Member, at btf.Bits) Field {
	f := Field{Type: newType(m.Type), Off: int(at / 8)}
	if size := btf.Bits(8 * f.Type.Size()); m.BitfieldSize > 0 && size > 0 {
		f.Off = int(at / size * size / 8)
		f.Bits, f.BitOff = int(m.BitfieldSize), int(at%size)
	}
	return f
}

func names(in btf.Type, depth int) (out []string) {
	all, _ := members(in)
	for _, m := range all {
		if m.Name != "" {
			out = append(out, m.Name)
		} else if depth < deepest {
			out = append(out, names(btf.UnderlyingType(m.Type), depth+1)...)
		}
	}
	return out
}
