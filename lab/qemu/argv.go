package qemu

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"kerninst/agent/wire"
	"kerninst/lab/vm"
)

// Names in the run directory. In Argv they are relative, and QEMU's working
// directory is the run directory, because the path of a unix socket must not
// exceed 107 bytes.
const (
	ConsoleFile = "console.log"
	ResultsFile = "results"
	MailboxFile = "mailbox"
	controlSock = "q0"
	debugSock   = "q1"
)

// ResultsPort is the name of the virtio-serial port for the guest's records.
const ResultsPort = "org.kerninst.results"

// baseFlags hold for every machine.
var baseFlags = []struct {
	args []string
	why  string
}{
	{[]string{"-no-user-config"}, "the user's own configuration must not change a run"},
	{[]string{"-nodefaults"}, "only devices that are asked for"},
	{[]string{"-nic", "none"}, "a network brings host time into the guest"},
	{[]string{"-display", "none"}, "no window"},
	{[]string{"-no-reboot"}, "a reset, as after a panic, ends QEMU and is told apart by the SHUTDOWN event"},
	{sandbox, "what breaks out of the guest can neither start programs nor gain privileges"},
	{[]string{"-qmp", "unix:" + controlSock + ",server=on,wait=off"}, "control"},
	{[]string{"-qmp", "unix:" + debugSock + ",server=on,wait=off"}, "for looking into a machine: a QMP socket takes one client"},
}

var sandbox = []string{"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"}

// paused makes QEMU wait for the lab, so that no event is missed however slow
// the lab is.
const paused = "-S"

// resultsChardev is the host's end of the port.
const resultsChardev = "results"

// resultDevices write what the guest sends into a file. ioeventfd=off keeps the
// write in the thread that runs the guest: it is over before the guest's next
// instruction, which loses nothing and keeps exact time exact.
func resultDevices(file string) []string {
	return []string{
		"-device", "virtio-serial-pci,id=ports,ioeventfd=off",
		"-chardev", "file,id=" + resultsChardev + ",path=" + Escape(file),
		"-device", "virtserialport,bus=ports.0,nr=1,chardev=" + resultsChardev + ",name=" + ResultsPort,
	}
}

// mailboxFlags share a file with the guest. Bytes that are sent to a guest
// arrive at no exact time; memory that is written while its CPUs are stopped was
// always there.
//
// share=on: what the lab writes into the file is in the guest's memory. The
// device is found by its PCI numbers, with no driver in the guest; without
// master=on a machine that shares memory has no state to save.
func mailboxFlags(file string) []string {
	return []string{
		"-object", fmt.Sprintf("memory-backend-file,id=mailbox,size=%d,share=on,mem-path=%s", wire.MailboxSize, Escape(file)),
		"-device", "ivshmem-plain,memdev=mailbox,master=on",
	}
}

// Watchdog stops a machine with a mailbox while its guest waits for mail
// (state.go). It has a place of its own on the root bus: libvirt describes it in
// words of its own, and would choose another.
const (
	WatchdogModel  = "i6300esb"
	WatchdogSlot   = 0x10
	WatchdogAction = "pause"
)

const watchdogStops = "watchdog=" + WatchdogAction

var watchdogFlags = []string{
	"-device", fmt.Sprintf("%s,bus=pcie.0,addr=%#x", WatchdogModel, WatchdogSlot), "-action", watchdogStops,
}

// consoleToFile cannot stall the guest, unlike a pty or pipe without a reader.
// The console of a machine that goes on from a state continues that of its boot.
func consoleToFile(file string, continued bool) []string {
	chardev := "file,id=console,path=" + Escape(file)
	if continued {
		chardev += ",append=on"
	}
	return []string{"-chardev", chardev, "-serial", "chardev:console"}
}

// consoleOnTerminal shares the terminal between guest and monitor. Ctrl-C goes
// to the guest; Ctrl-A X leaves.
var consoleOnTerminal = []string{
	"-chardev", "stdio,id=console,mux=on,signal=off,logfile=" + ConsoleFile,
	"-serial", "chardev:console",
	"-mon", "chardev=console,mode=readline",
}

// Argv is the command line for a machine. It depends on nothing but its
// arguments; v may be the zero value, which leaves names unresolved.
func Argv(s vm.Spec, v Version) ([]string, error) {
	r, err := lookup(s.Arch)
	if err != nil {
		return nil, err
	}
	if err := r.check(s); err != nil {
		return nil, err
	}
	cmdline, err := r.cmdline(s.Append)
	if err != nil {
		return nil, err
	}
	argv := []string{or(v.Binary, r.binary), "-machine", or(v.Machine, r.machine), "-cpu", r.cpuFor(s),
		"-smp", strconv.Itoa(s.CPUs), "-m", strconv.Itoa(s.MemMiB)}
	argv = append(argv, r.timeFlags(s, v)...)
	for _, f := range baseFlags {
		argv = append(argv, f.args...)
	}
	argv = append(argv, firmwareFlags(s)...)
	argv = append(argv, paused, "-kernel", s.Kernel, "-initrd", s.Initrd, "-append", cmdline)
	argv = append(argv, deviceFlags(s, RunFiles{}.At)...)
	if s.Mailbox {
		argv = append(argv, watchdogFlags...)
	}
	return argv, nil
}

// firmwareFlags choose the firmware; under KVM there is none for a machine to run.
func firmwareFlags(s vm.Spec) []string {
	if s.Firmware == "" || s.KVM {
		return nil
	}
	return []string{"-bios", s.Firmware}
}

// deviceFlags give a machine its ways to the outside: files, by what QEMU calls them.
func deviceFlags(s vm.Spec, at func(name string) string) (args []string) {
	if s.Interactive {
		args = append(args, consoleOnTerminal...)
	} else {
		args = append(args, consoleToFile(at(ConsoleFile), s.State != "")...)
	}
	args = append(args, resultDevices(at(ResultsFile))...)
	if s.Mailbox {
		args = append(args, mailboxFlags(at(MailboxFile))...)
	}
	for _, p := range s.Plugins {
		option := Escape(p.Object)
		if p.Out != "" {
			option += ",out=" + Escape(at(p.Out))
		}
		if p.Option != "" {
			option += "," + p.Option
		}
		args = append(args, "-plugin", option)
	}
	return args
}

// Escape writes a path as a value in a list of QEMU's options, which commas
// separate.
func Escape(path string) string { return strings.ReplaceAll(path, ",", ",,") }

// Parts are a machine for those who do not start it by Argv, but describe most
// of it in a language of their own. It is the same machine: guests cannot tell.
type Parts struct {
	Target  string // QEMU's name of the ISA
	Binary  string
	Machine string
	Cmdline string
	// Watchdog: it has the watchdog of machines with a mailbox.
	Watchdog bool
	// Args is everything else that makes the machine what it is.
	Args []string
	// Threads: several CPUs are to run in parallel, and not to take turns.
	Threads bool
	// MutePowerOff: when its guest powers off, QEMU ends without a SHUTDOWN
	// event.
	MutePowerOff bool
}

// PartsOf takes a machine apart whose files QEMU calls what at says. Like Argv it depends
// on nothing but its arguments.
func PartsOf(s vm.Spec, v Version, at func(name string) string) (Parts, error) {
	r, err := lookup(s.Arch)
	if err != nil {
		return Parts{}, err
	}
	if err := r.check(s); err != nil {
		return Parts{}, err
	}
	cmdline, err := r.cmdline(s.Append)
	if err != nil {
		return Parts{}, err
	}
	args := append([]string{"-cpu", or(s.CPU, r.cpu)}, clockFlags(s)...)
	args = append(args, firmwareFlags(s)...)
	args = append(args, deviceFlags(s, at)...)
	p := r.emulator(v)
	p.Cmdline, p.Watchdog, p.Args = cmdline, s.Mailbox, args
	p.Threads, p.MutePowerOff = r.threads(s.Time, v), r.mutePowerOff
	return p, nil
}

// EmulatorOf is what runs guests of an ISA, for those who ask about it: of what PartsOf says, what is
// the same for all of them.
func EmulatorOf(ctx context.Context, arch string) (Parts, error) {
	v, err := FindVersion(ctx, arch)
	if err != nil {
		return Parts{}, err
	}
	return rows[arch].emulator(v), nil
}

func (r row) emulator(v Version) Parts {
	return Parts{Target: strings.TrimPrefix(r.binary, "qemu-system-"), Binary: or(v.Binary, r.binary), Machine: or(v.Machine, r.machine)}
}

// timeFlags are all flags that have to do with time.
func (r row) timeFlags(s vm.Spec, v Version) []string {
	if s.KVM {
		return append([]string{"-accel", "kvm"}, clockFlags(s)...)
	}
	threads := "single" // the CPUs take turns
	if r.threads(s.Time, v) {
		threads = "multi"
	}
	return append([]string{"-accel", "tcg,thread=" + threads}, clockFlags(s)...)
}

// threads says whether each CPU of a machine gets a thread of its own.
func (r row) threads(t vm.Time, v Version) bool {
	recent := v.Major > r.threadsFrom[0] || v.Major == r.threadsFrom[0] && v.Minor >= r.threadsFrom[1]
	return t == vm.Host && recent
}

// clockFlags make guest time pass as asked. Under exact time one instruction
// takes one nanosecond, an idle CPU jumps to its next timer, the clock starts at
// a fixed date, and the guest's randomness comes from the seed.
//
// QEMU records such a machine, into nothing, for what that locks. Its main thread moves
// the clock of an idle machine; when it is awake at the moment at which the CPU falls
// asleep, it takes it for idle before what it has executed is counted, and jumps too far
// (softmmu/icount.c, icount_start_warp_timer). That is once in some hundred thousand
// times that it wakes, and more on a busy host: guests of one seed then differ by
// microseconds. While QEMU records, a thread that runs the guest and one that moves its
// clock exclude each other. It writes no state while it records, so a machine that boots
// for one is not: what it leaves is the same for all that go on from it (count.go). And it
// records no machine with several CPUs, which so is as exact as its host is idle.
func clockFlags(s vm.Spec) []string {
	seed := []string{"-seed", strconv.FormatUint(s.Seed, 10)}
	if s.Time != vm.Exact {
		return seed
	}
	flags := append(seed, "-rtc", "base=2025-01-01T00:00:00,clock=vm", "-icount")
	if s.CPUs > 1 || s.Mailbox && s.State == "" {
		return append(flags, exactTime)
	}
	return append(append(flags, exactTime+",rr=record,rrfile=/dev/null"), letMonitorIn...)
}

// exactTime counts instructions: no shift, and no sleep of the host's while all CPUs are idle.
const exactTime = "shift=0,sleep=off"

// letMonitorIn is a timer of the machine's clock: QEMU has none by itself, and a filter on
// a network of nobody's has one. While QEMU records, its monitor waits until what runs the
// guest comes to the next timer, and for a guest that armed none, as one that hangs, that
// would be in 2^31 instructions. In 20 ms it is 2*10^7, some tenths of a second; for a guest
// that sleeps it is two threads' waking each other fifty times a second of the guest's,
// which on a busy host takes as long. A guest cannot tell.
var letMonitorIn = []string{
	"-netdev", "hubport,id=timer-only,hubid=0", // QEMU warns that it has no peer
	"-object", "filter-buffer,id=timer,netdev=timer-only,interval=20000",
}

// cpuFor is the CPU of a machine. Under KVM it is the host's: parts that only the
// emulator has cannot be asked for.
func (r row) cpuFor(s vm.Spec) string {
	if s.CPU != "" {
		return s.CPU
	}
	if s.KVM {
		return "host"
	}
	return r.cpu
}

// check refuses what QEMU would take and misunderstand.
func (r row) check(s vm.Spec) error {
	switch {
	case s.Time != vm.Exact && s.Time != vm.Host:
		return fmt.Errorf("time %q is unknown: use %s or %s", s.Time, vm.Exact, vm.Host)
	case s.CPUs < 1:
		return fmt.Errorf("%d CPUs: at least 1 is needed", s.CPUs)
	case s.CPUs > 1 && s.Time == vm.Exact && r.oneCPUExact:
		return fmt.Errorf("%d CPUs on %s in exact time: QEMU cannot; use 1 CPU, or host time", s.CPUs, s.Arch)
	case s.KVM && (s.Time == vm.Exact || len(s.Plugins) > 0):
		return fmt.Errorf("KVM neither counts instructions nor knows plugins: use emulation")
	case s.MemMiB < 64:
		return fmt.Errorf("%d MiB of memory: at least 64 are needed", s.MemMiB)
	case !filepath.IsAbs(s.Kernel):
		return fmt.Errorf("kernel %q: the path must be absolute", s.Kernel)
	case s.Firmware != "" && !filepath.IsAbs(s.Firmware):
		return fmt.Errorf("firmware %q: the path must be absolute", s.Firmware)
	case s.State != "" && (!s.Mailbox || s.Interactive):
		return fmt.Errorf("a state is that of a machine with a mailbox and without a terminal")
	case len(s.Mail) > wire.MailboxSize || len(s.Mail) > 0 && s.State == "":
		return fmt.Errorf("%d bytes of mail: they go to a machine with a state, which takes %d", len(s.Mail), wire.MailboxSize)
	case s.State != "" && !filepath.IsAbs(s.State):
		return fmt.Errorf("state %q: the path must be absolute", s.State)
	case !filepath.IsAbs(s.Initrd):
		return fmt.Errorf("initramfs %q: the path must be absolute", s.Initrd)
	}
	return nil
}

// bootParams hold for every kernel.
var bootParams = []struct{ param, why string }{
	{"panic=-1", "a panic resets at once"},
	{"oops=panic", "after an oops nothing that the guest says can be trusted"},
	{"kerninst.lab=1", "the token without which the module does not load"},
	{"cryptomgr.notests", "the kernel's tests of its ciphers are half of an emulated boot"},
	{"quiet", ""},
	{"loglevel=5", "warnings and worse: a console line costs guest instructions"},
}

// padTo is the step of the command line's length, in bytes. Its length decides
// where the kernel's early copies lie and how many instructions parsing takes,
// so runs that are to be compared need equal lengths.
const padTo = 512

// pad is a parameter that nobody reads. The dot keeps the kernel from handing it
// to the guest's init; no module has this name.
const pad = " lab.pad="

// cmdline is the kernel command line, padded to a multiple of padTo. What the
// caller adds comes last: it overrides, and what follows a "--" is init's.
func (r row) cmdline(extra string) (string, error) {
	if strings.ContainsFunc(extra, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return "", fmt.Errorf("kernel command line %q: control characters are not allowed", extra)
	}
	var words []string
	for _, p := range bootParams {
		words = append(words, p.param)
	}
	words = append(words, r.boot...) // after loglevel, which then holds for the early console too
	before := strings.Join(words, " ") + pad
	after := ""
	if more := strings.Fields(extra); len(more) > 0 {
		after = " " + strings.Join(more, " ")
	}
	n := len(before) + len(after)
	if n > r.bootLen {
		return "", fmt.Errorf("kernel command line of %d bytes: this kernel takes %d", n, r.bootLen)
	}
	full := min((n+padTo-1)/padTo*padTo, r.bootLen)
	return before + strings.Repeat("0", full-n) + after, nil
}

// ByHand turns the command of a machine into one that people can run in a
// terminal: the machine does not wait for the lab.
func ByHand(argv []string) []string {
	var out []string
	for _, a := range argv {
		switch a {
		case paused:
		case watchdogStops:
			out = append(out, "watchdog=none")
		default:
			out = append(out, a)
		}
	}
	return out
}

// Quote writes a command so that a shell takes it apart again as it was.
func Quote(argv []string) string {
	quoted := make([]string, len(argv))
	for i, a := range argv {
		quoted[i] = quoteWord(a)
	}
	return strings.Join(quoted, " ")
}

func quoteWord(w string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			strings.ContainsRune("_-+=.,:/@%", c)
	}
	if w != "" && strings.TrimFunc(w, plain) == "" {
		return w
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
