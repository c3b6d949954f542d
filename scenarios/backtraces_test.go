package scenarios

import (
	"strings"
	"testing"
)

// TestElsewhere: who came by another system call, or on its way out by a signal, is not held to the callers of the one that
// walks were made in; who lacks them is.
func TestElsewhere(t *testing.T) {
	truths := [][]string{strings.Fields("_copy_from_iter __x64_sys_msgsnd do_syscall_64")}
	for callers, want := range map[string]bool{
		"_copy_from_iter __x64_sys_msgsnd do_syscall_64":                                      false,
		"_copy_to_iter __x64_sys_read do_syscall_64":                                          true,
		"copy_fpstate_to_sigframe get_sigframe arch_do_signal_or_restart do_syscall_64":       true,
		"copy_fpstate_to_sigframe arch_do_signal_or_restart _copy_from_iter __x64_sys_msgsnd": false,
		"_copy_from_iter do_syscall_64":                                                       false, // a caller is missing
		"":                                                                                    false,
	} {
		if got := elsewhere(strings.Fields(callers), truths); got != want {
			t.Errorf("%q: %v, want %v", callers, got, want)
		}
	}
}
