package libvirttest

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/ssh"
)

// SSH is an ssh server that forwards unix sockets of this machine, and of programs that are to be run knows those alone that
// say something and then read: what a test's ssh talks to, so that no server need be installed, which would let others in.
type SSH struct {
	OnlyForwards atomic.Bool  // it runs nothing
	Connections  atomic.Int32 // that were let in until now
	Running      atomic.Int32 // programs

	Addr  *net.TCPAddr
	Key   string // a file with the key that it lets in
	Known string // a file with its own, as ssh knows hosts

	t        testing.TB
	host     ssh.Signer
	listener net.Listener
}

// StartSSH starts one, which ends with the test.
func StartSSH(t testing.TB) *SSH {
	t.Helper()
	dir := t.TempDir()
	s := &SSH{t: t, Key: filepath.Join(dir, "key"), Known: filepath.Join(dir, "known")}
	public := writeKey(t, s.Key)
	host := signer(t)
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if string(key.Marshal()) != string(public.Marshal()) {
			return nil, fmt.Errorf("another key")
		}
		return nil, nil
	}}
	config.Ciphers = []string{"aes128-gcm@openssh.com"} // Go's ChaCha20 has no assembler here, and takes seconds
	config.AddHostKey(host)
	var err error
	if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.listener.Close() })
	s.Addr = s.listener.Addr().(*net.TCPAddr)
	s.Knows(host.PublicKey())
	go s.serve(config)
	return s
}

// Knows writes the file of known hosts with a key for this one.
func (s *SSH) Knows(key ssh.PublicKey) {
	line := fmt.Sprintf("[127.0.0.1]:%d %s", s.Addr.Port, ssh.MarshalAuthorizedKey(key))
	if err := os.WriteFile(s.Known, []byte(line), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// URI leads to a libvirtd's session by this server.
func (s *SSH) URI(d *Daemon) string {
	return fmt.Sprintf("qemu+ssh://nobody@127.0.0.1:%d/session?socket=%s&keyfile=%s&known_hosts=%s", s.Addr.Port, d.Socket(), s.Key, s.Known)
}

// AnotherKey is one that nobody has.
func AnotherKey(t testing.TB) ssh.PublicKey { return signer(t).PublicKey() }

func signer(t testing.TB) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// WriteKey writes a new private key into a file.
func WriteKey(t testing.TB, file string) { writeKey(t, file) }

func writeKey(t testing.TB, file string) ssh.PublicKey {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (s *SSH) serve(config *ssh.ServerConfig) {
	for {
		sock, err := s.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer sock.Close()
			_, channels, requests, err := ssh.NewServerConn(sock, config)
			if err != nil {
				return // who asks is told
			}
			s.Connections.Add(1)
			go ssh.DiscardRequests(requests) // keepalives are answered so, too
			for c := range channels {
				if c.ChannelType() == "session" && !s.OnlyForwards.Load() {
					go s.run(c)
				} else {
					go forward(c)
				}
			}
		}()
	}
}

// forward leads a channel to a unix socket (openssh's PROTOCOL, 2.4).
func forward(c ssh.NewChannel) {
	var to struct {
		Socket   string
		Reserved string
		Unused   uint32
	}
	if c.ChannelType() != "direct-streamlocal@openssh.com" || ssh.Unmarshal(c.ExtraData(), &to) != nil {
		c.Reject(ssh.UnknownChannelType, "unix sockets alone")
		return
	}
	sock, err := net.Dial("unix", to.Socket)
	if err != nil {
		c.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	ch, requests, err := c.Accept()
	if err != nil {
		sock.Close()
		return
	}
	go ssh.DiscardRequests(requests)
	go func() {
		io.Copy(ch, sock)
		ch.Close()
	}()
	io.Copy(sock, ch)
	sock.Close()
}

// run does as if it ran "echo TEXT; cat" (RFC 4254, 6.5).
func (s *SSH) run(c ssh.NewChannel) {
	s.Running.Add(1)
	defer s.Running.Add(-1)
	ch, requests, err := c.Accept()
	if err != nil {
		return
	}
	defer ch.Close()
	go func() {
		for r := range requests {
			var line struct{ Text string }
			known := r.Type == "exec" && ssh.Unmarshal(r.Payload, &line) == nil
			r.Reply(known, nil)
			if text, ok := strings.CutPrefix(line.Text, "echo "); ok {
				fmt.Fprintln(ch, "You have no mail.\n"+strings.TrimSuffix(text, "; cat"))
			}
		}
	}()
	io.Copy(ch, ch)
}
