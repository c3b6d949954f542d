package plugins

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kerninst/agent/clone/plugin"
)

// TestFails: a plugin that loops, or fails, ends with an error that says so, also where it has begun a program that goes on.
func TestFails(t *testing.T) {
	defer func(was time.Duration) { patience = was }(patience)
	patience = 2 * time.Second
	for name, c := range map[string]struct{ source, want string }{
		"loops":  {"package main\nfunc main() { for {} }", "no answer in 2s: does it loop?"},
		"begins": {"package main\nimport (\"os\"; \"os/exec\")\nfunc main() { c := exec.Command(\"sleep\", \"60\"); c.Stdout = os.Stdout; c.Start(); for {} }", "no answer in 2s"},
		"fails":  {"package main\nimport \"os\"\nfunc main() { os.Exit(3) }", "failed: exit status 3"},
		"speaks": {"package main\nfunc main() { os.Stdout.WriteString(\"here I am\") }\n", "does not compile"},
		"writes": {"package main\nimport \"os\"\nfunc main() { os.Stdout.WriteString(\"here I am\") }", "stdout before it reports"},
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, name+".go")
		if err := os.WriteFile(file, []byte(c.source), 0o644); err != nil {
			t.Fatal(err)
		}
		p, err := Build(t.Context(), file, filepath.Join(dir, "module"))
		if err == nil {
			start := time.Now()
			if _, err = p.Ask(t.Context(), &plugin.Input{}); time.Since(start) > time.Minute {
				t.Errorf("%s: it ended after %v", name, time.Since(start))
			}
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		var wrong *CompileError
		if errors.As(err, &wrong) != (name == "speaks") {
			t.Errorf("%s: %T", name, err)
		}
	}
}
