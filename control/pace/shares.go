package pace

import (
	"sync"

	"croft"
)

// Shares bounds how many things of each tree of projects go on at the same time, such as streams. The zero Shares
// permit none.
type Shares struct {
	Each      int // of one tree
	All       int // of all trees together
	Newcomers int // of All, for trees that have none yet

	mu   sync.Mutex
	open map[croft.Project]int
}

// Begin begins one of a project; end ends it. False: its tree, or all together, have as many as they may.
func (s *Shares) Begin(project croft.Project) (end func(), ok bool) {
	project = project.Root()
	s.mu.Lock()
	defer s.mu.Unlock()
	all, own := 0, s.open[project]
	for _, n := range s.open {
		all += n
	}
	if own >= s.Each || all >= s.All || own > 0 && all >= s.All-s.Newcomers {
		return nil, false
	}
	if s.open == nil {
		s.open = map[croft.Project]int{}
	}
	s.open[project]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.open[project]--; s.open[project] == 0 {
			delete(s.open, project)
		}
	}), true
}
