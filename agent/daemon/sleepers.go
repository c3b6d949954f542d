package daemon

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"kerninst/agent/ktext"
	"kerninst/agent/plan"
)

// asleepIn is how many tasks there are in a function, or in its other half, by whichever of its names; some more, if another
// has that name, too.
func (d *Daemon) asleepIn(f ktext.Func, asleep map[string]int) (n int) {
	for _, name := range append(d.text.Aliases(f), plan.Halves(d.text, f.Module, f.Name)[1:]...) {
		n += asleep[ktext.Func{Module: f.Module, Name: name}.String()]
	}
	return n
}

// stackFiles are where the kernel says what a task has called that sleeps (fs/proc/base.c, proc_pid_stack), below /proc.
const stackFiles = "[0-9]*/task/[0-9]*/stack"

// deepest is of how many callers the kernel tells at the most (fs/proc/base.c, MAX_STACK_TRACE_DEPTH): there may be more.
const deepest = 64

// sleepers counts the tasks that are in each function, by its name, with its module's and a colon in front if it is of one;
// nil: the kernel does not tell. Functions that share a name are one. Who asks is in none.
func (d *Daemon) sleepers() map[string]int {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	proc := cmp.Or(d.proc, "/proc")
	files, _ := filepath.Glob(filepath.Join(proc, stackFiles)) // the pattern is one
	own := filepath.Join(proc, fmt.Sprintf("%d/task/%d/stack", os.Getpid(), unix.Gettid()))
	if _, err := os.ReadFile(own); err != nil {
		return nil
	}
	out := map[string]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		switch {
		case file == own || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH): // others may be gone
			continue
		case err != nil || len(text) == 0 && running(filepath.Dir(file)) || bytes.Count(text, []byte("\n")) >= deepest:
			return nil
		}
		for f := range onStack(string(text)) {
			out[f]++
		}
	}
	return out
}

// running reports whether a task, by its folder, has a CPU, or waits for one: of who runs elsewhere the kernel says nothing.
func running(task string) bool {
	text, err := os.ReadFile(filepath.Join(task, "stat")) // PID (COMM) STATE ...
	_, state, _ := strings.Cut(string(text[bytes.LastIndexByte(text, ')')+1:]), " ")
	return err == nil && strings.HasPrefix(state, "R")
}

// onStack are the functions of one such file, whose lines are "[<0>] function+0x1/0x2 [module]".
func onStack(text string) map[string]bool {
	out := map[string]bool{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		name, _, _ := strings.Cut(words[1], "+")
		if len(words) > 2 {
			name = strings.Trim(words[2], "[]") + ":" + name
		}
		out[name] = true
	}
	return out
}
