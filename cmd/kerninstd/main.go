// Command kerninstd is the daemon in the guest: it has /dev/kerninst, plans and
// makes splices, and says what it counted.
//
//	kerninstd -job FILE -port FILE   do one job, write records, end
//	kerninstd -mailbox -port FILE    likewise, with the job that the host puts into the mailbox
//	kerninstd -serve                 do jobs that kinst asks for
//
// Under the name kinst it is the client:
//
//	kinst SPEC... -- CMD ARG...      what lab probe does, in the guest
//	kinst -l SPEC...                 list points
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"kerninst/agent/daemon"
	"kerninst/agent/wire"
)

func main() {
	if filepath.Base(os.Args[0]) == "kinst" {
		os.Exit(kinst(os.Args[1:]))
	}
	if err := serve(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		os.Exit(1)
	}
}

// collectSeldom has garbage looked for less often than is usual, while there is memory:
// most of the heap is what is known of the kernel, which stays, and to go through that takes
// as long as to plan a thousand points.
func collectSeldom() {
	var now unix.Sysinfo_t
	if unix.Sysinfo(&now) == nil {
		debug.SetGCPercent(400)
		debug.SetMemoryLimit(int64(now.Totalram) * int64(now.Unit) / 3)
	}
}

func serve() error {
	jobFile := flag.String("job", "", "file with a job to do")
	mailbox := flag.Bool("mailbox", false, "do the job in the mailbox")
	poll := flag.Bool("poll", false, "look into the mailbox until there is one, not once")
	portFile := flag.String("port", "", "where records go")
	listen := flag.Bool("serve", false, "do jobs that kinst asks for")
	flag.Parse()
	collectSeldom()
	d, err := daemon.Open(runtime.GOARCH)
	if err != nil {
		return err
	}
	defer d.Close()
	switch {
	case *listen:
		return d.Listen(daemon.Socket)
	case *mailbox:
		return serveMail(d, *portFile, *poll)
	}
	text, err := os.ReadFile(*jobFile)
	if err != nil {
		return err
	}
	port, err := os.OpenFile(*portFile, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer port.Close()
	return serveJob(d, *jobFile, text, port)
}

// serveMail does the job that comes by mail. All that is slow comes before the wait,
// in which the machine's state is kept.
func serveMail(d *daemon.Daemon, portFile string, poll bool) error {
	box, err := daemon.OpenMailbox()
	if err != nil {
		return err
	}
	runtime.GC() // here, not in the middle of a measurement
	port, err := os.OpenFile(portFile, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer port.Close()
	wait := box.Wait
	if poll {
		wait = box.Poll
	}
	text, err := wait()
	if err != nil {
		return err
	}
	return serveJob(d, "mailbox", text, port)
}

func serveJob(d *daemon.Daemon, from string, text []byte, port *os.File) error {
	var job wire.Job
	if err := proto.Unmarshal(text, &job); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	return d.ServePort(context.Background(), &job, port)
}
