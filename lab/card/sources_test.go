package card

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestTell: a place where a CPU stands is that place; where a call returns to, the call is meant. Of
// what is in a module its name is told; of patches nobody is asked, and what was said by the console stays as it was.
func TestTell(t *testing.T) {
	said := []string{
		"[    1.2] RIP: 0010:vfs_read+0x10/0x2f0",
		"[    1.3]  ? vfs_read+0x10/0x2f0",
		"[    1.4] pc : vfs_read+0x10/0x2f0",
		"[    1.5] lr : vfs_read+0x10/0x2f0",
		"[    1.6]  vfs_read+0x10/0x2f0 (P)",
		"[    1.7] epc : vfs_read+0x10/0x2f0 ra : ksys_read+0x20/0x40",
		"[    1.8]  ext4_file_read+0x10/0x20 [ext4]",
		"[    1.8] pc : ext4_file_read+0x10/0x20 [ext4]",
		"[    1.8] lr : some+0x10/0x20 [unread]",
		"[    1.9] 1+0x10 of nothing",
		"[    2.0] WARNING: CPU: 0 PID: 1 at fs/open.c:7 vfs_read+0x10/0x2f0",
		"[    2.1] WARNING: fs/open.c:7 at vfs_read+0x10/0x2f0, CPU#0: sh/1",
	}
	c := &Card{Console: said, CPUs: []CPU{
		{PC: "0x1", Symbol: "vfs_read+0x10/0x2f0", Backtrace: []Frame{{Address: "0x2", Symbol: "vfs_read+0x10/0x2f0"}, {Address: "0x3", Symbol: "ext4_file_read+0x10/0x20 [ext4]"}, {Address: "0x4"}}},
		{PC: "0x5", Symbol: "(patch of vfs_read+0x10)+0x4/0x20"},
	}}
	before := slices.Clone(said)
	c.Tell(func(place string, returned bool) string {
		if strings.HasPrefix(place, "unread:") {
			return ""
		}
		return fmt.Sprint("<", place, " ", returned, ">")
	})
	if !slices.Equal(said, before) {
		t.Errorf("what was said is changed: %q", said)
	}
	for _, want := range []string{
		"    [    1.2] RIP: 0010:vfs_read+0x10/0x2f0  # <vfs_read+0x10 false>\n",
		"    [    1.3]  ? vfs_read+0x10/0x2f0  # <vfs_read+0x10 true>\n",
		"    [    1.4] pc : vfs_read+0x10/0x2f0  # <vfs_read+0x10 false>\n",
		"    [    1.5] lr : vfs_read+0x10/0x2f0  # <vfs_read+0x10 true>\n",
		"    [    1.6]  vfs_read+0x10/0x2f0 (P)  # <vfs_read+0x10 false>\n",
		"    [    1.7] epc : vfs_read+0x10/0x2f0 ra : ksys_read+0x20/0x40  # <vfs_read+0x10 false>; <ksys_read+0x20 true>\n",
		"    [    1.8]  ext4_file_read+0x10/0x20 [ext4]  # <ext4:ext4_file_read+0x10 true>\n",
		"    [    1.8] pc : ext4_file_read+0x10/0x20 [ext4]  # <ext4:ext4_file_read+0x10 false>\n",
		"    [    1.8] lr : some+0x10/0x20 [unread]\n",
		"    [    1.9] 1+0x10 of nothing\n",
		": 0x1 vfs_read+0x10/0x2f0 <vfs_read+0x10 false>\n",
		" 0x2 vfs_read+0x10/0x2f0 <vfs_read+0x10 true>\n",
		" 0x3 ext4_file_read+0x10/0x20 [ext4] <ext4:ext4_file_read+0x10 true>\n",
		" 0x4\n",
		": 0x5 (patch of vfs_read+0x10)+0x4/0x20\n",
		"fs/open.c:7 vfs_read+0x10/0x2f0  # <vfs_read+0x10 false>\n",
		"at vfs_read+0x10/0x2f0, CPU#0: sh/1  # <vfs_read+0x10 false>\n",
	} {
		if text := c.Text(); !strings.Contains(text, want) {
			t.Errorf("%s\nhas no %q", text, want)
		}
	}
}
