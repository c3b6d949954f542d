// Package plugins runs plugins of clones (agent/clone/plugin): it compiles them, tells them what there is,
// makes points of what they want inserted, and tells them what these found.
package plugins

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"kerninst/agent/clone/plugin"
)

// Program is a plugin that was compiled.
type Program struct{ file string }

// CompileError is what the compiler says.
type CompileError struct{ Said string }

func (e *CompileError) Error() string { return "the plugin does not compile:\n" + e.Said }

// modulePath is where plugins import what they are written with from.
const modulePath = "kerninst/agent/clone/plugin"

// compiler finds the host's Go, or that which set-up has fetched.
func compiler() (string, error) {
	if g := os.Getenv("GO"); g != "" {
		return g, nil
	}
	g, err := exec.LookPath("go")
	if err != nil {
		return "", errors.New("a plugin is compiled by the host's Go, and there is none: install it, put it on the PATH, or name it in $GO")
	}
	return g, nil
}

// Build compiles the plugin that is in a file into a folder: a module of its own, with nothing else to
// import but this package's and the standard library.
func Build(ctx context.Context, file, dir string) (*Program, error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	goTool, err := compiler()
	if err != nil {
		return nil, err
	}
	if err := layOut(dir, filepath.Base(file), source); err != nil {
		return nil, err
	}
	p := &Program{filepath.Join(dir, "plugin.bin")}
	cmd := exec.CommandContext(ctx, goTool, "build", "-trimpath", "-o", p.file, ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off", "GOTOOLCHAIN=local", "GOOS=", "GOARCH=")
	if out, err := cmd.CombinedOutput(); err != nil {
		var failed *exec.ExitError
		if ctx.Err() != nil || !errors.As(err, &failed) {
			return nil, errors.Join(ctx.Err(), err)
		}
		return nil, &CompileError{strings.TrimSpace(string(out))}
	}
	return p, nil
}

// layOut writes the module.
func layOut(dir, name string, source []byte) error {
	if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
		return fmt.Errorf("%s: a plugin is a file of Go", name)
	}
	files := map[string][]byte{
		name:     source,
		"go.mod": []byte("module plugged\n\ngo 1.25\n\nrequire " + modulePath + " v0.0.0\n\nreplace " + modulePath + " => ./with\n"),
	}
	files["with/go.mod"] = []byte("module " + modulePath + "\n\ngo 1.25\n")
	err := fs.WalkDir(plugin.Source, ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files["with/"+path], err = plugin.Source.ReadFile(path)
		}
		return err
	})
	if err != nil {
		return err
	}
	for path, b := range files {
		to := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// patience is how long a plugin may take for an answer: of all functions that a kernel has it takes seconds.
var patience = 5 * time.Minute

var errSlow = errors.New("does it loop?")

// run gives a plugin its input. What it says on stderr goes where ours does.
func (p *Program) run(ctx context.Context, in *plugin.Input, out io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errSlow)
	defer cancel()
	b, err := json.Marshal(in)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, p.file)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(b), out, os.Stderr
	cmd.WaitDelay = time.Second // for what it has begun itself, and that has its stdout
	err = cmd.Run()
	switch {
	case err == nil:
		return nil
	case context.Cause(ctx) == errSlow:
		return fmt.Errorf("the plugin has given no answer in %v: %w", patience, errSlow)
	}
	return errors.Join(ctx.Err(), fmt.Errorf("the plugin has failed: %w", err))
}

// Ask is what a plugin wants inserted.
func (p *Program) Ask(ctx context.Context, in *plugin.Input) (*plugin.Output, error) {
	var b bytes.Buffer
	if err := p.run(ctx, in, &b); err != nil {
		return nil, err
	}
	var out plugin.Output
	if err := json.Unmarshal(b.Bytes(), &out); err != nil {
		return nil, fmt.Errorf("the plugin writes to its stdout before it reports: %w", err)
	}
	return &out, nil
}

// Report has a plugin say what was found.
func (p *Program) Report(ctx context.Context, in *plugin.Input, found []plugin.Found, to io.Writer) error {
	again := *in
	again.Found, again.Ran = found, true
	return p.run(ctx, &again, to)
}
