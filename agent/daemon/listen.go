package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protodelim"

	"kerninst/agent/wire"
)

// Socket is where a listening daemon takes jobs. Only root can reach it.
const Socket = "/run/kerninst.sock"

// maxJob bounds a job from the socket, in bytes.
const maxJob = 16 << 20

// Listen does jobs from a unix socket, one after the other, until it breaks.
func (d *Daemon) Listen(path string) error {
	d.prepareForAny()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	defer l.Close()
	if err := os.Chmod(path, 0o600); err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		if err := d.answer(conn); err != nil && !gone(err) {
			fmt.Fprintln(os.Stderr, "kerninstd:", err)
		}
	}
}

// prepareForAny finds out what most jobs need of the kernel, that none of them has to wait for it, or
// takes a CPU from what it measures. Who needs what cannot be had is told then.
func (d *Daemon) prepareForAny() {
	_, _ = d.text.Targets("")
	_, _ = d.prototypes.types("")
	runtime.GC()
}

// gone reports whether all that is wrong is that who asked does not listen any more, as after
// Ctrl-C: it is nobody's news. What could not be undone for them is.
func gone(err error) bool {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(all.Unwrap(), func(e error) bool { return !gone(e) })
	}
	return errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET)
}

// ServePort does one job whose records go to a port. Of a job that heeds, the first byte that comes
// by the port says that it is enough. Who reads it is asleep until then, and costs nothing.
func (d *Daemon) ServePort(ctx context.Context, job *wire.Job, port io.ReadWriter) error {
	if job.Heeds {
		enough := make(chan struct{})
		go func() {
			if n, _ := port.Read(make([]byte, 1)); n == 1 {
				close(enough)
			}
		}()
		d.enough = enough
		defer func() { d.enough = nil }()
	}
	return d.Serve(ctx, job, port)
}

// answer does the one job of a connection. A client sends nothing after its job but one byte,
// when what runs is to end and what was found to be told; when it goes away, its job ends.
func (d *Daemon) answer(conn net.Conn) error {
	defer conn.Close()
	var job wire.Job
	in := bufio.NewReader(conn)
	opt := protodelim.UnmarshalOptions{MaxSize: maxJob}
	if err := opt.UnmarshalFrom(in, &job); err != nil {
		return fmt.Errorf("job: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	enough := make(chan struct{})
	go func() {
		if _, err := in.ReadByte(); err == nil {
			close(enough)
			_, _ = in.ReadByte()
		}
		cancel()
	}()
	d.enough = enough
	defer func() { d.enough = nil }()
	return d.Serve(ctx, &job, conn)
}
