package kernelelf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
)

// table is what a kernel has in memory at addr: entries of which each begins where
// it says.
func table(addr uint64, at []uint64, entries [][6]byte) (where, what []byte) {
	for i, a := range at {
		where = binary.LittleEndian.AppendUint32(where, uint32(a-addr-uint64(4*i)))
		what = append(what, entries[i][:]...)
	}
	return where, what
}

func TestORCRules(t *testing.T) {
	call := func(sp byte, spReg, bp, bpReg byte) [6]byte {
		return [6]byte{sp, 0, bp, ^byte(0), bpReg<<4 | spReg, orcCall}
	}
	for _, tt := range []struct {
		name  string
		entry [6]byte
		want  []byte
	}{
		{"nobody", [6]byte{}, []byte{cfaUndefined, 16}},
		{"the end", [6]byte{0, 0, 0, 0, 0, 1}, []byte{cfaUndefined, 16}},
		{"rsp+16", call(16, orcSP, 0, 0), []byte{cfaDefineSigned, 7, 0x7e, cfaOffset | 16, 1, cfaSame, 6}},
		{"rsp+48, rbp saved", call(48, orcSP, 0xf0, orcPrevSP), []byte{cfaDefineSigned, 7, 0x7a, cfaOffset | 16, 1, cfaOffsetSigned, 6, 2}},
		{"rbp+16, rbp saved", call(16, orcBP, 0xf0, orcPrevSP), []byte{cfaDefineSigned, 6, 0x7e, cfaOffset | 16, 1, cfaOffsetSigned, 6, 2}},
		{"r10", call(0, orcR10, 0, 0), []byte{cfaDefine, 10, 0, cfaOffset | 16, 1, cfaSame, 6}},
		{"*rsp+8", call(8, orcSPIndirect, 0, 0), []byte{cfaDefineExpression, 6, opBreg0 + 7, 0, opDeref, opConsts, 8, opPlus, cfaOffset | 16, 1, cfaSame, 6}},
		{"*(rbp-8)", [6]byte{0xf8, 0xff, 0, 0, orcBPIndirect, orcCall}, []byte{cfaDefineExpression, 3, opBreg0 + 6, 0x78, opDeref, cfaOffset | 16, 1, cfaSame, 6}},
		{"interrupted", [6]byte{0, 0, 0, 0, orcSP, orcPartial}, []byte{cfaDefineSigned, 7, 0, cfaOffsetSigned, 16, 0, cfaOffsetSigned, 7, 0x7d, cfaSame, 6}},
		{"a register that is none", call(8, 14, 0, 0), []byte{cfaUndefined, 16}},
		{"not a word", call(9, orcSP, 0, 0), []byte{cfaUndefined, 16}},
	} {
		if tt.entry[2] == 0 {
			tt.entry[3] = 0
		}
		o, err := parseORC(orcForms[1], []byte{0, 0, 0, 0}, tt.entry[:], 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := o.entries[0].rule(); !bytes.Equal(got, tt.want) {
			t.Errorf("%s: % x, want % x", tt.name, got, tt.want)
		}
	}
}

// A function has the rule that begins before it, then those inside it, of several at
// one place the last; what registers were saved is forgotten behind an interrupt's
// frame.
func TestORCRows(t *testing.T) {
	const addr, text = 0xffffffff90000000, 0xffffffff80000000
	rsp8, rsp16, regs := [6]byte{8, 0, 0, 0, orcSP, orcCall}, [6]byte{16, 0, 0, 0, orcSP, orcCall}, [6]byte{0, 0, 0, 0, orcSP, orcPartial}
	where, what := table(addr, []uint64{text, text + 1, text + 1, text + 80, text + 90, text + 100}, [][6]byte{rsp8, regs, rsp16, regs, rsp8, rsp16})
	live := func(a uint64, n int) ([]byte, error) {
		memory := append(bytes.Clone(where), what...)
		if a < addr || int(a-addr)+n > len(memory) {
			return nil, errors.New("not mapped")
		}
		return memory[a-addr:][:n], nil
	}
	symbols := []Symbol{{Name: orcMarks[0], Addr: addr}, {Name: orcMarks[1], Addr: addr + uint64(len(where))}, {Name: orcMarks[2], Addr: addr + uint64(len(where)+len(what))}}
	o, err := readORC(symbols, live)
	if err != nil {
		t.Fatal(err)
	}
	want := o.entries[2].rule()
	want = append(append(want, cfaAdvance4, 70, 0, 0, 0), o.entries[3].rule()...)
	want = append(want, cfaAdvance|10)
	for _, r := range registers {
		want = append(want, cfaRestore|r.number)
	}
	want = append(want, o.entries[4].rule()...)
	if got := o.rows(text+10, 90, nil); !bytes.Equal(got, want) {
		t.Errorf("% x, want % x", got, want)
	}
	if got := o.rows(text-10, 5, nil); got != nil {
		t.Errorf("before all entries: % x", got)
	}

	for name, bad := range map[string][]Symbol{"none": nil, "no end": symbols[:2], "uneven": {symbols[0], symbols[1], {Name: orcMarks[2], Addr: symbols[2].Addr - 6}},
		"elsewhere": {{Name: orcMarks[0], Addr: 8}, {Name: orcMarks[1], Addr: 12}, {Name: orcMarks[2], Addr: 18}}} {
		if _, err := readORC(bad, live); err == nil {
			t.Errorf("%s: read", name)
		}
	}
	where, what = table(addr, []uint64{text + 1, text}, [][6]byte{rsp8, rsp8})
	if _, err := parseORC(orcForms[1], where, what, addr); err == nil {
		t.Error("entries out of order were taken")
	}
}

// Which numbers a kernel has for registers and kinds is told by what most entries say.
func TestORCForms(t *testing.T) {
	for name, tt := range map[string]struct {
		entries [][6]byte // two of a call from the stack pointer, and one of r10
		form    int
	}{
		"6.1":  {[][6]byte{{4: 0x05, 5: 0}, {4: 0x15, 5: 0}, {4: 0x06, 5: 1}}, 0},
		"6.12": {[][6]byte{{4: 0x05, 5: 2}, {4: 0x15, 5: 2}, {4: 0x06, 5: 3}}, 1},
		"7.2":  {[][6]byte{{4: 0x03, 5: 2}, {4: 0x83, 5: 2}, {4: 0x06, 5: 3}}, 2},
	} {
		where, what := table(0, []uint64{1, 2, 3}, tt.entries)
		f, ok := form(what)
		if !ok || f != orcForms[tt.form] {
			t.Errorf("%s: %v, %v", name, f, ok)
			continue
		}
		o, err := parseORC(f, where, what, 0)
		if err != nil {
			t.Fatal(err)
		}
		want := []orcEntry{{spReg: orcSP, kind: orcCall}, {spReg: orcSP, bpReg: orcPrevSP, kind: orcCall}, {spReg: orcR10, kind: orcRegs}}
		if !slices.Equal(o.entries, want) {
			t.Errorf("%s: %v, want %v", name, o.entries, want)
		}
	}
	if _, ok := form([]byte{0, 0, 0, 0, 9, 9}); ok {
		t.Error("a form was found where none is")
	}
}
