package qemu

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"kerninst/lab/qmp"
	"kerninst/lab/untrusted"
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
	Dir     string // the machine's run directory
	// Root is the same as QEMU has it: empty for one that works there.
	Root string
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
	return &Inside{Monitor: c, Dir: m.dir}, nil
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
	mine := filepath.Join(i.Dir, memoryFile)
	if err := os.Remove(mine); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	defer os.Remove(mine)
	// QMP has no numbers above the greatest of 63 bits: the upper half is negative.
	args := object{"val": int64(addr), "size": n, "filename": filepath.Join(i.Root, memoryFile), "cpu-index": cpu}
	if err := i.Monitor.Execute(ctx, "memsave", args, nil); err != nil {
		return nil, err
	}
	b, err := untrusted.Read(mine, int64(n))
	if err == nil && len(b) != n {
		err = fmt.Errorf("memory at %#x: %d bytes of %d", addr, len(b), n)
	}
	return b, err
}

// Dump is vm.Inside's.
func (i *Inside) Dump(ctx context.Context, file string) error {
	mine := filepath.Join(i.Dir, coreFile)
	defer os.Remove(mine)
	args := object{"paging": false, "protocol": "file:" + filepath.Join(i.Root, coreFile)}
	if err := i.Monitor.Execute(ctx, "dump-guest-memory", args, nil); err != nil {
		return err
	}
	return copyTo(file, mine)
}

// ServeGDB is vm.Inside's.
func (i *Inside) ServeGDB(ctx context.Context) (string, error) {
	said, err := i.human(ctx, "gdbserver unix:"+filepath.Join(i.Root, GDBSock)+",server=on,wait=off")
	if err != nil {
		return "", err
	}
	sock := filepath.Join(i.Dir, GDBSock)
	if st, err := os.Lstat(sock); err != nil || st.Mode()&os.ModeSocket == 0 {
		return "", fmt.Errorf("QEMU serves no gdb: %s", strings.TrimSpace(said))
	}
	return sock, nil
}
