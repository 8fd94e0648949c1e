package client

import (
	"context"
	"io"

	"croft"
	"croft/control/api"
)

// ports implements cloud.Ports.
type ports struct{ *Client }

// Connect implements cloud.Ports.
func (p ports) Connect(ctx context.Context, st croft.Status, port int, use func(io.ReadWriteCloser) error) error {
	named := api.InstanceNamed{ID: string(st.Instance.ID)}
	return p.socket(ctx, pathOf("/v1/instances/{id}/forward", api.GuestPort{InstanceNamed: named, Port: port}), use)
}
