package direct

import (
	"context"

	"croft/control/actions"
	"croft/etcdstore/actionlog"
	"croft/tenant/access"
)

// actionLog implements cloud.Actions for operators, who see all entries.
type actionLog struct{ store *actionlog.Log }

// List implements cloud.Actions.
func (a actionLog) List(ctx context.Context, f actions.Filter) (actions.Page, error) {
	return a.store.List(ctx, access.Everything(), f)
}
