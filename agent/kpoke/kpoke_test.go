package kpoke

import (
	"strings"
	"testing"

	"kerninst/agent/kdev"
	"kerninst/agent/splice"
)

// TestBatchTooLong: the device, of which there is none here, is not asked.
func TestBatchTooLong(t *testing.T) {
	err := New(nil, kdev.Info{}, nil).Splice(make([]splice.Splice, kdev.MaxBatch+1))
	if err == nil || !strings.Contains(err.Error(), "splice fewer points") {
		t.Error(err)
	}
}
