package client

import (
	"context"
	"net/http"
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
	var used api.Instance
	err := h.ask(ctx, http.MethodPost, path(project, []string{"v1", "claims", idOrName, "use"}),
		api.ClaimUse{Image: u.Image, Keys: u.Keys, UserData: u.UserData, Metadata: u.Metadata, IMDS: u.IMDS,
			Tags: u.Tags, Restart: u.Restart, Expires: int64(u.Expires / time.Second)}, &used)
	return used.Instance, err
}

// ReleaseHold implements cloud.Holds.
func (h holds) ReleaseHold(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error) {
	var was api.Instance
	err := h.ask(ctx, http.MethodDelete, path(project, []string{"v1", "claims", idOrName}), nil, &was)
	return was.Instance, err
}
