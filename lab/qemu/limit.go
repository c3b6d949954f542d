package qemu

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// StartLimit bounds the time until a guest runs, a state that is loaded included, and what a libvirtd asks all
// QEMUs that are installed when it is first used: two seconds, and two minutes on a host with ten times the work it can do.
const StartLimit = 5 * time.Minute

var errLate = errors.New("late")

// Limited runs what starts a machine for no longer than limit. Where that is over, what fails is what happens to be
// asked then, as by a connection that is closed: the error says the limit, too.
func Limited(ctx context.Context, limit time.Duration, start func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errLate)
	defer cancel()
	err := start(ctx)
	if err != nil && context.Cause(ctx) == errLate {
		return fmt.Errorf("not within %v: %w", limit, err)
	}
	return err
}
