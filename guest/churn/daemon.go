package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"kerninst/agent/ktext"
	"kerninst/agent/plan"
	"kerninst/agent/wire"
	"kerninst/guest/check"
)

// daemonProgram is the daemon, where guests have it.
const daemonProgram = "/sbin/kerninstd"

// daemonStride: of its steps, which are some thousands, for it opens the device, reserves memory and reads the kernel as well, each so
// manyth is one at which it is killed where a caller is at each.
const daemonStride = 16

// mostOfJob is how many points its batches have, at the most.
const mostOfJob = 12

// recording appends a record, so that there are rings.
const recording = "c0 ring 16 1\nv0 u64 = cycles\nappend c0 v0"

// batches are the names of the job's.
var batches = []string{"first", "again"}

// byEach are points of which there is one by each mechanism, as some plans have them.
func (k *kernel) byEach(plans []*plan.Plan) (out []*wire.Point) {
	for _, m := range k.usable() {
		for _, p := range plans {
			if p.Mechanism == m {
				out = append(out, &wire.Point{Function: p.Symbol, Offset: uint64(p.Offset), Mechanism: m.String()})
				break
			}
		}
	}
	return out
}

// batch has points by each mechanism, instructions of a function, records, and a copy.
func (d *daemons) batch(name string) *wire.Step {
	call := func(name string) string { return ktext.Syscall(runtime.GOARCH, name) }
	all := append([]*wire.Point{
		{Function: call("getppid"), Entry: true},
		{Function: call("getuid"), Entry: true, Actions: []*wire.Action{{Name: "trace", Snippet: recording}}},
	}, d.points...)
	all = append(all, &wire.Point{Function: "vfs_fsync_range", Each: wire.Each_INSTRUCTION})
	return &wire.Step{Name: name, Do: &wire.Step_Splice{Splice: &wire.Splice{SkipRefused: true, Most: mostOfJob, Points: all,
		Clones: []*wire.Cloning{{Entry: d.cloned, Rules: []*wire.Rule{{}}}},
	}}}
}

// daemons do jobs, one after the other.
type daemons struct {
	points    []*wire.Point // by each mechanism
	cloned    string        // of which there is a copy
	job, port string
}

func newDaemons(points []*wire.Point, cloned string) (*daemons, error) {
	dir, err := os.MkdirTemp("", "daemon")
	return &daemons{points, cloned, filepath.Join(dir, "job"), filepath.Join(dir, "port")}, err
}

func takenBack(name string) *wire.Step {
	return &wire.Step{Name: "taken back", Do: &wire.Step_Unsplice{Unsplice: &wire.Unsplice{Splice: name}}}
}

// whole is one that makes a batch, takes it back and makes another, and is killed at the n-th step of all its calls.
func (d *daemons) whole(n int) (*exec.Cmd, error) {
	c, err := d.one(d.batch(batches[0]), takenBack(batches[0]), d.batch(batches[1]))
	return c, errors.Join(err, arm(killNth, n))
}

// made is the step in which it is said how far it is to the step at which a daemon is killed.
const made = "made"

// single is one that makes a batch and takes it back, and is killed at the n-th step from when it begins to plan that.
func (d *daemons) single(n int) (*exec.Cmd, error) {
	shell := func(name, command string) *wire.Step {
		return &wire.Step{Name: name, Do: &wire.Step_Run{Run: &wire.Run{Argv: []string{"/bin/sh", "-c", command}}}}
	}
	return d.one(shell("count", fmt.Sprintf("echo %d >%s", n, killNth)), d.batch(batches[0]), shell(made, "cat "+killNth), takenBack(batches[0]))
}

// uncounted is a step that no daemon comes to.
const uncounted = 1 << 20

// toMake is how many steps it is from there to when the batch is made.
func (d *daemons) toMake() (int, error) {
	c, err := d.single(uncounted)
	if err != nil {
		return 0, err
	}
	if err := errors.Join(c.Run(), arm(killNth, 0)); err != nil {
		return 0, err
	}
	said, err := results(d.port)
	if err != nil {
		return 0, err
	}
	left, err := strconv.Atoi(strings.TrimSpace(string(said[made].GetRuns()[0].GetStdout())))
	return uncounted - left, err
}

func (d *daemons) one(steps ...*wire.Step) (*exec.Cmd, error) {
	text, err := proto.Marshal(&wire.Job{Steps: steps})
	if err != nil {
		return nil, err
	}
	err = errors.Join(os.WriteFile(d.job, text, 0o600), os.WriteFile(d.port, nil, 0o600))
	return exec.Command(daemonProgram, "-job", d.job, "-port", d.port), err
}

// have checks what the last that was whole, and nobody killed, had in each batch: all that there is to be killed at.
func (d *daemons) have(mechanisms []plan.Mechanism) error {
	said, err := results(d.port)
	if err != nil {
		return err
	}
	for _, name := range batches {
		res := said[name]
		by, records, copies, refused := map[string]int{}, 0, 0, ""
		for _, p := range res.GetPoints() {
			if p.Refusal != nil {
				refused += fmt.Sprintf("; %s: %s: %s", p.Spec, p.Refusal.Reason, p.Refusal.Detail)
			} else {
				by[p.Mechanism]++
				for _, tag := range p.Tags {
					records += min(1, int(tag))
				}
			}
		}
		for _, c := range res.GetClones() {
			if c.Refusal == nil {
				copies += len(c.Functions)
			}
		}
		of, least := " of the daemon's batch "+name, len(res.GetPoints())
		for _, m := range mechanisms {
			least = min(least, by[m.String()])
		}
		check.Report("points by each mechanism"+of, least, least > 0, "%v%s", by, refused)
		check.Report("functions that are copied"+of, copies, copies > 0, "%v", res.GetClones())
		check.Report("records"+of, records, records > 0, "%s", res.GetError())
	}
	return nil
}

// results are those of steps, in a daemon's records.
func results(port string) (map[string]*wire.Result, error) {
	b, err := os.ReadFile(port)
	if err != nil {
		return nil, err
	}
	out, r, parts := map[string]*wire.Result{}, bufio.NewReader(bytes.NewReader(b)), wire.Parted{}
	for {
		rec := &wire.Record{}
		if err := protodelim.UnmarshalFrom(r, rec); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		if rec, err = parts.Add(rec); err != nil {
			return nil, err
		}
		if res := rec.GetResult(); res != nil {
			out[res.Step] = res
		}
	}
}
