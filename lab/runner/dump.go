package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"kerninst/agent/ktext"
	"kerninst/agent/wire"
	"kerninst/images"
	"kerninst/lab/golden"
	"kerninst/lab/qemu"
	"kerninst/lab/status"
	"kerninst/lab/vm"
)

// dumpFormat is part of every dump's key: count it up when what a dump holds
// changes. The rest of the key is the kernel and the machine: a dump says nothing
// of our own module, so it outlives changes to daemon and module.
const dumpFormat = "dump 2"

// dumpFile is the name of a dump in its entry of the cache.
const dumpFile = "kernel.dump"

// Dump returns what the kernel of the runner's image looks like in memory once
// it has booted, with text to be added to its command line: from the cache, or
// from a guest of exact time that is started for it.
func (r *Runner) Dump(ctx context.Context, appendix string) (*ktext.Dump, error) {
	return r.DumpWith(ctx, appendix, nil, nil)
}

// DumpWith is Dump with modules in the guest, which files load before anything else.
func (r *Runner) DumpWith(ctx context.Context, appendix string, modules []string, files []images.File) (*ktext.Dump, error) {
	q := Request{Files: files,
		Name: "dump", CPUs: 1, Time: vm.Exact, Append: appendix,
		Job: &wire.Job{Schema: 1, Steps: []*wire.Step{{Name: "dump", Do: &wire.Step_Dump{Dump: &wire.Dump{}}}}}}
	key, err := r.dumpKey(ctx, q, modules)
	if err != nil {
		return nil, err
	}
	store, err := golden.Open(r.Progress)
	if err != nil {
		return nil, err
	}
	dir, err := qemu.NewRunDir()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	for first := true; ; first = false {
		_, err := store.Get(ctx, key, dir.Path, func(to string) error { return r.makeDump(ctx, q, to) })
		if err != nil {
			return nil, err
		}
		b, err := os.ReadFile(filepath.Join(dir.Path, dumpFile))
		if err != nil {
			return nil, err
		}
		d, err := ktext.ReadDump(b)
		if err == nil || !first {
			return d, err
		}
		if err := store.Discard(ctx, key, err); err != nil {
			return nil, err
		}
	}
}

func (r *Runner) dumpKey(ctx context.Context, q Request, modules []string) (string, error) {
	version, err := qemu.FindVersion(ctx, r.Image.Arch)
	if err != nil {
		return "", err
	}
	spec := r.spec(q, "/run")
	spec.Kernel, spec.Firmware, spec.Initrd = "/kernel", "", "/initrd" // which firmware does not change the text
	argv, err := qemu.Argv(spec, version)
	if err != nil {
		return "", err
	}
	for _, f := range r.Image.Manifest.Files {
		if f.Name == "kernel" {
			key := append([]string{dumpFormat, f.SHA256, version.String()}, argv...)
			if len(modules) > 0 { // which files they are follows from the kernel
				key = append(append(key, "modules"), modules...)
			}
			return golden.Key(key...), nil
		}
	}
	return "", errors.New("dump: the image's manifest names no kernel")
}

// makeDump starts a guest and writes the dump that it sends.
func (r *Runner) makeDump(ctx context.Context, q Request, to string) error {
	r.Progress("%s: dumping the kernel's text", r.Image.Arch)
	g := r.Start(ctx, q).Wait()
	if g.Err != nil {
		return g.Err
	}
	if g.Outcome.Status != status.Passed {
		return fmt.Errorf("dump of the kernel's text: %s: %s", g.Outcome.Status, g.Outcome.Summary)
	}
	f, err := os.OpenFile(filepath.Join(to, dumpFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	for _, rec := range g.Outcome.Records {
		if c := rec.GetChunk(); c != nil && err == nil {
			_, err = f.Write(c.Data)
		}
	}
	return errors.Join(err, f.Close())
}
