package daemon

import (
	"bufio"
	"io"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"kerninst/agent/wire"
)

// stream numbers records and writes each whole.
type stream struct {
	mu    sync.Mutex
	w     *bufio.Writer
	seq   uint32
	start time.Time
}

func newStream(w io.Writer) *stream {
	return &stream{w: bufio.NewWriterSize(w, 64<<10), start: boot}
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
	rec.Seq = s.seq
	rec.Vns = uint64(time.Since(s.start))
	s.seq++
	if _, err := marshal.MarshalTo(s.w, rec); err != nil {
		return err
	}
	return s.w.Flush()
}

// log says something to people; a broken stream is found by the next result.
func (s *stream) log(text string) {
	_ = s.send(&wire.Record{Body: &wire.Record_Log{Log: &wire.Log{Text: text}}})
}
