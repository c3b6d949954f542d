package daemon

import (
	"bufio"
	"bytes"
	"io"
	"testing"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"kerninst/agent/wire"
)

// TestTraceMessage: records that are sent as they are arrive as if the message had been made
// as others are, between those.
func TestTraceMessage(t *testing.T) {
	var b bytes.Buffer
	s := newStream(&b)
	heads := []*wire.Trace{{}, {Cpu: 3, Fields: 2, Cycles: 1 << 63, Ns: 5, Came: 300, Lost: 1, Unfinished: 2}}
	all := [][]byte{nil, bytes.Repeat([]byte{1, 2, 3, 0}, 200), bytes.Repeat([]byte{0xff}, 128<<10)}
	var want []*wire.Record
	for _, head := range heads {
		for _, records := range all {
			s.log("before")
			if err := s.trace(proto.CloneOf(head), records); err != nil {
				t.Fatal(err)
			}
			x := proto.CloneOf(head)
			x.Records = records
			want = append(want, &wire.Record{Body: &wire.Record_Log{Log: &wire.Log{Text: "before"}}}, &wire.Record{Body: &wire.Record_Trace{Trace: x}})
		}
	}
	in := bufio.NewReader(&b)
	for k, w := range want {
		got := &wire.Record{}
		if err := protodelim.UnmarshalFrom(in, got); err != nil {
			t.Fatalf("record %d: %v", k, err)
		}
		w.Seq, w.Vns = uint32(k), got.Vns
		if !proto.Equal(got, w) {
			t.Errorf("record %d: %.200v, want %.200v", k, got, w)
		}
	}
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("there is more: %v", err)
	}
}

// TestLongResult: a result that is longer than a record may be is sent in several, and put
// together it is what it was.
func TestLongResult(t *testing.T) {
	var b bytes.Buffer
	s := newStream(&b)
	want := &wire.Result{Step: "s", Runs: []*wire.RunResult{{Exit: 1}}}
	for k := range 100000 {
		want.Points = append(want.Points, &wire.PointResult{Address: uint64(k) << 40, Mechanism: "springboard"})
	}
	s.log("before")
	if err := s.result(want); err != nil {
		t.Fatal(err)
	}
	s.log("behind")
	var parted wire.Parted
	var got []*wire.Record
	in, opts := bufio.NewReader(&b), protodelim.UnmarshalOptions{MaxSize: wire.MostPart + 100}
	for seq := uint32(0); ; seq++ {
		rec := &wire.Record{}
		if err := opts.UnmarshalFrom(in, rec); err == io.EOF {
			break
		} else if err != nil || rec.Seq != seq {
			t.Fatalf("record %d: %v, %d", seq, err, rec.Seq)
		}
		if whole, err := parted.Add(rec); err != nil {
			t.Fatal(err)
		} else if whole != nil {
			got = append(got, whole)
		}
	}
	if len(got) != 3 || !proto.Equal(got[1].GetResult(), want) {
		t.Errorf("%d records, the second: %.200v", len(got), got[1])
	}
}
