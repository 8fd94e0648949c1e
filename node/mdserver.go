package node

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"croft"
	"croft/compute"
	"croft/mdserver"
	"croft/node/settings"
)

// RunMetadata runs the metadata server of this host until ctx ends.
func RunMetadata(ctx context.Context, s settings.Settings, reach settings.Reach, log *slog.Logger) (err error) {
	if err := s.NeedsHypervisor(); err != nil {
		return err
	}
	if s.Hypervisor == "sim" {
		return croft.Errorf(croft.Invalid,
			"simulated guests ask for no metadata; run mdserver where hypervisor is libvirt")
	}
	me, err := NewSelf(ctx, &s, "croft-mdserver", log)
	defer me.End()
	if err != nil {
		return err
	}
	id, err := compute.ReadHostID(s.StateDir, false)
	if err != nil {
		return err
	}
	store, err := openCloud(ctx, reach, s.StateDir, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	h := &host{settings: s, reach: reach, log: log, id: id, store: store, dir: &compute.StateDir{Path: s.StateDir}}
	defer h.closeHypervisor()
	if err := h.openHypervisor(ctx, ""); err != nil {
		return err
	}
	if err := h.readVendor(); err != nil {
		return err
	}
	server, err := h.metadata(nil)
	if err != nil {
		return err
	}
	l, err := Listen(ctx, s.Metadata.Listen, "metadata.listen")
	if err != nil {
		return err
	}
	me.OfStore(store)
	me.Counts(server, h.hv)
	me.Checks.Add("metadata server", server.Ready)
	mux := http.NewServeMux()
	me.Serves(mux, s.Metadata.Listen)
	watch := NewParts()
	defer func() { err = errors.Join(err, watch.End()) }()
	watch.Start(ctx, "what the process tells of itself", func(ctx context.Context) error {
		return Serve(ctx, l, CalledAt(s.ServedNames(reach.Placement.Endpoint), s.Metadata.Listen, mux))
	})
	// A changed lease makes the cache of Owner stale.
	watch.Start(ctx, "libvirt's events", func(ctx context.Context) error {
		return h.hv.Watch(ctx, func(croft.InstanceID) {})
	})
	watch.Start(ctx, "the metadata server on IPv6", func(ctx context.Context) error {
		return server.RunIPv6(ctx, h.bridge)
	})
	return server.Run(ctx, h.bridge, mdserver.Address)
}
