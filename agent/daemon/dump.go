package daemon

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"kerninst/agent/kdev"
	"kerninst/agent/ktext"
	"kerninst/agent/wire"
)

const (
	blacklistFile = "/sys/kernel/debug/kprobes/blacklist"
	modulesDir    = "/sys/module"
	kallsymsFile  = "/proc/kallsyms"
)

// chunkSize is how much of a file one record carries.
const chunkSize = 1 << 20

// chunks sends what is written to it as records.
type chunks struct {
	ctx context.Context
	s   *stream
}

func (c chunks) Write(b []byte) (int, error) {
	for n := 0; n < len(b); {
		if err := c.ctx.Err(); err != nil {
			return n, err
		}
		piece := b[n:min(n+chunkSize, len(b))]
		if err := c.s.send(&wire.Record{Body: &wire.Record_Chunk{Chunk: &wire.Chunk{Data: piece}}}); err != nil {
			return n, err
		}
		n += len(piece)
	}
	return len(b), nil
}

// dump sends the kernel as it is now, but for our own splices and module.
func (d *Daemon) dump(ctx context.Context, s *stream) error {
	w := bufio.NewWriterSize(chunks{ctx, s}, chunkSize)
	dump, err := d.kernel()
	if err != nil {
		return err
	}
	if err := dump.Write(w, d.text.Read); err != nil {
		return err
	}
	return w.Flush()
}

// kernel says what a dump of this kernel is made of.
func (d *Daemon) kernel() (*ktext.Dump, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, err
	}
	cmdline, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return nil, err
	}
	at, err := moduleSections(modulesDir, "*")
	if err != nil {
		return nil, err
	}
	// The symbols as they are now: modules may have come since we started.
	kallsyms, err := readKallsyms()
	if err != nil {
		return nil, err
	}
	delete(at, kdev.ModuleName)
	kallsyms = withoutModule(kallsyms, kdev.ModuleName)
	blacklist, _ := os.ReadFile(blacklistFile) // a kernel may have no debugfs
	return &ktext.Dump{
		Arch: d.arch.Name, Release: unix.ByteSliceToString(u.Release[:]), Version: unix.ByteSliceToString(u.Version[:]),
		Cmdline: strings.TrimSpace(string(cmdline)), CPUs: int(d.info.CPUs),
		Parts: d.text.DumpParts(kallsyms, blacklist, ktext.Sections(at, d.dev.Read)),
	}, nil
}

// withoutModule drops a module's symbols from /proc/kallsyms.
func withoutModule(kallsyms []byte, name string) []byte {
	var out []byte
	mark := []byte("\t[" + name + "]\n")
	for line := range bytes.Lines(kallsyms) {
		if !bytes.HasSuffix(line, mark) {
			out = append(out, line...)
		}
	}
	return out
}
