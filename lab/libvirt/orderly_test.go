package libvirt

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"
)

func packetOf(procedure, kind, serial, status uint32, payload string) []byte {
	p := binary.BigEndian.AppendUint32(nil, uint32(headerSize+len(payload)))
	for _, w := range []uint32{0x20008086, 1, procedure, kind, serial, status} {
		p = binary.BigEndian.AppendUint32(p, w)
	}
	return append(p, payload...)
}

const (
	statusError = 1
	events      = 315
)

// A stream's packets come behind the answer to its call, whatever else comes between, and its end is
// answered once.
func TestOrderly(t *testing.T) {
	reply := packetOf(downloads, typeReply, 7, statusOK, "")
	failed := packetOf(downloads, typeReply, 7, statusError, "no")
	data, more := packetOf(downloads, typeStream, 7, statusGoesOn, "data"), packetOf(downloads, typeStream, 7, statusGoesOn, "more")
	end, broken := packetOf(downloads, typeStream, 7, statusGoesOn, ""), packetOf(downloads, typeStream, 7, statusError, "broken")
	seen := packetOf(downloads, typeStream, 7, statusOK, "")
	other, event := packetOf(downloads, typeReply, 8, statusOK, ""), packetOf(events, 2, 0, statusOK, "event")
	for name, tt := range map[string]struct{ in, want, said [][]byte }{
		"in order":          {[][]byte{reply, data, more, end, seen}, [][]byte{reply, data, more, end}, [][]byte{seen}},
		"data first":        {[][]byte{data, reply, more, end, seen}, [][]byte{reply, data, more, end}, [][]byte{seen}},
		"all first":         {[][]byte{data, more, end, event, reply, seen, event}, [][]byte{event, reply, data, more, end, event}, [][]byte{seen}},
		"another's":         {[][]byte{data, other, reply, end}, [][]byte{other, reply, data, end}, [][]byte{seen}},
		"refused":           {[][]byte{failed, event}, [][]byte{failed, event}, nil},
		"broken off":        {[][]byte{reply, data, broken}, [][]byte{reply, data, broken}, nil},
		"broken off first":  {[][]byte{broken, reply}, [][]byte{reply, broken}, nil},
		"broken at its end": {[][]byte{reply, end, broken, event}, [][]byte{reply, end, event}, [][]byte{seen}},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			o := newOrderly(ours)
			said := make(chan []byte)
			go func() {
				b, _ := io.ReadAll(theirs)
				said <- b
			}()
			go func() {
				theirs.Write(bytes.Join(tt.in, nil))
			}()
			want := bytes.Join(tt.want, nil)
			got := make([]byte, len(want))
			if _, err := io.ReadFull(o, got); err != nil || !bytes.Equal(got, want) {
				t.Errorf("read %q, %v, want %q", got, err, want)
			}
			ours.Close()
			if b := <-said; !bytes.Equal(b, bytes.Join(tt.said, nil)) {
				t.Errorf("said %q, want %q", b, tt.said)
			}
			for serial, s := range o.open {
				if len(s.held) > 0 {
					t.Errorf("packets of stream %d wait for ever", serial)
				}
			}
		})
	}
}

// What is said of a stream's end comes between packets, not in one.
func TestOrderlyBetween(t *testing.T) {
	first, second := packetOf(1, 0, 1, 0, "a call of some length"), packetOf(1, 0, 2, 0, "")
	mine := packetOf(downloads, typeStream, 7, statusOK, "")
	for at := 1; at < len(first); at++ {
		ours, theirs := net.Pipe()
		said := make(chan []byte)
		go func() {
			b, _ := io.ReadAll(theirs)
			said <- b
		}()
		o := newOrderly(ours)
		ours.SetDeadline(time.Now().Add(time.Minute))
		o.Write(first[:at])
		o.put(mine)
		if n, err := o.Write(append(append([]byte(nil), first[at:]...), second...)); n != len(first)-at+len(second) || err != nil {
			t.Errorf("wrote %d, %v", n, err)
		}
		ours.Close()
		if b, want := <-said, bytes.Join([][]byte{first, mine, second}, nil); !bytes.Equal(b, want) {
			t.Fatalf("split at %d: said %q, want %q", at, b, want)
		}
	}
}

// A length that is none ends the connection.
func TestOrderlyRefuses(t *testing.T) {
	for _, n := range []uint32{0, headerSize - 1, maxPacket + 1} {
		ours, theirs := net.Pipe()
		go theirs.Write(binary.BigEndian.AppendUint32(nil, n))
		if _, err := newOrderly(ours).Read(make([]byte, 1)); err == nil {
			t.Errorf("a packet of %d bytes was read", n)
		}
	}
}
