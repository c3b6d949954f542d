package probe

import (
	"strings"
	"testing"
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
		{"kinst::f:", Spec{}, "not a byte offset"},
		{"kinst::f:-1", Spec{}, "not a byte offset"},
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

func TestParseAllRefusesTwins(t *testing.T) {
	if _, err := ParseAll([]string{"kinst::f:16", "kinst::f:0x10"}); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Fatalf("got %v", err)
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
