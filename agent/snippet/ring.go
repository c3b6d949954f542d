package snippet

import (
	"math/bits"
	"sync/atomic"
)

// A ring is memory that patches fill with records and a reader empties meanwhile. Its cell says
// where it is. It is, in words, the state, what is added to that for one record more, RingHead
// words in all until the records, and then those: each its stamp, which is made of the time as
// Cycles has it and of the tag of who wrote it, and its fields; or, where there are no fields,
// one word with the tag alone, so that it says that somebody came by, and between whom, and
// nothing else. The stamp, or that word, is written last, is never 0, and is made 0 when the record
// was read: what has none is being written.
//
// The state's lower half counts, from its bit Low on, the records that were given away: modulo
// 2^(32-Low), which is as many as the ring has, or a multiple of that. The upper half, which has a
// sign, is how many bytes there are too few of for one more: it is negative as long as there is
// room. Both are changed by the one atomic addition that reserves a record, so that who gets a
// state with a sign has his place, which nobody else has, and who gets one without knows that he
// has none, and is counted: what is lost is what the upper half is more than nothing. Which
// state's sign that is, the one before or the one behind the addition, and where the count
// begins, is what serves an ISA best (Form in agent/gen). The reader gives what it has emptied
// back by comparing and exchanging the state, so it knows of each place that was given away
// whether somebody has it. Nobody waits, whoever is interrupted where: a record that is not
// written to its end holds back those behind it, and in the end the room, but no writer. What is
// not to be overwritten is kept, and the newest is lost: of an old record that its writer, who
// was away for a whole round, finishes at last, nothing could say to which it belongs.
//
// The count carries into the upper half, once in a round at the most: that is a byte's room
// less, of which a record has 8 at least, and there are no two rounds of places between two
// times at which the reader sets it right. How many were asked for is known exactly all the
// same: a state grows by a multiple of one odd number (see Times). The reader has to look before
// 2^31 bytes have been asked for since it did: then the upper half has a sign again.

// ringWords is a cell that leads to a ring: where it is, and the tag's part of a stamp.
const ringWords = 2

// RingHead is where a ring's records are, in words behind its state; RingStep is where it says
// what Step is.
const (
	RingHead = 8
	RingStep = 1
)

// Step is what is added to a ring's state for one record.
func (c Cell) Step() uint64 { return uint64(c.size())<<32 | 1<<c.Ring.Low }

// size is how many bytes a record takes.
func (c Cell) size() uint32 { return uint32(8 * c.Stride()) }

// RingWords is how large a ring is.
func (c Cell) RingWords() int { return RingHead + c.Records*c.Stride() }

// StartRing makes a ring of memory that is all 0, in which the first given records are taken
// to have been read.
func (c Cell) StartRing(ring []uint64, given uint64) {
	ring[0], ring[RingStep] = c.state(given, uint64(c.Records)), c.Step()
}

// state is that of a ring of which so many records were given away, with room for so many.
func (c Cell) state(given, room uint64) uint64 {
	if c.Ring.After {
		room++ // the last one's sign is gone when it has been added
	}
	return uint64(-uint32(room)*c.size())<<32 | given%uint64(c.Records)<<c.Ring.Low
}

// taken is where in a ring the record is that the addition to a state reserves; ok is false if
// there was no room.
func (c Cell) taken(old uint64) (at int, ok bool) {
	signed := old
	if c.Ring.After {
		signed += c.Step()
	}
	return RingHead + int(old>>c.Ring.Low)&(c.Records-1)*c.Stride(), int64(signed) < 0
}

// Times is how often a unit was added to what was 0: the sum divided by the unit in 2-adic
// arithmetic, certain modulo 2^(64-z), where z zeros end the unit.
func Times(sum, unit uint64) uint64 {
	z := bits.TrailingZeros64(unit)
	odd := unit >> z
	inverse := odd // of the low three bits; each step doubles them (Newton)
	for range 5 {
		inverse *= 2 - odd*inverse
	}
	return sum >> z * inverse << z >> z
}

// Ring says where a cell's ring is, and who writes to it. It is not in the textual form: where
// there are rings, the daemon knows.
type Ring struct {
	// At is the address of the ring's state; with Each every CPU has a ring of its own, and it
	// is where the address is found: in per-CPU memory, on riscv64 in a list by CPU.
	At   uint64
	Each bool
	Tag  uint16 // tells the writers of one ring apart: not 0
	CPU  int32  // riscv64, with Each: where in a task the number of its CPU is
	// Low is the bit from which on a state counts records. After says that who has a place is
	// known by the sign behind the addition, not before it.
	Low   uint8
	After bool
}

// tagShift is where in a stamp the tag is.
const tagShift = 48

// stamp is a record's first word, where tags are added to the time. Some ISAs put them there
// in place of its upper bits: see Stamp.
func (r Ring) stamp() uint64 { return uint64(r.Tag) << tagShift }

// wordShift is where the tag is in a record that is nothing else.
const wordShift = 16

// Word is a record without a time: the tag, where each ISA can store it in one instruction.
func (r Ring) Word() uint64 { return uint64(int32(uint32(r.Tag) << wordShift)) }

// Tag is the tag in such a record. What is above it says nothing.
func Tag(word uint64) uint16 { return uint16(word >> wordShift) }

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
	at, ok := c.taken(atomic.AddUint64(&ring[0], c.Step()) - c.Step())
	if !ok {
		return false
	}
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

	at     uint64 // the next record to be read, of those that were asked for
	state  uint64 // that was left when room was last made,
	room   uint64 // for how many records there was then
	holes  []hole // given to nobody, behind at
	opened bool
}

// Unfinished is how many records somebody has a place for and has not written to the end.
// What is behind the first of them counts as such, too.
func (r *Reader) Unfinished() uint64 { return r.Came - r.Lost - r.Read }

// Now is how many records have been asked for until now, and for how many of those there was no room.
func (r *Reader) Now(c Cell, ring []uint64) (came, lost uint64) {
	state, room := r.state, r.room
	if !r.opened {
		room = uint64(c.Records)
		state = c.state(0, room)
	}
	asked := Times(atomic.LoadUint64(&ring[0])-state, c.Step())
	return r.Came + asked, r.Lost + asked - min(asked, room)
}

// hole is a part of a ring that nobody writes to, before it comes round again.
type hole struct{ from, to uint64 }

// Drain appends the records that are whole to out, as far as it has room for them, in the order
// in which they were asked for, each its stamp and its fields; and makes room for as many.
func (r *Reader) Drain(c Cell, ring, out []uint64) []uint64 {
	whole := uint64(c.Records)
	if !r.opened {
		r.opened, r.room, r.state = true, whole, c.state(0, whole)
	}
	for {
		old := atomic.LoadUint64(&ring[0])
		asked := Times(old-r.state, c.Step())
		had := min(asked, r.room)
		came, end := r.Came+asked, r.Came+had // end of what has places
		out = r.read(c, ring, end, out)
		if asked == 0 && r.room == whole {
			return out
		}
		at := r.at
		if at == end { // what is lost is skipped at once
			at = came
		}
		room := whole - min(whole, came-at)
		state := c.state(came, room)
		if !atomic.CompareAndSwapUint64(&ring[0], old, state) {
			continue // more came
		}
		if asked > had && at != came {
			r.holes = append(r.holes, hole{end, came})
		}
		r.Came, r.Lost = came, r.Lost+asked-had
		r.at, r.state, r.room = at, state, room
		return out
	}
}

// read goes on to the first record that is being written, or to the end, or until out is full.
func (r *Reader) read(c Cell, ring []uint64, end uint64, out []uint64) []uint64 {
	whole, words := uint64(c.Records), 1+c.Fields
	for r.skip(); r.at != end; r.skip() {
		to := end // or the next hole, or where the ring goes round
		if len(r.holes) > 0 {
			to = r.holes[0].from
		}
		at := r.at % whole
		n := int(min(to-r.at, whole-at, uint64((cap(out)-len(out))/words)))
		read := 0
		out, read = readRun(ring[RingHead+int(at)*c.Stride():], n, c.Stride(), words, out)
		r.Read, r.at = r.Read+uint64(read), r.at+uint64(read)
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
	if words == 1 && stride == 1 {
		return readWords(from[:n], out)
	}
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

// readWords is readRun of records that are their stamps alone: a patch for these is a handful of
// instructions, and to read one is not to be many times that.
func readWords(from, out []uint64) ([]uint64, int) {
	to := out[len(out) : len(out)+len(from)]
	for k := range to {
		stamp := atomic.LoadUint64(&from[k])
		if stamp == 0 {
			return out[:len(out)+k], k
		}
		to[k] = stamp
		atomic.StoreUint64(&from[k], 0)
	}
	return out[:len(out)+len(from)], len(from)
}

// skip passes what was given to nobody.
func (r *Reader) skip() {
	for len(r.holes) > 0 && r.holes[0].from == r.at {
		r.at, r.holes = r.holes[0].to, r.holes[1:]
	}
}
