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
	if plain := targets(t, "plain.sh", `(?m)^make (\w+)`); !slices.Equal(plain, calls) {
		t.Errorf("plain.sh makes %v, the workflow %v", plain, calls)
	}
}

// The script, with a make that notes how it is called: its own status counts,
// and the summary is shown also when it fails.
func TestPlainScript(t *testing.T) {
	for _, status := range []string{"0", "2"} {
		bin, out := t.TempDir(), t.TempDir()
		script := "#!/bin/sh\necho \"$@\" ARCH=\"$ARCH\"\necho the summary >'" + out + "/summary.md'\nexit " + status + "\n"
		if err := os.WriteFile(filepath.Join(bin, "make"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("./plain.sh")
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "ARCH=riscv64", "OUT="+out)
		text, _ := cmd.CombinedOutput()
		want := "lab OUT=" + out + " ARCH=riscv64\nthe summary\n"
		if string(text) != want || fmt.Sprint(cmd.ProcessState.ExitCode()) != status {
			t.Errorf("exit status %d, %q, want %s, %q", cmd.ProcessState.ExitCode(), text, status, want)
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
