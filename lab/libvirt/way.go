package libvirt

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"path/filepath"
	"strings"

	"github.com/digitalocean/go-libvirt/socket/dialers"
)

// way is how a libvirtd is reached.
type way interface {
	// dial connects. An error says what to do.
	dial(ctx context.Context) (net.Conn, error)
	// key is the same for two ways to one libvirtd, as far as can be told before they are gone.
	key() string
	// why adds to an error of a connection that was made what is known of it here.
	why(err error) error
}

// unixWay leads to a unix socket of this machine.
type unixWay struct{ socket string }

func (w unixWay) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	sock, err := d.DialContext(ctx, "unix", w.socket)
	if err != nil {
		return nil, fmt.Errorf("libvirtd is not reached: %w; is it running, and may this user use its socket?", err)
	}
	return sock, nil
}

func (w unixWay) key() string {
	if real, err := filepath.EvalSymlinks(w.socket); err == nil {
		return real
	}
	return w.socket
}

func (unixWay) why(err error) error { return err }

// tlsWay leads to another machine by TLS: each side shows a certificate (libvirt.org/kbase/tlscerts.html).
type tlsWay struct{ host, port, pki string }

func (w tlsWay) dial(ctx context.Context) (net.Conn, error) {
	var options []dialers.TLSOption
	if w.port != "" {
		options = append(options, dialers.UseTLSPort(w.port))
	}
	if w.pki != "" {
		options = append(options, dialers.UsePKIPath(w.pki))
	}
	type dialed struct {
		sock net.Conn
		err  error
	}
	got := make(chan dialed, 1)
	go func() { // which takes no context, and ends within its own 20 s
		sock, err := dialers.NewTLS(w.host, options...).Dial()
		got <- dialed{sock, err}
	}()
	select {
	case d := <-got:
		return d.sock, w.explain(d.err)
	case <-ctx.Done():
		go func() {
			if d := <-got; d.err == nil {
				d.sock.Close()
			}
		}()
		return nil, fmt.Errorf("libvirtd is not reached: %w", ctx.Err())
	}
}

// explain says what to do about a connection that was not made.
func (w tlsWay) explain(err error) error {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("no certificate to show: %w; clientcert.pem, clientkey.pem and cacert.pem are to be in pkipath=FOLDER, or where libvirt has them", err)
	case errors.As(err, &unknown), errors.As(err, &name):
		return fmt.Errorf("its certificate is not that of the host: %w; if it was changed, bring the new authority's cacert.pem", err)
	case errors.Is(err, io.EOF), strings.Contains(err.Error(), "server verification"), strings.Contains(err.Error(), "remote error: tls"):
		// libvirtd closes the connection, mostly without a word.
		return fmt.Errorf("it does not take this certificate: %w", err)
	}
	return fmt.Errorf("libvirtd is not reached: %w; is it running there, with --listen or libvirtd-tls.socket?", err)
}

func (w tlsWay) key() string { return "tls " + net.JoinHostPort(w.host, w.port) }

func (w tlsWay) why(err error) error { return err }
