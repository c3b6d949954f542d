package index_test

import (
	"slices"
	"testing"

	"kerninst/agent/index"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/ktext/ktexttest"
)

// TestLate: what is looked up block by block, in whatever order, is what all of a function
// says; and only as long as its bytes are those that were compared.
func TestLate(t *testing.T) {
	for _, arch := range ktexttest.Arches {
		k := ktexttest.Load(t, arch)
		s := source(t, k)
		v, err := index.NewView(opened(t, made(t, s)), s.Text)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, p := range s.Graph.Entries() {
			f, _ := s.Text.Locate(s.Graph.Addr(p))
			late, err := v.ForSplice(f)
			if err != nil {
				t.Fatal(err)
			}
			if late.How != index.Indexed {
				continue
			}
			whole, err := v.Function(f)
			if err != nil {
				t.Fatal(err)
			}
			n += sameLate(t, s.Text, late, whole)
			sameBegins(t, late, f, s.Graph)
			if late, err = v.ForSplice(f); err != nil || late.Instructions() != whole.Instructions() {
				t.Fatalf("%v: %d instructions, not %d (%v)", f, late.Instructions(), whole.Instructions(), err)
			}
		}
		if n < 1000 {
			t.Errorf("%s: only %d instructions compared", arch, n)
		}
		changed(t, k, v, s)
	}
}

// sameLate compares each address of a function, from its end to its begin, and whether it
// rebases. It returns how many instructions there are.
func sameLate(t *testing.T, text *ktext.Text, late, whole *index.Function) (n int) {
	t.Helper()
	for a := whole.End(); a > whole.Addr; a-- {
		got, ok := late.Before(a - 1)
		want, there := whole.Before(a - 1)
		if got != want || ok != there {
			t.Fatalf("%v at %v: live %s, %v, not %s, %v", whole.Func, a-1, text.Arch.Names(got), ok, text.Arch.Names(want), there)
		}
		if there {
			n++
		}
	}
	code := make([]byte, whole.Size)
	if err := text.Read(whole.Addr, code); err != nil {
		t.Fatal(err)
	}
	may := false
	for k := 0; k < len(code); {
		i := text.Arch.Decode(code[k:], whole.Addr+isa.Addr(k))
		k += i.Len
		may = may || k <= len(code) && i.MayRebase()
	}
	if got := late.Rebases(); got == nil || *got != may {
		t.Fatalf("%v rebases: %v, not %v", whole.Func, got, may)
	}
	return n
}

// changed rewrites an instruction of each of some functions: they are not as they were
// compared, though all of the text was.
func changed(t *testing.T, k *ktexttest.Kernel, v *index.View, s index.Source) {
	t.Helper()
	n := 0
	for _, p := range s.Graph.Entries() {
		f, _ := s.Text.Locate(s.Graph.Addr(p))
		fn, err := v.ForSplice(f)
		if err != nil {
			t.Fatal(err)
		}
		var at []isa.Addr
		fn.Each(func(a isa.Addr, _ isa.RegSet) { at = append(at, a) })
		if fn.How != index.Indexed || len(at) < 10 {
			continue
		}
		old := make([]byte, at[6]-at[5])
		if err := k.Read(at[5], old); err != nil {
			t.Fatal(err)
		}
		k.Write(at[5], slices.Repeat(s.Text.Arch.Trap, len(old)/len(s.Text.Arch.Trap)))
		if fn, err = v.ForSplice(f); err != nil || fn.How != index.Differs {
			t.Fatalf("%v, with a trap at %v: %v, %v", f, at[5], fn.How, err)
		}
		k.Write(at[5], old)
		if fn, err = v.ForSplice(f); err != nil || fn.How != index.Indexed {
			t.Fatalf("%v, as it was: %v, %v", f, fn.How, err)
		}
		if n++; n == 5 {
			return
		}
	}
	t.Errorf("%s: only %d functions were changed", s.Text.Arch.Name, n)
}
