package qmp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"testing"
	"time"
)

// peer is the other end of a connection, scripted by a test.
type peer struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

const greeting = `{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": "fake"}, "capabilities": ["oob"]}}`

// fake returns a client and runs script as its peer. The test ends only after
// the script has.
func fake(t *testing.T, o Options, script func(*peer)) *Client {
	t.Helper()
	ours, theirs := pipe(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer theirs.Close()
		script(&peer{t: t, conn: theirs, in: bufio.NewReader(theirs)})
	}()
	c := New(func(context.Context) (net.Conn, error) { return ours, nil }, o)
	t.Cleanup(func() {
		c.Disconnect()
		theirs.Close()
		<-done
	})
	return c
}

// pipe is a real unix socket pair: net.Pipe has no buffer and would hide what a
// peer that writes ahead does.
func pipe(t *testing.T) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", t.TempDir()+"/q")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err = net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return client, server
}

func (p *peer) say(format string, args ...any) {
	fmt.Fprintf(p.conn, format+"\r\n", args...)
}

type command struct {
	Execute   string          `json:"execute"`
	Arguments json.RawMessage `json:"arguments"`
	ID        json.RawMessage `json:"id"`
}

// hear returns the next command, or false when the client has gone.
func (p *peer) hear() (command, bool) {
	line, err := p.in.ReadBytes('\n')
	if err != nil {
		return command{}, false
	}
	var c command
	if err := json.Unmarshal(line, &c); err != nil {
		p.t.Errorf("client sent %q: %v", line, err)
	}
	return c, true
}

// welcome plays the part of QEMU up to and including the capabilities reply.
func (p *peer) welcome() {
	p.say(greeting)
	c, ok := p.hear()
	if !ok || c.Execute != "qmp_capabilities" {
		p.t.Errorf("first command is %q, want qmp_capabilities", c.Execute)
	}
	p.say(`{"return": {}, "id": %s}`, c.ID)
}

func event(n int) string {
	return fmt.Sprintf(`{"timestamp": {"seconds": 1, "microseconds": %d}, "event": "E", "data": {"n": %d}}`, n, n)
}

// soon is a context that fails a test which hangs.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}
