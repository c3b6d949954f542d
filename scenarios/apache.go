package scenarios

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"kerninst/agent/wire"
	"kerninst/lab/measure"
	"kerninst/lab/report"
)

// apache: Debian's Apache and its own benchmark, ab, in one guest, with what granularities has in a
// kernel, after figures 11 (throughput) and 12 (response time) of JIFL (EuroSys 2007). JIFL's ab asked
// from another machine, whose kernel had no instrumentation, and Apache was in the kernel for a
// quarter of its time; here both are on one CPU, over loopback, and the kernel has most of the time.
//
// Apache is of its kind with a process for each connection, as JIFL's was. In exact time each kind
// comes out again the same; with processes no thread waits for another in a futex, so what a request
// calls is known.

const (
	apacheProcesses = 8
	apacheBytes     = 8192 // of the document
	apacheFile      = "/run/apache.sh"
	apacheWarm      = 2 * apacheProcesses // requests before any is measured
)

//go:embed apache.sh
var apacheScript string

// apachePart runs a part of the script.
func apachePart(name string, argv ...string) *wire.Step {
	return run(name, append([]string{"/bin/sh", apacheFile}, argv...)...)
}

// apacheBegins is all that comes before requests that are measured; more is a line for the
// configuration.
func apacheBegins(more string) []*wire.Step {
	return []*wire.Step{
		script(apacheFile, apacheScript),
		apachePart("start", "start", strconv.Itoa(apacheProcesses), strconv.Itoa(apacheBytes), more),
		apachePart("warm", "ask", strconv.Itoa(apacheWarm), strconv.Itoa(apacheProcesses)),
	}
}

// apacheOps are what is printed of ab's times: of all requests together how long one took, which is
// what throughput is the inverse of; how long from its begin to its end, in the mean and at most of
// so many in a hundred.
var apacheOps = strings.Fields("Request Response Response/p50 Response/p90 Response/p95")

// apacheCalls are made once in each request, and by nobody else: the answer's head and its text. For
// a connection more processes may wake than one, and wait in accept4 for the next: as many as there
// are may have begun to before, or be left over.
var apacheCalls = []struct {
	name  string
	apart uint64
}{{"writev", 0}, {"sendfile64", 0}, {"accept4", apacheProcesses}}

// apacheSeenRequests are so many that what is executed as often is on the way of each, and not on
// that of ab itself into memory.
const apacheSeenRequests = 600

// apacheSeen are requests and nothing else, while an observer looks at what is executed.
func apacheSeen() *wire.Step {
	s := run("seen", "/usr/bin/ab", "-q", "-n", strconv.Itoa(apacheSeenRequests), "-c", strconv.Itoa(apacheProcesses), "http://127.0.0.1:80/index.html")
	s.GetRun().Metered = true
	return s
}

// apacheSuite asks for as many samples of so many requests.
func apacheSuite(samples, requests int, patience time.Duration, rivals ...string) granularSuite {
	s := granularSuite{
		name: "apache", operations: apacheOps, together: apacheOps[:1], unit: func(string) string { return vnsPerOp },
		samples: samples, seen: apacheSeen(), executed: apacheSeenRequests, come: true, patience: patience,
		software: []string{"apache"}, begins: apacheBegins(""), ends: []*wire.Step{apachePart("stop", "stop")},
		argv:    []string{"/bin/sh", apacheFile, "work", strconv.Itoa(samples), strconv.Itoa(requests), strconv.Itoa(apacheProcesses)},
		load:    []string{"/bin/sh", apacheFile, "ask", strconv.Itoa(apacheLoadRequests), strconv.Itoa(apacheProcesses)},
		rivals:  rivals,
		also:    func(t *T) { t.apacheShare() },
		limits:  apacheLimits,
		answers: func(t *T, guest, step string, text []byte) { t.apacheAnswers(guest, step, text, samples, requests) },
		often:   uint64(samples * requests), apart: apacheApart,
	}
	for _, call := range apacheCalls {
		n := uint64(samples*requests + 1) // the last has its text looked at
		s.known = append(s.known, knownCalls{call: call.name, least: n - call.apart, most: n + call.apart, less: 2 * call.apart, beside: 2 * call.apart})
	}
	return s
}

func apaches() []Scenario {
	few := apacheSuite(2, 16, 20*time.Minute, toolKprobe)
	why := "not asked of few requests, for they take minutes: the scenario apache does"
	few.unasked = map[string]string{"traced": why, "blocks": why}
	all := apacheSuite(3, 500, 3*time.Hour)
	all.bpftraced = bpftraceMemory
	const title = "Apache asked by ab, with system calls, calls and blocks counted and calls traced, by splices and by "
	return []Scenario{
		few.scenario("apache-slice", title+"kprobes; few requests", "measure proof"),
		all.scenario("apache", title+"others' probes: throughput and latency", "proof"),
	}
}

// apacheLimits are of requests' mean time, with a little room: with few requests it is who meets whom
// that makes up to 2 % of it.
var apacheLimits = []granularLimit{
	{"monitored", toolSplice, each(1.03, 1.03, 1.04)},
	{"counted", toolSplice, each(1.1, 1.1, 1.3)},
	{"traced", toolSplice, each(1.5, 1.5, 1.7)},
	{"blocks", toolSplice, each(1.5, 1.7, 0)},
	{"counted", toolKprobe, each(100, 100, 40)},
}

// apacheApart is the part that others find otherwise at most: who takes longer has other processes
// ready when a request comes, and more interrupts.
var apacheApart = map[string]float64{toolClone: 0.25, toolKprobe: 0.25, toolOptprobe: 0.25, toolBpftrace: 0.25, toolFtrace: 0.25}

// apacheDocument is what the script's file has in it: lines with where they begin.
func apacheDocument() []byte {
	var b bytes.Buffer
	for b.Len() < apacheBytes {
		fmt.Fprintf(&b, "%07d\n", b.Len())
	}
	return b.Bytes()
}

// apacheAnswers holds what ab and Apache's log say of answers, in each sample, against what was asked
// for, and the one whose text was looked at against the document.
func (t *T) apacheAnswers(guest, step string, text []byte, samples, requests int) {
	said := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			said[key] = append(said[key], value)
		}
	}
	for _, of := range []struct {
		key  string
		want int
	}{{"complete", requests}, {"failed", 0}, {"length", apacheBytes}, {"html", apacheBytes * requests}, {"logged", requests}} {
		t.equal(guest+": "+step+": "+of.key, said[of.key], slices.Repeat([]string{strconv.Itoa(of.want)}, samples))
	}
	t.equal(guest+": "+step+": SHA-256 of the document that came", said["sum"], []string{fmt.Sprintf("%x", sha256.Sum256(apacheDocument()))})
	suite, err := measure.ParseSuite(text)
	t.noError(guest+": "+step, err)
	t.Metrics["rate."+guest+"."+strings.TrimSuffix(step, ".work")] = report.Metric{Value: 1e9 / suite.Operations[0].NS, Unit: "req/s", Better: report.Higher, N: requests}
}

// apacheShare files which part of a bare request's time the kernel has: what comes by in each, of the
// time that is never idle.
func (t *T) apacheShare() {
	var kernel uint64
	for _, n := range t.Guests["seen"].Oracle {
		kernel += n.Total
	}
	share := float64(kernel) / apacheSeenRequests / t.Metrics["monitored.Request.bare"].Value
	t.Metrics["kernel.share"] = report.Metric{Value: 100 * share, Unit: "%", N: apacheSeenRequests}
	t.atMost("part of a request's time that the kernel has", share, 1)
}
