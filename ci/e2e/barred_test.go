package e2e

import (
	"strings"
	"testing"
)

// TestJumpsBarred: on amd64 no kprobe becomes a jump while anything is spliced, whatever the
// administrator has said since the last splice. When nothing is, the kernel may make jumps again:
// at once, or, if kprobes that came meanwhile are still there, when those and the module have gone.
func TestJumpsBarred(t *testing.T) {
	t.Parallel()
	g := openShell(t, "amd64", "--time", "exact")
	const (
		allowed = "/proc/sys/debug/kprobes-optimization"
		spliced = `kinst kinst::vfs_read:return --run "cat ` + allowed + `" 2>/dev/null | head -n 1; `
		now     = "cat " + allowed
		probe   = "cd /sys/kernel/tracing; [ -e kprobe_events ] || { mount -t tracefs none /sys/kernel/tracing; cd /sys/kernel/tracing; }; echo p:other do_nanosleep >kprobe_events && echo 1 >events/kprobes/other/enable && cd /; "
		unprobe = "cd /sys/kernel/tracing; echo 0 >events/kprobes/other/enable; echo >kprobe_events; cd /; "
		leave   = "kill $(pidof kerninstd); while pidof kerninstd >/dev/null; do sleep 0.1; done; rmmod kerninst; "
	)
	for k, c := range []struct{ what, command, want string }{
		{"before", now, "1"},
		{"while something is spliced", spliced + now, "0 1"},
		{"with a kprobe", probe + spliced + now, "0 0"},
		{"when it was allowed meanwhile", "echo 1 >" + allowed + "; " + spliced + now, "0 0"},
		{"when the kprobe has gone", unprobe + now, "0"},
		{"when the module has gone", leave + now, "1"},
	} {
		if said := strings.Join(strings.Fields(typed(t, g, c.command, k)), " "); said != c.want {
			t.Errorf("%s: %q, want %q", c.what, said, c.want)
		}
	}
}
