package daemon

import (
	"slices"
	"time"

	"kerninst/agent/wire"
)

// The parts of a splice, as they are reported: what KernInst's paper has in figure 4. And
// the whole of what is compared with it.
const (
	stageLiveness = "find what is live in the function"
	stagePlan     = "choose the bytes, generate the patch and relocate"
	stageForeign  = "ask whether others have a probe there"
	stagePatch    = "write the patch and its cells"
	stagePoint    = "write the point, and what it needs on the way"
	stageUndo     = "undo"
	stageRegister = "register kprobes"
)

// stages is how long each part of a step took. One of them, or none, is under way.
type stages struct {
	all   []*wire.Stage // in the order in which they first began
	now   string
	since time.Time
}

// enter ends the stage that is under way and goes on with another, by its name; the
// empty name is none of them. It returns the former's name.
func (s *stages) enter(name string) (former string) {
	now := time.Now()
	if s.now != "" {
		k := slices.IndexFunc(s.all, func(g *wire.Stage) bool { return g.Name == s.now })
		if k < 0 {
			k, s.all = len(s.all), append(s.all, &wire.Stage{Name: s.now})
		}
		s.all[k].Ns += uint64(now.Sub(s.since))
	}
	former, s.now, s.since = s.now, name, now
	return former
}

// point is the stage in which a batch is made, until what it returns is called.
func (s *stages) point() (end func()) {
	former := s.enter(stagePoint)
	return func() { s.enter(former) }
}
