package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"google.golang.org/protobuf/proto"

	"kerninst/agent/ktext"
	"kerninst/agent/wire"
)

// daemonProgram is the daemon, where guests have it.
const daemonProgram = "/sbin/kerninstd"

// daemonStride: of its steps, which are some thousands, for it opens the device, reserves memory and makes rings as well, each so
// manyth is one at which it is killed where a caller is at each.
const daemonStride = 16

// mostOfJob is how many points its batches have, at the most.
const mostOfJob = 12

// recording appends a record, so that there are rings.
const recording = "c0 ring 16 1\nv0 u64 = cycles\nappend c0 v0"

// daemonJob makes a batch, takes it back and makes another: each instruction of a function, records, and a copy.
func daemonJob() *wire.Job {
	call := func(name string) string { return ktext.Syscall(runtime.GOARCH, name) }
	batch := func(name string) *wire.Step {
		return &wire.Step{Name: name, Do: &wire.Step_Splice{Splice: &wire.Splice{SkipRefused: true, Most: mostOfJob,
			Points: []*wire.Point{
				{Function: call("getppid"), Entry: true},
				{Function: call("getuid"), Entry: true, Actions: []*wire.Action{{Name: "trace", Snippet: recording}}},
				{Function: "vfs_read", Each: wire.Each_INSTRUCTION},
			},
			Clones: []*wire.Cloning{{Entry: call("getpgid"), Rules: []*wire.Rule{{Each: wire.Each_BLOCK}}}},
		}}}
	}
	return &wire.Job{Steps: []*wire.Step{batch("first"),
		{Name: "taken back", Do: &wire.Step_Unsplice{Unsplice: &wire.Unsplice{Splice: "first"}}}, batch("again")}}
}

// daemon is one that does that job, and is killed at the n-th step of all its calls.
func daemon(n int) (*exec.Cmd, error) {
	dir, err := os.MkdirTemp("", "daemon")
	if err != nil {
		return nil, err
	}
	job, port := filepath.Join(dir, "job"), filepath.Join(dir, "port")
	text, err := proto.Marshal(daemonJob())
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(job, text, 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(port, nil, 0o600); err != nil {
		return nil, err
	}
	return exec.Command(daemonProgram, "-job", job, "-port", port), arm(killNth, n)
}
