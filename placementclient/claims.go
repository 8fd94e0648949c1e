package placementclient

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"croft"
)

type resourcesBody struct {
	Resources croft.Resources `json:"resources"`
}

// allocationsBody is the body of PUT /allocations, and the answer to GET.
type allocationsBody struct {
	Allocations map[croft.HostID]resourcesBody `json:"allocations"`
	Project     string                         `json:"project_id"`
	User        string                         `json:"user_id"`
	Generation  *int64                         `json:"consumer_generation"`
	Type        string                         `json:"consumer_type,omitempty"`

	version string // version of the claim that was read, or is to be replaced
}

func (b allocationsBody) over() string { return b.version }

func (b *allocationsBody) tag(version string) { b.version = version }

// at leaves out the fields that older microversions refuse.
func (b allocationsBody) at(minor int64) any {
	if minor < typedMinor {
		b.Type = ""
	}
	return b
}

// Claim implements schedule.Claims.
func (c *Client) Claim(ctx context.Context, id croft.InstanceID, owner croft.Owner, candidate croft.Candidate) error {
	return c.Reclaim(ctx, croft.Claim{Instance: id}, owner, candidate)
}

// Reclaim implements hosts.Claims: it replaces a consumer's claim by a candidate. One PUT is based on the generation of
// the old claim and, if the server has versions, on its version, so that the old claim is released in the same
// transaction, and only if it is unchanged. NoCapacity: the candidate does not fit, or a host of it has gone. Conflict:
// the claim is a different one, or concurrent updates of hosts exhausted the retries. If the answer to an attempt was
// lost, Reclaim checks whether it succeeded. On a host that has become smaller than its use, OpenStack's Placement
// refuses every claim: there a claim that is to stay the same is not written.
func (c *Client) Reclaim(ctx context.Context, had croft.Claim, owner croft.Owner, candidate croft.Candidate) error {
	body := allocationsBody{Allocations: map[croft.HostID]resourcesBody{}, Project: owner.String(),
		User: string(owner.Project), Type: cmp.Or(owner.Type, croft.ConsumerType)}
	for host, r := range candidate.Allocations {
		body.Allocations[host] = resourcesBody{r}
	}
	var err error
	unsure := false // an attempt may have succeeded
	for attempt := range c.conn.config.Attempts {
		if attempt > 0 {
			if err := c.conn.pause(ctx, attempt); err != nil {
				return err
			}
		}
		body.Generation, body.version = had.Generation, had.Version
		sent, end := outlasting(ctx)
		err = c.conn.once(sent, newestMinor, http.MethodPut, "/allocations/"+string(had.Instance), body, nil)
		end()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return claimError(err)
		case errors.Is(err, croft.Unavailable):
			unsure = true
			continue
		case !concurrent(err):
			if err = claimError(err); errors.Is(err, croft.NoCapacity) && sameAllocations(had, candidate) {
				return c.stays(ctx, had)
			}
			return c.offered(ctx, candidate, err)
		}
		now, readErr := c.ClaimOf(ctx, had.Instance)
		if readErr != nil || unchanged(now, had) {
			continue // another claim changed the host
		}
		switch {
		case !sameAllocations(now, candidate):
			return err
		case had.Generation == nil:
			// This claim was written by an attempt whose answer was lost, or left by an older instance of this UUID.
			// Write it again, so that a release based on the older claim fails.
			had = now
		case unsure && follows(now, had):
			return nil
		default:
			return err
		}
	}
	return claimError(err)
}

// offered returns the reason why a claim was refused: NoCapacity if a host of the candidate is not offered any more.
// Placement calls that a bad request.
func (c *Client) offered(ctx context.Context, candidate croft.Candidate, refusal error) error {
	if !is(refusal, http.StatusBadRequest, "") {
		return refusal
	}
	for host := range candidate.Allocations {
		if err := c.conn.call(ctx, http.MethodGet, providerPath(host, ""), nil, nil); is(err, http.StatusNotFound, "") {
			return croft.Errorf(croft.NoCapacity, "host %s is not offered any more (%w)", host, refusal)
		}
	}
	return refusal
}

// stays returns nil if a claim is unchanged. Conflict: it has changed.
func (c *Client) stays(ctx context.Context, had croft.Claim) error {
	now, err := c.ClaimOf(ctx, had.Instance)
	if err == nil && !unchanged(now, had) {
		err = croft.Errorf(croft.Conflict, "the claim of instance %s changed while it was written again", had.Instance)
	}
	return err
}

// settleTime is how long to wait for the answer to a claim after its caller gave up.
const settleTime = 2 * time.Second

// outlasting returns a context for sending a claim: it ends settleTime after ctx does, with the same cause, so that a
// deadline is not reported as an interruption. A request that is abandoned at once could still be executed after the
// claim was released.
func outlasting(ctx context.Context) (context.Context, context.CancelFunc) {
	sent, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(settleTime)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel(context.Cause(ctx))
		case <-sent.Done():
		}
	})
	return sent, func() { stop(); cancel(nil) }
}

func sameAllocations(claim croft.Claim, candidate croft.Candidate) bool {
	return maps.EqualFunc(claim.Allocations, candidate.Allocations, sameResources)
}

// follows reports whether claim now is exactly one generation newer than had, which has a generation.
func follows(now, had croft.Claim) bool {
	return now.Generation != nil && *now.Generation == *had.Generation+1
}

// unchanged reports whether a claim is the same in two reads.
func unchanged(a, b croft.Claim) bool {
	if a.Version != b.Version {
		return false
	}
	if len(a.Allocations) == 0 || a.Generation == nil || b.Generation == nil {
		return len(a.Allocations) == 0 && b.Generation == nil
	}
	return *a.Generation == *b.Generation
}

// claimError distinguishes a full host from a concurrent update.
func claimError(err error) error {
	if is(err, http.StatusConflict, "") && !concurrent(err) {
		return croft.Errorf(croft.NoCapacity, "%w", err)
	}
	return err
}

// Usage returns the sum of an owner's claims, as Placement computes it.
func (c *Client) Usage(ctx context.Context, owner croft.Owner) (croft.Resources, error) {
	var body struct {
		Usages croft.Resources `json:"usages"` // from 1.38 on grouped by consumer type
	}
	path := "/usages?project_id=" + url.QueryEscape(owner.String())
	err := c.conn.callAt(ctx, typedMinor-1, http.MethodGet, path, nil, &body)
	return body.Usages, err
}

// ClaimOf implements hosts.Claims.
func (c *Client) ClaimOf(ctx context.Context, id croft.InstanceID) (croft.Claim, error) {
	claim, _, err := c.claimOf(ctx, id)
	return claim, err
}

// claimOf returns a consumer's claim, and the request body that releases it.
func (c *Client) claimOf(ctx context.Context, id croft.InstanceID) (croft.Claim, allocationsBody, error) {
	var body allocationsBody
	claim := croft.Claim{Instance: id, Allocations: map[croft.HostID]croft.Resources{}}
	if err := c.conn.call(ctx, http.MethodGet, "/allocations/"+string(id), nil, &body); err != nil {
		return claim, allocationsBody{}, err
	}
	for host, a := range body.Allocations {
		claim.Allocations[host] = a.Resources
	}
	claim.Generation, claim.Version = body.Generation, body.version
	if body.Type == "" || body.Type == "unknown" {
		body.Type = croft.ConsumerType
	}
	body.Allocations = map[croft.HostID]resourcesBody{}
	return claim, body, nil
}

// Release implements schedule.Claims, compute.Inventory, hosts.Claims and audit.Claims: it PUTs the remaining
// allocations, usually none, based on the consumer's generation and version, so that it removes only the claim that was
// read.
func (c *Client) Release(ctx context.Context, id croft.InstanceID, may croft.Permit) error {
	first, none, err := c.claimOf(ctx, id)
	if err != nil {
		return err
	}
	on, err := may(ctx) // called even without a claim, because may can have side effects
	there := func(host croft.HostID) bool { _, has := first.Allocations[host]; return has }
	if err != nil || len(first.Allocations) == 0 || len(on) > 0 && !slices.ContainsFunc(on, there) {
		return err
	}
	for host, amounts := range rest(first, on) {
		none.Allocations[host] = resourcesBody{amounts}
	}
	return c.conn.again(ctx, func() error {
		err := c.conn.call(ctx, http.MethodPut, "/allocations/"+string(id), none, nil)
		if !concurrent(err) {
			return err
		}
		now, readErr := c.ClaimOf(ctx, id)
		switch {
		case readErr != nil:
			return readErr
		case len(now.Allocations) == 0 || len(on) > 0 && !slices.ContainsFunc(on,
			func(host croft.HostID) bool { _, has := now.Allocations[host]; return has }):
			return nil
		case !unchanged(now, first): // otherwise the conflict is about the host, because of other claims on it
			return croft.Errorf(croft.Conflict, "the claim of instance %s changed while it was being given back", id)
		}
		return err
	})
}

// rest returns the allocations that remain of a claim after removing those on the given hosts; without hosts, all are
// removed. If no host of an instance remains, nothing remains: allocations of providers that share with a host are
// removed with it. Volumes claim no processors.
func rest(claim croft.Claim, without []croft.HostID) map[croft.HostID]croft.Resources {
	left, hosts, volume := maps.Clone(claim.Allocations), 0, true
	for _, amounts := range claim.Allocations {
		volume = volume && amounts[croft.VCPU] == 0
	}
	maps.DeleteFunc(left, func(host croft.HostID, amounts croft.Resources) bool {
		gone := len(without) == 0 || slices.Contains(without, host)
		if !gone && (volume || amounts[croft.VCPU] > 0) {
			hosts++
		}
		return gone
	})
	if hosts == 0 {
		return nil
	}
	return left
}

// Claims implements compute.Inventory. NotFound: the provider does not exist.
func (c *Client) Claims(ctx context.Context, host croft.HostID) (map[croft.InstanceID]croft.Resources, error) {
	var body struct {
		Allocations map[croft.InstanceID]resourcesBody `json:"allocations"`
	}
	if err := c.conn.call(ctx, http.MethodGet, providerPath(host, "/allocations"), nil, &body); err != nil {
		return nil, err
	}
	out := make(map[croft.InstanceID]croft.Resources, len(body.Allocations))
	for id, a := range body.Allocations {
		out[id] = a.Resources
	}
	return out, nil
}
