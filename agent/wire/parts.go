package wire

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// What a step found may be as long as it has points, and a record may not: who reads one has to
// hold all of it, from a writer that is not trusted. So a long result goes in several, of which
// each but the last says that there is more. Only lists are taken apart; everything else is in
// the last part.

// MostPart is how long a part of a result is at most, in bytes, unless it is a single element of
// a list.
const MostPart = 1 << 20

// Parts takes a result apart, in order. Put together by Parted they are what it was.
func Parts(res *Result, most int) []*Result {
	if proto.Size(res) <= most {
		return []*Result{res}
	}
	t := taken{step: res.Step, most: most}
	last, all := t.begin(), res.ProtoReflect()
	fields := all.Descriptor().Fields() // in the file's order, which Range's is not
	for k := range fields.Len() {
		f := fields.Get(k)
		switch {
		case !all.Has(f):
		case f.IsList():
			t.list(f, all.Get(f).List())
		default:
			last.ProtoReflect().Set(f, all.Get(f))
		}
	}
	return append(t.parts, last)
}

// taken is what has been taken from a result's lists.
type taken struct {
	step  string
	most  int
	parts []*Result
	size  int // of the last part
}

func (t *taken) begin() *Result { return &Result{Step: t.step} }

// list goes on with the elements of a list, in the last part or in a new one.
func (t *taken) list(f protoreflect.FieldDescriptor, l protoreflect.List) {
	for k := range l.Len() {
		n := sizeOf(f, l.Get(k))
		if len(t.parts) == 0 || t.size+n > t.most {
			part := t.begin()
			part.More = true
			t.parts, t.size = append(t.parts, part), proto.Size(part)
		}
		t.parts[len(t.parts)-1].ProtoReflect().Mutable(f).List().Append(l.Get(k))
		t.size += n
	}
}

// Of an element of a list that is a number, and of what precedes one that is a message or a
// string, in bytes at the most.
const (
	numberLen = 20
	headLen   = 10
)

// sizeOf is how long an element of a list is, or less.
func sizeOf(f protoreflect.FieldDescriptor, v protoreflect.Value) int {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return headLen + proto.Size(v.Message().Interface())
	case protoreflect.StringKind:
		return headLen + len(v.String())
	case protoreflect.BytesKind:
		return headLen + len(v.Bytes())
	}
	return numberLen
}

// Parted puts together what comes in parts. The zero Parted has none.
type Parted struct{ begun *Record }

// Add takes the next record of a stream, and gives it back, with what came before if it is the
// rest of something; nil: there is more to come.
func (p *Parted) Add(rec *Record) (*Record, error) {
	res := rec.GetResult()
	if p.begun != nil {
		so := p.begun.GetResult()
		if res == nil || res.Step != so.Step {
			return nil, fmt.Errorf("is not the rest of the result of step %q", so.Step)
		}
		so.More = false // as the last part has it
		proto.Merge(so, res)
		rec, p.begun = p.begun, nil
	}
	if rec.GetResult().GetMore() {
		p.begun, rec = rec, nil
	}
	return rec, nil
}
