package qemu

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestLimited: what fails because of the limit says so, and nothing else does.
func TestLimited(t *testing.T) {
	closed := errors.New("connection is closed: EOF")
	late := func(ctx context.Context) error { <-ctx.Done(); return closed }
	ended, end := context.WithCancel(context.Background())
	end()
	for _, tt := range []struct {
		name  string
		ctx   context.Context
		limit time.Duration
		start func(context.Context) error
		says  bool
	}{
		{"late", context.Background(), time.Millisecond, late, true},
		{"our caller gave up", ended, time.Hour, late, false},
		{"at once", context.Background(), time.Hour, func(context.Context) error { return closed }, false},
	} {
		err := Limited(tt.ctx, tt.limit, tt.start)
		if !errors.Is(err, closed) || strings.Contains(err.Error(), "not within 1ms") != tt.says {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if err := Limited(context.Background(), time.Hour, func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
}
