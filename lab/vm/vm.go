// Package vm says what a machine is to the lab: what it is started from, what
// it offers while it runs, and the ways in which it ends.
package vm

import (
	"context"
	"io"
	"time"

	"github.com/digitalocean/go-qemu/qmp"
)

// Time is how guest time passes.
type Time string

const (
	Exact Time = "exact" // one nanosecond is one instruction; two runs are identical
	Host  Time = "host"  // host speed, several CPUs in parallel
)

// Spec is everything a machine is started from.
type Spec struct {
	Arch   string // amd64, arm64, riscv64
	Kernel string // path of the kernel image
	// Firmware is the path of the machine's; empty: the one that comes with QEMU.
	Firmware string
	Initrd   string // path of the complete initramfs
	Append   string // added to the kernel command line
	CPUs     int
	CPU      string // model; empty: the architecture's usual one
	MemMiB   int
	Time     Time
	Seed     uint64
	KVM      bool // run on the host's own CPU; only host time, and no plugins
	Plugins  []Plugin
	// Mailbox gives the guest memory that the host can put a job into.
	Mailbox bool
	// State, if set, is a file that Freeze wrote: the machine goes on from there
	// instead of booting, after Mail has been put into its mailbox, and adds to
	// the console.log that it finds. The file is used up.
	State string
	Mail  []byte
	// Sums has the SHA-256, in hex, of those of these files of which it is known: nobody has to read them for that.
	Sums map[string]string
	// Interactive joins the guest's console to the terminal. Ctrl-A X leaves.
	Interactive bool
	// Linger has the machine stay when its guest resets, until it is killed, if
	// it is a Lingerer; others ignore it.
	Linger bool
	// Keep makes a machine that can be left. It stays when its guest powers off,
	// too, unless it has plugins, which report when it ends. The lab's death does
	// not end it. It implies Linger.
	Keep bool
	// Dir is the run directory: absolute, existing, mode 0700. Sockets,
	// console.log and results live there.
	Dir string
}

// Plugin is one of QEMU's TCG plugins.
type Plugin struct {
	Object string // absolute path
	Out    string // name in the run directory of the file that it writes; empty: none
	Option string // added to what it is started with: name=value
	End    string // what the file ends with when the plugin has written all; empty: nobody knows before QEMU is gone
}

// Kind is how a machine ended. The zero value is invalid.
type Kind int

const (
	KindInvalid Kind = iota
	Clean            // the guest powered off by itself
	Panicked         // the guest reset: after a panic, a triple fault, or because it was told to
	Killed           // the process was killed, by us or by someone else
	LabFault         // QEMU could not start, or died by itself
	Left             // it did not end: the lab let go of it
	HostLost         // the host that ran it cannot be reached any more
)

// Ending of a machine.
type Ending struct {
	Kind   Kind
	Reason string // QEMU's own word for it: guest-shutdown, guest-reset, host-signal…
	Detail string // QEMU's stderr, or how the process ended
}

// Machine is one running guest.
type Machine interface {
	// Monitor is the control channel. Valid until Wait returns.
	Monitor() qmp.Monitor
	// Results is the guest's record stream; EOF when the machine ends.
	Results() io.Reader
	// Console is the path of the console log, growing while the guest runs.
	Console() string
	// Argv is the command that started it, for people to run again.
	Argv() []string
	// Wait returns when the machine has ended. It may be called many times.
	Wait(ctx context.Context) (Ending, error)
	// Kill ends it now. Idempotent. Wait still has to be called.
	Kill()
	// Started is the host time at which the process started.
	Started() time.Time
}

// Inspector is a machine that can be looked into, also while it hangs.
type Inspector interface {
	// Inspect opens a way in that works while the control channel is busy. It
	// has to be closed.
	Inspect(ctx context.Context) (Inside, error)
}

// Inside looks into a machine. Everything but Stop and Continue leaves the
// guest as it is.
type Inside interface {
	Stop(ctx context.Context) error
	Continue(ctx context.Context) error
	// Registers of all CPUs, as QEMU prints them: a paragraph for each, headed
	// "CPU#n".
	Registers(ctx context.Context) (string, error)
	// Read returns n bytes of memory as a CPU, counted from 0, sees it at a
	// virtual address now. Memory of which a part is not mapped is an error.
	Read(ctx context.Context, cpu int, addr uint64, n int) ([]byte, error)
	// Dump writes the guest's physical memory to a new file, as an ELF core.
	Dump(ctx context.Context, file string) error
	// ServeGDB has gdb served at a unix socket in the run directory, whose path
	// it returns.
	ServeGDB(ctx context.Context) (socket string, err error)
	Close()
}

// Lingerer is a machine that can stay after its guest has ended (Spec.Linger).
type Lingerer interface {
	// Halted is closed when the guest has reset, or powered off if the machine is
	// to be kept: its CPUs stand still and are as they were. The machine then
	// stays until it is killed. Other ways to end do not close it.
	Halted() <-chan struct{}
	// Leave lets go of a machine with Spec.Keep: it outlives the lab. Results
	// end, Monitor is of no use any more, and Wait says how the guest ended, or
	// that it was still there (Left).
	Leave() error
}

// Teller is a machine whose guest can be told, by the port that its records go to, that what it has
// done is enough (wire.Job.Heeds).
type Teller interface {
	Tell(ctx context.Context) error
}

// Freezer is a machine with a mailbox whose state can be kept.
type Freezer interface {
	// Freeze waits until the guest is ready for mail and has been stopped, and
	// writes its state into a new file. The guest does not run again: it has to be
	// killed.
	Freeze(ctx context.Context, file string) error
}

// StateError says that a machine could not go on from a state: the state is
// damaged, or of another build of the emulator.
type StateError struct {
	File string
	Err  error
}

func (e *StateError) Error() string {
	return "the state in " + e.File + " cannot be used: " + e.Err.Error()
}
func (e *StateError) Unwrap() error { return e.Err }

// Process is a machine that is a process on this host.
type Process interface {
	Pid() int
}

// Backend starts machines. The context limits the start only: a machine that
// was started lives until it ends by itself or is killed.
type Backend interface {
	Start(ctx context.Context, s Spec) (Machine, error)
}
