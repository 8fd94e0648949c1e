package compute

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"time"

	"croft"
	"croft/hosts/audit"
	"croft/internal/httpapi"
)

// Contents returns the guests and the directories with disks of this installation on this host.
func (a *Agent) Contents(ctx context.Context) (audit.Contents, error) {
	domains, err := a.Hypervisor.List(ctx)
	if err != nil {
		return audit.Contents{}, err
	}
	c := audit.Contents{Guests: []audit.Guest{}, Directories: []croft.InstanceID{}}
	owned := map[croft.InstanceID]bool{}
	for _, d := range domains {
		owned[d.ID] = d.Partition != a.Partition // a domain of another installation owns its disks too
		if d.Partition == a.Partition {
			c.Guests = append(c.Guests, audit.Guest{Instance: d.ID, Generation: d.Generation,
				Running: d.Power != PowerOff})
		}
	}
	entries, err := os.ReadDir(a.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return c, err
	}
	for _, e := range entries {
		id, err := croft.ParseInstanceID(e.Name())
		if err == nil && e.IsDir() && !owned[id] {
			c.Directories = append(c.Directories, id)
		}
	}
	c.Volumes, err = a.ownVolumes()
	return c, err
}

// RemoveFiles removes a directory of disks without an owner. Conflict: it has an owner.
func (a *Agent) RemoveFiles(ctx context.Context, id croft.InstanceID) error {
	owned := croft.Errorf(croft.Conflict, "the files of instance %s on host %s are in use; they stay", id,
		a.Host.Name)
	_, err := a.Records.Instance(ctx, id)
	if err == nil {
		return owned
	}
	if !errors.Is(err, croft.NotFound) {
		return err
	}
	want, have, err := a.read(ctx, id)
	switch {
	case err != nil:
		return err
	case want != nil || have.Domain != nil:
		return owned
	}
	a.Log.Info("acting", "instance", id, "host", a.Host.ID, "op", string(OpClean), "reason",
		"an operator requested its removal, since no instance owns it")
	return a.clean(id)
}

func (api *API) contents(w http.ResponseWriter, r *http.Request) {
	c, err := api.Agent.Contents(r.Context())
	if err != nil {
		httpapi.Error(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(c); err != nil && r.Context().Err() == nil {
		api.Agent.Log.Warn("what the host has could not be sent", "host", api.Agent.Host.ID, "err", err)
	}
}

func (api *API) removeFiles(w http.ResponseWriter, r *http.Request) {
	id, err := croft.ParseInstanceID(r.PathValue("id"))
	if err == nil {
		err = api.Agent.RemoveFiles(r.Context(), id)
	}
	if err != nil {
		httpapi.Error(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// usages answers with the usage of the host's guests.
func (api *API) usages(w http.ResponseWriter, r *http.Request) {
	all, err := ownUsages(r.Context(), api.Agent.Hypervisor, api.Agent.instances.names())
	if err != nil {
		httpapi.Error(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(all) // ignore clients that went away
}

// usage answers with the usage of one guest in the last day.
func (api *API) usage(w http.ResponseWriter, r *http.Request) {
	id, err := croft.ParseInstanceID(r.PathValue("id"))
	var order croft.Order
	if err == nil {
		order, err = api.Agent.Orders.Order(r.Context(), api.Agent.Host.ID, id)
	}
	if err != nil {
		httpapi.Error(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// ignore clients that went away
	_ = json.NewEncoder(w).Encode(api.Agent.samples.history(id, order.CreateRevision, time.Now()))
}
