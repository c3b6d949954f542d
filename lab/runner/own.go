package runner

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"kerninst/agent/wire"
	"kerninst/images"
	"kerninst/lab/vm"
)

// Own is what a user wants of every guest, beside what its request says.
type Own struct {
	CPUs   int    // at least; 0: as the request says
	MemMiB int    // 0: as the request says
	Append string // to the kernel's command line, in front of what a request has to say there
	// Timeout limits, in guest time, each program that has no limit of its own;
	// 0: none. The limit in host time follows from it.
	Timeout    time.Duration
	Files      []images.File // added to the initramfs, but for those that a request has of its own
	FilesAgain bool          // Request.FilesAgain, for requests that have no files of their own
	Fetch      []Fetch       // taken from the guest when it has done its job
}

// of is the request with the user's wishes in it.
func (o Own) of(q Request) Request {
	q.CPUs = max(q.CPUs, o.CPUs)
	if o.MemMiB > 0 {
		q.MemMiB = o.MemMiB
	}
	q.Append = strings.TrimSpace(o.Append + " " + q.Append) // a request may end in words for init
	if len(o.Files) > 0 {
		q.FilesAgain = o.FilesAgain && len(q.Files) == 0
		q.Files = WithOthers(q.Files, o.Files)
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
	var programs time.Duration
	for _, s := range q.Job.GetSteps() {
		run := s.GetRun()
		if run == nil {
			continue
		}
		if run.TimeoutNs == 0 {
			run.TimeoutNs = uint64(o.Timeout)
		}
		programs += time.Duration(run.TimeoutNs)
	}
	q.RunTimeout = max(q.RunTimeout, hostLimit(programs, q.Time))
	return q
}

// WithOthers adds files to a list, but for those whose path is in it.
func WithOthers(list, others []images.File) []images.File {
	out := slices.Clone(list)
	for _, f := range others {
		if !slices.ContainsFunc(list, func(o images.File) bool { return o.Path == f.Path }) {
			out = append(out, f)
		}
	}
	return out
}

// hostLimit is the host time after which a guest is given up whose programs are ended
// in it after so much guest time together. It is for guests in which nobody is left to
// end them: the daemon is stopped, or the kernel hangs. So it has to be longer than any
// guest takes that is well. In exact time, one that computes without pause takes two
// to seven times its own time (riscv64, vectors), which is doubled here, and at most
// its own in host time, which is doubled, too; idle time is skipped in the one and the same
// in the other. Time for which the host kept the machine waiting does not count anyhow
// (session.Config). The rest is for what is done around the programs: some seconds.
func hostLimit(programs time.Duration, mode vm.Time) time.Duration {
	const rest = 20 * time.Second
	if mode == vm.Exact {
		return rest + 14*programs
	}
	return rest + 2*programs
}

// allRefused is the first step that was to splice, left out what is refused, and so spliced
// nothing; or "". One that only plans has done what it was asked for, and one that failed says so.
func allRefused(records []*wire.Record) string {
	for _, rec := range records {
		r := rec.GetResult()
		spliced := slices.ContainsFunc(r.GetPoints(), func(p *wire.PointResult) bool { return p.Refusal == nil })
		if len(r.GetPoints()) > 0 && !spliced && r.Planned == nil && r.Error == "" {
			return r.Step
		}
	}
	return ""
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
