package inline

import (
	"reflect"
	"testing"
)

// TestInOrder: rows that say nothing new are left out, and of rows at one place the last says of which line it is.
func TestInOrder(t *testing.T) {
	got := inOrder([]unit{
		{lines: []Line{{0x20, "b.c", 1, true}, {0x24, "b.c", 1, true}, {0x28, "", 0, false}}},
		{lines: []Line{
			{0x10, "a.c", 1, true}, {0x12, "a.c", 1, false}, {0x13, "a.c", 1, true}, // the first says it all
			{0x14, "a.c", 2, false}, {0x15, "a.c", 2, true}, {0x16, "a.c", 2, true}, // where it is, and where it begins
			{0x18, "a.c", 3, true}, {0x18, "a.c", 4, false}, // nothing is left of line 3
			{0x1a, "a.c", 5, false}, {0x1a, "a.c", 6, true}, {0x1a, "a.c", 6, false}, // 5 does not begin here
			{0x20, "", 0, false}, // where the other unit begins
		}},
	})
	want := []Line{{0x10, "a.c", 1, true}, {0x14, "a.c", 2, false}, {0x15, "a.c", 2, true}, {0x18, "a.c", 3, true}, {0x18, "a.c", 4, false},
		{0x1a, "a.c", 6, true}, {0x20, "b.c", 1, true}, {0x28, "", 0, false}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v\nnot %v", got, want)
	}
}

// TestShorter: files are named from where the source is.
func TestShorter(t *testing.T) {
	for name, want := range map[string]string{
		"/build/linux/fs/open.c": "fs/open.c", "./fs/open.c": "fs/open.c", "../../include/a.h": "include/a.h",
		"/build/linux/kernel/trace/./x.h": "kernel/trace/x.h", "/usr/include/a.h": "/usr/include/a.h", "/build/linux2/a.c": "/build/linux2/a.c",
	} {
		if got := shorter("/build/linux", name); got != want {
			t.Errorf("%s: %s, not %s", name, got, want)
		}
	}
}
