package client

import (
	"context"
	"net/http"

	"croft"
	"croft/control/api"
)

// aggregates implements cloud.Aggregates.
type aggregates struct{ *Client }

func aggregatePath(name string) (string, error) {
	return path("", []string{"v1", "aggregates", name}), croft.CheckAggregateName(name)
}

// List implements cloud.Aggregates.
func (l aggregates) List(ctx context.Context) ([]croft.Aggregate, error) {
	var list api.AggregateList
	err := l.ask(ctx, http.MethodGet, "/v1/aggregates", nil, &list)
	return list.Aggregates, err
}

// Find implements cloud.Aggregates.
func (l aggregates) Find(ctx context.Context, name string) (a croft.Aggregate, err error) {
	at, err := aggregatePath(name)
	if err == nil {
		err = l.ask(ctx, http.MethodGet, at, nil, &a)
	}
	return a, err
}

// Create implements cloud.Aggregates.
func (l aggregates) Create(ctx context.Context, a croft.Aggregate) (made croft.Aggregate, err error) {
	return made, l.ask(ctx, http.MethodPost, "/v1/aggregates", api.NewAggregate{Name: a.Name, Note: a.Note,
		Public: a.Public, Hosts: texts(a.Hosts)}, &made)
}

func texts(hosts []croft.HostID) (all []string) {
	for _, h := range hosts {
		all = append(all, string(h))
	}
	return all
}

// Change implements cloud.Aggregates.
func (l aggregates) Change(ctx context.Context, name string, c croft.AggregateChange) (a croft.Aggregate, err error) {
	at, err := aggregatePath(name)
	if err != nil {
		return a, err
	}
	return a, l.askWith(ctx, http.MethodPatch, at, match(c.Generation), api.AggregateChange{Note: c.Note,
		Public: c.Public, AddHosts: texts(c.Add), RemoveHosts: texts(c.Remove)}, &a)
}

// match returns the header of a change that requires a generation; nil: no header.
func match(n *int64) http.Header {
	if n == nil {
		return nil
	}
	return generation(*n)
}

// Remove implements cloud.Aggregates.
func (l aggregates) Remove(ctx context.Context, name string, generation *int64) error {
	at, err := aggregatePath(name)
	if err != nil {
		return err
	}
	return l.askWith(ctx, http.MethodDelete, at, match(generation), nil, nil)
}
