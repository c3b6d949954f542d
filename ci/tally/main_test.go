package main

import (
	"strings"
	"testing"
)

func TestTally(t *testing.T) {
	for _, tt := range []struct {
		name, in, last string
		failed         bool
		ledger         string
	}{
		{"leaves count, parents do not", `{"Action":"pass","Package":"p","Test":"A/x"}
{"Action":"pass","Package":"p","Test":"A"}
{"Action":"skip","Package":"p","Test":"B"}
{"Action":"pass","Package":"p"}`, "1 passed, 0 failed, 1 skipped", false, "None.\n\n* `p B`: it needs a moon\n"},
		{"a skip that is not listed", `{"Action":"pass","Package":"p","Test":"A"}
{"Action":"skip","Package":"p","Test":"B"}`, "1 passed, 0 failed, 1 skipped", true, "\n* `p BB`: another\n* `q B`: another\n"},
		{"a failure", `{"Action":"output","Package":"p","Test":"A","Output":"why\n"}
{"Action":"fail","Package":"p","Test":"A"}
{"Action":"fail","Package":"p"}`, "0 passed, 1 failed, 0 skipped", true, ""},
		{"a failure of a parent's own", `{"Action":"pass","Package":"p","Test":"A/x/y"}
{"Action":"fail","Package":"p","Test":"A/x"}
{"Action":"fail","Package":"p","Test":"A"}
{"Action":"fail","Package":"p"}`, "1 passed, 1 failed, 0 skipped", true, ""},
		{"nothing ran", ``, "0 passed, 0 failed, 0 skipped", true, ""},
		{"a package that does not build", `{"ImportPath":"q","Action":"build-output","Output":"x.go:1: bad\n"}
{"ImportPath":"q","Action":"build-fail"}
{"Action":"pass","Package":"p","Test":"A"}`, "1 passed, 0 failed, 0 skipped", true, ""},
		{"a process that died", `{"Action":"output","Package":"p","Test":"A","Output":"=== RUN\n"}
{"Action":"pass","Package":"p","Test":"B"}`, "1 passed, 1 failed, 0 skipped", true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			failed, err := tally(strings.NewReader(tt.in), &out, tt.ledger)
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if last := lines[len(lines)-1]; err != nil || failed != tt.failed || last != tt.last {
				t.Fatalf("got %v, %v, %q; want %v, %q\n%s", failed, err, last, tt.failed, tt.last, out.String())
			}
		})
	}
}
