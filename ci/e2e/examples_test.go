package e2e

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// question is a command of EXAMPLES.md, and the answer there.
type question struct{ command, answer string }

// The prompts of a guest's shell, and of the host's.
var (
	prompt     = regexp.MustCompile("(?s)```\nguest# (.*?)\n(.*?)```")
	hostPrompt = regexp.MustCompile("(?s)```\n\\$ bin/lab (.*?)\n(.*?)```")
)

func examples(t *testing.T, after *regexp.Regexp) (out []question) {
	t.Helper()
	text, err := os.ReadFile("../../EXAMPLES.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range after.FindAllStringSubmatch(string(text), -1) {
		out = append(out, question{m[1], m[2]})
	}
	return out
}

var (
	figure = regexp.MustCompile(`0x[0-9a-f]+|-?\d+`)
	bar    = regexp.MustCompile(`\|[@ ]*\|`)
)

// shape is a line without its numbers, bars and blanks.
func shape(line string) string {
	return strings.Join(strings.Fields(figure.ReplaceAllString(bar.ReplaceAllString(line, ""), "N")), " ")
}

// shows reports whether an answer has the lines of an example, in their order, and none
// besides, but where the example leaves lines out.
func shows(answer, example string) bool {
	var want []string
	for line := range strings.Lines(example) {
		if strings.TrimSpace(line) == "..." {
			want = append(want, `(?:.*\n)*?`)
		} else {
			want = append(want, regexp.QuoteMeta(shape(line))+`\n`)
		}
	}
	var got strings.Builder
	for line := range strings.Lines(answer) {
		got.WriteString(shape(line) + "\n")
	}
	return regexp.MustCompile(`^` + strings.Join(want, "") + `$`).MatchString(got.String())
}

func TestShows(t *testing.T) {
	const answer = "kinst::f:8  jump  12\n  [1, 2]  3 |@@  |\n"
	for example, want := range map[string]bool{
		"kinst::f:9 jump 1\n[0, 0] 1 |@|\n": true, "...\n[0, 0] 1 |@|\n": true, "kinst::f:9 jump 1\n...\n": true,
		"kinst::f:9 jump 1\n": false, "kinst::g:8 jump 1\n...\n": false, "kinst::f:8 trap 1\n...\n": false, "...\n[1, 2]\n": false,
	} {
		if got := shows(answer, example); got != want {
			t.Errorf("%q: %v, want %v", example, got, want)
		}
	}
}

// foundSome is what an answer has that found something.
var foundSome = regexp.MustCompile(`(?m)^kinst::|  CPU \d+  kinst::| functions$`)

// tryExamples has a shell do what EXAMPLES.md says. Elsewhere than on amd64, whose answers
// are there, each has to find something.
func tryExamples(t *testing.T, g *guestShell, arch string) {
	all := examples(t, prompt)
	if len(all) != 17 {
		t.Errorf("%d examples, want 17", len(all))
	}
	for k, e := range all {
		got, code := g.run(e.command, len(behaviours)+k)
		ok := foundSome.MatchString(noted(got))
		if arch == "amd64" {
			ok = shows(noted(got), e.answer)
		}
		if code != 0 || !ok || strings.Contains(got, "nothing came") {
			t.Errorf("%s\nexit status %d, want 0, and\n%s\ngot\n%s", e.command, code, e.answer, got)
		}
	}
}

// noted drops what is said beside the answer.
func noted(said string) string {
	return regexp.MustCompile(`(?m)^(kinst|probe|workload): .*\n`).ReplaceAllString(said, "")
}

// TestHostExamples: what EXAMPLES.md asks on the host is answered as it says, of what is committed of the kernel's debugging information.
func TestHostExamples(t *testing.T) {
	t.Parallel()
	all := examples(t, hostPrompt)
	if len(all) == 0 {
		t.Error("no example")
	}
	for _, e := range all {
		a := call(t, nil, append(strings.Fields(e.command), "--copies", "../../scenarios/copies/amd64.copies")...)
		if a.code != 0 || !shows(a.stdout, e.answer) {
			t.Errorf("%s\nwant\n%s\ngot %v", e.command, e.answer, a)
		}
	}
}
