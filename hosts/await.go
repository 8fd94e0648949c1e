package hosts

import (
	"context"
	"errors"
	"slices"

	"croft"
)

// Watched is access to instances for reading and watching.
type Watched interface {
	// Find returns the instance with this ID, or with this name in the project. NotFound.
	Find(ctx context.Context, project croft.Project, idOrName string) (croft.Status, error)
	// WatchInstances calls changed after every change of an instance or a host, until ctx ends. Calls may overlap.
	WatchInstances(ctx context.Context, changed func()) error
}

// AwaitMoved returns once a host has nothing left of the instances that move away from it, or the instances are gone.
// It learns that from their new hosts, which report pending until then. For an instance with its disk, it returns once
// the new host has carried out the order. Conflict: the move of such an instance has ended on its former host.
// Unavailable: the deadline of ctx passed.
func AwaitMoved(ctx context.Context, in Watched, from croft.HostID, all []Moved) error {
	all = slices.DeleteFunc(slices.Clone(all), func(m Moved) bool { return m.To.ID == "" })
	if len(all) == 0 {
		return nil
	}
	watch, end := context.WithCancel(ctx)
	changed, watched := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		watched <- in.WatchInstances(watch, func() {
			select {
			case changed <- struct{}{}:
			default: // a look is pending already
			}
		})
	}()
	stop := func(err error) error {
		end()
		<-watched
		return err
	}
	var stayed []error
	for {
		left, stay, err := remaining(ctx, in, from, all)
		stayed = append(stayed, stay...)
		if all = left; err == nil && len(all) == 0 {
			return stop(errors.Join(stayed...))
		}
		if ctx.Err() == nil && err != nil {
			return stop(err)
		}
		select {
		case <-changed:
		case err := <-watched:
			end()
			if ctx.Err() == nil {
				return err
			}
			return late(ctx, all)
		case <-ctx.Done():
			return stop(late(ctx, all))
		}
	}
}

// late returns the error of a wait that ended too early.
func late(ctx context.Context, left []Moved) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return croft.Errorf(croft.Unavailable, "%d instances are still on the host; the moves continue", len(left))
}

// remaining returns the instances that have, or may have, a guest or disks left on the host, and an error for each one
// whose move has ended there.
func remaining(ctx context.Context, in Watched, from croft.HostID, all []Moved) (left []Moved, stayed []error,
	err error) {
	for i, m := range all {
		st, err := in.Find(ctx, m.Instance.Project, string(m.Instance.ID))
		switch {
		case errors.Is(err, croft.NotFound):
		case err != nil:
			return append(left, all[i:]...), stayed, err
		case m.WithDisk && st.Instance.Host == from && !st.Instance.Copying:
			stayed = append(stayed, croft.Errorf(croft.Conflict, "instance %s stays on its host: %s", m.Instance.Name,
				st.Instance.Unmoved))
		case m.WithDisk && st.Instance.Host != from:
			if o := st.Observation; o == nil || o.Host != st.Instance.Host || o.Generation < st.Instance.Generation {
				left = append(left, m)
			}
		case st.Instance.Host == from || !begun(st):
			left = append(left, m)
		}
	}
	return left, stayed, nil
}

// begun reports whether the current host of an instance has started to carry out its order.
func begun(st croft.Status) bool {
	o := st.Observation
	return o != nil && o.Host == st.Instance.Host && o.State != croft.StatePending
}
