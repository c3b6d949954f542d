package qmp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

func connect(t *testing.T, c *Client) {
	t.Helper()
	if err := c.Connect(); err != nil {
		t.Fatal(err)
	}
}

func TestLineOfAnyLength(t *testing.T) {
	long := strings.Repeat("x", 3<<20)
	c := fake(t, Options{}, func(p *peer) {
		p.welcome()
		for cmd, ok := p.hear(); ok; cmd, ok = p.hear() {
			p.say(`{"return": %q, "id": %s}`, long, cmd.ID)
		}
	})
	connect(t, c)
	for range 2 {
		var got string
		if err := c.Execute(soon(t), "query-long", nil, &got); err != nil || got != long {
			t.Fatalf("got %d bytes, %v; want %d", len(got), err, len(long))
		}
	}
}

func TestLineTooLongEndsConnection(t *testing.T) {
	c := fake(t, Options{MaxLine: 1 << 16}, func(p *peer) {
		p.welcome()
		p.hear()
		p.say(`{"return": %q}`, strings.Repeat("x", 1<<17))
	})
	connect(t, c)
	err := c.Execute(soon(t), "query-long", nil, nil)
	if !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), "exceeds 65536 bytes") {
		t.Errorf("err = %v", err)
	}
}

// A reply followed by events in the same segment must not be overwritten by
// them, and unread events must not keep replies from coming.
func TestReplyBeforeFlood(t *testing.T) {
	const rounds, flood = 200, 100
	c := fake(t, Options{Events: 16}, func(p *peer) {
		p.welcome()
		for cmd, ok := p.hear(); ok; cmd, ok = p.hear() {
			var b strings.Builder
			fmt.Fprintf(&b, `{"return": {"echo": %s}, "id": %s}`, cmd.Arguments, cmd.ID)
			for n := range flood {
				b.WriteString("\r\n" + event(n))
			}
			p.say("%s", b.String())
		}
	})
	connect(t, c)
	if _, err := c.Events(context.Background()); err != nil { // never read
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range rounds / 4 {
				want := fmt.Sprintf(`{"n":%d}`, g*1000+i)
				out, err := c.Run([]byte(`{"execute": "echo", "arguments": ` + want + `}`))
				if err != nil {
					t.Error(err)
					return
				}
				var got struct {
					Return struct{ Echo json.RawMessage }
				}
				if err := json.Unmarshal(out, &got); err != nil || string(got.Return.Echo) != want {
					t.Errorf("got %s (%v), want %s", out, err, want)
				}
			}
		})
	}
	wg.Wait()
	if c.Dropped() == 0 {
		t.Errorf("no event counted as dropped of %d with a ring of 16", rounds*flood)
	}
}

func TestEventsRightBehindCapabilities(t *testing.T) {
	c := fake(t, Options{}, func(p *peer) {
		p.say(greeting)
		cmd, _ := p.hear()
		p.say("{\"return\": {}, \"id\": %s}\r\n%s\r\n%s", cmd.ID, event(1), event(2))
		p.hear()
	})
	connect(t, c)
	ctx, cancel := context.WithCancel(soon(t))
	events, err := c.Events(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for want := 1; want <= 2; want++ {
		if e := <-events; e.Event != "E" || e.Data["n"] != float64(want) {
			t.Errorf("event %+v, want n=%d", e, want)
		}
	}
	cancel()
	if _, ok := <-events; ok {
		t.Error("events go on after the context ended")
	}
}

func TestOldestEventsDropped(t *testing.T) {
	const sent, kept = 100, 8
	c := fake(t, Options{Events: kept}, func(p *peer) {
		p.welcome()
		for n := range sent {
			p.say("%s", event(n))
		}
	})
	connect(t, c)
	<-c.Done() // everything has been read
	if got := c.Dropped(); got != sent-kept {
		t.Errorf("dropped %d, want %d", got, sent-kept)
	}
	for reader := range 2 { // each reader gets all that is kept
		events, err := c.Events(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		want := sent - kept
		for e := range events {
			if e.Data["n"] != float64(want) {
				t.Fatalf("reader %d: n=%v, want %d", reader, e.Data["n"], want)
			}
			want++
		}
		if want != sent {
			t.Errorf("reader %d: last event is %d, want %d", reader, want-1, sent-1)
		}
	}
}

func TestErrorKeepsClass(t *testing.T) {
	c := fake(t, Options{}, func(p *peer) {
		p.welcome()
		cmd, _ := p.hear()
		p.say(`{"error": {"class": "CommandNotFound", "desc": "The command nope has not been found"}, "id": %s}`, cmd.ID)
		p.hear()
	})
	connect(t, c)
	_, err := c.Run([]byte(`{"execute": "nope"}`))
	var refused *Error
	if !errors.As(err, &refused) || refused.Class != "CommandNotFound" || refused.Command != "nope" {
		t.Errorf("err = %#v", err)
	}
}

func TestDeadline(t *testing.T) {
	answer := make(chan struct{})
	c := fake(t, Options{}, func(p *peer) {
		p.welcome()
		slow, _ := p.hear()
		<-answer
		next, _ := p.hear()
		// The late answer comes first and must not be taken for the other.
		p.say(`{"return": "late", "id": %s}`, slow.ID)
		p.say(`{"return": "next", "id": %s}`, next.ID)
		p.hear()
	})
	connect(t, c)
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := c.Execute(ctx, "slow", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("err = %v, want deadline exceeded", err)
	}
	close(answer)
	var got string
	if err := c.Execute(soon(t), "next", nil, &got); err != nil || got != "next" {
		t.Errorf("got %q, %v; want next", got, err)
	}
}

// A peer that stops reading blocks the write of a long command.
func TestDeadlineWhileSending(t *testing.T) {
	release := make(chan struct{})
	c := fake(t, Options{}, func(p *peer) {
		p.welcome()
		p.say("%s", event(7))
		<-release
	})
	defer close(release)
	connect(t, c)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	long := map[string]string{"x": strings.Repeat("x", 1<<20)}
	if err := c.Execute(ctx, "swallow", long, nil); err == nil {
		t.Fatal("sent 1 MiB to a peer that does not read")
	}
	if err := c.Execute(soon(t), "next", nil, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("after a line cut off: err = %v, want ErrClosed", err)
	}
	// What the peer said is still there to be read.
	events, err := c.Events(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	if e := <-events; e.Data["n"] != 7.0 {
		t.Errorf("event %+v", e)
	}
}

func TestHangUp(t *testing.T) {
	tests := []struct {
		name   string
		script func(*peer)
	}{
		{"before the greeting", func(p *peer) {}},
		{"in the greeting", func(p *peer) { fmt.Fprint(p.conn, greeting[:20]) }},
		{"before the reply", func(p *peer) { p.say(greeting); p.hear() }},
		{"in a reply", func(p *peer) {
			p.welcome()
			cmd, _ := p.hear()
			fmt.Fprintf(p.conn, `{"return": {}, "id": %s`, cmd.ID)
		}},
		{"with garbage", func(p *peer) { p.welcome(); p.hear(); p.say("garbage"); p.hear() }},
		{"with a reply to nobody", func(p *peer) { p.welcome(); p.hear(); p.say(`{"return": {}}`); p.hear() }},
		{"with an error to nobody", func(p *peer) {
			p.welcome()
			p.hear()
			p.say(`{"error": {"class": "GenericError", "desc": "JSON parse error"}}`)
			p.hear()
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := fake(t, Options{}, tt.script)
			err := c.Connect()
			if err == nil {
				err = c.Execute(soon(t), "stop", nil, nil)
			}
			if !errors.Is(err, ErrClosed) {
				t.Errorf("err = %v, want ErrClosed", err)
			}
			if err := c.Execute(soon(t), "stop", nil, nil); !errors.Is(err, ErrClosed) {
				t.Errorf("second command: err = %v, want ErrClosed", err)
			}
		})
	}
}

// A peer that greets never, because another client holds the socket.
func TestConnectDeadline(t *testing.T) {
	release := make(chan struct{})
	c := fake(t, Options{Timeout: 5 * time.Millisecond}, func(p *peer) { <-release })
	defer close(release)
	if err := c.Connect(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v, want deadline exceeded", err)
	}
	if err := c.Connect(); err == nil {
		t.Error("connected twice")
	}
}

func TestDisconnectNeverHangs(t *testing.T) {
	release := make(chan struct{})
	c := fake(t, Options{}, func(p *peer) {
		p.welcome()
		for n := range 100 {
			p.say("%s", event(n))
		}
		<-release
	})
	defer close(release)
	connect(t, c)
	events, err := c.Events(context.Background()) // never read
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error, 1)
	go func() { waiting <- c.Execute(context.Background(), "stop", nil, nil) }()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { c.Disconnect() })
	}
	wg.Wait()
	if err := <-waiting; !errors.Is(err, ErrClosed) {
		t.Errorf("waiting command: err = %v, want ErrClosed", err)
	}
	for range events {
	}
	if _, err := c.Events(context.Background()); !errors.Is(err, ErrClosed) {
		t.Errorf("Events after Disconnect: %v", err)
	}
}

func TestDisconnectWhileDialling(t *testing.T) {
	dialling := make(chan struct{})
	c := New(func(ctx context.Context) (net.Conn, error) {
		close(dialling)
		<-ctx.Done()
		return nil, ctx.Err()
	}, Options{Timeout: 50 * time.Millisecond})
	done := make(chan error, 1)
	go func() { done <- c.Connect() }()
	<-dialling
	c.Disconnect()
	if err := <-done; err == nil {
		t.Error("connected after Disconnect")
	}
	if _, err := c.Events(context.Background()); !errors.Is(err, ErrClosed) {
		t.Errorf("Events: %v", err)
	}
}

func TestRunRejects(t *testing.T) {
	c := fake(t, Options{}, func(p *peer) { p.welcome(); p.hear() })
	connect(t, c)
	for _, bad := range []string{``, `[]`, `{"execute": 1}`, `{}`, `{"execute": ""}`} {
		if _, err := c.Run([]byte(bad)); err == nil {
			t.Errorf("Run(%q) = nil", bad)
		}
	}
}

func TestRunGivesBackTheCallersID(t *testing.T) {
	c := fake(t, Options{}, func(p *peer) {
		p.welcome()
		for cmd, ok := p.hear(); ok; cmd, ok = p.hear() {
			p.say(`{"return": {}, "id": %s}`, cmd.ID)
		}
	})
	connect(t, c)
	for in, want := range map[string]string{
		`{"execute": "a"}`:               `{"return":{}}`,
		`{"execute": "a", "id": "mine"}`: `{"id":"mine","return":{}}`,
	} {
		if got, err := c.Run([]byte(in)); err != nil || string(got) != want {
			t.Errorf("Run(%s) = %s, %v; want %s", in, got, err, want)
		}
	}
}
