// Package scenarios is what the lab asks of a kernel.
//
// A scenario is data and one function: the guests it needs, each with the job
// that it is to do, and a check of what came back. Guests are started by the
// caller (Env), several at a time; a check runs when its own have ended.
package scenarios

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"kerninst/agent/near"
	"kerninst/agent/wire"
	"kerninst/lab/status"
	"kerninst/lab/vm"
)

// Scenario is one question with its answer's test.
type Scenario struct {
	Name   string
	Title  string   // what it shows, for people
	Labels []string // smoke: part of the default run; fault: fails on purpose
	// Timed: it measures host time. Its guests run one after the other, in the
	// order of Guests and alone, and only in runs of host time: such results do not
	// come out again to the byte.
	Timed bool
	// Partial: the check says what it can of those guests that ended well, also where another did not, and which these are
	// not. What is wrong with the scenario stays what was wrong with the guest.
	Partial bool
	Guests  func(arch string) []Guest
	Check   func(t *T)
}

// Guest is one machine of a scenario.
type Guest struct {
	Name   string // unique in the scenario
	CPUs   int
	CPU    string  // model; empty: the usual one
	Time   vm.Time // empty: what the run asks for
	Append string  // added to the kernel's command line
	Seed   uint64  // added to the run's
	Boots  bool    // it does not go on from a state of another guest's
	Oracle bool    // count arrivals outside the guest
	// Executed: the oracle tells each instruction with as many arrivals.
	Executed uint64
	// Calls: a task's calls are followed outside the guest, on one CPU, in exact time, and
	// without arrivals. The job has watchCalls, once, and starts the task by watched.
	Calls bool
	// Text: the check looks at the text and the tables of the image's kernel.
	Text bool
	Job  *wire.Job
	// After names an earlier guest of the scenario of whose answer Make makes the job.
	After string
	Make  func(*Answer) (*wire.Job, error)
	// Programs of the repository that the image does not hold, by package: each
	// is /programs/ and the package's last name in the guest.
	Programs []string
	// OwnKernel: the kernel that it runs is KernelPath in it.
	OwnKernel bool
	// Software of Debian's that comes along, by its name (images.Software).
	Software []string
	// Taps are scripts of SystemTap's, by name, of which it has modules (images.SystemTap).
	Taps map[string]string
	// Modules of the kernel that are loaded before anything else, beside the user's; those with IfAny
	// behind their names as far as there are such.
	Modules []string
	// Index: the daemon knows the whole kernel, not only each function by itself.
	Index bool
	// Ends is how the guest ends if it is to show that it does not end well; empty: well.
	Ends status.Status
	// Complains: its kernel is made to say that something is amiss, which no other's may.
	Complains bool
	// Memory in MiB; 0: the usual.
	Memory int
	// Host time until hello, and from there to done; 0: the lab's own limits.
	BootTimeout, RunTimeout time.Duration
}

// evaluation is what the label "all" stands for: the papers' evaluations, and what they rest on, as
// far as they are done within a quarter of an hour.
var evaluation = []string{
	"boot", "count", "cost", "undo", "refuse", "calls", "lmbench", "lmbench-probes", "squid", "squid-study-slice",
	"cover", "peers-slice", "granularities-slice", "apache-slice",
}

// All is every scenario, in the order in which they run.
func All() []Scenario {
	list := slices.Concat(
		smoke(), every(), inlined(), oracles(), followed(), verdicts(), beside(), ab(),
		lmbenches(), lmbenchProbes(),
		squid(), squidProbes(), squidBroken(), apacheBroken(), studies(),
		hazards(), churns(), mishaps(), devices(), inside(), safeties(), boundScenarios(), unprobedScenarios(), backtraces(), exhausted(), loads(), annex(), faults(),
		batches(), waits(), hotplugs(), disturbed(), programs(), trapPaths(), tracers(), covers(), densities(), peerScenarios(), granularScenarios(), cloneScenarios(), clonesAnswers(), countedClones(), chosenClones(), apaches())
	for k := range list {
		if contains(evaluation, list[k].Name) {
			list[k].Labels = append(slices.Clip(list[k].Labels), "all")
		}
	}
	return list
}

// Select returns the scenarios that a comma-separated list of names and labels
// asks for, in the order of All.
func Select(list string) ([]Scenario, error) {
	want := strings.Split(list, ",")
	used := map[string]bool{}
	var out []Scenario
	for _, s := range All() {
		for _, w := range want {
			if s.Name == w || contains(s.Labels, w) {
				used[w] = true
				if len(out) == 0 || out[len(out)-1].Name != s.Name {
					out = append(out, s)
				}
			}
		}
	}
	for _, w := range want {
		if !used[w] {
			return nil, fmt.Errorf("no scenario or label %q; there are %s", w, strings.Join(Words(), ", ")+near.Hint(w, Words()))
		}
	}
	return out, nil
}

// CheckTime says whether scenarios can be run in that time.
func CheckTime(list []Scenario, t vm.Time) error {
	for _, s := range list {
		if s.Timed && t != vm.Host {
			return fmt.Errorf("the scenario %s measures host time: add --time host", s.Name)
		}
	}
	return nil
}

// Words lists every name and label that Select understands.
func Words() []string {
	seen := map[string]bool{}
	var out []string
	for _, s := range All() {
		for _, w := range append([]string{s.Name}, s.Labels...) {
			if !seen[w] {
				seen[w] = true
				out = append(out, w)
			}
		}
	}
	sort.Strings(out)
	return out
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}
