// Package qmp talks the QEMU Machine Protocol. Its Client implements the
// Monitor interface of go-qemu, so that go-qemu's raw commands and its Domain
// work on top of it.
//
// It replaces go-qemu's own SocketMonitor, which stops at the first line above
// 64 KiB (query-qmp-schema answers with 184 KiB), blocks for ever on an event
// that nobody reads, and hands out slices of a buffer that it goes on filling.
//
// One goroutine reads the connection. It never waits for anybody else: an
// answer goes into a channel with room for it, an event into a ring that drops
// the oldest. So commands are answered however slowly events are read, and
// Disconnect ends whatever state the peer is in.
package qmp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	goqemu "github.com/digitalocean/go-qemu/qmp"
)

var _ goqemu.Monitor = (*Client)(nil)

// ErrClosed is returned for commands on a client that is not connected, or no
// longer.
var ErrClosed = errors.New("qmp: connection is closed")

// Error is QEMU's refusal of a command.
type Error struct {
	Command string // the command's name
	Class   string // GenericError, CommandNotFound, DeviceNotFound…
	Desc    string // for people; its wording changes between versions
}

func (e *Error) Error() string {
	return fmt.Sprintf("qmp: %s: %s (%s)", e.Command, e.Desc, e.Class)
}

// Options of a Client. Zero values take the defaults.
type Options struct {
	Timeout time.Duration // limit of one command or of connecting; default 10 s
	Events  int           // events kept for late readers; default 1,024
	MaxLine int           // bytes of one message; default 64 MiB
}

func (o Options) withDefaults() Options {
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Events <= 0 {
		o.Events = 1024
	}
	if o.MaxLine <= 0 {
		o.MaxLine = 64 << 20
	}
	return o
}

// Dialer makes the connection.
type Dialer func(context.Context) (net.Conn, error)

// Unix dials a unix socket.
func Unix(path string) Dialer {
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
}

// Client is one QMP connection, to be connected once. All methods are safe for
// concurrent use.
type Client struct {
	dial Dialer
	opts Options
	ring *ring

	sending chan struct{} // held (one token) while a command is being written
	readers sync.WaitGroup

	mu      sync.Mutex
	state   state
	conn    net.Conn
	nextID  uint64
	pending map[uint64]chan message // one per unanswered command, room for one
	err     error                   // why the connection ended
	broken  error                   // why nothing more can be sent, while it is still read
	gone    bool                    // Disconnect was called
	greet   goqemu.Version
}

type state int

const (
	fresh state = iota
	connecting
	open
	closed
)

// New returns a client that is not yet connected.
func New(dial Dialer, o Options) *Client {
	o = o.withDefaults()
	return &Client{
		dial:    dial,
		opts:    o,
		ring:    newRing(o.Events),
		sending: make(chan struct{}, 1),
		pending: make(map[uint64]chan message),
	}
}

// message is any line that QEMU sends. Exactly one of QMP, Return, Error and
// Event is set.
type message struct {
	QMP *struct {
		Version goqemu.Version `json:"version"`
	} `json:"QMP"`
	ID     json.RawMessage `json:"id"`
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
	Event string `json:"event"`

	line []byte // the whole line, owned by whoever holds the message
}

// Connect dials and negotiates, within the client's timeout.
func (c *Client) Connect() error {
	ctx, cancel := context.WithTimeout(context.Background(), c.opts.Timeout)
	defer cancel()
	return c.ConnectContext(ctx)
}

// ConnectContext dials and negotiates. Events from the capabilities reply on
// are kept for Events.
func (c *Client) ConnectContext(ctx context.Context) error {
	c.mu.Lock()
	if c.state != fresh {
		c.mu.Unlock()
		return errors.New("qmp: connect: this client was connected before; make a new one")
	}
	c.state = connecting
	c.mu.Unlock()

	conn, err := c.dial(ctx)
	if err != nil {
		c.fail(err)
		return fmt.Errorf("qmp: connect: %w", err)
	}
	greeting := make(chan message, 1)
	if !c.attach(conn, greeting) {
		conn.Close()
		return ErrClosed
	}
	if err := c.negotiate(ctx, greeting); err != nil {
		c.Disconnect()
		return fmt.Errorf("qmp: connect: %w", err)
	}
	return nil
}

// attach starts reading conn, unless Disconnect came first.
func (c *Client) attach(conn net.Conn, greeting chan<- message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != connecting {
		return false
	}
	c.conn, c.state = conn, open
	c.readers.Add(1)
	go func() {
		defer c.readers.Done()
		c.fail(c.read(conn, greeting))
	}()
	return true
}

// negotiate waits for QEMU's greeting and leaves capabilities negotiation mode.
// QEMU greets only when no other client holds the socket, hence the deadline.
func (c *Client) negotiate(ctx context.Context, greeting <-chan message) error {
	select {
	case m := <-greeting:
		c.mu.Lock()
		c.greet = m.QMP.Version
		c.mu.Unlock()
	case <-c.ring.ended:
		return c.cause()
	case <-ctx.Done():
		return fmt.Errorf("no greeting; another client may hold the socket: %w", ctx.Err())
	}
	return c.Execute(ctx, "qmp_capabilities", nil, nil)
}

// Version is QEMU's version, from its greeting.
func (c *Client) Version() goqemu.Version {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.greet
}

// read takes lines from conn until it ends, and says why it ended.
func (c *Client) read(conn net.Conn, greeting chan<- message) error {
	r := bufio.NewReader(conn)
	for {
		line, err := readLine(r, c.opts.MaxLine)
		if err != nil {
			return err
		}
		m := message{line: line}
		if err := json.Unmarshal(line, &m); err != nil {
			return fmt.Errorf("qmp: not a QMP message: %w", err)
		}
		switch {
		case m.Event != "":
			c.ring.push(line)
		case m.QMP != nil:
			select {
			case greeting <- m:
			default: // a second greeting means nothing
			}
		default:
			if err := c.answer(m); err != nil {
				return err
			}
		}
	}
}

// answer gives a reply to the command that waits for it. The reply to a command
// that has stopped waiting is dropped.
func (c *Client) answer(m message) error {
	var id uint64
	if err := json.Unmarshal(m.ID, &id); err != nil {
		if m.Error != nil {
			return fmt.Errorf("qmp: error without a command: %s (%s)", m.Error.Desc, m.Error.Class)
		}
		return fmt.Errorf("qmp: reply without an id: %.80q", m.line)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if reply, ok := c.pending[id]; ok {
		delete(c.pending, id)
		reply <- m
	}
	return nil
}

// readLine returns one line of any length up to max, in memory of its own.
func readLine(r *bufio.Reader, max int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > max {
			return nil, fmt.Errorf("qmp: message exceeds %d bytes", max)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// Execute runs a command and decodes what it returns. args may be nil, or
// anything that marshals to a JSON object; result may be nil, or a pointer.
// Without a deadline in ctx the client's own timeout applies. QEMU's refusals
// are *Error.
func (c *Client) Execute(ctx context.Context, name string, args, result any) error {
	cmd := map[string]any{"execute": name}
	if args != nil {
		cmd["arguments"] = args
	}
	m, err := c.roundTrip(ctx, name, cmd)
	if err != nil {
		return err
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(m.Return, result); err != nil {
		return fmt.Errorf("qmp: %s: %w", name, err)
	}
	return nil
}

// Run sends a command that is already JSON and returns the whole reply, as
// go-qemu's packages want it. The memory is the caller's.
func (c *Client) Run(command []byte) ([]byte, error) {
	var cmd map[string]any
	if err := json.Unmarshal(command, &cmd); err != nil {
		return nil, fmt.Errorf("qmp: command is not a JSON object: %w", err)
	}
	name, _ := cmd["execute"].(string)
	if name == "" {
		return nil, errors.New("qmp: command has no execute")
	}
	callers, hasID := cmd["id"]
	m, err := c.roundTrip(context.Background(), name, cmd)
	if err != nil {
		return nil, err
	}
	// Our id must not show: go-qemu decodes an id into a string.
	reply := map[string]any{"return": m.Return}
	if hasID {
		reply["id"] = callers
	}
	return json.Marshal(reply)
}

// roundTrip gives cmd an id, sends it, and waits for the reply.
func (c *Client) roundTrip(ctx context.Context, name string, cmd map[string]any) (message, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.opts.Timeout)
		defer cancel()
	}
	id, reply, err := c.register()
	if err != nil {
		return message{}, fmt.Errorf("qmp: %s: %w", name, err)
	}
	defer c.forget(id)
	cmd["id"] = id
	line, err := json.Marshal(cmd)
	if err != nil {
		return message{}, fmt.Errorf("qmp: %s: %w", name, err)
	}
	if err := c.send(ctx, append(line, '\n')); err != nil {
		return message{}, fmt.Errorf("qmp: %s: %w", name, err)
	}
	select {
	case m := <-reply:
		return m, m.refusal(name)
	case <-ctx.Done():
		return message{}, fmt.Errorf("qmp: %s: no answer: %w", name, ctx.Err())
	case <-c.ring.ended:
	}
	// The answer may have come just before the end.
	select {
	case m := <-reply:
		return m, m.refusal(name)
	default:
		return message{}, fmt.Errorf("qmp: %s: %w", name, c.cause())
	}
}

func (m message) refusal(name string) error {
	if m.Error == nil {
		return nil
	}
	return &Error{Command: name, Class: m.Error.Class, Desc: m.Error.Desc}
}

func (c *Client) register() (uint64, <-chan message, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != open {
		return 0, nil, c.causeLocked()
	}
	c.nextID++
	reply := make(chan message, 1)
	c.pending[c.nextID] = reply
	return c.nextID, reply, nil
}

func (c *Client) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, id)
}

// send writes one line. A line that was cut off cannot be taken back, so it is
// the last. The connection stays open for reading all the same: what QEMU said
// before it went away, such as why it shut down, is still to be read.
func (c *Client) send(ctx context.Context, line []byte) error {
	select {
	case c.sending <- struct{}{}:
		defer func() { <-c.sending }()
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ring.ended:
		return c.cause()
	}
	if err := c.sendable(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { c.conn.SetWriteDeadline(time.Unix(1, 0)) })
	_, err := c.conn.Write(line)
	if !stop() && err == nil {
		err = ctx.Err() // the deadline stays set: later lines would fail on it
	}
	if err != nil {
		c.mu.Lock()
		c.broken = fmt.Errorf("command not sent whole: %w", err)
		c.mu.Unlock()
	}
	return err
}

func (c *Client) sendable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return fmt.Errorf("%w: %w", ErrClosed, c.broken)
	}
	return nil
}

// fail ends the connection for the reason given; the first reason stays.
func (c *Client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == closed {
		return
	}
	c.state, c.err = closed, err
	if c.conn != nil {
		c.conn.Close()
	}
	c.ring.end()
}

// cause is why the connection ended, or ErrClosed if it was never open.
func (c *Client) cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.causeLocked()
}

func (c *Client) causeLocked() error {
	if c.err == nil {
		return ErrClosed
	}
	return fmt.Errorf("%w: %w", ErrClosed, c.err)
}

// Disconnect closes the connection and waits for the client's own goroutines,
// none of which waits for the peer. It may be called many times.
func (c *Client) Disconnect() error {
	c.fail(errors.New("disconnected"))
	c.mu.Lock()
	c.gone = true
	c.mu.Unlock()
	c.ring.abandon()
	c.readers.Wait()
	return nil
}

// Done is closed when the connection has ended, from either side.
func (c *Client) Done() <-chan struct{} { return c.ring.ended }

// Dropped is how many events were lost because nobody had read them in time.
func (c *Client) Dropped() uint64 { return c.ring.lost() }

// Events delivers events, beginning with the oldest that is still kept, until
// ctx or the connection ends; then the channel is closed. Of a connection that
// QEMU ended, all events are delivered first. Any number of readers may call it.
func (c *Client) Events(ctx context.Context) (<-chan goqemu.Event, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil || c.gone {
		return nil, ErrClosed
	}
	out := make(chan goqemu.Event)
	c.readers.Add(1)
	go func() {
		defer c.readers.Done()
		defer close(out)
		c.ring.deliver(ctx, out)
	}()
	return out, nil
}
