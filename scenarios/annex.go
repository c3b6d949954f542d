package scenarios

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onsi/gomega"

	"kerninst/agent/wire"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// annex: instructions whose faults have a fixup are run bare, spliced, and when that was
// undone, from the same registers, flags and memory. Whether they go on, fault, or wait
// for a page, the same comes out, and each run is counted once. guest/module/peer/access
// has them, so that all registers are known; what the kernel's own exception table has
// and nothing here is like is named, with the reason (annexforms.go).
func annex() []Scenario {
	return []Scenario{
		{Name: "equivalence-annex-slice", Title: "instructions whose faults have a fixup do the same in the annex as where they stand", Labels: []string{"counts"},
			Guests: func(arch string) []Guest { return annexGuests(20, annexKinds(arch)[:1]) },
			Check:  func(t *T) { checkAnnex(t, annexKinds(t.Arch)[:1]) }},
		{Name: "equivalence-annex", Title: "the same from more registers, with two CPUs, and by patches of two parts", Labels: []string{"proof"},
			Guests: func(arch string) []Guest { return annexGuests(100, annexKinds(arch)) },
			Check:  func(t *T) { checkAnnex(t, annexKinds(t.Arch)) }},
	}
}

const (
	accessModule  = "access"
	accessProgram = "/lib/kerninst/bench/access"
	accessFile    = "/lib/kerninst/access.ko"
	accessAt      = "access_at_" // and a form's name: where the instruction is
	maxSeed       = 1_000_000    // of the program
)

// annexKind is a guest in which forms are spliced.
type annexKind struct {
	name  string
	cpus  int
	time  vm.Time
	apart bool // patches of two parts, which KASLR makes of some
}

func annexKinds(arch string) []annexKind {
	kinds := []annexKind{{name: "1cpu", cpus: 1, time: vm.Exact}, {name: "2cpu", cpus: 2, time: vm.Host}}
	if arch == "arm64" {
		kinds = append(kinds, annexKind{name: "apart", cpus: 1, time: vm.Exact, apart: true})
	}
	return kinds
}

// annexGuests: of what the first guest lists, the others' jobs are made. The run's seed
// is the program's.
func annexGuests(runs int, kinds []annexKind) []Guest {
	load := shell("load", "insmod "+accessFile)
	work := func(name string, copies, runs int, seed uint64) *wire.Step {
		s := run(name, accessProgram, strconv.FormatUint(seed%maxSeed+1, 10), strconv.Itoa(runs), "/tmp/access")
		s.GetRun().Copies = uint32(copies)
		return s
	}
	look := func(name, against string) *wire.Step {
		s := snapshot(name, against)
		s.GetSnapshot().Modules = []string{accessModule}
		return s
	}
	spliced := func(k annexKind) func(*Answer) (*wire.Job, error) {
		return func(listed *Answer) (*wire.Job, error) {
			forms, err := readForms(listed.Results["list"])
			if err != nil {
				return nil, err
			}
			var points []*wire.Point
			for _, f := range forms {
				points = append(points, &wire.Point{Module: accessModule, Function: accessAt + f.name, Apart: k.apart})
			}
			all := splice("splice", points...)
			all.GetSplice().SkipRefused = true
			same := func(name string, copies int) *wire.Step { return work(name, copies, runs, listed.Seed) }
			return job(load, same("bare", 1), look("before", ""), all, same("work", k.cpus), read("count"), unsplice("splice"),
				same("undone", k.cpus), look("after", "before"), shell("unload", "rmmod "+accessModule)), nil
		}
	}
	const long = 20 * time.Minute
	guests := []Guest{{Name: "list", CPUs: 1, Time: vm.Exact, Text: true, RunTimeout: long, Job: job(load, work("list", 1, 1, 0))}}
	for _, k := range kinds {
		guests = append(guests, Guest{Name: k.name, CPUs: k.cpus, Time: k.time, After: "list", Make: spliced(k), RunTimeout: long})
	}
	return guests
}

// ranForm is what guest/bench/access says of a form.
type ranForm struct {
	name                  string
	kind                  uint8 // of its entry in the exception table
	runs, faults, brought int
}

// readForms reads what the program printed.
func readForms(res *wire.Result) (out []ranForm, err error) {
	if len(res.GetRuns()) == 0 || res.Runs[0].Exit != 0 {
		return nil, fmt.Errorf("forms cannot be run: %v", res)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(res.Runs[0].Stdout)), "\n") {
		var f ranForm
		var digest string
		if n, err := fmt.Sscan(line, &f.name, &f.kind, &f.runs, &f.faults, &f.brought, &digest); err != nil {
			return nil, fmt.Errorf("%q: %d words of a form, then: %w", line, n, err)
		}
		out = append(out, f)
	}
	return out, nil
}

func checkAnnex(t *T, kinds []annexKind) {
	for _, k := range kinds {
		bare := t.ran(k.name, "bare")[0]
		forms, err := readForms(t.result(k.name, "bare"))
		t.g.Expect(err).NotTo(gomega.HaveOccurred())
		t.atLeast(k.name+": forms", float64(len(forms)), 1)
		for _, step := range []string{"work", "undone"} {
			for cpu, out := range t.ran(k.name, step) {
				t.equal(fmt.Sprintf("%s: %s, CPU %d: forms that came to something else", k.name, step, cpu), differing(bare, out), []string{})
			}
		}
		done := t.annexed(k, forms)
		t.annexFigures(k, done)
		if k.name == kinds[0].name {
			t.coverTable(done)
		}
		t.equal(k.name+": ranges of text that differ afterwards", len(t.done(k.name, "after").Text.Differing), 0)
		t.ran(k.name, "unload") // nobody is in a patch of it any more
	}
}

// differing are the lines of one output that another has not at the same place.
func differing(want, got []byte) []string {
	out := []string{}
	w, g := bytes.Split(want, []byte("\n")), bytes.Split(got, []byte("\n"))
	for k := range max(len(w), len(g)) {
		switch {
		case k >= len(g):
			out = append(out, fmt.Sprintf("%s is missing", w[k]))
		case k >= len(w):
			out = append(out, fmt.Sprintf("%s is too many", g[k]))
		case !bytes.Equal(w[k], g[k]):
			out = append(out, fmt.Sprintf("%s, not %s", g[k], w[k]))
		}
	}
	return out
}

// splicedForm is a form that ran in the annex.
type splicedForm struct {
	ranForm
	point *wire.PointResult
}

// annexed holds each form to what must become of it: what is spliced has counted every
// run; what is refused has the reason that it must have.
func (t *T) annexed(k annexKind, forms []ranForm) (done []splicedForm) {
	counts := map[string]uint64{}
	for _, v := range t.done(k.name, "count").Values {
		counts[v.Symbol] = v.Count
	}
	wrong, refused := []string{}, map[string]int{}
	points := t.done(k.name, "splice").Points
	t.equal(k.name+": points", len(points), len(forms))
	for n, p := range points {
		f := forms[n]
		t.point(k.name, p)
		want := staysPut(t.Arch, f.name, k.apart)
		if got := p.Refusal.GetReason(); got != want {
			wrong = append(wrong, fmt.Sprintf("%s is refused for %q (%s), not for %q", f.name, got, p.Refusal.GetDetail(), want))
		}
		if p.Refusal != nil {
			refused[p.Refusal.Reason]++
			continue
		}
		if want := uint64(f.runs * k.cpus); counts[p.Symbol] != want {
			wrong = append(wrong, fmt.Sprintf("%s (%s) counted %d of %d", f.name, p.Displaced[0], counts[p.Symbol], want))
		}
		if k.apart && p.AnnexAddress == 0 {
			wrong = append(wrong, f.name+" is in one part")
		}
		if _, free := formName(f.name); free != (p.Spilled == 0) {
			wrong = append(wrong, fmt.Sprintf("%s saves %d registers or flag words", f.name, p.Spilled))
		}
		done = append(done, splicedForm{f, p})
	}
	t.equal(k.name+": points that did not count each run, or were refused for another reason than theirs", wrong, []string{})
	for _, reason := range slices.Sorted(maps.Keys(refused)) {
		t.annexMetric(k.name+".refused."+strings.ReplaceAll(reason, " ", "-"), "points", refused[reason])
	}
	return done
}

// annexFigures files how much was run, and holds every form to have come to the fixup,
// and those that touch a user's memory to have waited for a page.
func (t *T) annexFigures(k annexKind, done []splicedForm) {
	runs, faults, brought, apart, never, ways := 0, 0, 0, 0, []string{}, map[string]int{}
	for _, f := range done {
		ways[f.point.Mechanism]++
		form, _ := formName(f.name)
		runs, faults, brought = runs+f.runs*k.cpus, faults+f.faults*k.cpus, brought+f.brought*k.cpus
		if f.faults == 0 && !slices.Contains(faultless[t.Arch], form) {
			never = append(never, f.name)
		}
		if f.point.AnnexAddress != 0 {
			apart++
		}
	}
	t.equal(k.name+": forms that never came to the fixup", never, []string{})
	t.atLeast(k.name+": runs in which a page was brought", float64(brought), 1)
	t.annexMetric(k.name+".points", "points", len(done))
	t.annexMetric(k.name+".runs", "runs", runs)
	t.annexMetric(k.name+".faults", "runs", faults)
	t.annexMetric(k.name+".brought", "runs", brought)
	for _, way := range slices.Sorted(maps.Keys(ways)) {
		t.annexMetric(k.name+"."+way, "points", ways[way])
	}
	if apart > 0 {
		t.annexMetric(k.name+".apart", "points", apart)
	}
}

func (t *T) annexMetric(name, unit string, n int) {
	t.Metrics["annex."+name] = report.Metric{Value: float64(n), Unit: unit, N: 1}
}
