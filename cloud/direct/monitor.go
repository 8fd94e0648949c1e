package direct

import (
	"context"
	"encoding/json"
	"net/http"

	"croft"
	"croft/cloud"
	"croft/compute"
	"croft/etcdstore"
	"croft/placementclient"
)

// monitor implements cloud.Monitor.
type monitor struct {
	store  *etcdstore.Store
	claims *placementclient.Client
	agents agents
}

// Mirror implements cloud.Monitor.
func (m monitor) Mirror() cloud.Mirror { return m.store.NewMirror() }

// Usable implements cloud.Monitor.
func (m monitor) Usable(ctx context.Context) error { return m.store.Usable(ctx) }

// Providers implements cloud.Monitor.
func (m monitor) Providers(ctx context.Context) ([]croft.Provider, error) {
	return m.claims.Providers(ctx)
}

// Usages implements cloud.Monitor.
func (m monitor) Usages(ctx context.Context, h croft.Host) ([]compute.Usage, error) {
	body, err := m.agents.call(ctx, http.MethodGet, h, "/v1/usages")
	if err != nil {
		return nil, err
	}
	var all []compute.Usage
	if err := json.Unmarshal(body, &all); err != nil { // an agent of another version
		return nil, croft.Errorf(croft.Unavailable, "ask host %s what its guests use: %w", h.Name, err)
	}
	return all, nil
}
