package runner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"kerninst/agent/ktext"
	"kerninst/lab/card"
	"kerninst/lab/kernelelf"
	"kerninst/lab/postmortem"
	"kerninst/lab/qemu"
	"kerninst/lab/session"
	"kerninst/lab/vm"
)

// KeptFile, beside a guest's other files, names the run directory of one that is
// kept.
const KeptFile = "kept"

// holdLimit bounds what is done to a guest that is kept.
const holdLimit = 60 * time.Second

// End ends a guest that was left for its scenario to decide about. For others it
// does nothing.
func (g *Guest) End() error {
	if g.left == nil {
		return nil
	}
	err := qemu.Kept{Pid: g.Outcome.Kept, Dir: g.left.Path}.End()
	if e := g.left.Close(); err == nil {
		err = e
	}
	g.left = nil
	return err
}

// Hold makes a guest that was left outlive the lab, with what it takes to look
// into it, and returns the commands for that: none if the machine has ended.
func (r *Runner) Hold(g *Guest) ([]card.Command, error) {
	if g.left == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), holdLimit)
	defer cancel()
	dir := g.left.Path
	k := qemu.Kept{Pid: g.Outcome.Kept, Arch: r.Image.Arch, Guest: g.Request.Name, State: stateLeft(g.Outcome)}
	in, err := qemu.Reopen(ctx, dir, k.Pid)
	if err != nil {
		return nil, fmt.Errorf("the guest that was to be kept: %w", err)
	}
	defer in.Close()
	if _, err = in.ServeGDB(ctx); err != nil {
		return nil, err
	}
	beside, err := g.left.Beside()
	if err != nil {
		return nil, err
	}
	if err := r.writeSymbols(ctx, g.Outcome, in, filepath.Join(beside, qemu.SymbolsFile)); err != nil {
		r.Progress("%s: no symbols for gdb: %v", g.Request.Name, err)
	}
	if err := g.left.Keep(k); err != nil {
		return nil, err
	}
	g.left = nil
	if r.Dir != "" {
		if err := os.WriteFile(filepath.Join(r.Dir, g.Request.Name, KeptFile), []byte(dir+"\n"), 0o644); err != nil {
			return nil, err
		}
	}
	return []card.Command{
		{To: "attach gdb to this guest, which was kept " + k.State, Line: "bin/lab gdb " + dir},
		{To: "end this guest", Line: "bin/lab kept --end " + dir},
	}, nil
}

// stateLeft says in which state a guest was left.
func stateLeft(o *session.Outcome) string {
	switch o.Ending.Kind {
	case vm.Panicked:
		return "as it was when it reset"
	case vm.Clean:
		return "as it was when it powered off"
	}
	return "stopped"
}

// writeSymbols writes the kernel of a guest as an ELF file, with its code as it is
// in the guest now.
func (r *Runner) writeSymbols(ctx context.Context, o *session.Outcome, in vm.Inside, file string) error {
	e := o.Evidence
	if e == nil {
		e = &postmortem.Evidence{Arch: r.Image.Arch}
	}
	var start uint64
	if o.Hello != nil {
		start = o.Hello.TextStart
	}
	s, err := r.symbols()
	if err != nil {
		return err
	}
	v, err := s.View(e, start)
	if err != nil {
		return err
	}
	own, err := ktext.ReadModuleFunctions(o.Hello.GetModuleFunctions())
	if err != nil {
		return err
	}
	return WriteELF(ctx, s.Dump(), uint64(v.Slide), own, in, file)
}

// WriteELF writes a kernel as an ELF file: as in its dump, moved by slide, with
// the memory of the machine in place of the dump's as far as it can be read, and own
// modules if there are any.
func WriteELF(ctx context.Context, d *ktext.Dump, slide uint64, own []*ktext.Functions, in vm.Inside, file string) error {
	im, err := kernelelf.FromDump(d, slide, own, func(addr uint64, n int) ([]byte, error) { return in.Read(ctx, 0, addr, n) })
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err = im.Write(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
