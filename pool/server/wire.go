package server

import (
	"time"

	"croft/pool"
	"croft/pool/api"
)

// ticket converts a ticket to the form that its owner sees.
func ticket(t pool.TicketStatus) api.Ticket {
	shown := api.Ticket{
		ID: int64(t.ID), State: string(t.State), Owner: t.Owner, Project: string(t.Project),
		Tags: t.Tags, Sandbox: t.Sandbox,
		TTL:    api.Seconds(t.TTL),
		Opened: t.Opened, Served: t.Served, Expires: t.Expires(), Ended: t.Ended, Reason: t.Reason,
		WaitsFor: t.Waits, Never: t.Never,
	}
	if shown.Tags == nil {
		shown.Tags = []string{}
	}
	if t.Has != nil {
		r := resource(*t.Has)
		shown.Resource = &r
	}
	return shown
}

func resource(r pool.Resource) api.Resource {
	return api.Resource{
		ID: int64(r.ID), Name: r.Name, Pool: string(r.Pool), State: string(r.State), InPool: r.InPool,
		Tags:     tags(r.Tags),
		Counters: r.Counters, Data: r.Data, Facts: r.Facts, Instance: string(r.Instance), Ticket: int64(r.Ticket),
		Sandbox: r.Sandbox, Releases: r.Releases, Created: r.Created, CameUp: r.CameUp, Sandboxed: r.Sandboxed,
		Released: r.Released,
		Checked:  r.Checked, Failures: r.Failures, Ended: r.EndedAt, Reason: r.Reason, Error: r.Error,
	}
}

// resourceFor returns a resource as the caller may see it.
func resourceFor(r pool.Resource, c caller) *api.Resource {
	shown := resource(r)
	if !c.may(RoleAdmin) {
		return withoutSecrets(&shown)
	}
	return &shown
}

// withoutSecrets returns a resource without the fields that give access to it: its data, its sandbox, and the output of
// its commands.
func withoutSecrets(r *api.Resource) *api.Resource {
	shown := *r
	shown.Data, shown.Facts, shown.Sandbox, shown.Error = nil, nil, "", ""
	return &shown
}

func tags(all []pool.Tag) []api.Tag {
	var shown []api.Tag
	for _, t := range all {
		shown = append(shown, api.Tag{Name: t.Name, Priority: t.Priority})
	}
	return shown
}

func poolStatus(p pool.PoolStatus) api.Pool {
	set, c := &p.Settings, p.Counts
	shown := api.Pool{
		Name: string(set.Name), Description: set.Description, Project: string(set.Project), Shared: set.Shared,
		Mode: mode(p), Tags: tags(set.Tags),
		OnDemand: tags(set.OnDemand), Free: c.Free,
	}
	shown.Stock = &api.Stock{
		First: int64(p.First),
		Max:   set.Max, MaxStarting: set.MaxStarting, MaxPrealloc: set.Prealloc(),
		Up: c.Up, Ready: c.Ready, Taken: c.Taken, Starting: c.Starting, Releasing: c.Releasing,
		DeleteRequest: c.DeleteRequest, Deleting: c.Deleting, GivenUp: c.GivenUp, Waiting: p.Waiting,
		Stats: api.Stats{
			Attempted: p.Stats.Attempted, Succeeded: p.Stats.Succeeded, SuccessRate: p.Stats.SuccessRate,
			StartTime: api.Seconds(p.Stats.StartTime), Starts: p.Stats.Starts, Failures: p.Stats.Failures,
			Served: p.Stats.Served,
		},
		BackOff: future(p.NotBefore), LastError: p.Hindrance(),
	}
	if r := p.Resized; r != nil {
		shown.InFile = &api.FileSize{Max: r.FileMax, MaxPrealloc: r.FilePrealloc}
	}
	if f := p.LastFailure; f != nil {
		shown.LastFailure = &api.StartFailure{Resource: int64(f.Resource), At: f.At, Error: f.Error}
	}
	return shown
}

// hideErrors removes the output of failed commands. Errors of the cloud about an instance that does not start are not
// secret, and are kept.
func hideErrors(shown *api.Pool, s *pool.Settings) {
	if s.Instance != nil {
		return
	}
	shown.LastError = ""
	if shown.LastFailure != nil {
		shown.LastFailure.Error = ""
	}
}

// mode returns the state of a pool in a word.
func mode(p pool.PoolStatus) string {
	switch {
	case p.Removed:
		return "removed"
	case p.Mode == pool.Active:
		return "active"
	}
	return string(p.Mode)
}

// future returns t if it is in the future, else the zero time.
func future(t time.Time) time.Time {
	if time.Until(t) <= 0 {
		return time.Time{}
	}
	return t
}
