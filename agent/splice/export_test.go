package splice

// SetMost makes batches shorter, for tests that have not thousands of plans.
func (s *Splicer) SetMost(writes int) { s.most = writes }
