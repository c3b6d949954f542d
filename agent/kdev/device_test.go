//go:build linux

package kdev

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kerninst/agent/isa"
)

func TestErrorsSayWhatToDo(t *testing.T) {
	err := blame(refusal("splice", unix.EILSEQ, -1), 3, 10)
	if !errors.Is(err, unix.EILSEQ) {
		t.Error("does not wrap the errno")
	}
	for _, part := range []string{Path, "splice 3 of the batch", "plan anew", "EILSEQ"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q lacks %q", err, part)
		}
	}
	if err := blame(refusal("splice", unix.ENOMEM, -1), 10, 10); strings.Contains(err.Error(), "of the batch") {
		t.Errorf("%q blames a splice when the module blames none", err)
	}
}

func TestEncode(t *testing.T) {
	for _, c := range []struct {
		name string
		s    Splice
		ok   bool
		want kiSplice
	}{
		{"plain", Splice{Point: 1, Patch: 2, PatchLen: 3, Old: []byte{4, 5}, New: []byte{6, 7}}, true,
			kiSplice{Point: 1, Patch: 2, PatchLen: 3, Len: 2, Old: [MaxPatch]byte{4, 5}, New: [MaxPatch]byte{6, 7}}},
		{"flags", Splice{Old: []byte{0}, New: []byte{0}, Window: true, Springboard: true}, true, kiSplice{Len: 1, Flags: 3}},
		{"fault", Splice{Old: []byte{0}, New: []byte{0}, Fault: 5, Original: 6, Annex: 7, AnnexLen: 8}, true,
			kiSplice{Len: 1, Fault: 5, Original: 6, Annex: 7, AnnexLen: 8}},
		{"lengths differ", Splice{Old: []byte{1}, New: []byte{1, 2}}, false, kiSplice{}},
		{"too long", Splice{Old: make([]byte, MaxPatch+1), New: make([]byte, MaxPatch+1)}, false, kiSplice{}},
		{"negative patch", Splice{PatchLen: -1}, false, kiSplice{}},
		{"negative annex", Splice{AnnexLen: -1}, false, kiSplice{}},
	} {
		got, ok := c.s.encode()
		if ok != c.ok || got != c.want {
			t.Errorf("%s: got %+v, %t", c.name, got, ok)
		}
	}
}

func TestCellOutsidePanics(t *testing.T) {
	a := &Area{Addr: 0x1000, CodeLen: 64, cells: make([]byte, 64)}
	a.Store(a.Cells()+8, 5)
	if got := a.Load(a.Cells() + 8); got != 5 {
		t.Errorf("got %d", got)
	}
	for _, c := range []uint64{0x1000, 0x103f, 0x1041, 0x1080} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("cell %#x was accepted", c)
				}
			}()
			a.Load(isa.Addr(c))
		}()
	}
}
