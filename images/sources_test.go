package images

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestSources: a program is compiled anew when any of what it is made of has changed, so all of that is in the folders
// that decide about it.
func TestSources(t *testing.T) {
	all := slices.Clone(goPrograms)
	for _, pkg := range packages(t, "list", "-f", `{{if eq .Name "main"}}{{.ImportPath}}{{end}}`, "../guest/...") {
		all = append(all, goProgram{pkg: pkg, sources: append([]string{pkg}, besides...)})
	}
	if len(all) < 7 {
		t.Errorf("%d programs", len(all))
	}
	for _, p := range all {
		for _, of := range packages(t, "list", "-deps", "-f", `{{with .Module}}{{if .Main}}{{$.ImportPath}}{{end}}{{end}}`, "../"+p.pkg) {
			if !slices.ContainsFunc(p.sources, func(dir string) bool { return of == dir || strings.HasPrefix(of, dir+"/") }) {
				t.Errorf("%s is made of %s, which is in none of %v", p.pkg, of, p.sources)
			}
		}
	}
}

// packages are what the go command lists, of the repository.
func packages(t *testing.T, args ...string) (out []string) {
	t.Helper()
	text, err := exec.Command("go", args...).Output()
	if err != nil {
		t.Fatalf("go %v: %v", args, err)
	}
	for _, line := range strings.Fields(string(text)) {
		out = append(out, strings.TrimPrefix(line, "kerninst/"))
	}
	return out
}
