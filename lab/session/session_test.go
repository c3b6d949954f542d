package session

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/digitalocean/go-qemu/qmp"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/encoding/protowire"

	"kerninst/agent/wire"
	"kerninst/lab/console"
	"kerninst/lab/qemu"
	"kerninst/lab/qemu/qemutest"
	"kerninst/lab/status"
	"kerninst/lab/tail"
	"kerninst/lab/vm"
)

// script is a machine that has said and done all it ever will before anybody
// looks. With a zero end it hangs until it is killed.
type script struct {
	console string
	results []byte
	end     vm.Ending
	err     error // of the start
	regs    string
	taint   []byte
}

func (s script) Start(_ context.Context, spec vm.Spec) (vm.Machine, error) {
	if s.err != nil {
		return nil, s.err
	}
	m := &fake{script: s, dir: spec.Dir, started: time.Now(), ended: make(chan struct{})}
	for name, content := range map[string][]byte{"console.log": []byte(s.console), "results": s.results} {
		if err := os.WriteFile(filepath.Join(spec.Dir, name), content, 0o600); err != nil {
			return nil, err
		}
	}
	if s.end.Kind != vm.KindInvalid {
		m.finish(s.end)
	}
	return m, nil
}

type fake struct {
	script
	dir     string
	started time.Time
	once    sync.Once
	ended   chan struct{}
	ending  vm.Ending
}

func (f *fake) finish(e vm.Ending) {
	f.once.Do(func() { f.ending = e; close(f.ended) })
}

func (f *fake) Monitor() qmp.Monitor                       { return nil }
func (f *fake) Results() io.Reader                         { return tail.Follow(filepath.Join(f.dir, "results"), f.ended) }
func (f *fake) Console() string                            { return filepath.Join(f.dir, "console.log") }
func (f *fake) Argv() []string                             { return []string{"qemu"} }
func (f *fake) Started() time.Time                         { return f.started }
func (f *fake) Kill()                                      { f.finish(vm.Ending{Kind: vm.Killed, Reason: "signal: killed"}) }
func (f *fake) Inspect(context.Context) (vm.Inside, error) { return inside{f.regs, f.taint}, nil }
func (f *fake) Wait(context.Context) (vm.Ending, error) {
	<-f.ended
	return f.ending, nil
}

// inside shows registers, and a kernel's taints where hello says, if they are known.
type inside struct {
	regs  string
	taint []byte
}

func (inside) Stop(context.Context) error                  { return nil }
func (inside) Continue(context.Context) error              { return nil }
func (i inside) Registers(context.Context) (string, error) { return i.regs, nil }
func (i inside) Read(_ context.Context, cpu int, a uint64, n int) ([]byte, error) {
	if a == tainted && cpu == 1 && n == len(i.taint) {
		return i.taint, nil
	}
	return nil, errors.New("not mapped")
}
func (inside) Dump(context.Context, string) error       { return nil }
func (inside) ServeGDB(context.Context) (string, error) { return "", nil }
func (inside) Close()                                   {}

// tainted is where the kernel keeps its taints, as its second CPU sees it.
const tainted = 0x1000

// hex1 are registers of a CPU that runs a program.
const hex1 = "\nCPU#0\nRIP=0000000000000001 CPL=3\n"

// Records that a daemon may send.
var (
	hello  = &wire.Record{Body: &wire.Record_Hello{Hello: &wire.Hello{Schema: 1, Tainted: tainted}}}
	logged = &wire.Record{Body: &wire.Record_Log{Log: &wire.Log{Text: "a step"}}}
	begun  = &wire.Record{Body: &wire.Record_Log{Log: &wire.Log{Text: wire.StepBegun + "one"}}}
	done   = &wire.Record{Body: &wire.Record_Done{Done: &wire.Done{}}}
	failed = &wire.Record{Body: &wire.Record_Done{Done: &wire.Done{Failed: true, Error: "step \x1b[31mx\x1b[0m"}}}
)

// part of the result of a step, with one address.
func part(a uint64, more bool) *wire.Record {
	return &wire.Record{Body: &wire.Record_Result{Result: &wire.Result{Step: "one", Addresses: []uint64{a}, More: more}}}
}

// TestParts: a result that comes in parts is one record to who hears it, and to who looks later.
func TestParts(t *testing.T) {
	var s stream
	var heard []*wire.Record
	s.read(bytes.NewReader(records(hello, part(1, true), part(2, true), part(3, false), part(4, false), done)), func(r *wire.Record) { heard = append(heard, r) })
	if s.fault != nil || len(heard) != 4 || !slices.Equal(heard, s.records) {
		t.Fatalf("%v, %d records heard, %d kept", s.fault, len(heard), len(s.records))
	}
	for k, want := range [][]uint64{{1, 2, 3}, {4}} {
		if got := heard[1+k].GetResult().GetAddresses(); !slices.Equal(got, want) {
			t.Errorf("result %d has %v, want %v", k, got, want)
		}
	}
}

// stream of records with right sequence numbers.
func records(all ...*wire.Record) []byte {
	var b bytes.Buffer
	for i, r := range all {
		protodelim.MarshalTo(&b, &wire.Record{Seq: uint32(i), Body: r.Body})
	}
	return b.Bytes()
}

const (
	panicText = "[    1.000000] Kernel panic - not syncing: because\n[    1.000001] CPU: 0\n"
	oopsText  = "[    1.000000] BUG: kernel NULL pointer dereference, address: 0000000000000000\n" +
		"[    1.100000] Kernel panic - not syncing: Fatal exception\n"
	lockupText = "[ 9.000000] watchdog: BUG: soft lockup - CPU#0\n"
	goText     = "panic: index out of range\n\ngoroutine 1 [running]:\n"
	initText   = "[    2.000000] Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000200\n"
)

var (
	off    = vm.Ending{Kind: vm.Clean, Reason: "guest-shutdown"}
	reset  = vm.Ending{Kind: vm.Panicked, Reason: "guest-reset"}
	killed = vm.Ending{Kind: vm.Killed, Reason: "signal: killed"}
	fault  = vm.Ending{Kind: vm.LabFault, Detail: "QEMU ended by signal: aborted"}
	lost   = vm.Ending{Kind: vm.HostLost, Detail: "libvirtd at X is silent"}
)

func TestOutcomes(t *testing.T) {
	defer func(old int) { consoleLimit = old }(consoleLimit)
	consoleLimit = 1 << 20
	full := records(hello, logged, done)
	tests := []struct {
		name   string
		script script
		status status.Status
		kind   Kind
		says   string // in the summary
	}{
		{"passed", script{results: full, end: off}, status.Passed, "", "done"},
		{"job ended early", script{results: records(hello, failed), end: off}, status.Failed, StepFailed, "step  [31mx [0m"},

		{"host lost", script{results: records(hello), end: lost}, status.LabFailed, HostLost, "after hello: libvirtd at X"},
		{"host lost, panic", script{console: panicText, results: full, end: lost}, status.LabFailed, HostLost, "after done"},

		{"panic", script{console: panicText, results: records(hello), end: reset}, status.Crashed, Panicked, "after hello: Kernel panic - not syncing: because;"},
		{"panic after done", script{console: panicText, results: full, end: reset}, status.Crashed, Panicked, "after done"},
		{"panic in a record", script{console: panicText, results: full[:len(full)-1], end: reset}, status.Crashed, Panicked, "panicked"},
		{"panic and garbage", script{console: panicText, results: records(logged), end: reset}, status.BootFailed, Panicked, "panicked"},
		{"panic, then killed", script{console: panicText, results: records(hello), end: killed}, status.Crashed, Panicked, "panicked"},
		{"oops", script{console: oopsText, results: records(hello), end: reset}, status.Crashed, Oopsed, "NULL pointer"},
		{"a program wrote what looks like an oops", script{console: oopsText, results: full, end: off}, status.Passed, "", "the job is done"},
		{"reset without a word", script{results: records(hello), end: reset}, status.Crashed, Reset, "triple fault"},

		{"boot panic", script{console: panicText, end: reset}, status.BootFailed, Panicked, "before hello"},
		{"boot reset", script{end: reset}, status.BootFailed, Reset, "before hello"},
		{"boot power-off", script{end: off}, status.BootFailed, PoweredOff, "before hello"},
		{"boot hang", script{regs: hex1}, status.BootFailed, Hang, "within 30ms of host time;"},

		{"hang", script{results: records(hello), regs: hex1}, status.Timeout, Hang, "hung after hello and was stopped 30ms"},
		{"hang with signs", script{results: records(hello), console: lockupText},
			status.Timeout, Hang, "(its kernel reported soft-lockup)"},
		{"locked up", script{results: records(hello), console: strings.Repeat(lockupText, 2), taint: []byte{0, 0x70, 0, 0, 0, 0, 0, 0}},
			status.Timeout, Hang, "reported a lockup 2 times"},
		{"locked up before hello", script{console: strings.Repeat(lockupText, 2)}, status.BootFailed, Hang, "reported a lockup 2 times"},
		{"hang at power-off", script{results: full}, status.Timeout, HangAtPowerOff, "hung after done"},

		{"daemon without a word", script{results: records(hello, logged), end: off}, status.Crashed, DaemonDied, "never said done"},
		{"daemon in a record", script{results: full[:len(full)-1], end: off}, status.Crashed, DaemonDied, "never said done"},
		{"Go panic", script{console: goText, results: records(hello), end: off}, status.Crashed, DaemonDied, "index out of range"},
		{"daemon killed", script{console: "kerninst-init: daemon killed by signal 9 (killed)\n", results: records(hello), end: off},
			status.Crashed, DaemonDied, "never said done: kerninst-init: daemon killed by signal 9"},
		{"daemon killed for its memory", script{console: "[    2.460499] Out of memory: Killed process 121 (kerninstd) total-vm:1265208kB\nkerninst-init: daemon killed by signal 9 (killed)\n", results: records(hello), end: off},
			status.Crashed, DaemonDied, "signal 9 (killed); its kernel reported that the memory, "},
		{"daemon killed, no power-off", script{console: "kerninst-init: daemon killed by signal 9 (killed)\n", results: records(hello)},
			status.Timeout, HangAtPowerOff, "hung after hello"},
		{"Go panic kills init", script{console: goText + initText, results: records(hello), end: reset}, status.Crashed, DaemonDied, "index out of range"},
		{"init killed", script{console: initText, results: records(hello), end: reset}, status.Crashed, DaemonDied, "Attempted to kill init"},
		{"Go panic before hello", script{console: goText, end: off}, status.BootFailed, DaemonDied, "before hello"},
		{"Go panic of something else", script{console: goText, results: full, end: off}, status.Passed, "", "done"},

		{"QEMU died", script{results: records(hello), end: fault}, status.LabFailed, QEMUDied, "aborted"},
		{"QEMU died in a panic", script{console: panicText, results: records(hello), end: fault}, status.LabFailed, QEMUDied, "aborted"},
		{"QEMU killed", script{results: records(hello), end: killed}, status.LabFailed, QEMUKilled, "from outside after hello"},
		{"QEMU killed after done", script{results: full, end: killed}, status.LabFailed, QEMUKilled, "after done"},
		{"no QEMU", script{err: &qemu.MissingError{Binary: "q", Package: "p"}}, status.LabFailed, QEMUStart, "not installed"},

		{"no hello first", script{results: records(logged, hello), end: off}, status.LabFailed, Protocol, "hello is the first"},
		{"hello twice", script{results: records(hello, hello), end: off}, status.LabFailed, Protocol, "record 1: hello is the first"},
		{"record after done", script{results: records(hello, done, logged), end: off}, status.LabFailed, Protocol, "record 2: follows done"},
		{"half a record after done", script{results: append(records(hello, done), 9, 1), end: off}, status.LabFailed, Protocol, "record 2"},
		{"sequence", script{results: append(records(hello), records(hello, logged, done)[len(records(hello, logged)):]...), end: off},
			status.LabFailed, Protocol, "record 1: has sequence number 2"},
		{"half a result", script{results: records(hello, part(1, true), done), end: off}, status.LabFailed, Protocol, `record 2: is not the rest of the result of step "one"`},
		{"empty record", script{results: records(&wire.Record{}), end: off}, status.LabFailed, Protocol, "empty"},
		{"too long", script{results: protowire.AppendVarint(nil, maxRecord+1), end: off}, status.LabFailed, Protocol, "record 0"},
		{"garbage, and it goes on", script{results: bytes.Repeat([]byte{0xff}, 30)}, status.LabFailed, Protocol, "record 0"},

		{"flood", script{console: strings.Repeat(strings.Repeat("x", 1023)+"\n", consoleLimit>>10), results: records(hello)},
			status.Crashed, Flood, "1 MiB"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, err := Do(context.Background(), Config{
				Backend: tt.script, Spec: vm.Spec{Arch: "amd64", CPUs: 2, Dir: t.TempDir()},
				BootTimeout: limit(tt.kind), RunTimeout: limit(tt.kind),
			})
			if err != nil {
				t.Fatal(err)
			}
			if o.Status != tt.status || o.Kind != tt.kind || !strings.Contains(o.Summary, tt.says) {
				t.Errorf("got %s, %s: %s\nwant %s, %s: …%s…", o.Status, o.Kind, o.Summary, tt.status, tt.kind, tt.says)
			}
			if strings.ContainsAny(o.Summary, "\x1b\n") {
				t.Errorf("summary is not one clean line: %q", o.Summary)
			}
			if (o.Evidence != nil) != (tt.kind == Hang || tt.kind == HangAtPowerOff) {
				t.Errorf("evidence = %+v", o.Evidence)
			}
			if tt.script.regs != "" && (len(o.Evidence.CPUs) != 1 || o.Evidence.CPUs[0].PC != 1) {
				t.Errorf("evidence = %+v", o.Evidence)
			}
		})
	}
}

// limit is short only where a case waits for it.
func limit(k Kind) time.Duration {
	if k == Hang || k == HangAtPowerOff {
		return 30 * time.Millisecond
	}
	return time.Minute
}

func TestOutcomeHoldsEverything(t *testing.T) {
	var seen []uint32
	started := false
	o, err := Do(context.Background(), Config{
		Backend:  script{console: "one\n" + panicText, results: records(hello, logged, begun), end: reset},
		Spec:     vm.Spec{Dir: t.TempDir()},
		OnRecord: func(r *wire.Record) { seen = append(seen, r.Seq) },
		OnStart:  func(vm.Machine) { started = true },
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(seen) != 3 || len(o.Records) != 3 || o.Hello == nil || o.Done != nil || !started {
		t.Errorf("records %d, callbacks %v, hello %v, done %v", len(o.Records), seen, o.Hello, o.Done)
	}
	if o.RunningAt.IsZero() || !o.RunningAt.Before(time.Now()) {
		t.Errorf("the first step was begun at %v", o.RunningAt)
	}
	if o.HelloAfter <= 0 || o.Ending != reset || len(o.Argv) != 1 || len(o.Findings) != 1 {
		t.Errorf("outcome = %+v", o)
	}
	if tail := strings.Join(o.ConsoleTail, "|"); !strings.HasPrefix(tail, "one|[    1.000000] Kernel panic") {
		t.Errorf("tail = %s", tail)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var m vm.Machine
	o, err := Do(ctx, Config{
		Backend: script{results: records(hello)}, Spec: vm.Spec{Dir: t.TempDir()},
		OnStart:  func(started vm.Machine) { m = started },
		OnRecord: func(*wire.Record) { cancel() },
	})
	if !errors.Is(err, context.Canceled) || o != nil {
		t.Errorf("Do = %v, %v", o, err)
	}
	if e, _ := m.Wait(context.Background()); e.Kind != vm.Killed {
		t.Errorf("the machine lives on: %+v", e)
	}
}

// A full disk explains what a guest did not say, but not what went well.
func TestFullDisk(t *testing.T) {
	full := errors.New("no space")
	for _, tt := range []struct {
		name string
		f    facts
		want Kind
	}{
		{"silence", facts{full: full, ending: off}, DiskFull},
		{"no done", facts{full: full, ending: off, hello: &wire.Hello{}}, DiskFull},
		{"garbled", facts{full: full, ending: killed, cause: badRecords, fault: errors.New("cut")}, DiskFull},
		{"killed for it", facts{full: full, ending: killed, cause: runTimeout, hello: &wire.Hello{}, done: &wire.Done{}}, DiskFull},
		{"done", facts{full: full, ending: off, hello: &wire.Hello{}, done: &wire.Done{}}, ""},
		{"QEMU died of it", facts{full: full, ending: fault}, QEMUDied},
	} {
		if _, kind, summary := tt.f.decide(); kind != tt.want {
			t.Errorf("%s: %s: %s", tt.name, kind, summary)
		}
	}
	if err := noRoom(t.TempDir()); err != nil {
		t.Errorf("a folder with room: %v", err)
	}
	if noRoom(filepath.Join(t.TempDir(), "gone")) == nil {
		t.Error("a folder that is not there has room")
	}
}

// A guest that does its job and powers off while the lab looks into it does not hang.
func TestEndedWhileLookedInto(t *testing.T) {
	for _, c := range []cause{runTimeout, lockup} {
		f := facts{cause: c, hello: &wire.Hello{}, done: &wire.Done{}, ending: off}
		if st, kind, summary := f.decide(); st != status.Passed {
			t.Errorf("%d: %s, %s: %s", c, st, kind, summary)
		}
		f.ending = killed
		if st, kind, summary := f.decide(); st != status.Timeout || kind != HangAtPowerOff && kind != Hang {
			t.Errorf("%d and killed: %s, %s: %s", c, st, kind, summary)
		}
	}
}

// Whatever a program in a guest writes to the console or to /dev/kmsg, it is how
// the machine ends that decides.
func TestForgedDeaths(t *testing.T) {
	full := records(hello, logged, done)
	for _, line := range []string{
		"panic: is what a log line said", "fatal error: so it says", "SIGSEGV: or another", "unexpected fault address 0x0",
		"[    1.000000] panic: is what a log line said", "[    1.000000] fatal error: so it says", "[    1.000000] SIGX: or another",
		"[    1.000000] kerninstd[77]: segfault at 0 ip 1 sp 2 error 4", "[    1.000000] traps: kinst[7] general protection",
		"[    1.000000] Kernel panic - not syncing: says a program", "[    1.000000] Kernel panic - not syncing: Attempted to kill init!",
		"[    1.000000] Oops: 0000 [#1] SMP", "[    1.000000] kernel BUG at a.c:1!", "kerninst-init: daemon killed by signal 9 (killed)",
	} {
		if o := outcomeOf(t, script{console: line + "\n", results: full, end: off}, time.Minute); o.Status != status.Passed {
			t.Errorf("%q and done: %s, %s: %s", line, o.Status, o.Kind, o.Summary)
		}
		o := outcomeOf(t, script{console: line + "\n", results: records(hello, failed), end: off}, time.Minute)
		if o.Status != status.Failed {
			t.Errorf("%q and a job that failed: %s, %s: %s", line, o.Status, o.Kind, o.Summary)
		}
	}
	for _, line := range []string{goText, "[    1.000000] traps: kinst[7] general protection\n"} {
		if o := outcomeOf(t, script{console: line, results: records(hello)}, 30*time.Millisecond); o.Status != status.Timeout || o.Kind != Hang {
			t.Errorf("%q and a hang: %s, %s: %s", line, o.Status, o.Kind, o.Summary)
		}
	}
}

// The console tells of a death, and then nothing is heard for an hour, as of a
// guest with much to do: that alone ends nothing.
func TestConsoleEndsNothing(t *testing.T) {
	for _, class := range []console.Class{console.GoPanic, console.Segfault, console.Oops, console.Panic, console.InitDied} {
		synctest.Test(t, func(t *testing.T) {
			r := &run{machine: &fake{}, signals: make(chan signal), ended: make(chan struct{})}
			r.cfg.Progress = func(string, ...any) {}
			go func() {
				r.signals <- signal{what: died, finding: console.Finding{Class: class, Fatal: true, Line: "x"}}
				time.Sleep(time.Hour) // of the bubble's clock, which takes no time
				close(r.ended)
			}()
			start := time.Now()
			if err := r.watch(t.Context()); err != nil || r.cause != notKilled || time.Since(start) != time.Hour {
				t.Errorf("%s: given up after %v: %v, cause %d", class, time.Since(start), err, r.cause)
			}
		})
	}
}

// A program writes any number of lockups to the console, and the kernel has noted
// none, or nobody can see whether: that alone ends nothing, and few are asked about.
func TestForgedLockups(t *testing.T) {
	for _, taint := range [][]byte{nil, {0, 0x30, 0, 0, 0, 0, 0, 0}} {
		synctest.Test(t, func(t *testing.T) {
			r := &run{machine: &fake{script: script{taint: taint}}, signals: make(chan signal), ended: make(chan struct{})}
			asked := 0
			r.cfg.Spec.CPUs = 2
			r.cfg.Progress = func(string, ...any) { asked++ }
			go func() {
				r.signals <- signal{what: gotHello, hello: hello.GetHello()}
				for range 1000 {
					r.signals <- signal{what: lockedUp, finding: console.Finding{Class: console.SoftLockup, Line: lockupText}}
				}
				time.Sleep(time.Hour) // of the bubble's clock, which takes no time
				close(r.ended)
			}()
			start := time.Now()
			if err := r.watch(t.Context()); err != nil || r.cause != notKilled || time.Since(start) != time.Hour || asked > 12 {
				t.Errorf("taints %v: given up after %v, asked %d times: %v, cause %d", taint, time.Since(start), asked, err, r.cause)
			}
		})
	}
}

// outcomeOf is what comes of a machine.
func outcomeOf(t *testing.T, b vm.Backend, run time.Duration) *Outcome {
	t.Helper()
	o, err := Do(context.Background(), Config{Backend: b, Spec: vm.Spec{Arch: "amd64", Dir: t.TempDir()}, RunTimeout: run})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// tiny runs a guest of a few dozen bytes under the real backend.
func tiny(t *testing.T, arch, text string, act qemutest.Act, cfg Config) *Outcome {
	t.Helper()
	d, err := qemu.NewRunDir()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	cfg.Backend = qemu.Backend{}
	cfg.Spec = vm.Spec{
		Arch: arch, Kernel: qemutest.Kernel(t, arch, text, act), Initrd: qemutest.Initrd(t),
		CPUs: 1, MemMiB: 128, Time: vm.Host, Seed: 1, Dir: d.Path,
	}
	o, err := Do(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// The same through a real QEMU, for what needs no daemon.
func TestRealMachines(t *testing.T) {
	for _, arch := range qemu.Arches() {
		t.Run(arch, func(t *testing.T) {
			if o := tiny(t, arch, panicText, qemutest.Reset, Config{}); o.Status != status.BootFailed || o.Kind != Panicked || o.Evidence == nil || len(o.Evidence.CPUs) != 1 {
				t.Errorf("panic: %s, %s: %s; evidence %+v", o.Status, o.Kind, o.Summary, o.Evidence)
			}
			if o := tiny(t, arch, "bye\n", qemutest.PowerOff, Config{}); o.Status != status.BootFailed || o.Kind != PoweredOff {
				t.Errorf("power-off: %s, %s: %s", o.Status, o.Kind, o.Summary)
			}
			o := tiny(t, arch, "here I hang", qemutest.Hang, Config{BootTimeout: 800 * time.Millisecond})
			if o.Status != status.BootFailed || o.Kind != Hang || o.Evidence == nil || len(o.Evidence.CPUs) != 1 || len(o.Evidence.Earlier) < 2 {
				t.Errorf("hang: %s, %s: %s; evidence %+v", o.Status, o.Kind, o.Summary, o.Evidence)
			}
			o = tiny(t, arch, "", qemutest.Hang, Config{OnStart: func(m vm.Machine) {
				syscall.Kill(m.(vm.Process).Pid(), syscall.SIGKILL)
			}})
			if o.Status != status.LabFailed || o.Kind != QEMUKilled {
				t.Errorf("killed: %s, %s: %s", o.Status, o.Kind, o.Summary)
			}
		})
	}
}

// teller is a machine that ends when it is told that it is enough, if it heeds that.
type teller struct {
	*fake
	heeds bool
	told  int
}

func (t *teller) Tell(context.Context) error {
	if t.told++; t.heeds {
		t.finish(off)
	}
	return nil
}

// tellers start one.
type tellers struct {
	script
	m *teller
}

func (b *tellers) Start(ctx context.Context, spec vm.Spec) (vm.Machine, error) {
	m, err := b.script.Start(ctx, spec)
	if err == nil {
		b.m.fake = m.(*fake)
	}
	return b.m, err
}

// TestTell: who gives up a guest that heeds has it told once, and what comes of it is the outcome;
// one that does not care is killed, and so is one that has not said hello, or does not heed.
func TestTell(t *testing.T) {
	for name, c := range map[string]struct {
		said       []*wire.Record
		asks, does bool
		told       int
		passed     bool
	}{
		"heeds":         {[]*wire.Record{hello, done}, true, true, 1, true},
		"does not care": {[]*wire.Record{hello}, true, false, 1, false},
		"no hello":      {nil, true, true, 0, false},
		"is not asked":  {[]*wire.Record{hello, done}, false, true, 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			b := &tellers{script{results: records(c.said...)}, &teller{heeds: c.does}}
			time.AfterFunc(time.Second, cancel)
			began := time.Now()
			o, err := Do(ctx, Config{Backend: b, Spec: vm.Spec{Arch: "amd64", Dir: t.TempDir()}, Heeds: c.asks})
			if b.m.told != c.told || (err == nil) != c.passed || err != nil && !errors.Is(err, context.Canceled) || c.passed && o.Status != status.Passed {
				t.Errorf("%s: told %d times, %+v, %v", name, b.m.told, o, err)
			}
			if took := time.Since(began); took < time.Second || took > tellLimit+10*time.Second {
				t.Errorf("%s: it took %v", name, took)
			}
		})
	}
}
