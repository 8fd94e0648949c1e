package requests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"croft"
	"croft/cluster"
)

// errChanged says that another request changed the record since it was read.
var errChanged = errors.New("it was changed by another request")

// update writes a record as a change that is visible to users. errChanged; any other Conflict is the caller's.
func (s *Service) update(ctx context.Context, c cluster.Cluster) (cluster.Cluster, error) {
	c.Generation++
	c.Updated = time.Now().UTC()
	written, err := s.c.Records.Update(ctx, c, nil)
	if _, taken := errors.AsType[*croft.TakenError](err); !taken && errors.Is(err, croft.Conflict) {
		return written, fmt.Errorf("%w: %w", errChanged, err)
	}
	return written, err
}

// change applies change to the record, and repeats that with the new record if another request changed it meanwhile.
// The function returns false if there is nothing to do.
func (s *Service) change(ctx context.Context, project croft.Project, idOrName string,
	change func(c *cluster.Cluster) (bool, error)) (cluster.Cluster, error) {
	c, err := s.Find(ctx, project, idOrName)
	for try := 0; err == nil && try < maxTries; try++ {
		changed := c
		var needed bool
		if needed, err = change(&changed); err != nil || !needed {
			return c, err
		}
		var written cluster.Cluster
		if written, err = s.update(ctx, changed); err == nil || !errors.Is(err, errChanged) {
			return written, err
		}
		if err = pause(ctx, try); err == nil {
			c, err = s.c.Records.Get(ctx, c.ID) // by ID: another cluster may have the name now
		}
	}
	if err == nil {
		err = croft.Errorf(croft.Unavailable, "too many others change cluster %s now", c.Name)
	}
	return c, err
}

// Change changes a cluster if it has the given generation; nil accepts any. Conflict: it has another generation, or its
// state permits no resize. Invalid.
func (s *Service) Change(ctx context.Context, project croft.Project, idOrName string, ch cluster.Change,
	generation *int64) (cluster.Cluster, error) {
	if err := checkChange(ch); err != nil {
		return cluster.Cluster{}, err
	}
	if ch.Indexes != nil {
		ch.Slaves = new(len(*ch.Indexes))
	}
	if ch.Slaves != nil {
		if err := s.fitsAfter(ctx, project, idOrName,
			func(c cluster.Cluster) int { return *ch.Slaves - c.Slaves }); err != nil {
			return cluster.Cluster{}, err
		}
	}
	return s.change(ctx, project, idOrName, func(c *cluster.Cluster) (bool, error) {
		if generation != nil && c.Generation != *generation {
			return false, croft.Errorf(croft.Conflict, "cluster %s has generation %d by now, not %d", c.Name,
				c.Generation,
				*generation)
		}
		if err := living(*c); err != nil {
			return false, err
		}
		before := *c
		if ch.Name != nil {
			c.Name = *ch.Name
		}
		if ch.KeepIdle != nil {
			c.KeepIdle = *ch.KeepIdle
		}
		if ch.Expires != nil {
			c.Expires, c.Warned = end(time.Duration(*ch.Expires)), time.Time{}
		}
		if ch.Indexes != nil && !slices.Equal(*ch.Indexes, c.Indexes) {
			if err := s.resizeTo(ctx, c, *ch.Indexes); err != nil {
				return false, err
			}
		} else if ch.Slaves != nil && *ch.Slaves != c.Slaves {
			if err := s.resize(ctx, c, *ch.Slaves); err != nil {
				return false, err
			}
		}
		return c.Name != before.Name || c.KeepIdle != before.KeepIdle || !c.Expires.Equal(before.Expires) ||
			!slices.Equal(c.Indexes, before.Indexes), nil
	})
}

// end returns the time in d from now; zero: never.
func end(d time.Duration) time.Time {
	if d == 0 {
		return time.Time{}
	}
	return time.Now().UTC().Add(d)
}

func checkChange(ch cluster.Change) error {
	if ch.Name != nil {
		if err := cluster.CheckName("a cluster", *ch.Name); err != nil {
			return err
		}
	}
	if ch.Indexes != nil {
		if err := cluster.CheckSlaves(len(*ch.Indexes), 0); err != nil {
			return err
		}
		if ch.Slaves != nil && *ch.Slaves != len(*ch.Indexes) {
			return croft.Errorf(croft.Invalid, "slaves is %d, and indexes names %d", *ch.Slaves, len(*ch.Indexes))
		}
		for n, i := range *ch.Indexes {
			if i < 0 || n > 0 && i <= (*ch.Indexes)[n-1] {
				return croft.Errorf(croft.Invalid, "the indexes of slaves have to be ascending, from 0")
			}
		}
	}
	if ch.Slaves != nil {
		if err := cluster.CheckSlaves(*ch.Slaves, 0); err != nil {
			return err
		}
	}
	var keepIdle, expires cluster.Seconds
	if ch.KeepIdle != nil {
		keepIdle = *ch.KeepIdle
	}
	if ch.Expires != nil {
		expires = *ch.Expires
	}
	return cluster.CheckPeriods(keepIdle, expires)
}

// living rejects changes of a cluster that is being removed. Conflict.
func living(c cluster.Cluster) error {
	switch c.State {
	case cluster.Deleting:
		return croft.Errorf(croft.Conflict, "cluster %s is being removed", c.Name)
	case cluster.Deleted:
		return croft.Errorf(croft.Conflict, "cluster %s is deleted", c.Name)
	}
	return nil
}

// EndUse ends a use. NotFound.
func (s *Service) EndUse(ctx context.Context, project croft.Project, idOrName string, use cluster.UseID) (
	cluster.Cluster, error) {
	return s.change(ctx, project, idOrName, func(c *cluster.Cluster) (bool, error) {
		at := slices.IndexFunc(c.Uses, func(u cluster.Use) bool { return u.ID == use })
		if at < 0 {
			return false, croft.Errorf(croft.NotFound, "cluster %s has no use %.80q", c.Name, string(use))
		}
		c.Uses = slices.Delete(slices.Clone(c.Uses), at, at+1)
		if len(c.Uses) == 0 {
			c.IdleSince = time.Now().UTC()
		}
		return true, nil
	})
}

// Delete starts the removal of a cluster. Conflict: other users use it, and Force is false.
func (s *Service) Delete(ctx context.Context, project croft.Project, idOrName string, r cluster.Removal) (
	cluster.Cluster, error) {
	asked := false
	c, err := s.change(ctx, project, idOrName, func(c *cluster.Cluster) (bool, error) {
		asked = c.State != cluster.Deleting
		if c.State == cluster.Deleted || !asked && (c.Abandoned || !r.Abandon) {
			return false, nil
		}
		others := slices.DeleteFunc(slices.Clone(c.Uses), func(u cluster.Use) bool { return u.Holder == r.User })
		if asked && len(others) > 0 && !r.Force {
			return false, croft.Errorf(croft.Conflict, "cluster %s is used by %s: end that, or use force", c.Name,
				others[0].Holder)
		}
		c.State, c.Step, c.Deadline = cluster.Deleting, "its removal was asked for", time.Time{}
		if r.Abandon {
			c.Abandoned, c.Step = true, stays(*c)
		}
		return true, nil
	})
	if err == nil && asked && c.State == cluster.Deleting {
		s.note(ctx, c, "%s asked for its removal", r.User)
	}
	if err == nil && r.Abandon && c.State == cluster.Deleting {
		s.note(ctx, c, "%s", stays(c))
	}
	return c, err
}

// stays names the remains of an abandoned cluster on its site, for an event.
func stays(c cluster.Cluster) string {
	if !c.Remote.Asked {
		return "it was given up, and its site was not asked for anything yet"
	}
	what := c.Remote.Name
	if c.Remote.ID != "" {
		what += " (" + c.Remote.ID + ")"
	}
	return fmt.Sprintf("it was abandoned: its remains at site %s, named %s, stay there", c.Site, what)
}
