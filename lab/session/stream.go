package session

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"kerninst/agent/wire"
)

const (
	maxRecord  = 16 << 20  // bytes of one record
	maxRecords = 256 << 20 // bytes of all records of a run
)

// stream takes the record stream of one run: hello first, done last, sequence
// numbers from 0 by one.
type stream struct {
	records []*wire.Record
	hello   *wire.Hello
	done    *wire.Done
	fault   error // how the stream breaks the protocol; nil if it does not
	size    int
	seq     uint32 // of the next record
	parted  wire.Parted
	// follow: what rings had is not kept, since somebody else hears it, and there is no end of it.
	follow bool
}

// read takes records until the stream ends. A stream that is cut off in the
// middle of a record is no fault: its writer has died, and how is known from
// elsewhere.
func (s *stream) read(r io.Reader, on func(*wire.Record)) {
	in := bufio.NewReader(r)
	opts := protodelim.UnmarshalOptions{MaxSize: maxRecord}
	for {
		rec := &wire.Record{}
		err := opts.UnmarshalFrom(in, rec)
		if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) && s.done == nil {
			return
		}
		if err == nil {
			rec, err = s.accept(rec)
		}
		if err != nil {
			s.fault = fmt.Errorf("record %d: %w", s.seq, err)
			return
		}
		if rec != nil {
			on(rec)
		}
	}
}

// accept files a record, or says why it cannot be there. It gives it back, put together if it
// came in parts; nil: there is more of it to come.
func (s *stream) accept(rec *wire.Record) (*wire.Record, error) {
	kept := !s.follow || rec.GetTrace() == nil
	if kept {
		s.size += proto.Size(rec)
	}
	if s.size > maxRecords {
		return nil, fmt.Errorf("the records exceed %d bytes", maxRecords)
	}
	hello, done := rec.GetHello(), rec.GetDone()
	switch {
	case s.done != nil:
		return nil, errors.New("follows done, which is the last")
	case rec.Seq != s.seq:
		return nil, fmt.Errorf("has sequence number %d", rec.Seq)
	case rec.Body == nil:
		return nil, errors.New("is empty, or of a kind that this lab does not know")
	case (hello != nil) != (rec.Seq == 0):
		return nil, errors.New("hello is the first record and no other")
	}
	rec, err := s.parted.Add(rec)
	if err != nil {
		return nil, err
	}
	if hello != nil {
		s.hello = hello
	}
	if done != nil {
		s.done = done
	}
	if s.seq++; kept && rec != nil {
		s.records = append(s.records, rec)
	}
	return rec, nil
}
