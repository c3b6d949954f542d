package inline

import (
	"reflect"
	"testing"

	"kerninst/agent/isa"
)

// TestExits: instructions of four bytes each, of which 0x10 to 0x1f are the copy.
func TestExits(t *testing.T) {
	shared, leads := "a way leads out of the copy from there, to where others come, too, and another does not", "it jumps to where a register says, perhaps out of the copy"
	insn := func(f isa.Flow, target isa.Addr) isa.Insn { return isa.Insn{Len: 4, Flow: f, Target: target} }
	none := insn(isa.FlowNone, 0)
	for name, c := range map[string]struct {
		of   []isa.Insn // at 0, 4, ...
		want []Exit
		also map[isa.Addr][]isa.Addr
	}{
		"goes on":                   {[]isa.Insn{4: none, none, none, none, none}, []Exit{{At: 0x20}}, nil},
		"goes on where others come": {[]isa.Insn{insn(isa.FlowCond, 0x20), 4: none, none, none, none, none}, []Exit{{At: 0x1c}}, nil},
		"a jump and the end meet":   {[]isa.Insn{4: insn(isa.FlowCond, 0x20), none, none, none, none}, []Exit{{At: 0x20}}, nil},
		"they and others meet":      {[]isa.Insn{insn(isa.FlowCond, 0x20), 4: insn(isa.FlowCond, 0x20), none, none, none, none}, []Exit{{0x10, shared}, {At: 0x1c}}, nil},
		"two ways out":              {[]isa.Insn{4: none, none, none, insn(isa.FlowCond, 0x28), none, none, none}, []Exit{{0x1c, shared}, {At: 0x20}}, nil}, // what is at 0x24 comes to 0x28, too
		"both ways to others":       {[]isa.Insn{insn(isa.FlowCond, 0x20), 4: none, none, none, insn(isa.FlowCond, 0x28), none, none, none}, []Exit{{At: 0x1c}}, nil},
		"a jump away":               {[]isa.Insn{insn(isa.FlowCond, 0x24), 4: none, none, none, insn(isa.FlowJump, 0x24), none, none}, []Exit{{At: 0x1c}}, nil},
		"out of the body":           {[]isa.Insn{4: none, none, none, insn(isa.FlowJump, 0x1000), none}, []Exit{{At: 0x1c}}, nil},
		"a return":                  {[]isa.Insn{4: none, insn(isa.FlowReturn, 0), none, insn(isa.FlowReturn, 0), none}, []Exit{{At: 0x14}, {At: 0x1c}}, nil},
		"who never comes back":      {[]isa.Insn{4: insn(isa.FlowCond, 0x1c), none, insn(isa.FlowReturn, 0), insn(isa.FlowCall, 0x1000)}, []Exit{{At: 0x18}}, nil},
		"a call at the end":         {[]isa.Insn{4: none, none, none, insn(isa.FlowCall, 0x1000), none}, []Exit{{At: 0x20}}, nil},
		"a trap":                    {[]isa.Insn{4: none, none, insn(isa.FlowReturn, 0), insn(isa.FlowTrap, 0), none}, []Exit{{At: 0x18}}, nil},
		"a table":                   {[]isa.Insn{4: none, none, none, insn(isa.FlowIndirectJump, 0), none}, []Exit{{0x1c, leads}}, nil},
		"where a table may lead":    {[]isa.Insn{insn(isa.FlowIndirectJump, 0), 4: none, none, none, none, none}, []Exit{{At: 0x1c}}, nil},
		"others' code in between":   {[]isa.Insn{4: none, insn(isa.FlowJump, 0x20), insn(isa.FlowReturn, 0), none, none, insn(isa.FlowJump, 0x18)}, []Exit{{At: 0x18}}, nil},
		"likewise, perhaps":         {[]isa.Insn{4: none, insn(isa.FlowJump, 0x20), insn(isa.FlowReturn, 0), none, insn(isa.FlowCond, 0x18), insn(isa.FlowReturn, 0)}, []Exit{{At: 0x18}, {At: 0x24}}, nil},
		"a loop around it":          {[]isa.Insn{none, none, none, none, 4: none, none, none, none, insn(isa.FlowCond, 0x4), insn(isa.FlowReturn, 0)}, []Exit{{At: 0x20}}, nil},
		"a static key in it":        {[]isa.Insn{4: none, none, none, insn(isa.FlowReturn, 0), insn(isa.FlowReturn, 0)}, []Exit{{At: 0x1c}, {At: 0x20}}, map[isa.Addr][]isa.Addr{0x14: {0x20}}},
		"one of others'":            {[]isa.Insn{none, 4: none, none, none, none, none}, []Exit{{At: 0x1c}}, map[isa.Addr][]isa.Addr{0: {0x20}}},
		"a fixup for all":           {[]isa.Insn{insn(isa.FlowCond, 0x20), 4: none, none, none, insn(isa.FlowReturn, 0), insn(isa.FlowReturn, 0)}, []Exit{{0x14, shared}, {At: 0x1c}}, map[isa.Addr][]isa.Addr{0x14: {0x20}}},
	} {
		for k := range c.of {
			if c.of[k].Addr = isa.Addr(4 * k); c.of[k].Len == 0 {
				c.of[k].Len = 4
				c.of[k].Flow = isa.FlowReturn // nothing
			}
		}
		got := Code{c.of, c.also}.Exits(0x10, func(a isa.Addr) bool { return a >= 0x10 && a < 0x20 })
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %x, not %x", name, got, c.want)
		}
	}
}
