package libvirttest

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	golibvirt "github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"
)

// Pool makes a storage pool of a folder, and says which.
func (d *Daemon) Pool(t testing.TB, name string) (dir string) {
	t.Helper()
	dir = filepath.Join(d.Home, "pool-"+name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		if err := os.Chown(dir, ordinary, ordinary); err != nil {
			t.Fatal(err)
		}
	}
	d.do(t, func(l *golibvirt.Libvirt) error {
		_, err := l.StoragePoolCreateXML(fmt.Sprintf("<pool type='dir'><name>%s</name><target><path>%s</path></target></pool>", name, dir), 0)
		return err
	})
	return dir
}

// TLS leads to the daemon by TLS, with what a folder has to show.
func (d *Daemon) TLS(pki string) string {
	return fmt.Sprintf("qemu+tls://127.0.0.1:%d/session?pkipath=%s", d.Port, url.QueryEscape(pki))
}

// do does something with the daemon.
func (d *Daemon) do(t testing.TB, what func(*golibvirt.Libvirt) error) {
	t.Helper()
	l := golibvirt.NewWithDialer(dialers.NewLocal(dialers.WithSocket(d.Socket())))
	err := l.ConnectToURI(golibvirt.QEMUSession)
	if err == nil {
		defer l.Disconnect()
		err = what(l)
	}
	if err != nil {
		t.Fatal(err)
	}
}
