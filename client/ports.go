package client

import (
	"context"
	"io"
	"strconv"

	"croft"
)

// ports implements cloud.Ports.
type ports struct{ *Client }

// Connect implements cloud.Ports.
func (p ports) Connect(ctx context.Context, st croft.Status, port int, use func(io.ReadWriteCloser) error) error {
	return p.socket(ctx, path("", []string{"v1", "instances", string(st.Instance.ID), "forward"}, "port",
		strconv.Itoa(port)), use)
}
