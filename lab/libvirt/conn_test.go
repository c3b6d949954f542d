package libvirt

import (
	"net"
	"testing"
)

// closing tells when it is closed.
type closing struct {
	net.Conn
	closed func()
}

func (c closing) Close() error {
	c.closed()
	return c.Conn.Close()
}

// Who listens must not ask to be forgotten while the connection ends: libvirtd dies.
func TestCloseBeforeListeners(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	var c *conn
	ended := 0
	c = newConn(closing{ours, func() {
		ended++
		if c.life.Err() != nil {
			t.Error("what listens was ended before the connection")
		}
	}})
	c.close()
	if ended == 0 || c.life.Err() == nil || !closed(c.lost()) {
		t.Errorf("closed %d times, life %v", ended, c.life.Err())
	}
}
