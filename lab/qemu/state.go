package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"kerninst/agent/wire"
	"kerninst/lab/qmp"
	"kerninst/lab/untrusted"
	"kerninst/lab/vm"
)

// A state is kept as an internal snapshot of a qcow2 file that belongs to no
// device of the machine. stateNode and stateTag name file and snapshot to QEMU.
const (
	stateNode = "state"
	stateTag  = "ready"
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
	Exact   bool   // exact time
	PID     int    // of QEMU; 0: it is not known
	Dir     string // the machine's run directory
	// Root is the same as QEMU has it: empty for one that works there.
	Root string
	// Give makes a file QEMU's. It is nil if QEMU runs as the lab's user.
	Give func(path string) error
}

func (m *machine) freezer() Freezer {
	return Freezer{Monitor: m.monitor, Arch: m.arch, Exact: m.exact, PID: m.Pid(), Dir: m.dir, Give: m.jail.give}
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
	if err := z.stillUnread(); err != nil {
		return err
	}
	if stopped != nil {
		return stopped
	}
	return z.save(ctx, file)
}

// save writes the state of a machine that is stopped.
func (z Freezer) save(ctx context.Context, file string) error {
	if err := z.makeState(ctx, filepath.Join(z.Root, stateName)); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	if err := z.job(ctx, "snapshot-save", object{"tag": stateTag, "vmstate": stateNode, "devices": []string{stateNode}}); err != nil {
		return err
	}
	if err := copyTo(file, filepath.Join(z.Dir, stateName)); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	if z.Exact {
		if err := clearCount(file); err != nil {
			return fmt.Errorf("state file: %w", err)
		}
	}
	return z.saveTimers(ctx, file)
}

// copyTo copies a file of the run directory, or into it.
func copyTo(dst, src string) error {
	in, err := untrusted.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := untrusted.Create(dst)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// takeState moves the state that a machine goes on from into its run directory
// and gives it to QEMU.
func (z Freezer) takeState(file string) error {
	mine := filepath.Join(z.Dir, stateName)
	err := os.Rename(file, mine)
	if errors.Is(err, syscall.EXDEV) {
		if err = copyTo(mine, file); err == nil {
			err = os.Remove(file)
		}
	}
	if err != nil {
		return err
	}
	if z.Give == nil {
		return nil
	}
	return z.Give(mine)
}

// ErrLooked says that QEMU did not stop the machine when it should have.
var ErrLooked = errors.New("the guest looked for mail before its watchdog stopped it: this QEMU's i6300esb does not do what the lab relies on")

// stillUnread fails when the guest has looked into its mailbox already.
func (z Freezer) stillUnread() error {
	box, err := untrusted.Open(filepath.Join(z.Dir, mailboxFile))
	if err != nil {
		return fmt.Errorf("mailbox: %w", err)
	}
	defer box.Close()
	var looked [1]byte
	if _, err := box.ReadAt(looked[:], wire.MailboxLooked); err != nil {
		return fmt.Errorf("mailbox: %w", err)
	}
	if looked[0] != 0 {
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
	if err := z.takeState(s.State); errors.Is(err, fs.ErrNotExist) {
		return &vm.StateError{File: s.State, Err: err}
	} else if err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	add := object{"driver": "qcow2", "node-name": stateNode, "file": object{"driver": "file", "filename": filepath.Join(z.Root, stateName)}}
	if err := z.Monitor.Execute(ctx, "blockdev-add", add, nil); err != nil {
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
	if err := os.Remove(filepath.Join(z.Dir, stateName)); err != nil {
		return err
	}
	box, err := untrusted.OpenToWrite(filepath.Join(z.Dir, mailboxFile))
	if err != nil {
		return fmt.Errorf("mailbox: %w", err)
	}
	_, err = box.WriteAt(s.Mail, 0)
	return errors.Join(err, box.Close())
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
