// Answers asks the kernel what LMbench's operations ask of it, and more of each: what goes well, what is refused, what
// is done in part. It prints one line for each question:
//
//	OPERATION: QUESTION: ANSWER
//
// Twice on one kernel it prints the same, whatever is spliced there: nothing in an answer is of its time, its process or
// its place. Operations are named as in guest/lmbench.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// asker asks what belongs to some operations.
type asker struct {
	dir string // empty, and its own
	out *bufio.Writer
}

// says is one answer. Errors of the kernel are said by their names.
func (a *asker) says(operation, question string, answers ...any) {
	words := make([]string, len(answers))
	for k, x := range answers {
		words[k] = word(x)
	}
	fmt.Fprintf(a.out, "%s: %s: %s\n", operation, question, strings.Join(words, " "))
}

func word(x any) string {
	err, ok := x.(error)
	if !ok {
		return fmt.Sprint(x)
	}
	var no unix.Errno
	switch {
	case errors.As(err, &no) && no == 0:
		return "ok"
	case errors.As(err, &no):
		return unix.ErrnoName(no)
	}
	return err.Error()
}

// ok is an error, or what there is instead of none.
func ok(err error) any {
	if err == nil {
		return "ok"
	}
	return err
}

func (a *asker) path(name string) string { return a.dir + "/" + name }

// must is for what has to be before anything can be asked.
func must[T any](x T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("answers: cannot ask: %v", err))
	}
	return x
}

// parts are all questions, in their order.
var parts = []func(a *asker){
	null, read, write, stat, openClose, selects, signals, pipes, unixSockets, tcp, processes, mappings, files, streams, rings,
}

func main() {
	if len(os.Args) > 1 {
		child(os.Args[1:])
	}
	if err := ask(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "answers:", err)
		os.Exit(1)
	}
}

// ask asks all, in a folder of its own.
func ask(out io.Writer) error {
	runtime.LockOSThread() // what a thread has, such as its mask of signals, is asked of one
	defer runtime.UnlockOSThread()
	dir := must(os.MkdirTemp("", "answers"))
	a := &asker{dir: dir, out: bufio.NewWriter(out)}
	for _, part := range parts {
		part(a)
	}
	return errors.Join(os.RemoveAll(dir), a.out.Flush())
}
