package client

import (
	"context"

	"croft"
	"croft/control/api"
	"croft/schedule"
)

// keys implements cloud.Keys.
type keys struct{ *Client }

// AddKey implements cloud.Keys. The cloud sets the time when the key was added.
func (k keys) AddKey(ctx context.Context, key schedule.Key) error {
	_, err := k.Client.AddKey(ctx, api.NewKey{InProject: api.InProject{Project: key.Project}, Name: key.Name,
		Line: key.Line})
	return err
}

// ListKeys implements cloud.Keys.
func (k keys) ListKeys(ctx context.Context, project croft.Project) ([]schedule.Key, error) {
	list, err := k.Client.ListKeys(ctx, api.InProject{Project: project})
	return list.Keys, err
}

// RemoveKey implements cloud.Keys.
func (k keys) RemoveKey(ctx context.Context, project croft.Project, name string) error {
	return k.Client.RemoveKey(ctx, api.KeyNamed{InProject: api.InProject{Project: project}, Name: name})
}
