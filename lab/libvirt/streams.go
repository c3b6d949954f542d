package libvirt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// libvirt's protocol sends a file as a stream of packets behind the call that asks for it
// (libvirt.org/kbase/internals/rpc.html), and go-libvirt does not keep to it in two points. It takes
// the first packet for the answer to its call, though libvirtd, whose threads do the one and the
// other, may send of the stream first. And it does not say that it has seen the end, so that libvirtd
// keeps the file open as long as the connection. A connection that is wrapped in orderly has neither:
// what comes of a stream waits for the answer to its call, and its end is answered.
type orderly struct {
	net.Conn

	in   []byte // packets in order, not yet read
	open map[uint32]*stream

	out     sync.Mutex
	head    []byte   // of the packet that is being written, as long as its length is not known
	left    int      // bytes of it that are still to be written
	between [][]byte // packets to be written behind it
}

// stream is one that libvirtd sends, by the serial number of its call.
type stream struct {
	answered bool
	held     [][]byte // what came before the answer
	waiting  int      // bytes of that
	ended    bool     // its end has been answered, and that will be, which nobody waits for
}

// A packet is its length of four bytes, and six words: program, its version, procedure, type,
// serial number and status. All are big-endian.
const (
	lengthSize  = 4
	headerSize  = lengthSize + 6*4
	atProcedure = 12
	atType      = 16
	atSerial    = 20
	atStatus    = 24
	// maxPacket is the longest that libvirt sends, in bytes (VIR_NET_MESSAGE_MAX).
	maxPacket = 32<<20 + lengthSize
)

// Types and statuses of packets (virnetprotocol.x).
const (
	typeReply    = 1
	typeStream   = 3
	statusOK     = 0
	statusGoesOn = 2
)

// downloads is the number of the call that streams a volume (remote_protocol.x).
const downloads = 209

func newOrderly(c net.Conn) *orderly { return &orderly{Conn: c, open: map[uint32]*stream{}} }

// Read is for one reader.
func (o *orderly) Read(p []byte) (int, error) {
	for len(o.in) == 0 {
		packet, err := o.next()
		if err != nil {
			return 0, err
		}
		if err := o.sort(packet); err != nil {
			return 0, err
		}
	}
	n := copy(p, o.in)
	o.in = o.in[n:]
	return n, nil
}

// next reads a packet.
func (o *orderly) next() ([]byte, error) {
	packet := make([]byte, lengthSize, headerSize)
	if _, err := io.ReadFull(o.Conn, packet); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(packet)
	if n < headerSize || n > maxPacket {
		return nil, fmt.Errorf("libvirtd sends a packet of %d bytes", n)
	}
	packet = append(packet, make([]byte, n-lengthSize)...)
	_, err := io.ReadFull(o.Conn, packet[lengthSize:])
	return packet, err
}

func word(packet []byte, at int) uint32 { return binary.BigEndian.Uint32(packet[at:]) }

// sort puts a packet, and what has waited for it, behind those that are to be read.
func (o *orderly) sort(packet []byte) error {
	serial := word(packet, atSerial)
	if word(packet, atProcedure) != downloads {
		o.in = append(o.in, packet...)
		return nil
	}
	s := o.open[serial]
	if s == nil {
		s = &stream{}
		o.open[serial] = s
	}
	switch kind := word(packet, atType); {
	case kind == typeReply:
		s.answered = true
		o.in = append(o.in, packet...)
		if word(packet, atStatus) != statusOK {
			delete(o.open, serial)
			return nil
		}
		held := s.held
		s.held = nil
		for _, p := range held {
			if err := o.pass(s, p); err != nil {
				return err
			}
		}
	case kind == typeStream && !s.answered:
		if s.waiting += len(packet); s.waiting > maxPacket {
			return errors.New("libvirtd sends a stream and does not answer the call for it")
		}
		s.held = append(s.held, packet)
	case kind == typeStream:
		return o.pass(s, packet)
	}
	return nil
}

// pass hands a stream's packet on. An empty one is the last: it is answered, and so will that be.
func (o *orderly) pass(s *stream, packet []byte) error {
	serial, status := word(packet, atSerial), word(packet, atStatus)
	switch {
	case s.ended:
		delete(o.open, serial)
		return nil
	case status == statusGoesOn && len(packet) == headerSize:
		s.ended = true
		o.in = append(o.in, packet...)
		seen := append([]byte(nil), packet...)
		binary.BigEndian.PutUint32(seen[atStatus:], statusOK)
		return o.put(seen)
	case status != statusGoesOn: // it was broken off
		delete(o.open, serial)
	}
	o.in = append(o.in, packet...)
	return nil
}

// put writes a packet of our own, behind the one that is being written.
func (o *orderly) put(packet []byte) error {
	o.out.Lock()
	defer o.out.Unlock()
	if o.left > 0 || len(o.head) > 0 {
		o.between = append(o.between, packet)
		return nil
	}
	_, err := o.Conn.Write(packet)
	return err
}

// Write writes what may be part of a packet, or parts of several.
func (o *orderly) Write(p []byte) (n int, err error) {
	o.out.Lock()
	defer o.out.Unlock()
	for len(p) > 0 && err == nil {
		piece := o.piece(p)
		var m int
		m, err = o.Conn.Write(p[:piece])
		n += m
		p = p[piece:]
		for o.left == 0 && len(o.head) == 0 && len(o.between) > 0 && err == nil {
			_, err = o.Conn.Write(o.between[0])
			o.between = o.between[1:]
		}
	}
	return n, err
}

// piece is how many of some bytes belong to the packet that is being written.
func (o *orderly) piece(p []byte) int {
	if o.left > 0 {
		n := min(o.left, len(p))
		o.left -= n
		return n
	}
	n := min(lengthSize-len(o.head), len(p))
	o.head = append(o.head, p[:n]...)
	if len(o.head) == lengthSize {
		o.left = max(0, int(binary.BigEndian.Uint32(o.head))-lengthSize)
		o.head = o.head[:0]
	}
	return n
}
