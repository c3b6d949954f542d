package scenarios

import (
	"math"
	"strings"

	"github.com/onsi/gomega"

	"kerninst/lab/measure"
	"kerninst/lab/report"
)

// What operations take without probes and with them.

// probedOp is what an operation takes, in nanoseconds of the guest.
type probedOp struct {
	name, unit             string
	n                      int     // operations in a sample
	bare, spliced, kprobed float64 // kprobed 0: not measured
	known                  float64 // to what a difference of two of them is
}

// compared files what operations take in each guest, which must have done those and no
// others, and what is added. A guest without a name is left out.
func (t *T) compared(names []string, bare, spliced, kprobed string) (ops []probedOp) {
	of := map[string]map[string]*measure.Operation{}
	for _, g := range []string{bare, spliced, kprobed} {
		if g == "" || of[g] != nil {
			continue
		}
		text := t.ran(g, "work")[0]
		suite, err := measure.ParseSuite(text)
		t.expect(g+": what the guest prints is Go's benchmark format", err, "no error", gomega.Succeed())
		if kprobed != "" { // a control's are not for others
			t.Files["lmbench-"+g+".txt"] = text
		}
		of[g] = map[string]*measure.Operation{}
		var done []string
		for _, o := range suite.Operations {
			of[g][o.Name], done = o, append(done, o.Name)
		}
		t.equal(g+": operations", done, names)
	}
	t.Metrics["operations"] = report.Metric{Value: float64(len(names)), Unit: "operations", N: 1}
	for _, name := range names {
		o := probedOp{name: name, unit: unitOf(name), n: of[bare][name].N, bare: of[bare][name].NS, spliced: of[spliced][name].NS}
		o.known = 2*measure.Resolution(t.Arch, o.n) + 2*rounding // an overhead is subtracted from each
		if kprobed != "" {
			o.kprobed = of[kprobed][name].NS
		}
		ops = append(ops, o)
		t.fileOp(o, probedSamples)
	}
	return ops
}

// unitOf is the unit in which an operation's nanoseconds are given.
func unitOf(name string) string {
	for _, group := range lmbenchOps {
		if contains(strings.Fields(group.names), name) && group.unit == insnsPerOp {
			return insnsPerOp
		}
	}
	return vnsPerOp
}

// fileOp files what an operation takes, as of so many samples, in the suite's order.
func (t *T) fileOp(o probedOp, samples int) {
	file := func(name string, v float64, unit string) {
		t.Metrics[strings.ReplaceAll(o.name, "/", ".")+"."+name] = report.Metric{Value: v, Unit: unit, Better: report.Lower, N: samples, Order: len(t.Metrics) + 1}
	}
	file("bare", o.bare, o.unit)
	file("splice.added", o.spliced-o.bare, o.unit)
	file("splice.ratio", o.spliced/o.bare, "x")
	if o.kprobed > 0 {
		file("kprobe.added", o.kprobed-o.bare, o.unit)
		file("kprobe.ratio", o.kprobed/o.bare, "x")
	}
}

// leastAdded is the least that splices are taken to add to what operations take, for a
// quotient that has a number.
const leastAdded = 1e-6

// means files geometric means: of what operations take with splices over what they take
// bare, the same with kprobes, and how many times as much the latter is above 1.
func (t *T) means(of string, ops []probedOp) (splices, times float64) {
	splices = geomean(ops, func(o probedOp) float64 { return o.spliced / o.bare })
	kprobes := geomean(ops, func(o probedOp) float64 { return o.kprobed / o.bare })
	times = (kprobes - 1) / max(splices-1, leastAdded)
	t.fileRatio("splice.geomean"+of, splices)
	t.fileRatio("kprobe.geomean"+of, kprobes)
	t.fileRatio("kprobe-over-splice"+of, times)
	return splices, times
}

func (t *T) fileRatio(name string, v float64) {
	t.Metrics[name] = report.Metric{Value: v, Unit: "x", N: probedSamples}
}

func geomean(ops []probedOp, ratio func(probedOp) float64) float64 {
	var sum float64
	for _, o := range ops {
		sum += math.Log(ratio(o))
	}
	return math.Exp(sum / float64(len(ops)))
}
