package splice_test

import (
	"testing"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/ktext/ktexttest"
)

// TestPassedBy: a function that is traced or patched since it was planned to be copied is found out by what its site has.
func TestPassedBy(t *testing.T) {
	for _, arch := range ktexttest.Arches {
		b := setUp(t, arch)
		f, err := b.text.Function("", "vfs_read")
		if err != nil {
			t.Fatal(err)
		}
		site := make([]byte, 4)
		if err := b.k.Read(f.Addr, site); err != nil {
			t.Fatal(err)
		}
		g := &gen.Gate{Function: f.Addr, Site: f.Addr, Bare: isa.ByteOrder.Uint32(site)}
		for _, g := range []*gen.Gate{nil, {Function: f.Addr}, g} {
			if err := b.s.PassedBy(g); err != nil {
				t.Errorf("%s: %+v: %v", arch, g, err)
			}
		}
		b.k.Write(f.Addr, []byte{site[0] ^ 1})
		if b.s.PassedBy(g) == nil {
			t.Errorf("%s: something is at the site", arch)
		}
	}
}
