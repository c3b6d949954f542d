package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"kerninst/lab/qmp"
	"kerninst/lab/vm"
)

// Names in the run directory of what looking into a machine makes.
const (
	memoryFile = "memory"
	coreFile   = "core"
	GDBSock    = "gdb"
)

var _ vm.Inside = (*Inside)(nil)

// Inside is vm.Inside over a QMP connection, whoever has started QEMU.
type Inside struct {
	Monitor *qmp.Client
	Files   Files
	// Core writes the guest's physical memory into a file of QEMU's; nil: QEMU is told to.
	Core func(ctx context.Context, file string) error
	// Closing gives up what Monitor stands on. It may be nil.
	Closing func()
}

// Inspect is vm.Inspector's: over the second socket.
func (m *machine) Inspect(ctx context.Context) (vm.Inside, error) {
	c := qmp.New(m.dialer(debugSock), qmp.Options{})
	if err := c.ConnectContext(ctx); err != nil {
		c.Disconnect()
		return nil, err
	}
	return &Inside{Monitor: c, Files: RunFiles{Dir: m.dir}}, nil
}

// Close ends the connection.
func (i *Inside) Close() {
	i.Monitor.Disconnect()
	if i.Closing != nil {
		i.Closing()
	}
}

// Stop is vm.Inside's.
func (i *Inside) Stop(ctx context.Context) error { return i.Monitor.Execute(ctx, "stop", nil, nil) }

// Continue is vm.Inside's.
func (i *Inside) Continue(ctx context.Context) error {
	return i.Monitor.Execute(ctx, "cont", nil, nil)
}

// human runs a command of the monitor for people.
func (i *Inside) human(ctx context.Context, line string) (string, error) {
	var out string
	err := i.Monitor.Execute(ctx, "human-monitor-command", object{"command-line": line}, &out)
	return strings.ReplaceAll(out, "\r\n", "\n"), err
}

// Registers is vm.Inside's.
func (i *Inside) Registers(ctx context.Context) (string, error) {
	return i.human(ctx, "info registers -a")
}

// Read is vm.Inside's. QEMU writes what it reads into a file.
func (i *Inside) Read(ctx context.Context, cpu int, addr uint64, n int) ([]byte, error) {
	if err := i.Files.Await(ctx, memoryFile); err != nil {
		return nil, err
	}
	defer i.Files.Remove(ctx, memoryFile)
	// QMP has no numbers above the greatest of 63 bits: the upper half is negative.
	args := object{"val": int64(addr), "size": n, "filename": i.Files.At(memoryFile), "cpu-index": cpu}
	if err := i.Monitor.Execute(ctx, "memsave", args, nil); err != nil {
		return nil, err
	}
	b, err := i.Files.Read(ctx, memoryFile, 0, int64(n))
	if err == nil && len(b) != n {
		err = fmt.Errorf("memory at %#x: %d bytes of %d", addr, len(b), n)
	}
	return b, err
}

// Dump is vm.Inside's.
func (i *Inside) Dump(ctx context.Context, file string) error {
	if err := i.Files.Await(ctx, coreFile); err != nil {
		return err
	}
	defer i.Files.Remove(ctx, coreFile)
	core := i.Core
	if core == nil {
		core = i.core
	}
	if err := core(ctx, i.Files.At(coreFile)); err != nil {
		return err
	}
	return i.Files.Fetch(ctx, coreFile, file)
}

func (i *Inside) core(ctx context.Context, file string) error {
	return i.Monitor.Execute(ctx, "dump-guest-memory", object{"paging": false, "protocol": "file:" + file}, nil)
}

// ServeGDB is vm.Inside's.
func (i *Inside) ServeGDB(ctx context.Context) (string, error) {
	local, ok := i.Files.(RunFiles)
	if !ok {
		return "", errors.New("the machine is on another host: gdb is served on the lab's own alone")
	}
	said, err := i.human(ctx, "gdbserver unix:"+local.At(GDBSock)+",server=on,wait=off")
	if err != nil {
		return "", err
	}
	sock := local.mine(GDBSock)
	if st, err := os.Lstat(sock); err != nil || st.Mode()&os.ModeSocket == 0 {
		return "", fmt.Errorf("QEMU serves no gdb: %s", strings.TrimSpace(said))
	}
	return sock, nil
}
