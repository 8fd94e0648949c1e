package client

import (
	"context"

	"croft"
	"croft/control/api"
)

// distances implements cloud.Distances.
type distances struct{ *Client }

// List implements cloud.Distances.
func (d distances) List(ctx context.Context) ([]croft.Distances, error) {
	list, err := d.ListDistances(ctx)
	return list.Types, err
}

// Between implements cloud.Distances.
func (d distances) Between(ctx context.Context, kind, a, b string) (croft.Between, error) {
	return d.GetDistance(ctx, api.DistanceBetween{Type: kind, A: a, B: b})
}

// Set implements cloud.Distances.
func (d distances) Set(ctx context.Context, kind string, stated croft.Distance, base *int64) (int64, error) {
	all, err := d.SetDistance(ctx, api.NewDistance{Base: base, Type: kind, A: stated.A, B: stated.B,
		Distance: stated.Distance})
	return all.Generation, err
}

// Remove implements cloud.Distances.
func (d distances) Remove(ctx context.Context, kind, a, b string, base *int64) error {
	return d.RemoveDistance(ctx, api.DistanceRemoval{DistanceBetween: api.DistanceBetween{Type: kind, A: a, B: b},
		Base: base})
}
