package scenarios

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/plan"
	"kerninst/agent/wire"
	"kerninst/lab/vm"
)

// bounds: whoever puts kprobes in a function that is spliced already may do so where an
// instruction begins, and nowhere else. On amd64 and riscv64 the kernel reads a function from
// its begin to tell where that is: what it finds there is jumps and what they leave.
func boundScenarios() []Scenario {
	return []Scenario{{
		Name: "bounds", Title: "kprobes that come to spliced functions are let in where instructions begin, and nowhere else",
		Labels: []string{"proof"}, Guests: boundsGuests, Check: checkBounds,
	}}
}

// boundsFunctions come by in every load, and have instructions of all lengths.
var boundsFunctions = []string{"do_sys_openat2", "vfs_read", "dput", "do_filp_open", "vfs_write", "alloc_fd"}

// boundsWays are what is asked for in turn, of each third instruction; "" is the ladder.
var boundsWays = map[string][]plan.Mechanism{
	"amd64":   {0, plan.Trap, plan.Springboard, plan.Quiesced},
	"arm64":   {0, plan.Trap},
	"riscv64": {0, plan.Trap, plan.Quiesced},
}

// punsIn is in which of the functions puns are asked for too: behind one, no kprobe is let in.
const punsIn = "vfs_write"

// askBounds asks for a kprobe at each place that it is given, says which are let in, has them
// all hit, if they can be, and takes them away.
const askBounds = `cd /sys/kernel/tracing; n=0
while read place; do { echo "p:bounds/p$n $place" >>kprobe_events; } 2>/dev/null && { n=$((n+1)); echo in $place; }; done
echo 1 >events/bounds/enable
cat /proc/version /nowhere 2>/dev/null
echo 0 >events/bounds/enable; echo >kprobe_events`

func boundsGuests(arch string) []Guest {
	return []Guest{
		{Name: "found", CPUs: 1, Time: vm.Exact, Text: true, Job: job(shell("true", "true"))},
		{Name: "asked", CPUs: 1, Time: vm.Exact, After: "found", Make: func(found *Answer) (*wire.Job, error) {
			points, places, err := boundsPoints(arch, found.Text)
			ask := func(name string) *wire.Step {
				return shell(name, "echo '"+strings.Join(places, "\n")+"' | ( "+askBounds+" )")
			}
			return job(snapshot("before", ""), skipping("splice", points), ask("meanwhile"), unsplice("splice"), ask("behind"), snapshot("after", "before")), err
		}},
	}
}

// boundsPoints are what is spliced, and each place in the functions at which a CPU could be
// let go on.
func boundsPoints(arch string, x *ktext.Text) (points []*wire.Point, places []string, err error) {
	ways := boundsWays[arch]
	err = eachFunction(x, func(f ktext.Func, insns []isa.Insn) {
		if !slices.Contains(boundsFunctions, f.Name) {
			return
		}
		for k, i := range insns {
			if k%3 != 0 || i.Flow == isa.FlowTrap {
				continue
			}
			p := at(f.Name, uint64(i.Addr-f.Addr))
			if way := ways[k/3%len(ways)]; way != 0 {
				p.Mechanism = way.String()
			}
			if f.Name == punsIn && arch == "amd64" && k%2 == 0 {
				p.Mechanism = plan.Pun.String()
			}
			points = append(points, p)
		}
		for a := f.Addr; a < f.End(); a += isa.Addr(x.Arch.MinLen) {
			places = append(places, half{f, isa.Off(a - f.Addr)}.String())
		}
	})
	return points, places, err
}

// placeIn is a place in a function.
type placeIn struct {
	function string
	off      uint64
}

// letIn are the places where kprobes were.
func (t *T) letIn(step string) map[placeIn]bool {
	out := map[placeIn]bool{}
	for line := range strings.Lines(string(t.ran("asked", step)[0])) {
		where, ok := strings.CutPrefix(strings.TrimSpace(line), "in ")
		name, off, _ := strings.Cut(where, "+0x")
		n, err := strconv.ParseUint(off, 16, 64)
		if ok && err == nil {
			out[placeIn{name, n}] = true
		}
	}
	return out
}

func checkBounds(t *T) {
	begins := map[placeIn]bool{}
	err := eachFunction(t.Guests["found"].Text, func(f ktext.Func, insns []isa.Insn) {
		for _, i := range insns {
			begins[placeIn{f.Name, uint64(i.Addr - f.Addr)}] = true
		}
	})
	t.equal("the kernel's text is read", err == nil, true)
	all := t.Arch == "arm64" // of one length: there one begins at each place
	meanwhile, behind := t.letIn("meanwhile"), t.letIn("behind")
	spliced, misled := map[placeIn]bool{}, map[string]bool{}
	ways := map[string]int{}
	for _, p := range t.made("asked", "splice") {
		ways[p.Mechanism]++
		for k := range p.OldBytes {
			spliced[placeIn{p.Symbol, p.Offset + p.WrittenAt - p.Address + uint64(k)}] = true
		}
		if p.Mechanism == plan.Pun.String() {
			misled[p.Symbol] = true
		}
		name, _, _ := strings.Cut(p.Moved, "+")
		misled[name] = true
	}
	for _, w := range slices.Sorted(maps.Keys(ways)) {
		t.file("bounds."+w, ways[w])
	}
	t.atLeast("mechanisms of the splices", float64(len(ways)), float64(len(boundsWays[t.Arch])))
	wrong, refused := []string{}, []string{}
	for p := range meanwhile {
		if !all && !begins[p] {
			wrong = append(wrong, fmt.Sprintf("%s+%#x", p.function, p.off))
		}
	}
	for p := range behind {
		if !meanwhile[p] && !spliced[p] && !misled[p.function] {
			refused = append(refused, fmt.Sprintf("%s+%#x", p.function, p.off))
		}
	}
	slices.Sort(wrong)
	slices.Sort(refused)
	t.equal("places with a kprobe where no instruction begins", wrong, []string{})
	t.equal("places without, where one begins that is not spliced, in functions without what misleads", refused, []string{})
	t.file("bounds.kprobes", len(meanwhile))
	t.atLeast("kprobes that came to spliced functions", float64(len(meanwhile)), 100)
	t.equal("ranges of text that differ afterwards", len(t.done("asked", "after").Text.Differing), 0)
}
