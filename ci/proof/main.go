// Proof runs the long proofs and prints one line for each and each ISA:
//
//	proof NAME arch n seed result
//
// n is how often the thing was tried, from the results that the lab wrote;
// result is the scenario's status. The exit status is 1 when one did not pass,
// and 2 for a wrong call. What went wrong is said on standard error.
//
// A proof is a scenario with the label "proof". To add one, add its scenario
// and a row to the table.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"kerninst/lab/report"
	"kerninst/lab/status"
)

// proofs are all there are: a scenario, and the metric that is its n.
var proofs = []struct{ name, n string }{
	{"toggle", "storm.toggles"},
}

func main() {
	name := flag.String("name", "", "one proof; all otherwise")
	arches := flag.String("arch", "amd64,arm64,riscv64", "ISAs, separated by commas")
	seed := flag.Uint64("seed", 1, "seed of the guests")
	flag.Parse()
	known, failed := false, false
	for _, p := range proofs {
		if *name != "" && *name != p.name {
			continue
		}
		known = true
		for _, arch := range strings.Split(*arches, ",") {
			l := prove(p.name, p.n, arch, *seed)
			fmt.Println(l)
			failed = failed || l.result != status.Passed
		}
	}
	switch {
	case !known:
		fmt.Fprintf(os.Stderr, "proof: there is none called %q\n", *name)
		os.Exit(status.ExitUsage)
	case failed:
		os.Exit(status.ExitFailed)
	}
}

// line is the answer to one proof on one ISA.
type line struct {
	name, arch string
	n, seed    uint64
	result     status.Status
}

func (l line) String() string {
	return fmt.Sprintf("proof %s %s %d %d %s", l.name, l.arch, l.n, l.seed, l.result)
}

// prove runs the lab and reads what it says. A lab that says nothing failed.
func prove(name, metric, arch string, seed uint64) line {
	l := line{name, arch, 0, seed, status.LabFailed}
	cmd := exec.Command("bin/lab", "run", "--json", "--arch", arch, "--scenario", name, "--seed", fmt.Sprint(seed))
	var stdout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Fprintf(os.Stderr, "proof: %s on %s: %v\n", name, arch, err)
	}
	l.read(stdout.Bytes(), metric)
	return l
}

// read takes n and the result from the lab's JSON: one ISA, one scenario.
func (l *line) read(text []byte, metric string) {
	var all []report.Results
	if err := json.Unmarshal(text, &all); err != nil || len(all) != 1 || len(all[0].Scenarios) != 1 {
		fmt.Fprintf(os.Stderr, "proof: %s on %s: not the results of one scenario (%v)\n", l.name, l.arch, err)
		return
	}
	s := all[0].Scenarios[0]
	m, counted := s.Metrics[metric]
	l.n, l.result = uint64(m.Value), s.Status
	if l.result == status.Passed && m.Value < 1 {
		fmt.Fprintf(os.Stderr, "proof: %s on %s passed without having tried anything (%s there: %v)\n", l.name, l.arch, metric, counted)
		l.result = status.Failed
	}
}
