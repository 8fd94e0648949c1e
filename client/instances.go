package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"croft"
	"croft/control/api"
	"croft/schedule"
)

// requests implements cloud.Requests.
type requests struct{ *Client }

// Request implements cloud.Requests. It chooses the UUID, so that a repeated request cannot create a second instance.
func (r requests) Request(ctx context.Context, wanted schedule.Request) (schedule.Decision, error) {
	for _, life := range []time.Duration{wanted.Expires, wanted.Hold} {
		if life != 0 {
			if err := schedule.CheckLife(life); err != nil {
				return schedule.Decision{}, err
			}
		}
	}
	wanted.ID = cmp.Or(wanted.ID, croft.NewInstanceID())
	in := api.InProject{Project: wanted.Project}
	var made api.Instance
	var err error
	if wanted.Hold != 0 {
		made, err = r.CreateClaim(ctx, api.ClaimRequest{InProject: in, InstanceRequest: body(wanted),
			Image: wanted.Image, Hold: int64(wanted.Hold / time.Second)})
	} else {
		made, err = r.CreateInstance(ctx, api.NewInstance{InProject: in, InstanceRequest: body(wanted)})
	}
	st := made.Status()
	d := schedule.Decision{Instance: st.Instance}
	if st.Host != nil {
		d.Host = *st.Host
	}
	return d, err
}

// Explain implements cloud.Requests.
func (r requests) Explain(ctx context.Context, wanted schedule.Request) (*schedule.Explanation, error) {
	return r.ExplainRequest(ctx, api.Candidates{InProject: api.InProject{Project: wanted.Project},
		InstanceRequest: body(wanted)})
}

func body(r schedule.Request) api.InstanceRequest {
	b := api.InstanceRequest{ID: r.ID, Name: r.Name, Query: r.Query.Encode(), Image: r.Image, Networks: r.Networks,
		Open: r.Open, Ephemeral: r.Ephemeral, Affinities: r.Affinities, Expires: int64(r.Expires / time.Second),
		GuestSettings: api.GuestSettings{Keys: r.Keys, UserData: r.UserData, Metadata: r.Metadata, IMDS: r.IMDS,
			Tags: r.Tags, Restart: r.Restart}}
	for _, bound := range r.Query.In { // the encoded query has only what Placement understands
		b.In = append(b.In, string(bound))
	}
	b.Where, b.WhereNot = r.Query.Where, r.Query.WhereNot
	for _, n := range r.Query.Near {
		if b.Distance = n.Type; n.Far {
			b.Far = append(b.Far, n.Text())
		} else {
			b.Near = append(b.Near, n.Text())
		}
	}
	b.Policy = r.Policy.Name()
	return b
}

// instances implements cloud.Instances.
type instances struct{ *Client }

var _ schedule.Watched = instances{}

// Find implements cloud.Instances.
func (i instances) Find(ctx context.Context, project croft.Project, idOrName string) (croft.Status, error) {
	if idOrName == "" {
		return croft.Status{}, croft.Errorf(croft.NotFound, "an instance without a name does not exist")
	}
	in := api.InstanceShown{InstanceNamed: api.InstanceNamed{ID: idOrName, Project: project}}
	found, err := i.GetInstance(ctx, in)
	return found.Status(), err
}

// FindByID implements cloud.Instances.
func (i instances) FindByID(ctx context.Context, id croft.InstanceID) (croft.Status, error) {
	return i.Find(ctx, "", string(id))
}

// List implements cloud.Instances.
func (i instances) List(ctx context.Context, project croft.Project) ([]croft.Status, error) {
	var all []croft.Status
	var counted pages
	for after := ""; ; {
		page, next, err := i.page(ctx, project, after, mostInstances)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if err := counted.next(len(page), after, next); err != nil {
			return nil, err
		}
		if after = next; after == "" {
			break
		}
	}
	slices.SortStableFunc(all, func(a, b croft.Status) int {
		return cmp.Or(a.Instance.Created.Compare(b.Instance.Created), cmp.Compare(a.Instance.ID, b.Instance.ID))
	})
	return all, nil
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
		return croft.Errorf(croft.Unavailable, "read a list of the server: it does not end, with %.40q after %.40q on page "+
			"%d; tell the operators of the cloud", next, after, int(*p))
	}
	return nil
}

// mostInstances is the largest number of instances in a page.
const mostInstances = 5000

// Page implements cloud.Instances.
func (i instances) Page(ctx context.Context, project croft.Project, after string, limit int) ([]croft.Status, bool,
	error) {
	page, next, err := i.page(ctx, project, after, min(limit, mostInstances))
	return page, next != "", err
}

// page reads a page of instances, and returns where the next one starts.
func (i instances) page(ctx context.Context, project croft.Project, after string, limit int) (all []croft.Status,
	next string, err error) {
	page, err := i.ListInstances(ctx, api.InstanceFilter{InProject: api.InProject{Project: project},
		Page: api.Page{Limit: limit, After: after}})
	for _, one := range page.Instances {
		all = append(all, one.Status())
	}
	return all, page.Next, err
}

// Watch implements cloud.Instances.
func (i instances) Watch(ctx context.Context, changed func()) error {
	return feed(i).Follow(ctx, func(int64) { changed() }, func([]croft.Change) { changed() })
}

// Wait implements cloud.Instances.
func (i instances) Wait(ctx context.Context, inst croft.Instance, goal schedule.Goal,
	progress func(croft.Status)) error {
	return schedule.Await(ctx, i, inst, goal, progress)
}

// WatchInstance implements schedule.Watched.
func (i instances) WatchInstance(ctx context.Context, id croft.InstanceID, changed func(*croft.Status) bool) error {
	ended := false
	at := pathOf("/v1/instances/{id}/events", api.InstanceNamed{ID: string(id)})
	err := i.events(ctx, at, 0, func(e event) (bool, error) {
		if e.kind == "gone" {
			ended = true
			changed(nil)
			return false, nil
		}
		var now api.Instance
		if err := json.Unmarshal(e.data, &now); err != nil {
			return false, croft.Errorf(croft.Unavailable, "an event of instance %s cannot be read: %w", id, err)
		}
		st := now.Status()
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

// changes implements cloud.Changes.
type changes struct{ *Client }

// Start implements cloud.Changes.
func (c changes) Start(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error) {
	changed, err := c.StartInstance(ctx, changeOf(project, idOrName))
	return changed.Status().Instance, err
}

// Stop implements cloud.Changes.
func (c changes) Stop(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error) {
	changed, err := c.StopInstance(ctx, changeOf(project, idOrName))
	return changed.Status().Instance, err
}

// Reboot implements cloud.Changes.
func (c changes) Reboot(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error) {
	changed, err := c.RebootInstance(ctx, changeOf(project, idOrName))
	return changed.Status().Instance, err
}

// Rebuild implements cloud.Changes.
func (c changes) Rebuild(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error) {
	changed, err := c.RebuildInstance(ctx, changeOf(project, idOrName))
	return changed.Status().Instance, err
}

// Recreate implements cloud.Changes.
func (c changes) Recreate(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error) {
	changed, err := c.RecreateInstance(ctx, changeOf(project, idOrName))
	return changed.Status().Instance, err
}

// Keep implements cloud.Changes.
func (c changes) Keep(ctx context.Context, project croft.Project, idOrName string, life time.Duration,
	base *int64) (croft.Instance, error) {
	changed, err := c.ChangeInstance(ctx, api.InstancePatch{Base: base, Expires: new(int64(life / time.Second)),
		InstanceNamed: api.InstanceNamed{ID: idOrName, Project: project}})
	return changed.Status().Instance, err
}

func changeOf(project croft.Project, idOrName string) api.InstanceChange {
	return api.InstanceChange{InstanceNamed: api.InstanceNamed{ID: idOrName, Project: project}}
}

// Destroy implements cloud.Changes.
func (c changes) Destroy(ctx context.Context, project croft.Project, idOrName string,
	force bool) (schedule.Destroyed, error) {
	was, err := c.DestroyInstance(ctx, api.InstanceRemoval{InstanceChange: changeOf(project, idOrName), Force: force})
	return schedule.Destroyed{Instance: was.Status().Instance, Gone: was.Gone}, err
}
