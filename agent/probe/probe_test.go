package probe

import (
	"strings"
	"testing"

	"kerninst/agent/wire"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want Spec
		err  string
	}{
		{"kinst::vfs_read:16", Spec{Function: "vfs_read", Offset: 16}, ""},
		{"kinst:ext4:ext4_create:0x1c", Spec{Module: "ext4", Function: "ext4_create", Offset: 28}, ""},
		{"vfs_read", Spec{}, "want kinst:"},
		{"fbt::vfs_read:1", Spec{}, "want kinst:"},
		{"kinst:::1", Spec{}, "no function"},
		{"kinst::vfs_*:entry", Spec{Function: "vfs_*", Name: "entry"}, ""},
		{"kinst::f:return", Spec{Function: "f", Name: "return"}, ""},
		{"kinst::f:block", Spec{Function: "f", Name: "block"}, ""},
		{"kinst::f:call", Spec{Function: "f", Name: "call"}, ""},
		{"kinst::f:", Spec{Function: "f", Name: every}, ""},
		{"kinst::f:" + every, Spec{}, "neither a byte offset"},
		{"kinst::f:entries", Spec{}, "block, call, entry, return"},
		{"kinst::f:-1", Spec{}, "neither a byte offset"},
		{"kinst::f:8 max(arg2)", Spec{Function: "f", Offset: 8, Action: "max(arg2)"}, ""},
		{"kinst::f:entry /arg2 > 1/ sum(arg2)", Spec{Function: "f", Name: "entry", Predicate: "arg2 > 1", Action: "sum(arg2)"}, ""},
		{" kinst::f: /arg0 != 0/ ", Spec{Function: "f", Name: every, Predicate: "arg0 != 0"}, ""},
		{"kinst::f:8 /arg2 > 1", Spec{}, "between two slashes"},
		{"kinst::f:8 // count", Spec{}, "between two slashes"},
		{"kinst::f[:1", Spec{}, "no pattern"},
		{"kinst::t_*#2:entry", Spec{}, "which a pattern is not"},
		{"kinst::t_show#2:entry", Spec{Function: "t_show#2", Name: "entry"}, ""},
		{"kinst:ext*:f:1", Spec{}, "a module is named whole"},
		{"kinst::f:1:2", Spec{}, "want kinst:"},
		{"", Spec{}, "want kinst:"},
	} {
		got, err := Parse(tt.in)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("Parse(%q) = %v, %v; want an error about %q", tt.in, got, err, tt.err)
			}
			continue
		}
		tt.want.Text = tt.in
		if err != nil || got != tt.want {
			t.Errorf("Parse(%q) = %+v, %v; want %+v", tt.in, got, err, tt.want)
		}
	}
}

// TestPoint: every name asks for something of its own, and offsets for themselves.
func TestPoint(t *testing.T) {
	seen := map[string]string{}
	for _, name := range append(Names(), "", "0", "16") {
		s, err := Parse("kinst:m:f:" + name)
		if err != nil {
			t.Fatal(err)
		}
		p := s.Point()
		if p.Module != "m" || p.Function != "f" || s.Several() != (p.Each != wire.Each_ITSELF) {
			t.Errorf("%q: %v, several %v", name, p, s.Several())
		}
		if was, ok := seen[p.String()]; ok {
			t.Errorf("%q asks for what %q does: %v", name, was, p)
		}
		seen[p.String()] = name
	}
	if s, err := Parse("kinst::f?:entry"); err != nil || !s.Several() {
		t.Errorf("%+v, %v: a pattern is for several", s, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("kinst::vfs_read:16")
	f.Fuzz(func(t *testing.T, in string) {
		s, err := Parse(in)
		if (err == nil) == (s == Spec{}) {
			t.Fatalf("Parse(%q): error xor value: %+v, %v", in, s, err)
		}
	})
}
