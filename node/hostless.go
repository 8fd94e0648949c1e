package node

import (
	"context"
	"log/slog"

	"croft/audit"
	"croft/etcdstore"
	"croft/node/settings"
)

// runHostless serves a machine that runs shared services and no guests. It competes with the agents of other
// hosts to be the caretaker of shared records.
func runHostless(ctx context.Context, p *Parts, s *settings.Settings, reach settings.Reach, store *etcdstore.Store,
	log *slog.Logger, ready func()) error {
	claims, err := reach.Placement.Client()
	if err != nil {
		return err
	}
	defer claims.Close()
	caretaker := &audit.Caretaker{Records: store, Shared: store, Inventory: claims, Every: s.Sweep, Log: log}
	p.Self.Counts(caretaker)
	p.Start(ctx, "the caretaker", caretaker.Run)
	log.Info("hosts may join; this machine is none")
	ready()
	return p.Wait(ctx)
}
