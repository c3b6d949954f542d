package scenarios

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onsi/gomega"

	"kerninst/agent/wire"
	"kerninst/lab/measure"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// lmbench: what a kernel takes for what LMbench asks of it, without any probe, in
// exact time. The program's own README says how operations are timed.
//
// Two guests of one seed do the same and have to print the same, to the byte: a
// figure that differs by itself is none that a probe's cost can be read from.

const lmbenchProgram = "/lib/kerninst/lmbench/lmbench"

func lmbenches() []Scenario {
	one := func(name string, samples int, label string) Scenario {
		return Scenario{
			Name: name, Title: fmt.Sprintf("latencies and bandwidths after LMbench, %d samples of each, the same in two guests", samples),
			Labels: []string{label},
			Guests: func(string) []Guest { return lmbenchGuests(samples) },
			Check:  func(t *T) { checkLmbench(t, name, samples) },
		}
	}
	return []Scenario{one("lmbench", 11, "measure"), one("lmbench-long", 101, "proof")}
}

// lmbenchGuests also have guest/bench time what both programs know, in another way.
func lmbenchGuests(samples int) (all []Guest) {
	steps := []*wire.Step{run("work", lmbenchProgram, strconv.Itoa(samples))}
	for _, o := range twice {
		steps = append(steps, run(o.bench, benchProgram, o.bench, strconv.Itoa(twiceOps), strconv.Itoa(samples)))
	}
	for _, name := range []string{"first", "second"} {
		all = append(all, Guest{Name: name, CPUs: 1, Time: vm.Exact, Job: job(steps...), RunTimeout: time.Duration(samples) * lmbenchPatience})
	}
	return all
}

// lmbenchPatience is what a sample of all operations may take in host time: some 3 s on
// riscv64, on a host that is not busy.
const lmbenchPatience = time.Minute

// Units of latencies. A loop in which nobody can sleep takes what its instructions
// do; of others it is only known how much of the guest's time goes by.
const (
	insnsPerOp = "insns/op"
	vnsPerOp   = "vns/op"
	mbPerS     = "MB/s" // of the guest's time
)

// lmbenchOps are the operations that have to be there, in their order, and by how much,
// in percent, the two shortest samples may differ: several times what three ISAs show.
var lmbenchOps = []struct {
	unit   string
	spread float64
	names  string
}{
	{insnsPerOp, 0.5, "Null Read Write Stat Fstat OpenClose Select100 SigInstall SigCatch ProtFault"},
	{vnsPerOp, 2, "PipeLatency UnixLatency TCPLatency ForkExit ForkExec ForkSh"},
	{insnsPerOp, 1, "Mmap PageFault PageFaultAnon"},
	{vnsPerOp, 1, "Ctx/2p/0K Ctx/2p/16K Ctx/2p/64K Ctx/8p/0K Ctx/8p/16K Ctx/16p/0K Ctx/16p/16K"},
	{insnsPerOp, 1, "FileCreate/0K FileDelete/0K FileCreate/10K FileDelete/10K"},
	{mbPerS, 1, "MemRead MemWrite MemCopy FileRead FileMmapRead"},
	{mbPerS, 3, "PipeStream UnixStream TCPStream"},
}

// allOps are their names.
func allOps() (names []string) {
	for _, group := range lmbenchOps {
		names = append(names, strings.Fields(group.names)...)
	}
	return names
}

// rounding is what printing two digits behind the point may add.
const rounding = 0.005

func checkLmbench(t *T, scenario string, samples int) {
	text := t.ran("first", "work")[0]
	suite, err := measure.ParseSuite(text)
	t.expect("what the guest prints is Go's benchmark format", err, "no error", gomega.Succeed())
	t.Files[scenario+".txt"] = text
	var got []string
	by := map[string]*measure.Operation{}
	for _, o := range suite.Operations {
		got, by[o.Name] = append(got, o.Name), o
	}
	t.equal("operations", got, allOps())
	for _, group := range lmbenchOps {
		for _, name := range strings.Fields(group.names) {
			t.operation(by[name], group.unit)
			t.equal(name+": samples", len(by[name].Samples), samples)
			t.atMost(name+": percent by which the two shortest samples differ", by[name].Spread(), group.spread)
		}
	}
	t.Metrics["operations"] = report.Metric{Value: float64(len(suite.Operations)), Unit: "operations", N: 1}
	t.equal("Control: samples", len(suite.Control), samples)
	t.atMost("nanoseconds that nothing takes", math.Abs(slices.Min(suite.Control)), measure.Resolution(t.Arch, by["Null"].N)+rounding)
	t.plausible(by)
	t.equal("the second guest printed the same, to the byte", difference(text, t.ran("second", "work")[0]), "")
}

// operation files a figure, in the suite's order. That of a bandwidth is that of the shortest sample too.
func (t *T) operation(o *measure.Operation, unit string) {
	m := report.Metric{Value: o.NS, Unit: unit, Better: report.Lower, N: len(o.Samples), Order: len(t.Metrics) + 1}
	if unit == mbPerS {
		m.Value, m.Better = o.MBps, report.Higher
	}
	t.Metrics[strings.ReplaceAll(o.Name, "/", ".")] = m
}

// difference is the first line in which two texts differ; nothing if they are the same.
func difference(a, b []byte) string {
	if bytes.Equal(a, b) {
		return ""
	}
	la, lb := strings.Split(string(a), "\n"), strings.Split(string(b), "\n")
	for i := range min(len(la), len(lb)) {
		if la[i] != lb[i] {
			return fmt.Sprintf("line %d: %q and %q", i+1, la[i], lb[i])
		}
	}
	return fmt.Sprintf("%d lines and %d", len(la), len(lb))
}
