package libvirt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"
)

// errLost says that libvirtd closed a connection, or that we gave it up.
var errLost = errors.New("the connection to libvirtd is lost")

// conn is one connection to libvirtd. Calls have deadlines, which go-libvirt's
// have not: after one that was missed nobody knows what is to come, so the
// connection is closed.
type conn struct {
	rpc  *golibvirt.Libvirt
	wire *watched
	life context.Context // of all that listens on it; ends after the connection
	end  context.CancelFunc
}

// watched tells when a connection ends, from either side. go-libvirt's own sign
// for it is replaced while it connects.
type watched struct {
	net.Conn
	once sync.Once
	lost chan struct{}
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if err != nil {
		w.end()
	}
	return n, err
}

func (w *watched) end() {
	w.once.Do(func() { close(w.lost) })
}

// dial connects to libvirtd and opens its QEMU driver.
func (b Backend) dial(ctx context.Context) (*conn, error) {
	sock, err := b.way.dial(ctx)
	if err != nil {
		return nil, err
	}
	c := newConn(sock)
	_, err = call(ctx, c, "open "+string(b.driver), func(l *golibvirt.Libvirt) (struct{}, error) {
		return struct{}{}, l.ConnectToURI(b.driver)
	})
	if err != nil {
		c.close()
		return nil, b.way.why(credentials(err))
	}
	return c, nil
}

// refusals are libvirt's numbers for whom it does not let in. ErrRPC is "authentication required", or
// that a call is none.
var refusals = map[uint32]bool{
	uint32(golibvirt.ErrAuthFailed): true, uint32(golibvirt.ErrAuthCancelled): true, uint32(golibvirt.ErrAuthUnavailable): true,
	uint32(golibvirt.ErrAccessDenied): true, uint32(golibvirt.ErrOperationDenied): true, uint32(golibvirt.ErrRPC): true,
}

func isRefusal(err error) bool {
	var e golibvirt.Error
	return errors.As(err, &e) && refusals[e.Code]
}

// credentials says what to do where libvirtd wants to know who asks: the lab has no password to give.
func credentials(err error) error {
	if isRefusal(err) {
		return fmt.Errorf("%w: it wants credentials, of which the lab has none: let this user in, by the group of its socket or by polkit", err)
	}
	return err
}

func newConn(sock net.Conn) *conn {
	w := &watched{Conn: newOrderly(sock), lost: make(chan struct{})}
	c := &conn{rpc: golibvirt.NewWithDialer(dialers.NewAlreadyConnected(w)), wire: w}
	c.life, c.end = context.WithCancel(context.Background())
	return c
}

// close ends the connection. What libvirtd destroys with it, it destroys now.
//
// What listens ends only when the connection has: go-libvirt then asks libvirtd to
// forget the listener, and libvirtd 9.0.0 is dead (SIGSEGV) if the end of a connection
// finds one of its threads doing so. remoteClientFreePrivateCallbacks walks the list
// of listeners without the lock that remoteDispatchConnectDomainEventCallbackDeregisterAny
// holds while it shortens it.
func (c *conn) close() {
	c.wire.Close()
	c.wire.end()
	c.end()
}

func (c *conn) lost() <-chan struct{} { return c.wire.lost }

type answer[T any] struct {
	value T
	err   error
}

// unread is how long an answer may take that has come with the end of a connection.
const unread = time.Second

// lastAnswer is why a call came to nothing whose connection ended. To somebody whom it does not let in
// libvirtd says so, and closes the connection behind that.
func lastAnswer[T any](got <-chan answer[T]) error {
	select {
	case a := <-got:
		if isRefusal(a.err) {
			return a.err
		}
	case <-time.After(unread):
	}
	return errLost
}

// call does one call.
func call[T any](ctx context.Context, c *conn, what string, f func(*golibvirt.Libvirt) (T, error)) (T, error) {
	got := make(chan answer[T], 1)
	go func() {
		v, err := f(c.rpc)
		got <- answer[T]{v, err}
	}()
	var none T
	select {
	case a := <-got:
		if a.err == nil {
			return a.value, nil
		}
		select {
		case <-c.lost(): // which is why
			got <- a
			return none, fmt.Errorf("libvirt: %s: %w", what, lastAnswer(got))
		default:
			return none, fmt.Errorf("libvirt: %s: %w", what, a.err)
		}
	case <-c.lost():
		return none, fmt.Errorf("libvirt: %s: %w", what, lastAnswer(got))
	case <-ctx.Done():
		c.close()
		return none, fmt.Errorf("libvirt: %s: no answer: %w", what, ctx.Err())
	}
}
