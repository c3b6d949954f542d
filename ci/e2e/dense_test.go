package e2e

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"kerninst/agent/gen"
	"kerninst/agent/index"
	"kerninst/agent/isa"
	"kerninst/agent/isa/all"
	"kerninst/agent/ktext"
	"kerninst/agent/pad"
	heap "kerninst/agent/place"
	"kerninst/agent/plan"
	"kerninst/agent/snippet"
	"kerninst/lab/analysis"
)

// BenchmarkDense plans a counter in each basic block of a kernel, all in one batch, as a guest's
// daemon does for the scenario density-kernel.
func BenchmarkDense(b *testing.B) {
	eachKernel(b, func(b *testing.B, _ *isa.Arch, d *dense) {
		for b.Loop() {
			start := time.Now()
			n, planned := d.run(b)
			b.ReportMetric(float64(n), "blocks")
			b.ReportMetric(100*float64(planned)/float64(n), "%planned")
			b.ReportMetric(float64(time.Since(start).Nanoseconds())/float64(n), "ns/block")
		}
	})
}

// eachKernel benchmarks planning in the kernel of each ISA.
func eachKernel(b *testing.B, run func(b *testing.B, arch *isa.Arch, d *dense)) {
	for _, arch := range all.Arches() {
		b.Run(arch.Name, func(b *testing.B) {
			file := filepath.Join(b.TempDir(), "kernel.dump")
			if a := call(b, nil, "image", "dump", "--arch", arch.Name, file); a.code != 0 {
				b.Fatal(a)
			}
			run(b, arch, newDense(b, file))
		})
	}
}

// dense is a kernel all of whose blocks are planned.
type dense struct {
	text   *ktext.Text
	stored *analysis.Stored
	points []isa.Addr
	funcs  []ktext.Func // of each point
}

func newDense(b *testing.B, file string) *dense {
	_, dump := readDump(b, file)
	d := &dense{}
	var err error
	if d.text, err = analysis.TextOf(dump); err != nil {
		b.Fatal(err)
	}
	if d.stored, err = analysis.Find(context.Background(), dump, func(string, ...any) {}); err != nil {
		b.Fatal(err)
	}
	req := d.request(nil)
	for _, f := range analysis.Functions(d.text) {
		offsets, _ := plan.OffsetsAt(d.text, f, req, plan.EachBlock)
		for _, off := range offsets {
			d.points, d.funcs = append(d.points, f.Addr+isa.Addr(off)), append(d.funcs, f)
		}
	}
	return d
}

// run plans all points anew, and says how many there are, and plans.
func (d *dense) run(b *testing.B) (n, planned int) {
	_, hi := d.text.Bounds()
	mem, before := &heap.Heap{}, &plan.Set{}
	for k, at := 0, (hi+32<<20)&^4095; k*denseArea < 2*heap.Line*len(d.points); k++ {
		mem.Add(heap.NewArea(uint32(k), at, at+denseArea, denseArea))
		at += 2 * denseArea
	}
	req := d.request(mem)
	req.Taken, req.Asked = before.Touches, before.Asked
	near, points := map[isa.Addr][]isa.Addr{}, slices.Sorted(slices.Values(d.points))
	for k, a := range d.points {
		near[d.funcs[k].Addr] = append(near[d.funcs[k].Addr], a)
	}
	const widest = 20
	req.Spare = func(f ktext.Func, lo, hi isa.Addr) bool {
		return slices.ContainsFunc(near[f.Addr], func(a isa.Addr) bool { return lo < a+widest && a < hi })
	}
	req.Wanted = func(lo, hi isa.Addr) bool {
		for k, _ := slices.BinarySearch(points, lo); k < len(points) && points[k] < hi; k++ {
			if !before.Asked(points[k]) {
				return true
			}
		}
		return false
	}
	ones := make([]*plan.Plan, len(d.points))
	for lo := 0; lo < len(ones); lo += 256 {
		for _, block := range []bool{false, true} {
			for k := lo; k < min(lo+256, len(ones)); k++ {
				if ones[k] != nil {
					continue
				}
				req.Offset, req.Block, req.Without = isa.Off(d.points[k]-d.funcs[k].Addr), block, nil
				if !block {
					req.Without = []plan.Mechanism{plan.Trap}
				}
				if ones[k], _ = plan.At(d.text, d.funcs[k], req); ones[k] != nil {
					before.Add(ones[k])
					planned++
				}
			}
		}
	}
	return len(ones), planned
}

const denseArea = 1<<20 - 4096

func (d *dense) request(mem *heap.Heap) plan.Request {
	view, err := index.NewView(d.stored.Index, d.text)
	if err != nil {
		panic(err)
	}
	return plan.Request{Snippet: snippet.Counter(), Heap: mem, Padding: pad.New(d.text), Known: &plan.Functions{}, Terse: true, Features: gen.Features{LSE: true},
		Facts: func(f ktext.Func) (plan.Facts, error) {
			known, err := view.ForSplice(f)
			if err != nil {
				return plan.Facts{}, err
			}
			return plan.Facts{Source: plan.SourceIndex, Free: known.Free, Jumps: known, Rebases: known.Rebases()}, nil
		}}
}
