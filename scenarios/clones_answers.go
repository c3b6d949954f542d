package scenarios

import (
	"fmt"
	"strings"
	"time"

	"kerninst/agent/wire"
	"kerninst/lab/plugins"
	"kerninst/lab/report"
	"kerninst/lab/vm"
)

// clones-answers: what LMbench's operations ask of the kernel, and more of each, is answered the same by instrumented
// copies of the system calls as by the originals: guest/answers prints it, and has to print the same bare, in clones with
// nothing inserted, in clones with a counter in each block, and when these are gone.

const answersPackage = "guest/answers"

// answeringCalls are system calls by which guest/answers asks, and by which the operations do what they do. It makes others, too.
const answeringCalls = "getppid read write pread64 pwrite64 preadv pwritev lseek ftruncate newfstat newfstatat statx openat close dup3 fcntl " +
	"pselect6 ppoll epoll_ctl epoll_pwait rt_sigaction kill tgkill rt_sigreturn pipe2 splice socketpair sendto recvmsg sendmsg connect accept4 " +
	"clone execve exit_group wait4 mmap munmap mprotect mremap madvise linkat unlinkat renameat2 getdents64"

const (
	answerMost   = 64 << 10 // bytes of each clone, so that all have room
	leastAnswers = 290
)

// answering is which system calls are cloned, in how many rounds they grow at the most, and how much of them there is at least.
type answering struct {
	calls             string
	rounds            uint32
	functions, blocks float64
}

func clonesAnswers() []Scenario {
	one := func(name, label string, s answering) Scenario {
		return Scenario{Name: name, Title: "what LMbench's operations ask of the kernel is answered the same in instrumented copies of its system calls",
			Labels: strings.Fields(label), Guests: s.guests, Check: s.check}
	}
	return []Scenario{one("clones-answers-slice", "workload proof", answering{"read write newfstatat openat close", 6, 300, 2000}),
		one("clones-answers", "clones-long proof", answering{answeringCalls, 8, 1000, 10000})}
}

func (s answering) guests(arch string) []Guest {
	ask := func(name string) *wire.Step { return run(name, ProgramPath(answersPackage)) }
	guest := Guest{CPUs: 1, Time: vm.Exact, Index: true, Memory: 3072, Programs: []string{answersPackage}, RunTimeout: 40 * time.Minute}
	explored, counted := guest, guest
	explored.Name = exploredGuest
	sp := &wire.Splice{SkipRefused: true, Brief: true}
	for _, call := range strings.Fields(s.calls) {
		sp.Clones = append(sp.Clones, &wire.Cloning{Entry: syscallEntry(arch, call), Most: answerMost})
	}
	explored.Job = job(ask("bare"),
		&wire.Step{Name: "clones", Do: &wire.Step_Splice{Splice: sp}},
		&wire.Step{Name: "grown", Do: &wire.Step_Grow{Grow: &wire.Grow{Splice: "clones", Rounds: s.rounds, Run: ask("").GetRun()}}},
		ask("within"), unsplice("clones"), ask("after"))
	counted.Name, counted.After = "counted", exploredGuest
	counted.Make = func(a *Answer) (*wire.Job, error) {
		sp := &wire.Splice{SkipRefused: true, Brief: true}
		for _, c := range a.Results["grown"].GetClones() {
			again := plugins.Again(c)
			again.Still, again.Rules = true, eachBlock
			sp.Clones = append(sp.Clones, again)
		}
		found := read("found")
		found.GetRead().Brief = true
		return job(ask("bare"), &wire.Step{Name: "clones", Do: &wire.Step_Splice{Splice: sp}}, ask("within"), found, unsplice("clones"), ask("after")), nil
	}
	return []Guest{explored, counted}
}

func (s answering) check(t *T) {
	bare := t.ran(exploredGuest, "bare")[0]
	t.Files["answers.txt"] = bare
	t.asked(bare)
	for _, guest := range []string{exploredGuest, "counted"} {
		for _, when := range []string{"bare", "within", "after"} {
			t.equal(guest+": "+when+": answers", difference(bare, t.ran(guest, when)[0]), "")
		}
	}
	s.entered(t)
	functions, _ := t.composed(exploredGuest, t.done(exploredGuest, "grown").Clones)
	t.atLeast("functions in clones", float64(functions), s.functions)
	counted, _ := t.composed("counted", t.done("counted", "clones").Clones)
	t.atLeast("functions in clones with counters, for all of which there is no room", float64(counted), float64(functions)/2)
	came, blocks := 0.0, 0
	for _, c := range t.done("counted", "found").Counts {
		if came += float64(c); c > 0 {
			blocks++
		}
	}
	t.atLeast("blocks that the questions came by in clones", float64(blocks), s.blocks)
	t.Metrics["answers.blocks"] = report.Metric{Value: float64(blocks), Unit: "blocks", N: 1}
	t.Metrics["answers.came"] = report.Metric{Value: came, Unit: "arrivals", N: 1}
}

// uncopied are those of the calls of which there is no copy, as nothing is free where it would be entered.
var uncopied = map[string][]string{"riscv64": {"fcntl"}}

// entered says that each call was made of which there is to be a copy, in which it was counted.
func (s answering) entered(t *T) {
	times := map[string]uint64{}
	for _, c := range t.done(exploredGuest, "grown").Clones {
		if len(c.Uses) > 0 {
			times[c.Entry] = c.Uses[0]
		}
	}
	var none []string
	for _, call := range strings.Fields(s.calls) {
		if times[syscallEntry(t.Arch, call)] == 0 && !contains(uncopied[t.Arch], call) {
			none = append(none, call)
		}
	}
	t.equal("system calls that were not made as copies", fmt.Sprint(none), "[]")
}

// asked says that all operations that ask anything were asked for.
func (t *T) asked(text []byte) {
	of := map[string]int{}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, line := range lines {
		operation, _, _ := strings.Cut(line, ": ")
		of[operation]++
	}
	var none []string
	for _, name := range allOps() {
		operation := name
		if strings.HasPrefix(name, "Ctx/") {
			operation = "Ctx"
		}
		if of[operation] == 0 && !strings.HasPrefix(name, "Mem") { // which asks nothing of the kernel
			none = append(none, name)
		}
	}
	t.equal("operations of which nothing is asked", fmt.Sprint(none), "[]")
	t.atLeast("answers", float64(len(lines)), leastAnswers)
	t.Metrics["answers"] = report.Metric{Value: float64(len(lines)), Unit: "answers", N: 1}
}
