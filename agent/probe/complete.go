package probe

import (
	"slices"
	"strings"
)

// leastTyped is how much of a function's name is there before such are offered: a kernel has
// tens of thousands.
const leastTyped = 2

// Complete lists what a specification, of which so much is typed, may go on as; functions
// lists a kernel's.
func Complete(typed string, functions func() []string) (out []string) {
	f := strings.Split(typed, ":")
	switch {
	case len(f) < 3:
		return begins(typed, "kinst::")
	case len(f) == 3 && f[1] == "" && len(f[2]) >= leastTyped:
		for _, name := range functions() {
			if strings.HasPrefix(name, f[2]) {
				out = append(out, "kinst::"+name+":")
			}
		}
	case len(f) == 4:
		for _, name := range Names() {
			out = append(out, begins(typed, strings.Join(f[:3], ":")+":"+name)...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ActionWords are what actions begin with.
func ActionWords() []string {
	out := []string{"trace("}
	for name, a := range actions {
		if a.most > 0 {
			name += "("
		}
		out = append(out, name)
	}
	return slices.Sorted(slices.Values(out))
}

// begins is the words that begin with what is typed.
func begins(typed string, words ...string) []string {
	return slices.DeleteFunc(words, func(w string) bool { return !strings.HasPrefix(w, typed) })
}
