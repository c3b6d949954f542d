package isa

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestRegSet(t *testing.T) {
	s := Set(0, 5, 63)
	if !s.Has(5) || s.Has(4) || !reflect.DeepEqual(s.Regs(), []Reg{0, 5, 63}) {
		t.Errorf("%b", s)
	}
}

func TestMarks(t *testing.T) {
	m := NewMarks(0x1000, 0x1100, 2)
	for _, a := range []Addr{0xffe, 0x1000, 0x107e, 0x10fe, 0x1100, 0x5000} {
		m.Add(a)
	}
	if m.Count() != 3 {
		t.Errorf("%d members, want the 3 inside", m.Count())
	}
	for _, c := range []struct {
		lo, hi, want Addr
		ok           bool
	}{
		{0, 0x1002, 0x1000, true}, {0x1001, 0x107e, 0, false}, {0x1002, 0x1080, 0x107e, true},
		{0x107d, 0x107f, 0x107e, true}, {0x1080, 0xffff, 0x10fe, true}, {0x10ff, 0xffff, 0, false}, {0x2000, 0x3000, 0, false},
	} {
		if a, ok := m.First(c.lo, c.hi); a != c.want || ok != c.ok {
			t.Errorf("first in %v-%v is %v, %v; want %v, %v", c.lo, c.hi, a, ok, c.want, c.ok)
		}
	}
}

func TestAddrJSON(t *testing.T) {
	b, err := json.Marshal(Addr(0xffffffff81234567))
	if err != nil || string(b) != `"0xffffffff81234567"` {
		t.Errorf("%s, %v", b, err)
	}
	var a Addr
	if err := json.Unmarshal(b, &a); err != nil || a != 0xffffffff81234567 {
		t.Errorf("%v, %v", a, err)
	}
	if err := json.Unmarshal([]byte(`"x"`), &a); err == nil {
		t.Error("x is an address")
	}
}
