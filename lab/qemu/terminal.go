package qemu

import (
	"os"

	"golang.org/x/sys/unix"
)

// saveTerminal returns what puts a terminal back as it is now. QEMU does so
// itself, unless it is killed. For anything but a terminal it does nothing.
func saveTerminal(f *os.File) (restore func()) {
	old, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return func() {}
	}
	return func() { unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, old) }
}
