package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"kerninst/lab/status"
)

// testProof is a test with a subtest for each ISA, or one below that, where %s is
// the ISA. With the flag it says how much it did, in lines "proof NAME arch n ...",
// whose numbers are added. One that draws takes -seed.
type testProof struct {
	name, pkg, test, flag string
	draws                 bool
}

var testProofs = []testProof{
	{"sweep", "./lab/sweep", "TestSweep", "-full", false},
	{"guesses", "./lab/sweep", "TestNothingIsGuessed", "-full", false},
	{"race", "./agent/isa/all", "TestConcurrent", "-race", false},
	{"effects", "./lab/effects", "TestInGuest/%s/effects", "-full", false},
	{"snippets", "./lab/effects", "TestInGuest/%s/snippets", "-full", true},
	{"equivalence", "./lab/effects", "TestInGuest/%s/equivalence", "-full", true},
	{"equivalence-variants", "./lab/effects", "TestVariants/%s", "-full", true},
	{"privileged", "./lab/effects", "TestNeverDisplaced/%s", "-full", false},
	{"flow", "./ci/e2e", "TestWholeKernels/%s/flow", "-full", false},
	{"live", "./ci/e2e", "TestWholeKernels/%s/live", "-full", false},
	{"trace", "./ci/e2e", "TestTrace", "-full", false},
	{"rings", "./ci/e2e", "TestRings", "-full", false},
	{"words", "./ci/e2e", "TestWords", "-full", false},
	{"kinst", "./ci/e2e", "TestKinst", "-full", false},
	{"returned", "./ci/e2e", "TestReturned", "-full", false},
	{"plugins", "./ci/e2e", "TestPlugins", "-full", false},
	{"metrics", "./ci/e2e", "TestMetrics", "-full", false},
	{"lab-kills", "./ci/e2e", "TestKills", "-full", true},
	{"builddir", "./ci/e2e", "TestBuildDir", "-full", false},
	{"index", "./ci/e2e", "TestIndexInGuest", "-full", false},
	{"copies", "./ci/e2e", "TestCopies", "-full", true},
	{"inline", "./ci/e2e", "TestInline", "-full", false},
	{"inline-modules", "./ci/e2e", "TestInlineModule", "-full", false},
	{"inline-converted", "./ci/e2e", "TestInlineConverted", "-full", false},
	{"libvirt", "./ci/e2e", "TestLibvirt", "-full", false},
	{"matrix", "./ci/e2e", "TestMatrix", "-full", false},
}

func (x testProof) prove(p proof, arch string, seed uint64) []line {
	args := []string{"-v", "-timeout", "2h", "-run", x.pattern(arch), x.pkg, x.flag}
	if x.draws {
		args = append(args, "-seed", strconv.FormatUint(seed, 10))
	}
	out, err := goTest(args...)
	l := line{p.name, arch, 0, seed, status.LabFailed}
	l.judge(err, sum(out, regexp.MustCompile(`proof `+p.name+` `+arch+` (\d+)`)), out)
	return []line{l}
}

// pattern names the test's part for one ISA, and no other test.
func (x testProof) pattern(arch string) string {
	name := x.test
	if strings.Contains(name, "%s") {
		name = fmt.Sprintf(name, arch)
	} else {
		name += "/" + arch
	}
	return "^" + strings.ReplaceAll(name, "/", "$/^") + "$"
}

// fuzzer is a fuzz target. A package with %s is one for each ISA. A reader's input
// is made elsewhere, by the kernel or by somebody's disk.
type fuzzer struct {
	name, pkg, target string
	reader            bool
}

// fuzzers are all fuzz targets of the repository.
var fuzzers = []fuzzer{
	{"fuzz-decode", "./agent/isa/%s", "FuzzDecode", true},
	{"fuzz-kallsyms", "./agent/ktext", "FuzzKallsyms", true},
	{"fuzz-dump", "./agent/ktext", "FuzzDump", true},
	{"fuzz-index", "./agent/index", "FuzzOpen", true},
	{"fuzz-inline", "./agent/inline", "FuzzRead", true},
	{"fuzz-modules", "./agent/ktext", "FuzzModules", false},
	{"fuzz-cfg", "./agent/cfg", "FuzzBuild", false},
	{"fuzz-probe", "./agent/probe", "FuzzParse", false},
	{"fuzz-action", "./agent/probe", "FuzzCompile", false},
	{"fuzz-snippet", "./agent/snippet", "FuzzParse", false},
	{"fuzz-resolve", "./agent/kdev", "FuzzResolve", false},
	{"fuzz-console", "./lab/console", "FuzzSplit", false},
	{"fuzz-compare", "./lab/compare", "FuzzCompare", true},
	{"fuzz-figures", "./lab/compare", "FuzzFigures", false},
	{"fuzz-rules", "./lab/compare", "FuzzRules", false},
}

// fuzzing is how the fuzz targets run.
type fuzzing struct {
	readers, others time.Duration // each target of that kind
	cpus            int           // each target
	// fresh starts from the inputs of the repository alone, and not from all that
	// was found on this host before: replaying those can take longer than a short
	// run has.
	fresh bool
}

// minimise bounds what is spent on making one new input smaller. By default that is
// a minute, in which nothing else is tried.
const minimise = "10x"

func (f fuzzer) each() bool { return strings.Contains(f.pkg, "%s") }

func (f fuzzer) prove(p proof, arch string, seed uint64, how fuzzing) line {
	pkg, t := strings.Replace(f.pkg, "%s", arch, 1), how.others
	if f.reader {
		t = how.readers
	}
	l := line{p.name, arch, 0, seed, status.LabFailed}
	dir, err := os.MkdirTemp("", "kerninst-fuzz-")
	if err != nil {
		l.judge(err, 0, nil)
		return l
	}
	defer os.RemoveAll(dir)
	out, err := f.run(pkg, dir, t, how)
	l.judge(err, last(out, regexp.MustCompile(`execs: (\d+)`)), out)
	return l
}

// run builds a target into an empty folder and lets it look for as long. What it
// finds that is new is kept where the go command keeps it, unless it starts afresh.
func (f fuzzer) run(pkg, dir string, t time.Duration, how fuzzing) ([]byte, error) {
	exe, finds := filepath.Join(dir, "target"), filepath.Join(dir, "finds")
	if out, err := goCommand("test", "-trimpath", "-c", "-o", exe, "-fuzz", f.target, pkg).CombinedOutput(); err != nil {
		return out, err
	}
	known, err := goCommand("list", "-f", "{{.Dir}}\n{{.ImportPath}}", pkg).Output()
	if err != nil {
		return known, err
	}
	where, path, _ := strings.Cut(strings.TrimSpace(string(known)), "\n")
	if !how.fresh {
		cache, err := goCommand("env", "GOCACHE").Output()
		if err != nil {
			return cache, err
		}
		finds = filepath.Join(strings.TrimSpace(string(cache)), "fuzz", path)
	}
	cmd := exec.Command(exe, "-test.run", "^$", "-test.fuzz", "^"+f.target+"$", "-test.parallel", strconv.Itoa(how.cpus),
		"-test.fuzzminimizetime", minimise, "-test.fuzzcachedir", finds)
	cmd.Dir = where // of its seeds
	return interrupted(cmd, t)
}

// interrupted runs a fuzz target and asks it to stop after a time, by an interrupt.
// -test.fuzztime is not used: up to Go 1.26 a target that found nothing now and then
// fails of "context deadline exceeded" at that time, when the engine sees its own
// deadline before its workers' context does (go.dev/issue/75804).
func interrupted(cmd *exec.Cmd, t time.Duration) ([]byte, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	// Neither fails but for a target that has ended, of which Wait tells.
	ask := time.AfterFunc(t, func() { cmd.Process.Signal(os.Interrupt) })
	end := time.AfterFunc(t+stopping, func() { cmd.Process.Kill() })
	defer ask.Stop()
	defer end.Stop()
	err := cmd.Wait()
	return out.Bytes(), err
}

// stopping is how long a target may take to end when asked to.
const stopping = time.Minute

// goCommand is the host's go, or the one that set-up fetched.
func goCommand(args ...string) *exec.Cmd {
	name := os.Getenv("GO")
	if name == "" {
		name = "go"
	}
	return exec.Command(name, args...)
}

// goTest runs tests.
func goTest(args ...string) ([]byte, error) {
	return goCommand(append([]string{"test", "-trimpath", "-count=1"}, args...)...).CombinedOutput()
}

// judge sets n and the result; what went wrong is shown.
func (l *line) judge(err error, n uint64, out []byte) {
	l.n = n
	switch {
	case err != nil:
		l.result = status.Failed
		fmt.Fprintf(os.Stderr, "%s\nproof: %s on %s: %v\n", bytes.TrimSpace(out), l.name, l.arch, err)
	case n == 0:
		l.result = status.Failed
		fmt.Fprintf(os.Stderr, "%s\nproof: %s on %s passed without having tried anything\n", bytes.TrimSpace(out), l.name, l.arch)
	default:
		l.result = status.Passed
	}
}

// sum adds the numbers that a pattern finds.
func sum(out []byte, pattern *regexp.Regexp) (total uint64) {
	for _, m := range pattern.FindAllSubmatch(out, -1) {
		n, _ := strconv.ParseUint(string(m[1]), 10, 64)
		total += n
	}
	return total
}

// last is the last number that a pattern finds.
func last(out []byte, pattern *regexp.Regexp) uint64 {
	all := pattern.FindAllSubmatch(out, -1)
	if len(all) == 0 {
		return 0
	}
	n, _ := strconv.ParseUint(string(all[len(all)-1][1]), 10, 64)
	return n
}
