package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// tellFile is a pipe in the run directory.
const tellFile = "tell"

// Tell sends a byte to the guest by the port that its records go to. Until then nothing can come by
// that: its other end is a file. Now it gets one that is also read from, a pipe that stays open, as
// with its end the port would seem to be closed, and whoever writes to it would wait.
//
// QEMU stands in the run directory, which it may not be able to name, as the user that this belongs to.
func (m *machine) Tell(ctx context.Context) error {
	name := filepath.Join(m.dir, tellFile)
	err := unix.Mkfifo(name, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil // it has been told
	}
	if err == nil {
		err = ownerOf(m.dir, name)
	}
	var pipe *os.File
	if err == nil {
		pipe, err = os.OpenFile(name, os.O_RDWR, 0) // waits for nobody, whoever opens it otherwise
	}
	if err == nil {
		_, err = pipe.Write([]byte{0})
	}
	if err != nil {
		return fmt.Errorf("tell the guest: %w", err)
	}
	go func() {
		<-m.over
		pipe.Close()
	}()
	return m.monitor.Execute(ctx, "chardev-change", object{"id": resultsChardev, "backend": object{
		"type": "file", "data": object{"in": tellFile, "out": ResultsFile, "append": true}}}, nil)
}

// ownerOf gives a file to whom a folder belongs.
func ownerOf(dir, file string) error {
	var st syscall.Stat_t
	if err := syscall.Stat(dir, &st); err != nil {
		return err
	}
	return os.Chown(file, int(st.Uid), int(st.Gid))
}
