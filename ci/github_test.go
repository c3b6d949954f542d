package ci

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
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

func TestWorkflowCallsWhatPeopleCall(t *testing.T) {
	text, err := os.ReadFile(workflow)
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	calls := regexp.MustCompile(`run: make (\w+)`).FindAllStringSubmatch(string(text), -1)
	if len(calls) == 0 {
		t.Fatal("no step calls make")
	}
	for _, c := range calls {
		if !strings.Contains(string(makefile), "\n"+c[1]+":") {
			t.Errorf("make %s is called, but there is no such target", c[1])
		}
	}
}
