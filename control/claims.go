package control

import (
	"net/http"
	"time"

	"croft"
	"croft/control/api"
	"croft/schedule"
)

func isHeld(inst croft.Instance) bool { return inst.State == croft.StateHeld }

func listClaims(c *call) error { return listWanted(c, isHeld) }

func createClaim(c *call) error {
	var given api.ClaimRequest
	if err := c.body(&given); err != nil {
		return err
	}
	given.InstanceRequest.Image = given.Image
	r, err := c.requested(given.InstanceRequest)
	if err != nil {
		return err
	}
	r.Hold = time.Duration(given.Hold) * time.Second
	ctx, cancel := c.brief()
	defer cancel()
	d, err := made(ctx, c, r)
	if err != nil {
		return err
	}
	inst := d.Instance
	c.w.Header().Set("Location", "/v1/claims/"+string(inst.ID))
	st, err := c.Cloud.Instances.Find(ctx, inst.Project, string(inst.ID))
	if err != nil {
		return err
	}
	return c.answer(http.StatusCreated, c.instance(st))
}

func getClaim(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	st, err := c.find(ctx)
	if err != nil {
		return err
	}
	if !isHeld(st.Instance) {
		return api.Hidden("claim that is held", c.r.PathValue("id"))
	}
	return c.answer(http.StatusOK, c.instance(st))
}

func useClaim(c *call) error {
	var given api.ClaimUse
	if err := c.body(&given); err != nil {
		return err
	}
	use := schedule.Use{Keys: given.Keys, UserData: given.UserData, Metadata: given.Metadata, IMDS: given.IMDS,
		Tags: given.Tags, Restart: given.Restart, Expires: time.Duration(given.Expires) * time.Second}
	if given.Image != "" {
		var err error
		if use.Image, use.Public, err = c.image(given.Image); err != nil {
			return err
		}
	}
	ctx, cancel := c.brief()
	defer cancel()
	st, err := c.find(ctx)
	if err != nil {
		return err
	}
	inst, err := c.Cloud.Holds.Use(ctx, st.Instance.Project, string(st.Instance.ID), use)
	if err != nil {
		return err
	}
	return c.ordered(inst)
}

func releaseClaim(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	st, err := c.find(ctx)
	if err != nil {
		return err
	}
	inst, err := c.Cloud.Holds.ReleaseHold(ctx, st.Instance.Project, string(st.Instance.ID))
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, c.instance(croft.Status{Instance: inst}))
}
