package scenarios

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/onsi/gomega"

	"kerninst/agent/index"
	"kerninst/agent/ktext"
	"kerninst/agent/ktypes"
	"kerninst/agent/wire"
	"kerninst/lab/measure"
	"kerninst/lab/oracle"
	"kerninst/lab/report"
)

// Answer is what came back from one guest.
type Answer struct {
	Hello   *wire.Hello
	Done    *wire.Done
	Results map[string]*wire.Result       // by step
	Oracle  oracle.Report                 // where it was asked for
	Calls   *oracle.Call                  // of the task that was watched, where they were asked for
	Seed    uint64                        // of the guest
	Text    *ktext.Text                   // of the image's kernel as it boots; where a guest's executed instructions are told
	Index   *index.Index                  // of the same, where a guest has it
	Types   func() (*ktypes.Types, error) // of the image's kernel
	Dump    []byte                        // of its own kernel, that a Dump step has sent
	Crash   string                        // what it said when it ended as Guest.Ends says; empty: it ended well
	Exact   bool                          // ran in exact time: it says the same each time
}

// T is the state of one check: the answers it looks at, and what it found.
type T struct {
	Arch    string
	Release string // of the kernel that the image holds
	Guests  map[string]*Answer
	Metrics map[string]report.Metric
	Checks  []report.Check
	Points  []report.Point
	Grid    *report.Grid
	// Files are for other programs to read, by name; see report.FilesDir.
	Files map[string][]byte
	g     gomega.Gomega
	fail  func(message string)
	wrong string // what the first part that failed has said
}

// before reports whether the kernel is older than a version.
func (t *T) before(major, minor int) bool {
	var is [2]int
	_, err := fmt.Sscanf(t.Release, "%d.%d", &is[0], &is[1])
	return err == nil && slices.Compare(is[:], []int{major, minor}) < 0
}

// NewT makes the state for a check. fail is called with the first assertion
// that does not hold, and must not return.
func NewT(arch, release string, guests map[string]*Answer, fail func(message string)) *T {
	return &T{
		Arch: arch, Release: release, Guests: guests, Metrics: map[string]report.Metric{}, Files: map[string][]byte{},
		g: gomega.NewGomega(func(message string, _ ...int) { fail(message) }), fail: fail,
	}
}

// part makes one of several checks of which each is made whatever the others find, if these guests are there. It says what
// is wrong, in a line; empty: nothing. Who has made all has to ask for parts.
func (t *T) part(check func(), guests ...string) (why string) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case stop:
			t.wrong = cmp.Or(t.wrong, p.message)
			line, _, _ := strings.Cut(p.message, "\n")
			why = line[:min(len(line), mostWhy)]
		default:
			panic(p)
		}
	}()
	for _, g := range guests {
		t.g.Expect(t.Guests).To(gomega.HaveKey(g), "guest %s did not end well", g)
	}
	check()
	return ""
}

// mostWhy bounds a line in a table, in bytes.
const mostWhy = 200

// parts fails if one of the parts has.
func (t *T) parts() {
	if t.wrong != "" {
		t.fail(t.wrong)
	}
}

// expect records an assertion and makes it.
func (t *T) expect(what string, got any, want string, m gomega.OmegaMatcher) {
	ok, err := m.Match(got)
	t.Checks = append(t.Checks, report.Check{What: what, Got: fmt.Sprint(got), Want: want, OK: ok && err == nil})
	t.g.Expect(got).To(m, "%s", what)
}

func (t *T) equal(what string, got, want any) {
	t.expect(what, got, fmt.Sprint(want), gomega.Equal(want))
}

func (t *T) atMost(what string, got, limit float64) {
	t.expect(what, got, fmt.Sprintf("at most %g", limit), gomega.BeNumerically("<=", limit))
}

func (t *T) atLeast(what string, got, limit float64) {
	t.expect(what, got, fmt.Sprintf("at least %g", limit), gomega.BeNumerically(">=", limit))
}

func (t *T) count(name string, n uint64) {
	t.Metrics[name] = report.Metric{Value: float64(n), Unit: "arrivals", N: 1}
}

func (t *T) insns(name string, v float64) {
	t.Metrics[name] = report.Metric{Value: v, Unit: "insns", Better: "lower", N: samples}
}

// result is the answer to a step, which must have been reached.
func (t *T) result(guest, step string) *wire.Result {
	r := t.Guests[guest].Results[step]
	t.g.Expect(r).NotTo(gomega.BeNil(), "guest %s did not reach step %s: %s", guest, step, t.Guests[guest].Done.GetError())
	return r
}

// done is the answer to a step that must have succeeded.
func (t *T) done(guest, step string) *wire.Result {
	r := t.result(guest, step)
	t.equal(guest+": "+step, r.Error, "")
	t.equal(guest+": "+step+": why the index is not used", r.IndexError, "")
	return r
}

// spliced is the only point of a splice that must have been made.
func (t *T) spliced(guest, step string) *wire.PointResult {
	p := t.done(guest, step).Points[0]
	t.point(guest, p)
	return p
}

// point files a point. Addresses in a guest of host time differ from run to
// run, so those are left out: results have to be repeatable.
func (t *T) point(guest string, p *wire.PointResult) {
	if t.Guests[guest].Exact {
		t.Points = append(t.Points, pointReport(p))
	}
}

// ran is the output of each copy of a program that must have succeeded.
func (t *T) ran(guest, step string) [][]byte {
	var out [][]byte
	for i, r := range t.done(guest, step).Runs {
		what := fmt.Sprintf("%s: %s: exit status", guest, nth(step, i))
		if r.Exit != 0 {
			what += " (" + string(r.Stderr) + ")"
		}
		t.equal(what, r.Exit, int32(0))
		t.g.Expect(r.Truncated).To(gomega.BeFalse(), "%s: %s: what it wrote is cut at 1 MiB", guest, nth(step, i))
		out = append(out, r.Stdout)
	}
	return out
}

// benches is what a bench step printed, of each copy.
func (t *T) benches(guest, step string) []*measure.Bench {
	var out []*measure.Bench
	for _, text := range t.ran(guest, step) {
		b, err := measure.ParseBench(text)
		t.g.Expect(err).NotTo(gomega.HaveOccurred())
		out = append(out, b)
	}
	return out
}

// value is the counter of a point, at a read step.
func (t *T) value(guest, step string, p *wire.PointResult) uint64 {
	for _, v := range t.done(guest, step).Values {
		if v.Symbol == p.Symbol && v.Offset == p.Offset {
			return v.Count
		}
	}
	t.g.Expect(p).To(gomega.BeNil(), "step %s has no counter for the point", step)
	return 0
}

// address is one as results have it; none is empty.
func address(a uint64) string {
	if a == 0 {
		return ""
	}
	return fmt.Sprintf("%#x", a)
}

func pointReport(p *wire.PointResult) report.Point {
	out := report.Point{
		Spec: p.Spec, Symbol: p.Symbol, Offset: fmt.Sprintf("%#x", p.Offset), Address: fmt.Sprintf("%#x", p.Address),
		Mechanism: p.Mechanism, Old: hex.EncodeToString(p.OldBytes), New: hex.EncodeToString(p.NewBytes),
		Patch: hex.EncodeToString(p.PatchBytes), PatchAddress: fmt.Sprintf("%#x", p.PatchAddress),
		RunsAt: address(p.RunsAt), WrittenAt: address(p.WrittenAt), Displaced: p.Displaced, Moved: p.Moved, Added: int(p.Added), Spilled: int(p.Spilled), Liveness: p.Liveness, Cell: p.Cell,
	}
	if p.AnnexAddress != 0 {
		out.Annex, out.AnnexAddress = hex.EncodeToString(p.AnnexBytes), fmt.Sprintf("%#x", p.AnnexAddress)
	}
	if r := p.Refusal; r != nil {
		out.Refusal = &report.Refusal{Reason: r.Reason, Detail: r.Detail}
	}
	return out
}
