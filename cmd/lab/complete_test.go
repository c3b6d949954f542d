package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// completed is what the shell would be offered, and whether it may offer files.
func completed(t *testing.T, words ...string) (list []string, files bool) {
	t.Helper()
	c := root()
	var out, errs bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&errs)
	c.SetArgs(asked(append([]string{"__complete"}, words...)))
	if err := c.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(out.String(), "\n") {
		files = files || line == ":0" || line == ":2" // 2: no space behind it
		if word, _, _ := strings.Cut(line, "\t"); word != "" && word[0] != ':' {
			list = append(list, word)
		}
	}
	return list, files
}

func TestCompletion(t *testing.T) {
	for _, tt := range []struct {
		line      string // the last word is the one to complete
		want, not []string
	}{
		{"", []string{"run", "probe", "shell", "completion"}, []string{"run-isa"}},
		{"pro", []string{"probe"}, []string{"run"}},
		{"run --arch ", []string{"amd64", "arm64", "riscv64", "all"}, nil},
		{"run --arch amd64,", []string{"amd64,arm64", "amd64,riscv64"}, []string{"amd64,amd64"}},
		{"probe --arch a", []string{"amd64", "arm64", "all"}, []string{"riscv64"}},
		{"run --scenario ", []string{"smoke", "boot"}, nil},
		{"shell --with ", []string{"apache", "bpftrace", "perf", "squid", "systemtap"}, nil},
		{"run --time ", []string{"exact", "host"}, nil},
		{"probe --do ", []string{"count", "hist("}, nil},
		{"probe --no-mechanism trap,", []string{"trap,jump"}, []string{"trap,trap"}},
		{"probe ", []string{"kinst::"}, nil},
		{"probe kinst::vfs_read:e", []string{"kinst::vfs_read:entry"}, []string{"kinst::vfs_read:return"}},
		{"probe --mechanism ", []string{"jump", "quiesced"}, nil},
		{"run --see", []string{"--seed"}, nil},
		{"comp", []string{"compare", "completion"}, []string{"report"}},
		{"compare --thres", []string{"--threshold", "--thresholds"}, nil},
		{"history --m", []string{"--metric"}, nil},
		{"matrix --arch amd64,", []string{"amd64,arm64"}, []string{"amd64,amd64"}},
		{"matrix --scenario boot,", []string{"boot,count"}, []string{"boot,boot"}},
		{"matrix --kernel 7.2,lo", []string{"7.2,locked"}, nil},
		{"matrix --kernel locked,lo", nil, []string{"locked,locked"}},
		{"run --kernel lo", nil, []string{"locked"}},
		{"matrix --in", []string{"--inventory"}, nil},
		{"matrix --inventory testdata/inventory --on ", []string{"here", "near", "fast", "night"}, []string{"local"}},
		{"matrix --inventory testdata/inventory --on fast,", []string{"fast,near"}, []string{"fast,fast"}},
		{"matrix --on ", nil, []string{"here"}},
	} {
		got, _ := completed(t, strings.Split(tt.line, " ")...)
		for _, w := range tt.want {
			if !slices.Contains(got, w) {
				t.Errorf("lab %s<TAB>: no %s among %v", tt.line, w, got)
			}
		}
		for _, n := range tt.not {
			if slices.Contains(got, n) {
				t.Errorf("lab %s<TAB>: offers %s", tt.line, n)
			}
		}
	}
}

// A shell that asks with nothing typed is offered what one gets that has typed an
// empty word.
func TestCompletionOfNothing(t *testing.T) {
	nothing, _ := completed(t)
	if empty, _ := completed(t, ""); !slices.Equal(nothing, empty) || !slices.Contains(nothing, "run") {
		t.Errorf("offered %v, want %v", nothing, empty)
	}
}

// A kernel may be a folder; what has values of its own is none.
func TestCompletionOfFiles(t *testing.T) {
	for line, want := range map[string]bool{"run --kernel /tm": true, "probe --add ": true, "compare /tm": true, "compare --thresholds ": true, "history /tm": true, "matrix --inventory ": true, "matrix --kernel /tm": true, "matrix --on x": false, "run --time x": false, "run --arch x": false} {
		if _, files := completed(t, strings.Split(line, " ")...); files != want {
			t.Errorf("lab %s<TAB>: files %v, want %v", line, files, want)
		}
	}
}

// The scripts for the shells call back what TestCompletion tests.
func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		var out bytes.Buffer
		c := rootTo(&out)
		c.SetArgs([]string{"completion", shell})
		if err := c.Execute(); err != nil || !strings.Contains(out.String(), "__complete") {
			t.Errorf("%s: %v, %d bytes", shell, err, out.Len())
		}
	}
}
