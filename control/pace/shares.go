package pace

import (
	"sync"

	"croft"
)

// Shares limits the number of concurrent uses, such as streams, per tree of projects. The zero Shares permits none.
type Shares struct {
	Each      int // per tree
	All       int // of all trees together
	Newcomers int // of All, reserved for trees that have none yet

	mu   sync.Mutex
	open map[croft.Project]int
}

// Begin starts a use by a project; end ends it. False: its tree, or all together, have reached the limit.
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
