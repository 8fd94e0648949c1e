package cloudtest

import (
	"context"
	"errors"

	"croft"
	"croft/schedule"
)

func (s *suite) feed() {
	ctx, cancel := context.WithCancel(s.ctx)
	begun, seen, ended := make(chan int64, 10), make(chan croft.Change, 1000), make(chan error, 1)
	go func() {
		ended <- s.Cloud.Feed.Follow(ctx, func(revision int64) { begun <- revision },
			func(changes []croft.Change) {
				for _, c := range changes {
					seen <- c
				}
			})
	}()
	var last int64
	select {
	case last = <-begun:
	case <-s.ctx.Done():
		s.Fatal("the feed does not begin")
	}
	st := s.running("web")
	_, err := s.Cloud.Changes.Destroy(s.ctx, croft.DefaultProject, "web", false)
	s.must(err)
	s.must(s.Cloud.Instances.Wait(s.ctx, st.Instance, schedule.Gone, nil))
	changes := 0
	for gone := false; !gone; changes++ {
		select {
		case c := <-seen:
			if c.Instance != st.Instance.ID || c.Project != croft.DefaultProject || c.Revision <= last ||
				c.Status.Instance.ID != c.Instance || c.Status.Instance.Name != "web" {
				s.Errorf("got %+v after revision %d, about instance %s", c, last, st.Instance.ID)
			}
			gone = c.Gone
		case <-s.ctx.Done():
			s.Fatal("the end of the instance is not told")
		}
	}
	if changes < 4 { // record, order, running and end
		s.Errorf("a whole life was %d changes", changes)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		s.Errorf("following ended with %v", err)
	}
}
