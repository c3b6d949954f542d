package scenarios

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"kerninst/agent/wire"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// backtraces: a CPU is made to say where it is and who has called it there, again and
// again, while it is inside patches of each kind. Whoever is a caller at the original
// instruction, by a walk of the kernel's own, is one of those that it names; where that
// is not so, it is as ARCHITECTURE.md says.
func backtraces() []Scenario {
	return []Scenario{{
		Name: "backtraces", Title: "backtraces from inside patches name the callers that there are at the original instructions", Labels: []string{"proof"},
		Guests: backtraceGuests, Check: checkBacktraces,
	}}
}

// traced is a kind of patch that a CPU is interrupted in.
type traced struct {
	name      string
	functions func(arch string) []string
	mechanism string                           // of the walk at the original, too; empty: the first that fits
	actions   func(arch string) []*wire.Action // of patches in which CPUs spend their time; nil: to count
	when      string                           // a predicate: what of op's comes to the functions, and little else
	from      uint64                           // only instructions from there on: what is before needs the padding, too
	op        string                           // of guest/bench, which calls the functions; empty: as for busyFunction
	dumps     int
	// in says whether a place that a dump names is in such a patch.
	in   func(place string, points []*wire.PointResult) bool
	only []string // ISAs; none: all
	// unsure: the kernel names callers as ones that it is not sure of, since it takes the
	// place for another (ARCHITECTURE.md, Backtraces).
	unsure bool
	since  [2]int // kernels that have such functions
}

var tracedKinds = []traced{
	{name: "patch", functions: busyFunction, actions: longActions, dumps: 150, in: inPatch},
	// What patches call.
	{name: "load", functions: busyFunction, actions: loadActions, dumps: 150,
		in: func(place string, _ []*wire.PointResult) bool { return strings.HasPrefix(place, "ki_load") }},
	// Who is called in place of a jump, whom he calls, and the patch that has called him.
	{name: "called", only: []string{"amd64"}, op: "read", actions: returnedActions, dumps: 400,
		functions: func(string) []string { return []string{"__x64_sys_read"} },
		in: func(place string, _ []*wire.PointResult) bool {
			name, _, _ := strings.Cut(place, "+")
			return contains([]string{"kerninst_patches", "ksys_read", "vfs_read", "read_zero", "rw_verify_area", "security_file_permission", "apparmor_file_permission", "aa_file_perm"}, name)
		}},
	// Padding is what a symbol of its own is of, which nothing else runs: of two hundred dumps one is in it, or two.
	{name: "copy", only: []string{"amd64"}, mechanism: "springboard", op: "null", dumps: 1600,
		functions: func(arch string) []string {
			return []string{syscallEntry(arch, "getppid"), "__task_pid_nr_ns"}
		},
		in: func(place string, _ []*wire.PointResult) bool { return strings.HasPrefix(place, "__pfx_") }, unsure: true,
		since: [2]int{6, 2}}, // CONFIG_CALL_PADDING
	// The memory of a message, by words of eight bytes, of which there are two.
	{name: "annex", only: []string{"amd64"}, mechanism: "springboard", from: 0x30, when: `reg("rcx") == 16`, actions: longActions, op: "msg", dumps: 150,
		functions: func(string) []string { return []string{"rep_movs_alternative"} },
		in:        func(place string, _ []*wire.PointResult) bool { return strings.HasPrefix(place, "ki_annex+") }, since: [2]int{6, 4}},
}

func tracedOn(arch string) []traced {
	return slices.DeleteFunc(slices.Clone(tracedKinds), func(k traced) bool { return k.only != nil && !contains(k.only, arch) })
}

// busyFunction is one that is called again and again, with many points: of riscv64's
// shortest there are hardly any.
func busyFunction(arch string) []string {
	if arch == "riscv64" {
		return []string{"vfs_read"}
	}
	return []string{syscallEntry(arch, "getppid")}
}

// operation is what calls the functions, of guest/bench.
func (k traced) operation(arch string) string {
	switch {
	case k.op != "":
		return k.op
	case arch == "riscv64":
		return "read"
	}
	return "null"
}

func longActions(arch string) []*wire.Action {
	return []*wire.Action{{Name: "long", Snippet: longSnippet(longRegister[arch])}}
}

var stackPointer = map[string]string{"amd64": "rsp", "arm64": "sp", "riscv64": "sp"}

// loadActions load from the stack, often.
func loadActions(arch string) []*wire.Action {
	words := make([]string, 16)
	for k := range words {
		words[k] = fmt.Sprintf("load%d(reg(%q) + %d)", []int{8, 16, 32, 64}[k%4], stackPointer[arch], 8*k)
	}
	return []*wire.Action{loadAction("", "sum("+strings.Join(words, " + ")+")")}
}

// returnedActions are for ways out alone: at other instructions they are refused.
func returnedActions(string) []*wire.Action {
	return []*wire.Action{loadAction("", "sum(ret)")}
}

func inPatch(place string, points []*wire.PointResult) bool {
	if strings.HasPrefix(place, "kerninst_patches+") { // where areas have a name
		return true
	}
	a, err := strconv.ParseUint(place, 0, 64)
	return err == nil && slices.ContainsFunc(points, func(p *wire.PointResult) bool { return a-p.PatchAddress < uint64(len(p.PatchBytes)) })
}

// dumpsLoad has CPU 1 go round, and CPU 0 ask it where it is. It wants an operation of
// guest/bench's and how often to ask.
const dumpsLoad = `taskset -p 1 $$ >/dev/null; rm -f /tmp/stop; dmesg -n 1; dmesg -c >/dev/null
taskset 2 sh -c 'while [ ! -e /tmp/stop ]; do /lib/kerninst/bench/bench %s 1000 2 >/dev/null || echo "bench: $?"; done' &
sleep 1
for i in $(seq %d); do
	echo l >/proc/sysrq-trigger
	dmesg -c | sed -n '/NMI backtrace for cpu 1/,$p'
done | sed 's/^\[[ 0-9.]*\] *//' | grep -E '^(NMI backtrace|RIP: 0010:|e?pc : |Call [Tt]race:|\? [^ ]+\+0x|(\[<[0-9a-f]+>\] )?[^ :]+\+0x[0-9a-f]+/)'
touch /tmp/stop; wait`

func backtraceGuests(arch string) []Guest {
	steps := []*wire.Step{snapshot("before", "")}
	for _, k := range tracedOn(arch) {
		var points []*wire.Point
		for n, f := range k.functions(arch) {
			truth := nth(k.name+" callers", n)
			start := loading(f, k.when, "stack")
			start.Mechanism = k.mechanism
			steps = append(steps, mayFail(splice(truth, start)), // an older kernel may not have it
				shell(truth+" load", fmt.Sprintf("%s %s 20 2 >/dev/null", benchProgram, k.operation(arch))), read(truth+" found"), mayFail(unsplice(truth)))
			p := &wire.Point{Function: f, Offset: k.from, Each: wire.Each_INSTRUCTION, Mechanism: k.mechanism}
			if k.actions != nil {
				p.Actions = k.actions(arch)
			}
			points = append(points, p)
		}
		all := splice(k.name, points...)
		all.GetSplice().SkipRefused = true
		steps = append(steps, mayFail(all), shell(k.name+" load", fmt.Sprintf(dumpsLoad, k.operation(arch), k.dumps)), mayFail(unsplice(k.name)))
	}
	return []Guest{{Name: "2cpu", CPUs: 2, Time: vm.Host, RunTimeout: 10 * time.Minute, Job: job(append(steps, snapshot("after", "before"))...)}}
}

// dump is what a CPU said: where it is, and its callers.
type dump struct {
	place   string
	all     []string // functions, in order
	certain []string // those of them that the kernel is sure of
}

var (
	dumpPlace  = regexp.MustCompile(`^(?:RIP: 0010:|e?pc : )(\S+(?: \[\w+\])?)`)
	dumpCaller = regexp.MustCompile(`^(\? )?(?:\[<[0-9a-f]+>\] )?([A-Za-z0-9_.$]+)\+0x`)
)

// readDumps reads what dumpsLoad prints. An interrupted interrupt names a second place;
// what is behind it is the first one's.
func readDumps(text string) (out []dump) {
	for _, part := range strings.Split(text, "NMI backtrace")[1:] {
		var d dump
		trace := false
		for _, line := range strings.Split(part, "\n") {
			if m := dumpPlace.FindStringSubmatch(line); m != nil {
				if d.place == "" {
					d.place = m[1]
				}
			} else if strings.HasPrefix(line, "Call ") {
				trace = true
			} else if m := dumpCaller.FindStringSubmatch(line); m != nil && (trace || line[0] == '[') { // riscv64 has no headline
				d.all = append(d.all, m[2])
				if m[1] == "" {
					d.certain = append(d.certain, m[2])
				}
			}
		}
		out = append(out, d)
	}
	return out
}

// callers are the functions that a walk found behind the point.
func callers(r *wire.TraceRecord) (out []string) {
	for _, s := range r.Symbols[1:] {
		name, _, _ := strings.Cut(s, "+")
		out = append(out, name)
	}
	return out
}

// holdsInOrder reports whether a list has all of others in their order, among more.
func holdsInOrder(list, others []string) bool {
	for _, s := range list {
		if len(others) > 0 && s == others[0] {
			others = others[1:]
		}
	}
	return len(others) == 0
}

// begun matches the functions that system calls begin in, and that in which a signal is delivered, which is behind all
// that a system call has done: what of a shell's child has ended is told so.
var begun = regexp.MustCompile(`^(__(x64|arm64|riscv|do|se)_sys_|arch_do_signal_or_restart$|do_signal$)`)

// elsewhere reports whether a dump's callers are of another system call than those that
// walks were made in, or of a signal: programs start and end, too, meanwhile.
func elsewhere(callers []string, truths [][]string) bool {
	other := false
	for _, name := range callers {
		if !begun.MatchString(name) {
			continue
		}
		if slices.ContainsFunc(truths, func(truth []string) bool { return slices.Contains(truth, name) }) {
			return false
		}
		other = true
	}
	return other
}

// known are the callers that a dump can be judged by.
func (k traced) known(d dump) []string {
	if k.unsure {
		return d.all
	}
	return d.certain
}

// fewestDumps is how many must have been inside patches of a kind.
const fewestDumps = 3

func checkBacktraces(t *T) {
	const guest = "2cpu"
	for _, k := range tracedOn(t.Arch) {
		if t.before(k.since[0], k.since[1]) {
			continue
		}
		var truths [][]string
		for n := range k.functions(t.Arch) {
			truth := nth(k.name+" callers", n)
			t.done(guest, truth)
			t.ran(guest, truth+" load")
			for _, r := range t.done(guest, truth+" found").Values[0].Records {
				truths = append(truths, callers(r))
			}
		}
		t.atLeast(k.name+": walks at the original instructions", float64(len(truths)), 1)
		points := slices.DeleteFunc(slices.Clone(t.done(guest, k.name).Points), func(p *wire.PointResult) bool { return p.Refusal != nil })
		t.traces(k, points, truths, readDumps(string(t.ran(guest, k.name+" load")[0])))
	}
	t.equal("ranges of text that differ afterwards", len(t.done(guest, "after").Text.Differing), 0)
}

// traces holds the dumps from inside patches of a kind against the callers that a walk at
// the original found.
func (t *T) traces(k traced, points []*wire.PointResult, truths [][]string, dumps []dump) {
	inside, certain, missing := 0, 0, []string{}
	for _, d := range dumps {
		if !k.in(d.place, points) || elsewhere(k.known(d), truths) {
			continue
		}
		inside++
		if !slices.ContainsFunc(truths, func(truth []string) bool { return holdsInOrder(d.all, truth) }) {
			missing = append(missing, fmt.Sprintf("%s: %v", d.place, d.all))
		}
		if slices.ContainsFunc(truths, func(truth []string) bool { return holdsInOrder(d.certain, truth) }) {
			certain++
		}
	}
	for name, n := range map[string]int{"inside": inside, "certain": certain} {
		t.Metrics["backtraces."+k.name+"."+name] = report.Metric{Value: float64(n), Unit: "backtraces", N: 1}
	}
	t.atLeast(k.name+": backtraces from inside", float64(inside), fewestDumps)
	t.equal(k.name+": backtraces that miss a caller", missing, []string{})
	if !k.unsure {
		t.equal(k.name+": backtraces whose callers are certain", certain, inside)
	}
}
