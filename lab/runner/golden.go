package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"kerninst/agent/wire"
	"kerninst/images"
	"kerninst/lab/golden"
	"kerninst/lab/qemu"
	"kerninst/lab/session"
	"kerninst/lab/untrusted"
	"kerninst/lab/vm"
)

// Guests do not boot each by itself: one of each kind boots, its state is kept when it
// is ready for a job, and all go on from there.

// Names in a run directory and in a golden state.
const (
	consoleFile = "console.log"
	stateFile   = "state"
)

// goldenFormat is part of every state's key: count it up when what a state holds
// changes and neither the image nor QEMU's arguments show it.
const goldenFormat = "2"

// mailModes make the guest wait for its job instead of bringing it along: until a time
// of its own clock, or until it is there.
var mailModes = map[vm.Time]string{vm.Exact: "lab.mode=mailbox", vm.Host: "lab.mode=polled"}

// fromGolden says whether a request starts from a state. Files that come with the
// initramfs have to be there when the guest boots, so they are part of its state: of
// those that are not to come again, none is kept.
func (r *Runner) fromGolden(q Request) bool {
	return !q.Boots && !r.underKVM(q) && (len(q.Files) == 0 || q.FilesAgain)
}

// waiting is a request's machine as it waits for its job.
func (r *Runner) waiting(q Request, dir string) vm.Spec {
	s := r.spec(q, dir)
	s.Mailbox, s.Append = true, mailModes[q.Time]+" "+q.Append
	return s
}

// notReady is what became of a guest that was to be kept and did not get ready.
type notReady struct{ outcome *session.Outcome }

func (e *notReady) Error() string { return "the guest did not get ready: " + e.outcome.Summary }

// noState says why the lab can neither have nor make a guest's state.
type noState struct{ why error }

func (e *noState) Error() string { return e.why.Error() }
func (e *noState) Unwrap() error { return e.why }

// restoredOrCold starts a guest of host time from its kind's state; one that can have
// none, because of its long job or of where states are kept, boots.
func (r *Runner) restoredOrCold(ctx context.Context, q Request, dir string) (*session.Outcome, error) {
	o, err := r.restored(ctx, q, dir)
	var none *noState
	if ctx.Err() != nil || !errors.As(err, &none) {
		return o, err
	}
	r.Progress("%s: boots, for there is no golden state: %v", q.Name, err)
	for _, f := range []string{stateFile, consoleFile} { // of a copy that was cut off
		if err := os.Remove(filepath.Join(dir, f)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return r.cold(ctx, q, dir)
}

// restored starts a guest from its kind's state. A state that QEMU does not take
// is made again, once.
func (r *Runner) restored(ctx context.Context, q Request, dir string) (*session.Outcome, error) {
	spec := r.waiting(q, dir)
	job, err := marshal(q.Job)
	if err != nil {
		return nil, err
	}
	mail, err := wire.SealMail(job)
	if err != nil {
		return nil, &noState{err}
	}
	key, err := r.key(ctx, spec, q.Files)
	if err != nil {
		return nil, err
	}
	store, err := golden.Open(r.Progress)
	if err != nil {
		return nil, err
	}
	for first := true; ; first = false {
		sums, err := store.Get(ctx, key, dir, func(to string) error { return r.boot(ctx, q, spec, to, dir) })
		var failed *notReady
		if errors.As(err, &failed) {
			return failed.outcome, nil
		} else if err != nil {
			return nil, &noState{err}
		}
		// The image's own initramfs will do: nobody boots from it.
		from := spec
		from.Initrd, from.State, from.Mail = r.Image.Base, filepath.Join(dir, stateFile), mail
		from.Sums = maps.Clone(from.Sums)
		from.Sums[from.State] = sums[stateFile]
		outcome, err := session.Do(ctx, r.session(q, from))
		if err != nil {
			return nil, err
		}
		var bad *vm.StateError
		if !first || !errors.As(outcome.Err, &bad) {
			return outcome, nil
		}
		if err := store.Discard(ctx, key, bad); err != nil {
			return nil, err
		}
	}
}

// key names the state of a kind of guest: its image, QEMU and who starts it, every argument
// that QEMU is started with, among them seed, CPUs, memory and command line, and what
// was added to its initramfs. In host time, amd64's TSC is the host's, and a guest has
// measured how fast that ticks: its state is of one boot of one host.
func (r *Runner) key(ctx context.Context, spec vm.Spec, files []images.File) (string, error) {
	version, err := qemu.FindVersion(ctx, spec.Arch)
	if err != nil {
		return "", err
	}
	spec.Kernel, spec.Firmware, spec.Initrd, spec.Plugins = "/kernel", "", "/initrd", nil // the manifest has their hashes
	argv, err := qemu.Argv(spec, version)
	if err != nil {
		return "", err
	}
	parts := append([]string{goldenFormat, version.String(), r.Through}, argv...)
	if spec.Time == vm.Host && spec.Arch == "amd64" {
		boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		if err != nil {
			return "", fmt.Errorf("golden state: %w", err)
		}
		parts = append(parts, string(boot))
	}
	for _, f := range r.Image.Manifest.Files {
		parts = append(parts, f.Name, f.SHA256)
	}
	for _, f := range files {
		sum, err := contents(f)
		if err != nil {
			return "", fmt.Errorf("golden state: %w", err)
		}
		parts = append(parts, f.Path, f.Mode.String(), f.Link, fmt.Sprint(f.Major, f.Minor), sum)
	}
	return golden.Key(parts...), nil
}

// contents is the hash of what a file holds.
func contents(f images.File) (string, error) {
	h := sha256.New()
	h.Write(f.Data)
	if f.Source != "" {
		in, err := os.Open(f.Source)
		if err != nil {
			return "", err
		}
		defer in.Close()
		if _, err := io.Copy(h, in); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// boot boots a guest and keeps its state and console in the folder to. Of one
// that does not get ready, the console is left in failed.
func (r *Runner) boot(ctx context.Context, q Request, spec vm.Spec, to, failed string) error {
	r.Progress("%s: booting a guest to start from", spec.Arch)
	dir, err := qemu.NewRunDir()
	if err != nil {
		return err
	}
	defer dir.Close()
	spec.Dir, spec.Plugins = dir.Path, nil
	if spec.Initrd, err = r.initrd(dir.Path, nil, q.Files...); err != nil {
		return err
	}
	cfg := r.session(q, spec)
	cfg.Keep, cfg.Heeds = false, false
	frozen := make(chan error, 1)
	cfg.OnStart = func(m vm.Machine) {
		go func() {
			err := freeze(ctx, m, filepath.Join(to, stateFile))
			frozen <- err
			m.Kill()
		}()
	}
	outcome, err := session.Do(ctx, cfg)
	if err != nil {
		return err
	}
	if outcome.Err != nil {
		return outcome.Err
	}
	err = <-frozen
	console := filepath.Join(dir.Path, consoleFile)
	if err == nil {
		return copyFile(filepath.Join(to, consoleFile), console)
	}
	// The lab is to blame if QEMU cannot be relied on, or was killed by a lab that
	// gave up.
	if errors.Is(err, qemu.ErrLooked) || outcome.Kind == session.QEMUKilled {
		return fmt.Errorf("golden state: %w", err)
	}
	return errors.Join(copyFile(filepath.Join(failed, consoleFile), console), &notReady{outcome})
}

func freeze(ctx context.Context, m vm.Machine, file string) error {
	f, ok := m.(vm.Freezer)
	if !ok {
		return errors.New("this kind of machine cannot be kept")
	}
	return f.Freeze(ctx, file)
}

func copyFile(dst, src string) error {
	b, err := untrusted.Read(src, consoleKept)
	if err != nil {
		return err
	}
	return os.WriteFile(dst, b, 0o600)
}
