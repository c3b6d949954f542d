package check

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"kerninst/agent/kdev"
)

// Leaving is how long who may be in a patch has to leave it.
const Leaving = time.Minute

// Without unloads the module, if it is there, and is how many pieces of virtual memory there are that might be its own and are not.
func Without() (pieces int, err error) {
	if err := kdev.Unload(kdev.ModuleName); err != nil && !errors.Is(err, unix.ENOENT) {
		return 0, err
	}
	return Pieces()
}

// Left is checks of what the module has when its device was closed: nothing, so that it can be
// unloaded, which is done. Without it there were so many pieces.
func Left(without int) error {
	dev, err := kdev.Open()
	if err != nil {
		return err
	}
	s, err := dev.Stats()
	Report("no splice is left", 1, err == nil && s.Splices == 0 && s.Spliced == s.Unspliced, "%+v, %v", s, err)
	Report("no area is left", 1, s.Areas == 0 || s.Quarantined > 0, "%+v", s)
	if err := dev.Close(); err != nil {
		return err
	}
	if err := Leaks(); err != nil {
		return err
	}
	err = kdev.UnloadWhenFree(kdev.ModuleName, Leaving)
	Report("unload", 1, err == nil, "%v", err)
	pieces, err := Pieces()
	Report("pieces of virtual memory that the module has left", pieces-without, err == nil && pieces <= without, "%d without it, %d now, %v", without, pieces, err)
	return nil
}
