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
			err = s.accept(rec)
		}
		if err != nil {
			s.fault = fmt.Errorf("record %d: %w", s.seq, err)
			return
		}
		on(rec)
	}
}

// accept files a record, or says why it cannot be there.
func (s *stream) accept(rec *wire.Record) error {
	kept := !s.follow || rec.GetTrace() == nil
	if kept {
		s.size += proto.Size(rec)
	}
	if s.size > maxRecords {
		return fmt.Errorf("the records exceed %d bytes", maxRecords)
	}
	hello, done := rec.GetHello(), rec.GetDone()
	switch {
	case s.done != nil:
		return errors.New("follows done, which is the last")
	case rec.Seq != s.seq:
		return fmt.Errorf("has sequence number %d", rec.Seq)
	case rec.Body == nil:
		return errors.New("is empty, or of a kind that this lab does not know")
	case (hello != nil) != (rec.Seq == 0):
		return errors.New("hello is the first record and no other")
	}
	if hello != nil {
		s.hello = hello
	}
	if done != nil {
		s.done = done
	}
	if s.seq++; kept {
		s.records = append(s.records, rec)
	}
	return nil
}
