package client

import (
	"context"
	"time"

	"croft"
	"croft/control/api"
	"croft/schedule"
)

// holds implements cloud.Holds.
type holds struct{ *Client }

// Use implements cloud.Holds.
func (h holds) Use(ctx context.Context, project croft.Project, idOrName string, u schedule.Use) (croft.Instance,
	error) {
	used, err := h.UseClaim(ctx, api.ClaimUse{InstanceChange: changeOf(project, idOrName), Image: u.Image,
		GuestSettings: api.GuestSettings{Keys: u.Keys, UserData: u.UserData, Metadata: u.Metadata, IMDS: u.IMDS,
			Tags: u.Tags, Restart: u.Restart}, Expires: int64(u.Expires / time.Second)})
	return used.Status().Instance, err
}

// ReleaseHold implements cloud.Holds.
func (h holds) ReleaseHold(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error) {
	was, err := h.ReleaseClaim(ctx, api.InstanceNamed{ID: idOrName, Project: project})
	return was.Status().Instance, err
}
