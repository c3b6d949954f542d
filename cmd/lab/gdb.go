package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"kerninst/agent/ktext"
	"kerninst/agent/wire"
	"kerninst/lab/plain"
	"kerninst/lab/qemu"
	"kerninst/lab/report"
	"kerninst/lab/runner"
	"kerninst/lab/status"
	"kerninst/lab/untrusted"
	"kerninst/lab/vm"
)

// gdbFlags are those of `lab gdb`.
type gdbFlags struct {
	common
	own
	run   string
	print bool
}

func gdbCommand() *cobra.Command {
	var f gdbFlags
	c := &cobra.Command{
		Use:   "gdb [DIR] [-- GDB-ARGUMENT...]",
		Short: "debug a guest's kernel with gdb, with symbols made from its memory",
		Long: "Debug a guest's kernel with gdb. The symbols, and the code that gdb shows, are\n" +
			"those of the running kernel at its addresses, its modules among them.\n\n" +
			"With DIR, the guest that lab run --keep has left: its directory, as lab kept\n" +
			"lists it, or the run's. Without, a guest is started and ended with gdb. When gdb\n" +
			"detaches, a guest that was stopped goes on. While a CPU runs a program or the\n" +
			"firmware, it may not see the kernel's memory: set trust-readonly-sections on\n" +
			"has gdb take code from its file. A riscv64 kernel that panicked has gone to the\n" +
			"firmware for good: set $priv=1 has its CPU see what the kernel saw.",
		Example: "  lab gdb --arch arm64\n  lab gdb out/latest\n  lab gdb --arch riscv64 --run 'ls -R /' -- -ex 'break do_sys_openat2' -ex continue",
		Args:    cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			n := c.ArgsLenAtDash()
			if n < 0 {
				n = len(args)
			}
			if n > 1 {
				return usage(fmt.Errorf("%d directories: gdb debugs one guest", n))
			}
			if n == 1 {
				return f.attach(args[0], args[1:])
			}
			return f.start(c.Context(), args)
		},
	}
	f.add(c.Flags())
	f.addOwn(c.Flags(), 1)
	c.Flags().StringVar(&f.run, "run", "while :; do sleep 1; done", "what the guest runs, for /bin/sh")
	c.Flags().BoolVar(&f.print, "print", false, "print gdb's command instead of running it; a guest that was started is kept")
	return c
}

// debugger finds a gdb for an ISA.
func debugger(arch string) (string, error) {
	names := []string{"gdb-multiarch"}
	if arch == runtime.GOARCH {
		names = append(names, "gdb")
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("there is no gdb for this ISA here: apt-get install gdb-multiarch, or lab gdb --print")
}

// arguments of gdb that connect it to a guest. Without unwind tables it may find
// one caller again and again: hence the limit.
func arguments(k qemu.Kept, more []string) []string {
	args := []string{"-q"}
	if file := k.Symbols(); file != "" {
		args = append(args, file)
	}
	return append(append(args, "-ex", "target remote "+k.GDB(), "-ex", "set backtrace limit 64"), more...)
}

// attach debugs a guest that is kept.
func (f *gdbFlags) attach(dir string, more []string) error {
	k, err := findKept(dir)
	if err != nil {
		return usage(err)
	}
	return f.debug(k, more)
}

// findKept finds the kept guest in a run directory, or the only one of a run.
func findKept(dir string) (qemu.Kept, error) {
	all, err := keptOf(dir)
	switch {
	case err != nil:
		return qemu.Kept{}, err
	case len(all) == 1:
		return all[0], nil
	}
	var dirs []string
	for _, k := range all {
		dirs = append(dirs, k.Dir)
	}
	return qemu.Kept{}, fmt.Errorf("%d guests of this run were kept: choose one of %s", len(all), strings.Join(dirs, ", "))
}

// keptOf finds the kept guest in a run directory, or those of a run: one at least.
func keptOf(dir string) ([]qemu.Kept, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(abs, "*/guests/*", runner.KeptFile))
	for _, pattern := range []string{"guests/*", "."} { // of one ISA, of one guest
		more, e := filepath.Glob(filepath.Join(abs, pattern, runner.KeptFile))
		files, err = append(files, more...), errors.Join(err, e)
	}
	if err != nil || len(files) == 0 {
		k, err := qemu.FindKept(abs)
		return []qemu.Kept{k}, err
	}
	var there []qemu.Kept
	for _, file := range files {
		b, err := plain.ReadHere(file, 1<<12) // a path: PATH_MAX
		if err != nil {
			return nil, err
		}
		if k, err := qemu.FindKept(strings.TrimSpace(string(b))); err == nil {
			there = append(there, k)
		}
	}
	if len(there) == 0 {
		return nil, fmt.Errorf("the guests that were kept of %s have ended", dir)
	}
	return there, nil
}

// debug runs gdb, or prints its command. An interrupt is gdb's.
func (f *gdbFlags) debug(k qemu.Kept, more []string) error {
	args := arguments(k, more)
	if f.print {
		fmt.Println(qemu.Quote(append([]string{"gdb-multiarch"}, args...)))
		return nil
	}
	gdb, err := debugger(k.Arch)
	if err != nil {
		return err
	}
	cmd := exec.Command(gdb, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) { // it has said why
		return &exit{code: status.ExitFailed}
	}
	return err
}

// start debugs a guest that is started for it.
func (f *gdbFlags) start(ctx context.Context, more []string) error {
	isa, err := f.one("gdb debugs one guest")
	if err == nil {
		err = usage(f.own.check())
	}
	if err != nil {
		return err
	}
	if f.dryrun {
		return f.dryOne(ctx, isa, &f.own, runner.Request{Name: "gdb", Job: f.job()})
	}
	if !f.print {
		if _, err := debugger(isa); err != nil {
			return err
		}
	}
	if err := qemu.Sweep(); err != nil {
		return err
	}
	dir, err := qemu.NewRunDir()
	if err != nil {
		return err
	}
	defer dir.Close()
	m, k, err := f.boot(ctx, isa, dir)
	if err != nil {
		return err
	}
	if f.print {
		return f.leave(m, k, dir, more)
	}
	defer func() {
		m.Kill()
		m.Wait(context.Background())
	}()
	return f.debug(k, more)
}

// leave keeps the guest for a gdb that is yet to come.
func (f *gdbFlags) leave(m vm.Machine, k qemu.Kept, dir *qemu.RunDir, more []string) error {
	err := m.(vm.Lingerer).Leave()
	if err == nil {
		err = dir.Keep(k)
	}
	if err != nil {
		m.Kill()
		return err
	}
	progress("the guest stays: end it with bin/lab kept --end %s", k.Dir)
	return f.debug(k, more)
}

// bootLimit bounds the time from the start of a guest until its symbols are here,
// host time. Most of it goes by in emulating the boot.
const bootLimit = 4 * time.Minute

// boot starts a guest, has it dump its kernel, and writes that as an ELF file.
func (f *gdbFlags) boot(ctx context.Context, arch string, dir *qemu.RunDir) (vm.Machine, qemu.Kept, error) {
	job, err := proto.Marshal(f.job())
	if err != nil {
		return nil, qemu.Kept{}, err
	}
	spec, err := forOne(ctx, &f.common, &f.own, arch, dir.Path, job)
	if err != nil {
		return nil, qemu.Kept{}, err
	}
	spec.Keep = f.print
	progress("%s: booting a guest", arch)
	m, err := qemu.Backend{}.Start(ctx, spec)
	if err != nil {
		return nil, qemu.Kept{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, bootLimit)
	defer cancel()
	k, err := ready(ctx, m, dir, qemu.Kept{Arch: arch, Guest: "gdb", State: "running", Dir: dir.Path})
	if err != nil {
		m.Kill()
		m.Wait(context.Background())
	}
	return m, k, err
}

// job is what the guest does: it sends its kernel, and goes on with what the user
// wants to look at.
func (f *gdbFlags) job() *wire.Job {
	return &wire.Job{Schema: 1, Steps: []*wire.Step{
		{Name: "dump", Do: &wire.Step_Dump{Dump: &wire.Dump{}}},
		{Name: "run", Do: &wire.Step_Run{Run: &wire.Run{Argv: []string{"/bin/sh", "-c", f.run}}}},
	}}
}

// ready waits for the guest's dump, writes its symbols and has gdb served.
func ready(ctx context.Context, m vm.Machine, dir *qemu.RunDir, k qemu.Kept) (qemu.Kept, error) {
	stop := context.AfterFunc(ctx, m.Kill)
	defer stop()
	d, err := dumpOf(m.Results())
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return k, fmt.Errorf("the guest sent no dump of its kernel: %w; its console ends with: %s", err, lastLine(m.Console()))
	}
	in, err := m.(vm.Inspector).Inspect(ctx)
	if err != nil {
		return k, err
	}
	defer in.Close()
	k.Pid = m.(vm.Process).Pid()
	beside, err := dir.Beside()
	if err != nil {
		return k, err
	}
	if err := runner.WriteELF(ctx, d, 0, nil, in, filepath.Join(beside, qemu.SymbolsFile)); err != nil {
		return k, err
	}
	_, err = in.ServeGDB(ctx)
	return k, err
}

// lastLine is the last thing that a console says.
func lastLine(file string) string {
	b, err := untrusted.Read(file, 1<<20)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(report.CleanText(string(b))), "\n")
	return lines[len(lines)-1]
}

// dumpOf reads a guest's records up to the end of its dump.
func dumpOf(results io.Reader) (*ktext.Dump, error) {
	var dump bytes.Buffer
	for in := bufio.NewReader(results); ; {
		rec := &wire.Record{}
		if err := (protodelim.UnmarshalOptions{MaxSize: 16 << 20}).UnmarshalFrom(in, rec); err != nil {
			return nil, err
		}
		if c := rec.GetChunk(); c != nil {
			dump.Write(c.Data)
		}
		if r := rec.GetResult(); r != nil {
			if r.Error != "" {
				return nil, fmt.Errorf("%q", r.Error)
			}
			return ktext.ReadDump(dump.Bytes())
		}
	}
}
