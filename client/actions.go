package client

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"croft"
	"croft/control/actions"
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
	since, limit := "", ""
	if !f.Since.IsZero() {
		since = f.Since.UTC().Format(time.RFC3339Nano)
	}
	if f.Limit > 0 {
		limit = strconv.Itoa(min(f.Limit, actions.MostLimit))
	}
	err = a.ask(ctx, http.MethodGet, path(f.Project, []string{"v1", "log"}, "object", f.Object.String(), "user", f.User,
		"since", since, "limit", limit, "after", f.After), nil, &page)
	if err == nil && page.Entries == nil {
		err = croft.Errorf(croft.Unavailable, "the cloud answers without an action log: it is of another version")
	}
	return page, err
}
