package scenarios

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"kerninst/agent/wire"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// inside: a CPU that goes round through long patches is made to say where it is,
// again and again: on amd64 by an NMI, elsewhere by an interrupt. What says so prints,
// through a function that is spliced as well, so its patch is entered anew from inside
// itself. Neither loses a count, and the snippet's values are what they were.
func inside() []Scenario {
	return []Scenario{{
		Name: "inside", Title: "NMIs and interrupts come while a CPU is inside patches, and go through them", Labels: []string{"proof"},
		Guests: insideGuests, Check: checkInside,
	}}
}

// interruptions are how often the CPU is asked. Each answer is some kilobytes of the
// kernel's log, which is emptied every time.
const interruptions = 150

// stages of the long snippet: each ends a block of the emulator's, which takes
// interrupts between blocks only.
const stages = 15

// longSnippet takes a register's value through steps, each undone later, and counts if
// it is what it was at the end. It has one cell.
func longSnippet(reg string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "c0 sum\nv0 u64 = reg %s\n", reg)
	end := 2 + 4*stages // instructions, with the last comparison and the count
	for k := range 2 * stages {
		step := k%stages + 1
		fmt.Fprintf(&b, "v%d u64 = xor v%d %d\nif v%d eq v%d goto %d\n", k+1, k, step, k+1, k, end+1)
	}
	fmt.Fprintf(&b, "if v%d ne v0 goto %d\ncount c0 1\n%d:\n", 2*stages, end+1, end+1)
	return b.String()
}

// longRegister is one that the snippet may read anywhere.
var longRegister = map[string]string{"amd64": "rbx", "arm64": "x19", "riscv64": "s1"}

// printing are functions that print for everybody: for /proc/kallsyms in tasks, for the
// log in interrupts and NMIs.
var printing = map[string][]string{
	"amd64":   {"format_decode"},
	"arm64":   {"format_decode"},
	"riscv64": {"number", "seq_printf", "widen_string"},
}

func insideFunctions(arch string) []string {
	return append([]string{syscallEntry(arch, "getppid")}, printing[arch]...)
}

// insideLoad has CPU 1 go round, and CPU 0 ask it where it is. It prints what CPU 1
// answered (program counters), and whether what it read was always the same. It wants
// how often to ask.
const insideLoad = `taskset -p 1 $$ >/dev/null; rm -f /tmp/stop; dmesg -n 1; dmesg -c >/dev/null
nmis() { awk '$1 == "NMI:" { print $3 }' /proc/interrupts; }
( while [ ! -e /tmp/stop ]; do
	/lib/kerninst/bench/bench null 20000 5 >/dev/null || echo "bench: $?"
	head -n 20000 /proc/kallsyms >/dev/null
	head -n 1000 /proc/kallsyms | md5sum
done ) >/tmp/sums &
taskset -p 2 $! >/dev/null
before=$(nmis)
for i in $(seq %d); do
	echo l >/proc/sysrq-trigger
	dmesg -c | grep -oE '(RIP: ....:|e?pc : )[^ ]+'
done
echo "nmis: $(( $(nmis) - before ))"
sed -n 's/^\([0-9a-f]*\) . kerninst_patches\b.*/patches: \1/p' /proc/kallsyms
touch /tmp/stop; wait
sort -u /tmp/sums | sed 's/^/sum: /'`

func insideGuests(arch string) []Guest {
	long := []*wire.Action{{Name: "long", Snippet: longSnippet(longRegister[arch])}}
	var points []*wire.Point
	for _, f := range insideFunctions(arch) {
		points = append(points, &wire.Point{Function: f, Each: wire.Each_INSTRUCTION, Actions: long})
	}
	all := announced(splice("splice", points...))
	all.GetSplice().SkipRefused = true
	load := shell("load", fmt.Sprintf(insideLoad, interruptions))
	load.GetRun().Metered = true
	return []Guest{{Name: "2cpu", CPUs: 2, Time: vm.Host, Oracle: true, RunTimeout: 10 * time.Minute,
		Job: job(snapshot("before", ""), all, load, read("count"), unsplice("splice"), snapshot("after", "before"))}}
}

// A program counter is a number, or behind a name where patch memory has one.
var (
	programCounter = regexp.MustCompile(`(?m)^(?:RIP: ....:|e?pc : )(kerninst_patches\+)?0x([0-9a-f]+)(?:/0x[0-9a-f]+)?$`)
	patchMemory    = regexp.MustCompile(`(?m)^patches: ([0-9a-f]+)$`)
)

// answered are the program counters in what insideLoad prints. Where kallsyms does not
// have the name, patch memory begins with the page of the lowest patch.
func answered(said []byte, points []*wire.PointResult) (all []uint64) {
	base := ^uint64(0)
	for _, p := range points {
		base = min(base, p.PatchAddress&^4095)
	}
	if m := patchMemory.FindSubmatch(said); m != nil {
		base, _ = strconv.ParseUint(string(m[1]), 16, 64)
	}
	for _, m := range programCounter.FindAllSubmatch(said, -1) {
		a, _ := strconv.ParseUint(string(m[2]), 16, 64)
		if len(m[1]) > 0 {
			a += base
		}
		all = append(all, a)
	}
	return all
}

var tookNMIs = regexp.MustCompile(`nmis: \d+`)

func checkInside(t *T) {
	const guest = "2cpu"
	said := t.ran(guest, "load")[0]
	counts := t.done(guest, "count").Values
	var points []*wire.PointResult
	for _, p := range t.done(guest, "splice").Points {
		if p.Refusal == nil {
			points = append(points, p)
		}
	}
	t.equal("counters", len(counts), len(points))
	wrong, arrivals := []string{}, map[string]uint64{}
	for k, p := range points {
		n := t.Guests[guest].Oracle[p.WrittenAt].Total
		if counts[k].Spec != p.Spec || counts[k].Count != n {
			wrong = append(wrong, fmt.Sprintf("%s (%s) counted %d of %d", p.Spec, p.Displaced[0], counts[k].Count, n))
		}
		arrivals[p.Symbol] += n
	}
	t.equal("points that counted otherwise than was seen outside, or whose values were not as they were", wrong, []string{})
	interrupts, places := 0, map[uint64]bool{}
	for _, a := range answered(said, points) {
		for _, p := range points {
			if a-p.PatchAddress < uint64(len(p.PatchBytes)) {
				interrupts++
				places[a] = true
			}
		}
	}
	for _, f := range insideFunctions(t.Arch) {
		t.count("inside."+f+".arrivals", arrivals[f])
	}
	t.atLeast("interrupts of patches", float64(interrupts), 5)
	t.atLeast("instructions of patches that were interrupted", float64(len(places)), 5)
	t.Metrics["inside.points"] = report.Metric{Value: float64(len(points)), Unit: "points", N: 1}
	t.Metrics["inside.interrupts"] = report.Metric{Value: float64(interrupts), Unit: "interrupts", N: 1}
	t.Metrics["inside.places"] = report.Metric{Value: float64(len(places)), Unit: "instructions", N: 1}
	if t.Arch == "amd64" {
		t.equal("NMIs that the CPU took", tookNMIs.FindString(string(said)), fmt.Sprintf("nmis: %d", interruptions))
	}
	t.equal("different things that the CPU read", bytes.Count(said, []byte("sum: ")), 1)
	t.equal("ranges of text that differ afterwards", len(t.done(guest, "after").Text.Differing), 0)
}
