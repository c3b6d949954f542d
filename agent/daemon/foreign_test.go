package daemon

import (
	"strings"
	"testing"
)

func TestRedirects(t *testing.T) {
	const list = "vfs_read (1)             \ttramp: 0xffffffffc0a00000 (function_trace_call+0x0/0x160) ->function_trace_call\n" +
		"cmdline_proc_show (1) R I   M \ttramp: klp_ftrace_handler\n" +
		"vfs_write (2) R   D\n" +
		"odd\n"
	for function, want := range map[string]bool{"cmdline_proc_show": true, "vfs_read": false, "vfs_write": false, "odd": false, "absent": false} {
		if got, err := redirects(strings.NewReader(list)); err != nil || got[function] != want {
			t.Errorf("%s: got %v, %v; want %v", function, got, err, want)
		}
	}
}
