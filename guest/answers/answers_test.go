package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		child(os.Args[1:])
	}
	os.Exit(m.Run())
}

// TestAsk: twice the same is answered, also on a kernel that is not the lab's, and one line is one answer.
func TestAsk(t *testing.T) {
	var all [2]bytes.Buffer
	for k := range all {
		if err := ask(&all[k]); err != nil {
			t.Fatal(err)
		}
	}
	first, second := strings.Split(all[0].String(), "\n"), strings.Split(all[1].String(), "\n")
	for k := range min(len(first), len(second)) {
		if first[k] != second[k] {
			t.Errorf("first %q, then %q", first[k], second[k])
		}
	}
	if len(first) != len(second) || len(first) < 290 {
		t.Errorf("%d lines, then %d", len(first), len(second))
	}
	for _, line := range first[:len(first)-1] {
		if strings.Count(line, ": ") < 2 && !strings.HasSuffix(line, ":") {
			t.Errorf("no answer: %q", line)
		}
	}
}
