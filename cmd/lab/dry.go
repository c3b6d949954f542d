package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"kerninst/images"
	"kerninst/lab/oracle"
	"kerninst/lab/qemu"
	"kerninst/lab/runner"
	"kerninst/lab/vm"
	"kerninst/scenarios"
)

// Names of what a command line needs and a dry run does not make.
const (
	dryRunDir = "/RUNDIR" // of one guest
	dryImage  = "/IMAGE"  // that is not in the cache
)

// dryDocument is what --dry-run prints: all that a command would do, which is
// not done.
type dryDocument struct {
	Schema int       `json:"schema"`
	DryRun bool      `json:"dry_run"`
	Arches []dryArch `json:"arches"`
}

type dryArch struct {
	Arch   string           `json:"arch"`
	Kernel string           `json:"kernel,omitempty"` // uname -r; empty: the image is not cached
	Cached bool             `json:"cached"`           // or the image would be fetched and built
	Wants  string           `json:"wants,omitempty"`  // release that would be used if it is not; empty: not known here
	Note   string           `json:"note,omitempty"`   // what would be fetched, for people
	QEMU   string           `json:"qemu"`
	Guests []runner.Planned `json:"guests"`
}

// dryImageOf is the image of an ISA as far as the cache has it.
func (c *common) dryImageOf(ctx context.Context, arch string) (*images.Image, images.Options, error) {
	c.look = true
	img, opts, err := c.image(ctx, arch)
	if errors.Is(err, images.ErrNotCached) {
		return &images.Image{Arch: arch, Kernel: dryImage + "/kernel", Base: dryImage + "/initramfs"}, opts, nil
	}
	return img, opts, err
}

// dry plans the guests that ask gives for a runner.
func (c *common) dry(ctx context.Context, arch string, o *own, r runner.Runner, ask func(*runner.Runner) []runner.Request) (dryArch, error) {
	d := dryArch{Arch: arch, Guests: []runner.Planned{}}
	version, err := qemu.FindVersion(ctx, arch)
	if err != nil {
		return d, err
	}
	img, opts, err := c.dryImageOf(ctx, arch)
	if err != nil {
		return d, err
	}
	d.QEMU, d.Kernel, d.Cached = version.String(), img.Release, img.Release != ""
	if !d.Cached {
		f, err := images.Foresee(opts)
		if err != nil {
			return d, kernelError(err)
		}
		d.Wants, d.Note = f.Release, f.String(opts.Kernel)
	}
	r.Image, r.Backend, r.Progress = img, qemu.Backend{}, progress
	for source, to := range map[string]*string{oracle.Plugin: &r.Plugin, oracle.CallsPlugin: &r.Calls} {
		if *to, err = plugin(ctx, opts, version, source); errors.Is(err, images.ErrNotCached) {
			*to = dryImage + "/plugin.so"
		} else if err != nil {
			return d, err
		}
	}
	files, err := images.Add(o.adds)
	if err != nil {
		return d, usage(fmt.Errorf("--add %w", err))
	}
	if d.Cached {
		brought, err := o.brought(ctx, img, opts)
		if errors.Is(err, images.ErrNotCached) {
			for _, name := range o.with {
				brought = runner.WithOthers(brought, images.SoftwarePrograms(name))
			}
		} else if err != nil {
			return d, err
		}
		files = append(files, brought...)
	}
	if r.Own, err = o.wishes(img, files); err != nil {
		return d, err
	}
	made := runner.New(r)
	for _, q := range ask(made) {
		p, err := made.Plan(ctx, q, dryRunDir)
		if err != nil {
			return d, usage(fmt.Errorf("%s: %w", q.Name, err))
		}
		d.Guests = append(d.Guests, p)
	}
	return d, nil
}

// dryOne prints what forOne's guest would be.
func (c *common) dryOne(ctx context.Context, arch string, o *own, q runner.Request) error {
	q.CPUs, q.Time = 1, cmp.Or(q.Time, vm.Host)
	a, err := c.dry(ctx, arch, o, runner.Runner{Seed: 1}, func(*runner.Runner) []runner.Request { return []runner.Request{q} })
	if err != nil {
		return err
	}
	return dryDocument{Schema: 1, DryRun: true, Arches: []dryArch{a}}.print(false)
}

// planned is what `lab run` would do.
func (f *runFlags) planned(ctx context.Context, isas []string) (doc dryDocument, err error) {
	list, err := scenarios.Select(f.scenario)
	if err != nil {
		return doc, usage(err)
	}
	defer func() { f.look = false }()
	doc = dryDocument{Schema: 1, DryRun: true}
	for _, isa := range isas {
		a, err := f.dry(ctx, isa, &f.own, runner.Runner{Seed: f.seed, Jobs: f.jobs}, func(r *runner.Runner) []runner.Request {
			env := scenarios.Env{Arch: isa, Runner: r, Time: vm.Time(f.time), Programs: map[string]images.File{}, Software: map[string][]images.File{}, Taps: map[string][]images.File{}, Modules: map[string][]images.File{}, Index: images.File{Path: daemonIndex}}
			for _, s := range list {
				for _, g := range s.Guests(isa) {
					for _, p := range g.Programs {
						env.Programs[p] = images.File{Path: scenarios.ProgramPath(p)}
					}
					for _, name := range g.Software {
						env.Software[name] = images.SoftwarePrograms(name)
					}
					env.Taps[scenarios.TapsKey(g.Taps)] = images.SystemTapModules(g.Taps)
					if len(g.Modules) > 0 {
						env.Modules[scenarios.ModulesKey(g.Modules)] = []images.File{{Path: images.ModuleList}}
					}
				}
			}
			return env.Requests(list)
		})
		if err != nil {
			return doc, err
		}
		doc.Arches = append(doc.Arches, a)
	}
	return doc, nil
}

// print writes the document, or the commands for a shell.
func (d dryDocument) print(asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(d)
	}
	for _, a := range d.Arches {
		image := "kernel " + a.Kernel + ", cached"
		if !a.Cached {
			image = "image not cached, would be made (" + dryImage + "); " + a.Note
		}
		fmt.Printf("# %s: %s; QEMU %s; each guest in a folder of its own (%s)\n", a.Arch, image, a.QEMU, dryRunDir)
		for _, g := range a.Guests {
			how := "boots"
			if g.Start == "golden" {
				how = "goes on from a golden state"
			}
			fmt.Printf("# %s: %s; CPUs %d, %d MiB, %s time, seed %d", g.Name, how, g.CPUs, g.MemMiB, g.Time, g.Seed)
			if len(g.Files) > 0 {
				fmt.Printf("; with %s", strings.Join(g.Files, " "))
			}
			fmt.Printf("\n%s\n", qemu.Quote(g.Argv))
		}
	}
	return nil
}
