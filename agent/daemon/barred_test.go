package daemon

import (
	"slices"
	"testing"

	"kerninst/agent/isa"
)

// TestWithoutOurs: of where the kernel has no kprobes, what the module has put there is left out, and nothing else.
func TestWithoutOurs(t *testing.T) {
	const list = "0xffffffff81000010-0xffffffff81000018\tbad_get_user\n0xffffffff81000100-0xffffffff81000105\tvfs_read\nwhat is this\n0xffffffff81000200-0xffffffff81000300\tksys_read"
	const want = "0xffffffff81000010-0xffffffff81000018\tbad_get_user\nwhat is this\n0xffffffff81000200-0xffffffff81000300\tksys_read"
	if got := withoutOurs([]byte(list), func(a isa.Addr) bool { return a == 0xffffffff81000100 }); string(got) != want {
		t.Errorf("%q", got)
	}
}

// TestProbesIn: kprobes are where the kernel says, armed or not.
func TestProbesIn(t *testing.T) {
	const list = "ffffffff81e1a1a0  k  kernel_clone+0x0    [DISABLED][FTRACE]\nffffffff8102000c  r  vfs_read+0xc    \n\n"
	if got := probesIn([]byte(list)); !slices.Equal(got, []isa.Addr{0xffffffff8102000c, 0xffffffff81e1a1a0}) {
		t.Errorf("%v", got)
	}
}
