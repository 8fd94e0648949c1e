package control

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"croft"
	"croft/control/actions"
	"croft/control/api"
	"croft/schedule"
	"croft/schedule/sshkeys"
	"croft/tenant/access"
)

var keyOperations = noun{Tag: "keys", Home: true, Description: "Public SSH keys that a project keeps by name.",
	Operations: []Operation{
		list(Operation{ID: "listKeys", At: "GET /v1/keys", May: access.Reads, Summary: "List the keys of a project"},
			func(ctx context.Context, c *call, _ api.InProject) (api.KeyList, error) {
				keys, err := c.Cloud.Keys.ListKeys(ctx, c.home())
				return api.KeyList{Keys: append([]schedule.Key{}, keys...)}, err
			}),
		do(
			Operation{
				ID:       "addKey",
				At:       "POST /v1/keys",
				May:      access.Changes,
				Summary:  "Keep a key under a name",
				Status:   http.StatusCreated,
				Conflict: api.NameTaken,
			},
			addKey,
		),
		do(
			Operation{
				ID:          "removeKey",
				At:          "DELETE /v1/keys/{name}",
				May:         access.Changes,
				Summary:     "Remove a key",
				Description: "Instances that have it keep it.",
			},
			removeKey,
		),
	},
}

func addKey(ctx context.Context, c *call, in api.NewKey) (key schedule.Key, err error) {
	c.action.about(c.home(), actions.Object{Kind: "key", Name: in.Name})
	if in.Name == sshkeys.Agent || in.Name == sshkeys.Auto {
		return key, croft.Errorf(croft.Invalid, "a key cannot be named %s, which stands for other keys", in.Name)
	}
	if err := schedule.CheckName(in.Name); err != nil {
		return key, err
	}
	line, err := sshkeys.Parse(in.Line)
	if err != nil {
		return key, err
	}
	key = schedule.Key{Project: c.home(), Name: in.Name, Line: line, Added: time.Now().UTC()}
	return key, c.Cloud.Keys.AddKey(ctx, key)
}

func removeKey(ctx context.Context, c *call, in api.KeyNamed) (nothing, error) {
	err := schedule.CheckName(in.Name) // it becomes part of a key of the store
	if err == nil {
		err = c.Cloud.Keys.RemoveKey(ctx, c.home(), in.Name)
	}
	if k := croft.KindOf(err); k == croft.NotFound || k == croft.Invalid {
		err = api.NewProblem(api.NotFound, "there is no key "+strconv.Quote(api.Clip(in.Name)))
	}
	return nothing{}, err
}
