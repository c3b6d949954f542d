package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// example is one that the README shows: what it is about, and commands with the
// lines that are to come out of each.
type example struct {
	about    string
	commands []shown
}

type shown struct {
	command string
	lines   []string
}

// shownIn reads the first block of code behind a heading, or any other text, of
// the README. A comment begins an example, a dollar a command, which a backslash
// carries on to the next line.
func shownIn(t *testing.T, heading string) (all []example) {
	t.Helper()
	b, err := os.ReadFile("../../README.md")
	must(t, err)
	_, rest, found := strings.Cut(string(b), heading)
	_, rest, opened := strings.Cut(rest, "\n```\n")
	code, _, closed := strings.Cut(rest, "\n```\n")
	if !found || !opened || !closed {
		t.Fatalf("no block of code behind %q", heading)
	}
	for _, line := range strings.Split(strings.ReplaceAll(code, "\\\n", ""), "\n") {
		if about, is := strings.CutPrefix(line, "# "); is || len(all) == 0 {
			all = append(all, example{about: about})
			if is {
				continue
			}
		}
		e := &all[len(all)-1]
		if command, is := strings.CutPrefix(line, "$ "); is {
			e.commands = append(e.commands, shown{command: command})
		} else if line != "" && len(e.commands) > 0 {
			s := &e.commands[len(e.commands)-1]
			s.lines = append(s.lines, line)
		}
	}
	return all
}

// lacking is the first of the lines that does not come in the output behind those
// before it; "" if all do. White space is as good as any other, and … stands for
// anything within a line.
func lacking(lines []string, output string) string {
	rest := strings.Split(output, "\n")
	for _, want := range lines {
		pattern := regexp.QuoteMeta(strings.Join(strings.Fields(want), " "))
		re := regexp.MustCompile("^" + strings.ReplaceAll(pattern, "…", ".*") + "$")
		found := false
		for len(rest) > 0 && !found {
			found = re.MatchString(strings.Join(strings.Fields(rest[0]), " "))
			rest = rest[1:]
		}
		if !found {
			return want
		}
	}
	return ""
}

// The examples of the README do what it says. They run where bin/lab is, as
// readers do, one after the other: some use what others have left.
func TestReadmeExamples(t *testing.T) {
	t.Parallel()
	examples := shownIn(t, "## Ten examples")
	if len(examples) != 10 {
		t.Errorf("there are %d", len(examples))
	}
	dir := t.TempDir()
	must(t, os.Symlink(filepath.Dir(lab), filepath.Join(dir, "bin")))
	for _, e := range examples {
		t.Run(e.about, func(t *testing.T) {
			for _, s := range e.commands {
				start := time.Now()
				cmd := exec.Command("sh", "-ec", s.command)
				cmd.Dir = dir
				out, err := cmd.CombinedOutput()
				t.Logf("%.1f s: %s", time.Since(start).Seconds(), s.command)
				if err != nil {
					t.Fatalf("%s: %v: %s", s.command, err, out)
				}
				if missing := lacking(s.lines, string(out)); missing != "" {
					t.Errorf("%s: this did not come, or not in this order:\n%s\nbut:\n%s", s.command, missing, out)
				}
				changed(t, s.lines, string(out))
			}
		})
	}
}

// changed holds lacking against the same lines with one letter or digit changed.
func changed(t *testing.T, lines []string, out string) {
	t.Helper()
	first := regexp.MustCompile(`[A-Za-z0-9]`)
	for k, line := range lines {
		at := first.FindStringIndex(line)
		if at == nil {
			t.Errorf("%q says nothing", line)
			continue
		}
		other := append([]string{}, lines...)
		if other[k] = line[:at[0]] + "~" + line[at[1]:]; lacking(other, out) == "" {
			t.Errorf("%q instead of %q is not noticed", other[k], line)
		}
	}
}
