package scenarios

import (
	"embed"
	"fmt"
	"slices"

	"kerninst/agent/inline"
	"kerninst/agent/isa"
	"kerninst/agent/wire"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// inlined: the entries of all copies, of whichever functions, in those that have copies of fdget, fdput
// or file_start_write, spliced at once. Each counter is held against what was seen outside.
func inlined() []Scenario {
	return []Scenario{{Name: "inlined", Title: "the entries of a thousand inlined copies are spliced; counters equal what an observer outside saw", Labels: []string{"proof"},
		Guests: inlinedGuests, Check: checkInlined}}
}

// copies are digests of the locked kernels' debugging information, made by
// lab inline --arch A --save scenarios/copies/A.copies file_start_write fdget fdget_pos fdput vfs_write.
//
//go:embed copies/*.copies
var copies embed.FS

// entriesOfCopies are where copies are entered, in order, of whichever functions.
func entriesOfCopies(arch string) (entries []isa.Off, err error) {
	b, err := copies.ReadFile("copies/" + arch + ".copies")
	if err != nil {
		return nil, err
	}
	x, err := inline.Open(b)
	if err != nil {
		return nil, err
	}
	for _, o := range x.Entries() {
		f, err := x.At(o)
		if err != nil {
			return nil, err
		}
		for k := range f.Body.Len() {
			entries = append(entries, f.Body.Copy(k).Entry)
		}
	}
	slices.Sort(entries)
	return slices.Compact(entries), nil
}

// inlinedLoad has files read, written, listed, copied and waited for.
const inlinedLoad = `for i in $(seq 4); do
dd if=/dev/zero of=/tmp/x bs=4k count=50 2>/dev/null; cat /tmp/x /proc/*/stat /proc/mounts >/tmp/y; cp /tmp/y /tmp/z; ls -lR /sys/kernel >/dev/null
mkdir -p /tmp/d; mv /tmp/z /tmp/d; ln -s z /tmp/d/l; cat /tmp/d/l | wc -c >/dev/null; rm -r /tmp/d
done`

func inlinedGuests(arch string) []Guest {
	entries, err := entriesOfCopies(arch)
	if err != nil {
		panic(fmt.Sprintf("the digest of %s: %v", arch, err)) // it is a part of this program
	}
	var points []*wire.Point
	for _, o := range entries {
		points = append(points, &wire.Point{Text: uint64(o) + 1})
	}
	all := announced(splice("splice", points...))
	all.GetSplice().SkipRefused = true
	load := shell("work", inlinedLoad)
	load.GetRun().Metered = true
	return []Guest{{Name: "1cpu", CPUs: 1, Time: vm.Exact, Oracle: true, Job: job(snapshot("before", ""), all, load, read("count"), unsplice("splice"), snapshot("after", "before"))}}
}

// How many copies have to be counted, and come by, and the part that is refused at most. Of another
// kernel than the locked one most places are no instructions.
const (
	leastCopies = 1000
	leastComeBy = 100
	mostRefused = 0.2
)

func checkInlined(t *T) {
	t.ran("1cpu", "work")
	c := t.coverage("inlined", "1cpu")
	points := t.done("1cpu", "splice").Points
	refused := 0
	for _, p := range points {
		if p.Refusal != nil {
			refused++
		}
	}
	t.Metrics["inlined.copies"] = report.Metric{Value: float64(len(points) - refused), Unit: "copies", N: 1}
	t.atLeast("copies whose entries are counted", float64(len(points)-refused), leastCopies)
	t.atLeast("of them, some come by", float64(c.executed), leastComeBy)
	t.atMost("part of the entries that is refused; of a kernel that is not the locked one the digest knows nothing", float64(refused)/float64(len(points)), mostRefused)
}
