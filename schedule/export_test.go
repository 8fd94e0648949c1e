package schedule

// InFlight returns the number of choices and readings that the scheduler holds.
func (s *Scheduler) InFlight() int {
	s.inFlight.mu.Lock()
	defer s.inFlight.mu.Unlock()
	return len(s.inFlight.choices) + len(s.inFlight.readers)
}
