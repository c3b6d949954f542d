package check

import (
	"time"

	"kerninst/agent/isa"
	"kerninst/agent/kdev"
	"kerninst/agent/ktext"
)

// turning is how long it takes to turn a static key, at the most.
const turning = 20 * time.Millisecond

// Text is the image's text at a moment.
type Text struct {
	of     *ktext.Text
	start  isa.Addr
	before []byte
}

// Snapshot reads all of the text, of which t knows the sites.
func Snapshot(dev *kdev.Device, info kdev.Info, t *ktext.Text) (*Text, error) {
	s := &Text{of: t, start: info.TextStart, before: make([]byte, t.GapEnd()-info.TextStart)}
	return s, dev.Read(s.start, s.before)
}

// Differing is how many bytes are not as they were, and the first of them; of what the kernel
// rewrites itself how many sites are not as its state demands. It rewrites some: on a busy host it finds in
// the middle of a storm that the TSC is not to be relied on, and turns the static keys of sched_clock.
func (s *Text) Differing(dev *kdev.Device) (n int, first isa.Addr, err error) {
	now := make([]byte, len(s.before))
	if err := dev.Read(s.start, now); err != nil {
		return 0, 0, err
	}
	for i := range now {
		if now[i] == s.before[i] {
			continue
		}
		a := s.start + isa.Addr(i)
		if own, err := s.of.Rewrites(a, s.start, s.before); err != nil {
			return 0, 0, err
		} else if own {
			continue
		}
		if n++; n == 1 {
			first = a
		}
	}
	unsettled, err := s.of.Unsettled(func() { time.Sleep(turning) }) // of what the kernel writes in text nothing tells
	if n == 0 && len(unsettled) > 0 {
		first = unsettled[0]
	}
	return n + len(unsettled), first, err
}
