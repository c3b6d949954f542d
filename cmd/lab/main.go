// Command lab boots stock kernels, instruments them while they run, and says
// what it saw and what it cost.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"kerninst/lab/report"
	"kerninst/lab/status"
)

func main() { os.Exit(run()) }

// exit is an error with the status that the command is to leave with. A nil
// err means that everything worth saying has been said.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

// usage marks an error as the caller's.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return &exit{status.ExitUsage, err}
}

func run() (code int) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(os.Stderr, "lab: panic: %v\n%s", p, debug.Stack())
			code = status.ExitLabFailed
		}
	}()
	ctx, stop := interruptible()
	defer stop()
	err := asCaller()
	if err == nil {
		c := root()
		c.SetArgs(asked(os.Args[1:]))
		err = c.ExecuteContext(ctx)
	}
	var e *exit
	switch {
	case err == nil:
		return status.ExitPassed
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "lab: interrupted")
		return status.ExitInterrupted
	case errors.As(err, &e):
		if e.err != nil {
			fmt.Fprintln(os.Stderr, "lab:", report.CleanText(e.err.Error())) // which may have what was typed
		}
		return e.code
	}
	fmt.Fprintln(os.Stderr, "lab:", report.CleanText(err.Error()))
	return status.ExitLabFailed
}

func root() *cobra.Command { return rootTo(os.Stdout) }

// rootTo is root with another place for what cobra itself writes to stdout.
func rootTo(out io.Writer) *cobra.Command {
	c := &cobra.Command{
		Use:           "lab",
		Short:         "boot stock kernels, instrument them while they run, say what it cost",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	c.SetFlagErrorFunc(flagError)
	c.AddCommand(analyzeCommand(), surveyCommand(), inlineCommand(), costCommand(), runCommand(), runISACommand(), matrixCommand(), bisectCommand(), doctorCommand(), gdbCommand(), keptCommand(), imageCommand(), shellCommand(), probeCommand(), pluginCommand(), reportCommand(), reproCommand(), compareCommand(), historyCommand())
	// What cobra would add only when it runs takes part in the checks of arguments.
	c.SetOut(out)
	c.InitDefaultHelpCmd()
	c.InitDefaultCompletionCmd()
	wrapArgs(c)
	completions(c)
	return c
}

// twice is within what time two interrupts are one: timeout(1) sends its signal to the program, and
// then to the group that the program is in. Nobody presses keys as fast.
const twice = 50 * time.Millisecond

// interruptible is a context that ends with the first signal. An interrupt after that ends the
// program by itself, whatever it is at. A SIGTERM does not: that is how the lab passes an interrupt
// on to a part of it that had the keyboard's, too.
func interruptible() (ctx context.Context, stop func()) {
	ctx, stop = context.WithCancel(context.Background())
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		first := time.Now()
		stop()
		for s := range signals {
			if s == os.Interrupt && time.Since(first) > twice {
				break
			}
		}
		signal.Reset()
		_ = syscall.Kill(os.Getpid(), syscall.SIGINT) // to die of it is what the shell wants to see
	}()
	return ctx, stop
}
