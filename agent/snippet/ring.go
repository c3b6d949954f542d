package snippet

import "sync/atomic"

// A ring is memory that patches fill with records and a reader empties meanwhile. Its cell says
// where it is and what is added to its state for one record more. It is, in words, the state,
// RingHead words in all until the records, and then those: each its stamp, which is made of
// the time as Cycles has it and of the tag of who wrote it, and its fields. The stamp is
// written last, and back to 0 when the record was read: what has none is being written.
//
// The state's lower half is how far records have been given away, in bytes modulo 2^32; the
// upper half, which has a sign, is how many bytes there are too few of for one more: it is
// negative as long as there is room. Both are changed by the one atomic addition that
// reserves a record, so that who gets an old state with a sign has his place, which nobody
// else has, and who gets one without knows that he has none, and is counted: what is lost is
// what the upper half is more than nothing. The reader gives what it has emptied back by
// comparing and exchanging the state, so it knows of each place that was given away whether
// somebody has it. Nobody waits, whoever is interrupted where: a record that is not written
// to its end holds back those behind it, and in the end the room, but no writer. What is not
// to be overwritten is kept, and the newest is lost: of an old record that its writer, who
// was away for a whole round, finishes at last, nothing could say to which it belongs.
//
// Additions may carry from the lower half into the upper, once in 2^32 bytes: a byte's room
// more or less, of which a record has 16 at least, until the reader sets it right. He has to
// look before 2^31 bytes have been asked for since he did: then the upper half has a sign again.

// ringWords is a cell that leads to a ring.
const ringWords = 3

// RingHead is where a ring's records are, in words behind its state.
const RingHead = 8

// Step is what is added to a ring's state for one record.
func (c Cell) Step() uint64 { return uint64(c.size())<<32 | uint64(c.size()) }

// size is how many bytes a record takes.
func (c Cell) size() uint32 { return uint32(8 * c.Stride()) }

// RingWords is how large a ring is.
func (c Cell) RingWords() int { return RingHead + c.Records*c.Stride() }

// RingMask takes the distance from the first record out of a state.
func (c Cell) RingMask() uint64 { return uint64(c.Records)*uint64(c.size()) - 1 }

// RingStart is the state of a ring that is empty. All else is 0.
func (c Cell) RingStart() uint64 { return state(0, uint32(c.Records)*c.size()) }

// state is that of a ring which was given away until at, with room for so many bytes.
func state(at, room uint32) uint64 { return uint64(-room)<<32 | uint64(at) }

// Ring says where a cell's ring is, and who writes to it. It is not in the textual form: where
// there are rings, the daemon knows.
type Ring struct {
	// At is the address of the ring's state; with Each every CPU has a ring of its own, and it
	// is where the address is found: in per-CPU memory, on riscv64 in a list by CPU.
	At   uint64
	Each bool
	Tag  uint16 // tells the writers of one ring apart: not 0
	CPU  int32  // riscv64, with Each: where in a task the number of its CPU is
}

// tagShift is where in a stamp the tag is.
const tagShift = 48

// stamp is a record's first word, where tags are added to the time. Some ISAs put them there
// in place of its upper bits: see Stamp.
func (r Ring) stamp() uint64 { return uint64(r.Tag) << tagShift }

// Stamp takes a stamp apart, which was made within 2^47 cycles of now. over says that the tag
// replaces the time's upper bits; else it is added to them.
func Stamp(stamp, now uint64, over bool) (tag uint16, time uint64) {
	if over {
		tag = uint16(stamp >> tagShift)
		return tag, now + uint64(int64((stamp-now)<<(64-tagShift))>>(64-tagShift))
	}
	tag = uint16((stamp - now + 1<<(tagShift-1)) >> tagShift)
	return tag, stamp - uint64(tag)<<tagShift
}

// Append writes a record into a ring, as generated code does, and reports whether there was
// room.
func (c Cell) Append(ring []uint64, stamp uint64, fields []uint64) bool {
	old := atomic.AddUint64(&ring[0], c.Step()) - c.Step()
	if int64(old) >= 0 {
		return false
	}
	at := RingHead + int(uint32(old)/c.size())%c.Records*c.Stride()
	for k, f := range fields {
		atomic.StoreUint64(&ring[at+1+k], f)
	}
	atomic.StoreUint64(&ring[at], stamp)
	return true
}

// Reader empties a ring. The zero value is at the begin of one that has just been made.
type Reader struct {
	Came uint64 // records that were asked for so far
	Lost uint64 // of those, what came when there was no room
	Read uint64 // of those, what was read

	at     uint32 // where the next record to be read is
	given  uint32 // until where the state was given away when room was last made,
	room   uint32 // and how much there was then
	holes  []hole // given to nobody, behind at
	opened bool
}

// Unfinished is how many records somebody has a place for and has not written to the end.
// What is behind the first of them counts as such, too.
func (r *Reader) Unfinished() uint64 { return r.Came - r.Lost - r.Read }

// hole is a part of a ring that nobody writes to, before it comes round again.
type hole struct{ from, to uint32 }

// Drain appends the records that are whole to out, as far as it has room for them, in the order
// in which they were asked for, each its stamp and its fields; and makes room for as many.
func (r *Reader) Drain(c Cell, ring, out []uint64) []uint64 {
	whole := uint32(c.Records) * c.size()
	if !r.opened {
		r.opened, r.room = true, whole
	}
	for {
		old := atomic.LoadUint64(&ring[0])
		asked := uint32(old) - r.given
		had := min(asked, r.room)
		end := r.given + had // of what has places
		out = r.read(c, ring, end, out)
		if asked == 0 && r.room == whole {
			return out
		}
		at := r.at
		if at == end { // what is lost is skipped at once
			at = uint32(old)
		}
		room := whole - min(whole, uint32(old)-at)
		if !atomic.CompareAndSwapUint64(&ring[0], old, state(uint32(old), room)) {
			continue // more came
		}
		if asked > had && at != uint32(old) {
			r.holes = append(r.holes, hole{end, uint32(old)})
		}
		r.Came += uint64(asked / c.size())
		r.Lost += uint64((asked - had) / c.size())
		r.at, r.given, r.room = at, uint32(old), room
		return out
	}
}

// read goes on to the first record that is being written, or to the end, or until out is full.
func (r *Reader) read(c Cell, ring []uint64, end uint32, out []uint64) []uint64 {
	size, mask, words := c.size(), uint32(c.RingMask()), 1+c.Fields
	for r.skip(); r.at != end; r.skip() {
		to := end // or the next hole, or where the ring goes round
		if len(r.holes) > 0 {
			to = r.holes[0].from
		}
		n := min(int(to-r.at)/int(size), c.Records-int(r.at&mask/size), (cap(out)-len(out))/words)
		read := 0
		out, read = readRun(ring[RingHead+r.at&mask/8:], n, c.Stride(), words, out)
		r.Read, r.at = r.Read+uint64(read), r.at+uint32(read)*size
		if read < n || n == 0 {
			break
		}
	}
	return out
}

// readRun reads n records that lie behind each other, or those before one that is being
// written. Nobody writes to one that has a stamp. It is what a record takes a daemon, so it
// keeps to indices.
func readRun(from []uint64, n, stride, words int, out []uint64) ([]uint64, int) {
	to, all := len(out), out[:cap(out)]
	for k, at := 0, 0; k < n; k, at = k+1, at+stride {
		stamp := atomic.LoadUint64(&from[at])
		if stamp == 0 {
			n = k
			break
		}
		all[to] = stamp
		for f := 1; f < words; f++ {
			all[to+f] = from[at+f]
		}
		to += words
		atomic.StoreUint64(&from[at], 0)
	}
	return all[:to], n
}

// skip passes what was given to nobody.
func (r *Reader) skip() {
	for len(r.holes) > 0 && r.holes[0].from == r.at {
		r.at, r.holes = r.holes[0].to, r.holes[1:]
	}
}
