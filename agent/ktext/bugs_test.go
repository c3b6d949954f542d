package ktext_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"kerninst/agent/isa"
	"kerninst/agent/isa/amd64"
	"kerninst/agent/ktext"
)

// Entries of either length are told apart, and their sites and warnings found.
func TestBugTables(t *testing.T) {
	const text, table, n = isa.Addr(0xffffffff81000000), isa.Addr(0xffffffff82000000), 240
	for stride, ok := range map[int]bool{12: true, 16: true, 20: false} {
		memory := make([]byte, n*stride)
		for k := range n {
			b := memory[k*stride:]
			at := table + isa.Addr(k*stride)
			isa.ByteOrder.PutUint32(b, uint32(text+isa.Addr(16*k)-at))
			for word := 4; word < stride-4; word += 4 { // format and file are in what is read only
				isa.ByteOrder.PutUint32(b[word:], uint32(0x100000+k))
			}
			isa.ByteOrder.PutUint16(b[stride-2:], uint16(k%2))
		}
		kallsyms := fmt.Sprintf("%016x T _text\n%016x T _stext\n%016x T f\n%016x T _etext\n%016x D __start___bug_table\n%016x D __stop___bug_table\n",
			uint64(text), uint64(text), uint64(text), uint64(text)+16*n, uint64(table), uint64(table)+uint64(len(memory)))
		x, err := ktext.New(amd64.Arch, strings.NewReader(kallsyms), func(a isa.Addr, b []byte) error {
			if a < table || int(a-table)+len(b) > len(memory) {
				return errors.New("not mapped")
			}
			copy(b, memory[a-table:])
			return nil
		}, ktext.Options{})
		if err != nil {
			t.Fatal(err)
		}
		links, err := x.Links("")
		if !ok {
			if err == nil {
				t.Errorf("%d bytes: taken", stride)
			}
			continue
		}
		if err != nil || len(links.Bugs) != n || links.Bugs[3] != (ktext.BugSite{Site: text + 48, Warning: true}) || links.Bugs[4].Warning {
			t.Errorf("%d bytes: %v, %v", stride, links, err)
		}
	}
}
