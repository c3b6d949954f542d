package runner

import (
	"time"

	"google.golang.org/protobuf/proto"

	"kerninst/agent/wire"
	"kerninst/images"
)

// Own is what a user wants of every guest, beside what its request says.
type Own struct {
	CPUs   int // at least; 0: as the request says
	MemMiB int // 0: as the request says
	// Timeout limits, in guest time, each program that has no limit of its own;
	// 0: none. Who sets it has to see to RunTimeout, which is host time.
	Timeout    time.Duration
	RunTimeout time.Duration
	Files      []images.File // added to the initramfs
	FilesAgain bool          // Request.FilesAgain, for requests that have no files of their own
	Fetch      []Fetch       // taken from the guest when it has done its job
}

// of is the request with the user's wishes in it.
func (o Own) of(q Request) Request {
	q.CPUs = max(q.CPUs, o.CPUs)
	if o.MemMiB > 0 {
		q.MemMiB = o.MemMiB
	}
	if len(o.Files) > 0 {
		q.FilesAgain = o.FilesAgain && len(q.Files) == 0
		q.Files = append(append([]images.File(nil), q.Files...), o.Files...)
	}
	if q.Job = proto.CloneOf(q.Job); q.Job == nil { // it is made later
		q.Job = &wire.Job{}
	}
	for _, f := range o.Fetch {
		q.Job.Fetch = append(q.Job.Fetch, f.Guest)
	}
	if o.Timeout == 0 {
		return q
	}
	q.RunTimeout = o.RunTimeout
	for _, s := range q.Job.GetSteps() {
		if run := s.GetRun(); run != nil && run.TimeoutNs == 0 {
			run.TimeoutNs = uint64(o.Timeout)
		}
	}
	return q
}

// TimedOut is the first step whose program was cut off, or "".
func TimedOut(records []*wire.Record) string {
	for _, rec := range records {
		for _, run := range rec.GetResult().GetRuns() {
			if run.TimedOut {
				return rec.GetResult().Step
			}
		}
	}
	return ""
}
