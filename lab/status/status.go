// Package status holds the words for how a run came out, and the exit status
// that each of them gives. Both are part of what users' scripts rely on.
package status

// Status is how one scenario or one run came out.
type Status string

const (
	Passed     Status = "passed"
	Failed     Status = "failed"      // an assertion did not hold
	Crashed    Status = "crashed"     // the guest's kernel or daemon died
	BootFailed Status = "boot_failed" // the guest never said hello
	Timeout    Status = "timeout"     // the guest said hello and then hung
	LabFailed  Status = "lab_failed"  // our side is at fault: the guest is not judged
	Skipped    Status = "skipped"     // not run, for a reason that is given
)

// Exit statuses of every verb.
const (
	ExitPassed      = 0
	ExitFailed      = 1 // assertion failed, difference, regression, point refused
	ExitUsage       = 2
	ExitLabFailed   = 3
	ExitCrashed     = 4
	ExitTimeout     = 5
	ExitBootFailed  = 6
	ExitInterrupted = 130
)

// exits gives each status its exit status, in order of precedence: of several
// that occurred, the first row decides. The lab's own fault comes first, since
// it makes the others worth nothing; a crash explains a timeout elsewhere.
var exits = []struct {
	status Status
	code   int
}{
	{LabFailed, ExitLabFailed},
	{Crashed, ExitCrashed},
	{BootFailed, ExitBootFailed},
	{Timeout, ExitTimeout},
	{Failed, ExitFailed},
	{Passed, ExitPassed},
	{Skipped, ExitPassed},
}

// Valid says whether s is one of the words above.
func (s Status) Valid() bool {
	return s.rank() < len(exits)
}

// rank is the row of s in exits, or len(exits).
func (s Status) rank() int {
	for i, e := range exits {
		if e.status == s {
			return i
		}
	}
	return len(exits)
}

// Worst is the one of several statuses that decides. An unknown word decides
// as LabFailed, because whoever wrote it is part of the lab. Of none, Passed.
func Worst(of ...Status) Status {
	worst := Skipped
	if len(of) == 0 {
		return Passed
	}
	for _, s := range of {
		if !s.Valid() {
			return LabFailed
		}
		if s.rank() < worst.rank() {
			worst = s
		}
	}
	return worst
}

// ExitCode is the exit status for runs that came out as given.
func ExitCode(of ...Status) int {
	return exits[Worst(of...).rank()].code
}

// WorstExit is the exit status that decides of several, by the same order. A
// code that is none of a status, such as of a process that was killed, decides
// as the lab's own fault; an interrupt goes before all.
func WorstExit(codes ...int) int {
	worst := Passed
	for _, code := range codes {
		if code == ExitInterrupted {
			return code
		}
		worst = Worst(worst, ofExit(code))
	}
	return exits[worst.rank()].code
}

func ofExit(code int) Status {
	for _, e := range exits {
		if e.code == code {
			return e.status
		}
	}
	return LabFailed
}
