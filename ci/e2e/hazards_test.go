package e2e

import (
	"testing"

	"kerninst/lab/report"
	"kerninst/lab/status"
)

// The module's own tests, a slice of what `make proof` does: with each of the two ways of
// writing live text.
func TestStorm(t *testing.T) { scenario(t, "storm", 50, []string{"amd64", "riscv64"}) }

// Points drawn from all that a load executes.
func TestOracle(t *testing.T) { scenario(t, "oracle-slice", 10, arches) }

// What the survey says of points, the daemon says.
func TestVerdict(t *testing.T) { scenario(t, "verdict-slice", 9, []string{"amd64"}) }

// Every instruction of some functions spliced at once. What this finds on the others is
// found among the points of TestOracle; all run in `make proof`, like the next.
func TestEvery(t *testing.T) { scenario(t, "every", 10, []string{"amd64"}) }

// Likewise in a module, for which arm64 needs patch memory of its own.
func TestModule(t *testing.T) { scenario(t, "module", 10, []string{"arm64"}) }

// The planner and the module agree on what the kernel rewrites. On riscv64 that has few
// points.
func TestBeside(t *testing.T) { scenario(t, "beside", 5, []string{"amd64", "arm64"}) }

// Pointers of every kind, followed in every context.
func TestLoads(t *testing.T) { scenario(t, "loads", 60, []string{"amd64"}) }

// Patch memory runs out in the middle of a batch. On one ISA: what differs between them
// is found by agent/plan's tests.
func TestExhausted(t *testing.T) { scenario(t, "exhausted", 10, []string{"arm64"}) }

// Windows are asked for, forbidden, and wait, on the ISA on which they do that one by one.
func TestWaits(t *testing.T) { scenario(t, "waits", 60, []string{"amd64"}) }

// What is beside a point is rewritten, gets kprobes, and what it is in leaves, while it is spliced; BPF's programs are
// where functions begin and end (on amd64 their trampolines look for a landing pad).
func TestRewrites(t *testing.T) { scenario(t, "rewrites", 10, []string{"amd64"}) }
func TestArms(t *testing.T)     { scenario(t, "arms", 10, []string{"amd64"}) }
func TestTraces(t *testing.T)   { scenario(t, "traces", 10, []string{"arm64"}) }
func TestPrograms(t *testing.T) { scenario(t, "programs", 60, []string{"amd64"}) }
func TestUnloads(t *testing.T)  { scenario(t, "unloads", 10, []string{"riscv64"}) }

// What a CPU runs between a breakpoint and its patch has none, on the ISA on which the
// kernel itself does not see to that.
func TestTrapPath(t *testing.T) { scenario(t, "trap-path", 3, []string{"riscv64"}) }

// A CPU goes and comes while batches are written and undone.
func TestHotplug(t *testing.T) { scenario(t, "hotplug", 25, []string{"arm64"}) }

// Operations of a kernel, bare. That two guests agree is the same question on each ISA;
// here it is one whose clock is coarse and whose kernel draws random bits.
func TestLmbench(t *testing.T) { scenario(t, "lmbench", 130, []string{"arm64"}) }

// Who calls what, and for how long, seen outside the guest: each ISA calls, returns and
// switches tasks in its own way.
func TestCalls(t *testing.T) { scenario(t, "calls", 35, arches) }

// A program of Debian's, with a disk, and what it tells of where its time goes.
func TestSquid(t *testing.T) { scenario(t, "squid", 45, []string{"amd64"}) }

// What counting every system call adds, within the budget; a dearer splice is over it, and
// nothing differs from itself.
func TestProbes(t *testing.T)        { scenario(t, "lmbench-probes", 30, []string{"riscv64"}) }
func TestProbesPlanted(t *testing.T) { scenario(t, "lmbench-probes-planted", 8, []string{"arm64"}) }
func TestProbesEqual(t *testing.T)   { scenario(t, "lmbench-probes-equal", 30, []string{"amd64"}) }

// Where the kernel's own optimised probes break it.
func TestSafety(t *testing.T) { scenario(t, "safety", 14, []string{"amd64"}) }

// What the device is asked that is not right.
func TestDevice(t *testing.T) { scenario(t, "device", 90, []string{"arm64"}) }

// Random batches that come and go in several threads, under load.
func TestChurn(t *testing.T) { scenario(t, "churn", 30, []string{"arm64"}) }

// Memory that runs out, at each allocation of the module, and callers that are killed in its
// steps. That a killed caller's are the same steps on each ISA is the module's part that they share.
func TestFails(t *testing.T) { scenario(t, "fails", 10, []string{"arm64"}) }
func TestSteps(t *testing.T) { scenario(t, "kills", 5, []string{"arm64"}) }

// A machine sleeps, and wakes, while it is spliced.
func TestPower(t *testing.T) { scenario(t, "power", 10, []string{"amd64"}) }

// It leaves for another kernel.
func TestKexec(t *testing.T) { scenario(t, "kexec", 1, []string{"amd64"}) }

// Kprobes that come later are let in where instructions begin only.
func TestBounds(t *testing.T) { scenario(t, "bounds", 12, []string{"amd64"}) }

// What can be spliced is read without them, jumps that the kernel has made of them included.
func TestUnprobed(t *testing.T) { scenario(t, "unprobed", 15, []string{"amd64"}) }

// The kernel's own probes answer as splices do, and dearer; so does bpftrace, which is asked
// little here, for it takes as long to compile each question as all else does. `make proof`
// asks it everything, on each ISA.
func TestPeers(t *testing.T)        { scenario(t, "peers-slice", 30, []string{"riscv64"}) }
func TestPeersWithout(t *testing.T) { scenario(t, "peers-without", 130, []string{"arm64"}) }

// From counting system calls to counting blocks, by splices and by others' probes: where these have
// jumps, too; `make proof` has all ISAs.
func TestGranularities(t *testing.T) { scenario(t, "granularities-slice", 200, []string{"amd64"}) }

// What is wrong in a server's guest is said by the part that comes upon it; `make proof` does the
// same to Squid's, and measures Apache's requests.
func TestApacheBroken(t *testing.T) { scenario(t, "apache-broken", 30, []string{"amd64"}) }

// Coverage takes itself away, and finds what counters find.
func TestCover(t *testing.T) { scenario(t, "cover", 7, []string{"arm64"}) }

// A counter in each block of a subsystem, and the counts are a flow.
func TestDensity(t *testing.T) { scenario(t, "density-slice", 10, []string{"arm64"}) }

// Instructions whose faults have a fixup, bare and in the annex. What this finds on
// arm64 is found by `make proof`, with patches of two parts.
func TestAnnex(t *testing.T) {
	scenario(t, "equivalence-annex-slice", 15, []string{"amd64", "riscv64"})
}

// scenario runs one on each of the ISAs, which must pass with some number of checks.
func scenario(t *testing.T, name string, checks int, isas []string) {
	t.Parallel()
	for _, arch := range isas {
		t.Run(arch, func(t *testing.T) { passed(t, arch, name, checks) })
	}
}

// passed runs a scenario, and says what it has found.
func passed(t *testing.T, arch, name string, checks int) report.Scenario {
	t.Helper()
	out := t.TempDir()
	a := call(t, nil, "run", "--arch", arch, "--scenario", name, "--out", out, "--force")
	if a.code != 0 {
		t.Fatal(a)
	}
	s := results(t, out, arch).Scenarios[0]
	if s.Status != status.Passed || len(s.Checks) < checks {
		t.Errorf("%s with %d checks", s.Status, len(s.Checks))
	}
	return s
}
