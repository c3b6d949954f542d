package probe

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"kerninst/agent/ktypes"
	"kerninst/agent/ktypes/ktypestest"
	"kerninst/agent/metric"
	"kerninst/agent/snippet"
	"kerninst/agent/wire"
)

// machine is a kernel's memory: the task that runs is at 0x1000, a file at 0x2000, its
// inode at 0x3000 with a size of -2; x is 5 and y is 17 in its bit fields.
func machine(arg ...uint64) (snippet.Env, map[uint64]byte) {
	memory := map[uint64]byte{}
	put := func(a uint64, n int, v uint64) {
		for k := range n {
			memory[a+uint64(k)] = byte(v >> (8 * k))
		}
	}
	put(0x1004, 4, 1)      // cpu
	put(0x1008, 4, 43)     // pid: of the thread
	put(0x100c, 4, 42)     // tgid
	put(0x1020, 8, 0x2000) // file
	copy8 := func(a uint64, s string) {
		for k := range len(s) {
			memory[a+uint64(k)] = s[k]
		}
	}
	copy8(0x1010, "squid")
	copy8(0x2008, "name")
	put(0x2000, 8, 0x3000)
	put(0x3000, 8, 1<<64-2)
	put(0x300c, 4, 5|17<<3)
	load := func(a uint64, n int) (v uint64, ok bool) {
		for k := range n {
			v |= uint64(memory[a+uint64(k)]) << (8 * k)
		}
		return v, a >= 0x1000
	}
	return snippet.Env{
		Arg:     func(n int) uint64 { return arg[n] },
		Ret:     func() uint64 { return arg[0] },
		Current: func() uint64 { return 0x1000 },
		Task:    func(off, n int) uint64 { v, _ := load(0x1000+uint64(off), n); return v },
		Load:    load,
		Cycles:  func() uint64 { return 5 },
	}, memory
}

func inside(t *testing.T, function string) At {
	return At{Function: function, Types: func() (*ktypes.Types, error) { return ktypestest.Kernel(t), nil }}
}

// nowhere is an address at which there is no code.
const nowhere = 9

// found is what an action says after it has been done with each of some first arguments.
func found(t *testing.T, in At, predicate, action string, args ...uint64) []Row {
	t.Helper()
	a, err := in.Compile(predicate, action)
	if err != nil {
		t.Errorf("%s where %q: %v", action, predicate, err)
		return nil
	}
	cells := a.Snippet.Starts()
	zero := make([]uint64, len(cells))
	for _, arg := range args {
		env, _ := machine(arg, 2, 0, 0, 0, 0)
		if err := a.Snippet.Eval(env, cells); err != nil {
			t.Fatal(err)
		}
	}
	r := metric.Read(a.Snippet, cells, zero)
	v := &wire.Value{Count: r.Count, Bounded: r.Bounded, Bound: r.Bound, Signed: r.Signed, Lost: r.Lost}
	if r.Sums != nil {
		v.Rows = append(v.Rows, &wire.Row{Values: r.Sums})
	}
	for _, row := range r.Rows {
		v.Rows = append(v.Rows, &wire.Row{Keys: row.Keys[:], Values: row.Values})
		for k, key := range row.Keys {
			if a.Shape.CodeKeys()>>k&1 > 0 && key != nowhere {
				v.Symbols = map[uint64]string{key: fmt.Sprintf("f%d", key)}
			}
		}
	}
	return a.Shape.Rows(v)
}

func TestFound(t *testing.T) {
	const minus2 = 1<<64 - 2
	for _, c := range []struct {
		predicate, action string
		args              []uint64
		want              string
	}{
		{"pid == 42", "count", []uint64{0, 0}, `[{"value":2,"hits":2}]`},
		{"tid == 42", "count", []uint64{0}, `[{"value":0,"hits":0}]`},
		{"cpu == 1 && tid == 43", "count", []uint64{0}, `[{"value":1,"hits":1}]`},
		{`comm == "squid"`, "count", []uint64{0}, `[{"value":1,"hits":1}]`},
		{`comm == "squi"`, "count", []uint64{0}, `[{"value":0,"hits":0}]`},
		{`comm == "squid-and-more"`, "count", []uint64{0}, `[{"value":0,"hits":0}]`},
		{`comm != "squid"`, "count", []uint64{0}, `[{"value":0,"hits":0}]`},
		{`comm != "squid-and-more"`, "count", []uint64{0}, `[{"value":1,"hits":1}]`},
		{`!(comm == "squid")`, "count", []uint64{0}, `[{"value":0,"hits":0}]`},
		{`!("squid-and-more" != comm)`, "count", []uint64{0}, `[{"value":0,"hits":0}]`},
		{`comm == "squid" && arg0 == 3`, "count", []uint64{3, 4}, `[{"value":1,"hits":1}]`},
		{`comm == "httpd" || arg0 == 3`, "count", []uint64{3, 4}, `[{"value":1,"hits":1}]`},
		{`comm != "squid" || arg0 == 3`, "count", []uint64{3, 4}, `[{"value":1,"hits":1}]`},
		{"arg0.f_inode.i_size == -2", "count", []uint64{0x2000}, `[{"value":1,"hits":1}]`},
		{"arg0.f_inode.i_size < 0", "sum(arg0.f_inode.y)", []uint64{0x2000}, `[{"value":17,"hits":17}]`},
		{`arg("file") == 7`, `sum(arg("count"))`, []uint64{7, 8}, `[{"value":2,"hits":2}]`},
		{"", `sum(arg("file").f_inode.y)`, []uint64{0x2000}, `[{"value":17,"hits":17}]`},
		{"", "sum(ret)", []uint64{7, 8}, `[{"value":15,"hits":15}]`},
		{"ret < 0", "count by ret", []uint64{minus2, 3}, `[{"keys":["-2"],"value":1,"hits":1}]`},
		{"", "sum(arg0.name[1])", []uint64{0x2000}, `[{"value":97,"hits":97}]`},
		{"", "sum(arg0.f_inode.x)", []uint64{0x2000}, `[{"value":5,"hits":5}]`},
		{"", "max(inode(load64(arg0)).i_size)", []uint64{0x2000}, `[{"value":-2,"hits":1}]`},
		{"", "min(task.file.f_inode.i_size)", []uint64{0}, `[{"value":-2,"hits":1}]`},
		{"", "sum(task.thread_info.cpu)", []uint64{0}, `[{"value":1,"hits":1}]`},
		{"", "max(task)", []uint64{0}, `[{"value":4096,"hits":1}]`},
		{"", "avg(arg0)", []uint64{1, 2, 6}, `[{"value":3,"hits":3}]`},
		{"", "avg(int64(arg0))", []uint64{minus2, minus2 - 2, 0}, `[{"value":-2,"hits":3}]`},
		{"", "avg(arg0)", nil, `[{"hits":0}]`},
		{"", "hist(arg0)", []uint64{0, 1, 2, 3, 8}, `[{"hits":5,"buckets":[{"lo":0,"hi":0,"n":1},{"lo":1,"hi":1,"n":1},{"lo":2,"hi":3,"n":2},{"lo":4,"hi":7,"n":0},{"lo":8,"hi":15,"n":1}]}]`},
		{"", "hist(int64(arg0))", []uint64{minus2, 1}, `[{"hits":2,"buckets":[{"hi":-1,"n":1},{"lo":0,"hi":0,"n":0},{"lo":1,"hi":1,"n":1}]}]`},
		{"", "hist(arg0)", []uint64{minus2}, `[{"hits":1,"buckets":[{"lo":9223372036854775808,"hi":18446744073709551615,"n":1}]}]`},
		{"", "lhist(arg0, 10, 30, 10)", []uint64{9, 10, 29, 30, minus2}, `[{"hits":5,"buckets":[{"hi":9,"n":1},{"lo":10,"hi":19,"n":1},{"lo":20,"hi":29,"n":1},{"lo":30,"n":2}]}]`},
		{"", "lhist(int64(arg0), -2, 2, 2)", []uint64{minus2, 0, minus2 - 1}, `[{"hits":3,"buckets":[{"hi":-3,"n":1},{"lo":-2,"hi":-1,"n":1},{"lo":0,"hi":1,"n":1}]}]`},
		{"", "count by arg0", []uint64{7, 8, 7}, `[{"keys":["0x8"],"value":1,"hits":1},{"keys":["0x7"],"value":2,"hits":2}]`}, // a pointer
		{"", "count by ksym(arg0)", []uint64{7, nowhere, 7}, `[{"keys":["0x9"],"value":1,"hits":1},{"keys":["f7"],"value":2,"hits":2}]`},
		{"", "sum(arg0) by tid, ksym(arg0 + 1)", []uint64{7}, `[{"keys":["43","f8"],"value":7,"hits":7}]`},
		{"", "count by comm", []uint64{7, 8}, `[{"keys":["squid"],"value":2,"hits":2}]`},
		{"", "sum(arg0) by tid, cpu", []uint64{7, 8}, `[{"keys":["43","1"],"value":15,"hits":15}]`},
		{"", "avg(arg0) by int32(arg0)", []uint64{1<<32 - 1}, `[{"keys":["-1"],"value":4294967295,"hits":1}]`},
		{"", "max(arg0) by pid", []uint64{7, 9, 8}, `[{"keys":["42"],"value":9,"hits":3}]`},
		{"", "min(arg0) by pid", []uint64{7, 9, 8}, `[{"keys":["42"],"value":7,"hits":3}]`},
		{"", "max(int64(arg0)) by pid", []uint64{minus2, minus2 - 1}, `[{"keys":["42"],"value":-2,"hits":2}]`},
		{"", "min(int64(arg0)) by pid", []uint64{minus2, 3}, `[{"keys":["42"],"value":-2,"hits":2}]`},
		{"", "hist(int64(arg0)) by comm", []uint64{minus2, 1}, `[{"keys":["squid"],"hits":2,"buckets":[{"hi":-1,"n":1},{"lo":0,"hi":0,"n":0},{"lo":1,"hi":1,"n":1}]}]`},
		{"", "lhist(arg0, 0, 4, 2) by comm", []uint64{1, 3}, `[{"keys":["squid"],"hits":2,"buckets":[{"lo":0,"hi":1,"n":1},{"lo":2,"hi":3,"n":1}]}]`},
		{"arg0 > 1", "count by arg0.f_inode", []uint64{1, 0x2000}, `[{"keys":["0x3000"],"value":1,"hits":1}]`},
		{"", "count by arg0, arg1", []uint64{0x2000}, `[{"keys":["0x2000","2"],"value":1,"hits":1}]`},
	} {
		rows := found(t, inside(t, "vfs_read"), c.predicate, c.action, c.args...)
		b, err := json.Marshal(rows)
		if err != nil || string(b) != c.want {
			t.Errorf("%s where %q: %s, %v; want %s", c.action, c.predicate, b, err, c.want)
		}
		var again []Row
		if err := json.Unmarshal(b, &again); err != nil {
			t.Errorf("%s: %v", b, err)
		}
	}
}

// TestFull: what has no room is counted.
func TestFull(t *testing.T) {
	a, err := At{}.Compile("", "count by arg0")
	if err != nil {
		t.Fatal(err)
	}
	cells := a.Snippet.Starts()
	const n = 5000
	for k := range uint64(n) {
		env, _ := machine(k*k, 0, 0, 0, 0, 0)
		if err := a.Snippet.Eval(env, cells); err != nil {
			t.Fatal(err)
		}
	}
	r := metric.Read(a.Snippet, cells, make([]uint64, len(cells)))
	if kept := uint64(len(r.Rows)); kept < 400 || r.Lost == 0 || kept+r.Lost != n {
		t.Errorf("%d of %d are kept, %d had no room", len(r.Rows), n, r.Lost)
	}
}

func TestKernelErrors(t *testing.T) {
	for _, c := range []struct {
		function, predicate, action, want string
	}{
		{"vfs_read", "arg0.f_inod == 0", "count", "column 6: struct file has no field f_inod; did you mean f_inode?"},
		{"vfs_read", "1 + arg0.f_inode.i_sized == 0", "count", "column 18: struct inode has no field i_sized; did you mean i_size?"},
		{"vfs_read", "arg2.x == 0", "count", "column 1: vfs_read has no arg2: it has 2 arguments, arg0 is struct file * file, arg1 is unsigned long count"},
		{"vfs_read", `arg("fill").x == 0`, "count", "column 1: vfs_read has no argument fill: it has file, count; did you mean file?"},
		{"vfs_read", "", "sum(arg(file))", "column 5: arg(file): the argument's name is quoted"},
		{"", "", `sum(arg("file"))`, "is another in each function"},
		{"vfs_read", "arg1.x == 0", "count", "column 1: arg1 is a unsigned long: it has no fields"},
		{"vfs_read", "ret.x == 0", "count", "ret is a long"},
		{"nothing", "ret.x == 0", "count", "nothing returns nothing"},
		{"vfs_raed", "arg0.x == 0", "count", "no function vfs_raed; did you mean vfs_read?"},
		{"", "arg0.x == 0", "count", "another thing in each function"},
		{"vfs_read", "load64(arg0).x == 0", "count", "say it, as in inode(load64(arg0)).i_size"},
		{"vfs_read", "inodes(arg0).x == 0", "count", "no struct inodes; did you mean inode?"},
		{"vfs_read", "inode(arg0, 1).x == 0", "count", "takes one address"},
		{"vfs_read", "", "sum(arg0.name)", "column 5: arg0.name is a char[16]: that is no number"},
		{"vfs_read", "", "sum(task.thread_info)", "is a struct thread_info"},
		{"vfs_read", "", "sum(arg0.name[16])", "has 16 elements"},
		{"vfs_read", "", "sum(arg0.name[arg1])", "numbered by constants"},
		{"vfs_read", "", "sum(arg0.f_inode.a[0])", "is a int, not an array"},
		{"vfs_read", "arg0.f_inode.x > 7", "count", "of 3 bits, this number is from 0 to 7"},
		{"vfs_read", "arg0.f_inode.z == 2", "count", "of 1 bit, this number is from 0 to 1"},
		{"vfs_read", "arg0.name[3] == 256", "count", "column 1: arg0.name[3] == 256 is false whatever comes"},
		{"vfs_read", "comm == 3", "count", "compared with a text"},
		{"vfs_read", `comm < "x"`, "count", "compared with a text"},
		{"vfs_read", `comm == "sixteen letters."`, "count", "up to 15 bytes"},
		{"vfs_read", "", "sum(comm)", "comm is a text"},
		{"vfs_read", "", "count by", "column 7: "},
		{"vfs_read", "", "count by 3", "by 3: 3 is always the same"},
		{"vfs_read", "", "count by comm, pid", "keys are one number or two, or comm"},
		{"vfs_read", "", "count by arg9", "\": column 10: arg9"},
		{"vfs_read", "", "trace(arg0) by pid", "a trace has no keys"},
		{"vfs_read", "", "stack by pid", "stack has no keys"},
		{"vfs_read", "", "hist(3)", "one bucket"},
		{"vfs_read", "", "hist(arg0, 3)", "takes one operand"},
		{"vfs_read", "", "lhist(arg0, 0, 10)", "four operands"},
		{"vfs_read", "", "lhist(arg0, 0, 10, 3)", "whole steps"},
		{"vfs_read", "", "lhist(arg0, 0, 1000, 1)", "1 to 70 whole steps"},
		{"vfs_read", "", "lhist(arg0, 0, arg1, 1)", "constants"},
		{"vfs_read", "", "sum(pidd)", "pidd is not known: there are arg0 to arg5, arg("},
	} {
		a, err := inside(t, c.function).Compile(c.predicate, c.action)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s where %q: %v, %v; want %q", c.action, c.predicate, a.Snippet, err, c.want)
		}
	}
}

func TestWrite(t *testing.T) {
	w := binary.LittleEndian.Uint64([]byte("dash\x00\x00\x00\x00"))
	if got := strings.Join(Write([]Form{Unsigned, Text, Signed}, []uint64{7, w, 0, 1<<64 - 1}), " "); got != "7 dash -1" {
		t.Error(got)
	}
	rows := found(t, inside(t, "vfs_read"), "", "hist(arg0)", 1, 2, 2, 4, 5, 6, 7)
	bars := Bars(rows[0].Buckets)
	if len(bars) != 3 || !strings.HasPrefix(bars[1], "[2, 3]") || strings.Count(bars[2], "@") != barWidth || strings.Count(bars[0], "@") != barWidth/4 {
		t.Errorf("%s", strings.Join(bars, "\n"))
	}
}

// TestReturnedType: what a function returns has the width and the sign of the kernel's types; where
// they are not asked, it is the register.
func TestReturnedType(t *testing.T) {
	const wide = 1<<40 | 1<<32 - 2
	for _, c := range []struct {
		in   At
		want string
	}{
		{inside(t, "three"), "-2"}, // an int
		{inside(t, "not_in_the_types"), "1103806595070"},
		{inside(t, ""), "1103806595070"}, // of several functions
		{At{Function: "three", Module: "m", Types: inside(t, "").Types}, "1103806595070"},
	} {
		if rows := found(t, c.in, "", "max(ret)", wide); len(rows) != 1 || rows[0].Value.String() != c.want {
			t.Errorf("%+v: %+v, want %s", c.in, rows, c.want)
		}
	}
	for _, c := range []struct {
		function string
		n        int
		ok       bool
	}{{"three", 2, true}, {"three", 3, false}, {"some", 4, true}, {"nothing", 0, false}, {"not_in_the_types", 5, true}} {
		_, err := inside(t, c.function).Compile("", fmt.Sprintf("max(arg%d)", c.n))
		if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), fmt.Sprintf("column 5: %s has no arg%d", c.function, c.n)) {
			t.Errorf("arg%d of %s: %v", c.n, c.function, err)
		}
	}
	if _, err := inside(t, "nothing").Compile("", "max(ret)"); err == nil || !strings.Contains(err.Error(), "column 5: ret: nothing returns nothing") {
		t.Error(err)
	}
}
