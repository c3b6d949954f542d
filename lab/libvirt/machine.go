// Package libvirt runs machines as domains of a libvirtd.
//
// They are the machines of package qemu, made from the same table: what libvirt
// has words for is in the domain's XML, the rest goes to QEMU as it is (xml.go).
// A domain is transient and libvirtd destroys it when the lab's connection ends,
// so that nothing is left of a lab that was killed.
//
// Two connections serve a machine: one controls it, one brings its events, so
// that neither waits for the other. A libvirtd of this host uses the lab's files.
// To one on another, which is reached by ssh or TLS (way.go), they go by a storage
// pool (pool.go): what a machine starts from once, by its content; what it writes
// is copied here while it does (mirror.go), by a third connection.
package libvirt

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	goqemu "github.com/digitalocean/go-qemu/qmp"

	"kerninst/lab/qemu"
	"kerninst/lab/qmp"
	"kerninst/lab/tail"
	"kerninst/lab/vm"
)

var (
	_ vm.Backend   = Backend{}
	_ vm.Machine   = (*machine)(nil)
	_ vm.Inspector = (*machine)(nil)
	_ vm.Freezer   = (*machine)(nil)
)

const (
	// checkLimit bounds Check.
	checkLimit = 30 * time.Second
	// leftLimit is how long it may take what a libvirtd has forked before it was lost to be QEMU.
	leftLimit = time.Second
	// leaveLimit bounds how long it may take to leave nothing on a host.
	leaveLimit = 30 * time.Second
	// lastWords is how long what was sent before may still take to arrive.
	lastWords = 3 * time.Second
)

// xmlFile is the domain's description, in the run directory, for people.
const xmlFile = "domain.xml"

// StartError says that a domain did not come up.
type StartError struct {
	URI    string
	Argv   []string
	Ending vm.Ending
}

func (e *StartError) Error() string {
	return fmt.Sprintf("QEMU did not start through %s: %s", e.URI, e.Ending.Detail)
}

// Command is what was run.
func (e *StartError) Command() []string { return e.Argv }

// End is how it ended.
func (e *StartError) End() vm.Ending { return e.Ending }

// Check asks libvirtd for its version, of which one that is too old is an error.
func (b Backend) Check(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	c, err := b.dial(ctx)
	if err != nil {
		return "", fmt.Errorf("host %s: %w", b.URI, err)
	}
	defer c.close()
	n, err := call(ctx, c, "version", func(l *golibvirt.Libvirt) (uint64, error) { return l.ConnectGetLibVersion() })
	if err == nil {
		err = tooOld(n)
	}
	if err != nil {
		return "", fmt.Errorf("host %s: %w", b.URI, err)
	}
	return versionOf(n), nil
}

type machine struct {
	backend Backend
	name    string
	arch    string
	exact   bool
	dir     string
	argv    []string
	mute    bool // it powers off without an event
	started time.Time

	files  qemu.Files
	remote *volumes // the same; nil if QEMU is on this host
	mirror *mirror  // likewise

	control, events *conn
	dom             golibvirt.Domain
	process         *process // nil if it could not be found
	bridge          *bridge
	monitor         *qmp.Client
	results         *tail.Reader

	reason chan string // takes one value: the first SHUTDOWN's reason
	kill   sync.Once
	killed chan struct{} // closed by Kill
	ended  chan struct{} // closed when ending is valid
	ending vm.Ending
}

// Start starts a machine. ctx limits the start, not the machine's life.
func (b Backend) Start(ctx context.Context, s vm.Spec) (vm.Machine, error) {
	if s.KVM {
		return nil, errors.New("KVM through libvirt is not supported")
	}
	if s.Interactive {
		return nil, errors.New("a machine on the terminal must be a local one")
	}
	s, version, err := qemu.Prepare(ctx, s)
	if err != nil {
		return nil, err
	}
	argv, err := qemu.Argv(s, version)
	if err != nil {
		return nil, err
	}
	m := &machine{
		backend: b, name: namePrefix + strings.ToLower(rand.Text()), arch: s.Arch, exact: s.Time == vm.Exact, dir: s.Dir, argv: argv,
		files:  qemu.RunFiles{Dir: s.Dir, Root: s.Dir},
		reason: make(chan string, 1), killed: make(chan struct{}), ended: make(chan struct{}),
	}
	there, err := m.bring(ctx, s)
	if err == nil {
		err = qemu.Limited(ctx, qemu.StartLimit, func(ctx context.Context) error { return m.start(ctx, there, version) })
	}
	if err != nil {
		m.release()
		if m.mirror != nil {
			m.mirror.stop()
		}
		left := m.left()
		var state *vm.StateError
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.As(err, &state):
			return nil, err
		}
		e := vm.Ending{Kind: vm.LabFault, Detail: err.Error()}
		if errors.Is(err, errLost) {
			e.Kind = vm.HostLost
			e.Detail += "; " + left
		}
		return nil, &StartError{URI: b.URI, Argv: argv, Ending: e}
	}
	return m, nil
}

// namePrefix and a random word is a domain's name.
const namePrefix = "kerninst-"

// bring has what the machine starts from be where QEMU is, and says what it is called there. It
// takes as long as it takes to send.
func (m *machine) bring(ctx context.Context, s vm.Spec) (vm.Spec, error) {
	if m.backend.pool == "" {
		return s, nil
	}
	var err error
	if m.remote, err = openVolumes(ctx, m.backend, m.name); err != nil {
		m.remote = nil
		return s, err
	}
	m.files = m.remote
	there, err := m.remote.images(ctx, s)
	if err != nil {
		return s, err
	}
	for _, name := range awaited(s) {
		if err := m.remote.Await(ctx, name); err != nil {
			return s, err
		}
	}
	return there, nil
}

// left ends what a machine that did not come up, or whose host is lost, leaves, and says what became of it.
func (m *machine) left() string {
	if m.remote != nil {
		ctx, cancel := context.WithTimeout(context.Background(), leaveLimit)
		defer cancel()
		if m.remote.sweep(ctx) != nil { // as where an answer was waited for too long: once more, on a new connection
			m.remote.sweep(ctx) // of a host that is lost, in vain
		}
		m.remote.close()
		return "its libvirtd ends it, if it is there"
	}
	defer m.process.close()
	return m.process.end(lastWords)
}

// start creates the domain paused, listens for its end, and lets it run. What it
// has made when it fails, release takes back.
func (m *machine) start(ctx context.Context, s vm.Spec, version qemu.Version) (err error) {
	parts, err := qemu.PartsOf(s, version, m.files.At)
	if err != nil {
		return err
	}
	m.mute = parts.MutePowerOff
	if err := m.backend.listener.keep(ctx, m.backend); err != nil {
		return err
	}
	if m.control, err = m.backend.dial(ctx); err != nil {
		return err
	}
	if m.events, err = m.backend.dial(ctx); err != nil {
		return err
	}
	// Before there is a domain, so that no end of it is missed.
	life, err := call(ctx, m.events, "listen for ends", func(l *golibvirt.Libvirt) (<-chan golibvirt.DomainEventLifecycleMsg, error) {
		return l.LifecycleEvents(m.events.life)
	})
	if err != nil {
		return err
	}
	xml, err := m.describe(ctx, s, parts)
	if err != nil {
		go drain(life)
		return err
	}
	drained := false
	defer func() {
		if !drained {
			go drain(life)
		}
	}()
	m.started = time.Now()
	m.dom, err = call(ctx, m.control, "create domain", func(l *golibvirt.Libvirt) (golibvirt.Domain, error) {
		return l.DomainCreateXML(xml, golibvirt.DomainStartPaused|golibvirt.DomainStartAutodestroy)
	})
	m.find(err)
	if err != nil {
		return err
	}
	qemuEvents, err := call(ctx, m.events, "listen to QEMU", func(l *golibvirt.Libvirt) (<-chan golibvirt.DomainEvent, error) {
		return l.SubscribeQEMUEvents(m.events.life, m.dom.Name)
	})
	if err != nil {
		return err
	}
	m.bridge, m.monitor = newBridge(m.control, m.dom)
	if err := m.monitor.ConnectContext(ctx); err != nil {
		go drain(qemuEvents)
		return err
	}
	m.results = tail.Follow(filepath.Join(m.dir, qemu.ResultsFile), m.ended)
	go m.pass(qemuEvents)
	if m.remote != nil {
		if err := m.same(ctx, version); err != nil {
			return err
		}
		files, err := openVolumes(ctx, m.backend, m.name)
		if err != nil {
			return err
		}
		m.mirror = follow(files, s, m.control.close)
	}
	if s.State != "" {
		if err := m.freezer().Thaw(ctx, s); err != nil {
			return err
		}
	}
	// libvirtd keeps a state of its own, so it has to be the one that resumes.
	_, err = call(ctx, m.control, "resume domain", func(l *golibvirt.Libvirt) (struct{}, error) {
		return struct{}{}, l.DomainResume(m.dom)
	})
	if err != nil {
		return err
	}
	drained = true
	go m.watch(life)
	return nil
}

// find looks for the QEMU of a domain that was asked for. Without it, one thing less can be cleaned
// up. It may be there though libvirtd has not said so, and never will.
func (m *machine) find(asked error) {
	if m.remote != nil {
		return
	}
	m.process, _ = findProcess(m.dir)
	if m.process == nil && errors.Is(asked, errLost) {
		m.process = leftProcess(m.dir, leftLimit)
	}
}

// OtherEmulatorError says that a host's QEMU is another than the lab's, so that what is counted
// there is not what would be counted here.
type OtherEmulatorError struct{ There, Here string }

func (e *OtherEmulatorError) Error() string {
	return fmt.Sprintf("its QEMU is %s, and the lab's %s: guests of the one count other instructions than those of the other", e.There, e.Here)
}

// same asks whether the machine's QEMU is what the lab has.
func (m *machine) same(ctx context.Context, here qemu.Version) error {
	there, err := qemu.VersionOf(ctx, m.monitor)
	if err == nil && there != here.Number {
		err = &OtherEmulatorError{there, here.Number}
	}
	return err
}

// describe writes the domain's XML, also into the run directory.
func (m *machine) describe(ctx context.Context, s vm.Spec, parts qemu.Parts) (string, error) {
	// Not its capabilities: for those a libvirtd asks every QEMU that is installed.
	model, err := call(ctx, m.control, "security model", func(l *golibvirt.Libvirt) (string, error) {
		name, _, err := l.NodeGetSecurityModel()
		return text(name), err
	})
	if err != nil {
		return "", err
	}
	labels := ownLabels(string(m.backend.driver), model, os.Getuid(), os.Getgid())
	if m.remote != nil {
		labels = poolLabels(string(m.backend.driver), model)
	}
	described, err := domainXML(m.name, s, parts, labels, m.files.At(pidFile))
	if err != nil {
		return "", err
	}
	return string(described), os.WriteFile(filepath.Join(s.Dir, xmlFile), described, 0o600)
}

// text reads a string of C.
func text(c []int8) string {
	var b []byte
	for _, v := range c {
		if v == 0 {
			break
		}
		b = append(b, byte(v))
	}
	return string(b)
}

func (m *machine) freezer() qemu.Freezer {
	return qemu.Freezer{Monitor: m.monitor, Arch: m.arch, Exact: m.exact, Files: m.files}
}

// Freeze is vm.Freezer's.
func (m *machine) Freeze(ctx context.Context, file string) error {
	return m.freezer().Freeze(ctx, file)
}

// drain reads to the end what go-libvirt would otherwise wait to be read.
func drain[T any](c <-chan T) {
	for range c {
	}
}

// release gives up everything that start has made. libvirtd destroys the domain
// with the connection that created it.
func (m *machine) release() {
	if m.monitor != nil {
		m.bridge.close()
		m.monitor.Disconnect()
	}
	for _, c := range []*conn{m.control, m.events} {
		if c != nil {
			c.close()
		}
	}
}

// pass hands QEMU's events to the monitor and picks out the first SHUTDOWN.
// Those after it only repeat what libvirt does because of it. go-libvirt loses
// events without data, such as STOP and RESUME; SHUTDOWN has some.
func (m *machine) pass(events <-chan golibvirt.DomainEvent) {
	for e := range events {
		if e.Event == "SHUTDOWN" {
			select {
			case m.reason <- shutdownReason(e.Details):
			default:
			}
		}
		m.bridge.event(e) // to a bridge that is closed, in vain
	}
}

// watch waits for the end of the machine, or of libvirtd.
func (m *machine) watch(life <-chan golibvirt.DomainEventLifecycleMsg) {
	m.ending = m.end(life)
	m.collect()
	m.release()
	drain(life)
	m.process.close()
	close(m.ended)
}

// collect brings here what a machine on another host has written, and leaves nothing there.
func (m *machine) collect() {
	if m.remote == nil {
		return
	}
	if m.ending.Kind == vm.HostLost {
		m.mirror.stop()
		m.left()
		return
	}
	if err := m.mirror.finish(); err != nil {
		m.ending = vm.Ending{Kind: vm.HostLost, Reason: "files", Detail: fmt.Sprintf("what the guest wrote at %s cannot be fetched: %v", m.backend.URI, err)}
	}
	m.left()
}

// end waits for libvirtd's word that the domain has stopped, or for QEMU itself: what reaps it
// may take a second, in which libvirtd takes it for alive.
func (m *machine) end(life <-chan golibvirt.DomainEventLifecycleMsg) vm.Ending {
	reason, gone := "", false
	reasons := m.reason
	for exited := m.process.exited(); ; {
		select {
		case e, ok := <-life:
			switch {
			case !ok:
				return m.hostLost()
			case e.Dom.UUID == m.dom.UUID && e.Event == int32(golibvirt.DomainEventStopped):
				return m.stopped(reason, golibvirt.DomainEventStoppedDetailType(e.Detail))
			}
		case reason = <-reasons:
			reasons = nil // later ones only repeat what libvirtd does about the first
			if m.remote != nil {
				exited = m.exiting()
			}
		case <-exited:
			exited, gone = nil, true
		case <-m.control.lost():
			return m.hostLost()
		case <-m.events.lost():
			return m.hostLost()
		}
		if kind, _ := qemu.Shutdown(reason); gone && (kind == vm.Clean || kind == vm.Panicked) { // what the guest did
			return vm.Ending{Kind: kind, Reason: reason}
		}
	}
}

// exiting is closed when QEMU has removed the file with its pid, which it does as it exits, and its
// plugins, whose turn is after that, have written all. libvirtd tells of an end only when QEMU has been
// reaped, which may take whoever does that seconds.
func (m *machine) exiting() <-chan struct{} {
	c := make(chan struct{})
	go func() {
		for !m.endedItself() || !m.reported() {
			select {
			case <-time.After(mirrorInterval):
			case <-m.ended: // libvirtd was faster
				return
			}
		}
		close(c)
	}()
	return c
}

// reported reports whether the plugins have written all that they will.
func (m *machine) reported() bool {
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	for _, p := range m.mirror.reports {
		if p.End == "" {
			return false
		}
		size, err := m.remote.size(ctx, p.Out)
		from := size - int64(len(p.End))
		if err != nil || from < 0 {
			return false
		}
		if end, err := m.remote.Read(ctx, p.Out, from, int64(len(p.End))); err != nil || string(end) != p.End {
			return false
		}
	}
	return true
}

// stopped is how a domain ended that libvirtd saw stop, for a reason that is empty if it has not
// come yet.
func (m *machine) stopped(reason string, how golibvirt.DomainEventStoppedDetailType) vm.Ending {
	if reason == "" {
		wait := time.Duration(0)
		if how == golibvirt.DomainEventStoppedShutdown {
			wait = lastWords // libvirtd has the SHUTDOWN event, so it is on its way
		}
		reason = m.late(wait)
	}
	e := ending(reason, how, m.mute && m.endedItself())
	if e.Reason == destroyed && !closed(m.killed) {
		// A libvirtd that is told to stop destroys its domains first.
		select {
		case <-m.control.lost():
			return m.hostLost()
		case <-time.After(lastWords):
		}
	}
	return e
}

// endedItself reports whether QEMU has removed the file with its pid.
func (m *machine) endedItself() bool {
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	_, err := m.files.Read(ctx, pidFile, 0, 1)
	return errors.Is(err, fs.ErrNotExist)
}

// late is a reason that comes within a time; empty if none does.
func (m *machine) late(wait time.Duration) string {
	select {
	case reason := <-m.reason:
		return reason
	default:
	}
	select {
	case reason := <-m.reason:
		return reason
	case <-time.After(wait):
		return ""
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// hostLost ends what libvirtd left behind.
func (m *machine) hostLost() vm.Ending {
	m.control.close()
	detail := fmt.Sprintf("libvirtd at %s closed its connection or stopped answering", m.backend.URI)
	switch {
	case m.remote == nil:
		detail += "; " + m.process.end(lastWords)
	case closed(m.mirror.done) && m.mirror.err != nil:
		detail += ": " + m.mirror.err.Error()
	}
	return vm.Ending{Kind: vm.HostLost, Reason: "libvirtd", Detail: detail}
}

func (m *machine) Monitor() goqemu.Monitor { return m.monitor }
func (m *machine) Results() io.Reader      { return m.results }
func (m *machine) Console() string         { return filepath.Join(m.dir, qemu.ConsoleFile) }
func (m *machine) Started() time.Time      { return m.started }

// Argv is the command that starts the same machine without libvirt.
func (m *machine) Argv() []string { return append([]string(nil), m.argv...) }

// Kill has libvirtd destroy the domain. If it does not, the connection is
// closed, and then both libvirtd and we ourselves see to it.
func (m *machine) Kill() {
	m.kill.Do(func() {
		close(m.killed)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
			defer cancel()
			_, err := call(ctx, m.control, "destroy domain", func(l *golibvirt.Libvirt) (struct{}, error) {
				return struct{}{}, l.DomainDestroyFlags(m.dom, 0)
			})
			if golibvirt.IsNotFound(err) {
				err = nil // it has just ended by itself
			}
			select {
			case <-m.ended:
				return
			case <-ctx.Done():
			case <-closedIf(err != nil):
			}
			m.control.close()
		}()
	})
}

// closedIf is a channel that is closed, or one that never is.
func closedIf(yes bool) <-chan struct{} {
	if !yes {
		return nil
	}
	c := make(chan struct{})
	close(c)
	return c
}

func (m *machine) Wait(ctx context.Context) (vm.Ending, error) {
	select {
	case <-m.ended:
		return m.ending, nil
	case <-ctx.Done():
		return vm.Ending{}, ctx.Err()
	}
}

// Inspect is vm.Inspector's: over a connection of its own.
func (m *machine) Inspect(ctx context.Context) (vm.Inside, error) {
	c, err := m.backend.dial(ctx)
	if err != nil {
		return nil, err
	}
	b, client := newBridge(c, m.dom)
	inside := &qemu.Inside{Monitor: client, Files: m.files, Core: m.core(c), Closing: func() { b.close(); c.close() }}
	if err := client.ConnectContext(ctx); err != nil {
		inside.Close()
		return nil, err
	}
	return inside, nil
}

// core has libvirtd write the guest's memory. libvirtd 9.0.0 is dead (SIGSEGV) when QEMU tells of a
// dump that libvirtd has not asked for (DUMP_COMPLETED).
func (m *machine) core(c *conn) func(context.Context, string) error {
	return func(ctx context.Context, file string) error {
		_, err := call(ctx, c, "dump memory", func(l *golibvirt.Libvirt) (struct{}, error) {
			return struct{}{}, l.DomainCoreDumpWithFormat(m.dom, file, uint32(golibvirt.DomainCoreDumpFormatRaw), golibvirt.DumpMemoryOnly)
		})
		return err
	}
}
