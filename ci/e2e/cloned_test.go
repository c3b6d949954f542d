package e2e

import (
	"testing"
	"time"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	heap "kerninst/agent/place"
	"kerninst/agent/plan"
)

// BenchmarkCloned plans a clone of execve with what it may call, as a guest's daemon does each time that one grows.
func BenchmarkCloned(b *testing.B) {
	eachKernel(b, func(b *testing.B, arch *isa.Arch, d *dense) {
		functions := d.reached(b, arch, map[string]string{"amd64": "__x64", "arm64": "__arm64", "riscv64": "__riscv"}[arch.Name]+"_sys_execve", 300)
		known := &plan.Functions{}
		for b.Loop() {
			start := time.Now()
			made := d.clone(b, functions, known)
			known = known.Again()
			b.ReportMetric(float64(len(made.Entry.Code)), "bytes")
			b.ReportMetric(float64(time.Since(start).Nanoseconds())/float64(len(functions)-len(made.Left)), "ns/function")
		}
	})
}

// clone plans a clone in memory of its own.
func (d *dense) clone(b *testing.B, functions []ktext.Func, known *plan.Functions) *plan.Cloned {
	_, hi := d.text.Bounds()
	at := (hi + 32<<20) &^ 4095
	mem := &heap.Heap{}
	mem.Add(heap.NewArea(0, at, at+denseArea, denseArea))
	req := d.request(mem)
	req.Known = known
	made, r := plan.AsClone(d.text, req, plan.Cloning{Functions: functions, Notes: true, Uses: true})
	if r != nil {
		b.Fatal(r)
	}
	return made
}

// reached are functions that one reaches by calls and jumps whose targets are known, the nearest first.
func (d *dense) reached(b *testing.B, arch *isa.Arch, entry string, most int) []ktext.Func {
	f, err := d.text.Function("", entry)
	if err != nil {
		b.Fatal(err)
	}
	seen, out := map[isa.Addr]bool{f.Addr: true}, []ktext.Func{f}
	for k := 0; k < len(out) && len(out) < most; k++ {
		code, err := d.text.Code(out[k])
		if err != nil {
			b.Fatal(err)
		}
		before := 0 // where the instruction in front begins
		for at := 0; at+arch.MinLen <= len(code); {
			i := arch.Decode(code[at:], out[k].Addr+isa.Addr(at))
			to := i.Target
			if to == 0 && arch.Op != nil && (i.Flow == isa.FlowIndirectCall || i.Flow == isa.FlowIndirectJump) {
				to, _ = cfg.JoinedTarget(arch.Op(code[at:], i.Addr), arch.Op(code[before:], out[k].Addr+isa.Addr(before)))
			}
			if g, ok := d.text.Locate(to); ok && g.Addr == to && !seen[to] && g.Module == "" && len(out) < most {
				seen[to], out = true, append(out, g)
			}
			before, at = at, at+i.Len
		}
	}
	return out
}
