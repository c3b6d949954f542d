package analysis_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"kerninst/agent/isa/all"
	"kerninst/agent/ktext"
	"kerninst/images"
	"kerninst/lab/analysis"
	"kerninst/lab/qemu"
	"kerninst/lab/runner"
	"kerninst/lab/sweep"
)

// BenchmarkWholeKernel times, side by side, what objdump takes to print a stock
// kernel's functions to nowhere, what it takes from a dump of that kernel to a
// stored index, and reading the index again.
func BenchmarkWholeKernel(b *testing.B) {
	for _, arch := range all.Arches() {
		opt := images.Options{Arch: arch.Name, Root: "../..", Progress: b.Logf}
		img, err := images.Ensure(context.Background(), opt)
		if err != nil {
			b.Fatal(err)
		}
		root, err := images.Toolchain(context.Background(), opt)
		if err != nil {
			b.Fatal(err)
		}
		r := runner.New(runner.Runner{Image: img, Backend: qemu.Backend{}, Seed: 1, Jobs: 1, Progress: b.Logf})
		d, err := r.Dump(context.Background(), "")
		if err != nil {
			b.Fatal(err)
		}
		var file bytes.Buffer
		if err := d.Write(&file, nil); err != nil {
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
		b.Run(arch.Name+"/objdump", func(b *testing.B) {
			for b.Loop() {
				if err := sweep.Objdump(context.Background(), root, arch, pieces); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(arch.Name+"/dump-to-index", func(b *testing.B) { dumpToIndex(b, file.Bytes()) })
	}
}

// dumpToIndex makes the index with an empty store, then reads it from there.
func dumpToIndex(b *testing.B, file []byte) {
	var reload time.Duration
	var size int
	for b.Loop() {
		b.Setenv("XDG_CACHE_HOME", b.TempDir())
		d, err := ktext.ReadDump(file)
		if err != nil {
			b.Fatal(err)
		}
		s, err := analysis.Find(context.Background(), d, b.Logf)
		if err != nil || !s.Made {
			b.Fatal(s, err)
		}
		b.StopTimer()
		if s, err = analysis.Find(context.Background(), d, b.Logf); err != nil || s.Made {
			b.Fatal(s, err)
		}
		reload, size = reload+time.Duration(s.Totals.Seconds.Cached*1e9), len(s.Bytes)
		b.StartTimer()
	}
	b.ReportMetric(reload.Seconds()*1000/float64(b.N), "reload-ms")
	b.ReportMetric(float64(size)/(1<<20), "index-MiB")
}
