package libvirt

import (
	"context"
	"sync"

	golibvirt "github.com/digitalocean/go-libvirt"
)

// listener hears of all domains of a libvirtd, and does nothing about it. As long
// as there is one, no machine that ends is the last to stop listening: libvirtd
// 9.0.0 then takes down the timer that delivers events, and was seen to die in it
// (SIGSEGV) when connections ended as conn.close no longer ends them.
type listener struct {
	mu   sync.Mutex
	conn *conn // nil before the first machine

	swept   sync.Once  // the pool, of what dead labs have left
	pushing sync.Mutex // so that machines that begin together send what they have in common once
}

// keep starts listening, or does so anew if libvirtd was started anew. It ends
// with the lab.
func (l *listener) keep(ctx context.Context, b Backend) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil && !closed(l.conn.lost()) {
		return nil
	}
	c, err := b.dial(ctx)
	if err != nil {
		return err
	}
	events, err := call(ctx, c, "listen", func(rpc *golibvirt.Libvirt) (<-chan golibvirt.DomainEventLifecycleMsg, error) {
		return rpc.LifecycleEvents(c.life)
	})
	if err != nil {
		c.close()
		return err
	}
	go drain(events)
	l.conn = c
	return nil
}
