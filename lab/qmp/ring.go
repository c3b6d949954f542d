package qmp

import (
	"context"
	"encoding/json"
	"sync"

	goqemu "github.com/digitalocean/go-qemu/qmp"
)

// ring keeps the last events of a connection as the lines that they came in.
// Each reader decodes them anew, so no two readers share memory.
type ring struct {
	ended     chan struct{} // closed when no more events will come
	abandoned chan struct{} // closed when readers shall stop at once

	mu    sync.Mutex
	lines [][]byte      // event n is lines[n % len(lines)]
	next  uint64        // number of the event to come
	read  uint64        // events below this were taken by some reader
	drops uint64        // events overwritten before any reader took them
	more  chan struct{} // closed and replaced by each push
	gone  bool          // abandoned is closed
	over  bool          // ended is closed
}

func newRing(size int) *ring {
	return &ring{
		ended:     make(chan struct{}),
		abandoned: make(chan struct{}),
		lines:     make([][]byte, size),
		more:      make(chan struct{}),
	}
}

// push adds an event and never waits.
func (r *ring) push(line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	size := uint64(len(r.lines))
	if r.next >= size && r.next-size >= r.read {
		r.drops++
		r.read = r.next - size + 1
	}
	r.lines[r.next%size] = line
	r.next++
	close(r.more)
	r.more = make(chan struct{})
}

// take returns event at or, if that is gone, the oldest kept, with its number.
// If there is none yet it returns a channel to wait on.
func (r *ring) take(at uint64) (line []byte, n uint64, wait <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if size := uint64(len(r.lines)); r.next > size && at < r.next-size {
		at = r.next - size
	}
	if at == r.next {
		return nil, at, r.more
	}
	r.read = max(r.read, at+1)
	return r.lines[at%uint64(len(r.lines))], at, nil
}

// deliver sends events to out until ctx ends, the ring is abandoned, or it has
// ended and everything was sent.
func (r *ring) deliver(ctx context.Context, out chan<- goqemu.Event) {
	for at := uint64(0); ; at++ {
		line, n, wait := r.take(at)
		for wait != nil {
			select {
			case <-wait:
			case <-r.ended:
				// What is there now is all that can still be had.
				if line, n, wait = r.take(at); wait != nil {
					return
				}
				continue
			case <-r.abandoned:
				return
			case <-ctx.Done():
				return
			}
			line, n, wait = r.take(at)
		}
		at = n
		var e goqemu.Event
		if json.Unmarshal(line, &e) != nil {
			continue // an event whose data is no object: nobody can use it
		}
		select {
		case out <- e:
		case <-r.abandoned:
			return
		case <-ctx.Done():
			return
		}
	}
}

// end says that no more events will come.
func (r *ring) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over {
		r.over = true
		close(r.ended)
	}
}

// abandon makes readers stop at once.
func (r *ring) abandon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.gone {
		r.gone = true
		close(r.abandoned)
	}
}

func (r *ring) lost() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.drops
}
