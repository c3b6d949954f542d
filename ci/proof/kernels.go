package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"kerninst/lab/report"
	"kerninst/lab/status"
	"kerninst/scenarios"
)

// kernelProof is a kernel of Debian's that is not the locked one. Where it cannot be, or is refused, the
// lab ends with a status that says so; and some scenarios ask for what it has not.
type kernelProof struct {
	version string
	refused map[string]refusal  // by ISA
	without map[string][]string // by ISA: scenarios that are not for it
}

// refusal is with which status the lab ends, and what it says.
type refusal struct {
	exit int
	says string
}

// othersScenarios are those that are for any kernel: budgets, and what takes hours, are of the locked one alone.
var othersScenarios = strings.Fields(`smoke arms backtraces beside bounds calls chosen churn clones-count clones-left cover density-slice device
	equivalence-annex-slice every exhausted fails hotplug kexec kills loads module oracle-slice power programs rewrites safety squid storm
	traces trap-path unloads unprobed verdict-slice waits`)

// slept has its port filled before there is room for an answer, since 7.3: when devices have slept, nothing
// comes out of a guest any more (virtcons_restore()).
var slept = []string{"power"}

// noWindows is riscv64's since 6.13: it preempts itself, and has no jump of one instruction that leads far.
var noWindows = []string{"bounds", "calls", "chosen", "clones-count", "clones-left", "equivalence-annex-slice", "every", "power", "programs", "storm", "waits"}

var kernelProofs = []kernelProof{
	{"6.1", map[string]refusal{"arm64": {status.ExitLabFailed, "CONFIG_KALLSYMS_ALL"}, "riscv64": {status.ExitUsage, "has no kernel 6.1 for riscv64"}}, nil},
	{"7.2", nil, map[string][]string{"riscv64": noWindows}},
	{"7.3", map[string]refusal{"riscv64": {status.ExitLabFailed, "404"}}, map[string][]string{"amd64": slept, "arm64": slept}}, // announced, and not there
}

// prove runs all that are for a kernel; n is how many passed, or 1 for a refusal that was expected.
func (k kernelProof) prove(p proof, arch string, seed uint64) []line {
	l := line{p.name, arch, 0, seed, status.LabFailed}
	left := slices.DeleteFunc(slices.Clone(othersScenarios), func(s string) bool { return slices.Contains(k.without[arch], s) })
	cmd := exec.Command("bin/lab", "run", "--json", "--arch", arch, "--kernel", k.version, "--scenario", strings.Join(left, ","), "--seed", fmt.Sprint(seed))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, io.MultiWriter(os.Stderr, &stderr)
	err := cmd.Run()
	if want, refused := k.refused[arch]; refused {
		if got := cmd.ProcessState.ExitCode(); got != want.exit || !strings.Contains(stderr.String(), want.says) {
			fmt.Fprintf(os.Stderr, "proof: %s on %s: exit status %d (%v), which is %d where it is refused, and says %q\n", p.name, arch, got, err, want.exit, want.says)
			return []line{l}
		}
		l.n, l.result = 1, status.Passed
		return []line{l}
	}
	l.n, l.result = passed(stdout.Bytes(), meant(left))
	return []line{l}
}

// meant are the scenarios that names and labels mean.
func meant(asked []string) (names []string) {
	for _, name := range asked {
		all, err := scenarios.Select(name)
		if err != nil {
			panic(err) // of the table above, which a test reads
		}
		for _, s := range all {
			names = append(names, s.Name)
		}
	}
	return names
}

// passed reads the lab's JSON of one ISA: how many scenarios passed, of those that were asked for.
func passed(text []byte, asked []string) (n uint64, result status.Status) {
	var all []report.Results
	if err := json.Unmarshal(text, &all); err != nil || len(all) != 1 {
		fmt.Fprintf(os.Stderr, "proof: not the results of one ISA (%v)\n", err)
		return 0, status.LabFailed
	}
	result = all[0].Status
	left := slices.Clone(asked)
	for _, s := range all[0].Scenarios {
		result = status.Worst(result, s.Status)
		if s.Status != status.Passed {
			fmt.Fprintf(os.Stderr, "proof: %s: %s\n", s.Name, s.Status)
			continue
		}
		n++
		left = slices.DeleteFunc(left, func(name string) bool { return name == s.Name })
	}
	if len(left) > 0 && result == status.Passed {
		fmt.Fprintf(os.Stderr, "proof: these have no results: %s\n", strings.Join(left, ", "))
		result = status.Failed
	}
	return n, result
}
