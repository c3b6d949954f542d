package scenarios

import (
	"fmt"
	"strings"

	"kerninst/agent/wire"
	"kerninst/lab/report"
)

// What splices and kprobes have counted at the same places, in two guests that do the same.

// ofDaemon are system calls that the daemon and its runtime make while they wait for the
// program, at times of the host language's choosing, and by how many two runs may differ.
// read is the program's too: a stream's bytes come in as many pieces as there happen to be.
var ofDaemon = map[string]uint64{
	"read": 32, "write": 4, "close": 2, "fcntl": 2, "epoll_ctl": 2, "futex": 64,
	"epoll_pwait": 200, "nanosleep": 200, // the runtime's watch looks for input each time it has slept long
	"sched_yield": 32, "sched_getaffinity": 4, "getpid": 8, "gettid": 8, "tgkill": 8, "rt_sigreturn": 8,
	"clone": 4, "rt_sigprocmask": 16, "sigaltstack": 8, "mmap": 8, "munmap": 8, "madvise": 8,
	"pread64": 4, "filp_close": 2, // the kprobes' counts are read, and their module
}

// counted is how often a place was come by, as splices and as kprobes have it.
type counted struct {
	spec, function   string // without what all system calls' names begin with
	splices, kprobes uint64
}

// apart is by how much the two differ.
func (c counted) apart() uint64 { return max(c.splices, c.kprobes) - min(c.splices, c.kprobes) }

// sameCounts compares what splices and kprobes have counted at the same places.
func (t *T) sameCounts(splices string) {
	places := map[string]string{"calls": "place", "path": "path"}[splices]
	spliced, probed := t.accepted("spliced", splices), t.accepted("kprobed", places)
	t.equal(splices+": both are at the same places", specs(probed), specs(spliced))
	all := t.counted(spliced, t.done("spliced", splices+"-counts").Values, t.hits("kprobed", splices))
	t.fileCounted(splices, all)
	t.equal(splices+": places that splices and kprobes count differently, beyond what the daemon does",
		beyond(all, func(c counted) uint64 { return ofDaemon[c.function] }), []string{})
}

// counted are places that either has come by.
func (t *T) counted(points []*wire.PointResult, values []*wire.Value, hits []uint64) (out []counted) {
	counts := map[string]uint64{}
	for _, v := range values {
		counts[v.Spec] = v.Count
	}
	for k, p := range points {
		c := counted{p.Spec, strings.TrimPrefix(p.Symbol, syscallEntry(t.Arch, "")), counts[p.Spec], hits[k]}
		if c.splices+c.kprobes > 0 {
			out = append(out, c)
		}
	}
	return out
}

// beyond are places where the two differ by more than is allowed there.
func beyond(all []counted, allowed func(counted) uint64) []string {
	out := []string{}
	for _, c := range all {
		if c.apart() > allowed(c) {
			out = append(out, fmt.Sprintf("%s: %d and %d", c.spec, c.splices, c.kprobes))
		}
	}
	return out
}

// fileCounted files them, and how many there are and differ.
func (t *T) fileCounted(name string, all []counted) {
	var total uint64
	differ := 0
	lines := fmt.Sprintf("%-52s %10s %10s\n", "place", "splices", "kprobes")
	for _, c := range all {
		total += c.splices
		lines += fmt.Sprintf("%-52s %10d %10d\n", c.spec, c.splices, c.kprobes)
		t.count(name+"."+c.function, c.splices)
		if c.apart() > 0 {
			differ++
		}
	}
	t.Files[name+".txt"] = []byte(lines)
	t.count(name+".arrivals", total)
	t.Metrics[name+".called"] = report.Metric{Value: float64(len(all)), Unit: "functions", N: 1}
	t.Metrics[name+".differ"] = report.Metric{Value: float64(differ), Unit: "functions", N: 1}
}

// hits are those of kprobes, in the order of their points: none where the kernel refuses
// one, which is filed.
func (t *T) hits(guest, of string) (out []uint64) {
	values, refused := t.done(guest, "unkprobes-"+of).Values, 0
	for k, p := range t.done(guest, "kprobes-"+of).Points {
		if p.Refusal != nil {
			refused++
			out = append(out, 0)
			t.point(guest, p)
			continue
		}
		out = append(out, values[k-refused].Count)
	}
	t.Metrics[of+".kprobes-refused"] = report.Metric{Value: float64(refused), Unit: "points", N: 1}
	return out
}

// made are the points of a splice that were made.
func (t *T) made(guest, step string) (out []*wire.PointResult) {
	for _, p := range t.done(guest, step).Points {
		if p.Refusal == nil {
			out = append(out, p)
		}
	}
	return out
}

// noRoom are functions of which the entry may be refused where all of a kernel's system calls
// are asked for, and the way to an open file: what is near them is asked for as well, and
// none of it is moved away for the springboard of another.
var noRoom = map[string][]string{"riscv64": {"__riscv_sys_sched_getscheduler"}}

// accepted are those too, which must be all but what noRoom has. Once for each step of a guest.
func (t *T) accepted(guest, step string) []*wire.PointResult {
	all := []string{}
	for _, p := range t.done(guest, step).Points {
		if p.Refusal != nil && !contains(noRoom[t.Arch], p.Symbol) {
			all = append(all, p.Spec+": "+p.Refusal.Reason)
		}
		if p.Refusal != nil {
			t.point(guest, p)
		}
	}
	of := guest + "." + step
	out := t.made(guest, step)
	t.Metrics[of+".points"] = report.Metric{Value: float64(len(out)), Unit: "points", N: 1}
	t.equal(of+": points that are refused", all, []string{})
	return out
}

func specs(points []*wire.PointResult) (out []string) {
	for _, p := range points {
		out = append(out, p.Spec)
	}
	return out
}
