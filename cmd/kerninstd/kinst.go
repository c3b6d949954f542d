package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"text/tabwriter"

	"google.golang.org/protobuf/encoding/protodelim"

	"kerninst/agent/daemon"
	"kerninst/agent/probe"
	"kerninst/agent/wire"
)

// kinst asks the daemon to count arrivals while a command runs.
func kinst(args []string) error {
	specs, argv := split(args)
	if len(specs) == 0 || len(argv) == 0 {
		return errors.New("usage: kinst kinst:[module]:function:name... -- CMD ARG...")
	}
	points, err := probe.ParseAll(specs)
	if err != nil {
		return err
	}
	sp := &wire.Splice{}
	for _, p := range points {
		if p.Predicate != "" || p.Action != "" {
			return fmt.Errorf("%s: kinst counts, and does nothing else yet: lab probe does", p.Text)
		}
		sp.Points = append(sp.Points, p.Point())
	}
	conn, err := net.Dial("unix", daemon.Socket)
	if err != nil {
		return fmt.Errorf("%w: is kerninstd -serve running?", err)
	}
	defer conn.Close()
	job := &wire.Job{Schema: 1, Steps: []*wire.Step{
		{Name: "splice", Do: &wire.Step_Splice{Splice: sp}},
		{Name: "workload", Do: &wire.Step_Run{Run: &wire.Run{Argv: argv}}},
		{Name: "read", Do: &wire.Step_Read{Read: &wire.Read{}}},
	}}
	if _, err := protodelim.MarshalTo(conn, job); err != nil {
		return err
	}
	return show(bufio.NewReader(conn))
}

// split takes the arguments apart at the first "--".
func split(args []string) (before, after []string) {
	for i, a := range args {
		if a == "--" {
			return args[:i], args[i+1:]
		}
	}
	return args, nil
}

// show prints the workload's output and the counts.
func show(r *bufio.Reader) error {
	for {
		var rec wire.Record
		if err := protodelim.UnmarshalFrom(r, &rec); errors.Is(err, io.EOF) {
			return errors.New("the daemon died")
		} else if err != nil {
			return err
		}
		if done := rec.GetDone(); done != nil {
			if done.Failed {
				return errors.New(done.Error)
			}
			return nil
		}
		res := rec.GetResult()
		for _, run := range res.GetRuns() {
			os.Stdout.Write(run.Stdout)
			os.Stderr.Write(run.Stderr)
			if run.Truncated {
				fmt.Fprintln(os.Stderr, "kinst: the command's output is cut: the first MiB of stdout and of stderr is kept")
			}
		}
		w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
		for _, v := range res.GetValues() {
			fmt.Fprintf(w, "%s\t%d\n", v.Spec, v.Count)
		}
		w.Flush()
	}
}
