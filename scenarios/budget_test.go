package scenarios

import (
	"strings"
	"testing"
)

func TestBudget(t *testing.T) {
	b, err := readBudget("# comment\nNull 1.01 3 90 0 # why\nStat 1.01 3 - 8\nForkExit 1.05 - - 0\ngeomean 1.005\ntimes 80\n")
	if err != nil {
		t.Fatal(err)
	}
	null := func(spliced, kprobed float64) probedOp {
		return probedOp{"Null", insnsPerOp, 1440, 400, spliced, kprobed, 0.1}
	}
	for _, tt := range []struct {
		op   probedOp
		over string // all of it, as prefixes
	}{
		{null(403, 700), ""},
		{null(403, 0), ""}, // kprobes were not measured
		{null(404, 800), "Null: 4.00 insns/op added"},
		{null(405, 900), "Null: 1.0125 x bare|Null: 5.00 insns/op added"},
		{null(403, 662), ""}, // 87 times, or 90 of what is known
		{null(403, 660), "Null: kprobes add 86.7 times"},
		{null(403.09, 1000), ""},
		{null(403.12, 1000), "Null: 3.12 insns/op added"},
		{null(400, 400), "Null: 0.00 insns/op added, no more than differs"}, // nothing adds nothing: no probe is there
		{null(399.92, 0), ""},
		{null(399.88, 0), "Null: -0.12 insns/op added, less than nothing"},
		{probedOp{"Stat", insnsPerOp, 384, 4000, 4011, 0, 0.1}, ""}, // where names happen to be
		{probedOp{"Stat", insnsPerOp, 384, 4000, 3992, 0, 0.1}, ""},
		{probedOp{"Stat", insnsPerOp, 384, 4000, 4012, 0, 0.1}, "Stat: 12.00 insns/op added"},
		{probedOp{"Stat", insnsPerOp, 384, 4000, 3991, 0, 0.1}, "Stat: -9.00 insns/op added, less than nothing"},
		{probedOp{"ForkExit", vnsPerOp, 5, 1000, 1050, 1001, 0.1}, ""}, // only the ratio is asserted
		{probedOp{"ForkExit", vnsPerOp, 5, 1000, 1051, 0, 0.1}, "ForkExit: 1.0510 x bare"},
		{probedOp{"Other", vnsPerOp, 5, 1000, 1000, 0, 0.1}, "Other: 1.0000 x bare"}, // has no budget
	} {
		got := b.over([]probedOp{tt.op})
		var want []string
		if tt.over != "" {
			want = strings.Split(tt.over, "|")
		}
		if len(got) < len(want) {
			t.Errorf("%+v: got %q, want %q", tt.op, got, want)
			continue
		}
		for k, w := range want {
			if !strings.HasPrefix(got[k], w) {
				t.Errorf("%+v: got %q, want %q", tt.op, got, want)
			}
		}
		if len(want) == 0 && len(got) > 0 {
			t.Errorf("%+v: got %q", tt.op, got)
		}
	}
	if got := b.unmatched([]probedOp{{name: "Null"}, {name: "Stat"}, {name: "Other"}}); strings.Join(got, " ") != "Other ForkExit" {
		t.Errorf("unmatched: %q", got)
	}
	for _, bad := range []string{"Null 1.01 3 80\n", "Null 0.9 3 80 0\n", "Null 1.01 x 3 0\n", "Null 1.01 3 80 -\n", "Null 1.01 3 80 0\nNull 1.01 3 80 0\n", "geomean 1.005\n", "geomean 1.005 2\n", "times 80\n"} {
		if _, err := readBudget(bad); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

// Each suite sees its own operations alone.
func TestSuiteOfBudget(t *testing.T) {
	b, err := readBudget("Ctx/2p/0K 1.01 3 90 0\nSquid/request 1.02 5 80 0\ngeomean 1.005\ntimes 80\n")
	if err != nil {
		t.Fatal(err)
	}
	for squid, name := range map[bool]string{false: "Ctx/2p/0K", true: "Squid/request"} {
		if got := b.suite(squid); len(got.ops) != 1 || got.ops[name] != b.ops[name] || got.geomean != 1.005 || got.times != 80 {
			t.Errorf("of Squid: %v: %+v", squid, got)
		}
	}
	if len(b.ops) != 2 {
		t.Errorf("of all, %+v is left", b)
	}
}

// TestBudgets: each ISA has one, for each operation of lmbench's and of Squid's.
func TestBudgets(t *testing.T) {
	var ops []probedOp
	for _, name := range allOps() {
		ops = append(ops, probedOp{name: name})
	}
	for _, arch := range []string{"amd64", "arm64", "riscv64"} {
		b := NewT(arch, "", nil, nil).allowances()
		if got := append(b.suite(false).unmatched(ops), b.suite(true).unmatched(squidOps(&proxied{}, &proxied{}, nil))...); len(got) > 0 {
			t.Errorf("%s: without a budget or an operation: %q", arch, got)
		}
	}
}

func TestProbedPlaces(t *testing.T) {
	calls, path, err := probedPlaces("amd64", "ffffffff81000010 T __x64_sys_read\nffffffff81000010 W __x64_sys_none\nffffffff81000020 t __x64_sys_x\n"+
		"ffffffff81000020 t __x64_sys_y\nffffffff81000028 t __x64_sys_read.cold\nffffffff81000030 t link_path_walk.part.0\nffffffff81000040 t link_path_walker\nffffffff81000050 t vfs_open\t[mod]\n")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range append(calls, path...) {
		if !p.Entry {
			t.Errorf("%s is not asked for at its entry", p.Function)
		}
		got = append(got, p.Function)
	}
	if want := "__x64_sys_read __x64_sys_x link_path_walk.part.0"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
	if _, _, err := probedPlaces("amd64", ""); err == nil {
		t.Error("no symbols make a job")
	}
}
