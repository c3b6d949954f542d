package splice_test

import (
	"testing"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/ktext/ktexttest"
	"kerninst/agent/plan"
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

// TestPatchedMeanwhile has somebody come to a function's ftrace site while its copy is written: the clone is not made.
func TestPatchedMeanwhile(t *testing.T) {
	for _, arch := range ktexttest.Arches {
		b := setUp(t, arch)
		entry, site := cloned(b)
		if site == 0 {
			t.Fatalf("%s: nothing can be copied", arch)
		}
		is := make([]byte, 1)
		if err := b.k.Read(site, is); err != nil {
			t.Fatal(err)
		}
		b.k.meanwhile = func() { b.k.Write(site, []byte{is[0] ^ 1}) }
		if _, err := b.s.Apply([]*plan.Plan{entry}); err == nil || len(b.k.live) > 0 {
			t.Errorf("%s: %v, %d splices live, of a clone whose original is patched", arch, err, len(b.k.live))
		}
		b.k.meanwhile = nil
		b.k.Write(site, is)
		if _, err := b.s.Apply([]*plan.Plan{entry}); err != nil || len(b.k.live) == 0 {
			t.Errorf("%s: %v, and nobody is at the site any more", arch, err)
		}
	}
}

// cloned is a clone of the first function that can be one here, and the function's ftrace site.
func cloned(b *bench) (entry *plan.Plan, site isa.Addr) {
	b.text.Functions("", func(f ktext.Func) bool {
		c, r := plan.AsClone(b.text, plan.Request{Heap: b.s.Heap(), Taken: b.s.Taken, Features: gen.Features{LSE: true}}, plan.Cloning{Functions: []ktext.Func{f}})
		if r != nil {
			return true
		}
		for _, x := range c.Entry.Clone.Insns {
			if x.Gate != nil && x.Gate.Site != 0 {
				entry, site = c.Entry, x.Gate.Site
			}
		}
		return site == 0
	})
	return entry, site
}
