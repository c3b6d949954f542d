package scenarios

import (
	"slices"
	"testing"

	"kerninst/agent/isa/all"
	"kerninst/agent/wire"
)

// TestFaultForm: what is the same access has one form, whatever its registers are, and
// what is not has another.
func TestFaultForm(t *testing.T) {
	for _, c := range []struct{ arch, code, form string }{
		{"amd64", "\x8a\x07", "mov (%r64),%r8, type 3"},                   // mov (%rdi), %al
		{"amd64", "\x40\x8a\x3e", "mov (%r64),%r8, type 3"},               // mov (%rsi), %dil
		{"amd64", "\x66\x89\x07", "mov %r16,(%r64), type 3"},              // mov %ax, (%rdi)
		{"amd64", "\x45\x8b\x50\x28", "mov n(%r64),%r32, type 3"},         // mov 0x28(%r8), %r10d
		{"amd64", "\x4d\x8b\x50\x28", "mov n(%r64),%r64, type 3"},         // mov 0x28(%r8), %r10
		{"amd64", "\x42\x88\x4c\x06\xff", "mov %r8,n(%r64,%r64), type 3"}, // mov %cl, -1(%rsi,%r8)
		{"amd64", "\x48\x8b\x3c\xda", "mov (%r64,%r64,n),%r64, type 3"},   // mov (%rdx,%rbx,8), %rdi
		{"amd64", "\xf0\x0f\xb1\x0e", "lock cmpxchg %r32,(%r64), type 3"}, // lock cmpxchg %ecx, (%rsi)
		{"amd64", "\x3e\x0f\xb1\x0e", "lock cmpxchg %r32,(%r64), type 3"}, // as one CPU has it
		{"arm64", "\x83\x08\x40\xb8", "ldtr w, [x], type 3"},              // ldtr w3, [x4]
		{"arm64", "\x83\x08\x40\xf8", "ldtr x, [x], type 3"},              // ldtr x3, [x4]
		{"arm64", "\x5f\xf8\x1f\x38", "sttrb wzr, [x,#n], type 3"},        // sttrb wzr, [x2, #-1]
		{"riscv64", "\x83\x37\x06\x00", "ld x,n(x), 4 bytes, type 3"},     // ld a5, 0(a2)
		{"riscv64", "\x1c\x62", "ld x,n(x), 2 bytes, type 3"},             // c.ld a5, 0(a2)
	} {
		arch, err := all.Lookup(c.arch)
		if err != nil {
			t.Fatal(err)
		}
		code := append([]byte(c.code), make([]byte, arch.MaxLen)...)
		if got := faultForm(arch, code, 0x1000, 3); got != c.form {
			t.Errorf("%s %x: %q, want %q", c.arch, c.code, got, c.form)
		}
	}
}

func TestReadForms(t *testing.T) {
	of := func(exit int32, stdout string) *wire.Result {
		return &wire.Result{Runs: []*wire.RunResult{{Exit: exit, Stdout: []byte(stdout)}}}
	}
	forms, err := readForms(of(0, "load8 3 20 7 5 00ff\nstore8_free 17 20 0 2 12ab\n"))
	want := []ranForm{{"load8", 3, 20, 7, 5}, {"store8_free", 17, 20, 0, 2}}
	if err != nil || !slices.Equal(forms, want) {
		t.Errorf("%v, %v", forms, err)
	}
	for name, res := range map[string]*wire.Result{
		"no result": nil, "it failed": of(1, "load8 3 20 7 5 00ff\n"), "nothing": of(0, ""), "cut off": of(0, "load8 3 20 7\n"),
	} {
		if _, err := readForms(res); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestDiffering(t *testing.T) {
	for name, c := range map[string]struct {
		got string
		n   int
	}{"same": {"a 1\nb 2\n", 0}, "another": {"a 1\nb 3\n", 1}, "cut off": {"a 1", 2}, "more": {"a 1\nb 2\nc 3\n", 2}} {
		if got := differing([]byte("a 1\nb 2\n"), []byte(c.got)); len(got) != c.n {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestStaysPut: only what is named may be refused.
func TestStaysPut(t *testing.T) {
	for _, c := range []struct{ arch, name, want string }{
		{"amd64", "load8", ""}, {"amd64", "call_free", "may fault"}, {"arm64", "exclusive_load8", ""}, {"arm64", "exclusive_store8", "exclusive sequence"},
		{"riscv64", "load8", ""}, {"riscv64", "load8_free", ""}, {"riscv64", "load8_tight", ""}, {"riscv64", "exclusive_store_tight", "exclusive sequence"},
	} {
		if got := staysPut(c.arch, c.name, false); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.arch, c.name, got, c.want)
		}
	}
	if got := staysPut("arm64", "exclusive_load8_free", true); got != "exclusive sequence" {
		t.Errorf("in a patch of two parts: %q", got)
	}
}
