package e2e

import (
	"context"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"testing"

	"kerninst/agent/ktext"
	"kerninst/images"
	"kerninst/lab/analysis"
	"kerninst/lab/oracle"
	"kerninst/lab/qemu"
	"kerninst/lab/replay"
	"kerninst/lab/runner"
)

// traceLoad touches many parts of a kernel: files, pipes, processes, sockets,
// memory, tracepoints that come and go, and the files that tell of the kernel. One round of it takes more than
// perRound instructions.
const traceLoad = `for i in $(seq %d); do
for e in sched kmem filemap timer signal; do echo $((i %% 2)) >/sys/kernel/tracing/events/$e/enable; done
find / -xdev -type f | head -n 400 | xargs cat >/dev/null 2>&1
cat /proc/*/stat /proc/*/maps /proc/meminfo /proc/interrupts /proc/net/* >/dev/null 2>&1
dd if=/dev/zero of=/tmp/x bs=4k count=200 2>/dev/null; cp /tmp/x /tmp/y; mv /tmp/y /tmp/z; ln -s z /tmp/l; ls -lR /sys/class >/dev/null; rm /tmp/x /tmp/z /tmp/l
mkdir -p /tmp/m; mount -t tmpfs t /tmp/m; echo x >/tmp/m/x; umount /tmp/m
sleep 9 & kill $!; wait
echo a | tr a b | sort | uniq | wc >/dev/null
done; echo 0 >/sys/kernel/tracing/events/enable`

const perRound = 2_000_000

var full = flag.Bool("full", false, "100,000,000 instructions for each ISA, and all registers against the slow solver")

// traceInsns is how many kernel instructions are replayed for each ISA.
func traceInsns() int {
	if *full {
		return 100_000_000
	}
	return 10_000_000
}

// TestTrace replays what a guest's kernel executed under load against its own
// graph and live registers: no edge is missing, and nothing that was called dead
// is read.
func TestTrace(t *testing.T) {
	t.Parallel()
	for _, arch := range images.Arches() {
		t.Run(arch, func(t *testing.T) {
			ctx := context.Background()
			version, err := qemu.FindVersion(ctx, arch)
			if err != nil {
				t.Fatal(err)
			}
			root, err := filepath.Abs("../..")
			if err != nil {
				t.Fatal(err)
			}
			opts := images.Options{Arch: arch, Root: root, Progress: t.Logf}
			img, err := images.Ensure(ctx, opts)
			if err != nil {
				t.Fatal(err)
			}
			plugin, err := images.BuildPlugin(ctx, opts, filepath.Join(root, replay.Plugin),
				fmt.Sprintf("PLUGIN_VERSION=%d", oracle.InterfaceVersion(version.Major)),
				fmt.Sprintf("TRACE_INSNS=%dull", traceInsns()))
			if err != nil {
				t.Fatal(err)
			}
			r := runner.New(runner.Runner{Image: img, Backend: qemu.Backend{}, Plugin: plugin, Seed: 1, Jobs: 1, Progress: t.Logf})
			if err := r.Trace(ctx, fmt.Sprintf(traceLoad, traceInsns()/perRound+1), traceInsns(), func(d *ktext.Dump, trace io.Reader) error { return replayed(t, d, trace) }); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func replayed(t *testing.T, d *ktext.Dump, trace io.Reader) error {
	k, err := analysis.Analyse(d)
	if err != nil {
		return err
	}
	rep, err := replay.Check(trace, k.Graph, k.Live, k.Text)
	if err != nil {
		return err
	}
	t.Logf("%s: %d instructions, %d different; %d direct edges, %d returns, %d indirect, %d exceptions, %d runs outside\n%s",
		d.Arch, rep.Instructions, rep.Executed, rep.Direct, rep.Returns, rep.Indirect, rep.Exceptions, rep.Outside, replay.Most(rep.Odd, 12))
	if rep.Instructions < traceInsns()/2 || rep.Direct < rep.Instructions/100 || rep.Returns < rep.Instructions/1000 {
		t.Errorf("%+v: too little to mean anything", rep)
	}
	t.Logf("proof trace %s %d", d.Arch, rep.Instructions)
	return rep.Err()
}
