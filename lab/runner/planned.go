package runner

import (
	"context"

	"kerninst/lab/qemu"
	"kerninst/lab/vm"
)

// Planned is a guest that somebody might ask for.
type Planned struct {
	Name   string   `json:"name"`
	Start  string   `json:"start"` // boot, or golden: from a state that is made if it is not there
	CPUs   int      `json:"cpus"`
	MemMiB int      `json:"mem_mib"`
	Time   vm.Time  `json:"time"`
	Seed   uint64   `json:"seed"`
	Files  []string `json:"files,omitempty"` // added to the guest
	Argv   []string `json:"argv"`            // of QEMU, in its run directory
}

// Plan says how a request would be started, with dir for its run directory. An
// error is the one that the start would give, of a machine that cannot be.
func (r *Runner) Plan(ctx context.Context, q Request, dir string) (Planned, error) {
	q = r.Own.of(q)
	spec := r.spec(q, dir)
	spec.Initrd = dir + "/initrd"
	p := Planned{Name: q.Name, Start: "boot", CPUs: spec.CPUs, MemMiB: spec.MemMiB, Time: spec.Time, Seed: spec.Seed}
	if r.fromGolden(q) {
		initrd := spec.Initrd
		spec = r.waiting(q, dir)
		p.Start, spec.Initrd, spec.State = "golden", initrd, dir+"/"+stateFile
	}
	for _, f := range q.Files {
		p.Files = append(p.Files, f.Path)
	}
	version, err := qemu.FindVersion(ctx, r.Image.Arch)
	if err != nil {
		return p, err
	}
	p.Argv, err = qemu.Argv(spec, version)
	return p, err
}
