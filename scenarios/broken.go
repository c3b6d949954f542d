package scenarios

import (
	"slices"

	"github.com/onsi/gomega"

	"kerninst/agent/wire"
	"kerninst/lab/report"
)

// said is what comes of one thing that is wrong with a server's guest: the part that comes upon it
// fails, and says so.
type said struct {
	guest, part string
	says        []string // on stderr
}

func (t *T) saysWhatIsWrong(all []said) {
	for _, b := range all {
		r := t.done(b.guest, b.part).Runs[0]
		t.expect(b.guest+": exit status of "+b.part, r.Exit, "other than 0", gomega.Not(gomega.BeZero()))
		for _, s := range b.says {
			t.expect(b.guest+": what "+b.part+" says", string(r.Stderr), s, gomega.ContainSubstring(s))
		}
	}
	t.Metrics["broken.ways"] = report.Metric{Value: float64(len(all)), Unit: "ways", N: 1}
}

// upTo are steps to the one that fails.
func upTo(part string, steps []*wire.Step) []*wire.Step {
	return steps[:slices.IndexFunc(steps, func(s *wire.Step) bool { return s.Name == part })+1]
}
