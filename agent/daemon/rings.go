package daemon

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"kerninst/agent/gen"
	"kerninst/agent/isa"
	"kerninst/agent/kdev"
	"kerninst/agent/snippet"
	"kerninst/agent/splice"
	"kerninst/agent/wire"
)

// What is traced is put into rings by patches, and taken out and sent while programs run. Each
// CPU has its own, so that CPUs do not wait for each other's cache lines; those of one length
// are in one ring, whichever points they are of, and are told apart by their tags.

const (
	// ringBytes is how much each CPU's ring has room for unless something else is asked for,
	// and fewest how much one may be asked to have at least.
	ringBytes, fewestRingBytes = 1 << 20, 1 << 12
	// watchPeriod is how often the kernel looks at rings for the daemon, which sleeps until half of
	// one is filled, and does not wait for more then: each time it comes, it and Go's runtime take
	// some hundred thousand instructions, whatever there is; to look takes the kernel two thousand.
	// So what is put into rings has the other half, in that time: none that would take 1.2 ms to
	// fill a ring is lost. In exact time that is a record of the shortest for each 18 instructions.
	watchPeriod = 500 * time.Microsecond
	watchShare  = 2
	// sendAge is how long records wait at most that are sent as they come: sending costs more
	// than looking.
	sendAge = 100 * time.Millisecond
	// Of records, so many words are sent at once, and so many times as many kept until then:
	// 64 MiB, or 512 KiB if they are sent as they come: fresh memory costs more than what is
	// used again.
	chunkWords, keptChunks, liveChunks = 16 << 10, 512, 4
	// warmChunks are there before programs start: 4 MiB, each page of which has been written to,
	// since the kernel takes a thousand instructions to clear one.
	warmChunks = 32
	mostTags   = 1<<16 - 1
)

// rings are those of a device.
type rings struct {
	asked int              // bytes; 0: ringBytes
	of    int              // bytes that were asked for when sets were made
	sets  map[int]*ringSet // by how many fields records have
	// aside are those of other sizes, which the device keeps until it is closed: some task may be in
	// a patch that leads there.
	aside  map[int]map[int]*ringSet
	tags   map[traced]uint16
	used   map[uint16]bool
	last   uint16   // tag that was given away
	chunks []*chunk // what was taken out of rings and is not sent

	mu    sync.Mutex
	spare [][]uint64 // of chunks that were sent
}

// traced is an action that makes records at a point. One that stays while others are taken
// away from the point keeps its tag.
type traced struct {
	module, function string
	offset           uint64
	action           *wire.Action
}

// ringSet are each CPU's ring for records of one length.
type ringSet struct {
	cell    snippet.Cell
	rings   *kdev.Rings
	readers []snippet.Reader
	since   []snippet.Reader // when counting began
	last    []*chunk         // of each CPU's
}

// room says how large rings are that what is spliced next leads to.
func (r *rings) room(bytes int) error {
	if bytes != 0 && (bytes < fewestRingBytes || bytes&(bytes-1) != 0) {
		return fmt.Errorf("rings of %d bytes: want a power of two, %d at least", bytes, fewestRingBytes)
	}
	r.asked = bytes
	return nil
}

// sized makes the rings in use those of the size that was asked for, if any was. While something is traced they
// stay as they are.
func (r *rings) sized(traced func() bool) error {
	want := cmp.Or(r.asked, r.of, ringBytes)
	if want == r.of {
		return nil
	}
	if len(r.sets) > 0 && traced() {
		return fmt.Errorf("rings of %d bytes: something is traced into some of %d bytes", want, r.of)
	}
	if r.aside == nil {
		r.aside = map[int]map[int]*ringSet{}
	}
	r.aside[r.of] = r.sets
	r.of, r.sets = want, r.aside[want]
	return nil
}

// tag is the same each time it is asked for, until it is given back. One that was given back is used again as
// late as can be: a record of it may still be written by who was asleep in a patch.
func (r *rings) tag(of traced) (uint16, error) {
	if tag, ok := r.tags[of]; ok {
		return tag, nil
	}
	if len(r.used) == mostTags {
		return 0, fmt.Errorf("more than %d traces: probe fewer points at once", mostTags)
	}
	if r.tags == nil {
		r.tags, r.used = map[traced]uint16{}, map[uint16]bool{}
	}
	for r.last++; r.last == 0 || r.used[r.last]; r.last++ {
	}
	r.tags[of], r.used[r.last] = r.last, true
	return r.last, nil
}

// untag gives the tags back of all but what is live.
func (r *rings) untag(live map[*wire.Action]bool) {
	clear(r.used)
	for of, tag := range r.tags {
		if live[of.action] {
			r.used[tag] = true
		} else {
			delete(r.tags, of)
		}
	}
}

// bind says to the cells of a point's snippet that are of rings or clocks where these are.
func (d *Daemon) bind(p *wire.Point, whole snippet.Snippet, actions []action) error {
	for n, a := range actions {
		for k := range a.snippet.Cells {
			c := &whole.Cells[a.cell+k]
			if c.Kind == snippet.Clocks {
				if err := d.bindClocks(c); err != nil {
					return err
				}
			}
			if c.Kind != snippet.InRing {
				continue
			}
			if d.dry { // nothing is written: any place will do
				c.Ring = snippet.Ring{At: 8, Each: d.info.CPUs > 1, Tag: 1}
				continue
			}
			set, err := d.ringsFor(c.Fields)
			if err != nil {
				return err
			}
			c.Records, c.Ring = set.cell.Records, set.cell.Ring
			if c.Ring.Tag, err = d.rings.tag(traced{p.Module, p.Function, p.Offset, p.Actions[n]}); err != nil {
				return err
			}
		}
	}
	return nil
}

// ringsFor are those for records of so many fields.
func (d *Daemon) ringsFor(fields int) (*ringSet, error) {
	if err := d.rings.sized(func() bool { return slices.ContainsFunc(d.splicer.Live(), traces) }); err != nil {
		return nil, err
	}
	if set := d.rings.sets[fields]; set != nil {
		return set, nil
	}
	bytes := d.rings.of
	for d.info.CPUs*(bytes+d.info.PageSize) > kdev.MaxArea {
		bytes /= 2
	}
	c := snippet.Cell{Kind: snippet.InRing, Fields: fields}
	// Records that have no time have room for as many as the shortest that do.
	c.Records = min(snippet.MaxRing, bytes/(8*max(2, c.Stride())))
	pages := (8*c.RingWords() + d.info.PageSize - 1) / d.info.PageSize
	got, err := d.dev.AllocRings(pages*d.info.PageSize, d.info.CPUs)
	if err != nil {
		return nil, fmt.Errorf("rings of %d bytes for what is traced: %w", bytes, err)
	}
	c.Ring = snippet.Ring{At: uint64(got.Each), Each: true, CPU: int32(d.info.TaskCPU)}
	if got.Each == 0 || d.info.CPUs == 1 { // one for all CPUs, or for the one that there can ever be
		c.Ring = snippet.Ring{At: uint64(got.At)}
	}
	c = gen.Form(d.arch, c)
	set := &ringSet{cell: c, rings: got, readers: make([]snippet.Reader, len(got.CPUs)), last: make([]*chunk, len(got.CPUs))}
	set.since = slices.Clone(set.readers)
	for _, ring := range got.CPUs {
		c.StartRing(ring, 0)
	}
	if d.rings.sets == nil {
		d.rings.sets = map[int]*ringSet{}
	}
	d.rings.sets[fields] = set
	return set, nil
}

// known says that a point that was searched for is this one, should it be asked for again.
func (r *rings) known(p *wire.Point, tags []uint32) {
	for k, tag := range tags {
		if tag != 0 {
			r.tags[traced{p.Module, p.Function, p.Offset, p.Actions[k]}] = uint16(tag)
		}
	}
}

// tagsOf are those of each of a point's actions.
func tagsOf(whole snippet.Snippet, actions []action) (out []uint32) {
	for _, a := range actions {
		tag := uint32(0)
		for _, c := range whole.Cells[a.cell : a.cell+len(a.snippet.Cells)] {
			if c.Kind == snippet.InRing {
				tag = uint32(c.Ring.Tag)
			}
		}
		out = append(out, tag)
	}
	return out
}

// chunk are records of one CPU's ring.
type chunk struct {
	set  *ringSet
	cpu  int
	w    []uint64    // chunkWords at most
	head *wire.Trace // what is said of them, when they are sent
}

// full reports whether there is no room for one record more.
func (c *chunk) full() bool { return cap(c.w)-len(c.w) <= c.set.cell.Fields }

// drain takes out of the rings what is whole, and puts it into chunks, the last of which may
// have room for more.
func (r *rings) drain() {
	for _, s := range r.sets {
		for cpu, ring := range s.rings.CPUs {
			for {
				if s.last[cpu] == nil || s.last[cpu].full() {
					s.last[cpu] = r.chunk(s, cpu)
				}
				c := s.last[cpu]
				if c.w = s.readers[cpu].Drain(s.cell, ring, c.w); !c.full() {
					break
				}
			}
		}
	}
}

func (r *rings) chunk(s *ringSet, cpu int) *chunk {
	c := &chunk{set: s, cpu: cpu}
	r.mu.Lock()
	if n := len(r.spare); n > 0 {
		c.w, r.spare = r.spare[n-1], r.spare[:n-1]
	}
	r.mu.Unlock()
	if c.w == nil {
		c.w = make([]uint64, 0, chunkWords)
	}
	r.chunks = append(r.chunks, c)
	return c
}

// take takes the chunks away: what comes then goes into others.
func (r *rings) take() []*chunk {
	for _, c := range r.chunks {
		c.set.last[c.cpu] = nil
	}
	all := r.chunks
	r.chunks = nil
	return all
}

// give gives chunks back that are not needed any more.
func (r *rings) give(chunks ...*chunk) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range chunks {
		r.spare = append(r.spare, c.w[:0])
	}
}

// warm has memory ready for so many chunks.
func (r *rings) warm(chunks int) {
	for len(r.spare) < chunks { // nobody sends yet
		w := make([]uint64, chunkWords)
		clear(w) // what the runtime has from the kernel is 0 and not there yet
		r.give(&chunk{w: w})
	}
}

// ringEnd is what had come into a ring, and for how much of that there was no room.
type ringEnd struct{ came, lost uint64 }

// places is how many records had one.
func (e ringEnd) places() uint64 { return e.came - e.lost }

// now is what has come until now, of each ring of each CPU.
func (r *rings) now() map[*ringSet][]ringEnd {
	out := map[*ringSet][]ringEnd{}
	for _, s := range r.sets {
		for cpu, ring := range s.rings.CPUs {
			came, lost := s.readers[cpu].Now(s.cell, ring)
			out[s] = append(out[s], ringEnd{came, lost})
		}
	}
	return out
}

// cut takes records away that came after an end, which are the last of what was taken out: kept is what
// counters have seen.
func (r *rings) cut(ends map[*ringSet][]ringEnd) {
	more := map[*ringSet][]uint64{}
	for s, all := range ends {
		for cpu, end := range all {
			read := s.readers[cpu].Read
			more[s] = append(more[s], read-min(read, end.places()))
		}
	}
	for _, c := range slices.Backward(r.chunks) {
		if len(more[c.set]) == 0 {
			continue
		}
		words := 1 + c.set.cell.Fields
		n := min(more[c.set][c.cpu], uint64(len(c.w)/words))
		c.w = c.w[:len(c.w)-int(n)*words]
		more[c.set][c.cpu] -= n
	}
}

// restart forgets what came before counting began.
func (r *rings) restart() {
	r.drain()
	r.give(r.take()...)
	for _, s := range r.sets {
		s.since = slices.Clone(s.readers)
	}
}

// What it takes a daemon that does nothing else to empty rings, and to send what was in them:
// time of its own, the kernel's for it included.
const (
	stageDrain = "empty the rings of traces"
	stageSend  = "send what is traced"
)

// tracer takes out what comes while a program runs. What was taken out is sent when the program
// has ended, or when it is much, or, if it is to be live, as it comes: in exact time only who
// sends nothing meanwhile does the same each time, as the host takes it when it likes. Sending
// is done by another goroutine: the host may be slow, and rings are to be emptied meanwhile.
type tracer struct {
	d    *Daemon
	live bool // as it comes
	sent time.Time
	to   chan []*chunk
	took time.Duration // to empty rings

	looking sync.Mutex             // held by who reads rings
	ends    map[*ringSet][]ringEnd // nil: all is kept; for who looks the last time
}

// tracing empties rings from when programs are about to start until it is told to stop, at which it
// does so once more: a server that has begun fills them in less time than it takes to be ready. It
// says when that was, if anything is traced: what comes by of what programs do is stamped later.
//
// With counted, counters have just been read: what comes from then on is left out.
func (d *Daemon) tracing(of *wire.Run, out *stream) (stop func(counted bool)) {
	if d.dev == nil || out == nil || !slices.ContainsFunc(d.splicer.Live(), traces) {
		return func(bool) {}
	}
	if of.Live {
		d.rings.warm(liveChunks)
	} else {
		d.rings.warm(warmChunks)
	}
	if at, err := d.dev.Stats(); err == nil {
		_ = out.send(&wire.Record{Body: &wire.Record_Trace{Trace: &wire.Trace{Cycles: at.Cycles, Ns: at.NS}}})
	}
	t := &tracer{d: d, live: of.Live, sent: time.Now(), to: make(chan []*chunk)}
	began := ownTime(unix.CLOCK_PROCESS_CPUTIME_ID)
	// Who sends is in system calls, of which the runtime takes some time to see that they last.
	procs := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(procs + 2)
	end := make(chan bool)
	var ended sync.WaitGroup
	ended.Go(func() { t.send(out) })
	ended.Go(func() {
		if err := t.lookAgain(end, out); err != nil {
			out.log("what is traced is not all there: " + err.Error())
		}
	})
	return func(counted bool) {
		if counted {
			t.looking.Lock()
			t.ends = d.rings.now()
			t.looking.Unlock()
		}
		close(end)
		if err := d.dev.Wake(); err != nil {
			out.log("who empties rings is not told that it is over: " + err.Error())
		}
		ended.Wait()
		runtime.GOMAXPROCS(procs)
		all := ownTime(unix.CLOCK_PROCESS_CPUTIME_ID) - began
		d.stages.all = append(d.stages.all, &wire.Stage{Name: stageDrain, Ns: uint64(t.took)}, &wire.Stage{Name: stageSend, Ns: uint64(all - t.took)})
	}
}

// first gives a goroutine a thread for itself, that does not wait for programs, which may take
// all the time that there is. The thread ends with the goroutine. Where there can be none, more
// may be lost.
func first(priority uint32, out *stream) {
	runtime.LockOSThread()
	how := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: priority}
	if err := unix.SchedSetAttr(0, &how, 0); err != nil {
		out.log("rings are emptied by a thread that waits for others: " + err.Error())
	}
}

// send sends what it is given, so that its memory can be used again, until there is no more.
func (t *tracer) send(out *stream) {
	first(1, out)
	for chunks := range t.to {
		for _, c := range chunks {
			_ = out.trace(c.head, kdev.Bytes(c.w)) // whether it works is found by the next result
			t.d.rings.give(c)
		}
	}
}

// lookAgain looks into the rings until there is an end.
func (t *tracer) lookAgain(end <-chan bool, out *stream) error {
	defer close(t.to)
	first(2, out)
	began := ownTime(unix.CLOCK_THREAD_CPUTIME_ID)
	defer func() { t.took = ownTime(unix.CLOCK_THREAD_CPUTIME_ID) - began }()
	for going := true; going; {
		if err := t.sleep(); err != nil {
			return err
		}
		select {
		case <-end:
			going = false
		default:
		}
		if err := t.look(!going); err != nil {
			return err
		}
	}
	return nil
}

// sleep ends when rings are to be emptied, or what is sent as it comes is to be sent, or when it
// is over; or before, after a signal.
func (t *tracer) sleep() error {
	var all []kdev.Watched
	for _, s := range t.d.rings.sets {
		whole := 8 * s.cell.Records * s.cell.Stride()
		for cpu := range s.rings.CPUs {
			all = append(all, kdev.Watched{At: s.rings.At + isa.Addr(cpu*s.rings.Len), Room: whole - whole/watchShare})
		}
	}
	most := time.Second // that the device allows
	if t.live {
		most = sendAge
	}
	return t.d.dev.Wait(all, watchPeriod, most)
}

// ownTime is how long this process, or this thread, has run on CPUs.
func ownTime(clock int32) time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(clock, &t) // every kernel has them
	return time.Duration(t.Nano())
}

// traces reports whether a splice makes records.
func traces(l *splice.Live) bool {
	return slices.ContainsFunc(l.Plan.Snippet.Cells, func(c snippet.Cell) bool { return c.Kind == snippet.InRing })
}

// look empties all rings, and has what was in them sent when that is due: of all of them, so
// that who puts it in order knows how far it goes. Who cannot keep up makes it wait, and rings
// full, when there is twice as much as is kept otherwise.
func (t *tracer) look(last bool) error {
	at, err := t.d.dev.Stats()
	if err != nil {
		return err
	}
	r := &t.d.rings
	t.looking.Lock()
	r.drain()
	t.looking.Unlock()
	n, much := len(r.chunks), keptChunks
	if t.live {
		much = liveChunks
	}
	if !last && n < much && !(t.live && n > 0 && time.Since(t.sent) >= sendAge) {
		return nil
	}
	var ends map[*ringSet][]ringEnd
	if last {
		ends = t.ends
		r.cut(ends)
	}
	for _, c := range r.chunks {
		now, since := &c.set.readers[c.cpu], &c.set.since[c.cpu]
		end := ringEnd{now.Came, now.Lost}
		if all := ends[c.set]; len(all) > 0 {
			end = all[c.cpu]
		}
		c.head = &wire.Trace{Cpu: uint32(c.cpu), Fields: uint32(c.set.cell.Fields), Cycles: at.Cycles, Ns: at.NS,
			Came: end.came - since.Came, Lost: end.lost - since.Lost, Unfinished: end.places() - min(end.places(), now.Read)}
	}
	if last || n >= 2*keptChunks {
		t.to <- r.take()
		return nil
	}
	select {
	case t.to <- r.chunks:
		r.take()
		t.sent = time.Now()
	default: // what was given before is still being sent
	}
	return nil
}
