package ktext

import (
	"testing"

	"kerninst/agent/isa"
)

// What a daemon says of a module's functions names addresses in it.
func TestModuleFunctions(t *testing.T) {
	const kallsyms = "ffffffff81000000 T _text\nffffffff81000010 t plain\n" +
		"ffffffffc0002040 t second\t[mod]\nffffffffc0001010 t first\t[mod]\nffffffffc0001010 t alias\t[mod]\n" +
		"ffffffffc0001020 d data\t[mod]\nffffffffc0001030 t $x\t[mod]\nffffffffc0009000 T other\t[b_2]\n" +
		"ffffffffc000a000 t ftrace\t[__builtin__ftrace]\nffffffffc000b000 t bpf_prog\t[bpf]\n"
	all, err := ReadModuleFunctions(ModuleFunctions([]byte(kallsyms)))
	if err != nil || len(all) != 2 || all[0].Module != "b_2" || all[1].Lo != 0xffffffffc0001000 || all[1].Hi != 0xffffffffc0003000 {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, tt := range []struct {
		a, before isa.Addr
		want      string
	}{
		{0xffffffffc0001014, 0, "first+0x4/0x1030 [mod]"},
		{0xffffffffc0002040, 1, "first+0x1030/0x1030 [mod]"}, // behind a call that does not return
		{0xffffffffc0002040, 0, "second+0x0/0xfc0 [mod]"},
		{0xffffffffc000100f, 0, ""},
		{0xffffffffc0003000, 0, ""},
	} {
		if got := all[1].Name(tt.a, tt.before); got != tt.want {
			t.Errorf("%v-%d: %q, want %q", tt.a, tt.before, got, tt.want)
		}
	}
	if got := ModuleFunctions([]byte("ffffffff81000000 T _text\n")); got != nil {
		t.Errorf("%q of a kernel without modules", got)
	}
	for _, bad := range []string{"x t f\t[m]\n", "1 t f\n", "1 t \x1b[2J\t[m]\n", "1 t f\t[<b>]\n", "1 t f\t[m]\nffffffff t g\t[m]\n",
		"fffffffffffff800 t f\t[m]\n", "1 t f\t[m]\n9000001 t g\t[m]\n1 t f\t[n]\n9000001 t g\t[n]\n"} {
		if _, err := ReadModuleFunctions([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
