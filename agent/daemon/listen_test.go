package daemon

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestGone: what is said on the console of a client that has left is only what it left undone.
func TestGone(t *testing.T) {
	left := error(&net.OpError{Op: "write", Net: "unix", Err: unix.EPIPE})
	undo := errors.New("undo: busy")
	for _, c := range []struct {
		err  error
		want bool
	}{
		{left, true},
		{errors.Join(left, nil), true},
		{fmt.Errorf("records: %w", unix.ECONNRESET), true},
		{errors.Join(left, undo), false},
		{errors.Join(undo, left), false},
		{undo, false},
	} {
		if got := gone(c.err); got != c.want {
			t.Errorf("gone(%v) is %v", c.err, got)
		}
	}
}
