package e2e

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"kerninst/agent/inline"
	"kerninst/agent/isa/all"
	"kerninst/agent/ktext"
	"kerninst/agent/wire"
	"kerninst/images"
	"kerninst/lab/analysis"
	"kerninst/lab/libvirt/libvirttest"
	"kerninst/lab/measure"
	"kerninst/lab/sweep"
)

// BenchmarkIndex measures, kernel by kernel and in turn, what objdump takes to
// print its functions to nowhere, what lab analyze takes from a dump to a stored
// index and from the index again, and what a guest takes to open that and to know
// a function.
func BenchmarkIndex(b *testing.B) {
	for _, arch := range all.Arches() {
		file := filepath.Join(b.TempDir(), "kernel.dump")
		if a := call(b, nil, "image", "dump", "--arch", arch.Name, file); a.code != 0 {
			b.Fatal(a)
		}
		b.Run(arch.Name+"/objdump", func(b *testing.B) { benchObjdump(b, file) })
		b.Run(arch.Name+"/dump-to-index", func(b *testing.B) { benchAnalyze(b, file) })
		b.Run(arch.Name+"/in-guest", func(b *testing.B) { benchGuest(b, arch.Name) })
	}
}

// readDump reads a dumped kernel: its bytes, and what they say.
func readDump(tb testing.TB, file string) ([]byte, *ktext.Dump) {
	tb.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	d, err := ktext.ReadDump(b)
	if err != nil {
		tb.Fatal(err)
	}
	return b, d
}

// benchObjdump is what the other figures are held against.
func benchObjdump(b *testing.B, file string) {
	_, d := readDump(b, file)
	arch, err := all.Lookup(d.Arch)
	if err != nil {
		b.Fatal(err)
	}
	text, err := d.Text(arch)
	if err != nil {
		b.Fatal(err)
	}
	pieces, err := sweep.Kernel(text)
	if err != nil {
		b.Fatal(err)
	}
	root, err := images.Toolchain(context.Background(), images.Options{Arch: d.Arch, Root: "../..", Progress: b.Logf})
	if err != nil {
		b.Fatal(err)
	}
	before := childrenTime(b)
	for b.Loop() {
		if err := sweep.Objdump(context.Background(), root, arch, pieces); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric((childrenTime(b)-before).Seconds()/float64(b.N), "cpu-s")
}

// childrenTime is what the programs that this process has waited for have had of
// the CPUs.
func childrenTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// ownTime is what this process has had of the CPUs.
func ownTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchAnalyze calls lab analyze with an empty store, then with what that left.
func benchAnalyze(b *testing.B, file string) {
	var cpu time.Duration
	var peak int64 // KiB
	var again analysis.Totals
	var size int64
	for b.Loop() {
		cache := b.TempDir()
		env := []string{"XDG_CACHE_HOME=" + cache}
		cmd := exec.Command(lab, "analyze", "--dump", file, "--json")
		cmd.Env = append(os.Environ(), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		peak = max(peak, cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)

		b.StopTimer()
		a := call(b, env, "analyze", "--dump", file, "--json")
		if err := json.Unmarshal([]byte(a.stdout), &again); err != nil || again.Seconds.Cached == 0 {
			b.Fatalf("%v: %v", err, a)
		}
		size = indexSize(b, cache)
		b.StartTimer()
	}
	b.ReportMetric(cpu.Seconds()/float64(b.N), "cpu-s")
	b.ReportMetric(float64(peak)/1024, "peak-MiB")
	b.ReportMetric(again.Seconds.Cached*1000, "reload-ms")
	b.ReportMetric(float64(size)/(1<<20), "index-MiB")
}

// indexSize is that of the one index in a cache, in bytes.
func indexSize(b *testing.B, cache string) int64 {
	files, err := filepath.Glob(filepath.Join(cache, "kerninst/golden/*/kernel.index"))
	if err != nil || len(files) != 1 {
		b.Fatal(files, err)
	}
	st, err := os.Stat(files[0])
	if err != nil {
		b.Fatal(err)
	}
	return st.Size()
}

// benchGuest says nothing of its own time, which is mostly that of booting.
func benchGuest(b *testing.B, arch string) {
	for b.Loop() {
		_, results := lookInGuest(b, arch)
		for _, res := range results {
			if res.Looked == nil {
				continue
			}
			if ns := res.Looked.WholeNs; ns > 0 {
				b.ReportMetric(float64(ns)/1e6, "all-text-ms")
			}
			b.ReportMetric(float64(res.Looked.OpenNs)/1e6, "open-ms")
			b.ReportMetric(medianNs(res.Looked)/1e6, res.Step+"-median-ms")
		}
	}
	b.ReportMetric(0, "ns/op")
}

// medianNs is what looking a function up takes.
func medianNs(l *wire.Looked) float64 {
	var ns []uint64
	for _, f := range l.Functions {
		ns = append(ns, f.Ns)
	}
	slices.Sort(ns)
	return float64(ns[len(ns)/2])
}

// BenchmarkCopies is what it takes to open what is known of a kernel's inlined copies, to look
// functions up, drawn from all, and to find the lines of a file. It is made first if the cache lacks it.
func BenchmarkCopies(b *testing.B) {
	root, err := filepath.Abs("../..")
	if err != nil {
		b.Fatal(err)
	}
	for _, arch := range all.Arches() {
		start := time.Now()
		x, err := analysis.Copies(context.Background(), images.Options{Arch: arch.Name, Root: root, Progress: b.Logf})
		if err != nil {
			b.Fatal(err)
		}
		b.Logf("%s: %+v, had after %.1f s", arch.Name, x.Stats, time.Since(start).Seconds())
		file, err := x.Bytes()
		if err != nil {
			b.Fatal(err)
		}
		b.Run(arch.Name+"/open", func(b *testing.B) {
			before := ownTime(b)
			for b.Loop() {
				if _, err := inline.Open(file); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((ownTime(b)-before).Milliseconds())/float64(b.N), "cpu-ms") // whatever else the host does
			b.ReportMetric(float64(len(file)), "bytes")
		})
		b.Run(arch.Name+"/lookup", func(b *testing.B) { benchLookup(b, x) })
		b.Run(arch.Name+"/line", func(b *testing.B) {
			for b.Loop() {
				x.LinesOf("fs/read_write.c", 500)
			}
		})
	}
}

// benchLookup looks up functions that are drawn, and once each that there is: of the one that took the CPUs longest, it says
// so, and how many took longer than is aimed at.
func benchLookup(b *testing.B, x *inline.Index) {
	const aim = 10 * time.Millisecond
	names := x.Names("", 1<<20)
	draw := rand.New(rand.NewPCG(1, 1))
	find := func(name string) {
		if _, err := x.Find(name); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		find(names[draw.IntN(len(names))])
	}
	worst, late := time.Duration(0), 0
	for _, name := range names {
		before := ownTime(b)
		find(name)
		took := ownTime(b) - before
		if worst = max(worst, took); took > aim {
			late++
		}
	}
	b.ReportMetric(float64(worst.Microseconds())/1000, "worst-cpu-ms")
	b.ReportMetric(float64(late), "over-10-cpu-ms")
	b.ReportMetric(float64(len(names)), "names")
}

// BenchmarkHosts is what a matrix of twelve cells takes on two libvirtds of this machine, which are
// reached by ssh and see none of the lab's files, and without them. With both, in turn, after once when
// nothing is there yet.
func BenchmarkHosts(b *testing.B) {
	libvirttest.Reap(b)
	hosts := []string{"--host", bySSH(b), "--host", bySSH(b)}
	for _, m := range []struct {
		name  string
		cells []string
	}{
		{"all,boot+cost", []string{"--arch", "all", "--scenario", "boot,cost", "--seed", "1,2"}},
		{"amd64+arm64,boot+cost+undo", []string{"--arch", "amd64,arm64", "--scenario", "boot,cost,undo", "--seed", "1,2"}},
	} {
		b.Run(m.name, func(b *testing.B) {
			here, there := newTwelve(b, m.cells), newTwelve(b, append(slices.Clone(m.cells), hosts...))
			here.run(b)
			there.run(b)
			for range b.N {
				here.took = append(here.took, here.run(b))
				there.took = append(there.took, there.run(b))
			}
			alone, hosts := measure.Median(here.took), measure.Median(there.took)
			b.ReportMetric(alone, "s-here")
			b.ReportMetric(hosts, "s-hosts")
			b.ReportMetric(hosts/alone, "hosts/here")
		})
	}
}

// twelve is a matrix of twelve cells, and what it took each time.
type twelve struct {
	args []string
	took []float64 // seconds
}

func newTwelve(b *testing.B, args []string) *twelve {
	return &twelve{args: append([]string{"matrix", "--force", "--out", filepath.Join(b.TempDir(), "out")}, args...)}
}

func (m *twelve) run(b *testing.B) float64 {
	start := time.Now()
	a := call(b, nil, m.args...)
	if a.code != 0 || !strings.Contains(a.stdout, "12 cells, 12 passed") {
		b.Fatal(a)
	}
	return time.Since(start).Seconds()
}
