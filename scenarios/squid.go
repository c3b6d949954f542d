package scenarios

import (
	"bytes"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onsi/gomega"
	"golang.org/x/perf/benchfmt"

	"kerninst/agent/wire"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// squid: Debian's Squid with its store on a disk, an origin server and clients after the
// Wisconsin Proxy Benchmark (guest/bench/wpb.c), all in one guest, in exact time; and the
// same once more with every system call of Squid's traced, which tells where its time goes.
func squid() []Scenario {
	one := func(name string, requests int, label string) Scenario {
		return Scenario{
			Name: name, Title: fmt.Sprintf("Squid, %d clients with %d requests each in two phases: requests per second, instructions of a request, shares of system calls", squidClients, 2*requests),
			Labels: []string{label},
			Guests: func(string) []Guest { return squidGuests(requests) },
			Check:  func(t *T) { checkSquid(t, requests) },
		}
	}
	return []Scenario{one("squid", 10, "workload"), one("squid-long", 60, "proof")}
}

const (
	squidClients = 30
	squidDelay   = 100 // milliseconds, of the origin
)

//go:embed squid.sh
var squidScript string

// squidPart runs a part of the script.
func squidPart(name string, argv ...string) *wire.Step {
	return run(name, append([]string{"/bin/sh", "-c", squidScript, "squid"}, argv...)...)
}

func squidGuests(requests int) (all []Guest) {
	for _, how := range []string{"drive", "trace"} {
		g := squidGuest(how)
		g.Job = job(append(squidBegins(requests), squidWork(how, requests), squidPart("stop", "stop"))...)
		all = append(all, g)
	}
	return all
}

// squidGuest is one in which Squid can run.
func squidGuest(name string) Guest {
	return Guest{
		Name: name, CPUs: 1, Time: vm.Exact, Software: []string{"squid"},
		// ext4 asks for the checksum by itself, of a program that guests do not have; later kernels have it in themselves.
		Modules: []string{"null_blk", "crc32c_generic" + IfAny, "ext4"}, RunTimeout: 15 * time.Minute,
	}
}

// squidBegins is all that comes before the clients.
func squidBegins(requests int) []*wire.Step {
	// Two documents of a phase's 100 KiB on average, and as much again for the log.
	megabytes := 128 + squidClients*requests/4
	return []*wire.Step{
		squidPart("disk", "disk", strconv.Itoa(megabytes)),
		squidPart("start", "start", ""),
		squidPart("serve", "serve", strconv.Itoa(squidDelay)),
	}
}

// squidWork has each client make as many requests in each phase; how is drive or trace.
func squidWork(how string, requests int) *wire.Step {
	return squidPart("work", how, strconv.Itoa(squidClients), strconv.Itoa(requests), "1")
}

// proxied is what a guest found of Squid.
type proxied struct {
	phases map[string]map[string]float64 // by phase and unit
	asked  int                           // requests
	nanos  float64                       // that Squid ran, in the kernel and out of it
	disk   [3]float64                    // writes, milliseconds of writing, milliseconds in which there was any
	files  float64
	calls  map[string]syscallShare
}

type syscallShare struct{ n, micros float64 }

// numbers are the fields of a line.
func numbers(line string) (out []float64, ok bool) {
	for _, w := range strings.Fields(line) {
		v, err := strconv.ParseFloat(w, 64)
		if err != nil {
			return nil, false
		}
		out = append(out, v)
	}
	return out, len(out) > 0
}

// readProxied reads what drive and trace print: usage before and behind the benchmark's
// lines, and files in the store.
func readProxied(out []byte) (*proxied, error) {
	p := &proxied{phases: map[string]map[string]float64{}, calls: map[string]syscallShare{}}
	var plain [][]float64
	for _, line := range strings.Split(string(out), "\n") {
		if name, rest, _ := strings.Cut(strings.TrimPrefix(line, "syscall "), " "); strings.HasPrefix(line, "syscall ") {
			v, ok := numbers(rest)
			if !ok || len(v) != 2 {
				return nil, fmt.Errorf("line %q is no system call's count and time", line)
			}
			p.calls[name] = syscallShare{v[0], v[1]}
		} else if v, ok := numbers(line); ok {
			plain = append(plain, v)
		}
	}
	if len(plain) != 5 || len(plain[0]) != 1 || len(plain[1]) != 3 || len(plain[2]) != 1 || len(plain[3]) != 3 || len(plain[4]) != 1 {
		return nil, fmt.Errorf("what was used is not in %q", out)
	}
	p.nanos, p.files = plain[2][0]-plain[0][0], plain[4][0]
	for k := range p.disk {
		p.disk[k] = plain[3][k] - plain[1][k]
	}
	r := benchfmt.NewReader(bytes.NewReader(out), "squid")
	for r.Scan() {
		b, ok := r.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		units := map[string]float64{}
		for _, v := range b.Values {
			if v.OrigUnit != "" {
				v.Value, v.Unit = v.OrigValue, v.OrigUnit
			}
			units[v.Unit] = v.Value
		}
		if _, parts := b.Name.Parts(); len(parts) > 0 {
			p.phases[strings.TrimPrefix(string(parts[0]), "/")] = units
		}
		p.asked += b.Iters
	}
	return p, r.Err()
}

func (t *T) proxied(guest string) *proxied {
	p, err := readProxied(t.ran(guest, "work")[0])
	t.g.Expect(err).NotTo(gomega.HaveOccurred())
	return p
}

func checkSquid(t *T, requests int) {
	for _, guest := range []string{"drive", "trace"} {
		t.servedBy(guest, requests)
	}
	t.squidMetrics(t.proxied("drive"))
	t.squidShares(t.proxied("drive"), t.proxied("trace"))
}

// servedBy holds all that a guest did, and gives what was measured.
func (t *T) servedBy(guest string, requests int) *proxied {
	t.g.Expect(string(t.ran(guest, "disk")[0])).To(gomega.And(gomega.ContainSubstring(" ext4 "), gomega.ContainSubstring("dirsync")), "%s: the store", guest)
	for _, part := range []string{"start", "serve", "stop"} {
		t.ran(guest, part)
	}
	p := t.proxied(guest)
	t.checkProxied(guest, p, requests)
	return p
}

// requested holds what clients have asked for and how, which whatever looks at Squid leaves as it is.
func (t *T) requested(guest string, p *proxied, requests int) {
	t.equal(guest+": requests", p.asked, 2*squidClients*requests)
	for _, ph := range squidPhases {
		got, what := p.phases[ph.name], guest+": "+ph.name
		t.g.Expect(got).NotTo(gomega.BeNil(), "%s: no such phase", what)
		t.atLeast(what+": hits of a request", got["hits/req"], ph.least)
		t.atMost(what+": hits of a request", got["hits/req"], ph.most)
		t.atLeast(what+": time of a request", got["ns/op"], (1-ph.most)*squidDelay*1e6)
	}
}

// squidPhases are the benchmark's, and which part of a phase's requests hits the store.
var squidPhases = []struct {
	name        string
	least, most float64
}{{"miss", 0, 0}, {"mixed", 0.4, 0.6}}

// checkProxied holds what was measured against what was asked for: every document was
// right, or the program had ended with an error.
func (t *T) checkProxied(guest string, p *proxied, requests int) {
	t.requested(guest, p, requests)
	// Each document that misses is a file.
	t.atLeast(guest+": files in the store", p.files, 0.9*1.4*float64(squidClients*requests))
	t.atLeast(guest+": writes to the disk", p.disk[0], p.files)
	t.atLeast(guest+": milliseconds in which the disk wrote", p.disk[2], 1)
}

func (t *T) squidMetrics(p *proxied) {
	add := func(name string, v float64, unit string) {
		t.Metrics["squid."+name] = report.Metric{Value: v, Unit: unit, N: p.asked}
	}
	add("requests", float64(p.asked), "requests")
	for phase, units := range p.phases {
		add(phase+".request", units["ns/op"], "vns/op")
		add(phase+".rate", units["req/s"], "req/s")
		add(phase+".bytes", units["MB/s"], "MB/s")
		add(phase+".hits", units["hits/req"], "hits/req")
	}
	add("insns_per_request", p.nanos/float64(p.asked), "insns/op")
	add("disk.writes", p.disk[0]/float64(p.asked), "writes/op")
	add("disk.busy", p.disk[2]*1e6/float64(p.asked), "vns/op")
}

// squidShares files which part of Squid's system calls' time each has. Tracing takes
// time itself: how much says how far to trust small ones.
func (t *T) squidShares(bare, traced *proxied) {
	var all float64
	for _, name := range slices.Sorted(maps.Keys(traced.calls)) { // a sum of one order
		all += traced.calls[name].micros
	}
	t.atLeast("microseconds of system calls", all, 1)
	for _, name := range []string{"openat", "read", "write", "unlink", "epoll_wait", "epoll_pwait"} {
		if c, ok := traced.calls[name]; ok {
			t.Metrics["squid.share."+name] = report.Metric{Value: 100 * c.micros / all, Unit: "%", N: int(c.n)}
		}
	}
	t.atLeast("files that Squid has opened", traced.calls["openat"].n, traced.files)
	t.Metrics["squid.tracing"] = report.Metric{Value: traced.nanos / bare.nanos, Unit: "ratio", N: traced.asked}
}
