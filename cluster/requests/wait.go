package requests

import (
	"context"
	"fmt"

	"croft"
	"croft/cluster"
)

// Wait returns a cluster when its state is settled, or in its state when ctx ends. It calls progress, which may be nil,
// with each change until then. A cluster whose wanted size differs from its size is not settled, even before its
// manager has seen the change.
func (s *Service) Wait(ctx context.Context, project croft.Project, idOrName string, progress func(cluster.Cluster)) (
	cluster.Cluster, error) {
	c, err := s.Find(ctx, project, idOrName)
	if err != nil {
		return c, err
	}
	id := c.ID
	following, cancel := context.WithCancel(ctx)
	changed, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		ended <- s.c.Records.Follow(following, func(changedID croft.ClusterID) {
			if changedID == id {
				select {
				case changed <- struct{}{}:
				default:
				}
			}
		})
	}()
	var followed error
	defer func() {
		cancel()
		if followed == nil {
			<-ended
		}
	}()
	for seen := int64(0); ; {
		if c.Revised != seen && progress != nil {
			progress(c)
		}
		if seen = c.Revised; c.Settled() {
			return c, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return c, nil
		case followed = <-ended:
			if ctx.Err() != nil {
				return c, nil
			}
			return c, croft.Errorf(croft.Unavailable, "follow cluster %s: %w", c.Name, orEnded(followed))
		}
		now, err := s.c.Records.Get(ctx, c.ID)
		if err != nil && ctx.Err() != nil {
			return c, nil
		}
		if err != nil {
			return c, err
		}
		c = now
	}
}

func orEnded(err error) error {
	if err == nil {
		return fmt.Errorf("it ended")
	}
	return err
}
