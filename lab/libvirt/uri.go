package libvirt

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	golibvirt "github.com/digitalocean/go-libvirt"

	"kerninst/agent/near"
)

// example is what messages show.
const example = "qemu+unix:///system?socket=/run/libvirt/libvirt-sock, qemu+ssh://user@host/system or qemu+tls://host/system"

// defaultSocket is the system daemon's. A session's lies where its user has it.
const defaultSocket = "/run/libvirt/libvirt-sock"

// maxSocket is the longest path of a unix socket, in bytes.
const maxSocket = 107

// Backend starts machines through one libvirtd.
type Backend struct {
	URI    string // as it was given
	driver golibvirt.ConnectURI
	way    way
	// pool is the storage pool by which the lab and QEMU share files; empty: they see the same.
	pool string

	listener *listener
}

const systemDriver = "qemu:///system"

// Parse reads a libvirt URI. What it returns has not been connected to yet.
func Parse(uri string) (Backend, error) {
	b, err := parse(uri)
	if err != nil {
		return Backend{}, fmt.Errorf("host %q: %w", uri, err)
	}
	return b, nil
}

// form is what URIs of a transport may have beside the path.
type form struct {
	params []string // all that there are
	host   bool     // it leads to a host
	user   bool
	port   bool
	pool   string // of who names none
	way    func(u *url.URL, q url.Values) (way, error)
}

// forms are the transports. There is none for TCP without TLS: whoever is between would be given
// the right to start programs.
var forms = map[string]form{
	"unix": {params: []string{"pool", "socket"}, way: unixOf},
	"ssh":  {params: []string{"keyfile", "known_hosts", "pool", "socket"}, host: true, user: true, port: true, pool: defaultPool, way: sshOf},
	"tls":  {params: []string{"pkipath", "pool"}, host: true, port: true, pool: defaultPool, way: tlsOf},
}

func parse(uri string) (Backend, error) {
	u, err := url.Parse(uri)
	if err != nil {
		return Backend{}, errors.New("not a URI: use " + example)
	}
	hypervisor, transport, named := strings.Cut(u.Scheme, "+")
	if !named {
		transport = "unix"
		if u.Host != "" {
			transport = "tls"
		}
	}
	f, known := forms[transport]
	switch {
	case hypervisor != "qemu":
		return Backend{}, errors.New("not a libvirt URI for QEMU: use " + example)
	case !known:
		return Backend{}, fmt.Errorf("transport %q: use ssh or tls, or unix on this machine, as in %s", transport, example)
	case u.Path != "/system" && u.Path != "/session":
		return Backend{}, fmt.Errorf("path %q: use /system or /session", u.Path)
	}
	query, err := f.check(u)
	if err != nil {
		return Backend{}, err
	}
	w, err := f.way(u, query)
	if err != nil {
		return Backend{}, err
	}
	b := Backend{URI: uri, way: w, pool: f.pool, driver: golibvirt.ConnectURI("qemu://" + u.Path), listener: &listener{}}
	if query.Has("pool") {
		b.pool = query.Get("pool")
	}
	return b, nil
}

// check holds what is around a URI's path against its form.
func (f form) check(u *url.URL) (url.Values, error) {
	query, err := url.ParseQuery(u.RawQuery)
	switch {
	case err != nil:
		return nil, fmt.Errorf("parameters: %w", err)
	case u.Fragment != "":
		return nil, errors.New("a libvirt URI has no #")
	case f.host && u.Hostname() == "":
		return nil, errors.New("which host? use " + example)
	case !f.host && u.Host != "":
		return nil, fmt.Errorf("host %q: a unix socket is this machine's: use qemu+ssh or qemu+tls", u.Host)
	case !f.port && u.Port() != "":
		return nil, errors.New("there is no port")
	case !f.user && u.User != nil:
		return nil, errors.New("there is no user: TLS knows who asks by certificates, a unix socket by itself")
	}
	if _, secret := u.User.Password(); secret {
		return nil, errors.New("a password is not taken: everybody on this machine sees it; use a key")
	}
	for name, values := range query {
		switch {
		case !slices.Contains(f.params, name):
			return nil, fmt.Errorf("parameter %q is unknown here: there are %s%s", name, strings.Join(f.params, ", "), near.Hint(name, f.params))
		case len(values) > 1:
			return nil, fmt.Errorf("parameter %q is given twice", name)
		case values[0] == "":
			return nil, fmt.Errorf("parameter %q is empty", name)
		}
	}
	return query, nil
}

// socketOf is the unix socket of a URI, on the machine that libvirtd is on.
func socketOf(u *url.URL, q url.Values) (string, error) {
	socket := q.Get("socket")
	switch {
	case socket == "" && u.Path == "/session":
		return "", errors.New("a session's libvirtd has no fixed place: add ?socket=/path/to/libvirt-sock")
	case socket == "":
		return defaultSocket, nil
	case !filepath.IsAbs(socket):
		return "", fmt.Errorf("socket %q: the path must be absolute", socket)
	case len(socket) > maxSocket:
		return "", fmt.Errorf("socket %q: a path of %d bytes, above the %d that the system takes", socket, len(socket), maxSocket)
	}
	return socket, nil
}

func unixOf(u *url.URL, q url.Values) (way, error) {
	socket, err := socketOf(u, q)
	return unixWay{socket}, err
}

// plainWord is what users and hosts are called: nothing that a program could take for an option, or
// a shell for more than a word.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_\[:][A-Za-z0-9_.:%\]-]*$`)

func sshOf(u *url.URL, q url.Values) (way, error) {
	socket, err := socketOf(u, q)
	if err != nil {
		return nil, err
	}
	w := &sshWay{user: u.User.Username(), host: u.Hostname(), port: u.Port(), socket: socket, identity: q.Get("keyfile"), known: q.Get("known_hosts")}
	switch {
	case !plainWord.MatchString(w.host):
		return nil, fmt.Errorf("host %q is no name of one", w.host)
	case w.user != "" && !plainWord.MatchString(w.user):
		return nil, fmt.Errorf("user %q is no name of one", w.user)
	case strings.ContainsAny(socket, ":\\%$\n"):
		return nil, fmt.Errorf("socket %q: ssh leads to no path with a colon or backslash, and expands %% and $", socket)
	case strings.ContainsAny(w.known, " \t\n\"'\\%$"):
		return nil, fmt.Errorf("known_hosts %q: ssh would take it for several words, or expand it", w.known)
	}
	return w, nil
}

func tlsOf(u *url.URL, q url.Values) (way, error) {
	w := tlsWay{host: u.Hostname(), port: u.Port(), pki: q.Get("pkipath")}
	if !plainWord.MatchString(w.host) {
		return nil, fmt.Errorf("host %q is no name of one", w.host)
	}
	if w.pki != "" && !filepath.IsAbs(w.pki) {
		return nil, fmt.Errorf("pkipath %q: the path must be absolute", w.pki)
	}
	return w, nil
}
