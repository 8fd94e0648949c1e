package client

import (
	"context"
	"net/http"

	"croft"
	"croft/control/api"
	"croft/schedule"
)

// keys implements cloud.Keys.
type keys struct{ *Client }

// AddKey implements cloud.Keys. The cloud sets the time when the key was added.
func (k keys) AddKey(ctx context.Context, key schedule.Key) error {
	return k.ask(ctx, http.MethodPost, path(key.Project, []string{"v1", "keys"}),
		api.NewKey{Name: key.Name, Line: key.Line}, nil)
}

// ListKeys implements cloud.Keys.
func (k keys) ListKeys(ctx context.Context, project croft.Project) ([]schedule.Key, error) {
	var list api.KeyList
	err := k.ask(ctx, http.MethodGet, path(project, []string{"v1", "keys"}), nil, &list)
	return list.Keys, err
}

// RemoveKey implements cloud.Keys.
func (k keys) RemoveKey(ctx context.Context, project croft.Project, name string) error {
	return k.ask(ctx, http.MethodDelete, path(project, []string{"v1", "keys", name}), nil, nil)
}
