package e2e

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/perf/benchfmt"

	"kerninst/lab/libvirt/libvirttest"
	"kerninst/lab/matrix"
	"kerninst/lab/report"
	"kerninst/lab/status"
)

// matrixOf is what a matrix has left.
func matrixOf(t *testing.T, out string) *matrix.Document {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(out, matrix.File))
	must(t, err)
	doc, err := matrix.Decode(text)
	must(t, err)
	return doc
}

// losing begins a matrix and sends a libvirtd a signal while a guest of its runs.
func losing(t *testing.T, d *libvirttest.Daemon, how syscall.Signal, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(lab, append([]string{"matrix"}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(t, cmd.Start())
	eventually(t, "a guest of the host that goes", func() bool { return len(guests(t, d)) > 0 })
	d.Signal(how)
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// guests are the QEMUs of a libvirtd's domains: others, it only asks what they can do.
func guests(t *testing.T, d *libvirttest.Daemon) []string {
	t.Helper()
	return mentioning(t, filepath.Join(d.Home, "config/libvirt/qemu/lib/domain-"))
}

// A matrix over two libvirtds, of which one is killed while it has a cell: each cell comes out as it
// does without them, and is told once. The one that stays sees none of the lab's files, and is reached
// by ssh or TLS, but on arm64. In full there are twelve cells, with figures, and on arm64 the libvirtd
// that goes is stopped, so that it keeps its connections and says nothing.
func TestMatrix(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		arch, scenario string
		stays          func(testing.TB) (uri string)
		how            syscall.Signal
	}{
		{"riscv64", "boot", bySSH, syscall.SIGKILL},
		{"amd64", "", byTLS, syscall.SIGKILL},
		{"arm64", "", here, syscall.SIGSTOP},
	} {
		seeds := "1-4"
		if *full {
			tt.scenario, seeds = "cost", "1-12"
		}
		if tt.scenario == "" {
			continue
		}
		t.Run(tt.arch, func(t *testing.T) {
			stays, goes := tt.stays(t), libvirttest.Start(t)
			out := t.TempDir()
			what := []string{"--arch", tt.arch, "--scenario", tt.scenario, "--seed", seeds}
			code, stdout, stderr := losing(t, goes, tt.how, append(what, "--host", stays, "--host", goes.URI, "--out", out)...)
			if code != status.ExitLabFailed || !strings.Contains(stderr, "host host2 is lost: ") {
				t.Errorf("exit status %d: want %d, for a host that was lost, and that it is said: %s\n%s", code, status.ExitLabFailed, stdout, stderr)
			}
			doc := matrixOf(t, out)
			lostOnce(t, doc, stdout)
			joined(t, doc, out)
			t.Logf("proof matrix %s %d cells", tt.arch, len(doc.Cells))
			if *full {
				equalToLocal(t, doc, out, what)
			}
		})
	}
}

// Ways to a libvirtd of the test's own.
func here(t testing.TB) string { return libvirttest.Start(t).URI }

func byTLS(t testing.TB) string {
	pki := libvirttest.NewPKI(t)
	d := libvirttest.StartElsewhere(t, pki)
	d.Pool(t, "kerninst")
	return d.TLS(pki.Client(t))
}

func bySSH(t testing.TB) string {
	d := libvirttest.StartElsewhere(t, libvirttest.NewPKI(t))
	d.Pool(t, "kerninst")
	return libvirttest.StartSSH(t).URI(d)
}

// lostOnce holds that all cells have passed, each once, and that host2's were moved.
func lostOnce(t *testing.T, doc *matrix.Document, stdout string) {
	t.Helper()
	moved, widest := 0, len(fmt.Sprint(doc.Cells[len(doc.Cells)-1].Seed))
	for _, c := range doc.Cells {
		if c.Status != status.Passed {
			t.Errorf("%s: %s: %s", c.Name, c.Status, c.Reason)
		}
		if n := strings.Count(stdout, fmt.Sprintf("%s  %s  %s  %-*d  passed", c.Arch, c.Kernel, c.Scenario, widest, c.Seed)); n != 1 {
			t.Errorf("%s is in the table %d times: %s", c.Name, n, stdout)
		}
		if len(c.Moved) == 0 {
			continue
		}
		if moved++; c.Moved[0].Host != "host2" || c.Moved[0].Reason == "" || c.Host != "host1" {
			t.Errorf("%s: on %s, moved %+v", c.Name, c.Host, c.Moved)
		}
	}
	if moved == 0 {
		t.Error("no cell was moved")
	}
	if h := doc.Hosts; len(h) != 2 || h[0].Status != matrix.Used || h[1].Status != matrix.LostMidway || h[0].Cells+h[1].Cells != len(doc.Cells) {
		t.Errorf("hosts %+v", h)
	}
}

// joined holds that each cell is in the joined files once.
func joined(t *testing.T, doc *matrix.Document, out string) {
	t.Helper()
	var suites struct {
		Tests int `xml:"tests,attr"`
		Suite []struct {
			Name  string `xml:"name,attr"`
			Tests int    `xml:"tests,attr"`
		} `xml:"testsuite"`
	}
	text, err := os.ReadFile(filepath.Join(out, "junit.xml"))
	must(t, err)
	must(t, xml.Unmarshal(text, &suites))
	n := map[string]int{}
	for _, s := range suites.Suite {
		n[s.Name] += s.Tests
	}
	page, err := os.ReadFile(filepath.Join(out, report.HTMLFile))
	must(t, err)
	for _, c := range doc.Cells {
		if n[c.Name] != 1 {
			t.Errorf("%s has %d cases in junit.xml", c.Name, n[c.Name])
		}
		if !strings.Contains(string(page), `href="`+c.Page+`"`) {
			t.Errorf("the page leads not to %s", c.Page)
		}
		if _, err := os.Stat(filepath.Join(out, c.Page)); err != nil {
			t.Error(err)
		}
		for _, m := range c.Moved { // what it had left there is kept, and is nobody's results
			if _, err := os.Stat(filepath.Join(out, c.Name, "lost-"+m.Host)); err != nil {
				t.Error(err)
			}
		}
	}
	if suites.Tests != len(doc.Cells) || len(n) != len(doc.Cells) {
		t.Errorf("%d cases, %d suites, want %d", suites.Tests, len(n), len(doc.Cells))
	}
	bench, err := os.Open(filepath.Join(out, report.BenchFile))
	must(t, err)
	defer bench.Close()
	for r := benchfmt.NewReader(bench, "bench.txt"); r.Scan(); {
		if err, is := r.Result().(*benchfmt.SyntaxError); is {
			t.Error(err)
		}
	}
}

// equalToLocal holds every cell's results against those of the same matrix without libvirt.
func equalToLocal(t *testing.T, doc *matrix.Document, out string, what []string) {
	t.Helper()
	local := t.TempDir()
	if a := call(t, nil, append(append([]string{"matrix"}, what...), "--out", local)...); a.code != 0 {
		t.Fatal(a)
	}
	for _, c := range doc.Cells {
		var docs [2][]byte
		for i, dir := range []string{out, local} {
			var err error
			docs[i], err = os.ReadFile(filepath.Join(dir, c.Name, c.Arch, report.ResultsFile))
			must(t, err)
		}
		if !bytes.Equal(docs[0], docs[1]) {
			t.Errorf("%s: results differ:\n%s\n%s", c.Name, docs[0], docs[1])
		}
	}
}

// The only host is lost: cells are red and say so, and no guest is left.
func TestMatrixWithoutHosts(t *testing.T) {
	d := libvirttest.Start(t)
	out := t.TempDir()
	code, _, stderr := losing(t, d, syscall.SIGKILL, "--arch", "riscv64", "--scenario", "boot", "--seed", "1,2,3", "--host", d.URI, "--out", out)
	if code != status.ExitLabFailed {
		t.Errorf("exit status %d: %s", code, stderr)
	}
	doc := matrixOf(t, out)
	red := 0
	for _, c := range doc.Cells {
		if c.Status == status.LabFailed && strings.Contains(c.Reason, "no host is left: host1: lost: ") {
			red++
		}
	}
	if red == 0 || doc.Hosts[0].Status != matrix.LostMidway {
		t.Errorf("%d cells say that no host is left: %+v", red, doc)
	}
	if pids := guests(t, d); len(pids) > 0 {
		t.Errorf("QEMU is left: %v", pids)
	}
}

// A host that does not answer, one that wants a password and a kernel that there is not are said; the
// other cells run.
func TestMatrixBeside(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	sock := filepath.Join(t.TempDir(), "none")
	closed := libvirttest.StartClosed(t)
	a := call(t, nil, "matrix", "--arch", "riscv64", "--scenario", "boot", "--kernel", "locked,/nonexistent/linux", "--local",
		"--host", "qemu+unix:///system?socket="+sock, "--host", closed.URI, "--out", out, "--json")
	if a.code != status.ExitLabFailed {
		t.Errorf("exit status %d: %s", a.code, a)
	}
	for _, says := range []string{"host host1 is not used: host qemu+unix:///system?socket=" + sock, "is it running", "host host2 is not used: host " + closed.URI, "it wants credentials"} {
		if !strings.Contains(a.stderr, says) {
			t.Errorf("%q is not said: %s", says, a.stderr)
		}
	}
	var doc matrix.Document
	must(t, json.Unmarshal([]byte(a.stdout), &doc))
	if len(doc.Cells) != 2 || doc.Cells[0].Status != status.Passed || doc.Cells[0].Host != "local" {
		t.Errorf("got %+v", doc.Cells)
	}
	if c := doc.Cells[1]; c.Status != status.LabFailed || c.Exit != status.ExitUsage || !strings.Contains(c.Reason, "--kernel: ") || c.Kernel != "linux" || c.Host != "" {
		t.Errorf("got %+v", c)
	}
	if h := doc.Hosts; h[0].Status != matrix.Unreachable || h[1].Status != matrix.Unreachable || h[2].Status != matrix.Used || h[2].Cells != 1 {
		t.Errorf("hosts %+v", doc.Hosts)
	}
	// Again in its place, and the report alone.
	if a := call(t, nil, "report", out); a.code != 0 || strings.TrimSpace(a.stdout) != filepath.Join(out, report.HTMLFile) {
		t.Errorf("exit status %d: %s", a.code, a)
	}
	if a := call(t, nil, "matrix", "--arch", "riscv64", "--scenario", "boot", "--out", out, "--force", "--markdown"); a.code != 0 || !strings.Contains(a.stdout, "| boot | ✓ passed: seed 1 |") {
		t.Errorf("exit status %d: %s", a.code, a)
	}
	if left, _ := filepath.Glob(filepath.Join(out, "*linux*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// An interrupt ends all cells, leaves no guest, and what came out until then is reported.
func TestMatrixInterrupted(t *testing.T) {
	temp := t.TempDir()
	out := filepath.Join(temp, "out")
	cmd := exec.Command(lab, "matrix", "--arch", "riscv64", "--scenario", "fault-boot-hang", "--seed", "1-3", "--out", out)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, "XDG_RUNTIME_DIR=")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(t, cmd.Start())
	eventually(t, "a guest runs", func() bool { return len(emulators(t, temp)) > 0 })
	must(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)) // as from a keyboard: to the whole group
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != status.ExitInterrupted || strings.Count(stderr.String(), "lab: interrupted") != 1 {
		t.Errorf("exit status %d, want %d: %s", code, status.ExitInterrupted, &stderr)
	}
	if pids, left := emulators(t, temp), leftovers(t, temp); len(pids)+len(left) > 0 {
		t.Errorf("left behind: QEMU %v, files %v", pids, left)
	}
	for _, c := range matrixOf(t, out).Cells {
		if c.Status != status.Skipped || !strings.Contains(c.Reason, "interrupted") {
			t.Errorf("%s: %s: %s", c.Name, c.Status, c.Reason)
		}
	}
	if _, err := os.Stat(filepath.Join(out, report.HTMLFile)); err != nil {
		t.Error(err)
	}
}

// What has come out is there for who looks on the way, and is kept if the lab is killed. With four of each
// some cell is still to come whenever the first has passed, in whatever order and however slowly: who hangs at boot is
// given up after seconds, and may be before one guest has passed.
func TestMatrixKilled(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	cmd := exec.Command(lab, "matrix", "--arch", "riscv64", "--scenario", "refuse,fault-boot-hang", "--seed", "1-4", "--out", out)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(t, cmd.Start())
	t.Cleanup(func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	passed := func() bool {
		text, err := os.ReadFile(filepath.Join(out, matrix.File))
		if err != nil {
			return false
		}
		doc, err := matrix.Decode(text) // each time whole
		must(t, err)
		return slices.ContainsFunc(doc.Cells, func(c matrix.CellRecord) bool { return c.Status == status.Passed })
	}
	eventually(t, "a cell of eight has passed", passed)
	must(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL))
	if _ = cmd.Wait(); cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("it ended by itself: %v", cmd.ProcessState)
	}
	if !passed() {
		t.Error("no cell has passed any more")
	}
}
