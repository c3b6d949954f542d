package daemon

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPeerLines(t *testing.T) {
	got, err := peerLines("0xffffffff81000010 17 0\n0xffffffff81000020 0 -22\n")
	if err != nil || len(got) != 2 || got[0].hits != 17 || got[0].err != nil || !errors.Is(got[1].err, unix.EINVAL) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"0x1 17\n", "0x1 x 0\n", "0x1 1 x\n", "0x1 1 22\n", "0x1 -1 0\n", "\n"} {
		if got, err := peerLines(bad); err == nil {
			t.Errorf("%q: got %v, want an error", bad, got)
		}
	}
}
