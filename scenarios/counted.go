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
	"read": 32, "write": 4, "close": 2, "fcntl": 2, "epoll_ctl": 2, "epoll_pwait": 8, "futex": 64,
	"nanosleep": 200, "sched_yield": 32, "sched_getaffinity": 4, "getpid": 8, "gettid": 8, "tgkill": 8, "rt_sigreturn": 8,
	"clone": 4, "rt_sigprocmask": 16, "sigaltstack": 8, "mmap": 8, "munmap": 8, "madvise": 8,
	"pread64": 4, "filp_close": 2, // the kprobes' counts are read, and their module
}

// sameCounts compares what splices and kprobes have counted at the same places.
func (t *T) sameCounts(splices string) {
	places := map[string]string{"calls": "place", "path": "path"}[splices]
	spliced, probed := t.accepted("spliced", splices), t.accepted("kprobed", places)
	t.equal(splices+": both are at the same places", specs(probed), specs(spliced))
	counts := map[string]uint64{}
	for _, v := range t.done("spliced", splices+"-counts").Values {
		counts[v.Spec] = v.Count
	}
	hits := t.hits(splices)
	var called, total, differ uint64
	wrong := []string{}
	lines := fmt.Sprintf("%-52s %10s %10s\n", "place", "splices", "kprobes")
	for k, p := range spliced {
		n, hit := counts[p.Spec], hits[k]
		if n == 0 && hit == 0 {
			continue
		}
		called++
		total += n
		lines += fmt.Sprintf("%-52s %10d %10d\n", p.Spec, n, hit)
		t.count(splices+"."+strings.TrimPrefix(p.Symbol, syscallEntry(t.Arch, "")), n)
		if n != hit {
			differ++
		}
		if max(n, hit)-min(n, hit) > ofDaemon[strings.TrimPrefix(p.Symbol, syscallEntry(t.Arch, ""))] {
			wrong = append(wrong, fmt.Sprintf("%s: %d and %d", p.Spec, n, hit))
		}
	}
	t.Files[splices+".txt"] = []byte(lines)
	t.count(splices+".arrivals", total)
	t.Metrics[splices+".called"] = report.Metric{Value: float64(called), Unit: "functions", N: 1}
	t.Metrics[splices+".differ"] = report.Metric{Value: float64(differ), Unit: "functions", N: 1}
	t.equal(splices+": places that splices and kprobes count differently, beyond what the daemon does", wrong, []string{})
}

// hits are those of kprobes, in the order of their points: none where the kernel refuses
// one, which is filed.
func (t *T) hits(of string) (out []uint64) {
	values, refused := t.done("kprobed", "unkprobes-"+of).Values, 0
	for k, p := range t.done("kprobed", "kprobes-"+of).Points {
		if p.Refusal != nil {
			refused++
			out = append(out, 0)
			t.point("kprobed", p)
			continue
		}
		out = append(out, values[k-refused].Count)
	}
	t.Metrics[of+".kprobes-refused"] = report.Metric{Value: float64(refused), Unit: "points", N: 1}
	return out
}

// accepted are the points of a splice that were made; it files how many were refused, and why.
func (t *T) accepted(guest, step string) (out []*wire.PointResult) {
	for _, p := range t.done(guest, step).Points {
		if p.Refusal == nil {
			out = append(out, p)
			continue
		}
		name := step + ".refused." + strings.ReplaceAll(p.Refusal.Reason, " ", "-")
		m := t.Metrics[name]
		t.Metrics[name] = report.Metric{Value: m.Value + 1, Unit: "points", N: 1}
		t.point(guest, p)
	}
	t.Metrics[step+".points"] = report.Metric{Value: float64(len(out)), Unit: "points", N: 1}
	return out
}

func specs(points []*wire.PointResult) (out []string) {
	for _, p := range points {
		out = append(out, p.Spec)
	}
	return out
}
