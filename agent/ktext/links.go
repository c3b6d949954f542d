package ktext

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"kerninst/agent/isa"
)

// Links is what the kernel's own tables add to the flow of control that the
// instructions show: each list is in order of address.
type Links struct {
	Keys   []Key      // static keys: a nop or a jump, rewritten while the kernel runs
	Faults []Fault    // instructions whose faults have a fixup
	Bugs   []BugSite  // traps of BUG and WARN
	Calls  []isa.Addr // static calls: rewritten to call something else, or nothing
}

// Key is one site of a static key: control falls through or goes to Target. It goes there
// if the key is on, or with Off if it is off; which it is says the word of 32 bits at
// Enabled, by whether it is zero (include/linux/jump_label.h: jump_label_type).
type Key struct {
	Site, Target isa.Addr
	Enabled      isa.Addr
	Off          bool
	Entry        isa.Addr // in the kernel's table
}

// Where a struct jump_entry has the distance to its key, and the bits of that which are flags,
// of which the lowest says to jump while the key is off.
const (
	keyField = 8
	keyFlags = 3
	keyOff   = 1
)

func keyOf(at isa.Addr, entry []byte) Key {
	d := isa.ByteOrder.Uint64(entry[keyField:])
	return Key{rel(at, entry, 0), rel(at, entry, 4), at + keyField + isa.Addr(d&^keyFlags), d&keyOff != 0, at}
}

// Fault is one entry of the exception table.
type Fault struct {
	Site, Fixup isa.Addr
	Type        uint8      // which handler the kernel runs, as it numbers them
	Reads       isa.RegSet // what the kernel's handler reads of the interrupted state
}

// BugSite is a trap that the kernel reports. Behind a warning it goes on.
type BugSite struct {
	Site    isa.Addr
	Warning bool
}

// bugWarning is BUGFLAG_WARNING, in the half word that ends struct bug_entry.
const bugWarning = 1

// Handlers that read more of the interrupted state than the instruction itself:
// amd64's EX_TYPE_UCOPY_LEN computes rcx from rcx and the register that the entry
// names (arch/x86/include/asm/extable_fixup_types.h); EX_TYPE_LOAD_UNALIGNED_ZEROPAD
// of the others loads from the register that the entry names, which need not be the
// one that the instruction uses (arch/*/include/asm/asm-extable.h). Its number is 4, and 5
// on arm64 where 4 is of copies that name no register: those are taken for it, too.
const (
	exTypeUcopyLen = 19
	exTypeZeroPad  = 4
)

// Links reads the tables of a module whose sections are known; "" is the
// kernel.
func (t *Text) Links(module string) (*Links, error) {
	var x Links
	calls := staticCalls
	if module != "" {
		calls = moduleStaticCalls
	}
	bugs, err := t.bugs()
	if err != nil {
		return nil, err
	}
	for _, l := range []struct {
		layout
		add func(at isa.Addr, entry []byte)
	}{
		{jumpTable, func(at isa.Addr, b []byte) { x.Keys = append(x.Keys, keyOf(at, b)) }},
		{exTable, func(at isa.Addr, b []byte) { x.Faults = append(x.Faults, t.fault(at, b)) }},
		{bugs, func(at isa.Addr, b []byte) {
			x.Bugs = append(x.Bugs, BugSite{rel(at, b, 0), isa.ByteOrder.Uint16(b[len(b)-2:])&bugWarning != 0})
		}},
		{calls, func(at isa.Addr, b []byte) { x.Calls = append(x.Calls, rel(at, b, 0)) }},
	} {
		lo, hi, err := t.tableBounds(module, l.layout)
		if err != nil {
			return nil, err
		}
		if lo == 0 {
			continue
		}
		if err := t.eachEntry(l.layout, lo, hi, l.add); err != nil {
			return nil, err
		}
	}
	if m := t.mods[module]; m != nil {
		x.keep(m)
	}
	x.sort()
	if module == "" && len(x.Keys) > 0 {
		if err := t.sane(x.sites()); err != nil {
			return nil, err
		}
	}
	return &x, nil
}

// Faults reads the exception table of a module whose sections are known, for code in
// [lo, hi); "" is the kernel, whose table is read once, as its code is: it stays as boot has
// sorted it.
func (t *Text) Faults(module string, lo, hi isa.Addr) ([]Fault, error) {
	if module != "" {
		return t.faultsIn(module, lo, hi)
	}
	all, err := t.own.faults.get(func() ([]Fault, error) {
		list, err := t.faultsIn("", 0, ^isa.Addr(0))
		slices.SortFunc(list, func(a, b Fault) int { return cmp.Compare(a.Site, b.Site) })
		return list, err
	})
	if err != nil {
		return nil, err
	}
	before := func(f Fault, a isa.Addr) int { return cmp.Compare(f.Site, a) }
	first, _ := slices.BinarySearchFunc(all, lo, before)
	end, _ := slices.BinarySearchFunc(all, hi, before)
	return slices.Clone(all[first:max(first, end)]), nil
}

func (t *Text) faultsIn(module string, lo, hi isa.Addr) (out []Fault, err error) {
	from, to, err := t.tableBounds(module, exTable)
	if err != nil || from == 0 {
		return nil, err
	}
	err = t.eachEntry(exTable, from, to, func(at isa.Addr, b []byte) {
		if f := t.fault(at, b); f.Site >= lo && f.Site < hi {
			out = append(out, f)
		}
	})
	return out, err
}

func (t *Text) fault(at isa.Addr, entry []byte) Fault {
	return Fault{rel(at, entry, 0), rel(at, entry, 4), entry[8], t.handlerReads(entry)}
}

// sites are those of the static keys.
func (x *Links) sites() (out []isa.Addr) {
	for _, k := range x.Keys {
		out = append(out, k.Site)
	}
	return out
}

// tableBounds finds a table of the kernel by its symbols, one of a module by
// its section, whose end is rounded up.
func (t *Text) tableBounds(module string, l layout) (lo, hi isa.Addr, err error) {
	if module == "" {
		return t.kernelTable(l)
	}
	for _, s := range t.Sections(module) {
		if s.Name == l.name {
			return s.Addr, s.Addr + isa.Addr(s.Size)/isa.Addr(l.stride)*isa.Addr(l.stride), nil
		}
	}
	return 0, 0, nil
}

// keep drops entries that concern no code of the module: what lies behind a
// table's end, and initialisation code that is gone.
func (x *Links) keep(m *module) {
	gone := func(a isa.Addr) bool { return len(m.code([]isa.Addr{a})) == 0 }
	x.Keys = slices.DeleteFunc(x.Keys, func(k Key) bool { return gone(k.Site) || gone(k.Target) })
	x.Faults = slices.DeleteFunc(x.Faults, func(f Fault) bool { return gone(f.Site) || gone(f.Fixup) })
	x.Bugs = slices.DeleteFunc(x.Bugs, func(b BugSite) bool { return gone(b.Site) })
	x.Calls = m.code(x.Calls)
}

func (x *Links) sort() {
	sort.Slice(x.Keys, func(i, j int) bool { return x.Keys[i].Site < x.Keys[j].Site })
	sort.Slice(x.Faults, func(i, j int) bool { return x.Faults[i].Site < x.Faults[j].Site })
	sort.Slice(x.Bugs, func(i, j int) bool { return x.Bugs[i].Site < x.Bugs[j].Site })
	slices.Sort(x.Calls)
}

// rel reads the address that is stored as a distance from its own place.
func rel(at isa.Addr, entry []byte, off int) isa.Addr {
	return at + isa.Addr(off) + isa.Addr(int64(int32(isa.ByteOrder.Uint32(entry[off:]))))
}

func (t *Text) eachEntry(l layout, lo, hi isa.Addr, add func(isa.Addr, []byte)) error {
	if hi < lo || int64(hi-lo)%int64(l.stride) != 0 || hi-lo > 16<<20 {
		return fmt.Errorf("table %s: %v to %v is not a number of %d-byte entries", l.name, lo, hi, l.stride)
	}
	b := make([]byte, hi-lo)
	if err := t.Read(lo, b); err != nil {
		return fmt.Errorf("table %s: %w", l.name, err)
	}
	for k := 0; k < len(b); k += l.stride {
		add(lo+isa.Addr(k), b[k:k+l.stride])
	}
	return nil
}

// handlerReads tells which registers the handler of an exception-table entry
// reads beyond those that the instruction itself reads.
//
//	amd64   bytes 8 to 11: imm16 | flags | reg4 | type8
//	others  bytes 8, 9: type; 10, 11: … | address5 | data5
func (t *Text) handlerReads(entry []byte) isa.RegSet {
	if t.Arch.Name != "amd64" {
		kind, data := isa.ByteOrder.Uint16(entry[8:]), isa.ByteOrder.Uint16(entry[10:])
		if kind < exTypeZeroPad {
			return 0
		}
		r := isa.Set(isa.Reg(data >> 5 & 31))
		if t.Arch.Name == "arm64" {
			r &^= 1 << 31 // the zero register, not sp
		}
		return r & t.Arch.All
	}
	data := isa.ByteOrder.Uint32(entry[8:])
	if data&0xff != exTypeUcopyLen {
		return 0
	}
	const rcx = 1
	return 1<<rcx | 1<<(data>>8&0xf)
}
