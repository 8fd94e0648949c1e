package control

import (
	"context"
	"net/http"
	"time"

	"croft"
	"croft/control/api"
	"croft/schedule"
	"croft/tenant/access"
)

var claimOperations = noun{Tag: "claims",
	Description: "Claims that are held until a time for instances to come. Each is an instance in the state held, " +
		"and has its name and its UUID; `DELETE /v1/instances/{id}` releases it too.",
	Operations: []Operation{
		do(Operation{ID: "listClaims", At: "GET /v1/claims", May: access.Reads,
			Summary:     "List the claims that are held",
			Description: "In the order of their names, as instances in the state held."},
			func(ctx context.Context, c *call, in api.ClaimFilter) (api.InstanceList, error) {
				return listWanted(ctx, c, api.InstanceFilter{Page: in.Page, Terms: in.Terms}, isHeld)
			}),
		do(Operation{ID: "createClaim", At: "POST /v1/claims", May: access.Changes, Status: http.StatusCreated,
			Summary: "Hold a claim for an instance to come",
			Description: "Claims resources on a host with room, with quota and the seats of groups, and boots " +
				"nothing. The claim is used, or is released at the end of the time, or before by a caller with " +
				"the right to. The UUID may be chosen and the request repeated, as in createInstance. " +
				"Reservations that begin later are not supported."},
			createClaim),
		do(Operation{ID: "getClaim", At: "GET /v1/claims/{id}", May: access.Reads,
			Summary: "Get a claim that is held"},
			func(ctx context.Context, c *call, in api.InstanceNamed) (api.Instance, error) {
				st, err := c.find(ctx)
				if err == nil && !isHeld(st.Instance) {
					err = api.Hidden("claim that is held", in.ID)
				}
				return c.instance(st), err
			}),
		do(Operation{ID: "releaseClaim", At: "DELETE /v1/claims/{id}", May: access.Changes,
			Summary: "Release a claim that is held",
			Description: "409 bad_state if it is not held any more. An instance that it was used for is not " +
				"harmed."},
			func(ctx context.Context, c *call, _ api.InstanceNamed) (api.Instance, error) {
				st, err := c.find(ctx)
				if err != nil {
					return api.Instance{}, err
				}
				inst, err := c.Cloud.Scheduler.ReleaseHold(ctx, st.Instance.Project, string(st.Instance.ID))
				return c.gone(inst), err
			}),
		do(Operation{ID: "useClaim", Also: accepted, At: "POST /v1/claims/{id}/use", May: access.Changes,
			Summary: "Order the instance that a claim is held for",
			Description: "On the host of the claim. What the body leaves out is as the claim was asked for. Of " +
				"several uses and releases one takes effect, and the others get 409 bad_state."},
			useClaim),
	},
}

func isHeld(inst croft.Instance) bool { return inst.State == croft.StateHeld }

func createClaim(ctx context.Context, c *call, in api.ClaimRequest) (shown api.Instance, err error) {
	in.InstanceRequest.Image = in.Image
	r, err := c.requested(ctx, in.InstanceRequest)
	if err != nil {
		return shown, err
	}
	r.Hold = time.Duration(in.Hold) * time.Second
	d, err := made(ctx, c, r)
	if err != nil {
		return shown, err
	}
	c.w.Header().Set("Location", "/v1/claims/"+string(d.Instance.ID))
	st, err := c.Cloud.Scheduler.View.Find(ctx, d.Instance.Project, string(d.Instance.ID))
	return c.instance(st), err
}

func useClaim(ctx context.Context, c *call, in api.ClaimUse) (shown api.Instance, err error) {
	use := schedule.Use{GuestSettings: in.GuestSettings, Expires: time.Duration(in.Expires) * time.Second}
	if in.Image != "" {
		found, err := c.disk(ctx, in.Image)
		if err != nil {
			return shown, err
		}
		use.Named, use.Image, use.Public = catalogName(in.Image), found.reference, found.public
		use.Arch = found.arch
	}
	return c.change(ctx, in.Waiting, func(ctx context.Context, p croft.Project, id string) (croft.Instance, error) {
		return c.Cloud.Scheduler.Use(ctx, p, id, use)
	})
}
