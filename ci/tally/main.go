// Command tally reads `go test -json` and prints what a person wants to see:
// one line per package and slow test, the output of what failed, and a closing line
//
//	N passed, N failed, N skipped
//
// that counts tests and subtests which have no subtests of their own, and those that
// failed though none of theirs did. It exits 1 when something failed, was skipped without a
// line in ci/skips.md, or nothing ran.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	ledger, err := os.ReadFile(ledgerFile)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tally: run it where the repository begins:", err)
		os.Exit(1)
	}
	failed, err := tally(os.Stdin, os.Stdout, string(ledger))
	if err != nil {
		fmt.Fprintln(os.Stderr, "tally:", err)
	}
	if failed || err != nil {
		os.Exit(1)
	}
}

// ledgerFile lists what is skipped, with the reason: a line "* `package test`: reason"
// of each.
const ledgerFile = "ci/skips.md"

// event is a line of `go test -json` (see `go doc test2json`).
type event struct {
	Action      string
	Package     string
	Test        string
	Elapsed     float64
	Output      string
	ImportPath  string
	FailedBuild string
}

// run is one test or, with an empty name, one package.
type run struct {
	outcome string
	output  []string
	parent  bool
	below   bool // one of its subtests failed
}

// slow is how long a test may take without being told of, in seconds. What it waits
// for, while others run, counts.
const slow = 30

// maxLine bounds a line of input: a test may print a whole console.
const maxLine = 64 << 20

func tally(r io.Reader, w io.Writer, ledger string) (failed bool, err error) {
	tests := map[string]*run{}
	var order []string
	get := func(key string) *run {
		if tests[key] == nil {
			tests[key] = &run{}
			order = append(order, key)
		}
		return tests[key]
	}
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, maxLine)
	for sc.Scan() {
		var e event
		if json.Unmarshal(sc.Bytes(), &e) != nil {
			fmt.Fprintln(w, sc.Text()) // the go command's own words
			continue
		}
		switch e.Action {
		case "output":
			get(e.Package + "\x00" + e.Test).output = append(get(e.Package+"\x00"+e.Test).output, e.Output)
		case "build-output":
			fmt.Fprint(w, e.Output)
		case "build-fail":
			failed = true
		case "pass", "fail", "skip":
			t := get(e.Package + "\x00" + e.Test)
			t.outcome = e.Action
			if i := strings.LastIndex(e.Test, "/"); i >= 0 {
				parent := get(e.Package + "\x00" + e.Test[:i])
				parent.parent, parent.below = true, parent.below || e.Action == "fail"
			}
			if e.Test == "" {
				word := e.Action
				if word == "skip" {
					word = "none" // it has no tests
				}
				fmt.Fprintf(w, "%-4s %s %.1fs\n", word, e.Package, e.Elapsed)
				failed = failed || e.Action == "fail"
			}
			if e.Action == "pass" && e.Elapsed >= slow && e.Test != "" && !strings.Contains(e.Test, "/") {
				fmt.Fprintf(w, "slow %s %s %.1fs\n", e.Package, e.Test, e.Elapsed)
			}
			if e.Action != "pass" && e.Test != "" {
				fmt.Fprintf(w, "--- %s: %s %s\n%s", strings.ToUpper(e.Action), e.Package, e.Test, strings.Join(t.output, ""))
			}
		}
	}
	if err := sc.Err(); err != nil {
		return true, err
	}
	n, unlisted := map[string]int{}, 0
	for _, key := range order {
		t := tests[key]
		if own := t.outcome == "fail" && !t.below; strings.HasSuffix(key, "\x00") || t.parent && !own {
			continue
		}
		if t.outcome == "" { // the process died before it could say
			t.outcome = "fail"
			fmt.Fprintf(w, "--- DIED: %s\n%s", strings.ReplaceAll(key, "\x00", " "), strings.Join(t.output, ""))
		}
		n[t.outcome]++
		if name := strings.ReplaceAll(key, "\x00", " "); t.outcome == "skip" && !strings.Contains(ledger, "\n* `"+name+"`: ") {
			unlisted++
			fmt.Fprintf(w, "--- SKIPPED, and not in ci/skips.md: %s\n", name)
		}
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", n["pass"], n["fail"], n["skip"])
	return failed || unlisted > 0 || n["fail"] > 0 || n["pass"] == 0, nil
}
