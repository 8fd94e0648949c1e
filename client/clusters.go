package client

import (
	"context"
	"errors"
	"time"

	"croft/control/api"
	"croft/internal/delay"
)

// FindCluster returns a cluster, even a deleted one. NotFound.
func (c *Client) FindCluster(ctx context.Context, in api.ClusterAwaited) (api.Cluster, error) {
	found, err := c.GetCluster(ctx, in)
	if p, is := errors.AsType[*api.Problem](err); is && p.Code == api.Gone && p.Cluster != nil {
		return *p.Cluster, nil
	}
	return found, err
}

// look is the interval at which AwaitCluster reads a cluster.
const look = 500 * time.Millisecond

// AwaitCluster returns a cluster when it is settled, or in its state when ctx ends. It calls progress with each change
// until then.
func (c *Client) AwaitCluster(ctx context.Context, named api.ClusterNamed, progress func(api.Cluster)) (
	have api.Cluster, err error) {
	in := api.ClusterAwaited{ClusterNamed: named}
	for last := (time.Time{}); ; {
		now, err := c.FindCluster(ctx, in)
		if err != nil {
			if ctx.Err() != nil && have.ID != "" {
				return have, nil
			}
			return now, err
		}
		if have = now; !have.Updated.Equal(last) {
			progress(have)
			last = have.Updated
		}
		if in.ID = string(have.ID); now.Settled || delay.For(ctx, look) != nil {
			return have, nil
		}
	}
}
