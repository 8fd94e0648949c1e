package client

import (
	"context"
	"time"

	"croft"
	"croft/control/actions"
	"croft/control/api"
)

// actionLog implements cloud.Actions.
type actionLog struct{ *Client }

// List implements cloud.Actions.
func (a actionLog) List(ctx context.Context, f actions.Filter) (page actions.Page, err error) {
	if f.Project != "" {
		if err := f.Project.Check(); err != nil {
			return page, err
		}
	}
	in := api.LogFilter{InProject: api.InProject{Project: f.Project}, Object: f.Object.String(), User: f.User,
		After: f.After, Limit: min(max(f.Limit, 0), actions.MostLimit)}
	if !f.Since.IsZero() {
		in.Since = f.Since.UTC().Format(time.RFC3339Nano)
	}
	page, err = a.ListActions(ctx, in)
	if err == nil && page.Entries == nil {
		err = croft.Errorf(croft.Unavailable, "the cloud answers without an action log: it is of another version")
	}
	return page, err
}
