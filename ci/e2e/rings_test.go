package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"kerninst/agent/ask"
	"kerninst/agent/ktext"
	actions "kerninst/agent/probe"
	"kerninst/agent/wire"
	"kerninst/images"
	"kerninst/lab/qemu"
	"kerninst/lab/runner"
	"kerninst/lab/vm"
)

// mostToDrain is how many instructions a record may take the daemon to read into memory of its
// own, the kernel's for it included.
const mostToDrain = 100

// seeks is how many records are made in exact time, besides as many to warm up.
func seeks() int {
	if *full {
		return 5_000_000
	}
	return 100_000
}

// traced runs seeks with a trace of where they go to, and gives away each record.
func traced(t *testing.T, arch string, q runner.Request, do string, ringKiB uint32, argv []string, got func(actions.Event)) (sum actions.Traced, run *wire.Result, count uint64) {
	t.Helper()
	sum, run, values := tracedAt(t, arch, q, []string{"kinst::generic_file_llseek_size:entry"}, do, ringKiB, argv, got)
	return sum, run, values[0].Count
}

// tracedAt does so at several points, and gives the counts of all.
func tracedAt(t *testing.T, arch string, q runner.Request, specs []string, do string, ringKiB uint32, argv []string, got func(actions.Event)) (sum actions.Traced, run *wire.Result, counts []*wire.Value) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	img, err := images.Ensure(ctx, images.Options{Arch: arch, Root: root, Progress: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	asks := &ask.Request{Specs: specs, Do: []string{"count", do}, RingKiB: ringKiB, Argv: argv, Timeout: 10 * time.Minute, Live: true, Interval: time.Hour}
	if q.Job, err = asks.Job(actions.At{}); err != nil {
		t.Fatal(err)
	}
	q.Name = "rings"
	tracer := actions.Tracer{Got: got}
	q.See = tracer.See
	r := runner.New(runner.Runner{Image: img, Backend: qemu.Backend{}, Seed: 1, Jobs: 1, Progress: t.Logf})
	g := r.Start(ctx, q).Wait()
	if g.Err != nil {
		t.Fatal(g.Err)
	}
	results := map[string]*wire.Result{}
	for _, rec := range g.Outcome.Records {
		if res := rec.GetResult(); res != nil {
			results[res.Step] = res
		}
	}
	for _, step := range []string{"splice", "workload", "read"} {
		if res := results[step]; res == nil || res.Error != "" {
			t.Fatalf("%s: %v, %s", step, res.GetError(), g.Outcome.Summary)
		}
	}
	run = results["workload"]
	if run.Runs[0].Exit != 0 {
		t.Fatalf("the workload exits with %d: %s", run.Runs[0].Exit, run.Runs[0].Stderr)
	}
	counts = slices.DeleteFunc(results["read"].Values, func(v *wire.Value) bool { return v.Action != "count" })
	return tracer.End(), run, counts
}

// TestRings: each record of a program that makes them as fast as it can is there, once and in
// order, from rings of a MiB, and it takes few instructions to read; rings that are too small
// lose records, and it is known how many.
func TestRings(t *testing.T) {
	t.Parallel()
	for _, arch := range images.Arches() {
		t.Run(arch, func(t *testing.T) {
			n := seeks()
			bench := []string{"/lib/kerninst/bench/bench", "seek", strconv.Itoa(n), "1"}
			next, last := uint64(0), actions.NoTime
			sum, run, count := traced(t, arch, runner.Request{CPUs: 1, Time: vm.Exact}, "trace(arg1, arg0)", 1024, bench, func(e actions.Event) {
				if e.NS < last {
					t.Errorf("a record of %d ns is behind one of %d ns", e.NS, last)
				}
				last = e.NS
				if e.Fields[0] == next && next < uint64(2*n) { // others seek, too
					next++
				}
			})
			if next != uint64(2*n) || sum.Lost != 0 || sum.Unfinished != 0 || sum.Records != count {
				t.Errorf("%d records of %d in order, %+v, %d were counted", next, 2*n, sum, count)
			}
			var took []float64 // to read, and to send
			for _, g := range run.Stages {
				took = append(took, float64(g.Ns)/float64(count))
			}
			t.Logf("proof rings %s %d", arch, sum.Records)
			t.Logf("%s: %.1f instructions to read and to send a record", arch, took)
			if len(took) != 2 || took[0] <= 0 || took[0] > mostToDrain {
				t.Errorf("a record takes %.1f instructions to read and to send, of the former the most is %d", took, mostToDrain)
			}
		})
		t.Run(arch+", two CPUs, small", func(t *testing.T) {
			const n = 20_000
			sh := fmt.Sprintf("b=/lib/kerninst/bench/bench; taskset 1 $b seek %d 1 & taskset 2 $b seek %[1]d 1; wait", n)
			next := [2]uint64{}
			sum, _, count := traced(t, arch, runner.Request{CPUs: 2, Time: vm.Host}, "trace(arg1, cycles)", 4, []string{"/bin/sh", "-c", sh}, func(e actions.Event) {
				if at := &next[e.CPU]; e.Fields[0] >= *at { // in order, though not all
					*at = e.Fields[0] + 1
				} else if e.Fields[0] > 1 {
					t.Errorf("CPU %d: record of %d behind one of %d", e.CPU, e.Fields[0], *at-1)
				}
			})
			if sum.Lost == 0 || sum.Records == 0 || sum.Records+sum.Lost+sum.Unfinished != count || count < 4*n {
				t.Errorf("%+v, %d were counted", sum, count)
			}
			t.Logf("%s: %+v of %d", arch, sum, count)
		})
	}
}

// seekPath is what a seek comes by, in that order.
func seekPath(arch string) []string {
	return []string{ktext.Syscall(arch, "lseek"), "generic_file_llseek_size"}
}

// TestWords: records without a time are there, once and in the order in which a program calls
// functions, which they are all that is known of; as many as come by are read or lost, of each
// function as many as its counter says where none is lost, though on two CPUs who writes them is
// interrupted and taken to the other.
func TestWords(t *testing.T) {
	t.Parallel()
	for _, arch := range images.Arches() {
		t.Run(arch, func(t *testing.T) {
			n := seeks()
			bench := []string{"/lib/kerninst/bench/bench", "seek", strconv.Itoa(n), "1"}
			path := seekPath(arch)
			var specs []string
			for _, f := range path {
				specs = append(specs, "kinst::"+f+":entry")
			}
			came := map[string]uint64{}
			whole, at := uint64(0), 0 // paths, and how far one is
			sum, run, counts := tracedAt(t, arch, runner.Request{CPUs: 1, Time: vm.Exact}, specs, "trace()", 1024, bench, func(e actions.Event) {
				came[e.Spec]++
				if e.NS != actions.NoTime || len(e.Fields) != 0 {
					t.Fatalf("%+v has a time, or words", e)
				}
				switch {
				case strings.HasPrefix(e.Spec, "kinst::"+path[at]+":"):
					at++
				case strings.HasPrefix(e.Spec, "kinst::"+path[0]+":"):
					at = 1 // others' seek elsewhere
				default:
					at = 0
				}
				if at == len(path) {
					whole, at = whole+1, 0
				}
			})
			all := uint64(0)
			for _, v := range counts {
				if all += v.Count; came[v.Spec] != v.Count {
					t.Errorf("%s: %d records, %d were counted", v.Spec, came[v.Spec], v.Count)
				}
			}
			if len(counts) != len(path) || whole < uint64(2*n) || sum.Lost != 0 || sum.Unfinished != 0 || sum.Records != all {
				t.Errorf("%d paths of %d, %+v, %d were counted at %d points", whole, 2*n, sum, all, len(counts))
			}
			t.Logf("proof words %s %d", arch, sum.Records)
			t.Logf("%s: %.1f instructions to read and to send a record", arch, float64(run.Stages[0].Ns+run.Stages[1].Ns)/float64(all))
		})
		t.Run(arch+", two CPUs, small", func(t *testing.T) {
			const n = 20_000
			sh := fmt.Sprintf("b=/lib/kerninst/bench/bench; $b seek %d 1 & $b seek %[1]d 1 & $b seek %[1]d 1; wait", n)
			sum, _, count := traced(t, arch, runner.Request{CPUs: 2, Time: vm.Host}, "trace()", 4, []string{"/bin/sh", "-c", sh}, func(actions.Event) {})
			if sum.Lost == 0 || sum.Records == 0 || sum.Records+sum.Lost+sum.Unfinished != count || count < 6*n {
				t.Errorf("%+v, %d were counted", sum, count)
			}
			t.Logf("%s: %+v of %d", arch, sum, count)
		})
	}
}
