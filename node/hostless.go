package node

import (
	"context"
	"log/slog"

	"croft/audit"
	"croft/etcdstore"
	"croft/node/settings"
)

// runHostless waits for the end of what all hosts share, on a machine that is none. It
// looks after what is no host's own, by turns with the agents of the others.
func runHostless(ctx context.Context, p *Parts, s *settings.Settings, reach settings.Reach, store *etcdstore.Store,
	log *slog.Logger, ready func()) error {
	claims, err := reach.Placement.Client()
	if err != nil {
		return err
	}
	defer claims.Close()
	caretaker := &audit.Caretaker{Records: store, Shared: store, Inventory: claims, Every: s.Sweep, Log: log}
	p.Self.Counts(caretaker)
	p.Start(ctx, "what looks after the books", caretaker.Run)
	log.Info("hosts may join; this machine is none")
	ready()
	return p.Wait(ctx)
}
