package pad_test

import (
	"bytes"
	"slices"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/pad"
)

const (
	site   = "\x13\x00\x00\x00\x13\x00\x00\x00" // two nops for ftrace
	traced = "\x97\x12\x00\x00\xe7\x82\x02\x00" // auipc t0, 1; jalr t0, (t0): nothing of its own
	cnop   = "\x01\x00"
	ret    = "\x82\x80"
	forked = "\x19\xc1" + cnop + cnop + ret // c.beqz a0, +6
)

// leaves lists which of the functions called leaf Leaves finds, when one with some code
// is a little behind another function.
func leaves(t *testing.T, code string, spoil func(k *ktexttest.Kernel, a isa.Addr)) []string {
	t.Helper()
	k := ktexttest.Load(t, "riscv64")
	at := find(t, k.Text(t), "__riscv_sys_getppid")
	a := at.Addr + 0x8000
	k.Add("leaf", a, []byte(code))
	if spoil != nil {
		spoil(k, a)
	}
	var out []string
	err := pad.New(k.Text(t)).Leaves(at.Addr, at.Addr-1<<20, at.Addr+1<<20, nil, func(l pad.Leaf) (found, spent bool) {
		if l.Name == "leaf" { // the recorded kernel has some, too
			out = append(out, l.Name)
		}
		if l.Body != l.Addr+8 {
			t.Errorf("the body of %s begins at %v, not behind the site at %v", l.Name, l.Body, l.Addr)
		}
		return false, false
	})
	if err != nil {
		t.Error(err)
	}
	return out
}

func TestLeaves(t *testing.T) {
	for name, code := range map[string]string{"straight": site + cnop + ret, "with a branch": site + forked} {
		if got := leaves(t, code, nil); len(got) != 1 || got[0] != "leaf" {
			t.Errorf("%s: found %v", name, got)
		}
	}
	for name, code := range map[string]string{
		"no site":                 "\x2a\x85\x2a\x85" + cnop + cnop + cnop + ret, // mv a0, a0
		"traced":                  traced + cnop + ret,
		"nothing but a site":      site,
		"runs over its end":       site + cnop,
		"calls":                   site + "\xef\x00\x00\x01" + ret, // jal ra, +16
		"calls a pointer":         site + "\x02\x95" + ret,         // c.jalr a0
		"jumps through a pointer": site + "\x02\x85",               // c.jr a0
		"forms an address":        site + "\x17\x05\x00\x00" + ret, // auipc a0
		"jumps out":               site + "\x19\xc1" + ret,         // c.beqz a0, +6
		"jumps into itself":       site + "\x63\x03\x05\x00" + ret, // beqz a0, +6, and none begins there
		"system instruction":      site + "\x73\x25\x00\x10" + ret, // csrr a0, sstatus
		"exclusive":               site + "\x2f\x35\x05\x10" + ret, // lr.d a0, (a0)
		"undecodable":             site + "\x00\x00\x00\x00" + ret, // no instruction
		"two functions":           site + cnop + ret + site + cnop + ret,
		"long":                    site + string(bytes.Repeat([]byte(cnop), pad.MaxLeaf/2)) + ret,
	} {
		if got := leaves(t, code, nil); len(got) != 0 {
			t.Errorf("%s: found %v", name, got)
		}
	}
}

// TestLeafIsNobodysTarget: what is called, or jumped into, stays.
func TestLeafIsNobodysTarget(t *testing.T) {
	for _, off := range []isa.Off{0, 8, 10, 12} {
		got := leaves(t, site+cnop+cnop+cnop+ret, func(k *ktexttest.Kernel, a isa.Addr) {
			from := a + 0x1000
			d := uint32(a + isa.Addr(off) - from)
			k.Write(from, isa.ByteOrder.AppendUint32(nil, d>>20&1<<31|d>>1&0x3ff<<21|d>>11&1<<20|d>>12&0xff<<12|0xef)) // jal ra
		})
		if len(got) != 0 {
			t.Errorf("+%#x is called, and %v was found", uint64(off), got)
		}
	}
}

// TestNearestFirst: on either side.
func TestNearestFirst(t *testing.T) {
	k := ktexttest.Load(t, "riscv64")
	at := find(t, k.Text(t), "__riscv_sys_getppid")
	for name, d := range map[string]int64{"after": 0x9000, "before": -0x5000, "far": -0x20000, "near": 0x3000, "too_far": 0x40000} {
		k.Add(name, at.Addr+isa.Addr(d), []byte(site+cnop+ret))
	}
	var got []string
	err := pad.New(k.Text(t)).Leaves(at.Addr, at.Addr-0x30000, at.Addr+0x30000, nil, func(l pad.Leaf) (found, spent bool) {
		if slices.Contains([]string{"after", "before", "far", "near", "too_far"}, l.Name) {
			got = append(got, l.Name)
		}
		return l.Name == "far", false
	})
	if want := []string{"near", "before", "after", "far"}; err != nil || !slices.Equal(got, want) {
		t.Error(got, err)
	}
}

// TestSpent: who is spent is not visited again by who has said so, and by others is.
func TestSpent(t *testing.T) {
	k := ktexttest.Load(t, "riscv64")
	at := find(t, k.Text(t), "__riscv_sys_getppid")
	for name, d := range map[string]int64{"one": 0x1000, "two": 0x1100, "three": -0x9000} {
		k.Add(name, at.Addr+isa.Addr(d), []byte(site+cnop+ret))
	}
	f, spent := pad.New(k.Text(t)), pad.Spent{}
	visit := func(s pad.Spent, drop string) (got []string) {
		err := f.Leaves(at.Addr, at.Addr-0x10000, at.Addr+0x10000, s, func(l pad.Leaf) (bool, bool) {
			if slices.Contains([]string{"one", "two", "three"}, l.Name) {
				got = append(got, l.Name)
			}
			return false, l.Name == drop
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for _, c := range []struct {
		s    pad.Spent
		drop string
		want []string
	}{
		{spent, "one", []string{"one", "two", "three"}},
		{spent, "three", []string{"two", "three"}},
		{spent, "", []string{"two"}},
		{pad.Spent{}, "", []string{"one", "two", "three"}},
		{nil, "two", []string{"one", "two", "three"}},
		{nil, "", []string{"one", "two", "three"}},
	} {
		if got := visit(c.s, c.drop); !slices.Equal(got, c.want) {
			t.Errorf("%v are visited, not %v", got, c.want)
		}
	}
}
