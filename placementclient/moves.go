package placementclient

import (
	"context"
	"net/http"

	"croft"
	"croft/audit"
	"croft/hosts"
)

var (
	_ hosts.Claims = (*Client)(nil)
	_ audit.Claims = (*Client)(nil)
)

// Reclaim implements hosts.Claims: one PUT on the generation of the old claim, which is released in the same
// transaction, and only if it has not changed.
func (c *Client) Reclaim(ctx context.Context, had croft.Claim, project croft.Project, candidate croft.Candidate) error {
	return c.replace(ctx, had, project, candidate)
}

// RemoveProvider implements hosts.Claims.
func (c *Client) RemoveProvider(ctx context.Context, host croft.HostID) error {
	err := c.conn.again(ctx, func() error {
		err := c.conn.call(ctx, http.MethodDelete, providerPath(host, ""), nil, nil)
		if is(err, http.StatusNotFound, "") {
			return nil
		}
		return err
	})
	if is(err, http.StatusConflict, "") {
		return croft.Errorf(croft.Conflict, "a request is under way that claims from the host; try again (%w)", err)
	}
	return err
}
