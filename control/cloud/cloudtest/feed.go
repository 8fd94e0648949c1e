package cloudtest

import (
	"context"
	"errors"

	"croft"
	"croft/control/api"
	"croft/schedule"
)

func (s *suite) feed() {
	ctx, cancel := context.WithCancel(s.ctx)
	begun, seen, ended := make(chan int64, 10), make(chan api.Change, 1000), make(chan error, 1)
	go func() {
		ended <- s.Client.FollowEvents(ctx, func(revision int64) { begun <- revision },
			func(changes []api.Change) {
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
	web := s.running("web")
	_, err := s.destroy("web")
	s.must(err)
	s.must(s.await(web, schedule.Gone))
	changes := 0
	for gone := false; !gone; changes++ {
		select {
		case c := <-seen:
			if c.ID != web.ID || c.Project != croft.DefaultProject || c.Revision <= last || c.Name != "web" {
				s.Errorf("got %+v after revision %d, about instance %s", c, last, web.ID)
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
