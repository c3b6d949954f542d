package ci

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rhysd/actionlint"
	"go.yaml.in/yaml/v3"
)

const workflow = "github/lab.yml"

// The workflow is for users' repositories and never runs here: it is linted,
// and what it calls must exist.
func TestWorkflowIsValid(t *testing.T) {
	l, err := actionlint.NewLinter(io.Discard, &actionlint.LinterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	path, err := filepath.Abs(workflow)
	if err != nil {
		t.Fatal(err)
	}
	found, err := l.LintFile(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Error(f)
	}
}

// targets are the make targets that a file's lines call.
func targets(t *testing.T, file, pattern string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
		all = append(all, m[1])
	}
	return all
}

func TestWorkflowCallsWhatPeopleCall(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	calls := targets(t, workflow, `run: make (\w+)`)
	if len(calls) == 0 {
		t.Fatal("no step calls make")
	}
	for _, c := range calls {
		if !strings.Contains(string(makefile), "\n"+c+":") {
			t.Errorf("make %s is called, but there is no such target", c)
		}
	}
	plain := targets(t, "plain.sh", `(?m)^\s*make (\w+)`)
	slices.Sort(plain)
	if slices.Sort(calls); !slices.Equal(plain, calls) {
		t.Errorf("plain.sh makes %v, the workflow %v", plain, calls)
	}
}

// The script, with a make that notes how it is called: its own status counts,
// and the summary is shown also when it fails.
func TestPlainScript(t *testing.T) {
	for _, how := range []struct{ status, matrix, target string }{{"0", "", "lab"}, {"2", "", "lab"}, {"0", "all", "matrix"}, {"2", "all", "matrix"}} {
		bin, out := t.TempDir(), t.TempDir()
		script := "#!/bin/sh\necho \"$@\" ARCH=\"$ARCH\"\necho the summary >'" + out + "/summary.md'\nexit " + how.status + "\n"
		if err := os.WriteFile(filepath.Join(bin, "make"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("./plain.sh")
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "ARCH=riscv64", "OUT="+out, "MATRIX="+how.matrix)
		text, _ := cmd.CombinedOutput()
		want := how.target + " OUT=" + out + " ARCH=riscv64\nthe summary\n"
		if string(text) != want || fmt.Sprint(cmd.ProcessState.ExitCode()) != how.status {
			t.Errorf("exit status %d, %q, want %s, %q", cmd.ProcessState.ExitCode(), text, how.status, want)
		}
	}
}

// What the pipeline for GitLab runs is there, what it sets is what that reads, and what it keeps is what
// that writes.
func TestPipeline(t *testing.T) {
	text, err := os.ReadFile("gitlab/lab.yml")
	if err != nil {
		t.Fatal(err)
	}
	type job struct {
		Extends   string
		Script    []string
		Variables map[string]string
		Parallel  struct{ Matrix []map[string][]string }
		Cache     struct{ Paths []string }
		Artifacts struct {
			Paths   []string
			Reports struct{ JUnit string }
		}
	}
	var all map[string]yaml.Node
	if err := yaml.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	jobs := map[string]job{}
	for name, node := range all {
		var j job
		if name != "stages" {
			if err := node.Decode(&j); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			jobs[name] = j
		}
	}
	plain, err := os.ReadFile("plain.sh")
	if err != nil {
		t.Fatal(err)
	}
	base := jobs[".each-isa"]
	if !slices.Equal(base.Script, []string{"ci/plain.sh"}) || base.Variables["OUT"] != base.Artifacts.Paths[0] || len(base.Parallel.Matrix[0]["ARCH"]) != 3 {
		t.Errorf("each job is %+v", base)
	}
	if base.Variables["XDG_CACHE_HOME"]+"/kerninst" != "$CI_PROJECT_DIR/"+base.Cache.Paths[0] {
		t.Errorf("kept is %v, the cache is in %s", base.Cache.Paths, base.Variables["XDG_CACHE_HOME"])
	}
	if len(jobs) != 3 {
		t.Errorf("%d jobs", len(jobs))
	}
	for name, reports := range map[string]string{"lab": "out/ci/*/junit.xml", "matrix": "out/ci/junit.xml"} {
		j := jobs[name]
		if j.Extends != ".each-isa" || j.Artifacts.Reports.JUnit != reports || (j.Variables["MATRIX"] != "") != (name == "matrix") {
			t.Errorf("%s: %+v", name, j)
		}
		for v := range j.Variables {
			if !strings.Contains(string(plain), "\n#\t"+v+" ") {
				t.Errorf("%s sets %s, of which plain.sh says nothing", name, v)
			}
		}
	}
}

// Scripts are for any POSIX shell.
func TestShellSyntax(t *testing.T) {
	scripts, err := filepath.Glob("*.sh")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts (%v)", err)
	}
	for _, s := range scripts {
		if out, err := exec.Command("sh", "-n", s).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", s, err, out)
		}
	}
}
