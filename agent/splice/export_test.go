package splice

import "kerninst/agent/gen"

// SetMost makes batches shorter, for tests that have not thousands of plans.
func (s *Splicer) SetMost(writes int) { s.most = writes }

func (s *Splicer) PassedBy(g *gen.Gate) error { return s.passedBy(g) }
