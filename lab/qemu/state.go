package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"kerninst/agent/wire"
	"kerninst/lab/qmp"
	"kerninst/lab/vm"
)

// A state is kept as an internal snapshot of a qcow2 file that belongs to no
// device of the machine. stateNode and stateTag name file and snapshot to QEMU.
const (
	stateNode = "state"
	stateTag  = "ready"
	// stateGrows is how much larger a state's file may get while the state is loaded, in bytes:
	// what QEMU writes are a few tables (docs/interop/qcow2.txt).
	stateGrows = 16 << 20
	// stateName is the state's name in the run directory: QEMU reaches nothing
	// else.
	stateName = "machine.state"
	// jobLimit bounds one of QEMU's jobs. They take a fraction of a second.
	jobLimit = 60 * time.Second
	// jobInterval is how often a job is asked whether it has ended.
	jobInterval = 5 * time.Millisecond
)

type object = map[string]any

// Freezer keeps the state of a machine with a mailbox, or gives it one, whoever
// has started it.
type Freezer struct {
	Monitor *qmp.Client
	Arch    string
	Exact   bool // exact time
	Files   Files
}

func (m *machine) freezer() Freezer {
	return Freezer{Monitor: m.monitor, Arch: m.arch, Exact: m.exact, Files: RunFiles{Dir: m.dir, Own: m.jail.give}}
}

// Freeze is vm.Freezer's.
func (m *machine) Freeze(ctx context.Context, file string) error {
	return m.freezer().Freeze(ctx, file)
}

// Freeze waits until the guest's watchdog has stopped the machine, which the guest
// arms when it is ready for mail, and writes the machine's state to file.
func (z Freezer) Freeze(ctx context.Context, file string) error {
	stopped := z.awaitWatchdog(ctx)
	if stopped == nil { // QEMU tells of the watchdog a moment before
		stopped = z.Monitor.Execute(ctx, "stop", nil, nil)
	}
	// First: a guest that has looked and found nothing is off a moment later.
	if err := z.stillUnread(ctx); err != nil {
		return err
	}
	if stopped != nil {
		return stopped
	}
	return z.Save(ctx, file)
}

// Save writes the state of a machine that is stopped.
func (z Freezer) Save(ctx context.Context, file string) error {
	if err := z.Files.Await(ctx, stateName); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	if err := z.makeState(ctx, z.Files.At(stateName)); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	if err := z.job(ctx, "snapshot-save", object{"tag": stateTag, "vmstate": stateNode, "devices": []string{stateNode}}); err != nil {
		return err
	}
	if err := z.Files.Fetch(ctx, stateName, file); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	if z.Exact {
		if err := clearCount(file); err != nil {
			return fmt.Errorf("state file: %w", err)
		}
	}
	return z.saveTimers(ctx, file)
}

// ErrLooked says that QEMU did not stop the machine when it should have.
var ErrLooked = errors.New("the guest looked for mail before its watchdog stopped it: this QEMU's i6300esb does not do what the lab relies on")

// stillUnread fails when the guest has looked into its mailbox already.
func (z Freezer) stillUnread(ctx context.Context) error {
	looked, err := z.Files.Read(ctx, MailboxFile, wire.MailboxLooked, 1)
	switch {
	case err != nil:
		return fmt.Errorf("mailbox: %w", err)
	case len(looked) == 0:
		return errors.New("mailbox: it is too short")
	case looked[0] != 0:
		return ErrLooked
	}
	return nil
}

// awaitWatchdog returns when the guest's watchdog stops the machine.
func (z Freezer) awaitWatchdog(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := z.Monitor.Events(ctx)
	if err != nil {
		return err
	}
	var now struct{ Status string }
	if err := z.Monitor.Execute(ctx, "query-status", nil, &now); err != nil {
		return err
	}
	if now.Status == "watchdog" { // before anybody listened
		return nil
	}
	for e := range events {
		if e.Event == "WATCHDOG" && e.Data["action"] == WatchdogAction {
			return nil
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.New("the machine ended before its guest was ready")
}

// makeState makes an empty qcow2 file and gives it to QEMU. QEMU does it itself,
// because qemu-img need not be installed.
func (z Freezer) makeState(ctx context.Context, file string) error {
	const size = 1 << 20 // of the disk that nobody uses; a state lies beyond it
	const raw = stateNode + "-file"
	for _, do := range []func() error{
		func() error {
			return z.job(ctx, "blockdev-create", object{"options": object{"driver": "file", "filename": file, "size": 0}})
		},
		func() error {
			return z.Monitor.Execute(ctx, "blockdev-add", object{"driver": "file", "node-name": raw, "filename": file}, nil)
		},
		func() error {
			return z.job(ctx, "blockdev-create", object{"options": object{"driver": "qcow2", "file": raw, "size": size}})
		},
		func() error {
			return z.Monitor.Execute(ctx, "blockdev-add", object{"driver": "qcow2", "node-name": stateNode, "file": raw}, nil)
		},
	} {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// Thaw loads the state, lets go of its file and removes it, and delivers the
// mail: after the load, which brings the mailbox back as it was.
func (z Freezer) Thaw(ctx context.Context, s vm.Spec) error {
	lent, err := z.Files.Lend(ctx, stateName, s.State)
	if errors.Is(err, fs.ErrNotExist) {
		return &vm.StateError{File: s.State, Err: err}
	} else if err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	file, err := z.writable(ctx, lent)
	if err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	if err := z.Monitor.Execute(ctx, "blockdev-add", object{"driver": "qcow2", "node-name": stateNode, "file": file}, nil); err != nil {
		return z.unusable(ctx, s, err)
	}
	load := object{"tag": stateTag, "vmstate": stateNode, "devices": []string{stateNode}}
	if err := z.job(ctx, "snapshot-load", load); err != nil {
		return z.unusable(ctx, s, err)
	}
	if err := z.loadTimers(ctx, s.State); err != nil {
		return err
	}
	if err := z.Monitor.Execute(ctx, "blockdev-del", object{"node-name": stateNode}, nil); err != nil {
		return err
	}
	if err := z.Files.Remove(ctx, stateName); err != nil {
		return err
	}
	if err := z.Files.Write(ctx, MailboxFile, s.Mail); err != nil {
		return fmt.Errorf("mailbox: %w", err)
	}
	return nil
}

// writable is the file of a state as QEMU gets it, which writes to it as it loads the state. Above one
// that is others' as well lies a layer that takes what is written. The lab makes that: a QEMU that
// records, and has not run yet, does not get to the end of a job that would.
func (z Freezer) writable(ctx context.Context, lent Lent) (object, error) {
	file := object{"driver": "file", "filename": lent.At}
	if lent.Ours {
		return file, nil
	}
	file["read-only"] = true
	if err := z.Files.Give(ctx, stateName, emptyQcow2(lent.Size+stateGrows)); err != nil {
		return nil, err
	}
	return object{
		"driver": "qcow2", "file": object{"driver": "file", "filename": z.Files.At(stateName)},
		"backing": object{"driver": "raw", "read-only": true, "offset": lent.Skip, "file": file},
	}, nil
}

// unusable blames the state for QEMU's refusal of it. A machine that has gone
// away meanwhile, or a caller that gave up, is not its fault.
func (z Freezer) unusable(ctx context.Context, s vm.Spec, err error) error {
	var refused *qmp.Error
	var failed *jobError
	if ctx.Err() == nil && (errors.As(err, &refused) || errors.As(err, &failed)) {
		return &vm.StateError{File: s.State, Err: err}
	}
	return err
}

// jobError is QEMU's own word for why a job failed.
type jobError struct{ job, why string }

func (e *jobError) Error() string { return "QEMU job " + e.job + ": " + e.why }

// job runs one of the commands that QEMU does in the background, to its end.
func (z Freezer) job(ctx context.Context, command string, args object) error {
	ctx, cancel := context.WithTimeout(ctx, jobLimit)
	defer cancel()
	const id = "lab"
	args["job-id"] = id
	if err := z.Monitor.Execute(ctx, command, args, nil); err != nil {
		return err
	}
	for {
		var jobs []struct{ ID, Status, Error string }
		if err := z.Monitor.Execute(ctx, "query-jobs", nil, &jobs); err != nil {
			return err
		}
		for _, j := range jobs {
			if j.ID != id || j.Status != "concluded" {
				continue
			}
			if err := z.Monitor.Execute(ctx, "job-dismiss", object{"id": id}, nil); err != nil {
				return err
			}
			if j.Error != "" {
				return &jobError{command, j.Error}
			}
			return nil
		}
		select {
		case <-time.After(jobInterval):
		case <-ctx.Done():
			return fmt.Errorf("QEMU job %s: %w", command, ctx.Err())
		}
	}
}
