package client

import (
	"context"
	"net/http"

	"croft"
	"croft/control/api"
)

// distances implements cloud.Distances.
type distances struct{ *Client }

// List implements cloud.Distances.
func (d distances) List(ctx context.Context) ([]croft.Distances, error) {
	var list api.DistanceList
	err := d.ask(ctx, http.MethodGet, "/v1/distances", nil, &list)
	return list.Types, err
}

// Between implements cloud.Distances.
func (d distances) Between(ctx context.Context, kind, a, b string) (found croft.Between, err error) {
	at := path("", []string{"v1", "distances", "between"}, "type", kind, "a", a, "b", b)
	return found, d.ask(ctx, http.MethodGet, at, nil, &found)
}

// Set implements cloud.Distances.
func (d distances) Set(ctx context.Context, kind string, stated croft.Distance, generation *int64) (int64, error) {
	var all croft.Distances
	err := d.askWith(ctx, http.MethodPut, "/v1/distances", match(generation),
		api.NewDistance{Type: kind, A: stated.A, B: stated.B, Distance: stated.Distance}, &all)
	return all.Generation, err
}

// Remove implements cloud.Distances.
func (d distances) Remove(ctx context.Context, kind, a, b string, generation *int64) error {
	at := path("", []string{"v1", "distances"}, "type", kind, "a", a, "b", b)
	return d.askWith(ctx, http.MethodDelete, at, match(generation), nil, nil)
}
