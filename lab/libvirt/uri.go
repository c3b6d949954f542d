package libvirt

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	golibvirt "github.com/digitalocean/go-libvirt"
)

// example is what messages show.
const example = "qemu+unix:///system?socket=/run/libvirt/libvirt-sock"

// defaultSocket is the system daemon's. A session's lies where its user has it.
const defaultSocket = "/run/libvirt/libvirt-sock"

// maxSocket is the longest path of a unix socket, in bytes.
const maxSocket = 107

// Backend starts machines through one libvirtd.
type Backend struct {
	URI    string // as it was given
	socket string
	driver golibvirt.ConnectURI

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

func parse(uri string) (Backend, error) {
	u, err := url.Parse(uri)
	if err != nil {
		return Backend{}, errors.New("not a URI: use " + example)
	}
	hypervisor, transport, _ := strings.Cut(u.Scheme, "+")
	query := u.Query()
	socket := query.Get("socket")
	query.Del("socket")
	switch {
	case hypervisor != "qemu":
		return Backend{}, errors.New("not a libvirt URI for QEMU: use " + example)
	case u.Host != "" || transport != "" && transport != "unix":
		return Backend{}, errors.New("this is another machine, and images are not pushed yet: use a libvirtd on this one, such as " + example)
	case u.Path != "/system" && u.Path != "/session":
		return Backend{}, fmt.Errorf("path %q: use /system or /session", u.Path)
	case len(query) > 0 || u.Fragment != "" || u.User != nil:
		return Backend{}, errors.New("the one parameter there is is socket")
	case socket == "" && u.Path == "/session":
		return Backend{}, errors.New("a session's libvirtd has no fixed place: add ?socket=/path/to/libvirt-sock")
	case socket == "":
		socket = defaultSocket
	case !filepath.IsAbs(socket):
		return Backend{}, fmt.Errorf("socket %q: the path must be absolute", socket)
	}
	if len(socket) > maxSocket {
		return Backend{}, fmt.Errorf("socket %q: a path of %d bytes, above the %d that the system takes", socket, len(socket), maxSocket)
	}
	return Backend{URI: uri, socket: socket, driver: golibvirt.ConnectURI("qemu://" + u.Path), listener: &listener{}}, nil
}
