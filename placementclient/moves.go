package placementclient

import (
	"context"
	"net/http"

	"croft"
	"croft/operator"
)

var _ operator.Claims = (*Client)(nil)

// Reclaim implements operator.Claims: one PUT on the consumer's generation, so that
// what it had is given back in the moment in which the new is taken.
func (c *Client) Reclaim(ctx context.Context, id croft.InstanceID, project croft.Project, candidate croft.Candidate) error {
	path := "/allocations/" + string(id)
	err := c.again(ctx, func() error {
		var have struct {
			Generation *int64 `json:"consumer_generation"`
		}
		if err := c.call(ctx, http.MethodGet, path, nil, &have); err != nil {
			return err
		}
		body := allocationsBody{Allocations: map[croft.HostID]resourcesBody{}, Project: string(project), User: string(project), Type: consumerType, Generation: have.Generation}
		for host, r := range candidate.Allocations {
			body.Allocations[host] = resourcesBody{r}
		}
		return c.call(ctx, http.MethodPut, path, body, nil)
	})
	return claimError(err)
}

// RemoveProvider implements operator.Claims.
func (c *Client) RemoveProvider(ctx context.Context, host croft.HostID) error {
	err := c.again(ctx, func() error {
		err := c.call(ctx, http.MethodDelete, providerPath(host, ""), nil, nil)
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
