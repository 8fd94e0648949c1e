package placementclient

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strconv"

	"croft"
)

// consumerType is what croft's instances are as consumers.
const consumerType = "INSTANCE"

type resourcesBody struct {
	Resources croft.Resources `json:"resources"`
}

// Candidates implements schedule.Claims.
func (c *Client) Candidates(ctx context.Context, query string, limit int) ([]croft.Candidate, error) {
	path := "/allocation_candidates?" + query
	if limit > 0 {
		path += "&limit=" + strconv.Itoa(limit)
	}
	var body struct {
		Requests []struct {
			Allocations map[croft.HostID]resourcesBody `json:"allocations"`
			Mappings    map[string][]croft.HostID      `json:"mappings"`
		} `json:"allocation_requests"`
		Summaries map[croft.HostID]struct {
			Resources map[croft.ResourceClass]struct{ Capacity, Used int64 } `json:"resources"`
			Traits    []croft.Trait                                          `json:"traits"`
			Root      croft.HostID                                           `json:"root_provider_uuid"`
		} `json:"provider_summaries"`
	}
	if err := c.call(ctx, http.MethodGet, path, nil, &body); err != nil {
		return nil, err
	}
	summaries := make(map[croft.HostID]croft.Summary, len(body.Summaries))
	for id, s := range body.Summaries {
		sum := croft.Summary{Capacity: croft.Resources{}, Used: croft.Resources{}, Traits: s.Traits, Root: s.Root}
		for class, r := range s.Resources {
			sum.Capacity[class], sum.Used[class] = r.Capacity, r.Used
		}
		summaries[id] = sum
	}
	list := make([]croft.Candidate, len(body.Requests))
	for i, r := range body.Requests {
		list[i] = croft.Candidate{Allocations: map[croft.HostID]croft.Resources{}, Mappings: r.Mappings, Summaries: map[croft.HostID]croft.Summary{}}
		for id, a := range r.Allocations {
			list[i].Allocations[id] = a.Resources
			list[i].Summaries[id] = summaries[id]
		}
	}
	return list, nil
}

// allocationsBody is what PUT /allocations takes.
type allocationsBody struct {
	Allocations map[croft.HostID]resourcesBody `json:"allocations"`
	Project     string                         `json:"project_id"`
	User        string                         `json:"user_id"`
	Generation  *int64                         `json:"consumer_generation"`
	Type        string                         `json:"consumer_type,omitempty"`
}

// at leaves out what older microversions refuse.
func (b allocationsBody) at(minor int64) any {
	if minor < typedMinor {
		b.Type = ""
	}
	return b
}

// Claim implements schedule.Claims. An attempt whose answer was lost may have been
// carried out; then the claim is found to be there and that is success.
func (c *Client) Claim(ctx context.Context, id croft.InstanceID, project croft.Project, candidate croft.Candidate) error {
	body := allocationsBody{Allocations: map[croft.HostID]resourcesBody{}, Project: string(project), User: string(project), Type: consumerType}
	for host, r := range candidate.Allocations {
		body.Allocations[host] = resourcesBody{r}
	}
	path := "/allocations/" + string(id)
	var err error
	for attempt := range c.config.Attempts {
		if attempt > 0 {
			if err := c.pause(ctx, attempt); err != nil {
				return err
			}
		}
		err = c.once(ctx, newestMinor, http.MethodPut, path, body, nil)
		retry, done := c.judge(ctx, id, candidate, err)
		switch {
		case done:
			return nil
		case !retry || ctx.Err() != nil:
			return claimError(err)
		}
	}
	return claimError(err)
}

// judge tells from the answer to a claim whether it is there, else whether to try again.
func (c *Client) judge(ctx context.Context, id croft.InstanceID, candidate croft.Candidate, err error) (retry, done bool) {
	switch {
	case err == nil:
		return false, true
	case errors.Is(err, croft.Unavailable):
		return true, false
	case !is(err, http.StatusConflict, concurrentUpdate):
		return false, false
	}
	has, getErr := c.allocations(ctx, id)
	if getErr != nil || len(has) == 0 {
		return true, false
	}
	same := maps.EqualFunc(has, candidate.Allocations, func(a, b croft.Resources) bool { return maps.Equal(a, b) })
	return false, same
}

// claimError tells a full host from a fast rival.
func claimError(err error) error {
	if is(err, http.StatusConflict, "") && !is(err, http.StatusConflict, concurrentUpdate) {
		return croft.Errorf(croft.NoCapacity, "%w", err)
	}
	return err
}

// allocations returns what a consumer has.
func (c *Client) allocations(ctx context.Context, id croft.InstanceID) (map[croft.HostID]croft.Resources, error) {
	var body struct {
		Allocations map[croft.HostID]resourcesBody `json:"allocations"`
	}
	if err := c.call(ctx, http.MethodGet, "/allocations/"+string(id), nil, &body); err != nil {
		return nil, err
	}
	out := make(map[croft.HostID]croft.Resources, len(body.Allocations))
	for host, a := range body.Allocations {
		out[host] = a.Resources
	}
	return out, nil
}

// Release implements schedule.Claims and compute.Inventory.
func (c *Client) Release(ctx context.Context, id croft.InstanceID) error {
	return c.again(ctx, func() error {
		err := c.call(ctx, http.MethodDelete, "/allocations/"+string(id), nil, nil)
		if is(err, http.StatusNotFound, "") {
			return nil
		}
		return err
	})
}

// Claims implements compute.Inventory. NotFound: there is no such provider.
func (c *Client) Claims(ctx context.Context, host croft.HostID) (map[croft.InstanceID]croft.Resources, error) {
	var body struct {
		Allocations map[croft.InstanceID]resourcesBody `json:"allocations"`
	}
	if err := c.call(ctx, http.MethodGet, providerPath(host, "/allocations"), nil, &body); err != nil {
		return nil, err
	}
	out := make(map[croft.InstanceID]croft.Resources, len(body.Allocations))
	for id, a := range body.Allocations {
		out[id] = a.Resources
	}
	return out, nil
}

// again repeats what concurrent updates spoilt; do reads what it builds on anew.
func (c *Client) again(ctx context.Context, do func() error) error {
	var err error
	for attempt := range c.config.Attempts {
		if attempt > 0 {
			if err := c.pause(ctx, attempt); err != nil {
				return err
			}
		}
		if err = do(); !is(err, http.StatusConflict, concurrentUpdate) {
			return err
		}
	}
	return err
}
