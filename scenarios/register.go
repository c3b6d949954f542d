package scenarios

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2"

	"kerninst/agent/index"
	"kerninst/agent/klog"
	"kerninst/agent/ktext"
	"kerninst/agent/ktypes"
	"kerninst/agent/probe"
	"kerninst/agent/wire"
	"kerninst/images"
	"kerninst/lab/card"
	"kerninst/lab/report"
	"kerninst/lab/runner"
	"kerninst/lab/status"
	"kerninst/lab/vm"
)

// Env is what scenarios run in: one ISA, one image, one seed.
type Env struct {
	Arch    string
	Release string // of the image's kernel
	Ctx     context.Context
	Runner  *runner.Runner
	Time    vm.Time // of guests that run in either
	// Programs are those that guests ask for, by package.
	Programs map[string]images.File
	// Kernel is the image's, as guests bring it along that ask for it.
	Kernel images.File
	// Software are Debian's files that guests ask for, by name.
	Software map[string][]images.File
	// Taps are the modules of SystemTap's that guests ask for, by TapsKey.
	Taps map[string][]images.File
	// Modules are the files that load the modules that a guest asks for, by ModulesKey.
	Modules map[string][]images.File
	// Lacks says what a kernel has none of, by ModulesKey: scenarios that need it fail, the
	// others run.
	Lacks map[string]error
	// Missing says why software or taps cannot be had, by their keys: guests that ask for them fail,
	// the others run.
	Missing map[string]error
	// Index is the kernel's, for guests that ask for it.
	Index images.File
	// Known is the same, read.
	Known *index.Index
	// Text is the kernel's, for guests of which points are drawn.
	Text *ktext.Text
	// Types are those of the kernel, for what is asked in their words.
	Types func() (*ktypes.Types, error)
	// Rerun is the command that repeats one scenario, for failure cards.
	Rerun func(scenario string) string
	// Same are the flags with which another command has a guest of this kernel.
	Same string

	// Keep leaves guests of scenarios that fail as they are; Keeps says that those
	// of this backend could be left.
	Keep, Keeps bool
	// Cards of what did not pass, in order.
	Cards []card.Card
	// Results has one entry per scenario that has run, in order.
	Results []report.Scenario
	// Files that scenarios leave for other programs, by name.
	Files map[string][]byte
	// Took is the host time of each guest in seconds, by name.
	Took map[string]float64
	// HelloAfter is the host time from start to hello, likewise.
	HelloAfter map[string]float64
	// RunningAfter is the host time from when a guest's turn came to its job's first
	// step, with what its machine was made from copied and checked, likewise.
	RunningAfter map[string]float64
	// Guests are the names of those that ran.
	Guests []string

	pending []*runner.Pending // every guest that was asked for
}

// Register asks for all guests of the given scenarios and makes one ginkgo
// spec of each scenario. It has to be called before ginkgo.RunSpecs.
func Register(env *Env, list []Scenario) {
	env.Took, env.HelloAfter, env.RunningAfter = map[string]float64{}, map[string]float64{}, map[string]float64{}
	env.Files = map[string][]byte{}
	// One container: ginkgo shuffles those of the top, and keeps the order in
	// each.
	ginkgo.Describe(env.Arch, func() {
		guests, pending := make([][]Guest, len(list)), make([][]*runner.Pending, len(list))
		for k, s := range list {
			guests[k] = s.Guests(env.Arch)
		}
		for _, k := range env.longestFirst(guests) {
			if env.lacking(guests[k]) != nil {
				continue
			}
			pending[k] = env.start(list[k], guests[k])
			env.pending = append(env.pending, pending[k]...)
		}
		for k, s := range list {
			env.register(s, guests[k], pending[k])
		}
	})
}

// longestFirst is the order in which scenarios begin, so that no long one is left alone
// at the end: those whose guests boot, in host time, and with the most CPUs, before those
// that go on from states.
func (env *Env) longestFirst(guests [][]Guest) []int {
	most := func(list []Guest) (cpus int) {
		for _, g := range list {
			if g.Time == vm.Host || g.Time == "" && env.Time == vm.Host {
				cpus = max(cpus, g.CPUs)
			}
		}
		return cpus
	}
	order := make([]int, len(guests))
	for k := range order {
		order[k] = k
	}
	slices.SortStableFunc(order, func(a, b int) int { return most(guests[b]) - most(guests[a]) })
	return order
}

func (env *Env) register(s Scenario, guests []Guest, pending []*runner.Pending) {
	ginkgo.It(s.Name+": "+s.Title, ginkgo.Label(s.Labels...), func() {
		out := report.Scenario{Name: s.Name, Metrics: map[string]report.Metric{}}
		message := ""
		if err := env.lacking(guests); err != nil {
			message = err.Error()
			out.Status, out.Failure = status.Failed, &report.Failure{Kind: "kernel", Summary: message, Rerun: env.Rerun(s.Name)}
		} else {
			message = env.run(s, guests, pending, &out)
		}
		env.Results = append(env.Results, out)
		env.Runner.Progress("%s: %s: %s", env.Arch, s.Name, strings.Join(strings.Fields(string(out.Status)+" "+report.CleanText(message)), " "))
		if message != "" {
			ginkgo.Fail(message)
		}
	})
}

// lacking says what some of the guests need and the kernel has none of.
func (env *Env) lacking(guests []Guest) error {
	for _, g := range guests {
		if err := env.Lacks[ModulesKey(g.Modules)]; err != nil {
			return fmt.Errorf("guest %s: %w", g.Name, err)
		}
	}
	return nil
}

// missing says what a guest needs and cannot have.
func (env *Env) missing(g Guest) error {
	for _, name := range append(slices.Clone(g.Software), TapsKey(g.Taps)) {
		if err := env.Missing[name]; err != nil {
			return fmt.Errorf("guest %s: %w", g.Name, err)
		}
	}
	return nil
}

func (env *Env) start(s Scenario, guests []Guest) (pending []*runner.Pending) {
	var requests []runner.Request
	for _, g := range guests {
		requests = append(requests, env.request(s, g, len(guests)))
	}
	if s.Timed && !slices.ContainsFunc(guests, func(g Guest) bool { return env.missing(g) != nil }) {
		return env.Runner.StartInTurn(env.Ctx, requests)
	}
	for i, q := range requests {
		g := guests[i]
		if err := env.missing(g); err != nil {
			pending = append(pending, env.Runner.Without(q, err))
			continue
		}
		if g.Make == nil {
			pending = append(pending, env.Runner.Start(env.Ctx, q))
			continue
		}
		first := slices.IndexFunc(guests[:i], func(o Guest) bool { return o.Name == g.After })
		pending = append(pending, env.Runner.StartAfter(env.Ctx, pending[first], func(of *runner.Guest) (*wire.Job, error) {
			job, err := g.Make(env.answer(of))
			return seeded(job, env.seed(g)), err
		}, q))
	}
	return pending
}

// Requests are what Register would ask for.
func (env *Env) Requests(list []Scenario) (all []runner.Request) {
	for _, s := range list {
		guests := s.Guests(env.Arch)
		for _, g := range guests {
			all = append(all, env.request(s, g, len(guests)))
		}
	}
	return all
}

// IfAny is behind the name of a module that not each kernel has, and that is not needed where there is none.
const IfAny = "?"

// ModuleNames are those of a list of a guest's modules.
func ModuleNames(list []string) (out []string) {
	for _, m := range list {
		out = append(out, strings.TrimSuffix(m, IfAny))
	}
	return out
}

// ModulesKey names a list of modules.
func ModulesKey(names []string) string { return strings.Join(names, ",") }

// TapsKey names scripts of SystemTap's.
func TapsKey(scripts map[string]string) string {
	var key []string
	for _, name := range slices.Sorted(maps.Keys(scripts)) {
		key = append(key, name, scripts[name])
	}
	return strings.Join(key, "\x00")
}

// GuestName names a guest among those of all scenarios.
func GuestName(s Scenario, g Guest) string { return s.Name + "." + g.Name }

// mostPassed is how many guests that passed are kept at a time for a scenario that
// may fail: each takes some 400 MiB.
const mostPassed = 4

func (env *Env) request(s Scenario, g Guest, of int) runner.Request {
	if g.Time == "" {
		g.Time = env.Time
	}
	var files []images.File
	for _, p := range g.Programs {
		files = append(files, env.Programs[p])
	}
	if g.OwnKernel {
		files = append(files, env.Kernel)
	}
	for _, s := range g.Software {
		files = runner.WithOthers(files, env.Software[s])
	}
	files = append(files, env.Taps[TapsKey(g.Taps)]...)
	files = append(files, env.Modules[ModulesKey(g.Modules)]...)
	again := len(g.Programs) == 0 && len(g.Taps) == 0 && !g.Index // the kernel's own and Debian's, and no program of today's
	if g.Index {
		files = append(files, env.Index)
	}
	return runner.Request{
		Files: files, FilesAgain: again, Boots: g.Boots || g.alone(),
		Name: GuestName(s, g), CPUs: g.CPUs, CPU: g.CPU, MemMiB: cmp.Or(g.Memory, images.SoftwareMemory(g.Software...)), Time: g.Time, Seed: g.Seed, Append: g.Append,
		Oracle: g.Oracle, Executed: g.Executed, Calls: g.Calls, Keep: env.Keep, KeepPassed: env.Keep && of <= mostPassed, Job: seeded(g.Job, env.seed(g)), BootTimeout: g.BootTimeout, RunTimeout: g.RunTimeout,
	}
}

// seed is a guest's.
func (env *Env) seed(g Guest) uint64 { return env.Runner.Seed + g.Seed }

// alone says that few guests are of this one's kind: no state of it is kept.
func (g Guest) alone() bool { return g.Time == vm.Host && (g.Append != "" || g.CPU != "") }

// run waits for a scenario's guests and checks them. The result is the message
// of the first thing that is wrong, or nothing.
func (env *Env) run(s Scenario, guests []Guest, pending []*runner.Pending, out *report.Scenario) string {
	answers := map[string]*Answer{}
	out.Status = status.Passed
	var all []*runner.Guest
	var early *runner.Guest // whose job ended before its end
	notAsked := ""
	for i, p := range pending {
		g := p.Wait()
		if errors.Is(g.Err, runner.ErrNotAsked) {
			notAsked = guests[i].Name
			continue
		}
		all = append(all, g)
		env.note(g)
		if failure, st := env.failure(s, guests[i], g); failure != nil {
			if status.Worst(out.Status, st) != out.Status {
				out.Status, out.Failure = st, failure
			}
			if failure.Kind != interrupted {
				env.file(env.card(s, g, failure, st), s.Name, g)
			}
			continue
		}
		answers[guests[i].Name] = env.answer(g)
		if early == nil && guests[i].Ends == "" && g.Outcome.Status == status.Failed {
			early = g
		}
	}
	if wrong := out.Failure; wrong != nil && s.Partial {
		st := out.Status
		env.check(s, answers, out)
		out.Status, out.Failure = st, wrong
	}
	if out.Failure == nil {
		if notAsked == "" || s.Partial { // or there is not all that is to be checked
			env.check(s, answers, out)
		}
		if out.Failure == nil {
			out.Status, out.Failure = env.incomplete(s, early, notAsked)
		}
		if out.Failure != nil {
			env.file(&card.Card{Arch: env.Arch, Scenario: s.Name, Status: out.Status,
				Kind: out.Failure.Kind, Summary: out.Failure.Summary}, s.Name, all...)
		}
	}
	for _, g := range all {
		if err := g.End(); err != nil {
			env.Runner.Progress("%s: %v", g.Request.Name, err)
		}
	}
	if out.Failure == nil {
		return ""
	}
	return fmt.Sprintf("%s: %s", out.Failure.Kind, out.Failure.Summary)
}

// note keeps what is told of a guest whatever it answered: its name, and how long it took.
func (env *Env) note(g *runner.Guest) {
	env.Guests = append(env.Guests, g.Request.Name)
	env.Took[g.Request.Name] = g.Took.Seconds()
	if g.Outcome != nil && g.Outcome.HelloAfter > 0 {
		env.HelloAfter[g.Request.Name] = g.Outcome.HelloAfter.Seconds()
	}
	if g.RunningAfter > 0 {
		env.RunningAfter[g.Request.Name] = g.RunningAfter.Seconds()
	}
}

// incomplete is what is wrong though the check has found nothing: a job has ended early, in a
// step that nobody looks at or in undoing what was live, or a guest was not asked.
func (env *Env) incomplete(s Scenario, early *runner.Guest, notAsked string) (status.Status, *report.Failure) {
	switch {
	case early != nil:
		return status.Failed, &report.Failure{Kind: string(early.Outcome.Kind), Summary: early.Request.Name + ": " + early.Outcome.Summary,
			Console: early.Outcome.ConsoleTail, Rerun: env.Rerun(s.Name)}
	case notAsked != "":
		return status.LabFailed, &report.Failure{Kind: "lab", Summary: notAsked + ": " + runner.ErrNotAsked.Error(), Rerun: env.Rerun(s.Name)}
	}
	return status.Passed, nil
}

// card describes a guest whose answers are not worth looking at.
func (env *Env) card(s Scenario, g *runner.Guest, f *report.Failure, st status.Status) *card.Card {
	c := &card.Card{Arch: env.Arch, Scenario: s.Name, Guest: g.Request.Name}
	if g.Outcome != nil {
		c = env.Runner.Card(g, s.Name)
	}
	c.Status, c.Kind, c.Summary = st, f.Kind, f.Summary
	return c
}

// file adds the commands to a card, writes it and keeps it. Those of its guests
// that are still there outlive the lab.
func (env *Env) file(c *card.Card, scenario string, guests ...*runner.Guest) {
	again := env.Rerun(scenario)
	commands := []card.Command{{To: "run it again", Line: again}}
	held := false
	for _, g := range guests {
		more, err := env.Runner.Hold(g)
		if err != nil {
			c.Notes = append(c.Notes, "it could not be kept: "+err.Error())
		}
		commands, held = append(commands, more...), held || len(more) > 0
	}
	switch {
	case held:
	case env.Keep:
		c.Notes = append(c.Notes, "there is no guest to keep: its emulator had ended with it")
	case env.Keeps:
		commands = append(commands, card.Command{To: "keep the guest as it is when it fails", Line: again + " --keep"})
	}
	c.Commands = append(append(commands,
		card.Command{To: "open a shell in a guest with this kernel", Line: "bin/lab shell " + env.Same},
		card.Command{To: "debug a guest with this kernel", Line: "bin/lab gdb " + env.Same},
	), c.Commands...)
	if err := env.Runner.KeepCard(c); err != nil {
		c.Notes = append(c.Notes, "this card could not be written: "+err.Error())
	}
	env.Cards = append(env.Cards, *c)
}

// Abandon ends the guests that no scenario has decided about, because the run was
// interrupted. All of them have to have ended or been left before.
func (env *Env) Abandon() {
	for _, p := range env.pending {
		if err := p.Wait().End(); err != nil {
			env.Runner.Progress("%v", err)
		}
	}
}

// interrupted is the kind of what the user stopped.
const interrupted = "interrupted"

// failure says why a guest's answers are not worth looking at.
func (env *Env) failure(s Scenario, want Guest, g *runner.Guest) (*report.Failure, status.Status) {
	switch {
	case errors.Is(g.Err, context.Canceled):
		return &report.Failure{Kind: interrupted, Summary: "interrupted by the user"}, status.LabFailed
	case g.Err != nil:
		return &report.Failure{Kind: "lab", Summary: g.Err.Error(), Rerun: env.Rerun(s.Name)}, status.LabFailed
	case want.Ends != "" && g.Outcome.Status == want.Ends:
	case g.Outcome.Status != status.Passed && g.Outcome.Status != status.Failed:
		return &report.Failure{
			Kind: string(g.Outcome.Kind), Summary: g.Request.Name + ": " + g.Outcome.Summary,
			Console: g.Outcome.ConsoleTail, Rerun: env.Rerun(s.Name),
		}, g.Outcome.Status
	case env.Runner.Own.Timeout > 0 && runner.TimedOut(g.Outcome.Records) != "":
		return &report.Failure{
			Kind: "timeout", Rerun: env.Rerun(s.Name),
			Summary: fmt.Sprintf("%s: %s did not end within %v of guest time: raise --timeout", g.Request.Name, runner.TimedOut(g.Outcome.Records), env.Runner.Own.Timeout),
		}, status.Timeout
	}
	if all := complaints(g); len(all) > 0 && !want.Complains {
		return &report.Failure{
			Kind: "complaint", Rerun: env.Rerun(s.Name), Console: g.Outcome.ConsoleTail,
			Summary: fmt.Sprintf("%s: its kernel said %q; the console has the rest (%s)", g.Request.Name, all[0], g.Outcome.Summary),
		}, status.Failed
	}
	return nil, status.Passed
}

// complaints are a guest's kernel's. In host time it may say of one that he was not run for long, which is the host's doing.
func complaints(g *runner.Guest) (all []string) {
	for _, rec := range g.Outcome.Records {
		all = append(all, rec.GetDone().GetComplaints()...)
	}
	return slices.DeleteFunc(all, func(message string) bool { return g.Request.Time == vm.Host && klog.Slow(message) })
}

func (env *Env) answer(g *runner.Guest) *Answer {
	a := &Answer{Results: map[string]*wire.Result{}, Oracle: g.Oracle, Calls: g.Calls, Text: env.Text, Index: env.Known, Types: env.Types, Exact: g.Request.Time == vm.Exact, Seed: env.Runner.Seed + g.Request.Seed}
	if g.Outcome.Status != status.Passed && g.Outcome.Status != status.Failed {
		a.Crash = strings.Join(append([]string{g.Outcome.Summary}, g.Outcome.ConsoleTail...), "\n")
	}
	probe.Gather(g.Outcome.Records)
	for _, rec := range g.Outcome.Records {
		if h := rec.GetHello(); h != nil {
			a.Hello = h
		}
		if d := rec.GetDone(); d != nil {
			a.Done = d
		}
		if c := rec.GetChunk(); c != nil && c.Path == "" {
			a.Dump = append(a.Dump, c.Data...)
		}
		if r := rec.GetResult(); r != nil {
			a.Results[r.Step] = r
		}
	}
	return a
}

// stop is what unwinds a check at its first failure.
type stop struct{ message string }

// check runs a scenario's check and files what it found, also when it fails.
func (env *Env) check(s Scenario, answers map[string]*Answer, out *report.Scenario) {
	t := NewT(env.Arch, env.Release, answers, func(message string) { panic(stop{message}) })
	defer func() {
		out.Metrics, out.Checks, out.Points, out.Grid = t.Metrics, t.Checks, t.Points, t.Grid
		maps.Copy(env.Files, t.Files)
		switch p := recover().(type) {
		case nil:
		case stop:
			out.Status = status.Failed
			out.Failure = &report.Failure{Kind: "assertion", Summary: p.message, Rerun: env.Rerun(s.Name)}
		default: // ours: it has come upon what it does not expect
			env.Runner.Progress("%s: %s: the check panicked: %v\n%s", env.Arch, s.Name, p, debug.Stack())
			out.Status = status.LabFailed
			out.Failure = &report.Failure{Kind: "lab", Summary: fmt.Sprintf("the check panicked: %v", p), Rerun: env.Rerun(s.Name)}
		}
	}()
	s.Check(t)
}
