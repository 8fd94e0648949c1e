package client

import (
	"context"
	"net/http"

	"croft"
	"croft/control/api"
)

// aggregates implements cloud.Aggregates.
type aggregates struct{ *Client }

// List implements cloud.Aggregates.
func (l aggregates) List(ctx context.Context) ([]croft.Aggregate, error) {
	list, err := l.ListAggregates(ctx)
	return list.Aggregates, err
}

// Find implements cloud.Aggregates.
func (l aggregates) Find(ctx context.Context, name string) (croft.Aggregate, error) {
	return l.GetAggregate(ctx, api.AggregateNamed{Name: name})
}

// Create implements cloud.Aggregates.
func (l aggregates) Create(ctx context.Context, a croft.Aggregate) (croft.Aggregate, error) {
	return l.CreateAggregate(ctx, api.NewAggregate{Name: a.Name, Note: a.Note, Public: a.Public, Hosts: texts(a.Hosts)})
}

func texts(hosts []croft.HostID) (all []string) {
	for _, h := range hosts {
		all = append(all, string(h))
	}
	return all
}

// Change implements cloud.Aggregates.
func (l aggregates) Change(ctx context.Context, name string, c croft.AggregateChange) (croft.Aggregate, error) {
	return l.ChangeAggregate(ctx, api.AggregateChange{Name: name, Base: c.Generation, Note: c.Note, Public: c.Public,
		AddHosts: texts(c.Add), RemoveHosts: texts(c.Remove)})
}

// match returns the header of a change that requires a generation; nil: no header.
func match(n *int64) http.Header {
	if n == nil {
		return nil
	}
	return generation(*n)
}

// Remove implements cloud.Aggregates.
func (l aggregates) Remove(ctx context.Context, name string, base *int64) error {
	return l.RemoveAggregate(ctx, api.AggregateRemoval{Name: name, Base: base})
}
