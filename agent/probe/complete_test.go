package probe

import (
	"slices"
	"testing"
)

func TestComplete(t *testing.T) {
	functions := func() []string { return []string{"vfs_write", "vfs_read", "vmalloc", "vfs_read"} }
	for typed, want := range map[string][]string{
		"":                   {"kinst::"},
		"kin":                {"kinst::"},
		"kinst:":             {"kinst::"},
		"kprobe":             nil,
		"kinst::":            nil, // all of a kernel's would not help
		"kinst::v":           nil,
		"kinst::vf":          {"kinst::vfs_read:", "kinst::vfs_write:"},
		"kinst:ext4:vf":      nil, // a module's are not known
		"kinst::vfs_read:":   {"kinst::vfs_read:block", "kinst::vfs_read:call", "kinst::vfs_read:entry", "kinst::vfs_read:return"},
		"kinst:ext4:f:e":     {"kinst:ext4:f:entry"},
		"kinst::vfs_read:1":  nil,
		"kinst::vfs_read:::": nil,
	} {
		if got := Complete(typed, functions); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}
	if got := ActionWords(); !slices.Contains(got, "hist(") || !slices.Contains(got, "count") || !slices.Contains(got, "trace(") || !slices.Contains(got, "stack(") {
		t.Errorf("actions %q", got)
	}
}
