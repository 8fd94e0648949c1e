package schedule

// InFlight counts the choices and the readings that the scheduler remembers.
func (s *Scheduler) InFlight() int {
	s.inFlight.mu.Lock()
	defer s.inFlight.mu.Unlock()
	return len(s.inFlight.choices) + len(s.inFlight.readers)
}
