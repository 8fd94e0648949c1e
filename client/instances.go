package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"croft"
	"croft/control/api"
	"croft/schedule"
)

// mostEntries is the largest number of entries in a page.
const mostEntries = 5000

// AllInstances lists the instances that the filter chooses, with all pages, oldest first; an empty project means all
// projects.
func (c *Client) AllInstances(ctx context.Context, in api.InstanceFilter) ([]api.Instance, error) {
	all, err := allPages(&in.Page, func() ([]api.Instance, string, error) {
		page, err := c.ListInstances(ctx, in)
		return page.Instances, page.Next, err
	})
	slices.SortStableFunc(all, func(a, b api.Instance) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return all, err
}

// allPages calls read for each page of a list, with the position of the page in at, and returns all entries.
func allPages[T any](at *api.Page, read func() (page []T, next string, _ error)) ([]T, error) {
	at.Limit = mostEntries
	all := []T{}
	var counted pages
	for {
		page, next, err := read()
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if err := counted.next(len(page), at.After, next); err != nil {
			return nil, err
		}
		if at.After = next; next == "" {
			return all, nil
		}
	}
}

// pages counts the pages of a list, so that a server whose list never ends cannot keep the client busy forever.
type pages int

// mostPages limits the pages of a list.
const mostPages = 2_000

// next returns an error if no further page can follow: every page except the last must have entries and start at a new
// place, and there may not be more than mostPages.
func (p *pages) next(entries int, after, next string) error {
	*p++
	if next != "" && (entries == 0 || next == after || *p >= mostPages) {
		return croft.Errorf(croft.Unavailable, "read a list of the server: it does not end, with %.40q after %.40q on "+
			"page %d; tell the operators of the cloud", next, after, int(*p))
	}
	return nil
}

// WatchInstances calls changed after every change of an instance, until ctx ends.
func (c *Client) WatchInstances(ctx context.Context, changed func()) error {
	return c.FollowEvents(ctx, func(int64) { changed() }, func([]api.Change) { changed() })
}

// AwaitInstance returns once an instance has reached the goal, and calls progress, which may be nil, with the instance
// as it is now and after each change until then. Unavailable: the deadline of ctx passed. *schedule.Failure: the
// instance will never reach the goal.
func (c *Client) AwaitInstance(ctx context.Context, i api.Instance, goal schedule.Goal,
	progress func(api.Instance)) error {
	w := &watched{Client: c}
	var each func(croft.Status)
	if progress != nil {
		each = func(croft.Status) { progress(w.now) }
	}
	return schedule.Await(ctx, w, croft.Instance{ID: i.ID, Project: i.Project, Name: i.Name, Created: i.Created}, goal,
		each)
}

// watched implements schedule.Watched, for one instance, and hosts.Watched.
type watched struct {
	*Client
	now api.Instance // in the last event
}

// Find implements schedule.Watched.
func (w *watched) Find(ctx context.Context, project croft.Project, idOrName string) (croft.Status, error) {
	in := api.InstanceNamed{ID: idOrName, Project: project}
	found, err := w.GetInstance(ctx, api.InstanceShown{InstanceNamed: in})
	return recordsOf(found), err
}

// WatchInstance implements schedule.Watched.
func (w *watched) WatchInstance(ctx context.Context, id croft.InstanceID, changed func(*croft.Status) bool) error {
	ended := false
	at := pathOf("/v1/instances/{id}/events", api.InstanceNamed{ID: string(id)})
	err := w.events(ctx, at, 0, func(e event) (bool, error) {
		if e.kind == "gone" {
			ended = true
			changed(nil)
			return false, nil
		}
		w.now = api.Instance{}
		if err := json.Unmarshal(e.data, &w.now); err != nil {
			return false, croft.Errorf(croft.Unavailable, "an event of instance %s cannot be read: %w", id, err)
		}
		st := recordsOf(w.now)
		ended = !changed(&st)
		return !ended, nil
	})
	switch {
	case ended:
		return nil
	case errors.Is(err, croft.NotFound):
		changed(nil)
		return nil
	case err != nil:
		return err
	}
	return croft.Errorf(croft.Unavailable, "the cloud ended the stream of instance %s", id)
}

// recorded are the states that the record has, and not the host's observation.
var recorded = []croft.State{croft.StateScheduling, croft.StateHeld, croft.StateDestroying, croft.StateLost}

// recordsOf returns the fields of an instance that a schedule.Goal and hosts.AwaitMoved read.
func recordsOf(i api.Instance) croft.Status {
	st := croft.Status{Instance: croft.Instance{ID: i.ID, Project: i.Project, Name: i.Name, Created: i.Created,
		Generation: i.Generation, State: croft.StateScheduled, Host: i.HostID, Lost: i.Lost,
		Moving: i.MovingTo, Copying: i.MovingTo != "", Unmoved: i.Unmoved, Ejected: i.Ejected}}
	if state := croft.State(i.State); slices.Contains(recorded, state) {
		st.Instance.State = state
	}
	if i.HostAlive != nil {
		st.Host = &croft.Host{Alive: *i.HostAlive, NoSetUp: i.Simulated}
	}
	if state := i.Reported(); state != "" {
		st.Observation = &croft.Observation{Host: i.HostID, Generation: i.Generation, State: state,
			Error: i.Error, ErrorKind: i.ErrorKind, Ended: i.Ended, CloudInit: i.CloudInit}
		if i.Pending {
			st.Observation.Generation--
		}
	}
	return st
}
