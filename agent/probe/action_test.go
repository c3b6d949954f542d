package probe

import (
	"strings"
	"testing"

	"kerninst/agent/snippet"
)

func TestCompile(t *testing.T) {
	const minus1 = 1<<64 - 1
	for _, c := range []struct {
		predicate, action string
		args              [2]uint64
		want              uint64 // of the first word of the cells
	}{
		{"", "count", [2]uint64{}, 1},
		{"arg0 == 3", "count", [2]uint64{3}, 1},
		{"arg0 == 3", "count", [2]uint64{4}, 0},
		{"3 < arg0", "count", [2]uint64{4}, 1},
		{"3 < arg0", "count", [2]uint64{3}, 0},
		{"!(arg0 >= 3)", "count", [2]uint64{2}, 1},
		{"arg0 == 1 && arg1 == 2", "count", [2]uint64{1, 2}, 1},
		{"arg0 == 1 && arg1 == 2", "count", [2]uint64{1, 3}, 0},
		{"arg0 == 1 && arg1 == 2", "count", [2]uint64{2, 2}, 0},
		{"arg0 == 1 || arg1 == 2", "count", [2]uint64{1, 3}, 1},
		{"arg0 == 1 || arg1 == 2", "count", [2]uint64{0, 2}, 1},
		{"arg0 == 1 || arg1 == 2", "count", [2]uint64{0, 3}, 0},
		{"!(arg0 == 1 || arg1 == 2)", "count", [2]uint64{0, 3}, 1},
		{"!(arg0 == 1 && arg1 == 2)", "count", [2]uint64{1, 2}, 0},
		{"!(arg0 == 1 && arg1 == 2)", "count", [2]uint64{1, 3}, 1},
		{"(arg0 == 1 || arg0 == 2) && (arg1 == 1 || arg1 == 2)", "count", [2]uint64{2, 2}, 1},
		{"(arg0 == 1 || arg0 == 2) && (arg1 == 1 || arg1 == 2)", "count", [2]uint64{2, 3}, 0},
		{"int32(arg0) < 0", "count", [2]uint64{0x1ffffffff}, 1},
		{"arg0 < 1", "count", [2]uint64{minus1}, 0},
		{"arg0 == -1 && arg0 > 0 && int64(arg0) < 0", "count", [2]uint64{minus1}, 1},
		{"arg0 % 3 == 2 && arg0 % 8 == 3 && arg0 / 3 == 3 && arg0 / 4 == 2", "count", [2]uint64{11}, 1},
		{"arg0 * 10 == 2 * 5 * 11 && 3 * arg0 == 33 && int64(arg0) * -2 == -22", "count", [2]uint64{11}, 1},
		{"arg0 &^ 1 == 10 && arg0 &^ arg1 == 8 && ^arg0 == -12 && -int64(arg0) == -11", "count", [2]uint64{11, 3}, 1},
		{"arg0 == 7 - 8 + 12 && arg0 << (1 + 1) == 1<<5 + 12", "count", [2]uint64{11}, 1},
		{"int32(arg0) == -1", "count", [2]uint64{0xffffffff}, 1},
		{"arg0&0xf0 == 'a'&0xf0", "count", [2]uint64{0x61}, 1},
		{"arg0 == '\\''", "count", [2]uint64{0x27}, 1},
		{"", "sum(arg0 + arg1<<2)", [2]uint64{1, 2}, 9},
		{"", "sum(int8(arg0))", [2]uint64{0xff}, minus1},
		{"", "min(arg0)", [2]uint64{7}, 7},
		{"arg0 != 7", "min(arg0)", [2]uint64{7}, minus1},
		{"", "max(int64(arg0))", [2]uint64{minus1}, minus1},
		{"", "max(uint16(arg0) - 1)", [2]uint64{0x10001}, 0},
		{"", `sum(reg("sp") ^ 1)`, [2]uint64{}, 8},
		{"", "sum(cycles)", [2]uint64{}, 5},
		{"", "sum(load8(arg0))", [2]uint64{0x1000}, 0x11},
		{"", "sum(int8(load16(arg0 + arg1) >> 8) - 1)", [2]uint64{0xff0, 0x10}, 0x21},
		{"", "sum(load32(arg0))", [2]uint64{0x1000}, 0x44332211},
		{"load64(0x1000) == 0x8877665544332211", "count", [2]uint64{}, 1},
		{"load64(arg0) != 0", "count", [2]uint64{1}, 0},
		{"", "sum(load64(load8(arg0) + 0x1000 - 0x11))", [2]uint64{0x1000}, 0x8877665544332211},
		{"", "trace(cycles, arg0, arg1)", [2]uint64{}, 5},
	} {
		s, err := Compile(c.predicate, c.action)
		if err != nil {
			t.Error(err)
			continue
		}
		cells := s.Starts()
		err = s.Eval(snippet.Env{
			Append: func(_ int, fields []uint64) { cells = fields }, // they are in no cell
			Arg:    func(n int) uint64 { return c.args[n] },
			Reg:    func(name string) (uint64, bool) { return 9, name == "sp" },
			Cycles: func() uint64 { return 5 },
			Load: func(a uint64, n int) (uint64, bool) {
				return 0x8877665544332211 & (1<<(8*n) - 1), a == 0x1000
			},
		}, cells)
		if err != nil || cells[0] != c.want {
			t.Errorf("%s where %q of %v: %#x, %v; want %#x\n%v", c.action, c.predicate, c.args, cells[0], err, c.want, s)
		}
	}
	for predicate, want := range map[string]int{"": 1, "arg0 == 2": 1, "arg0 == 3": 0} {
		s, err := Compile(predicate, "trace()")
		if err != nil {
			t.Fatal(err)
		}
		came := 0
		env := snippet.Env{Arg: func(int) uint64 { return 2 }, Append: func(_ int, fields []uint64) { came += 1 + len(fields) }}
		if err := s.Eval(env, s.Starts()); err != nil || came != want {
			t.Errorf("trace() where %q: %d words, %v; want %d", predicate, came, err, want)
		}
	}
	if s, err := Compile("", "count"); err != nil || !s.IsCounter() {
		t.Errorf("count is no counter: %v, %v", s, err)
	}
}

func TestCompileErrors(t *testing.T) {
	for _, c := range []struct{ predicate, action, want string }{
		{"arg0", "count", "arg0 is no condition"},
		{"1 == 2", "count", "two constants"},
		{"arg9 == 1", "count", "arg0 to arg5"},
		{"pid == 1", "count", "types are not known here"},
		{"arg0 ==", "count", "predicate"},
		{"arg0 == int32(arg1)", "count", "convert one"},
		{"arg0 == 1.5", "count", "whole number"},
		{"arg0 == 0x10000000000000000", "count", "64 bits"},
		{`arg0 == reg(sp)`, "count", "quoted"},
		{"arg0 == float64(arg1)", "count", "float64 is not known"},
		{"arg0 / arg1 == 1", "count", "column 1: arg0 / arg1: numbers without a sign are divided, by a constant above 0"},
		{"int64(arg0) / 2 == 1", "count", "without a sign are divided"},
		{"arg0 % 0 == 1", "count", "above 0"},
		{"arg0 * arg1 == 1", "count", "products are with a constant"},
		{"arg0 == 1 / 0", "count", "by one that is not 0"},
		{"1 == arg0 << arg1", "count", "column 14: arg0 << arg1: shifts are by a constant from 0 to 63"},
		{"arg0 << 64 == 1", "count", "from 0 to 63"},
		{"(arg0 > 1) + 1 == 2", "count", "column 2: arg0 > 1 is no number: between two may stand +"},
		{"arg0 < 0", "count", "column 1: arg0 < 0 is false whatever comes: this number has no sign"},
		{"arg0 > -1", "count", "is true whatever comes"},
		{"uint8(arg0) > 255", "count", "column 1: uint8(arg0) > 255 is false whatever comes: of 8 bits, this number is from 0 to 255"},
		{"int32(arg0) == 0xffffffff", "count", "is false whatever comes: of 32 bits, this number is from -2147483648 to 2147483647"},
		{"int8(arg0) >= -128", "count", "is true whatever comes"},
		{"300 != load8(arg0)", "count", "is true whatever comes"},
		{"int64(arg0) < 0xffffffff80000000", "count", "is true whatever comes: of 64 bits, this number is from -9223372036854775808 to 9223372036854775807"},
		{"int64(arg0) >= -9223372036854775808", "count", "is true whatever comes"},
		{"uint16(arg0) == -1", "count", "from 0 to 65535"},
		{"int16(arg0) <= 32767", "count", "is true whatever comes"},
		{"arg1 == 2 && -3 >= arg0", "count", "column 14: -3 >= arg0 is false whatever comes"},
		{"arg1 == \"a\"", "count", "column 9: \"a\" is not a whole number"},
		{"", "sum(load64())", "column 5: load64(): load64 takes one operand"},
		{"", "sum(1 + load64(arg0, 8))", "column 9: load64(arg0, 8): load64 takes one operand"},
		{"", "sum(load128(arg0))", "column 5: load128 is not known"},
		{"", "sum(*arg0)", "column 5: *arg0 does not say how much: there are load8"},
		{"arg1 == 1 && load64(arg7) == 1", "count", "column 21: arg7: arguments"},
		{"", "sum(load64(arg0 +))", "\": column 18: expected operand"},
		{"arg0 > 40 96", "count", "\": column 11: expected its end, found 96"},
		{"arg0 <= 18446744073709551615", "count", "is true whatever comes"},
		{"0xffffffffffffffff < arg0", "count", "is false whatever comes"},
		{"load8(arg0) == 'é' && arg9 == 1", "count", "column 23: arg9"},
		{"load8(arg0) == 'é' && arg0 ==", "count", "column 30: expected operand"},
		{"int64(arg0) == -18446744073709551615", "count", "is not a number of 64 bits"},
		{"", "lhist(arg0, -5, 5, 1)", "lhist: from -5, but the number has no sign"},
		{"", "trace(arg0...)", "column 11: ... is no part"},
		{"", "count by arg0) + (arg1", "by arg0) + (arg1: keys are a list"},
		{"", "count by arg0)(arg1", "keys are a list"},
		{"", "count by arg0, arg1...", "column 20: ... is no part"},
		{"", "dance", "there are count"},
		{"", "dance(arg0)", "there are count"},
		{"", "min(arg0, arg1)", "one operand"},
		{"", "sum()", "one operand"},
		{"", "trace", "as in trace(arg0, comm), or nothing, as in trace()"},
		{"", "trace() by arg0", "a trace has no keys"},
		{"", "stack(0)", "from 1 to 15"},
		{"", "stack(16)", "from 1 to 15"},
		{"", "stack(arg0)", "takes one constant"},
		{"", "trace(1, 2, 3, 4, 5, 6, 7, 8)", "up to 7 words, of which comm is two, not 8"},
		{"", "sum(sym(jiffies))", "the symbol's name is quoted"},
		{"", "sum(ksym(arg0))", "column 5: ksym(arg0) is a name, not a number: it can be a key"},
		{"", "trace(ksym(arg0))", "it can be a key"},
		{"ksym(arg0) == 1", "count", "column 1: ksym(arg0) is a name"},
		{"", "count by ksym(arg0, arg1)", "ksym takes one operand"},
		{"", "count by ksym(7)", "is always the same"},
		{"", "count by ksym(comm)", "comm is a text"},
		{"", "sum(cache_misses)", "hardware counters are not read"},
		{"", "", "action"},
	} {
		s, err := Compile(c.predicate, c.action)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s where %q: %v, %v; want %q", c.action, c.predicate, s, err, c.want)
		}
	}
}

// FuzzCompile: an expression is refused, or it is a snippet that is right.
func FuzzCompile(f *testing.F) {
	f.Add("arg0 == 1 && (reg(\"sp\") > 2 || !(int32(arg1) < -3))", "trace(arg0, cycles)")
	f.Add("", "max(arg0 << 3)")
	f.Fuzz(func(t *testing.T, predicate, action string) {
		s, err := Compile(predicate, action)
		if (err == nil) == s.Empty() || err == nil && s.Check() != nil {
			t.Fatalf("%s where %q: %v, %v", action, predicate, s, err)
		}
	})
}

// TestRegisters: of an ISA whose registers are known, no other is asked for.
func TestRegisters(t *testing.T) {
	in := At{Registers: []string{"rax", "rdi"}}
	if _, err := in.Compile("", `sum(reg("rdi"))`); err != nil {
		t.Error(err)
	}
	if _, err := in.Compile("", `sum(reg("rdx"))`); err == nil || !strings.Contains(err.Error(), "there is no register of that name") {
		t.Errorf("of a register that there is not: %v", err)
	}
	if _, err := (At{}).Compile("", `sum(reg("rdx"))`); err != nil {
		t.Errorf("where none are known: %v", err)
	}
}
