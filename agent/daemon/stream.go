package daemon

import (
	"bufio"
	"io"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"kerninst/agent/wire"
)

// stream numbers records and writes each whole.
type stream struct {
	mu    sync.Mutex
	w     *bufio.Writer
	to    io.Writer // behind it
	seq   uint32
	start time.Time
}

func newStream(w io.Writer) *stream {
	return &stream{w: bufio.NewWriterSize(w, 64<<10), to: w, start: boot}
}

// boot is when this process started; records carry the time since.
var boot = time.Now()

// marshal is deterministic, so that two equal runs send equal bytes.
var marshal = protodelim.MarshalOptions{MarshalOptions: proto.MarshalOptions{Deterministic: true}}

// send fills in what every record has and writes it. It returns when the
// record has left the process.
func (s *stream) send(rec *wire.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.write(rec)
}

// result sends what a step found, in as many records as it takes, with nothing in between.
func (s *stream) result(res *wire.Result) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, part := range wire.Parts(res, wire.MostPart) {
		if err := s.write(&wire.Record{Body: &wire.Record_Result{Result: part}}); err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) write(rec *wire.Record) error {
	rec.Seq = s.seq
	rec.Vns = uint64(time.Since(s.start))
	s.seq++
	if _, err := marshal.MarshalTo(s.w, rec); err != nil {
		return err
	}
	return s.w.Flush()
}

// trace sends records as they are, which are not copied for that: the message is made of what
// goes before them. x has none.
func (s *stream) trace(x *wire.Trace, records []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	inner, err := proto.Marshal(x)
	if err != nil {
		return err
	}
	if len(records) > 0 { // the field of that number
		inner = protowire.AppendTag(inner, 3, protowire.BytesType)
		inner = protowire.AppendVarint(inner, uint64(len(records)))
	}
	outer, err := proto.Marshal(&wire.Record{Seq: s.seq, Vns: uint64(time.Since(s.start))})
	if err != nil {
		return err
	}
	outer = protowire.AppendTag(outer, 9, protowire.BytesType)
	outer = protowire.AppendVarint(outer, uint64(len(inner)+len(records)))
	s.seq++
	s.w.Write(protowire.AppendVarint(nil, uint64(len(outer)+len(inner)+len(records))))
	s.w.Write(outer)
	s.w.Write(inner) // the first error stays
	if err := s.w.Flush(); err != nil {
		return err
	}
	_, err = s.to.Write(records)
	return err
}

// log says something to people; a broken stream is found by the next result.
func (s *stream) log(text string) {
	_ = s.send(&wire.Record{Body: &wire.Record_Log{Log: &wire.Log{Text: text}}})
}
