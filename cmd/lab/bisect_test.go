package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kerninst/lab/bisect"
	"kerninst/lab/matrix"
	"kerninst/lab/status"
)

func TestWrongBisect(t *testing.T) {
	for line, want := range map[string]string{
		"":                             "--kernel: want two or more",
		"--kernel 6.12":                "--kernel: want two or more",
		"--kernel 6.12,7.2 x":          "unexpected argument",
		"--kernel 6.12,6.12":           "6.12 is given twice",
		"--kernel 6.12,7.2 --arch all": "a search is on one ISA",
		"--kernel 6.12,7.2 --scenario boot,count": "want one name or label",
		"--kernel 6.12,7.2 --scenario smok":       "did you mean smoke?",
		"--kernel 6.12,7.2 --scenario ab":         "add --time host",
		"--kernel 6.12,x --scenario boot":         `"x" is neither a folder that is here nor a version`,
		"--kernel 6.12,7.2 --jobs 0":              "at least 1",
		"--kernel 6.12,7.2 --timeout -1s":         "more than 0",
	} {
		if got := refused(t, append([]string{"bisect"}, strings.Fields(line)...)...); !strings.Contains(got, want) {
			t.Errorf("lab bisect %s: %q, want …%s…", line, got, want)
		}
	}
}

// sought is a search that has asked about some of four kernels.
func sought(came map[int]status.Status) *searched {
	f := bisectFlags{runFlags: runFlags{common: common{arch: "amd64"}, scenario: "boot", seed: 7}}
	s := f.search([]string{"6.1", "6.12", "6.16", "7.2"}, "/out")
	for i, st := range came {
		r := matrix.Record(s.cells[i])
		if r.Status = st; st != status.Passed {
			r.Reason = "why:\n" + string(st)
		}
		s.at[i] = len(s.doc.Cells)
		s.doc.Cells = append(s.doc.Cells, r)
	}
	return s
}

func TestBisectTells(t *testing.T) {
	s := sought(map[int]status.Status{0: status.Passed, 3: status.Crashed, 1: status.LabFailed})
	f := bisect.Found{Before: 0, After: 3, First: bisect.Yes, Between: []int{1, 2}}
	var b bytes.Buffer
	if err := s.tell(f, &b); err != nil {
		t.Fatal(err)
	}
	want := `6.1   passed
6.12  lab_failed       why: lab_failed
6.16  not asked about
7.2   crashed          why: crashed
boot: the last that passes is 6.1, the first that does not pass is 7.2
of 6.12, 6.16, which lie between them, it cannot be told
`
	if got := regexp.MustCompile(` +\n`).ReplaceAllString(b.String(), "\n"); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	s.json = true
	b.Reset()
	f.First, f.Between = bisect.No, nil
	var doc bisectDocument
	if err := errors.Join(s.tell(f, &b), json.Unmarshal(b.Bytes(), &doc)); err != nil {
		t.Fatal(err)
	}
	if doc.Schema != 1 || doc.Before != "6.1" || doc.After != "7.2" || doc.Passes != "after" || doc.Between == nil || len(doc.Asked) != 3 || !slices.Equal(doc.Kernels, []string{"6.1", "6.12", "6.16", "7.2"}) || doc.Seed != 7 {
		t.Errorf("got %+v", doc)
	}
}

// Ends that are alike are the caller's mistake, one of which nothing can be told the lab's.
func TestBisectOfNothing(t *testing.T) {
	s := sought(map[int]status.Status{0: status.Passed, 3: status.LabFailed})
	err := s.none(&bisect.EndsError{First: bisect.Yes, Last: bisect.Yes, Unknown: -1})
	if e := (*exit)(nil); !errors.As(err, &e) || e.code != status.ExitUsage || !strings.Contains(err.Error(), "boot passes with kernel 6.1 and with 7.2") {
		t.Errorf("got %v", err)
	}
	err = s.none(&bisect.EndsError{First: bisect.Yes, Unknown: 3})
	if e := (*exit)(nil); errors.As(err, &e) || !strings.Contains(err.Error(), "kernel 7.2: it cannot be told how boot comes out: why") || !strings.Contains(err.Error(), "/out/amd64-7.2-boot-7") {
		t.Errorf("got %v", err)
	}
}

// Of each status it is known what it says of a kernel.
func TestAnswers(t *testing.T) {
	for s, want := range map[status.Status]bisect.Answer{
		status.Passed: bisect.Yes, status.Failed: bisect.No, status.Crashed: bisect.No, status.BootFailed: bisect.No, status.Timeout: bisect.No,
		status.LabFailed: bisect.Unknown, status.Skipped: bisect.Unknown,
	} {
		if answers[s] != want {
			t.Errorf("%s: %v, want %v", s, answers[s], want)
		}
	}
}
