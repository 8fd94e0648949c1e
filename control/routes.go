package control

import (
	"context"

	"croft/control/api"
	"croft/tenant/access"
)

var cloudOperations = noun{Tag: "cloud",
	Description: "The cloud itself, and who is asking.",
	Operations: []Operation{
		stream(Operation{ID: "getDocument", At: "GET /openapi.json", May: access.EveryHuman, Open: true,
			Media:       "application/json",
			Summary:     "Get this document",
			Description: "Its SHA-256 is in the answer of `GET /v1`, so that two clouds can be compared."},
			func(c *call, _ nothing) error {
				c.begin()
				_, _ = c.w.Write(api.Document()) // ignore clients that disconnected
				return nil
			}),
		do(Operation{ID: "getRoot", At: "GET /v1", May: access.Everybody, Open: true,
			Summary: "Get the versions of the cloud and of this document"},
			func(_ context.Context, c *call, _ nothing) (api.Cloud, error) {
				return api.Cloud{Version: c.Version, Document: api.Hash(), Login: c.Login}, nil
			}),
		do(Operation{ID: "whoami", At: "GET /v1/whoami", May: access.Everybody, Summary: "Get who the caller is"},
			func(_ context.Context, c *call, _ nothing) (access.Caller, error) { return c.caller, nil }),
	},
}
